//! What a person does to the members of a running array: one comes, one fails, one goes.
//!
//! Where it stands: above the volume. The array says whether it may be ([`braid_engine::array::MemberRefusal`]); devices are opened and
//! closed below ([`crate::membership`]).

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use braid_engine::array::{Array, MemberId, MemberRefusal, Returns, SpareSetup, Wish};
use braid_engine::open::{bad_log_sectors, can_tear, returns};
use braid_geometry::Slot;
use braid_member::{IdentityKey, Member};
use braid_ondisk::{JoinError, LogPlace, Superblock};

use crate::core::Core;
use crate::events::{ArrayEvent, Machine, MemberChange};
use crate::members::handle::{MemberHandle, Place};
use crate::sync::Arc;
use crate::sync::mpsc::channel;
use crate::volume::Volume;

/// How long a member that is taken out is waited for, or superblocks: within the time that whoever asked for it waits for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// A member whose device is open, as it is seen from outside.
#[derive(Clone, Debug)]
pub struct MemberLook {
    /// Its name.
    pub id: MemberId,
    /// Its path, as it was given.
    pub path: PathBuf,
    /// What it is, whatever its path leads to by now.
    pub key: IdentityKey,
    /// It is in the array: it has a slot, or waits for one. Otherwise it is out, and only held open.
    pub is_in: bool,
    /// Its superblock, as it was written last or is being written.
    pub superblock: Superblock,
}

