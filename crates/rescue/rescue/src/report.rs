//! The report of a rescue: the findings and their consequences, the safe commands, the array's
//! content, and the next command.
//!
//! Written for an operator who is afraid: each statement is a fact, then its consequence. The
//! report uses no term that it did not explain before, and the first command that it offers writes
//! nothing.

use std::ops::Range;

use braid_assembly::rescue::{MemberUse, MissedWrites, Outcome};
use braid_assembly::{AssembledArray, Reason, Refusal, ReshapeFault, Verdict};
use braid_geometry::SECTOR_BYTES;
use braid_ondisk::Role;
use braid_signatures::{Scheme, Volume};
use serde_json::{Value, json};

use super::config::RescueConfig;
use super::containers;
use super::content_words::{content_words, is_nameless, signature_json};
use super::damaged_superblocks::{self, Remnant};
use super::disks::{Disk, Disks};
use super::rescue_array::RescueArray;
use super::volumes::Volumes;
use super::{nas, overlay, reshape};
use braid_console::Globals;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_console::output::colour::Style;
use braid_console::output::printable::printable;
use braid_console::output::shell::shell_word;
use braid_console::output::size::format_size;
use braid_console::output::table::{Align, Table};
use braid_discovery::raid0_layout;
use braid_discovery::refusal::{self, at_risk_words};
use braid_discovery::status::words::{byte_order_words, level_word};

/// The most ranges that are listed. If there are more ranges, only their number is shown.
const RANGES_SHOWN: usize = 8;

pub(super) struct Report<'a> {
    pub(super) args: &'a RescueConfig,
    pub(super) disks: &'a Disks,
    pub(super) found: &'a [RescueArray],
    pub(super) volumes: &'a Volumes,
    pub(super) globals: &'a Globals,
}

/// Whether content is larger than its partition, as happens if members are missing or out of order.
fn is_too_large(volume: &Volume) -> bool {
    let room = volume.bytes.end - volume.bytes.start;
    volume
        .signatures
        .iter()
        .any(|signature| signature.facts.size_bytes.is_some_and(|bytes| bytes > room))
}

pub(super) fn not_served(args: &RescueConfig, found: &RescueArray, refused: &Refusal) -> CliError {
    let error = refusal::cli_error(refused, &found.plan.verdicts, &found.labels);
    let risk = match refused {
        Refusal::DirtyAndDegraded(risk) => risk.stripes,
        Refusal::PplNotReplayed { stripes, .. } => *stripes,
        _ => return error,
    };
    risk_not_accepted(args, error.code(), risk)
}

/// The refusal of an array with stripes at risk that the operator did not accept.
pub(super) fn risk_not_accepted(args: &RescueConfig, code: Code, risk: u64) -> CliError {
    CliError::new(
        code,
        "some data of the array may be wrong; serving it for writing needs an explicit option",
    )
    .because(format!("{risk} stripes may read wrong"))
    .remedy(
        Risk::Look,
        "Read it; doubtful data is an I/O error",
        args.command("--serve --read-only"),
    )
    .remedy(
        Risk::Change,
        "Serve it over the overlay; members stay unchanged",
        args.command(&format!("--serve --accept-risk {risk}")),
    )
}

fn ranges_words(ranges: &[Range<u64>]) -> String {
    let shown = ranges.iter().take(RANGES_SHOWN);
    let shown: Vec<String> = shown.map(|range| format!("{}..{}", range.start, range.end)).collect();
    let more = ranges.len().saturating_sub(RANGES_SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

fn missed_words(missed: &MissedWrites) -> String {
    match missed {
        MissedWrites::Anywhere => {
            "the writes that it lacks may be anywhere, because no bitmap goes \
                             back so far; its data is read unchanged"
                .to_owned()
        }
        MissedWrites::Within(ranges) if ranges.is_empty() => {
            "the bitmap marks no write that it could lack".to_owned()
        }
        MissedWrites::Within(ranges) => {
            let sectors: u64 = ranges.iter().map(|range| range.end - range.start).sum();
            let size = format_size(sectors * SECTOR_BYTES);
            format!(
                "the writes that it lacks are within {size} of its data (sectors {})",
                ranges_words(ranges)
            )
        }
    }
}

fn outcome_words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Runs { degraded, believed, stripes_at_risk } => {
            let missing = match degraded {
                0 => "the array is whole".to_owned(),
                1 => "the array can be read, 1 slot missing".to_owned(),
                more => format!("the array can be read, {more} slots missing"),
            };
            let believed = match believed {
                0 => String::new(),
                count => format!(", {count} believed by force"),
            };
            match stripes_at_risk {
                0 => format!("{missing}{believed}"),
                count => format!("{missing}{believed}, {count} stripes at risk"),
            }
        }
        Outcome::Fails(Refusal::TooFewMembers { .. }) => {
            "nothing can be read: too few are left".to_owned()
        }
        Outcome::Fails(refused) => format!("nothing can be read: {refused}"),
    }
}

