//! An array in the middle of a reshape, for `braid rescue`: two arrays, perhaps a backup, and the
//! source of each stretch.
//!
//! ```text
//!   braid_assembly::reshape ─▶ plan(before), plan(after) ─▶ stretches ─▶ ReshapeDevice ─▶ content
//!                    backup (file of mdadm's, or on an added member) ──────▲
//! ```
//!
//! `ReshapeDevice` is one device: its content is recognised, and it can be served.
//!
//! md continues a reshape in place beyond the position in the superblocks. The array's content
//! shows how far md got (`progress`), unless the operator chooses the recorded position.
//!
//! Each side of the reshape (the old and the new shape) is planned as any other array, by force if
//! needed. An unreadable side makes only its own stretch unreadable.
//!
//! Sectors at risk are read to recognise the content. With `--read-only` they are an I/O error, and
//! for writing they are served only if the operator accepts the risk.
//!
//! Invariants:
//! - sectors in the backup that the reshape's position has not passed are read from the backup
//!   `[check: a_chunk_that_changes_is_read_with_its_backup]`;
//! - a backup of another array, or of another time, is not used
//!   `[check: a_backup_of_another_array_or_time_is_refused]`.

mod progress;
mod report;
mod reshape_device;
pub(super) mod window;

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use braid_assembly::rescue::{Outcome, Plan, plan, without};
use braid_assembly::reshape::Reshaping;
use braid_assembly::{Options, ProbedMember, Refusal};
use braid_member::Member;
use braid_member::layer::Part;
use braid_ondisk::{
    BackupPart, RESHAPE_BACKUP_BEFORE_END_SECTORS, RESHAPE_BACKUP_BYTES, ReshapeBackup,
    ReshapeSide, Role, reshape_backup,
};
use braid_runtime::{Io, Volume};
use braid_solver::Boundary;
use rangemap::RangeSet;

use super::config::RescueConfig;
use super::disks::{Disk, Disks};
use super::plan_options::{wanted, withholding};
use braid_console::Globals;
use braid_console::error::code::Code;
use braid_console::error::system::system;
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::shell_word;
use braid_console::output::utc::format_utc;
use braid_console::regular::{self, NotRead};
use braid_discovery::ready::decided;
use braid_discovery::replay::ReplayTarget;
use progress::progress;
pub(super) use report::{json, kind, level, lines};
use reshape_device::{BackupPlace, ReshapeDevice, SECTOR_BYTES, Source, Stretch};

/// The most seconds by which a backup may be older than the superblocks, as in mdadm, which writes
/// backup and superblocks at different times.
const BACKUP_OLDER_SECONDS: u64 = 2 * 60 * 60;
const BACKUP_NEWER_SECONDS: u64 = 10 * 60;

/// One side of the reshape, planned like an array of its own.
pub(super) struct Side {
    side: ReshapeSide,
    /// The group's members with this side's superblocks.
    probed: Vec<ProbedMember>,
    plan: Plan,
}

struct Backup {
    /// The backup's name in messages.
    label: String,
    place: BackupPlace,
    metadata: ReshapeBackup,
}

pub(super) struct UnfinishedReshape {
    pub(super) reshaping: Reshaping,
    sides: [Side; 2],
    options: Options,
    backups: Vec<Backup>,
    /// The reasons for which backups found on members are not used.
    left_aside: Vec<String>,
    /// How far md got, if the array's content was searched and shows it.
    progress: Option<Boundary>,
    /// Array sectors at risk that are in no backup.
    pub(super) at_risk: Vec<Range<u64>>,
}

impl UnfinishedReshape {
    /// The reshape of the array of these members; `None` without a reshape, or if md cannot do it.
    pub(super) fn of(
        members: &[ProbedMember],
        (options, asked): (&Options, &BTreeSet<usize>),
    ) -> Option<Self> {
        let reshaping = Reshaping::of(members)?.ok()?;
        let sides = ReshapeSide::ALL.map(|side| {
            let probed = reshaping.members(members, side);
            let plan = plan(&probed, options, asked);
            Side { side, probed, plan }
        });
        let at_risk = reshaping.at_risk.clone().into_iter().collect();
        let options = options.clone();
        Some(Self {
            reshaping,
            sides,
            options,
            backups: Vec::new(),
            left_aside: Vec::new(),
            progress: None,
            at_risk,
        })
    }

