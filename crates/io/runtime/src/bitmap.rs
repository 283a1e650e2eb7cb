//! The operator creates, resizes or drops a write-intent bitmap while the array runs.
//!
//! Place in the flow: above the volume, next to [`crate::operator`]. The array decides whether the
//! change is allowed ([`braid_engine::array::BitmapRefusal`]). The size of the bitmap follows from
//! the room on the members, or in a bitmap file; this file looks at that room. A bitmap file is a
//! member of the table but not of the array, and takes metadata requests only. No member joins
//! during the change, so that every member has room
//! [check: a_bitmap_comes_and_goes_on_a_volume_that_is_written].

use std::path::{Path, PathBuf};

use braid_assembly::resync_sectors;
use braid_engine::array::{Array, BitmapRefusal, MemberId, NewBitmap};
use braid_member::Member;
use braid_ondisk::{BitmapFile, BitmapPlace, BitmapSuperblock};

use crate::events::{ArrayEvent, Machine};
use crate::log;
use crate::sync::mpsc::channel;
use crate::volume::Volume;

/// Why a change of the bitmap failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BitmapError {
    /// The array refused the change.
    #[error(transparent)]
    Refused(#[from] BitmapRefusal),
    /// A member has no room for the bitmap.
    #[error("{} has no room for it", member.display())]
    NoRoom {
        /// The member with the least room.
        member: PathBuf,
        /// The smallest chunk, in bytes for each bit, that fits; `None` if no chunk fits.
        fitting_bytes: Option<u32>,
    },
    /// A bitmap file failed during the change: the array now has no bitmap, or another than the
    /// wanted one.
    #[error("a bitmap file failed while it was changed")]
    FileFailed,
    /// Threads for a bitmap file could not be started.
    #[error("no thread could be started for the bitmap file: {0}")]
    Thread(std::io::ErrorKind),
}

/// The bitmap to create.
pub struct WantedBitmap {
    /// Bytes of the array that one bit stands for.
    pub chunk_bytes: u32,
    /// Where the bitmap lies.
    pub home: BitmapHome,
}

/// The place of a bitmap.
pub enum BitmapHome {
    /// On every member.
    Members,
    /// In the current bitmap file.
    SameFile,
    /// In this file, which must be empty.
    File(Box<dyn Member>),
}

impl Volume {
    /// The path of the array's bitmap file, if the array has one.
    #[must_use]
    pub fn bitmap_file(&self) -> Option<PathBuf> {
        let id = self.core().look(Array::bitmap_file)?;
        let members = self.core().members.load();
        members.get(id).map(|file| file.path().to_path_buf())
    }

    /// A plan for a bitmap in a file of this length. A bit stands for `asked_bytes`, or for mdadm's
    /// choice.
    ///
    /// # Errors
    /// The file has no room for the bitmap.
    pub fn plan_bitmap_in_file(
        &self,
        file: &Path,
        size_bytes: Option<u64>,
        asked_bytes: Option<u32>,
    ) -> Result<BitmapSuperblock, BitmapError> {
        let sectors = resync_sectors(&self.geometry());
        BitmapFile::plan(sectors, size_bytes, asked_bytes).ok_or_else(|| {
            let fitting = BitmapFile::plan(sectors, size_bytes, None);
            let fitting_bytes = fitting.map(|bitmap| bitmap.chunk_bytes);
            BitmapError::NoRoom { member: file.to_path_buf(), fitting_bytes }
        })
    }

    /// The length of the bitmap file, if the array has one.
    #[must_use]
    pub fn bitmap_file_bytes(&self) -> Option<u64> {
        let id = self.core().look(Array::bitmap_file)?;
        let members = self.core().members.load();
        members.get(id).map(|file| file.device.size_bytes())
    }

    /// A plan for a bitmap on every member and spare. A bit stands for `asked_bytes`, or for
    /// mdadm's choice.
    ///
    /// # Errors
    /// A member has no room for the bitmap.
    pub fn plan_bitmap(&self, asked_bytes: Option<u32>) -> Result<BitmapSuperblock, BitmapError> {
        let sectors = resync_sectors(&self.geometry());
        // A change to a bitmap drops the write journal first, so the journal's device needs no
        // room.
        let journal = self.journal().map(|journal| journal.member);
        let looks = self.look_at_members().into_iter();
        let looks = looks.filter(|look| look.is_in && Some(look.id) != journal);
        // The place is computed as for a superblock without a bitmap, even if the superblock names
        // a current bitmap elsewhere.
        let none = BitmapPlace { offset_sectors: 0, room_sectors: 0 };
        let places = looks.map(|look| (look.superblock.bitmap_place().unwrap_or(none), look.path));
        let least = places.min_by_key(|(place, _)| place.room_sectors);
        let (place, member) = least.expect("an array that runs has members");
        let Some(chunk_bytes) = place.chunk_bytes(sectors, asked_bytes) else {
            let fitting_bytes = place.chunk_bytes(sectors, None);
            return Err(BitmapError::NoRoom { member, fitting_bytes });
        };
        let reserved = u32::try_from(place.room_sectors).unwrap_or(u32::MAX);
        Ok(BitmapSuperblock::new(sectors, chunk_bytes, reserved))
    }