/// The next commands for the operator, the safest first, each with its purpose.
fn next(args: &RescueConfig, found: &RescueArray) -> Vec<(String, String)> {
    let array = found.is_one_of_several.then_some(found.group.uuid.as_str());
    if !found.is_readable() {
        let refused = found.plan.array.as_ref().expect_err("it was just looked at");
        let error = refusal::cli_error(refused, &found.plan.verdicts, &found.labels);
        let looks = error.remedies().into_iter().filter(|remedy| remedy.risk == Risk::Look);
        // If the array is in trouble, commands that serve the members themselves are not offered.
        let looks = looks.filter(|remedy| !remedy.command.is_empty());
        let looks = looks.filter(|remedy| {
            !["braid rescue", "braid serve"].iter().any(|verb| remedy.command.starts_with(verb))
        });
        // Arrays of foreign containers cannot be handled by other commands than `braid rescue`.
        let looks = looks.filter(|_| found.volume.is_none());
        let mut next: Vec<_> = looks.map(|remedy| (remedy.label, remedy.command)).collect();
        for (label, verdict) in found.labels.iter().zip(&found.plan.verdicts) {
            if matches!(verdict.verdict, Verdict::Duplicate | Verdict::Contradictory) {
                let without = format!("--without {}", shell_word(label));
                next.push((
                    format!("See the data of the others without {label}"),
                    args.command(&without),
                ));
            }
            if verdict.verdict == Verdict::Spare {
                let with = RescueConfig {
                    with: args.with.iter().chain([label]).cloned().collect(),
                    ..args.clone()
                };
                next.push((
                    format!(
                        "If {label} was a member before it was a spare, try it in the free \
                             slots"
                    ),
                    with.command(""),
                ));
            }
        }
        if raid0_layout::is_missing(refused) {
            let ways = raid0_layout::looks().into_iter();
            next.extend(
                ways.map(|(label, words)| (label.to_owned(), args.command_for(array, words))),
            );
        }
        return next;
    }
    let again = |more: &str| args.command_for(array, more);
    let serve = match found.stripes_at_risk() {
        0 => "--serve".to_owned(),
        stripes => format!("--serve --accept-risk {stripes}"),
    };
    // The superblocks may be from another `--create` than the content.
    let contents = found.contents.as_ref();
    let nothing_is_known = contents.is_ok_and(|contents| contents.volumes.iter().all(is_nameless));
    let may_be_another =
        nothing_is_known && !args.solve && found.volume.is_none() && array.is_none();
    let solve = may_be_another.then(|| {
        ("If it was created over another array, find the layout of that one", again("--solve"))
    });
    let goes_on = found.reshape.as_ref().and_then(|reshape| match &found.plan.refusal {
        None => Some(String::new()),
        Some(Refusal::Reshaping { fault: ReshapeFault::NoCopy, .. }) => {
            reshape.at_risk.is_empty().then(|| args.backup_words().unwrap_or_default())
        }
        Some(_) => None,
    });
    let go_on = goes_on.map(|backup| {
        let members: Vec<_> = found.labels.iter().map(|label| shell_word(label)).collect();
        let words = [backup, members.join(" ")].into_iter().filter(|words| !words.is_empty());
        let words: Vec<String> = words.collect();
        let go_on = "Serve it, and go on with the reshape; this writes to the members";
        (go_on.to_owned(), format!("braid serve {}", words.join(" ")))
    });
    let mut next: Vec<_> = solve.into_iter().collect();
    next.extend([
        ("Read it; doubtful data is an I/O error", again("--serve --read-only")),
        ("Repair it on an overlay; members stay unchanged", again(&serve)),
    ]);
    if found.array_overlay.is_some() {
        next.push(("Throw the overlay away", again("--discard")));
    }
    if found.overlays.iter().any(Option::is_some) {
        // Only members with md's metadata can be written.
        if found.volume.is_none() {
            next.push(("See what would be written to the members", again("--commit -n")));
        }
        next.push(("Throw the overlay away", again("--discard")));
    }
    if found.probed.iter().any(|one| one.bad_blocks.as_ref().is_ok_and(|named| !named.is_empty())) {
        next.push((
            "If the members' bad-block logs are wrong, ignore them",
            again("--ignore-bad-blocks"),
        ));
    }
    if !found.lost.is_empty() {
        next.push(("Find the lost files", again("--lost")));
    }
    let mut next: Vec<_> =
        next.into_iter().map(|(what, command)| (what.to_owned(), command)).collect();
    next.extend(go_on);
    for (label, lacks) in found.labels.iter().zip(&found.lacks) {
        let file = label.split('#').next().unwrap_or(label);
        if *lacks > 0 && std::path::Path::new(file).is_file() {
            let fill = again(&format!("--fill {}", shell_word(file)));
            next.push((format!("Fill {file} with data computed from the others"), fill));
        }
    }
    next
}