/// A device that is to become a member.
#[derive(Debug, Default)]
pub struct Newcomer<'a> {
    /// Its identity from now on.
    pub uuid: [u8; 16],
    /// The slot that it is to have.
    pub wanted: Option<Wish>,
    /// The newest superblock of this array on it. If the bitmap tells all that it missed, it keeps the rest.
    pub found: Option<&'a Superblock>,
    /// It is read only where no other copy is.
    pub write_mostly: bool,
}

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
    /// recovered. Whatever it held is lost when the array first writes to it. `named` hears its name before the array knows it: no
    /// notice names a member that nobody could have heard of. Returns when superblocks name it, if all members answer soon.
    ///
    /// # Errors
    /// It does not fit, or the array takes none. Nothing was written to it then.
    pub fn add_member(
        &self,
        device: Box<dyn Member>,
        newcomer: &Newcomer<'_>,
        named: impl FnOnce(MemberId),
    ) -> Result<MemberId, AddError> {
        let core = self.core();
        let _one = core.membership.lock().expect("changing members does not panic");
        let Newcomer { uuid, wanted, found, write_mostly } = *newcomer;
        let (mut superblock, number) = core.joining(device.size_bytes(), uuid)?;
        superblock.set_write_mostly(superblock.device.number, write_mostly);
        let bad_log_sectors = bad_log_sectors(&superblock);
        let (tears, parity_log) = (can_tear(&superblock), core.parity_log_of(&superblock)?);
        let returns = found.and_then(|found| core.returns(found));
        let id = core.members.load().next_id();
        core.register_member(id, (device, superblock), Place { slot: None })
            .map_err(AddError::Thread)?;
        core.schedule_again();
        named(id);
        let newcomer =
            SpareSetup { id, device_number: number, bad_log_sectors, tears, returns, parity_log };
        let change = MemberChange::Add(newcomer, wanted);
        core.change_members(change).inspect_err(|_| core.close_member(id))?;
        if write_mostly {
            self.set_write_mostly(id, true)?;
        }
        // If a member does not answer for now, it is told later.
        let _in_time = core.comes_to(Array::tells_all);
        Ok(id)
    }

    /// Whether a device of `device_bytes` bytes could become a member now.
    ///
    /// # Errors
    /// It would not fit.
    pub fn may_add_member(&self, device_bytes: u64) -> Result<(), AddError> {
        let core = self.core();
        let (superblock, _) = core.joining(device_bytes, [0; 16])?;
        core.parity_log_of(&superblock)?;
        Ok(())
    }

    /// Sectors of what a device holds that was a member of this array before, and that would not be recovered if it came back now;
    /// `found` is the newest superblock on it.
    #[must_use]
    pub fn would_keep(&self, found: &Superblock) -> u64 {
        let core = self.core();
        let look = |returns| {
            core.array.inspect(|array| array.would_keep(returns), || core.drive(Machine::Array))
        };
        core.returns(found).map_or(0, look)
    }

    /// Whether a member may be failed by a person now.
    ///
    /// # Errors
    /// There is none of this name, or the array cannot do without it.
    pub fn may_fail_member(&self, id: MemberId) -> Result<(), MemberRefusal> {
        let core = self.core();
        core.array.inspect(|array| array.may_fail(id), || core.drive(Machine::Array))
    }

    /// A member fails because a person says so.
    ///
    /// # Errors
    /// There is none of this name, or the array cannot do without it. Nothing was changed then.
    pub fn fail_member(&self, id: MemberId) -> Result<(), MemberRefusal> {
        self.core().change_members(MemberChange::Fail(id))
    }

    /// Whether a member may be replaced now: its slot.
    ///
    /// # Errors
    /// It has none, does not hold all that it should, or is being replaced already.
    pub fn may_replace_member(&self, id: MemberId) -> Result<Slot, MemberRefusal> {
        let core = self.core();
        core.array.inspect(|array| array.may_replace(id), || core.drive(Machine::Array))
    }

    /// A spare is to take the place of a member that serves until then.
    ///
    /// # Errors
    /// The member cannot be replaced, or the other is no spare. Nothing was changed then.
    pub fn replace_member(&self, id: MemberId, spare: MemberId) -> Result<(), MemberRefusal> {
        self.core().change_members(MemberChange::Replace(id, spare))
    }

    /// A member is read only where no other copy is, or as the others are from now on. Returns when superblocks say so, if all members
    /// answer soon.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn set_write_mostly(&self, id: MemberId, is_it: bool) -> Result<(), MemberRefusal> {
        let core = self.core();
        let members = core.members.load();
        let own = members.get(id).ok_or(MemberRefusal::NoMember)?;
        let number = own.superblock().device.number;
        let may = |array: &Array| array.may_set_write_mostly(id);
        core.array.inspect(may, || core.drive(Machine::Array))?;
        members.iter().for_each(|member| member.set_write_mostly(number, is_it));
        core.change_members(MemberChange::WriteMostly(id, is_it))?;
        let _in_time = core.comes_to(Array::tells_all);
        Ok(())
    }

    /// The member that is to take the place of the one in `slot`, or is wanted to.
    #[must_use]
    pub fn replacement_of(&self, slot: Slot) -> Option<MemberId> {
        let core = self.core();
        core.array.inspect(|array| array.replacement_of(slot), || core.drive(Machine::Array))
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

    /// Members that are in the array and that the published view does not have in a slot: spares, and those whose slot no shard
    /// knows yet. With each, the slot whose member it is to replace, if that is what it waits for.
    #[must_use]
    pub fn waiting(&self) -> Vec<(MemberId, Option<Slot>)> {
        let core = self.core();
        let look = |array: &Array| -> Vec<(MemberId, Option<Slot>)> {
            // The journal's device waits for no slot.
            let journal = array.journal().map(|journal| journal.member);
            let members = array.members().into_iter().filter(|id| Some(*id) != journal);
            members.map(|id| (id, array.slot_to_replace(id))).collect()
        };
        let members = core.array.inspect(look, || core.drive(Machine::Array));
        // After that: one that got its slot in between is in the view.
        let view = self.view();
        members.into_iter().filter(|(id, _)| !view.is_used(*id)).collect()
    }

    /// Every member whose device is open, in the array or out of it, by name.
    #[must_use]
    pub fn look_at_members(&self) -> Vec<MemberLook> {
        let core = self.core();
        let members = core.array.inspect(Array::members, || core.drive(Machine::Array));
        let view = self.view();
        // One that failed is out once the survivors' superblocks say so.
        let is_in = |id: MemberId| members.contains(&id) || view.is_used(id);
        let look = |member: &Arc<MemberHandle>| MemberLook {
            id: member.id(),
            path: member.path().to_path_buf(),
            key: member.device.identity().key,
            is_in: is_in(member.id()),
            superblock: member.superblock(),
        };
        // A bitmap file is none.
        let members = core.members.load();
        members.iter().filter(|member| !member.is_bitmap_file()).map(look).collect()
    }

    /// Every member whose device is open, in the array or out of it.
    #[must_use]
    pub fn members(&self) -> Vec<MemberId> {
        let members = self.core().members.load();
        members.iter().filter(|member| !member.is_bitmap_file()).map(|member| member.id()).collect()
    }
}

