//! Devices that become members: each is opened, examined and judged; then its ends are saved, its
//! old data is wiped, and the array adds it.
//!
//! As in `create`, recognised data is overwritten only if the operator named it, and the device's
//! first and last bytes are saved before. One rule differs: a stale member of the same array holds
//! nothing that the array lacks, and need not be named. This rule does not cover devices that are
//! newer, ran apart, or are clones of a member in use.
//!
//! If the array's bitmap covers everything that a stale member missed, the member keeps the rest of
//! its data; mdadm calls that a re-add. Its data area then belongs to the array, and is neither
//! named nor wiped.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use braid_control::model::{MemberChanged, MemberEffect, MemberRequest, MembersWanted};
use braid_geometry::{SECTOR_BYTES, Slot};
use braid_member::{Access, IdentityKey, Member, OpenError, Reach, is_uri};
use braid_ondisk::{Role, Snippet, Superblock};
use braid_runtime::{AddError, Direct, Newcomer, Wish};
use uuid::Uuid;

use super::{CurrentMember, Outcome, RequestContext, Standing, refusals, take_away};
use crate::health::absolute;
use crate::membership::JoinOptions;
use crate::owner;
use braid_console::error::code::Code;
use braid_console::error::system::system;
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::{option_words, shell_word};
use braid_discovery::contents::{self, Existing, Thing, keys_of, signature_sectors};
use braid_discovery::devices;
use braid_discovery::probe::{io_error, open_error};
use braid_discovery::undo::unfinished::refuse_half_written;
use braid_discovery::undo::{Mark, Overwrite, PlannedCommand, save};

/// A device that may become a member.
struct Candidate {
    path: PathBuf,
    label: String,
    key: IdentityKey,
    existing: Existing,
    /// Recognised data that the operator must name before it is overwritten.
    things: Vec<Thing>,
    /// Stale data of this array on the device.
    old: Vec<Thing>,
    /// The device's former slot, if it was a member of this array.
    had_slot: Option<u16>,
    /// The newest superblock of this array on the device.
    found: Option<Superblock>,
    /// Sectors that the device would keep as a member; 0 for a full recovery.
    kept_sectors: u64,
    /// Index of the failed member that is this device, if its descriptor is still open.
    out: Option<usize>,
}

pub(super) fn add(
    context: &RequestContext<'_>,
    wanted: &MembersWanted,
    dry_run: bool,
) -> Result<Outcome, CliError> {
    if wanted.members.is_empty() {
        return Err(refusals::not_one(context, 0));
    }
    if wanted.write_mostly {
        refusals::has_copies(context)?;
    }
    let candidates = looked_at(context, wanted, &wanted.members)?;
    let free_slots = context.free_slots();
    let mut outcome = Outcome::default();
    for (index, one) in candidates.iter().enumerate() {
        let effect = match () {
            () if index >= free_slots => MemberEffect::Waits,
            () if one.kept_sectors > 0 => MemberEffect::CatchesUp,
            () => MemberEffect::Rebuilds,
        };
        outcome.members.push(MemberChanged {
            member: one.label.clone(),
            slot: one.had_slot,
            effect,
            returns: one.is_returning(),
            kept_sectors: if effect == MemberEffect::CatchesUp { one.kept_sectors } else { 0 },
        });
        outcome.destroyed.extend(one.things.iter().map(Thing::line));
    }
    if dry_run {
        return Ok(outcome);
    }
    outcome.saved_in = saved(context, wanted, &candidates)?;
    for (index, one) in candidates.into_iter().enumerate() {
        let is_spare = index >= free_slots;
        let write_mostly = wanted.write_mostly;
        let role = NewRole::Member { wish: one.had_slot.map(free), is_spare, write_mostly };
        take_in(context, one, role).map_err(|error| {
            let before = outcome.members[..index].iter();
            let error = before.fold(error, |error, one| {
                error.because(format!("{} became a member before that", one.member))
            });
            match &outcome.saved_in {
                Some(folder) => error.because(format!("a copy of its old bytes is in {folder}")),
                None => error,
            }
        })?;
    }
    Ok(outcome)
}

