//! The operator adds a device as write journal while the array runs. [`Volume::change_logs`] drops
//! the journal, as it drops parity logs. The device is then removed as a member that is out.
//!
//! Place in the flow: above the volume, next to [`mod@crate::parity_logs`]. The array decides
//! whether the change is allowed ([`LogRefusal`]). The size of the journal follows from the device
//! [check: a_journal_comes_and_goes_on_a_volume_that_is_written].

use std::io;

use braid_assembly::journal_sectors_min;
use braid_engine::array::{Array, JournalSetup, LogRefusal, MemberId};
use braid_geometry::SECTOR_BYTES;
use braid_member::Member;
use braid_ondisk::{JoinError, JournalArea, Superblock};

use crate::events::{ArrayEvent, Machine};
use crate::operator::PATIENCE;
use crate::sync::mpsc::channel;
use crate::volume::Volume;

/// Why a device did not become the journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The array does not fit the device.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The array refused the change.
    #[error(transparent)]
    Refused(#[from] LogRefusal),
    /// A batch of the array would not fit into the journal.
    #[error("a journal takes at least {needed_bytes} bytes of a device")]
    TooSmall {
        /// Bytes that the device needs.
        needed_bytes: u64,
    },
    /// Parts of the array are smaller than the blocks of a journal.
    #[error("a journal has blocks of 4 KiB, and chunks of the array are no whole blocks")]
    Blocks,
    /// The array has no member left whose superblock describes the array.
    #[error("no member is left to tell what the array is")]
    Alone,
    /// Threads for the device could not be started.
    #[error("no thread could be started for it")]
    Thread(#[source] io::Error),
    /// The device failed before another member's superblock named it.
    #[error("it could not be written")]
    Failed,
}

impl Volume {
    /// Whether a device of `device_bytes` bytes can become the array's write journal now.
    ///
    /// # Errors
    /// The array keeps another safeguard, takes no changes, or is degraded; or the device does not
    /// fit.
    pub fn may_add_journal(&self, device_bytes: u64) -> Result<(), JournalError> {
        self.core().look(Array::may_add_journal)?;
        self.journal_on(device_bytes, [0; 16]).map(|_| ())
    }

    /// The superblock of the device, the device's number in the role table, and the area of the
    /// journal.
    fn journal_on(
        &self,
        device_bytes: u64,
        uuid: [u8; 16],
    ) -> Result<(Superblock, u16, JournalArea), JournalError> {
        let core = self.core();
        let min = journal_sectors_min(&self.geometry()).ok_or(JournalError::Blocks)?;
        let number = core.look(Array::free_device_number);
        let template = self.core().template().ok_or(JournalError::Alone)?;
        let superblock = template.joining_as_journal(device_bytes, number, uuid)?;
        let area = superblock.journal_area().filter(|area| area.ring_sectors >= min);
        let area = area.ok_or_else(|| {
            let sectors = min.saturating_add(superblock.device.data_offset_sectors);
            JournalError::TooSmall { needed_bytes: sectors.saturating_mul(SECTOR_BYTES) }
        })?;
        Ok((superblock, number, area))
    }

    /// Makes a device the array's write journal. The journal's first block has a sequence number
    /// after `sequence`, which no stale block on the device has. Returns when superblocks record
    /// the change. Clients wait for a moment meanwhile. `named` receives the member's name before
    /// the array does.
    ///
    /// # Errors
    /// The change is refused, or the device does not fit, and nothing changed. With
    /// [`LogRefusal::Busy`] the change was made, but superblocks record it only once members
    /// answer.
    pub fn add_journal(
        &self,
        device: Box<dyn Member>,
        (uuid, sequence): ([u8; 16], u32),
        named: impl FnOnce(MemberId),
    ) -> Result<MemberId, JournalError> {
        let core = self.core();
        let _one = core.membership.lock().expect("changing members does not panic");
        let (superblock, device_number, area) = self.journal_on(device.size_bytes(), uuid)?;
        let member = core.members.load().next_id();
        core.register_member(member, (device, superblock), None).map_err(JournalError::Thread)?;
        core.schedule_again();
        named(member);
        let (end_sectors, end_sequence, is_used) = (0, u64::from(sequence), false);
        let setup =
            JournalSetup { member, device_number, area, end_sectors, end_sequence, is_used };
        let (answer, answered) = channel();
        core.array.push(ArrayEvent::Journal(setup, answer));
        core.drive(Machine::Array);
        answered.recv().expect("the array answers").inspect_err(|_| core.close_member(member))?;
        if !core.comes_to(Array::are_logs_settled) {
            return Err(LogRefusal::Busy.into());
        }
        if core.look(|array: &Array| array.journal().is_some_and(|look| look.member == member)) {
            return Ok(member);
        }
        core.drain_member(member, PATIENCE);
        core.close_member(member);
        Err(JournalError::Failed)
    }
}
