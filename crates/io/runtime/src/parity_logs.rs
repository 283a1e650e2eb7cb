//! The operator creates parity logs, md's or braid's own, or drops them, while the array runs.
//!
//! Place in the flow: above the volume, next to [`mod@crate::bitmap`]. The array decides whether
//! the change is allowed ([`LogRefusal`]). Place and size of logs follow from the room on the
//! members; this file looks at that room. No member joins during the change, so that every member
//! has a place [check: a_log_comes_and_goes_on_a_volume_that_is_written].

use std::collections::BTreeMap;
use std::path::PathBuf;

use braid_engine::array::{Array, LogRefusal, MemberId};
use braid_ondisk::{BitmapFile, LOG_SECTORS_MIN, LogPlace, OwnLogPlace, PplPlace, Superblock};

use crate::events::{ArrayEvent, Machine};
use crate::log;
use crate::operator::MemberLook;
use crate::sync::mpsc::channel;
use crate::volume::Volume;

/// The kind of parity logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKind {
    /// md's partial parity log.
    Ppl,
    /// braid's own parity log.
    Own,
}

/// Why a change of the logs failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The array refused the change.
    #[error(transparent)]
    Refused(#[from] LogRefusal),
    /// A member has no room for a log.
    #[error("{} has no room for a log", member.display())]
    NoRoom {
        /// The member with the least room.
        member: PathBuf,
        /// The minimum number of sectors that a log needs.
        needed_sectors: u64,
    },
}

impl Volume {
    /// Whether logs of this kind can be created now. With `None`: whether the logs can be dropped.
    ///
    /// # Errors
    /// The array keeps another safeguard, needs the logs, or takes no changes.
    pub fn may_change_logs(&self, kind: Option<LogKind>) -> Result<(), LogError> {
        let is_own = kind.map(|kind| kind == LogKind::Own);
        Ok(self.core().look(|array: &Array| array.may_change_logs(is_own))?)
    }

    /// Whether every member and spare has room for a log of this kind in addition to a bitmap of
    /// `bitmap_sectors` (0 for no bitmap).
    ///
    /// # Errors
    /// A member has no room.
    pub fn plan_logs(&self, kind: LogKind, bitmap_sectors: u64) -> Result<(), LogError> {
        self.log_places(kind, bitmap_sectors).map(|_| ())
    }

    /// Whether the current bitmap file has room for braid's own log in addition to its bitmap.
    ///
    /// # Errors
    /// The file has no room.
    pub fn plan_log_in_file(&self) -> Result<(), LogError> {
        let file = self.core().look(Array::bitmap_file).ok_or(LogRefusal::HasNone)?;
        self.log_place_in_file(file).map(|_| ())
    }

    /// Places of the logs on all members; the member with the least room sets the size of all.
    fn log_places(
        &self,
        kind: LogKind,
        bitmap_sectors: u64,
    ) -> Result<BTreeMap<MemberId, LogPlace>, LogError> {
        let looks = self.look_at_members();
        // A change to logs drops the write journal first, so the journal's device needs no room.
        let journal = self.journal().map(|journal| journal.member);
        let is_to_have = |look: &&MemberLook| look.is_in && Some(look.id) != journal;
        let looks: Vec<&MemberLook> = looks.iter().filter(is_to_have).collect();
        let place = |look: &&MemberLook| place_on(&look.superblock, kind, bitmap_sectors);
        let places: Vec<Option<LogPlace>> = looks.iter().map(place).collect();
        let sectors = |place: &Option<LogPlace>| place.map_or(0, sectors_of);
        let least = places.iter().zip(&looks).min_by_key(|(place, _)| sectors(place));
        let (least, look) = least.expect("an array that runs has members");
        let (least, needed) = (sectors(least), u32::from(LOG_SECTORS_MIN));
        if least < needed {
            let (member, needed_sectors) = (look.path.clone(), u64::from(needed));
            return Err(LogError::NoRoom { member, needed_sectors });
        }
        let named = |(look, place): (&&MemberLook, Option<LogPlace>)| {
            let place = place.expect("it has as much as the least");
            (look.id, with_sectors(place, least))
        };
        Ok(looks.iter().zip(places).map(named).collect())
    }

    /// Every member's place in the bitmap file for the log.
    fn log_place_in_file(&self, file: MemberId) -> Result<BTreeMap<MemberId, LogPlace>, LogError> {
        let sectors = self.core().look(Array::bitmap_file_sectors);
        let size_bytes = self.bitmap_file_bytes().unwrap_or(0);
        let needed_sectors = u64::from(LOG_SECTORS_MIN);
        let place = BitmapFile::log_place(size_bytes, sectors);
        let place = place.filter(|place| u64::from(place.size_sectors) >= needed_sectors);
        let member = || self.bitmap_file().unwrap_or_default();
        let no_room = || LogError::NoRoom { member: member(), needed_sectors };
        Ok([(file, LogPlace::Own(place.ok_or_else(no_room)?))].into_iter().collect())
    }

    /// `Some` creates logs of a kind, `None` drops them. Returns when superblocks record the
    /// change. Clients wait for a moment meanwhile.
    ///
    /// # Errors
    /// The change is refused, and nothing changed. With [`LogRefusal::Busy`] the change was made,
    /// but superblocks record it only once members answer.
    pub fn change_logs(&self, kind: Option<LogKind>) -> Result<(), LogError> {
        let core = self.core();
        let _one = core.membership.lock().expect("changing members does not panic");
        let bitmap_sectors = core.look(Array::bitmap_sectors);
        let file = core.look(Array::bitmap_file);
        let places = |kind| match file.filter(|_| kind == LogKind::Own) {
            Some(file) => self.log_place_in_file(file),
            None => self.log_places(kind, bitmap_sectors),
        };
        let places = kind.map(places).transpose()?;
        let (answer, answered) = channel();
        core.array.push(ArrayEvent::Logs(places, answer));
        core.drive(Machine::Array);
        answered.recv().expect("the array answers")?;
        log::tuned("parity-logs", &kind);
        if !core.comes_to(Array::are_logs_settled) {
            // The change has not settled in time. If the array refuses it now, the refusal is the
            // error.
            self.may_change_logs(kind)?;
            return Err(LogRefusal::Busy.into());
        }
        let is_so = core.look(|array: &Array| array.parity_logs().is_some()) == kind.is_some();
        if is_so { Ok(()) } else { Err(LogRefusal::Busy.into()) }
    }
}

/// The place on a member for a log of this kind, if the log fits.
fn place_on(superblock: &Superblock, kind: LogKind, bitmap_sectors: u64) -> Option<LogPlace> {
    let mut then = superblock.clone();
    then.name_ppl(None);
    match kind {
        LogKind::Ppl => then.ppl_place().map(LogPlace::Ppl),
        LogKind::Own => {
            if bitmap_sectors > 0 && then.bitmap_offset().is_none() {
                return None;
            }
            then.name_bitmap(bitmap_sectors > 0);
            then.own_log_place(bitmap_sectors).map(LogPlace::Own)
        }
    }
}

fn sectors_of(place: LogPlace) -> u32 {
    match place {
        LogPlace::Ppl(place) => place.size_sectors.into(),
        LogPlace::Own(place) => place.size_sectors,
    }
}

fn with_sectors(place: LogPlace, sectors: u32) -> LogPlace {
    match place {
        LogPlace::Ppl(place) => {
            let size_sectors = u16::try_from(sectors).expect("no more than it has itself");
            LogPlace::Ppl(PplPlace { size_sectors, ..place })
        }
        LogPlace::Own(_) => LogPlace::Own(OwnLogPlace::of(sectors)),
    }
}