impl Report<'_> {
    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        if let Some(nas) = nas::words(self.disks, self.found, self.volumes) {
            text.push_str(&format!("{nas}\n\n"));
        }
        for (index, found) in self.found.iter().enumerate() {
            text.push_str(&self.array_text(index, found));
        }
        let list = self.volumes.list(self.args, self.found);
        if !list.is_empty() {
            let title = self.globals.paint_out.paint(Style::Strong, "Volumes").to_string();
            text.push_str(&format!("{title}\n"));
            list.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
            text.push('\n');
        }
        if !self.disks.notes.is_empty() {
            text.push_str("Containers that are not md's\n");
            for note in &self.disks.notes {
                text.push_str(&format!("  {}\n", printable(note)));
            }
            text.push('\n');
        }
        if !self.disks.spares.is_empty() {
            text.push_str("Spares that were members\n");
            for line in &self.disks.spares {
                text.push_str(&format!("  {}\n", printable(line)));
            }
            text.push('\n');
        }
        if !self.disks.remnants.is_empty() && !self.args.solve {
            text.push_str("Superblocks that nearly stand\n");
            for one in &self.disks.remnants {
                let (label, words) = (printable(&one.label), one.words());
                text.push_str(&format!("  {label}  {}\n", printable(&words)));
            }
            let command = damaged_superblocks::believing(self.args, &self.disks.remnants);
            let command = printable(&command);
            text.push_str(&format!(
                "\nNext\n  Believe them, in memory; nothing is written:\n    {command}\n\n"
            ));
        }
        let others = self.others();
        if !others.is_empty() {
            text.push_str("Not members of an array\n");
            for (label, words) in &others {
                text.push_str(&format!("  {}  {}\n", printable(label), printable(words)));
            }
        }
        if self.found.is_empty() && self.disks.remnants.is_empty() {
            text.push_str("\nNext\n");
            for (_, label, command) in self.disks.ways(self.args) {
                text.push_str(&format!("  {}:\n    {command}\n", printable(&label)));
            }
        } else {
            let is_other = |disk: &Disk| others.iter().any(|(label, _)| *label == disk.label);
            for (_, way) in self.disks.openings(is_other) {
                text.push_str(&format!("  {}:\n    {}\n", printable(&way.label), way.command));
            }
        }
        text
    }

    /// Disks that belong to no array, and their content.
    fn others(&self) -> Vec<(String, String)> {
        let is_of_one =
            |index: &usize| self.found.iter().any(|found| found.group.members.contains(index));
        let without = self.args.without.iter().flat_map(|name| self.disks.called(name));
        let without: Vec<usize> = without.collect();
        let is_told = |index: &usize| self.disks.remnants.iter().any(|one| one.disk == *index);
        let disks = (0..self.disks.all.len()).filter(|index| !is_of_one(index) && !is_told(index));
        let disks = disks.map(|index| (&self.disks.all[index], without.contains(&index)));
        let disks = disks.filter(|(disk, named)| disk.probed.probe.newest().is_none() || *named);
        let words = |(disk, named): (&Disk, bool)| match (&disk.probed.probe.superblocks[..], named)
        {
            (_, true) => "left out on request".to_owned(),
            ([Err(error), ..], _) => format!("its superblock is damaged: {error}"),
            _ => disk.contents.volumes.iter().map(content_words).collect::<Vec<_>>().join("; "),
        };
        let unreadable = self.disks.unreadable.iter().cloned();
        disks.map(|one| (one.0.label.clone(), words(one))).chain(unreadable).collect()
    }

    fn array_text(&self, index: usize, found: &RescueArray) -> String {
        let paint = self.globals.paint_out;
        let strong = |text: &str| paint.paint(Style::Strong, text);
        let mut text = format!("{}  {}\n\n", strong(&found.group.name), printable(&kind(found)));
        let mut section = |title: &str, lines: Vec<String>| {
            if !lines.is_empty() {
                text.push_str(&format!("{}\n", strong(title)));
                lines.iter().for_each(|line| text.push_str(&format!("  {}\n", printable(line))));
                text.push('\n');
            }
        };
        section("What was found", found_lines(found));
        section("The reshape", found.reshape.as_ref().map(reshape::lines).unwrap_or_default());
        section("What it means", meaning(found));
        section("What is safe", self.safe(found));
        let mut stands = contents_lines(found);
        stands.extend(self.volumes.lines_of(index, self.found));
        section("Contents of the array", stands);
        let next = next(self.args, found);
        section(
            "Next",
            next.iter()
                .flat_map(|(what, command)| [format!("{what}:"), format!("  {command}")])
                .collect(),
        );
        text
    }

    fn safe(&self, found: &RescueArray) -> Vec<String> {
        let folder = found.folder.display();
        let has_overlay =
            found.array_overlay.is_some() || found.overlays.iter().any(Option::is_some);
        let overlay = match has_overlay {
            false => {
                format!("With --serve all writes go into an overlay in {folder}; none exists yet.")
            }
            true => {
                let size = format_size(overlay::taken_bytes(&found.folder));
                format!("All this includes the overlay in {folder} ({size}).")
            }
        };
        vec![
            "Nothing was written. Members are opened for reading only.".to_owned(),
            overlay,
            "Do not create an array over these members, and run no fsck on them: that cannot be \
             undone."
                .to_owned(),
        ]
    }

    pub(super) fn to_json(&self) -> Value {
        let others = self.others().into_iter();
        let other = |(label, words): (String, String)| json!({ "member": label, "holds": words });
        json!({
            "arrays": self.found.iter().map(|found| self.array_json(found)).collect::<Vec<_>>(),
            "others": others.map(other).collect::<Vec<_>>(),
            "nas": nas::maker(self.disks, self.volumes),
            "volumes": self.volumes.to_json(self.found),
            "containers": self.disks.notes,
            "spares": self.disks.spares,
            "nearly": self.disks.remnants.iter().map(Remnant::to_json).collect::<Vec<_>>(),
        })
    }

    fn array_json(&self, found: &RescueArray) -> Value {
        let plan = &found.plan;
        let member = |index: usize| {
            let verdict = &plan.verdicts[index];
            let (stand, missed) = match &plan.member_uses[index] {
                MemberUse::Used => ("used", Value::Null),
                MemberUse::Believed { missed, .. } => ("believed", missed_json(missed)),
                MemberUse::LeftOut { .. } => ("left-out", Value::Null),
                MemberUse::Apart => ("apart", Value::Null),
            };
            json!({
                "member": found.labels[index],
                "stand": stand,
                "slot": slot(found, index),
                "verdict": verdict.verdict.code(),
                "reason": verdict.reason.to_string(),
                "missed": missed,
                "without": found.views[index].as_ref().map(outcome_json),
                "lacks_bytes": found.lacks[index],
            })
        };
        let ranges = |array: &AssembledArray| {
            let risk = array.withheld_risk.as_ref();
            let ranges = risk.into_iter().flat_map(|risk| &risk.ranges);
            ranges.map(|range| bytes_json(&range.array_sectors)).collect::<Vec<_>>()
        };
        let array = plan.array.as_ref().ok();
        let refused = plan.array.as_ref().err();
        let refused = refused
            .map(|refused| refusal::cli_error(refused, &plan.verdicts, &found.labels).to_json());
        let next = next(self.args, found).into_iter();
        let overlays = || found.overlays.iter().flatten().chain(&found.array_overlay);
        json!({
            "name": found.group.name,
            "uuid": found.group.uuid,
            "kind": kind(found),
            "volume": found.volume.as_ref().map(containers::to_json),
            "as_it_stands": plan.refusal.as_ref().map(Refusal::code),
            "reshape": found.reshape.as_ref().map(reshape::json),
            "readable": found.is_readable(),
            "error": refused,
            "size_bytes": found.size_bytes().filter(|_| found.is_readable()),
            "dirty": array.map(|array| array.dirty),
            "degraded_slots": array.map(|array| array.degraded),
            "journal_missing": array.map(|array| array.journal_fault.is_some()),
            "stripes_at_risk": found.is_readable().then(|| found.stripes_at_risk()),
            "at_risk": match &found.reshape {
                Some(reshape) => Some(reshape.in_doubt().iter().map(bytes_json).collect()),
                None => array.map(ranges),
            },
            "members": (0..found.labels.len()).map(member).collect::<Vec<_>>(),
            "lost": found.lost.iter().map(|range| json!({ "offset_bytes": range.start, "length_bytes": range.end - range.start })).collect::<Vec<_>>(),
            "contents": contents_json(found),
            "replayed": found.replayed,
            "overlay": json!({
                "folder": found.folder.display().to_string(),
                "members": overlays().count(),
                "bytes": overlays().map(|one| one.used_bytes()).sum::<u64>(),
            }),
            "next": next.map(|(what, command)| json!({ "label": what, "command": command })).collect::<Vec<_>>(),
        })
    }
}

