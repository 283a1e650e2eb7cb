//! Refusals of an operator's member requests: code, cause, and the command to use instead.

use std::path::Path;

use braid_control::model::MembersWanted;
use braid_geometry::{Family, SECTOR_BYTES, Slot};
use braid_ondisk::{JoinError, NewSuperblockError, PlacementError, Version};
use braid_runtime::{JournalError, LogRefusal, MemberRefusal};

use super::super::consistency::AFTER_ITS_JOURNAL;
use super::{CurrentMember, RequestContext, Standing, code_of};
use braid_console::error::code::Code;
use braid_console::error::system::system;
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::shell_word;
use braid_console::output::size::format_size;

pub(in super::super) fn status(error: &CliError) -> u16 {
    match error.code() {
        Code::Usage | Code::SizeInvalid => 400,
        Code::NoSuchMember | Code::MemberMissing => 404,
        Code::MemberIo | Code::System | Code::Shortage | Code::StateFolder => 500,
        _ => 409,
    }
}

fn new(context: &RequestContext<'_>, code: Code, what: String) -> CliError {
    CliError::new(code, what).about(&context.facts.name)
}

fn look(context: &RequestContext<'_>, error: CliError) -> CliError {
    error.remedy(Risk::Look, "See its state", format!("braid status {}", context.word))
}

pub(super) fn no_redundancy(context: &RequestContext<'_>) -> CliError {
    let what = format!("members of {} can neither be added nor removed", context.facts.name);
    let why = "its level has neither copies nor parity: it needs each of its members, and no more";
    look(context, new(context, Code::NoRedundancy, what).because(why))
}

/// Refuses write-mostly for a level without copies.
pub(super) fn has_copies(context: &RequestContext<'_>) -> Result<(), CliError> {
    // In metadata 0.90 the write-mostly flag is in a table that all members hold: a power cut could
    // tear all superblocks at once.
    if context.members.iter().any(|one| one.look.superblock.version == Version::V0_90) {
        let what =
            format!("write-mostly is not set with metadata 0.90, which {} has", context.facts.name);
        let why = "it uses the flags that its superblocks already have";
        return Err(look(context, new(context, Code::Usage, what).because(why)));
    }
    if context.volume.geometry().level().family() == Family::Mirror {
        return Ok(());
    }
    let what = format!("{} has no copies to choose from", context.facts.name);
    let why = "write-mostly says which copy is read last: that is for raid1 and raid10";
    Err(look(context, new(context, Code::Usage, what).because(why)))
}

pub(super) fn read_only(context: &RequestContext<'_>) -> CliError {
    let what = format!("members of {} cannot be added or removed now", context.facts.name);
    let error = new(context, Code::ServedReadOnly, what);
    let error = error.because("it is served read-only, and a change of members writes superblocks");
    let stop = format!("braid stop {}", context.word);
    error.remedy(Risk::Change, "Stop it, and serve it without --read-only", stop)
}

pub(super) fn has_failed(context: &RequestContext<'_>) -> CliError {
    let what = format!("members of {} can no longer be added or removed", context.facts.name);
    let why = "more members are lost than its level tolerates: it needs one of the lost members \
               back";
    look(context, new(context, Code::ArrayFailed, what).because(why))
}

/// Error for a change that the array refuses although the check passed, because the array's state
/// changed between check and change.
pub(super) fn refused(context: &RequestContext<'_>, refusal: MemberRefusal) -> CliError {
    let what = format!("{} was not changed", context.facts.name);
    look(context, new(context, code_of(refusal), what).because(refusal.to_string()))
}

pub(super) fn not_one(context: &RequestContext<'_>, count: usize) -> CliError {
    let what = format!("only one member can fail or be removed at a time, and {count} were named");
    let why = "name it by its slot or its path, without --destroy; nothing was changed";
    look(context, new(context, Code::Usage, what).because(why))
}

pub(super) fn no_such_member(
    context: &RequestContext<'_>,
    word: &str,
    number: Option<u16>,
) -> CliError {
    let name = &context.facts.name;
    let slots = context.volume.geometry().slots();
    let what = match number {
        Some(number) if number >= slots => {
            format!("{name} has no slot {number}: its slots are 0 to {}", slots - 1)
        }
        Some(number) => format!("slot {number} of {name} has no member"),
        None => format!("{word} is no member of {name}"),
    };
    let mut error = CliError::new(Code::NoSuchMember, what).about(word);
    if number.is_none() && !braid_member::may_be_there(Path::new(word)) {
        error = error.because("that path does not exist");
    }
    let line = |one: &CurrentMember| match (one.standing, one.slot) {
        (Standing::Active, Some(slot)) => format!("slot {slot}  {}", one.label),
        (Standing::Replacing, Some(slot)) => format!("for slot {slot}  {}", one.label),
        (Standing::Waiting, _) => format!("spare  {}", one.label),
        (Standing::Journal, _) => format!("journal  {}", one.label),
        (_, Some(slot)) => format!("failed  {} (it had slot {slot})", one.label),
        (_, None) => format!("failed  {}", one.label),
    };
    let error = context.members.iter().fold(error, |error, one| error.because(line(one)));
    look(context, error)
}

