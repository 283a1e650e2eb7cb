//! Assembly's refusals, as errors with codes and commands to copy.
//!
//! `braid-assembly` says why there is no array; this module says what the operator can do about the
//! refusal, with the operator's own names. Every refusal is mapped: the match has no catch-all.

use std::ops::Range;

use braid_assembly::{
    AtRisk, BitmapFileFault, JournalFault, MemberVerdict, ReadOnlyReason, Reason, Refusal,
    ReshapeFault, Tolerance, Verdict,
};
use braid_geometry::{GeometryError, SECTOR_BYTES};
use braid_ondisk::{ForeignKind, PplLogError, SuperblockFault, format_uuid};

use crate::open_commands::{OpenCommand, Use, open_commands};
use crate::raid0_layout;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::shell_word;
use braid_console::output::size::format_size;

/// The error of a refusal, with remedies. `members` are the operator's labels.
pub fn cli_error(refusal: &Refusal, verdicts: &[MemberVerdict], members: &[String]) -> CliError {
    let code = code(refusal, verdicts);
    let mut error = CliError::new(code, what(refusal));
    for line in causes(refusal) {
        error = error.because(line);
    }
    for verdict in verdicts.iter().filter(|verdict| !is_in_its_place(verdict.verdict)) {
        error = error.because(format!(
            "{}  {}: {}",
            verdict.label,
            verdict.verdict.code(),
            verdict.reason
        ));
    }
    with_remedies(error, refusal, verdicts, members)
}

/// Members' labels as words of a command line, except the labels in `without`.
pub fn words(members: &[String], without: &[String]) -> String {
    let kept = members.iter().filter(|member| !without.contains(member));
    kept.map(|member| shell_word(member).into_owned()).collect::<Vec<_>>().join(" ")
}

fn is_in_its_place(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Fresh { .. } | Verdict::Spare | Verdict::Journal)
}

fn code(refusal: &Refusal, verdicts: &[MemberVerdict]) -> Code {
    match refusal {
        Refusal::NoMembers { wanted: None } => code_of_none(verdicts),
        Refusal::NoMembers { wanted: Some(_) } => Code::NoSuperblock,
        Refusal::SeveralArrays { .. } => Code::SeveralArrays,
        Refusal::RolesContradict { .. } => Code::RanApart,
        Refusal::SlotClaimedTwice { .. } => Code::SlotClaimedTwice,
        Refusal::UnknownFeatures { .. } | Refusal::NewerFormat | Refusal::Clustered => {
            Code::UnsupportedFeature
        }
        Refusal::Reshaping { .. } => Code::Reshaping,
        Refusal::JournalMissing { .. } => Code::JournalNeeded,
        Refusal::NewestDamaged { .. } => Code::NewestDamaged,
        Refusal::OlderThanKnown { .. } => Code::OlderThanKnown,
        Refusal::ConflictingGeometry { .. } => Code::MembersDisagree,
        Refusal::Geometry(
            GeometryError::Raid10FarSets { .. } | GeometryError::Raid0LayoutUnspecified { .. },
        ) => Code::UnsupportedFeature,
        Refusal::Geometry(_) => Code::SuperblockImpossible,
        Refusal::TooFewMembers { .. } => Code::TooFewMembers,
        Refusal::DirtyAndDegraded(_) => Code::DirtyDegraded,
        Refusal::PplNotReplayed { .. } => Code::PplNeeded,
        Refusal::BitmapFile { .. } => Code::BitmapFileUnfit,
        Refusal::ReadOnlyOnly(_) => Code::ReadOnlyOnly,
    }
}

/// The error code if no array was found: the first member's fault if all members are broken, else
/// the code for no array.
fn code_of_none(verdicts: &[MemberVerdict]) -> Code {
    let fault = verdicts.iter().find_map(|verdict| match (&verdict.verdict, &verdict.reason) {
        (_, Reason::Superblock(error)) => Some(match error.cause {
            SuperblockFault::Checksum { .. } | SuperblockFault::CutOff { .. } => {
                Code::SuperblockChecksum
            }
            SuperblockFault::Level { .. } => Code::UnsupportedFeature,
            _ => Code::SuperblockImpossible,
        }),
        (Verdict::Truncated, _) => Some(Code::MemberTruncated),
        _ => None,
    });
    fault.unwrap_or(Code::NoSuperblock)
}

