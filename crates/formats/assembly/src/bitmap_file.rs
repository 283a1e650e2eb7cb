//! A bitmap file that the operator passes along with the members ([`braid_ondisk::bitmap_file`]).
//!
//! The caller reads the file. No superblock names a bitmap file, so an array that is started
//! without its file has no bitmap. But if the array's parity log is in the file and the array was
//! interrupted, superblocks say that the log is in a file. Without the file the array is then
//! resynced as a whole, or refused if a member is missing.

use braid_geometry::{Family, Slot};
use braid_ondisk::{
    BitmapFile, BitmapFileError, BitmapKind, Features, LogHome, OwnLogPlace, PplLog, PplLogError,
    PplRecord,
};
use braid_sim_hooks::{Bug, planted};

use crate::candidates::Candidate;
use crate::judge::Roster;
use crate::parity_log::AssembledParityLog;
use crate::refusal::{BitmapFileFault, Refusal};

/// A bitmap file from the operator.
#[derive(Debug, Clone)]
pub struct GivenBitmapFile {
    /// The operator's name for the file.
    pub label: String,
    /// The file's content, or why it is not a bitmap file.
    pub file: Result<BitmapFile, BitmapFileError>,
}

/// The bitmap file of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssembledBitmapFile {
    /// The operator's name for the file.
    pub label: String,
    /// The index that stands for the file: the index after the last member's.
    pub member: usize,
    /// The file's length in bytes.
    pub size_bytes: u64,
    /// The parity log in the file, if the array keeps a parity log there.
    pub parity_log: Option<AssembledParityLog>,
}

/// Accepts a file that belongs to this array and can be kept; refuses any other.
pub(crate) fn check<'a>(
    given: Option<&'a GivenBitmapFile>,
    roster: &Roster<'_>,
) -> Result<Option<(&'a str, &'a BitmapFile)>, Refusal> {
    let Some(GivenBitmapFile { label, file }) = given else { return Ok(None) };
    let newest = roster.newest.superblock;
    let has_journal = newest.state.features.contains(Features::JOURNAL);
    let fault = match file {
        Err(error) => Some(BitmapFileFault::NotOne(*error)),
        Ok(file) if file.uuid != newest.uuid_as_stored() => Some(BitmapFileFault::OtherArray),
        Ok(_) if newest.array.level.family() == Family::Direct => Some(BitmapFileFault::Level),
        Ok(_) if newest.intent.bitmap_offset_sectors.is_some() => Some(BitmapFileFault::Internal),
        Ok(_) if newest.intent.ppl.is_some() || has_journal => Some(BitmapFileFault::OtherLog),
        Ok(file) => match &file.bitmap {
            Err(error) => Some(BitmapFileFault::Unreadable(*error)),
            Ok(bitmap) if bitmap.superblock.kind != BitmapKind::Classic => {
                Some(BitmapFileFault::Kind(bitmap.superblock.kind.name()))
            }
            Ok(bitmap) => ahead(bitmap.superblock.events, roster.newest.events()),
        },
    };
    match (fault, file) {
        (Some(fault), _) => Err(Refusal::BitmapFile { label: label.clone(), fault }),
        (None, Ok(file)) => Ok(Some((label, file))),
        (None, Err(_)) => unreachable!("that is a fault"),
    }
}

/// A fault if the file is more than one event ahead of the members. One event ahead is normal: the
/// file is written before the superblocks.
fn ahead(events: u64, newest_events: u64) -> Option<BitmapFileFault> {
    let is_ahead = events > newest_events.saturating_add(1);
    is_ahead.then_some(BitmapFileFault::Ahead { events, newest_events })
}

/// Checks that the bits fit before the log in the file. A bitmap that was not resized with its
/// array may be too long.
pub(crate) fn check_room(
    file: Option<(&str, &BitmapFile)>,
    roster: &Roster<'_>,
    area_sectors: u64,
) -> Result<(), Refusal> {
    let Some((label, file)) = file else { return Ok(()) };
    let room = BitmapFile::room_for_bitmap(file.size_bytes, log_place(file, roster));
    match area_sectors <= room {
        true => Ok(()),
        false => {
            let fault = BitmapFileFault::NoRoom;
            Err(Refusal::BitmapFile { label: label.to_owned(), fault })
        }
    }
}

/// The place of braid's own parity log in the file, if the array has such a log.
pub(crate) fn log_place(file: &BitmapFile, roster: &Roster<'_>) -> Option<OwnLogPlace> {
    let is_stripe = roster.newest.superblock.array.level.family() == Family::Stripe;
    let place = file.own_log.as_ref()?.place.ok();
    place.filter(|_| is_stripe)
}

/// The entries of the file's log by slot, as if each member had a log of its own.
pub(crate) fn logs_by_slot(
    file: Option<&BitmapFile>,
    roster: &Roster<'_>,
) -> Vec<(Slot, Result<PplLog, PplLogError>)> {
    let log = match file {
        None => Err(PplLogError::NoFile),
        Some(file) if !is_as_new(file, roster) => Err(PplLogError::OldFile),
        Some(file) => match &file.own_log {
            None => Err(PplLogError::NoHead),
            Some(own) => own.log.as_ref().map_err(|error| *error),
        },
    };
    let of_slot = |(slot, _): &(u16, Candidate<'_>)| {
        let slot = Slot(*slot);
        (slot, log.map(|log| entries_of(log, slot)))
    };
    roster.active.iter().map(of_slot).collect()
}

/// Whether no write reached the array without the file since the file's last update.
fn is_as_new(file: &BitmapFile, roster: &Roster<'_>) -> bool {
    if planted(Bug::OldFileBelieved) {
        return true;
    }
    let bitmap = file.bitmap.as_ref().ok();
    bitmap.is_some_and(|bitmap| bitmap.is_current(roster.newest.events()))
}

fn entries_of(log: &PplLog, slot: Slot) -> PplLog {
    let of_slot = |record: &PplRecord| {
        let entries = record.entries.iter();
        let entries = entries.filter(|(_, one)| one.entry.parity_slot == u32::from(slot.0));
        PplRecord { entries: entries.cloned().collect(), ..record.clone() }
    };
    let older = log.older.iter().map(of_slot).collect();
    PplLog { newest: log.newest.as_ref().map(of_slot), older }
}

/// Whether superblocks say that the log at `home` counts: the newest superblock, or an older
/// superblock if an update to clean was cut short.
pub(crate) fn counts(roster: &Roster<'_>, home: LogHome) -> bool {
    let newest = &roster.newest.superblock.state;
    // The update before the update to clean is the one that made the log count, and no data is
    // written between the two.
    let mut before = roster.active.iter().map(|(_, candidate)| &candidate.superblock.state);
    let was_cut_short = newest.is_clean() && before.any(|state| state.log_counts == Some(home));
    newest.log_counts == Some(home) || was_cut_short
}

pub(crate) fn assembled(
    (label, file): (&str, &BitmapFile),
    roster: &Roster<'_>,
    member: usize,
) -> AssembledBitmapFile {
    let is_believed = counts(roster, LogHome::File) && is_as_new(file, roster);
    let parity_log = log_place(file, roster).map(|place| {
        let log = file.own_log.as_ref().and_then(|own| own.log.as_ref().ok());
        let newest = log.and_then(|log| log.newest.as_ref()).filter(|_| is_believed);
        let newest = newest.map(|record| (record.generation, record.end_sector));
        AssembledParityLog { place: place.into(), newest }
    });
    let (label, size_bytes) = (label.to_owned(), file.size_bytes);
    AssembledBitmapFile { label, member, size_bytes, parity_log }
}