pub(super) fn kind(found: &RescueArray) -> String {
    if let Some(reshape) = &found.reshape {
        let version = found.probed.iter().find_map(|member| member.probe.newest());
        let version = version.expect("a group has a sound superblock").version;
        return format!("{}, md {version} ({})", reshape::kind(reshape), found.group.uuid);
    }
    let superblock = found.probed.iter().find_map(|member| member.probe.newest());
    let superblock = superblock.expect("a group has a sound superblock");
    let array = &superblock.array;
    let size = found.plan.array.as_ref().ok().map(|array| {
        format!(", {}", format_size(array.geometry.capacity_sectors() * SECTOR_BYTES))
    });
    let metadata = match &found.volume {
        Some(volume) => volume.kind.to_owned(),
        None => format!("md {}{}", superblock.version, byte_order_words(superblock.byte_order)),
    };
    format!(
        "{} of {} members{}, {metadata} ({})",
        level_word(array.level.name()),
        array.raid_slots,
        size.unwrap_or_default(),
        found.group.uuid
    )
}

/// A short description of an array that is served together with another.
pub(super) fn short(found: &RescueArray) -> String {
    let level = found.probed.iter().find_map(|member| member.probe.newest());
    let array = &level.expect("a group has a sound superblock").array;
    let degraded = found.plan.array.as_ref().is_ok_and(|array| array.degraded > 0);
    let how = if degraded { ", degraded" } else { "" };
    format!("{} of {} members{how}", level_word(array.level.name()), array.raid_slots)
}