pub(super) fn replace(
    context: &RequestContext<'_>,
    wanted: &MembersWanted,
    (slot, device): (u16, &str),
    dry_run: bool,
) -> Result<Outcome, CliError> {
    let mut candidates = looked_at(context, wanted, &[device.to_owned()])?;
    let one = candidates.pop().expect("one was named");
    let mut outcome = Outcome::default();
    outcome.members.push(MemberChanged {
        member: one.label.clone(),
        slot: Some(slot),
        effect: MemberEffect::Replaces,
        returns: one.is_returning(),
        kept_sectors: 0,
    });
    outcome.destroyed.extend(one.things.iter().map(Thing::line));
    if !dry_run {
        outcome.saved_in = saved(context, wanted, std::slice::from_ref(&one))?;
        let wish = Some(Wish { slot: Slot(slot), replaces: true });
        take_in(context, one, NewRole::Member { wish, is_spare: true, write_mostly: false })?;
    }
    Ok(outcome)
}

pub(super) fn add_journal(
    context: &RequestContext<'_>,
    wanted: &MembersWanted,
    dry_run: bool,
) -> Result<Outcome, CliError> {
    if context.volume.has_consenter() {
        return Err(owner::no_bitmap().because("an array with a journal has none"));
    }
    let mut candidates = candidates(context, &[context.only(wanted)?.to_owned()])?;
    check_names(context, wanted, &candidates)?;
    // A journal's device keeps none of the array's data.
    candidates.iter_mut().for_each(|one| one.kept_sectors = 0);
    let one = candidates.pop().expect("one was named");
    let size_bytes = one.existing.device.size_bytes();
    let may = context.volume.may_add_journal(size_bytes);
    may.map_err(|error| refusals::not_journaled(context, (&one.label, size_bytes), &error))?;
    let mut outcome = Outcome::default();
    outcome.members.push(MemberChanged {
        member: one.label.clone(),
        slot: None,
        effect: MemberEffect::Journals,
        returns: false,
        kept_sectors: 0,
    });
    outcome.destroyed.extend(one.things.iter().map(Thing::line));
    if !dry_run {
        outcome.saved_in = saved(context, wanted, std::slice::from_ref(&one))?;
        take_in(context, one, NewRole::Journal)?;
    }
    Ok(outcome)
}

enum NewRole {
    Member { wish: Option<Wish>, is_spare: bool, write_mostly: bool },
    Journal,
}

fn free(slot: u16) -> Wish {
    Wish { slot: Slot(slot), replaces: false }
}

/// Opens and checks all candidate devices; writes nothing.
fn looked_at(
    context: &RequestContext<'_>,
    wanted: &MembersWanted,
    devices: &[String],
) -> Result<Vec<Candidate>, CliError> {
    let candidates = candidates(context, devices)?;
    check_names(context, wanted, &candidates)?;
    for one in &candidates {
        let size_bytes = one.existing.device.size_bytes();
        let fits = context.volume.may_add_member(size_bytes);
        fits.map_err(|error| not_added(context, (&one.label, size_bytes), &error))?;
    }
    Ok(candidates)
}

impl Candidate {
    fn is_returning(&self) -> bool {
        !self.old.is_empty() || self.out.is_some()
    }

    /// The sectors on which the device holds current data of the array; empty if it holds none.
    fn kept(&self) -> Range<u64> {
        self.found.as_ref().filter(|_| self.kept_sectors > 0).map_or(0..0, data_area)
    }
}

/// Refuses devices that an array with one owner cannot use. Opening a device for writing claims it,
/// which ends the owner of the array that has the device.
fn check_for_owner(context: &RequestContext<'_>, word: &str, path: &Path) -> Result<(), CliError> {
    owner::check_member(path).map_err(|error| error.about(word))?;
    let own = context.volume.look_at_members().into_iter().map(|look| look.superblock.array.uuid);
    let found = devices::look_at(path).map(|found| found.superblock.array.uuid);
    match found.is_some_and(|found| !own.into_iter().any(|own| own == found)) {
        true => Err(owner::other_arrays_member(word)),
        false => Ok(()),
    }
}