    /// Sectors that the bitmap takes on each member; 0 without a bitmap.
    #[must_use]
    pub fn bitmap_sectors(&self) -> u64 {
        self.core().look(Array::bitmap_sectors)
    }

    /// With `is_to_be_there`: whether a bitmap can be created now, also in place of the current
    /// one. Otherwise: whether the current bitmap can be dropped.
    ///
    /// # Errors
    /// The array needs its bitmap, or takes no changes.
    pub fn may_change_bitmap(&self, is_to_be_there: bool) -> Result<(), BitmapError> {
        let may = |array: &Array| array.may_change_bitmap(is_to_be_there);
        Ok(self.core().look(may)?)
    }

    /// `Some` creates a bitmap ([`Self::plan_bitmap`]) in place of the current one, `None` drops
    /// the current one. Returns when superblocks record the change. Clients' requests continue
    /// meanwhile.
    ///
    /// # Errors
    /// The change is refused, and nothing changed. With [`BitmapRefusal::Busy`] the change was
    /// made, but superblocks record it only once members answer.
    pub fn change_bitmap(&self, wanted: Option<WantedBitmap>) -> Result<(), BitmapError> {
        let core = self.core();
        let _one = core.membership.lock().expect("changing members does not panic");
        let old = core.look(Array::bitmap_file);
        self.close_files(old);
        let asked_bytes = wanted.as_ref().map(|wanted| wanted.chunk_bytes);
        let planned = wanted.map(|wanted| self.planned(wanted, old)).transpose()?;
        let new = planned.and_then(|planned| planned.file).filter(|file| Some(*file) != old);
        let (answer, answered) = channel();
        core.array.push(ArrayEvent::Bitmap(planned, answer));
        core.drive(Machine::Array);
        let asked = answered.recv().expect("the array answers");
        asked.inspect_err(|_| new.into_iter().for_each(|file| core.close_member(file)))?;
        log::tuned("bitmap", &asked_bytes);
        if !core.comes_to(Array::is_bitmap_settled) {
            // The change has not settled in time. If the array refuses it now, the refusal is the
            // error.
            self.may_change_bitmap(planned.is_some())?;
        }
        let file = core.look(Array::bitmap_file);
        // The array no longer uses the old file.
        self.close_files(file);
        let is_there = core.look(|array: &Array| array.bitmap().is_some());
        let is_so = is_there == planned.is_some() && file == planned.and_then(|one| one.file);
        if is_so { Ok(()) } else { Err(BitmapError::FileFailed) }
    }

    /// Closes the bitmap files that the array has dropped or lost, except the file `but`.
    fn close_files(&self, but: Option<MemberId>) {
        let core = self.core();
        let is_old = |id: &MemberId| Some(*id) != but;
        let files: Vec<MemberId> = {
            let members = core.members.load();
            let files = members.iter().filter(|member| member.is_bitmap_file());
            files.map(|file| file.id()).filter(is_old).collect()
        };
        files.into_iter().for_each(|file| core.close_member(file));
    }

    /// The wanted bitmap with its place, computed anew: a member may have joined since the plan was
    /// made.
    fn planned(
        &self,
        wanted: WantedBitmap,
        old: Option<MemberId>,
    ) -> Result<NewBitmap, BitmapError> {
        let core = self.core();
        let asked = Some(wanted.chunk_bytes);
        let (device, file) = match wanted.home {
            BitmapHome::Members => {
                return Ok(NewBitmap { head: self.plan_bitmap(asked)?, file: None });
            }
            BitmapHome::SameFile => (None, old.ok_or(BitmapRefusal::HasNone)?),
            BitmapHome::File(device) => (Some(device), core.members.load().next_id()),
        };
        let (path, size_bytes) = match &device {
            Some(device) => (device.identity().path.clone(), Some(device.size_bytes())),
            None => (self.bitmap_file().unwrap_or_default(), self.bitmap_file_bytes()),
        };
        let head = self.plan_bitmap_in_file(&path, size_bytes, asked)?;
        if let Some(device) = device {
            let newest = self.core().template().ok_or(BitmapRefusal::Degraded)?;
            let stand_in = newest.for_bitmap_file(device.size_bytes());
            let registered = core.register_member(file, (device, stand_in), None);
            registered.map_err(|error| BitmapError::Thread(error.kind()))?;
            core.schedule_again();
        }
        Ok(NewBitmap { head, file: Some(file) })
    }
}
