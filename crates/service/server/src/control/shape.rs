//! An operator's changes of the array's shape: what a request means, whether it is possible, and
//! the start of the change. [`crate::shape_changes`] follows the change to its end.
//!
//! The array gets smaller in two steps, as with mdadm: first clients see a smaller array, which can
//! be undone. Then the array loses the part that no client uses any more. Neither step cuts content
//! that ends later, or that may end later, unless the operator names the content.

use braid_control::PassedDescriptors;
use braid_control::model::{
    MemberRequest, MembersAnswer, Shape, ShapeAnswer, ShapeChangeKind, ShapeRequest, ShapeWanted,
    VERSION,
};
use braid_geometry::{Family, Geometry, Level, SECTOR_BYTES, Slot, parse_layout};
use braid_member::Access;
use braid_ondisk::Superblock;
use braid_runtime::{
    ReshapeError, ReshapeLook, ShapeChange, ShapeProposal, ShapeRefusal, ShapeWish, Volume,
    WishError,
};

use super::array::Facts;
use super::content_end::cut_at;
use super::members;
use super::setting::ArrayParts;
use super::shape_words::{as_seen, in_words};
use crate::owner;
use crate::shape_changes::code_of;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::shell_word;
use braid_console::output::size::{format_size, parse_size};

/// The array's end for clients is a multiple of this many bytes, the block of most clients.
const END_UNIT_BYTES: u64 = 4096;
/// Levels that a change of shape can start from or lead to.
const LEVELS: [Level; 6] =
    [Level::Raid0, Level::Raid1, Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid10];

struct ShapeContext<'a> {
    running: &'a ArrayParts,
    facts: &'a Facts,
}

/// Performs the request, or returns an error with its HTTP status.
pub(super) fn change(
    running: &ArrayParts,
    facts: &Facts,
    (wanted, passed): (&ShapeWanted, &PassedDescriptors),
    dry_run: bool,
) -> Result<ShapeAnswer, (u16, CliError)> {
    let context = ShapeContext { running, facts };
    match wanted.request {
        ShapeRequest::Grow => context.grow(wanted, passed, dry_run),
        ShapeRequest::Revert => {
            context.revert(dry_run).map_err(|error| (members::status(&error), error))
        }
    }
}

