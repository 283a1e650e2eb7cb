//! What a person does to the members of a running array: one comes, one fails, one goes.
//!
//! Where it stands: above the volume. The array says whether it may be ([`braid_engine::array::MemberRefusal`]); devices are opened and
//! closed below ([`crate::membership`]).

use std::io;
use std::time::Duration;

use braid_engine::array::{Array, MemberId, MemberRefusal};
use braid_engine::open::can_tear;
use braid_geometry::Slot;
use braid_member::Member;
use braid_ondisk::JoinError;

use crate::core::Core;
use crate::events::{ArrayEvent, Machine, MemberChange};
use crate::members::handle::Place;
use crate::sync::Arc;
use crate::sync::mpsc::channel;
use crate::volume::Volume;

/// How long a member that is taken out is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a device did not become a member.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    /// What the array says does not fit the device.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The array takes no member.
    #[error(transparent)]
    Refused(#[from] MemberRefusal),
    /// No member is left whose superblock says what the array is.
    #[error("no member is left to tell what the array is")]
    Alone,
    /// Threads for it could not be started.
    #[error("no thread could be started for it")]
    Thread(#[source] io::Error),
}

/// Why a member was not taken away.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// The array needs it, or has none of this name.
    #[error(transparent)]
    Refused(#[from] MemberRefusal),
    /// It is no part of the array any more, and has not answered all that it was asked. To be tried again.
    #[error("it has not answered all that it was asked")]
    Busy,
}

impl Volume {
    /// A device becomes a member: it waits as a spare, and takes a slot that has none, `wanted` if that is one; then it is
    /// recovered. Whatever it held is lost when the array first writes to it. `uuid` is its identity from now on.
    ///
    /// # Errors
    /// It does not fit, or the array takes none. Nothing was written to it then.
    pub fn add_member(
        &self,
        device: Box<dyn Member>,
        uuid: [u8; 16],
        wanted: Option<u16>,
    ) -> Result<MemberId, AddError> {
        let core = self.core();
        let _one = core.membership.lock().expect("changing members does not panic");
        let number = core.array.inspect(Array::free_device_number, || core.drive(Machine::Array));
        let template = {
            let members = core.members.load();
            let view = self.view();
            let mut in_slots = view.slots.iter().flatten();
            in_slots.find_map(|member| members.get(member.id)).map(|member| member.superblock())
        };
        let template = template.ok_or(AddError::Alone)?;
        let superblock = template.joining(device.size_bytes(), number, uuid)?;
        let tears = can_tear(&superblock);
        let id = core.members.load().next_id();
        core.register_member(id, (device, superblock), Place { slot: None })
            .map_err(AddError::Thread)?;
        core.schedule_again();
        let change = MemberChange::Add(id, number, wanted.map(Slot), tears);
        core.change_members(change).inspect_err(|_| core.close_member(id))?;
        Ok(id)
    }

    /// A member fails because a person says so.
    ///
    /// # Errors
    /// There is none of this name, or the array cannot do without it. Nothing was changed then.
    pub fn fail_member(&self, id: MemberId) -> Result<(), MemberRefusal> {
        self.core().change_members(MemberChange::Fail(id))
    }

    /// A member that is out, or waits as a spare, goes: its device is closed.
    ///
    /// # Errors
    /// It has a slot; or it has not answered all that it was asked, and is closed when this is called again.
    pub fn remove_member(&self, id: MemberId) -> Result<(), RemoveError> {
        let core = self.core();
        let _one = core.membership.lock().expect("changing members does not panic");
        if core.members.load().get(id).is_none() {
            return Err(MemberRefusal::NoMember.into());
        }
        core.change_members(MemberChange::Remove(id))?;
        if !core.drain_member(id, PATIENCE) {
            return Err(RemoveError::Busy);
        }
        core.close_member(id);
        Ok(())
    }

    /// Members that wait without a slot.
    #[must_use]
    pub fn spares(&self) -> Vec<MemberId> {
        let core = self.core();
        core.array.inspect(Array::spares, || core.drive(Machine::Array))
    }

    /// Every member whose device is open, in the array or out of it.
    #[must_use]
    pub fn members(&self) -> Vec<MemberId> {
        self.core().members.load().iter().map(|member| member.id()).collect()
    }
}

impl Core {
    /// Asks the array, and waits for what it says.
    fn change_members(self: &Arc<Self>, change: MemberChange) -> Result<(), MemberRefusal> {
        let (answer, answered) = channel();
        self.array.push(ArrayEvent::Member(change, answer));
        self.drive(Machine::Array);
        answered.recv().expect("the array answers")
    }
}