    /// The shape whose members the report shows: the one with more members, if it is readable.
    pub(super) fn told_by(&self) -> (&[ProbedMember], &Plan) {
        let [before, after] = &self.sides;
        let (before_slots, after_slots) = (self.reshaping.before.slots, self.reshaping.after.slots);
        let (first, second) =
            if before_slots > after_slots { (before, after) } else { (after, before) };
        let side = match (&first.plan.array, &second.plan.array) {
            (Err(_), Ok(_)) => second,
            _ => first,
        };
        (&side.probed, &side.plan)
    }

    /// The shapes (before and after) that hold some of the array's sectors.
    fn needed(&self) -> impl Iterator<Item = &Side> {
        let is_needed = |side: &&Side| !self.reshaping.on(side.side).is_empty();
        self.sides.iter().filter(is_needed)
    }

    pub(super) fn is_readable(&self) -> bool {
        self.needed().any(|side| side.plan.array.is_ok())
    }

    /// Sides of the reshape that are needed and cannot be read: their sectors, and the reason.
    pub(super) fn refusals(&self) -> Vec<(Range<u64>, &Refusal)> {
        let sides = self.needed().filter_map(|side| {
            let refused = side.plan.array.as_ref().err()?;
            Some((self.reshaping.on(side.side), refused))
        });
        sides.collect()
    }

    /// Sectors of the array that may be wrong or unreadable.
    pub(super) fn in_doubt(&self) -> Vec<Range<u64>> {
        let mut ranges = self.at_risk.clone();
        for side in self.needed() {
            let on = self.reshaping.on(side.side);
            let Ok(array) = &side.plan.array else {
                ranges.push(on);
                continue;
            };
            let withheld = array.withheld_risk.iter().flat_map(|risk| &risk.ranges);
            let within = withheld.map(|risk| {
                let sectors = &risk.array_sectors;
                sectors.start.max(on.start)..sectors.end.min(on.end)
            });
            ranges.extend(within.filter(|range| !range.is_empty()));
        }
        ranges
    }

    pub(super) fn without(
        &self,
        (options, asked): (&Options, &BTreeSet<usize>),
        index: usize,
    ) -> Outcome {
        let mut all: Option<Outcome> = None;
        for side in self.needed() {
            let one = without(&side.probed, options, asked, index);
            all = Some(match (all, one) {
                (Some(fails @ Outcome::Fails(_)), _) | (_, fails @ Outcome::Fails(_)) => fails,
                (None, one) => one,
                (
                    Some(Outcome::Runs { degraded, believed, stripes_at_risk }),
                    Outcome::Runs {
                        degraded: degraded_too,
                        believed: believed_too,
                        stripes_at_risk: stripes_too,
                    },
                ) => Outcome::Runs {
                    degraded: degraded.max(degraded_too),
                    believed: believed.max(believed_too),
                    stripes_at_risk: stripes_at_risk.saturating_add(stripes_too),
                },
            });
        }
        all.expect("an array has sectors")
    }

    /// Takes the backup that the operator named, or else the newest on a member: a member may have
    /// one of an earlier try. Sectors in a backup are no longer at risk.
    pub(super) fn take_backups(
        &mut self,
        args: &RescueConfig,
        members: &[&Disk],
    ) -> Result<(), CliError> {
        if let Some(path) = &args.backup_file {
            let backup = open_backup(path)?;
            if let Err(why) = self.fits(&backup, args.accept_older) {
                return Err(unfit(args, path, &why));
            }
            self.backups.push(backup);
            self.settle_risk();
            return Ok(());
        }
        let mut found: Vec<Backup> = Vec::new();
        for disk in members {
            let Some(backup) = self.on_member(disk) else { continue };
            // The operator names no member's backup, so none may be of another time.
            match self.fits(&backup, false) {
                Ok(()) => found.push(backup),
                Err(why) => self.left_aside.push(format!("the backup on {}: {why}", disk.label)),
            }
        }
        let newest = found.into_iter().max_by_key(|backup| backup.metadata.seconds);
        self.backups.extend(newest);
        self.settle_risk();
        Ok(())
    }