/// Opens each device for examination before locking it. A device that is named twice or is a member
/// already then gets that error, and not "busy".
fn candidates(
    context: &RequestContext<'_>,
    devices: &[String],
) -> Result<Vec<Candidate>, CliError> {
    let mut candidates: Vec<Candidate> = Vec::new();
    for word in devices {
        let path = PathBuf::from(word);
        if context.volume.has_consenter() {
            check_for_owner(context, word, &path)?;
        }
        if path.is_relative() && !is_uri(&path) {
            let what = format!("'{word}' is not an absolute path");
            let error = CliError::new(Code::Usage, what).about(word);
            let error = error.because(
                "the server may run in another folder, so it needs absolute \
                                       paths",
            );
            return Err(error.remedy(
                Risk::Look,
                "Where it is",
                format!("realpath {}", shell_word(word)),
            ));
        }
        // Refuse a current member that is named by its path, even if its device cannot be opened.
        if let Some(key) = braid_member::key_at(&path) {
            check_no_member(context, word, (key, &Reach::of(&path)))?;
        }
        let looked = open_unchanged(context, &path, Access::Examine)?;
        let (key, reach) = (looked.identity().key, Reach::of(&path));
        check_not_named_twice(word, (key, &reach), &candidates)?;
        let out = check_no_member(context, word, (key, &reach))?;
        // This process already holds the lock of a failed member's device.
        let device = match out.is_some() || is_claimed_late(context, &path) {
            true => looked,
            false => open_unchanged(context, &path, Access::ReadWrite)?,
        };
        if device.identity().key != key {
            return Err(open_error(&OpenError::Replaced { path }));
        }
        refuse_half_written(&context.membership.state_dir, device.as_ref())?;
        let existing = Existing::look(device, word)?;
        let DeviceContent { mut things, old, found } = judge(context, word, &existing);
        let had_slot = found.as_ref().and_then(|found| match found.state.role {
            Role::Active(slot) => Some(slot),
            _ => None,
        });
        let kept_sectors = found.as_ref().map_or(0, |found| context.volume.would_keep(found));
        if let Some(data) = found.as_ref().filter(|_| kept_sectors > 0).map(data_area) {
            let is_content =
                |thing: &Thing| thing.foreign_sector.is_some_and(|at| data.contains(&at));
            things.retain(|thing| !is_content(thing));
        }
        let label = word.clone();
        candidates.push(Candidate {
            path,
            label,
            key,
            existing,
            things,
            old,
            had_slot,
            found,
            kept_sectors,
            out,
        });
    }
    Ok(candidates)
}

/// Whether the device is claimed only when the array adds it. The claim of a shared disk keeps all
/// other hosts out, so a dry run or a refused request must not make one.
fn is_claimed_late(context: &RequestContext<'_>, path: &Path) -> bool {
    context.volume.has_consenter() && !is_uri(path)
}

fn open_unchanged(
    context: &RequestContext<'_>,
    path: &Path,
    access: Access,
) -> Result<Box<dyn Member>, CliError> {
    context.devices.open(path, access).map_err(|error| error.because("nothing was changed"))
}

fn check_not_named_twice(
    label: &str,
    (key, reach): (IdentityKey, &Reach),
    before: &[Candidate],
) -> Result<(), CliError> {
    let how = |other: &Candidate| {
        let same = (other.key == key).then(|| "they are the same file or device".to_owned());
        same.or_else(|| reach.shared_with(&Reach::of(&other.path)))
    };
    let Some((other, how)) = before.iter().find_map(|other| Some((other, how(other)?))) else {
        return Ok(());
    };
    let error = CliError::new(Code::SameMemberTwice, format!("{label} was named twice"));
    let error = error.about(label);
    let error = error.because(format!("{} and {label} are the same storage: {how}", other.label));
    let command = match is_uri(Path::new(label)) {
        true => format!("nbdinfo {}", shell_word(label)),
        false => format!("ls -li {} {}", shell_word(&other.label), shell_word(label)),
    };
    Err(error.remedy(Risk::Look, "Compare them", command))
}

/// Checks that the device is no current member. If the device is that of a failed member, returns
/// the index of this member.
fn check_no_member(
    context: &RequestContext<'_>,
    label: &str,
    (key, reach): (IdentityKey, &Reach),
) -> Result<Option<usize>, CliError> {
    let mut out = None;
    for (index, member) in context.members.iter().enumerate() {
        let is_same = member.look.key == key;
        if member.standing == Standing::Out {
            out = out.or(is_same.then_some(index));
            continue;
        }
        let shared = || reach.shared_with(&Reach::of(Path::new(&member.label)));
        match (is_same, shared) {
            (true, _) => return Err(refusals::already(context, label, member, None)),
            (false, shared) => {
                if let Some(how) = shared() {
                    return Err(refusals::already(context, label, member, Some(how)));
                }
            }
        }
    }
    Ok(out)
}