fn what(refusal: &Refusal) -> String {
    match refusal {
        Refusal::TooFewMembers { have, need, slots, .. } => {
            format!("too few members: {have} of {slots} are up to date, at least {need} are needed")
        }
        Refusal::DirtyAndDegraded(risk) => format!(
            "the array was interrupted while writing and slot {} is missing; serving it could \
             return wrong data",
            numbers(&risk.slots)
        ),
        Refusal::PplNotReplayed { missing, .. } => format!(
            "the array was interrupted while writing, slot {} is missing, and its partial parity \
             log does not cover all interrupted writes",
            numbers(missing)
        ),
        Refusal::JournalMissing { missing, .. } if missing.is_empty() => {
            "the array's write journal is not here; without it the newest writes may be missing"
                .to_string()
        }
        Refusal::JournalMissing { missing, .. } => format!(
            "the array's write journal is not here, and slot {} is missing; serving it could \
             return wrong data",
            numbers(missing)
        ),
        Refusal::SeveralArrays { arrays } => {
            format!("these members belong to {} arrays", arrays.len())
        }
        Refusal::UnknownFeatures { .. }
        | Refusal::NewerFormat
        | Refusal::Reshaping { .. }
        | Refusal::Clustered
        | Refusal::ReadOnlyOnly(_) => {
            let text = refusal.to_string();
            format!("the array cannot be served: {text}")
        }
        Refusal::BitmapFile { label, .. } => format!("{label} cannot be the array's bitmap file"),
        Refusal::NoMembers { .. }
        | Refusal::RolesContradict { .. }
        | Refusal::SlotClaimedTwice { .. }
        | Refusal::NewestDamaged { .. }
        | Refusal::OlderThanKnown { .. }
        | Refusal::ConflictingGeometry { .. }
        | Refusal::Geometry(_) => refusal.to_string(),
    }
}

fn causes(refusal: &Refusal) -> Vec<String> {
    match refusal {
        Refusal::TooFewMembers { missing, .. } => {
            vec![format!("missing or not usable: slot {}", numbers(missing))]
        }
        Refusal::DirtyAndDegraded(risk) => vec![at_risk_words(risk)],
        Refusal::Reshaping { .. } => {
            vec!["part of it has its old shape, and part its new one".to_string()]
        }
        Refusal::BitmapFile { fault, .. } => vec![fault.to_string()],
        Refusal::SeveralArrays { arrays } => arrays.iter().map(ToString::to_string).collect(),
        Refusal::JournalMissing { fault, array_sectors, missing } => {
            let size = format_size(array_sectors.saturating_mul(SECTOR_BYTES));
            let computed = match missing.is_empty() {
                true => String::new(),
                false => format!("; data computed for slot {} may be wrong", numbers(missing)),
            };
            vec![
                fault.to_string(),
                format!("at risk: all {size} of the array (sectors 0..{array_sectors}){computed}"),
            ]
        }
        Refusal::PplNotReplayed { unread, .. } if unread.is_empty() => {
            vec!["a resync was not finished, and the log does not cover it".to_string()]
        }
        // One error for the logs of all slots.
        Refusal::PplNotReplayed { unread, .. }
            if unread.iter().all(|(_, why)| is_of_a_file(*why)) =>
        {
            unread.first().map(|(_, why)| format!("the log: {why}")).into_iter().collect()
        }
        Refusal::PplNotReplayed { unread, .. } => {
            let unread = unread.iter();
            unread.map(|(slot, error)| format!("the log of slot {slot}: {error}")).collect()
        }
        _ => Vec::new(),
    }
}

fn is_of_a_file(why: PplLogError) -> bool {
    matches!(why, PplLogError::NoFile | PplLogError::OldFile)
}

const RANGES_SHOWN_MAX: usize = 16;

/// The array's bytes that may be wrong when they are read, in words.
pub fn at_risk_words(risk: &AtRisk) -> String {
    let sectors = risk.ranges.iter().map(|range| &range.array_sectors);
    let length = |range: &Range<u64>| range.end.saturating_sub(range.start);
    let bytes = sectors.clone().map(length).sum::<u64>().saturating_mul(SECTOR_BYTES);
    let places = sectors.take(RANGES_SHOWN_MAX);
    let mut places: Vec<String> =
        places.map(|range| format!("{}..{}", range.start, range.end)).collect();
    let more = risk.ranges.len().saturating_sub(RANGES_SHOWN_MAX);
    places.extend((more > 0).then(|| format!("and {more} more ranges")));
    format!(
        "at risk: the data of slot {}, in {} stripes with {} of the array (sectors {})",
        numbers(&risk.slots),
        risk.stripes,
        format_size(bytes),
        places.join(", ")
    )
}