    /// Searches the array's content for how far md got, if that is unknown. If the content does not
    /// show how far, all sectors ahead of the checkpoint are at risk.
    pub(super) fn find_out(&mut self, (disks, members): (&Disks, &[usize]), globals: &Globals) {
        let is_readable = self.sides.iter().all(|side| side.plan.array.is_ok());
        // A member that dropped out during the reshape holds later sectors in the old shape. The
        // member's superblock does not record when it dropped out.
        let is_any_believed = self.sides.iter().any(|side| side.plan.believed().next().is_some());
        let is_known = self.at_risk.is_empty() || !self.reshaping.is_in_place();
        if is_known || !is_readable || is_any_believed {
            return;
        }
        let open = |side: &Side| self.volume(side, (disks, members), RiskPolicy::Read, globals);
        let [Ok(before), Ok(after)] = self.sides.each_ref().map(open) else { return };
        let Some(progress) = progress(&self.reshaping, before, after) else { return };
        self.reshaping.got_to(&progress.between, progress.likely);
        self.progress = Some(progress);
        self.leave_passed_backups();
        self.settle_risk();
    }

    /// Leaves out backups that md's reshape has passed by more than md's cache. mdadm normally
    /// keeps md behind the part that mdadm has copied. If mdadm does not (4.2 with Linux 6.1), it
    /// copies sectors that md has already moved, and reads these sectors in the old shape.
    fn leave_passed_backups(&mut self) {
        let Some(zone) = self.reshaping.at_risk.clone() else { return };
        let is_passed = |backup: &Backup| {
            let ahead = backup.metadata.parts.iter().filter_map(|part| self.reshaping.needed(part));
            let mut ahead = ahead.map(|(range, _)| range);
            ahead.any(|range| match self.reshaping.backwards {
                false => range.start < zone.start,
                true => range.end > zone.end,
            })
        };
        let backups = std::mem::take(&mut self.backups);
        let (passed, kept): (Vec<_>, _) = backups.into_iter().partition(is_passed);
        self.backups = kept;
        self.left_aside.extend(passed.iter().map(|backup| {
            format!(
                "the backup in {}: md was already far beyond it when it was copied",
                backup.label
            )
        }));
    }

    /// The sectors to read from a part of a backup, and their position in the backup: all sectors
    /// that are needed and at risk.
    fn read_from(&self, part: &BackupPart) -> Option<(Range<u64>, u64)> {
        let (needed, at) = self.reshaping.needed(part)?;
        let zone = self.reshaping.at_risk.clone().filter(|_| self.progress.is_some());
        let zone = zone.unwrap_or_else(|| needed.clone());
        let (start, end) = (needed.start.max(zone.start), needed.end.min(zone.end));
        (start < end).then(|| (start..end, at + (start - needed.start)))
    }

    /// Computes the sectors at risk: those in no backup, and those around places whose content is
    /// in the other shape.
    fn settle_risk(&mut self) {
        let apart = self.progress.iter().flat_map(|progress| &progress.apart);
        let apart = apart.map(|sector| self.reshaping.around(&(*sector..*sector + 1)));
        let at_risk = self.reshaping.at_risk.iter().cloned().chain(apart);
        let mut left: RangeSet<u64> = at_risk.filter(|range| !range.is_empty()).collect();
        let has = self.backups.iter().flat_map(|backup| &backup.metadata.parts);
        for (range, _) in has.filter_map(|part| self.read_from(part)) {
            left.remove(range);
        }
        self.at_risk = left.into_iter().collect();
    }

    /// The backup at the end of a member that the reshape has added.
    fn on_member(&self, disk: &Disk) -> Option<Backup> {
        let own = disk.probed.probe.newest()?;
        let is_new =
            matches!(own.state.role, Role::Active(slot) if slot >= self.reshaping.before.slots);
        let place = BackupPlace::Member(Arc::clone(&disk.device));
        let end = own.device.data_offset_sectors.checked_add(own.array.member_size_sectors)?;
        let at = end.checked_sub(RESHAPE_BACKUP_BEFORE_END_SECTORS).filter(|_| is_new)?;
        let metadata = head_at(&place, at)?;
        Some(Backup { label: disk.label.clone(), place, metadata })
    }