impl ShapeContext<'_> {
    fn volume(&self) -> &Volume {
        &self.running.volume
    }

    fn grow(
        &self,
        wanted: &ShapeWanted,
        passed: &PassedDescriptors,
        dry_run: bool,
    ) -> Result<ShapeAnswer, (u16, CliError)> {
        let with_status = |error: CliError| (members::status(&error), error);
        if self.volume().has_consenter() {
            return Err(with_status(owner::no_change_of_shape(&self.facts.name)));
        }
        if let Some(word) = &wanted.array_size {
            return self.end_at(wanted, word, dry_run).map_err(with_status);
        }
        let wish = self.wish(wanted).map_err(with_status)?;
        self.may_begin().map_err(with_status)?;
        let join = wanted.join.as_ref().map(|join| {
            let request = MemberRequest::Spare;
            braid_control::model::MembersWanted { request, ..join.clone() }
        });
        let join = join.filter(|join| !join.members.is_empty());
        if join.is_some() && self.running.membership.opens_nothing {
            return Err(with_status(self.files_closed()));
        }
        let look_at = |dry_run: bool| -> Result<Option<MembersAnswer>, (u16, CliError)> {
            let Some(join) = &join else { return Ok(None) };
            let request = (join, passed);
            members::join(self.running, self.facts, request, (dry_run, words(wanted))).map(Some)
        };
        let mut joined = look_at(true)?;
        let joining = join.iter().flat_map(|join| &join.members);
        let joining: Vec<(Superblock, u64)> = joining
            .map(|device| self.joining(device))
            .collect::<Result<_, _>>()
            .map_err(with_status)?;
        let wish = self.with_slots(wish, joining.len());
        let proposal = self.propose(&wish, &joining, wanted).map_err(with_status)?;
        let mut answer = self.answer(&proposal, dry_run);
        if !dry_run {
            let reopened = self.running.shape.reopened();
            let bitmap_sectors = self.volume().bitmap_sectors();
            self.running.shape.rest_log(self.volume(), &proposal).map_err(with_status)?;
            let begun = look_at(false).and_then(|now| {
                joined = now;
                self.volume()
                    .begin_reshape(&wish, bitmap_sectors)
                    .map_err(|error| with_status(self.refused(&error)))
            });
            if let Err((status, error)) = begun {
                self.running.shape.log_again(self.volume());
                self.running.shape.let_spares_go(self.volume());
                let is_direct = self.volume().geometry().level().family() == Family::Direct;
                let stays = |now: &&MembersAnswer| !now.dry_run && !is_direct;
                let error = match joined.as_ref().filter(stays) {
                    Some(_) => error.because("the devices became spares before that"),
                    None => error,
                };
                return Err((status, error));
            }
            self.running.shape.wait_reopened(reopened);
        }
        answer.joined = joined;
        Ok(answer)
    }

    /// Plans the change to the wanted shape; refuses to cut content that is not named.
    fn propose(
        &self,
        wish: &ShapeWish,
        joining: &[(Superblock, u64)],
        wanted: &ShapeWanted,
    ) -> Result<ShapeProposal, CliError> {
        let proposed = self.volume().propose_shape(wish, joining);
        let after = match &proposed {
            Ok(proposal) => capacity_bytes(&proposal.after),
            Err(ReshapeError::Wish(WishError::Smaller { after, .. })) => after * SECTOR_BYTES,
            Err(_) => u64::MAX,
        };
        if after < self.volume().whole_size_bytes() {
            self.check_content(after, wanted)?;
        }
        proposed.map_err(|error| self.refused(&error))
    }

    /// Changes the end of the array that clients see; members keep all their data.
    fn end_at(
        &self,
        wanted: &ShapeWanted,
        word: &str,
        dry_run: bool,
    ) -> Result<ShapeAnswer, CliError> {
        let bad = |what: String| {
            let error = CliError::new(Code::Usage, what).about(&self.facts.name);
            error.remedy(Risk::Look, "See the words", "braid grow --help")
        };
        let is_alone = self.wish(wanted)? == ShapeWish::default() && wanted.join.is_none();
        if !is_alone {
            return Err(bad("the array's end changes by itself: first that, then the rest".into()));
        }
        let volume = self.volume();
        let (whole, before) = (volume.whole_size_bytes(), volume.size_bytes());
        let after = match word {
            "max" => whole,
            word => parse_size(word).map_err(|error| bad(error.to_string()))?,
        };
        if after == 0 || after != whole && !after.is_multiple_of(END_UNIT_BYTES) {
            return Err(bad(format!("the array's size is a multiple of {END_UNIT_BYTES} bytes")));
        }
        if after > whole {
            let all = format_size(whole);
            return Err(bad(format!("{} holds {all}, and cannot end behind it", self.facts.name)));
        }
        if after == before {
            let what = format!("{} ends there already", self.facts.name);
            return Err(self.look(self.stays(what).because("there is nothing to change")));
        }
        if after < before {
            self.check_content(after, wanted)?;
        }
        if !dry_run {
            let end = Some(after).filter(|after| *after < whole);
            self.running.shape.end_at(volume, end).map_err(|error| self.look(error))?;
        }
        let geometry = volume.geometry();
        let ending_at = |size_bytes| Shape { size_bytes, ..in_words(&geometry) };
        Ok(ShapeAnswer {
            version: VERSION,
            name: self.facts.name.clone(),
            uuid: self.facts.uuid.clone(),
            kind: ShapeChangeKind::ArraySize,
            before: ending_at(before),
            after: ending_at(after),
            bytes_each: 0,
            seconds: None,
            gap_bytes: 0,
            notes: vec![
                "nothing changes on its members".to_owned(),
                "clients see it over FUSE and ublk (Linux 6.16) within a second, over NBD at the \
                 next connection, over vhost-user when QEMU starts again"
                    .to_owned(),
            ],
            joined: None,
            dry_run,
        })
    }

    /// Refuses an end of the array that would cut content which the operator has not named.
    fn check_content(&self, end_bytes: u64, wanted: &ShapeWanted) -> Result<(), CliError> {
        let cut = cut_at(self.volume(), end_bytes);
        let Some(first) = cut.iter().find(|one| !one.is_named(&wanted.cut)) else { return Ok(()) };
        let end = format_size(end_bytes);
        let what = format!("{} does not get smaller than what is on it", self.facts.name);
        let mut error = self.stays(what).because(format!("it would end at {end}"));
        for one in cut.iter().filter(|one| !one.is_named(&wanted.cut)) {
            error = error.because(format!("{}: {}", one.line(), one.hint()));
        }
        if let Some(command) = first.command(end_bytes) {
            error = error.remedy(Risk::Change, "Let what is on it end earlier first", command);
        }
        let names = cut.iter().filter_map(|one| one.names.first());
        let names: Vec<String> = names.map(|name| format!("--cut {name}")).collect();
        let command = format!("braid grow {} {} {}", self.word(), words(wanted), names.join(" "));
        let error = error.because("nothing was changed");
        Err(error.remedy(Risk::Destroy, "Cut off what lies behind", command))
    }

    fn revert(&self, dry_run: bool) -> Result<ShapeAnswer, CliError> {
        let Some(look) = self.volume().reshape() else {
            let what = format!("no reshape of {} is under way", self.facts.name);
            return Err(self.look(self.stays(what).because("there is nothing to go back from")));
        };
        let is_striping = self.volume().is_striping();
        if !dry_run {
            let reopened = self.running.shape.reopened();
            self.volume().turn_reshape_round().map_err(|error| self.refused(&error))?;
            self.running.shape.wait_reopened(reopened);
        }
        let ReshapeLook { before, after, moved_sectors, total_sectors, .. } = look;
        let mut notes = Vec::new();
        if before.capacity_sectors() > after.capacity_sectors() {
            let size = format_size(after.capacity_sectors() * SECTOR_BYTES);
            notes.push(format!("all that lay behind {size} becomes zeroes"));
        }
        let size = u128::from(before.used_sectors(braid_geometry::Slot(0)) * SECTOR_BYTES);
        let moved = 2 * size * u128::from(moved_sectors) / u128::from(total_sectors.max(1));
        let bytes_each = u64::try_from(moved).unwrap_or(u64::MAX);
        Ok(ShapeAnswer {
            version: VERSION,
            name: self.facts.name.clone(),
            uuid: self.facts.uuid.clone(),
            kind: ShapeChangeKind::Revert,
            before: as_seen(&after, is_striping),
            after: as_seen(&before, is_striping),
            bytes_each,
            seconds: self.seconds(bytes_each),
            gap_bytes: 0,
            notes,
            joined: None,
            dry_run,
        })
    }

    /// The shape that the request's words describe, not counting new devices.
    fn wish(&self, wanted: &ShapeWanted) -> Result<ShapeWish, CliError> {
        let bad = |what: String| {
            let error = CliError::new(Code::Usage, what).about(&self.facts.name);
            error.remedy(Risk::Look, "See the words", "braid grow --help")
        };
        let level = wanted.level.as_ref().map(|word| {
            let found = LEVELS.into_iter().find(|level| level.name() == word);
            let digits = |level: &Level| level.name().strip_prefix("raid") == Some(word);
            found.or_else(|| LEVELS.into_iter().find(digits)).ok_or_else(|| {
                let all = LEVELS.map(Level::name).join(", ");
                bad(format!("'{word}' is no level whose shape changes: {all}"))
            })
        });
        let level = level.transpose()?;
        let now = self.volume().geometry().level();
        let layout = wanted.layout.as_ref().map(|word| {
            parse_layout(level.unwrap_or(now), word).map_err(|error| bad(error.to_string()))
        });
        let sectors = |bytes: u64, what: &str| match bytes % SECTOR_BYTES {
            0 => Ok(bytes / SECTOR_BYTES),
            _ => Err(bad(format!("{what} is no multiple of {SECTOR_BYTES} bytes"))),
        };
        let chunk = wanted.chunk_bytes.map(|bytes| {
            let sectors = sectors(bytes, "the chunk")?;
            u32::try_from(sectors).map_err(|_| bad("the chunk is too large".to_owned()))
        });
        let size = wanted.size.as_ref().map(|word| match word.as_str() {
            "max" => Ok(u64::MAX),
            word => {
                let bytes = parse_size(word).map_err(|error| bad(error.to_string()))?;
                sectors(bytes, "the size")
            }
        });
        Ok(ShapeWish {
            level,
            layout: layout.transpose()?,
            chunk_sectors: chunk.transpose()?,
            slots: wanted.members,
            member_size_sectors: size.transpose()?,
        })
    }

    /// If the request names devices but no shape, the array gets one more slot for each device.
    fn with_slots(&self, wish: ShapeWish, joining: usize) -> ShapeWish {
        let is_plain = wish.level.is_none() && wish.member_size_sectors.is_none();
        let slots = usize::from(self.volume().geometry().slots()) + joining;
        let slots = u16::try_from(slots).ok().filter(|_| joining > 0 && is_plain);
        ShapeWish { slots: wish.slots.or(slots), ..wish }
    }

    /// Whether a change of shape may begin now. Parity logs are no obstacle, as they can rest
    /// during the change.
    fn may_begin(&self) -> Result<(), CliError> {
        let volume = self.volume();
        if volume.bitmap_file().is_some() {
            let error = self.stays(format!("the shape of {} stays", self.facts.name));
            let error = error.because("its bitmap is in a file, which belongs to one shape");
            let command = format!("braid set {} bitmap-file=none", self.word());
            return Err(error.remedy(Risk::Change, "Put the bitmap on the members", command));
        }
        match volume.may_reshape() {
            Err(ShapeRefusal::Logs) if volume.journal().is_none() => Ok(()),
            Err(refusal) => Err(self.refused(&refusal.into())),
            Ok(()) => Ok(()),
        }
    }

    fn files_closed(&self) -> CliError {
        let what = format!("the server of {} cannot open files by itself", self.facts.name);
        let error = CliError::new(Code::FilesClosed, what).about(&self.facts.name);
        let error = error.because("it was started with --confine; nothing was changed");
        self.spares_first(error)
    }

    fn spares_first(&self, error: CliError) -> CliError {
        if self.volume().geometry().level().family() == Family::Direct {
            let why =
                "a raid0 has no spares, so they cannot come first: serve it without --confine";
            return self.look(error.because(why));
        }
        let command = format!("braid spare {} DEVICE", self.word());
        error.remedy(Risk::Change, "Add the devices first, then grow with --members", command)
    }

    fn joining(&self, device: &str) -> Result<(Superblock, u64), CliError> {
        let path = std::path::Path::new(device);
        let opened = braid_member::open(path, Access::Examine);
        let opened = opened.map_err(|error| braid_discovery::probe::open_error(&error))?;
        let bytes = opened.size_bytes();
        let superblock = self.volume().joining_superblock(bytes).map_err(|error| {
            let what = format!("{device} does not fit {}", self.facts.name);
            self.look(self.stays(what).caused_by(&error))
        })?;
        Ok((superblock, bytes))
    }

    fn answer(&self, proposal: &ShapeProposal, dry_run: bool) -> ShapeAnswer {
        let ShapeProposal { before, after, change, plan, .. } = proposal;
        let geometry = |shape| Geometry::new(shape).expect("it was proposed");
        let (old, new) = (geometry(before), geometry(after));
        let used = |geometry: &Geometry| geometry.used_sectors(braid_geometry::Slot(0));
        let moves = plan.is_some();
        let bytes_each = if moves { (used(&old) + used(&new)) * SECTOR_BYTES } else { 0 };
        let (kind, gap) = match change {
            ShapeChange::Begin { shape, .. } if moves => {
                let gap = shape.data_areas.first().map_or(0, |(_, area)| {
                    let to = area.new_offset_sectors.unwrap_or(area.offset_sectors);
                    area.offset_sectors.abs_diff(to)
                });
                (ShapeChangeKind::Reshape, gap)
            }
            ShapeChange::Begin { .. } if before.level == after.level => (ShapeChangeKind::Size, 0),
            ShapeChange::Begin { .. } => (ShapeChangeKind::TakeOver, 0),
            ShapeChange::Finish { .. } | ShapeChange::TurnRound { .. } => {
                unreachable!("only beginnings are proposed")
            }
        };
        ShapeAnswer {
            version: VERSION,
            name: self.facts.name.clone(),
            uuid: self.facts.uuid.clone(),
            kind,
            before: in_words(&old),
            after: in_words(&new),
            bytes_each,
            seconds: self.seconds(bytes_each),
            gap_bytes: gap * SECTOR_BYTES,
            notes: self.notes((kind, gap * SECTOR_BYTES), (&old, &new), proposal),
            joined: None,
            dry_run,
        }
    }

    fn seconds(&self, bytes_each: u64) -> Option<u64> {
        let speed = if bytes_each > 0 { self.volume().read_speed()? } else { return None };
        Some(bytes_each.div_ceil(speed.max(1)))
    }

    /// Consequences for the operator, during the change of shape and after it.
    fn notes(
        &self,
        (kind, gap_bytes): (ShapeChangeKind, u64),
        (old, new): (&Geometry, &Geometry),
        proposal: &ShapeProposal,
    ) -> Vec<String> {
        let mut notes = Vec::new();
        let spares_used = proposal.spares_used;
        let in_place = proposal.plan.as_ref().map_or(0, |plan| plan.steps().sectors_in_place());
        let is_whole = in_place == old.capacity_sectors().min(new.capacity_sectors());
        let is_backwards = proposal.plan.as_ref().is_some_and(|plan| plan.is_backwards());
        if gap_bytes > 0 {
            let side = if is_backwards { "end" } else { "start" };
            let gap = format_size(gap_bytes);
            notes.push(format!(
                "data moves {gap} towards the {side} of each member: no backup file"
            ));
        }
        if in_place > 0 {
            let part = match is_whole {
                true => "data overwrites itself on the whole way".to_owned(),
                false => format!(
                    "the {} {} of the way overwrite themselves",
                    if is_backwards { "last" } else { "first" },
                    format_size(in_place * SECTOR_BYTES)
                ),
            };
            notes.push(format!(
                "{part}: each window is copied to {} first, and a start there needs that file",
                self.running.shape.copy().display()
            ));
        }
        let volume = self.volume();
        let (from, to) = (old.level(), new.level());
        match kind {
            ShapeChangeKind::Reshape if from == Level::Raid0 => {
                notes.push("on the way it needs each member, as before".to_owned());
                notes.push(GOES_BACK.to_owned());
                notes.push(
                    "until it is over it is a raid4 that lacks its parity; where Linux ends it, it \
                     stays one until `braid grow --level 0`"
                        .to_owned(),
                );
                notes.push(taken_over_by(in_place, is_whole).to_owned());
            }
            ShapeChangeKind::Reshape => {
                let lost = old.lost_max().min(new.lost_max());
                notes.push(format!(
                    "on the way the array can lose {lost} member{}, as before, and goes on without",
                    if lost == 1 { "" } else { "s" }
                ));
                let goes_back = self.facts.metadata != "0.90" || old.slots() != new.slots();
                notes.push(match goes_back {
                    true => GOES_BACK.to_owned(),
                    false => "it does not go back on the way: metadata 0.90 cannot say so".into(),
                });
                notes.push(taken_over_by(in_place, is_whole).to_owned());
            }
            ShapeChangeKind::TakeOver if to == Level::Raid0 => {
                notes.push("no byte of data moves".to_owned());
                notes.push(format!(
                    "its redundancy is lost: the array needs each of its {} members from then on",
                    new.slots()
                ));
                notes.push(
                    "the other members are let go, and their superblocks are removed".to_owned(),
                );
            }
            ShapeChangeKind::TakeOver if from == Level::Raid0 => {
                let lacks = usize::from(new.slots() - old.slots()).saturating_sub(spares_used);
                notes.push("no byte of data moves".to_owned());
                notes.push(match lacks {
                    0 => "spares are filled: it can lose a member as soon as that is done".into(),
                    _ => format!(
                        "it lacks {lacks} member{} until `braid add`, and can lose none before",
                        if lacks == 1 { "" } else { "s" }
                    ),
                });
            }
            ShapeChangeKind::TakeOver if spares_used > 0 => notes.push(
                "a spare becomes the last member, and is filled with Q: each stripe is safer as \
                 soon as it is done"
                    .to_owned(),
            ),
            ShapeChangeKind::TakeOver => notes.push("no byte of data moves".to_owned()),
            ShapeChangeKind::Size if new.capacity_sectors() > old.capacity_sectors() => {
                notes.push("only the new part of the members is synced".to_owned());
            }
            ShapeChangeKind::Size => notes.push("no byte of data moves".to_owned()),
            ShapeChangeKind::Revert | ShapeChangeKind::ArraySize => {}
        }
        if new.capacity_sectors() < old.capacity_sectors() {
            let size = format_size(new.capacity_sectors() * SECTOR_BYTES);
            notes.push(match kind {
                ShapeChangeKind::Reshape => format!(
                    "all that lies behind {size} is lost from the beginning, also if it goes back"
                ),
                _ => format!("all that lies behind {size} is lost"),
            });
        }
        if new.slots() < old.slots() && kind == ShapeChangeKind::Reshape {
            notes.push("members beyond the last slot become spares when it is over".to_owned());
        }
        if volume.parity_logs().is_some() {
            notes.push(
                "its log rests until then: after a power cut while a member is missing, the array \
                 may refuse to start"
                    .to_owned(),
            );
        }
        if proposal.drops_bitmap() && volume.bitmap().is_some() {
            notes.push(
                "its bitmap rests until then: after a power cut all of the array is resynced"
                    .to_owned(),
            );
        }
        if new.capacity_sectors() > old.capacity_sectors() && volume.end_sector().is_some() {
            notes.push(format!(
                "clients see its end where it is until `braid grow {} --array-size max`",
                self.word()
            ));
        } else if new.capacity_sectors() > old.capacity_sectors() {
            let size = format_size(new.capacity_sectors() * SECTOR_BYTES);
            notes.push(format!(
                "clients see {size} when it is over; then grow the file system (resize2fs, \
                 xfs_growfs, btrfs filesystem resize max)"
            ));
        }
        notes
    }

    fn word(&self) -> String {
        self.facts.word()
    }

    fn stays(&self, what: String) -> CliError {
        CliError::new(Code::ShapeStays, what).about(&self.facts.name)
    }

    fn look(&self, error: CliError) -> CliError {
        error.remedy(Risk::Look, "See its state", format!("braid status {}", self.word()))
    }

    fn refused(&self, error: &ReshapeError) -> CliError {
        let what = format!("the shape of {} stays as it is", self.facts.name);
        let refusal = CliError::new(code_of(error), what).about(&self.facts.name);
        let refusal = refusal.caused_by(error).because("nothing was changed");
        let word = self.word();
        match error {
            ReshapeError::Refused(ShapeRefusal::Busy(_)) => {
                let command = format!("braid wait {word} --for idle");
                refusal.remedy(Risk::Look, "Wait for it, and try again", command)
            }
            ReshapeError::Refused(ShapeRefusal::Logs) => {
                let command = format!("braid set {word} consistency=bitmap");
                refusal.remedy(Risk::Change, "Keep a bitmap meanwhile", command)
            }
            ReshapeError::Wish(WishError::Smaller { after, .. }) => {
                let size = size_word(after * SECTOR_BYTES);
                let refusal = refusal.because("then try what is on it, and begin again");
                refusal.remedy(
                    Risk::Change,
                    "Let it end there for clients first, which can be taken back",
                    format!("braid grow {word} --array-size {size}"),
                )
            }
            ReshapeError::Wish(WishError::TooFewSpares { .. })
                if self.running.membership.opens_nothing =>
            {
                self.spares_first(refusal)
            }
            ReshapeError::Wish(WishError::TooFewSpares { .. }) => refusal.remedy(
                Risk::Change,
                "Name devices, too",
                format!("braid grow -n {word} DEVICE"),
            ),
            ReshapeError::Wish(WishError::NoRoom { needed, there, side: "behind" })
                if self.volume().geometry().level() == Level::Raid10 =>
            {
                let used = self.volume().geometry().used_sectors(Slot(0));
                let size = size_word(used.saturating_sub(needed - there) * SECTOR_BYTES);
                let command = format!("braid grow {word} --size {size}");
                refusal.remedy(Risk::Change, "Use less of each member first", command)
            }
            ReshapeError::Wish(WishError::Bitmap(_)) => refusal.remedy(
                Risk::Change,
                "Drop the bitmap first",
                format!("braid set {word} consistency=resync"),
            ),
            _ => self.look(refusal),
        }
    }
}