/// The array's tolerance, in words.
pub fn tolerance_words(tolerance: Tolerance) -> String {
    let lose = match tolerance.can_lose {
        0 => "cannot lose a member".to_string(),
        1 => "can lose 1 more member".to_string(),
        more => format!("can lose {more} more members"),
    };
    let until = if tolerance.parity_in_doubt {
        " until its parity is resynced: it was interrupted while writing, and braid computes no \
         data from doubtful parity"
    } else if tolerance.copies_in_doubt {
        "; its copies may differ where a write was interrupted, and until a resync, data read \
         there may change when a member is lost"
    } else {
        ""
    };
    format!("{lose}{until}")
}

fn with_remedies(
    error: CliError,
    refusal: &Refusal,
    verdicts: &[MemberVerdict],
    members: &[String],
) -> CliError {
    let all = words(members, &[]);
    let examine = format!("braid examine {all}");
    let kernel = kernel_command(verdicts, members);
    match refusal {
        Refusal::NoMembers { .. } => no_members(error, examine, verdicts, &all),
        Refusal::SeveralArrays { arrays } => {
            let each = arrays.iter().fold(error, |error, array| {
                let name = if array.name.is_empty() {
                    format_uuid(&array.uuid)
                } else {
                    array.name.clone()
                };
                let command =
                    format!("braid serve {}", words(&of_array(verdicts, &array.uuid), &[]));
                error.remedy(Risk::Change, format!("Serve {name}"), command)
            });
            let command = format!("braid serve --all {all}");
            each.remedy(Risk::Change, "Serve each array as it is", command)
        }
        Refusal::RolesContradict { labels } | Refusal::SlotClaimedTwice { labels, .. } => {
            labels.iter().fold(error.remedy(Risk::Look, "Compare them", examine), |error, label| {
                let rest = words(members, &others(labels, label));
                let command = format!("braid serve --read-only {rest}");
                error.remedy(Risk::Look, format!("Look with only {label}"), command)
            })
        }
        Refusal::UnknownFeatures { .. } | Refusal::NewerFormat | Refusal::Clustered => error
            .remedy(Risk::Look, "See what it says", examine)
            .remedy(Risk::Change, "Let the kernel's md run it", kernel),
        Refusal::JournalMissing { fault: JournalFault::Ahead { .. }, .. } => error
            .remedy(Risk::Look, "Best: connect the other members and name them, too", "")
            .remedy(Risk::Look, "See what each member is", examine),
        Refusal::JournalMissing { fault, .. } => {
            let error = error
                .remedy(Risk::Look, "Best: connect the journal's device and name it, too", "")
                .remedy(Risk::Look, "See what each member is", examine)
                .remedy(
                    Risk::Look,
                    "Read the data on the members; computed data is an I/O error",
                    format!("braid serve --read-only {all}"),
                );
            match fault {
                JournalFault::Several { .. } => error,
                _ => error.remedy(
                    Risk::Destroy,
                    "If it is lost for good, go on without it",
                    format!("braid serve --without-journal {all}"),
                ),
            }
        }
        Refusal::Reshaping { fault, .. } => {
            let mut error = error
                .remedy(
                    Risk::Look,
                    "See its progress, and the readable part",
                    format!("braid rescue {all}"),
                )
                .remedy(Risk::Look, "See what it says", examine);
            if *fault == ReshapeFault::NoCopy {
                error = error.remedy(
                    Risk::Change,
                    "If mdadm made a backup file, go on from there",
                    format!("braid serve --backup-file FILE {all}"),
                );
            }
            error.remedy(
                Risk::Change,
                "Let the kernel's md finish it; mdadm wants its backup file if it made one",
                kernel,
            )
        }
        Refusal::PplNotReplayed { stripes, unread, .. } => {
            let error = match unread.iter().any(|(_, why)| *why == PplLogError::NoFile) {
                true => error.remedy(
                    Risk::Look,
                    "Best: name its bitmap file, too",
                    format!("braid serve --bitmap-file FILE {all}"),
                ),
                false => error
                    .remedy(Risk::Look, "Best: connect the missing member and name it, too", "")
                    .remedy(Risk::Look, "See what each member is", examine),
            };
            error.remedy(
                Risk::Destroy,
                "Look, although some data may be wrong",
                format!("braid serve --read-only --accept-risk {stripes} {all}"),
            )
        }
        Refusal::NewestDamaged { labels, .. } => {
            let rest = words(members, labels);
            let (look, serve) =
                (format!("braid serve --read-only {rest}"), format!("braid serve {rest}"));
            error
                .remedy(Risk::Look, "Best: connect the other members and name them, too", "")
                .remedy(Risk::Look, "See what each says", examine)
                .remedy(Risk::Look, "See the data of the intact ones", look)
                .remedy(
                    Risk::Destroy,
                    "Go on from the intact ones, without their missed writes",
                    serve,
                )
        }
        Refusal::OlderThanKnown { .. } => {
            let best = "Best: connect the members with the newer writes, and name them, too";
            accept_older(error.remedy(Risk::Look, best, ""), &all)
        }
        Refusal::BitmapFile { label, fault: BitmapFileFault::Ahead { .. } } => {
            let file = shell_word(label);
            let best = "Best: connect the members with the newer writes, and name them, too";
            let without = format!("braid serve {all}");
            error
                .remedy(Risk::Look, best, "")
                .remedy(Risk::Look, "See what it is", format!("braid examine {file} {all}"))
                .remedy(
                    Risk::Destroy,
                    "Go on from these, without the writes that they missed",
                    without,
                )
        }
        Refusal::BitmapFile { label, .. } => {
            let file = shell_word(label);
            let without = format!("braid serve {all}");
            error
                .remedy(Risk::Look, "See what it is", format!("braid examine {file} {all}"))
                .remedy(
                    Risk::Change,
                    "If the array has no bitmap file, serve it without one",
                    without,
                )
        }
        Refusal::ConflictingGeometry { label, .. } => {
            let rest = words(members, std::slice::from_ref(label));
            error.remedy(Risk::Look, "Compare them", examine).remedy(
                Risk::Look,
                "Look without it",
                format!("braid serve --read-only {rest}"),
            )
        }
        refusal if raid0_layout::is_missing(refusal) => raid0_layout::with_remedies(error, &all),
        Refusal::Geometry(_) => error.remedy(Risk::Look, "See what it says", examine),
        Refusal::TooFewMembers { .. } => too_few(error, examine, verdicts, &all),
        Refusal::DirtyAndDegraded(risk) => error
            .remedy(Risk::Look, "Best: connect the missing member and name it, too", "")
            .remedy(Risk::Look, "See what each member is", examine)
            .remedy(
                Risk::Look,
                "Read it; data at risk is an I/O error",
                format!("braid serve --read-only {all}"),
            )
            .remedy(
                Risk::Destroy,
                "Look, although some data may be wrong",
                format!("braid serve --read-only --accept-risk {} {all}", risk.stripes),
            )
            .remedy(
                Risk::Destroy,
                "Accept the risk",
                format!("braid serve --accept-risk {} {all}", risk.stripes),
            ),
        Refusal::ReadOnlyOnly(reason) => {
            let read = format!("braid serve --read-only {all}");
            let (label, command) = out_of_read_only(*reason, kernel);
            error.remedy(Risk::Look, "Read it", read).remedy(Risk::Change, label, command)
        }
    }
}