/// Recognised data on a device.
struct DeviceContent {
    /// Data other than stale copies of members of this array.
    things: Vec<Thing>,
    /// Stale copies of members of this array.
    old: Vec<Thing>,
    /// The newest superblock among the stale copies.
    found: Option<Superblock>,
}

/// The sectors of a member that belong to the array's data.
fn data_area(superblock: &Superblock) -> Range<u64> {
    let start = superblock.device.data_offset_sectors;
    start..start.saturating_add(superblock.array.member_size_sectors)
}

fn judge(context: &RequestContext<'_>, label: &str, existing: &Existing) -> DeviceContent {
    let ours: Vec<&CurrentMember> =
        context.members.iter().filter(|one| one.standing != Standing::Out).collect();
    let uuid = ours.first().map(|one| one.look.superblock.array.uuid);
    let sound = || existing.probe.superblocks.iter().filter_map(|found| found.as_ref().ok());
    let mine = || sound().filter(|found| Some(found.array.uuid) == uuid);
    let claim = mine().find_map(|found| claim_of(found, &ours));
    let is_mine = |thing: &Thing| thing.array.is_some() && thing.array == uuid;
    let (mut old, mut things): (Vec<Thing>, Vec<Thing>) =
        contents::things(label, existing).into_iter().partition(is_mine);
    if let Some(claim) = claim {
        for mut thing in std::mem::take(&mut old) {
            thing.words = format!("{}; {claim}", thing.words);
            things.push(thing);
        }
        return DeviceContent { things, old, found: None };
    }
    let found = mine().max_by_key(|found| found.state.events).cloned();
    DeviceContent { things, old, found }
}

/// Why a former member of this array may hold data that the array lacks; `None` if it has none.
fn claim_of(found: &Superblock, ours: &[&CurrentMember]) -> Option<String> {
    let newest = ours.iter().map(|one| one.look.superblock.state.events).max().unwrap_or(0);
    let clone = ours.iter().find(|one| {
        let device = one.look.superblock.device.uuid;
        device != [0; 16] && device == found.device.uuid
    });
    if let Some(member) = clone {
        return Some(format!("a copy of {}, which is in use", member.label));
    }
    if found.state.events > newest {
        return Some("newer than the served array: it was used without these members".to_owned());
    }
    // Compares numbers of other members only, since this device's number may be reused by now.
    let number = |one: &&CurrentMember| one.look.superblock.device.number;
    let others = || {
        let active = ours.iter().filter(|one| one.standing == Standing::Active);
        active.map(number).filter(|number| *number != found.device.number)
    };
    let is_called_out = |number: u32| {
        let role = usize::try_from(number).ok().and_then(|number| found.state.roles.get(number));
        !matches!(role, Some(Role::Active(_)))
    };
    let ran_apart = others().next().is_some() && others().all(is_called_out);
    ran_apart.then(|| "it was used without any of these members".to_owned())
}