    /// Whether a backup is of this array and of this reshape.
    fn fits(&self, backup: &Backup, accept_older: bool) -> Result<(), String> {
        if backup.metadata.uuid != self.reshaping.uuid_as_stored() {
            return Err("it is of another array".to_owned());
        }
        let (array, own) = (self.reshaping.updated_seconds(), backup.metadata.seconds);
        let is_near = array <= own.saturating_add(BACKUP_OLDER_SECONDS)
            && array.saturating_add(BACKUP_NEWER_SECONDS) >= own;
        if !is_near && !accept_older {
            let when = [own, array].map(format_utc);
            return Err(format!(
                "its time is {}, and that of the superblocks {}",
                when[0], when[1]
            ));
        }
        // A copy of the header also precedes the data. If the copy differs, the write of the backup
        // was cut short.
        let start = backup.metadata.start_sectors.checked_sub(RESHAPE_BACKUP_BEFORE_END_SECTORS);
        let twin = start.and_then(|at| head_at(&backup.place, at));
        if twin.as_ref() != Some(&backup.metadata) {
            return Err("it was cut short during its write".to_owned());
        }
        let mut last = vec![0; usize::try_from(SECTOR_BYTES).expect("small")];
        let mut ends =
            backup.metadata.parts.iter().map(|part| part.at_sectors + part.length_sectors);
        let is_there = |end: u64| backup.place.read_at(&mut last, (end - 1) * SECTOR_BYTES).is_ok();
        if !ends.all(is_there) {
            return Err("it is shorter than it says".to_owned());
        }
        Ok(())
    }

    /// The source of each stretch of the array. With `withhold`, sectors at risk have no source.
    fn stretches(&self, withhold: bool) -> Vec<Stretch> {
        let of_side = |(sectors, side): (Range<u64>, ReshapeSide)| {
            let plan = &self.sides.iter().find(|one| one.side == side).expect("both are").plan;
            let source = if plan.array.is_ok() { Source::Side(side) } else { Source::Nowhere };
            Stretch { sectors, source }
        };
        let mut stretches: Vec<Stretch> = self.reshaping.sides().into_iter().map(of_side).collect();
        for risk in self.at_risk.iter().filter(|_| withhold) {
            lay(&mut stretches, risk, &Source::Nowhere, 0);
        }
        for backup in &self.backups {
            for part in &backup.metadata.parts {
                if let Some((sectors, at)) = self.read_from(part) {
                    lay(&mut stretches, &sectors, &Source::Backup(backup.place.clone(), at), at);
                }
            }
        }
        stretches
    }

    /// The number of stripes that may read wrong: rows at risk, and stripes that cannot be
    /// computed.
    pub(super) fn stripes_at_risk(&self) -> u64 {
        let of_sides = self.needed().map(|side| side.plan.stripes_at_risk());
        of_sides.fold(self.rows_at_risk(), u64::saturating_add)
    }

    /// The number of rows that may be half moved, and are in no backup.
    fn rows_at_risk(&self) -> u64 {
        let row = self.reshaping.array_row_sectors();
        let rows = self.at_risk.iter().map(|range| (range.end - range.start).div_ceil(row));
        rows.fold(0, u64::saturating_add)
    }

    /// The sectors ahead of the checkpoint that are not certainly in the old shape: those in
    /// backups, and those that md may have reached.
    fn half_moved(&self) -> Range<u64> {
        let parts = self.backups.iter().flat_map(|backup| &backup.metadata.parts);
        let parts = parts.filter_map(|part| self.read_from(part)).map(|(range, _)| range);
        let reached = self.progress.is_some().then(|| self.reshaping.at_risk.clone()).flatten();
        let at = self.reshaping.recorded_sectors;
        let join =
            |all: Range<u64>, one: Range<u64>| all.start.min(one.start)..all.end.max(one.end);
        parts.chain(reached).fold(at..at, join)
    }

    /// A checksum over the members, the backups and the recorded position. A change of any of them
    /// changes the checksum.
    fn mark(&self, members: &[&Disk]) -> u64 {
        let mut sum = 0_u32;
        let mut marks: Vec<u64> = members.iter().map(|disk| disk.mark).collect();
        marks.sort_unstable();
        let backups = self.backups.iter().map(|backup| backup.metadata.seconds);
        for word in marks.into_iter().chain(backups).chain([self.reshaping.position_sectors]) {
            sum = crc32c::crc32c_append(sum, &word.to_le_bytes());
        }
        (u64::from(sum) << 32) | u64::from(crc32c::crc32c_append(sum, b"reshape"))
    }
}

