//! A person has a write-intent bitmap made, made anew of another size, or given up, while the array runs.
//!
//! Where it stands: above the volume, beside [`crate::operator`]. Whether it may be is the array's to say
//! ([`braid_engine::array::BitmapRefusal`]); how large it is follows from the room that members have, which is looked at here. No
//! member comes meanwhile, so that every one has room [check: a_bitmap_comes_and_goes_on_a_volume_that_is_written].

use std::path::PathBuf;
use std::time::{Duration, Instant};

use braid_assembly::resync_sectors;
use braid_engine::array::{Array, BitmapRefusal};
use braid_ondisk::{BitmapPlace, BitmapSuperblock};

use crate::core::Core;
use crate::events::{ArrayEvent, Machine};
use crate::log;
use crate::sync::Arc;
use crate::sync::mpsc::channel;
use crate::volume::Volume;

/// How long superblocks are waited for: within the time that whoever asked for it waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// Why a bitmap is not as it was to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BitmapError {
    /// The array says so.
    #[error(transparent)]
    Refused(#[from] BitmapRefusal),
    /// A member has no room for it.
    #[error("{} has no room for it", member.display())]
    NoRoom {
        /// The one that has least.
        member: PathBuf,
        /// Bytes that a bit would have to stand for; none if none would do.
        fitting_bytes: Option<u32>,
    },
}

impl Volume {
    /// A bitmap that every member has room for, spares too: a bit stands for `asked_bytes`, or for what mdadm would choose.
    ///
    /// # Errors
    /// A member has no room for it.
    pub fn plan_bitmap(&self, asked_bytes: Option<u32>) -> Result<BitmapSuperblock, BitmapError> {
        let sectors = resync_sectors(self.geometry());
        // A journal that is there is given up before.
        let journal = self.journal().map(|journal| journal.member);
        let looks = self.look_at_members().into_iter();
        let looks = looks.filter(|look| look.is_in && Some(look.id) != journal);
        // It goes where one goes that superblocks do not name yet, also in the place of one that they name elsewhere.
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

    /// Sectors that the bitmap takes on each member; 0 if there is none.
    #[must_use]
    pub fn bitmap_sectors(&self) -> u64 {
        self.core().look(Array::bitmap_sectors)
    }

    /// Whether a bitmap may be made now, instead of the one that there is if there is one; or that be given up.
    ///
    /// # Errors
    /// The array needs what it has, or takes no changes.
    pub fn may_change_bitmap(&self, is_to_be_there: bool) -> Result<(), BitmapError> {
        let may = |array: &Array| array.may_change_bitmap(is_to_be_there);
        Ok(self.core().look(may)?)
    }

    /// Has a bitmap made ([`Self::plan_bitmap`]), instead of the one that there is if there is one; or that given up. Returns when
    /// superblocks say so. Clients go on meanwhile.
    ///
    /// # Errors
    /// It may not be, and nothing was changed; or superblocks do not say so yet ([`BitmapRefusal::Busy`]), and will if members answer.
    pub fn change_bitmap(&self, wanted: Option<BitmapSuperblock>) -> Result<(), BitmapError> {
        let core = self.core();
        let _one = core.membership.lock().expect("changing members does not panic");
        let asked_bytes = wanted.map(|bitmap| bitmap.chunk_bytes);
        // A member may have come since it was planned.
        let planned = asked_bytes.map(|_| self.plan_bitmap(asked_bytes)).transpose()?;
        let (answer, answered) = channel();
        core.array.push(ArrayEvent::Bitmap(planned, answer));
        core.drive(Machine::Array);
        answered.recv().expect("the array answers")?;
        log::tuned("bitmap", &asked_bytes);
        let until = Instant::now() + PATIENCE;
        while !core.look(Array::is_bitmap_settled) {
            if Instant::now() > until {
                self.may_change_bitmap(wanted.is_some())?;
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }
}

impl Core {
    pub(crate) fn look<R>(self: &Arc<Self>, look: impl FnOnce(&Array) -> R) -> R {
        self.array.inspect(look, || self.drive(Machine::Array))
    }
}