/// Refusal to remove a member with a slot: it must fail first.
pub(super) fn in_use(context: &RequestContext<'_>, member: &CurrentMember) -> CliError {
    let (name, word) = (&context.facts.name, &context.word);
    let slot = member.slot.map(|slot| format!(" (slot {slot})")).unwrap_or_default();
    let what = format!("{} cannot be removed from {name}: it is in use{slot}", member.label);
    let mut error = CliError::new(Code::MemberInUse, what).about(&member.label);
    let out = context.members.iter().filter(|one| one.standing == Standing::Out);
    let failed: Vec<&CurrentMember> = out.collect();
    for one in &failed {
        error = error.because(format!("{} has failed, and can be removed", one.label));
        let command = format!("braid remove {word} {}", shell_word(&one.label));
        error = error.remedy(Risk::Change, "Remove the one that failed", command);
    }
    let label = shell_word(&member.label);
    let command = format!("braid fail {word} {label} && braid remove {word} {label}");
    if member.standing == Standing::Replacing {
        let error =
            error.because("its content is being copied or rebuilt, and it takes every write");
        return error.remedy(Risk::Change, "End that, and remove it", command);
    }
    if context.volume.may_fail_member(member.look.id).is_err() {
        let error = error.because(format!("{name} needs it now"));
        return look(context, error);
    }
    let left = match context.can_lose(member.slot) {
        0 => "could not lose another member".to_owned(),
        1 => "could lose 1 more member".to_owned(),
        more => format!("could lose {more} more members"),
    };
    error = error.because(format!("without it {name} {left}"));
    error.remedy(Risk::Change, "Let it fail first; the array loses its protection", command)
}

pub(super) fn needed(context: &RequestContext<'_>, member: &CurrentMember) -> CliError {
    let (name, word) = (&context.facts.name, &context.word);
    let what = format!("{} cannot fail: {name} needs it", member.label);
    let mut error = CliError::new(Code::MemberNeeded, what).about(&member.label);
    let (view, geometry) = (context.volume.view(), context.volume.geometry());
    let mut is_rebuilding = false;
    for number in (0..geometry.slots()).filter(|number| Some(*number) != member.slot) {
        match view.member(Slot(number)) {
            None => error = error.because(format!("slot {number} has no member already")),
            Some(other) if other.recovered_sectors != u64::MAX => {
                is_rebuilding = true;
                error = error.because(format!("slot {number} is still being rebuilt"));
            }
            Some(_) => {}
        }
    }
    let is_dirty = view.resync_offset != u64::MAX;
    if is_dirty {
        let why = "it was interrupted while writing and is not resynced: data computed from its \
                   parity may be wrong";
        error = error.because(why);
    }
    let max = geometry.lost_max();
    error = error.because(format!("its level can lose any {max} members; nothing was changed"));
    let wait = match (is_rebuilding, is_dirty) {
        (true, _) => Some(("Wait until it is rebuilt", format!("braid wait {word} --for rebuild"))),
        (false, true) => Some(("Wait until it is resynced", format!("braid wait {word}"))),
        (false, false) => None,
    };
    let error = look(context, error);
    match wait {
        Some((label, command)) => error.remedy(Risk::Look, label, command),
        None => error,
    }
}