fn slot(found: &RescueArray, index: usize) -> Option<u16> {
    match found.probed[index].probe.newest()?.state.role {
        Role::Active(slot) => Some(slot),
        Role::Spare | Role::Faulty | Role::Journal => None,
    }
}

/// The report's table with a row for each member, and whether the array starts without force.
fn found_lines(found: &RescueArray) -> Vec<String> {
    let plan = &found.plan;
    let mut table = Table::new(&[
        ("member", Align::Left),
        ("slot", Align::Right),
        ("is", Align::Left),
        ("what it says", Align::Left),
    ]);
    for (index, label) in found.labels.iter().enumerate() {
        let verdict = &plan.verdicts[index];
        let is = match (&plan.member_uses[index], verdict.verdict) {
            (MemberUse::Used, Verdict::Fresh { .. }) => "sound".to_owned(),
            (MemberUse::Used | MemberUse::Apart, verdict) => verdict.code().to_owned(),
            (MemberUse::Believed { .. }, verdict) => format!("{}, believed", verdict.code()),
            (MemberUse::LeftOut { .. }, verdict) => format!("{}, left out", verdict.code()),
        };
        let slot = slot(found, index).map(|slot| slot.to_string()).unwrap_or_default();
        let lacks = match found.lacks[index] {
            0 => String::new(),
            bytes => format!("; the copy lacks {} of the disk", format_size(bytes)),
        };
        table.row([label.as_str(), &slot, &is, &format!("{}{lacks}", verdict.reason)]);
    }
    let mut lines: Vec<String> = table.render("").lines().map(ToOwned::to_owned).collect();
    lines.push(match (&plan.refusal, &plan.array) {
        (Some(refused), _) => format!("As it stands the array does not start: {refused}."),
        (None, Ok(array)) if array.degraded > 0 && plan.stripes_at_risk() > 0 => {
            "As it stands it can be read, but not all of it.".to_owned()
        }
        (None, _) => "As it stands the array can be read.".to_owned(),
    });
    lines
}