/// Replaces the range `over` of the stretches by another source, read from its sector `at` on.
fn lay(stretches: &mut Vec<Stretch>, over: &Range<u64>, source: &Source, at: u64) {
    let mut laid: Vec<Stretch> = Vec::new();
    for stretch in stretches.drain(..) {
        let Stretch { sectors, source: own } = stretch;
        let within = sectors.start.max(over.start)..sectors.end.min(over.end);
        if within.is_empty() {
            laid.push(Stretch { sectors, source: own });
            continue;
        }
        let (head, tail) = (sectors.start..within.start, within.end..sectors.end);
        let moved = |by: u64| match &own {
            Source::Backup(place, at) => Source::Backup(place.clone(), at + by),
            other => other.clone(),
        };
        if !head.is_empty() {
            laid.push(Stretch { sectors: head, source: moved(0) });
        }
        let source = match source {
            Source::Backup(place, _) => {
                Source::Backup(place.clone(), at + (within.start - over.start))
            }
            other => other.clone(),
        };
        let by = tail.start - sectors.start;
        laid.push(Stretch { sectors: within, source });
        if !tail.is_empty() {
            laid.push(Stretch { sectors: tail, source: moved(by) });
        }
    }
    *stretches = laid;
}

fn head_at(place: &BackupPlace, sector: u64) -> Option<ReshapeBackup> {
    let mut bytes = vec![0; RESHAPE_BACKUP_BYTES];
    place.read_at(&mut bytes, sector.checked_mul(SECTOR_BYTES)?).ok()?;
    reshape_backup(&bytes).ok()
}

fn open_backup(path: &Path) -> Result<Backup, CliError> {
    let label = path.display().to_string();
    let what = || format!("the backup file {label} cannot be read");
    let file = regular::open(path).map_err(|error| match error {
        NotRead::System(error) => system(what(), &error),
        other => no_backup(path, &other.to_string()),
    })?;
    let place = BackupPlace::File(Arc::new(file));
    let mut bytes = vec![0; RESHAPE_BACKUP_BYTES];
    let metadata = match place.read_at(&mut bytes, 0) {
        Ok(()) => reshape_backup(&bytes).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    Ok(Backup { place, metadata: metadata.map_err(|why| no_backup(path, &why))?, label })
}

fn no_backup(path: &Path, why: &str) -> CliError {
    let what = format!("{} is not a backup file of mdadm", path.display());
    let look = format!("ls -l {}", shell_word(&path.display().to_string()));
    CliError::new(Code::BackupUnfit, what).because(why).remedy(Risk::Look, "Look at it", look)
}

fn unfit(args: &RescueConfig, path: &Path, why: &str) -> CliError {
    let what = format!("{} is not the backup of this reshape", path.display());
    let error = CliError::new(Code::BackupUnfit, what).because(why).remedy(
        Risk::Look,
        "Look at the array without it",
        args.without_backup(),
    );
    match why.starts_with("it is of another array") {
        true => error,
        false => error.remedy(
            Risk::Look,
            "Look at it with the file's data, which may be wrong",
            args.command("--accept-older"),
        ),
    }
}

/// How sectors at risk are read in the middle of a reshape.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RiskPolicy {
    /// Sectors at risk are read as they are.
    Read,
    /// Sectors at risk are an I/O error.
    Withhold,
}

impl UnfinishedReshape {
    /// The array as one device; `members` are the group's, among all disks.
    pub(super) fn joined(
        &self,
        (disks, members): (&Disks, &[usize]),
        risk_policy: RiskPolicy,
        globals: &Globals,
    ) -> Result<Arc<dyn Member>, CliError> {
        let stretches = self.stretches(risk_policy == RiskPolicy::Withhold);
        let open = |side: ReshapeSide| {
            let is_read =
                |stretch: &Stretch| matches!(stretch.source, Source::Side(of) if of == side);
            let one = self.sides.iter().find(|one| one.side == side).expect("both are");
            let is_needed = stretches.iter().any(is_read);
            is_needed.then(|| self.volume(one, (disks, members), risk_policy, globals)).transpose()
        };
        let volumes = (open(ReshapeSide::Before)?, open(ReshapeSide::After)?);
        Ok(Arc::new(ReshapeDevice::new(stretches, volumes)))
    }