pub(super) fn not_replaced(
    context: &RequestContext<'_>,
    (member, wanted): (&CurrentMember, &MembersWanted),
    refusal: MemberRefusal,
) -> CliError {
    let (name, word, label) = (&context.facts.name, &context.word, &member.label);
    let what = format!("{label} cannot be replaced now");
    let error = CliError::new(code_of(refusal), what).about(label);
    let by = |one: &&CurrentMember| one.standing == Standing::Replacing && one.slot == member.slot;
    match (refusal, member.standing) {
        (MemberRefusal::Replaced, _) => {
            let mut error = error;
            if let Some(one) = context.members.iter().find(by) {
                error = error.because(format!("{} is taking its place already", one.label));
                let end = format!("braid fail {word} {}", shell_word(&one.label));
                error = error.remedy(Risk::Change, "To use another one, end that first", end);
            } else {
                error = error.because("a spare is about to take its place");
            }
            let wait = format!("braid wait {word} --for rebuild");
            error.remedy(Risk::Look, "Wait for its end", wait)
        }
        (MemberRefusal::Unrecovered, _) => {
            let error = error.because("it is being rebuilt itself, and cannot be copied");
            let wait = format!("braid wait {word} --for rebuild");
            error.remedy(Risk::Look, "Wait until it is rebuilt", wait)
        }
        (MemberRefusal::NoMember, Standing::Out) => {
            let error = error.because(format!("it is out, and {name} no longer reads it"));
            let device = wanted.with.as_deref().unwrap_or("DEVICE");
            let add = format!("braid add {word} {}", shell_word(device));
            error.remedy(Risk::Change, "Add another in its place, which is rebuilt", add)
        }
        (MemberRefusal::NoMember, Standing::Replacing) => {
            look(context, error.because("it is itself replacing another member"))
        }
        (MemberRefusal::NoMember, Standing::Waiting) => {
            let error = error.because("it is a spare, and holds no data");
            let remove = format!("braid remove {word} {}", shell_word(label));
            error.remedy(Risk::Change, "Remove it", remove)
        }
        (MemberRefusal::NoMember, Standing::Journal) => look(context, error.because(JOURNAL)),
        (other, _) => refused(context, other),
    }
}

pub(super) fn not_journaled(
    context: &RequestContext<'_>,
    (label, size_bytes): (&str, u64),
    error: &JournalError,
) -> CliError {
    let refusal = match error {
        JournalError::Refused(refusal) => *refusal,
        JournalError::TooSmall { needed_bytes } => {
            let what = format!(
                "{label} is too small for the journal of {}: it has {}, at least {} are needed",
                context.facts.name,
                format_size(size_bytes),
                format_size(*needed_bytes)
            );
            let error = CliError::new(Code::MemberTooSmall, what).about(label);
            return look(context, error.because("nothing was written"));
        }
        JournalError::Join(error) => return unfit(context, (label, size_bytes), error),
        JournalError::Alone => return has_failed(context),
        JournalError::Thread(error) => return system("no thread could be started for it", error),
        JournalError::Blocks | JournalError::Failed => {
            let code = match error {
                JournalError::Blocks => Code::ConsistencyStays,
                _ => Code::MemberIo,
            };
            let what = format!("{label} did not become the journal of {}", context.facts.name);
            let error = CliError::new(code, what).about(label).because(error.to_string());
            return look(context, error.because("the array was not changed"));
        }
    };
    let (name, word) = (&context.facts.name, &context.word);
    let error = new(context, Code::ConsistencyStays, format!("{name} gets no write journal now"));
    match refusal {
        LogRefusal::Array(refusal) => refused(context, refusal),
        LogRefusal::Busy => {
            let what = format!("the bitmap or log of {name} is being changed");
            let why = "a member has not answered yet; the change completes by itself";
            look(context, new(context, Code::BitmapBusy, what).because(why))
        }
        LogRefusal::Reshaping => {
            let error = error.because("its shape is being changed");
            let wait = format!("braid wait {word} --for idle");
            error.remedy(Risk::Look, "Wait until its shape is changed", wait)
        }
        LogRefusal::Level => {
            let why = "a journal needs parity: levels 4, 5 and 6";
            look(context, error.because(why))
        }
        LogRefusal::HasLogs if context.volume.journal().is_some() => {
            look(context, error.because("it has one"))
        }
        LogRefusal::HasLogs | LogRefusal::HasNone | LogRefusal::Bitmap => {
            let why = "it has a bitmap or a log, and cannot have a journal beside it";
            let command = format!("braid set {word} consistency=resync");
            error.because(why).remedy(Risk::Change, "Drop its bitmap or log", command)
        }
        LogRefusal::InDoubt => {
            let error = error.because(
                "it is being resynced, and a journal does not cover a \
                                       resync",
            );
            error.remedy(Risk::Look, "Wait until it is resynced", format!("braid wait {word}"))
        }
        LogRefusal::Degraded => {
            let error = error.because("a member is missing or being rebuilt");
            let wait = format!("braid wait {word} --for rebuild");
            error.remedy(Risk::Look, "Wait until it is rebuilt", wait)
        }
    }
}