fn lost_words(found: &RescueArray) -> Option<String> {
    if found.contents.is_err() || found.lacks.iter().all(|bytes| *bytes == 0) {
        return None;
    }
    let bytes: u64 = found.lost.iter().map(|range| range.end - range.start).sum();
    Some(match bytes {
        0 if found.lost_is_cut => {
            "Copies lack so much that only a first part was tried. That part is computed from the \
             others."
                .to_owned()
        }
        0 => "The missing parts of copies are computed from the others: no data of the array is \
             lost."
            .to_owned(),
        _ => {
            let sectors = |range: &Range<u64>| range.start / SECTOR_BYTES..range.end / SECTOR_BYTES;
            let sectors: Vec<Range<u64>> = found.lost.iter().map(sectors).collect();
            let (size, places) = (format_size(bytes), ranges_words(&sectors));
            let size = if found.lost_is_cut { format!("at least {size}") } else { size };
            format!(
                "Of the missing parts of copies, {size} of the array cannot be computed from the \
                 others either: an I/O error there (sectors {places})."
            )
        }
    })
}

fn meaning(found: &RescueArray) -> Vec<String> {
    let plan = &found.plan;
    let mut lines = Vec::new();
    for (index, label) in found.labels.iter().enumerate() {
        match &plan.member_uses[index] {
            MemberUse::Believed { missed, .. } => {
                lines.push(format!(
                    "{label} is needed, and is the newest of the members that dropped out: {}.",
                    missed_words(missed)
                ));
            }
            MemberUse::LeftOut { .. } | MemberUse::Apart if found.asked.contains(&index) => {
                let why = &plan.verdicts[index].reason;
                lines.push(format!("{label} was requested, but cannot be believed: {why}."));
            }
            MemberUse::LeftOut { can_be_asked_for, .. } => {
                lines.push(left_out(label, &plan.verdicts[index].reason, *can_be_asked_for));
            }
            MemberUse::Used | MemberUse::Apart => {}
        }
    }
    lines.extend(lost_words(found));
    let mut views: Vec<(String, Vec<&str>)> = Vec::new();
    for (view, label) in found.views.iter().zip(&found.labels) {
        let Some(words) = view.as_ref().map(outcome_words) else { continue };
        match views.iter_mut().find(|(other, _)| *other == words) {
            Some((_, labels)) => labels.push(label),
            None => views.push((words, vec![label])),
        }
    }
    let view = |(words, labels): (String, Vec<&str>)| {
        format!("Without {}: {words}.", labels.join(", or without "))
    };
    lines.extend(views.into_iter().map(view));
    match &plan.array {
        Ok(array) => lines.extend(array_meaning(array, plan.believed().next().is_some())),
        // For a readable array in a reshape, earlier lines have named the part that cannot be read.
        Err(_) if found.is_readable() => {}
        Err(refused) => lines.push(format!("Nothing can be read: {refused}.")),
    }
    lines.extend(found.replayed.iter().map(|line| format!("{line}.")));
    lines
}

fn left_out(label: &str, reason: &Reason, can_be_asked_for: bool) -> String {
    let why = match reason {
        Reason::MarkedFaulty { .. } => {
            "the array dropped it, and trusts the members that stayed, however close their event \
             counts"
        }
        Reason::SlotContested { by, .. } => {
            return format!(
                "{label} and {by} are copies of one member, and either may be right: look with \
                 one left out."
            );
        }
        Reason::RanApart { .. } => "the array and this member ran on without each other",
        _ => "it is older than the other members",
    };
    let how = match can_be_asked_for {
        true => format!(" (--with {label} believes it all the same)"),
        false => String::new(),
    };
    format!("{label} is not needed: {why}{how}.")
}