/// Checks that the request names all recognised data and nothing else, each by an unambiguous name.
fn check_names(
    context: &RequestContext<'_>,
    wanted: &MembersWanted,
    candidates: &[Candidate],
) -> Result<(), CliError> {
    let things: Vec<Thing> = candidates.iter().flat_map(|one| one.things.clone()).collect();
    let is_welcome =
        |name: &str| candidates.iter().flat_map(|one| &one.old).any(|thing| thing.answers(name));
    for name in &wanted.destroy {
        let what = match keys_of(name, &things).len() {
            1 => continue,
            // The operator may name a stale copy, although no rule requires the name.
            0 if is_welcome(name) => continue,
            0 => format!("there is no \"{name}\" on these devices to destroy"),
            _ => format!("\"{name}\" is the name of several different things on these devices"),
        };
        let error = CliError::new(Code::DestroyNameMismatch, what).about(name);
        let error = things.iter().fold(error, |error, thing| error.because(thing.line()));
        let error = if things.is_empty() {
            error.because("they hold no data that needs a name")
        } else {
            error
        };
        return Err(error.remedy(Risk::Look, "See what is on them", examine(wanted)));
    }
    let is_named = |thing: &Thing| wanted.destroy.iter().any(|name| thing.answers(name));
    let unnamed: Vec<&Thing> = things.iter().filter(|thing| !is_named(thing)).collect();
    if unnamed.is_empty() {
        return Ok(());
    }
    let labels: BTreeSet<&str> = unnamed.iter().map(|thing| thing.label.as_str()).collect();
    let labels: Vec<&str> = labels.into_iter().collect();
    let labels = labels.join(", ");
    let what = format!("refusing to add to {}: there is data on {labels}", context.facts.name);
    let mut error = CliError::new(Code::HoldsData, what).about(labels);
    let mut destroy = wanted.destroy.clone();
    for thing in unnamed {
        error = error.because(thing.line());
        if destroy.iter().any(|name| thing.answers(name)) {
            continue;
        }
        let is_clear = |name: &&String| keys_of(name, &things).len() == 1;
        let name = thing.names.iter().find(is_clear).map_or(thing.own_name(), String::as_str);
        destroy.push(name.to_owned());
    }
    let command = command_line(context, wanted, &destroy);
    error = error.because("nothing was written");
    error = error.remedy(Risk::Look, "See what is on it", examine(wanted));
    Err(error.remedy(Risk::Destroy, "To destroy it, name it", command))
}

fn paths(labels: &[String]) -> String {
    labels.iter().map(|label| shell_word(label)).collect::<Vec<_>>().join(" ")
}

fn examine(wanted: &MembersWanted) -> String {
    let device = wanted.with.as_ref().map(std::slice::from_ref);
    format!("braid examine {}", paths(device.unwrap_or(&wanted.members)))
}

fn command_line(
    context: &RequestContext<'_>,
    wanted: &MembersWanted,
    destroy: &[String],
) -> String {
    let verb = match wanted.request {
        MemberRequest::Spare if context.shape_words.is_some() => "grow",
        MemberRequest::Spare => "spare",
        MemberRequest::Replace => "replace",
        MemberRequest::Add if wanted.write_mostly => "add --write-mostly",
        MemberRequest::Add | MemberRequest::Fail | MemberRequest::Remove => "add",
        // A write-mostly request overwrites nothing.
        MemberRequest::WriteMostly => "set",
        MemberRequest::Journal => "add --write-journal",
    };
    let mut words = vec![format!("braid {verb} {}", context.word)];
    words.extend(context.shape_words.clone().filter(|words| !words.is_empty()));
    words.extend(destroy.iter().map(|name| option_words("--destroy", name)));
    words.push(paths(&wanted.members));
    words.extend(wanted.with.iter().map(|device| option_words("--with", device)));
    words.join(" ")
}

/// Saves the first and last bytes of the devices unless all are zero, and returns the file. The
/// file cannot undo the add: the array also writes elsewhere on the devices.
fn saved(
    context: &RequestContext<'_>,
    wanted: &MembersWanted,
    candidates: &[Candidate],
) -> Result<Option<String>, CliError> {
    let overwritten: Vec<Overwrite<'_>> = candidates
        .iter()
        .filter(|one| !one.existing.is_zero())
        .map(|one| Overwrite {
            path: &one.path,
            device: one.existing.device.as_ref(),
            is_made: false,
            ends: &one.existing.snippets,
            writes: if one.things.is_empty() {
                Vec::new()
            } else {
                wipes(&one.existing, &one.kept())
            },
            last_writes: 0,
        })
        .collect();
    if overwritten.is_empty() {
        return Ok(None);
    }
    let command = command_line(context, wanted, &wanted.destroy);
    let planned = PlannedCommand {
        command: &command,
        array: &context.facts.name,
        zeroes: false,
        undoes: None,
        mark: Mark::Nothing,
    };
    let saved = save(&context.membership.state_dir, planned, overwritten)?;
    Ok(Some(absolute(&saved.path.to_string_lossy())))
}