/// Adds the advice to use `rescue` if disks have partitions or nearly sound superblocks.
fn no_members(error: CliError, examine: String, verdicts: &[MemberVerdict], all: &str) -> CliError {
    let has_table = |verdict: &MemberVerdict| {
        matches!(verdict.reason, Reason::Holds(ForeignKind::Gpt | ForeignKind::Mbr))
    };
    let error = match verdicts.iter().any(has_table) {
        true => {
            error.because("members may be in the partitions of these disks: name the partitions")
        }
        false => error,
    };
    let holds = |verdict: &MemberVerdict| match verdict.reason {
        Reason::Holds(kind) => Some(kind),
        _ => None,
    };
    let error = error.remedy(Risk::Look, "See what is on them", examine);
    let holds = verdicts.iter().map(|verdict| (verdict.label.as_str(), holds(verdict)));
    let commands = open_commands(holds, Use::Writing);
    if !commands.is_empty() {
        let of_command = |error: CliError, (_, open): (&str, OpenCommand)| {
            error.remedy(Risk::Change, open.label, open.command)
        };
        return commands.into_iter().fold(error, of_command);
    }
    error.remedy(
        Risk::Look,
        "Search their partitions, and remains of superblocks; nothing is written",
        format!("braid rescue {all}"),
    )
}