fn array_meaning(array: &AssembledArray, has_believed: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let missing = array.slots.iter().enumerate().filter(|(_, slot)| slot.is_none());
    let missing: Vec<String> = missing.map(|(slot, _)| slot.to_string()).collect();
    let list = missing.join(", ");
    match missing.len() {
        0 => {}
        1 => lines.push(format!("Slot {list} is missing; its data is computed from the others.")),
        _ => {
            lines.push(format!("Slots {list} are missing; their data is computed from the others."))
        }
    }
    let why = match has_believed {
        true => "Believed members may lack writes",
        false => "It stopped during a write",
    };
    if let Some(risk) = &array.withheld_risk {
        lines.push(format!(
            "{why}, so computed data may be wrong there. {}.",
            capital(&at_risk_words(risk))
        ));
    } else if array.dirty {
        lines
            .push(format!("{why}; no data has to be computed, and its redundancy needs a resync."));
    }
    if let Some(fault) = &array.journal_fault {
        lines.push(format!(
            "Its write journal is ignored ({fault}): the newest writes may be missing anywhere."
        ));
    }
    lines
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn contents_lines(found: &RescueArray) -> Vec<String> {
    let contents = match &found.contents {
        Ok(contents) => contents,
        Err(_) if !found.is_readable() => return Vec::new(),
        Err(why) => return vec![why.clone()],
    };
    let mut lines = Vec::new();
    if found.stripes_at_risk() > 0 {
        lines.push("as it reads with the data at risk, which may be wrong:".to_owned());
    }
    if let Some(table) = &contents.table {
        lines.push(match table.scheme {
            Scheme::Gpt => "a table of partitions (GPT)".to_owned(),
            Scheme::GptCopy => {
                "a table of partitions (GPT, by its copy at the end: the first is damaged)"
                    .to_owned()
            }
            Scheme::Mbr => "a table of partitions (MBR)".to_owned(),
        });
        if table.out_of_bounds > 0 {
            lines.push(format!(
                "{} partitions reach out of the array, and are not listed",
                table.out_of_bounds
            ));
        }
    }
    for volume in &contents.volumes {
        let size = format_size(volume.bytes.end - volume.bytes.start);
        let what = match &volume.partition {
            None => "all of it".to_owned(),
            Some(partition) => {
                let name =
                    partition.name.as_ref().map(|name| format!(" \"{name}\"")).unwrap_or_default();
                format!("{}-p{}{name}", found.group.name, partition.number)
            }
        };
        let hint = if is_too_large(volume) { "; it needs more than exists" } else { "" };
        lines.push(format!("{what}  {size}  {}{hint}", content_words(volume)));
    }
    lines
}

fn missed_json(missed: &MissedWrites) -> Value {
    match missed {
        MissedWrites::Anywhere => json!("anywhere"),
        MissedWrites::Within(ranges) => ranges.iter().map(bytes_json).collect(),
    }
}

fn bytes_json(sectors: &Range<u64>) -> Value {
    json!({
        "offset_bytes": sectors.start * SECTOR_BYTES,
        "length_bytes": (sectors.end - sectors.start) * SECTOR_BYTES,
    })
}

fn outcome_json(outcome: &Outcome) -> Value {
    match outcome {
        Outcome::Runs { degraded, believed, stripes_at_risk } => json!({
            "readable": true,
            "degraded_slots": degraded,
            "believed": believed,
            "stripes_at_risk": stripes_at_risk,
        }),
        Outcome::Fails(refused) => json!({ "readable": false, "code": refused.code() }),
    }
}

fn contents_json(found: &RescueArray) -> Value {
    let Ok(contents) = &found.contents else { return Value::Null };
    let volume = |volume: &Volume| {
        let number = volume.partition.as_ref().map(|partition| partition.number);
        json!({
            "export": number.map_or_else(|| found.group.name.clone(), |number| format!("{}-p{number}", found.group.name)),
            "partition": number,
            "name": volume.partition.as_ref().and_then(|partition| partition.name.clone()),
            "offset_bytes": volume.bytes.start,
            "size_bytes": volume.bytes.end - volume.bytes.start,
            "things": volume.signatures.iter().map(signature_json).collect::<Vec<_>>(),
            "readable": !volume.is_unreadable,
        })
    };
    contents.volumes.iter().map(volume).collect()
}