pub(super) fn journal_lost(context: &RequestContext<'_>) -> CliError {
    let what = format!("{} takes no more changes", context.facts.name);
    let error = new(context, Code::ArrayFailed, what);
    let error = error.because("its write journal is lost, so writes are refused");
    let stop = format!("braid stop {}", context.word);
    error.because(AFTER_ITS_JOURNAL).remedy(Risk::Change, "Stop it", stop)
}

const JOURNAL: &str = "it has the write journal, which takes every write before the members do";

pub(super) fn is_journal(context: &RequestContext<'_>, member: &CurrentMember) -> CliError {
    let what = format!("{} stays: {} cannot write without it", member.label, context.facts.name);
    let error = CliError::new(Code::MemberInUse, what).about(&member.label);
    let error = error.because(JOURNAL).because("nothing was changed");
    let command = format!("braid set {} consistency=log", context.word);
    error.remedy(Risk::Change, "Keep braid's own log instead", command)
}

pub(super) fn no_spare(context: &RequestContext<'_>, member: &CurrentMember) -> CliError {
    let (word, label) = (&context.word, shell_word(&member.label));
    let what = format!("{} has no spare to replace {label}", context.facts.name);
    let error = CliError::new(Code::NoSpare, what).about(&member.label);
    let error = error.because("no device was named, and no spare waits; nothing was changed");
    let command = format!("braid replace {word} {label} --with DEVICE");
    error.remedy(Risk::Change, "Name a device", command)
}

/// Refusal to remove a member that is out but has not answered all its requests.
pub(super) fn unanswered(context: &RequestContext<'_>, member: &CurrentMember) -> CliError {
    let label = &member.label;
    let what = format!("{label} was not removed: it still has unanswered requests");
    let error = CliError::new(Code::MemberSilent, what).about(label);
    let error = error.because("it is no longer part of the array, only held open");
    let again = format!("braid remove {} {}", context.word, shell_word(label));
    error.remedy(Risk::Change, "Try again when it has answered", again)
}

pub(super) fn already(
    context: &RequestContext<'_>,
    label: &str,
    member: &CurrentMember,
    how: Option<String>,
) -> CliError {
    let what = format!("{label} is a member of {} already", context.facts.name);
    let mut error = CliError::new(Code::AlreadyMember, what).about(label);
    if label != member.label {
        error = error.because(format!("it is {}", member.label));
    }
    if let Some(how) = how {
        error = error.because(how);
    }
    look(
        context,
        error.because(match (member.standing, member.slot) {
            (Standing::Active, Some(slot)) => format!("it has slot {slot}"),
            (Standing::Replacing, Some(slot)) => format!("it replaces the one in slot {slot}"),
            (Standing::Journal, _) => "it has the write journal".to_owned(),
            _ => "it waits as a spare".to_owned(),
        }),
    )
}

pub(super) fn unfit(
    context: &RequestContext<'_>,
    (label, size_bytes): (&str, u64),
    error: &JoinError,
) -> CliError {
    let name = &context.facts.name;
    let small = |needed: u64| {
        let what = format!(
            "{label} is too small for {name}: it has {}, and needs {} (short by {})",
            format_size(size_bytes),
            format_size(needed),
            format_size(needed.saturating_sub(size_bytes))
        );
        CliError::new(Code::MemberTooSmall, what).about(label)
    };
    let no_member = |code: Code| {
        CliError::new(code, format!("{label} cannot become a member of {name}")).about(label)
    };
    let error = match error {
        JoinError::Placement(PlacementError::TooSmall { needed_bytes, .. }) => small(*needed_bytes),
        JoinError::Placement(PlacementError::MemberSize { asked, usable }) if asked > usable => {
            let short = (asked - usable).saturating_mul(SECTOR_BYTES);
            small(size_bytes.saturating_add(short))
        }
        JoinError::Placement(_)
        | JoinError::Superblock(NewSuperblockError::TooSmall { .. })
        | JoinError::Bitmap { .. }
        | JoinError::ParityLog { .. } => no_member(Code::MemberTooSmall).because(error.to_string()),
        JoinError::Superblock(_) => no_member(Code::MemberCount).because(error.to_string()),
    };
    let active = context.members.iter().find(|one| one.standing == Standing::Active);
    let labels = active.map(|one| one.label.as_str()).into_iter().chain([label]);
    let words: Vec<_> = labels.map(shell_word).collect();
    let command = format!("braid examine {}", words.join(" "));
    let error = error.because("nothing was written");
    error.remedy(Risk::Look, "Compare it with a member", command)
}