impl Core {
    /// Where a device that comes is to keep a parity log, if members keep such logs.
    pub(crate) fn parity_log_of(
        self: &Arc<Self>,
        superblock: &Superblock,
    ) -> Result<Option<LogPlace>, JoinError> {
        let own = self.look(Array::own_log);
        let Some((place, bitmap_sectors)) = own else {
            return Ok(superblock.intent.ppl.map(LogPlace::Ppl));
        };
        let needed_sectors = u64::from(place.size_sectors);
        let room = superblock.own_log_place(bitmap_sectors);
        let room_sectors = room.map_or(0, |room| u64::from(room.size_sectors));
        if room_sectors < needed_sectors {
            return Err(JoinError::ParityLog { room_sectors, needed_sectors });
        }
        Ok(Some(LogPlace::Own(place)))
    }

    /// What a device that was a member before holds of the array.
    pub(crate) fn returns(self: &Arc<Self>, found: &Superblock) -> Option<Returns> {
        let members = self.members.load();
        let view = Arc::clone(&self.view.lock().expect("looking does not panic"));
        let seated = (0u16..).zip(&view.slots).filter_map(|(slot, member)| {
            Some((Slot(slot), members.get(member.as_ref()?.id)?.superblock()))
        });
        let seated: Vec<(Slot, Superblock)> = seated.collect();
        let newest = &seated.first()?.1;
        let number = |superblock: &Superblock| u16::try_from(superblock.device.number).ok();
        let numbers = seated.iter().map(|(slot, superblock)| Some((*slot, number(superblock)?)));
        returns(found, newest, numbers.collect::<Option<Vec<_>>>()?)
    }

    /// The superblock of a device that joins, and its place in the role table.
    pub(crate) fn joining(
        self: &Arc<Self>,
        device_bytes: u64,
        uuid: [u8; 16],
    ) -> Result<(Superblock, u16), AddError> {
        let number = self.look(Array::free_device_number);
        let template = self.template().ok_or(AddError::Alone)?;
        Ok((template.joining(device_bytes, number, uuid)?, number))
    }

    /// A superblock that says what the array is.
    pub(crate) fn template(self: &Arc<Self>) -> Option<Superblock> {
        let members = self.members.load();
        let view = Arc::clone(&self.view.lock().expect("looking does not panic"));
        let mut in_slots = view.slots.iter().flatten();
        in_slots.find_map(|member| members.get(member.id)).map(|member| member.superblock())
    }

    /// Asks the array, and waits for what it says.
    pub(crate) fn change_members(
        self: &Arc<Self>,
        change: MemberChange,
    ) -> Result<(), MemberRefusal> {
        let (answer, answered) = channel();
        self.array.push(ArrayEvent::Member(change, answer));
        self.drive(Machine::Array);
        answered.recv().expect("the array answers")
    }

    /// What the array says now.
    pub(crate) fn look<R>(self: &Arc<Self>, look: impl FnOnce(&Array) -> R) -> R {
        self.array.inspect(look, || self.drive(Machine::Array))
    }

    /// Waits until the array says so. False if it does not in time.
    pub(crate) fn comes_to(self: &Arc<Self>, is_so: impl Fn(&Array) -> bool) -> bool {
        let until = Instant::now() + PATIENCE;
        while !self.look(&is_so) {
            if Instant::now() > until {
                return false;
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        true
    }
}