const GOES_BACK: &str = "it can go back from any point with `braid revert`, also after a power cut";

/// Which Linux versions can continue a reshape that has this many sectors in place, and where.
fn taken_over_by(in_place: u64, is_whole: bool) -> &'static str {
    match (in_place, is_whole) {
        (0, _) => "Linux 3.5 and later take over from any point, and braid from them",
        (_, false) => "Linux 3.5 and later take over outside that part, and braid from them",
        (_, true) => "no Linux takes over before its end",
    }
}

/// Capacity in bytes of an array with this shape.
fn capacity_bytes(shape: &braid_geometry::Shape) -> u64 {
    let geometry = Geometry::new(shape).expect("it was proposed");
    geometry.capacity_sectors() * SECTOR_BYTES
}

/// A size as a word of the command line, without rounding.
fn size_word(bytes: u64) -> String {
    if bytes.is_multiple_of(1024) { format!("{}K", bytes / 1024) } else { format!("{bytes}B") }
}

/// The command-line options of a request for another shape, as the operator types them.
fn words(wanted: &ShapeWanted) -> String {
    let chunk = wanted.chunk_bytes.map(|bytes| format!("--chunk {}", size_word(bytes)));
    let layout = wanted.layout.as_ref().map(|word| format!("--layout {}", shell_word(word)));
    let level = wanted.level.as_ref().map(|word| format!("--level {}", shell_word(word)));
    let members = wanted.members.map(|count| format!("--members {count}"));
    let size = wanted.size.as_ref().map(|word| format!("--size {}", shell_word(word)));
    let end = wanted.array_size.as_ref().map(|word| format!("--array-size {}", shell_word(word)));
    [level, members, chunk, layout, size, end].into_iter().flatten().collect::<Vec<_>>().join(" ")
}