/// Wipes the named data, and makes the device a member.
fn take_in(
    context: &RequestContext<'_>,
    candidate: Candidate,
    role: NewRole,
) -> Result<(), CliError> {
    let returns = candidate.is_returning();
    let kept = candidate.kept();
    let Candidate { path, label, key, existing, things, found, out, .. } = candidate;
    let existing = match out {
        None if !is_claimed_late(context, &path) => existing,
        _ => {
            let first = existing.snippets.clone();
            drop(existing);
            if let Some(index) = out {
                take_away(context, &context.members[index])?;
            }
            let device = context.devices.open(&path, Access::ReadWrite)?;
            if device.identity().key != key {
                return Err(open_error(&OpenError::Replaced { path }));
            }
            let again = Existing::look(device, &label)?;
            if again.snippets != first {
                return Err(changed(&label));
            }
            again
        }
    };
    let is_wiped = !things.is_empty();
    if is_wiped {
        wipe(&existing, &kept, &label)?;
    }
    past_the_page_cache(context, &existing, &label)?;
    let Existing { device, snippets, .. } = existing;
    let size_bytes = device.size_bytes();
    let uuid = *Uuid::new_v4().as_bytes();
    let added = match role {
        NewRole::Member { wish, is_spare, write_mostly } => {
            let how = JoinOptions { is_spare, returns, moved_from: context.moved_from };
            let found = found.as_ref();
            let newcomer = Newcomer { uuid, wanted: wish, found, write_mostly };
            let added = context.membership.add(context.volume, (device, &newcomer), &how);
            added.map_err(|error| not_added(context, (&label, size_bytes), &error))
        }
        NewRole::Journal => {
            // The journal starts at a random sequence number, so that no old block on the device
            // can continue it.
            let (sequence, ..) = Uuid::new_v4().as_fields();
            let added = context.membership.add_journal(context.volume, device, (uuid, sequence));
            added.map_err(|error| refusals::not_journaled(context, (&label, size_bytes), &error))
        }
    };
    added.map(|_| ()).map_err(|refused| {
        if !is_wiped {
            return refused;
        }
        let is_back = context.devices.open(&path, Access::ReadWrite).is_ok_and(|device| {
            let back = |one: &Snippet| device.write_at(&one.bytes, one.offset, false).is_ok();
            snippets.iter().all(back) && device.flush().is_ok()
        });
        match is_back {
            true => refused.because("its old bytes were put back"),
            false => refused.because("its old bytes could not be put back"),
        }
    })
}

fn changed(label: &str) -> CliError {
    let what = format!("{label} changed while braid examined it");
    let error = CliError::new(Code::HoldsData, what).about(label);
    let error = error.because("another program writes to it; it was removed and not added");
    error.remedy(Risk::Look, "See what is on it", format!("braid examine {}", shell_word(label)))
}

/// Zeroes for every recognised signature outside the kept sectors.
fn wipes(existing: &Existing, kept: &Range<u64>) -> Vec<Snippet> {
    let sectors = signature_sectors(existing, kept).into_iter();
    let zeroes = |sector| Snippet { offset: sector * SECTOR_BYTES, bytes: vec![0; 512] };
    sectors.map(zeroes).collect()
}

fn wipe(existing: &Existing, kept: &Range<u64>, label: &str) -> Result<(), CliError> {
    let device = existing.device.as_ref();
    for wipe in wipes(existing, kept) {
        let wiped = device.write_at(&wipe.bytes, wipe.offset, false);
        wiped.map_err(|error| io_error(label, "wiping", &error))?;
    }
    device.flush().map_err(|error| io_error(label, "wiping", &error))
}

/// Bypasses the page cache for a new device, as for the members with which the array started.
fn past_the_page_cache(
    context: &RequestContext<'_>,
    existing: &Existing,
    label: &str,
) -> Result<(), CliError> {
    let device = existing.device.as_ref();
    let direct = context.membership.direct;
    match (direct.apply(device, false), direct) {
        (Err(error), Direct::On) => {
            let what = format!("{label} cannot bypass the page cache, as `--direct on` demands");
            Err(CliError::new(Code::System, what).about(label).caused_by(&error))
        }
        _ => Ok(()),
    }
}

fn not_added(context: &RequestContext<'_>, device: (&str, u64), error: &AddError) -> CliError {
    match error {
        AddError::Join(error) => refusals::unfit(context, device, error),
        AddError::Refused(refusal) => refusals::refused(context, *refusal),
        AddError::Alone => refusals::has_failed(context),
        AddError::Thread(error) => system("no thread could be started for it", error),
    }
}