    /// The array's UUID, and the smallest block that its content writes, if known.
    pub(super) fn identity(&self) -> ([u8; 16], Option<u32>) {
        let newest = self.told_by().0.iter().filter_map(|member| member.probe.newest());
        let newest = newest.max_by_key(|one| one.state.events).expect("it has superblocks");
        (newest.array.uuid, newest.array.logical_block_bytes)
    }

    fn volume(
        &self,
        side: &Side,
        (disks, members): (&Disks, &[usize]),
        risk_policy: RiskPolicy,
        globals: &Globals,
    ) -> Result<Volume, CliError> {
        let devices = members.iter().map(|index| {
            let device = Arc::clone(&disks.all[*index].device);
            Box::new(device) as Box<dyn Member>
        });
        let probed = side.plan.members(&side.probed);
        let accept_risk = (risk_policy == RiskPolicy::Read).then_some(u64::MAX);
        let options = wanted(&side.plan, &self.options, (true, accept_risk));
        let ready = decided((devices.collect(), &probed), None, &options, &globals.state_dir)?;
        let ready = match risk_policy {
            RiskPolicy::Read => ready,
            RiskPolicy::Withhold => withholding(&side.plan, ready),
        };
        let ready = ready.settled(ReplayTarget::Memory)?;
        let options = braid_runtime::Options {
            read_only: true,
            io: Io::Threads,
            ..braid_runtime::Options::default()
        };
        Volume::open(&ready.array, ready.members, &options, |_| {}).map_err(|error| {
            CliError::new(Code::System, "the array could not be started").caused_by(&error)
        })
    }
}

/// The number of the array's bytes in a `ReshapeDevice`, which has a margin before and after them.
pub(super) fn array_bytes(device: &dyn Member) -> u64 {
    device.size_bytes() - 2 * reshape_device::MARGIN_BYTES
}

/// Reads bytes of the array from a `ReshapeDevice`; the range must be inside the array.
pub(super) fn read(device: &dyn Member, offset: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    device.read_at(&mut bytes, reshape_device::MARGIN_BYTES + offset).ok().map(|()| bytes)
}

/// The array alone, without the margins of the `ReshapeDevice`.
pub(super) fn within_margins(device: Arc<dyn Member>) -> Arc<dyn Member> {
    let bytes = array_bytes(&*device);
    let part = Part::new(device, reshape_device::MARGIN_BYTES, bytes);
    Arc::new(part.expect("it has both margins"))
}

/// The name and the mark of the overlay on an array in the middle of a reshape.
pub(super) fn overlay_name(reshape: &UnfinishedReshape, members: &[&Disk]) -> (String, u64) {
    let mark = reshape.mark(members);
    (format!("array-{mark:016x}"), mark)
}

/// The refusal to commit: an overlay on an array in the middle of a reshape belongs to no member.
pub(super) fn not_committed(args: &RescueConfig) -> CliError {
    CliError::new(
        Code::Reshaping,
        "an array in the middle of a reshape cannot be written to its members",
    )
    .because(
        "the overlay's writes have array addresses, and their place on members changes \
                  with the reshape",
    )
    .because("nothing was changed")
    .remedy(Risk::Look, "Look at it", args.command(""))
    .remedy(
        Risk::Change,
        "Serve it over the overlay; members stay unchanged",
        args.command("--serve"),
    )
}

/// The refusal of a command that needs an array in one shape; an array in a reshape has two.
pub(super) fn not_one_shape(args: &RescueConfig) -> CliError {
    let what = "an array in the middle of a reshape is not checked, and copies of its disks are not filled";
    CliError::new(Code::Reshaping, what)
        .because("that needs one shape of the array, and it has two")
        .because("reads compute the missing parts of a copy from the others, or fail")
        .because("nothing was changed")
        .remedy(Risk::Look, "Look at it", args.command(""))
}