fn too_few(error: CliError, examine: String, verdicts: &[MemberVerdict], all: &str) -> CliError {
    let rescue = format!("braid rescue {all}");
    let error = error
        .remedy(Risk::Look, "Connect the missing members and name them, too", "")
        .remedy(Risk::Look, "See which data can be recovered; nothing is written", rescue);
    let is_old = |verdict: &MemberVerdict| {
        matches!(verdict.reason, Reason::OlderThanKnown { .. } | Reason::OlderUpdate { .. })
    };
    if verdicts.iter().any(is_old) {
        return accept_older(error, all);
    }
    error.remedy(Risk::Look, "See what each member is", examine)
}

/// Adds the remedy to continue from old copies that the operator put back on purpose.
fn accept_older(error: CliError, members: &str) -> CliError {
    let examine = format!("braid examine {members}");
    let look = format!("braid serve --read-only --accept-older {members}");
    let serve = format!("braid serve --accept-older {members}");
    error
        .remedy(Risk::Look, "See what each says", examine)
        .remedy(Risk::Look, "See the data of these members", look)
        .remedy(Risk::Destroy, "If they were restored on purpose, go on from them", serve)
}

/// The mdadm command that gives the kernel all members of the array. md accepts block devices only,
/// and refuses all of them if one is foreign. md chooses members by its own rules, and may need a
/// member that is stale for braid.
fn kernel_command(verdicts: &[MemberVerdict], members: &[String]) -> String {
    let is_of_it = |verdict: &&MemberVerdict| match verdict.verdict {
        Verdict::Fresh { .. }
        | Verdict::Recovering { .. }
        | Verdict::Spare
        | Verdict::Replacement { .. }
        | Verdict::Journal
        | Verdict::Stale { .. }
        | Verdict::Faulty => true,
        Verdict::Foreign
        | Verdict::NotAMember
        | Verdict::Damaged
        | Verdict::Truncated
        | Verdict::Duplicate
        | Verdict::Contradictory => false,
    };
    let mut labels: Vec<&String> = verdicts.iter().filter(is_of_it).map(|v| &v.label).collect();
    if labels.is_empty() {
        labels.extend(members);
    }
    let words = labels.into_iter().map(|label| {
        let word = shell_word(label);
        let is_file = std::fs::metadata(label).is_ok_and(|m| m.is_file());
        if is_file { format!("$(losetup --find --show {word})") } else { word.into_owned() }
    });
    format!("mdadm --assemble /dev/md127 {}", words.collect::<Vec<_>>().join(" "))
}

/// The remedy that makes a read-only array writable, and its command.
fn out_of_read_only(reason: ReadOnlyReason, kernel: String) -> (&'static str, String) {
    match reason {
        ReadOnlyReason::Replacement { .. } | ReadOnlyReason::Ppl | ReadOnlyReason::Journal => {
            ("Let the kernel's md run it", kernel)
        }
        ReadOnlyReason::BitmapKind(_)
        | ReadOnlyReason::BitmapUnknown
        | ReadOnlyReason::BitmapPlace => {
            let drop = "mdadm --grow --bitmap=none /dev/md127 && mdadm --stop /dev/md127";
            ("Drop the bitmap with the kernel's md", format!("{kernel} && {drop}"))
        }
    }
}

fn others(labels: &[String], label: &String) -> Vec<String> {
    labels.iter().filter(|other| *other != label).cloned().collect()
}

fn of_array(verdicts: &[MemberVerdict], uuid: &[u8; 16]) -> Vec<String> {
    let of_it = |verdict: &&MemberVerdict| matches!(&verdict.reason, Reason::OtherArray { uuid: other, .. } if other == uuid);
    verdicts.iter().filter(of_it).map(|verdict| verdict.label.clone()).collect()
}

/// A list of slots in words, with runs joined, and at most one line long.
fn numbers(slots: &[u16]) -> String {
    const RUNS_MAX: usize = 16;
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for slot in slots {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*slot) => *last = *slot,
            _ => runs.push((*slot, *slot)),
        }
    }
    let shown = runs.iter().take(RUNS_MAX).map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first} to {last}"),
    });
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if runs.len() > RUNS_MAX {
        text.push_str(", ...");
    }
    text
}

#[cfg(test)]
mod tests;
