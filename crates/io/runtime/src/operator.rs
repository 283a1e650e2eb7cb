//! Changes of the operator to the members of a running array: add, fail, replace, remove.
//!
//! Place in the flow: above the volume. The array decides whether a change is allowed
//! ([`braid_engine::array::MemberRefusal`]); the layer below opens and closes devices
//! ([`crate::membership`]).

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use braid_engine::array::{Array, MemberId, MemberRefusal, ReturningMember, SpareSetup, Wish};
use braid_engine::open::{bad_log_sectors, can_tear, returns};
use braid_geometry::Slot;
use braid_member::{IdentityKey, LinkLook, Member};
use braid_ondisk::{JoinError, LogPlace, Superblock};

use crate::core::Core;
use crate::events::{ArrayEvent, Machine, MemberChange};
use crate::members::handle::MemberHandle;
use crate::sync::Arc;
use crate::sync::mpsc::channel;
use crate::volume::Volume;

/// How long a call waits for a drained member, or for superblocks. The caller's own timeout must be
/// longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// A member whose device is open, as the operator sees it.
#[derive(Clone, Debug)]
pub struct MemberLook {
    /// The member's name.
    pub id: MemberId,
    /// The member's path, as the caller gave it.
    pub path: PathBuf,
    /// Identity of the device, whatever the path leads to by now.
    pub key: IdentityKey,
    /// Whether the member is in the array, with or without a slot. Otherwise the member is out, and
    /// only its device is open.
    pub is_in: bool,
    /// The member's superblock, as last written or being written.
    pub superblock: Superblock,
    /// The connection to a member on another host; `None` for a member of this host.
    pub link: Option<LinkLook>,
    /// The newest time, by [`braid_member::boot_ns`], before which the member served this process's
    /// claim as its owner.
    pub claim_seen_ns: Option<u64>,
}

/// A device that joins as a member.
#[derive(Debug, Default)]
pub struct Newcomer<'a> {
    /// The UUID that the device has from now on.
    pub uuid: [u8; 16],
    /// The slot that the device shall take.
    pub wanted: Option<Wish>,
    /// The newest superblock of this array on the device. If the bitmap covers the writes that the
    /// device missed, the device keeps the rest of its content.
    pub found: Option<&'a Superblock>,
    /// Whether the device is read only if no other copy exists.
    pub write_mostly: bool,
}

/// Why a device did not become a member.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    /// The array does not fit the device.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The array takes no member now.
    #[error(transparent)]
    Refused(#[from] MemberRefusal),
    /// The array has no member left whose superblock describes the array.
    #[error("no member is left to tell what the array is")]
    Alone,
    /// Threads for the device could not be started.
    #[error("no thread could be started for it")]
    Thread(#[source] io::Error),
}

/// Why a member was not removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// The array needs the member, or has no member of this name.
    #[error(transparent)]
    Refused(#[from] MemberRefusal),
    /// The member has left the array, and still has operations in flight. Try again later.
    #[error("it has not answered all that it was asked")]
    Busy,
}

impl Volume {
    /// Adds a device as a member. The device waits as a spare, takes a slot without a member
    /// (`wanted` if that slot is free), and is recovered. The device's old content is lost when the
    /// array first writes to it. `named` receives the device's name before the array does, so that
    /// no notice names an unknown member. Returns when superblocks name the device, if all members
    /// answer soon.
    ///
    /// # Errors
    /// The device does not fit, or the array takes none. Then nothing was written to it.
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
        core.register_member(id, (device, superblock), None).map_err(AddError::Thread)?;
        core.schedule_again();
        named(id);
        let newcomer =
            SpareSetup { id, device_number: number, bad_log_sectors, tears, returns, parity_log };
        let change = MemberChange::Add(newcomer, wanted);
        core.change_members(change).inspect_err(|_| core.close_member(id))?;
        if write_mostly {
            self.set_write_mostly(id, true)?;
        }
        // A member that does not answer now gets its superblock later.
        let _in_time = core.comes_to(Array::tells_all);
        Ok(id)
    }

    /// Whether a device of `device_bytes` bytes can become a member now.
    ///
    /// # Errors
    /// The device does not fit.
    pub fn may_add_member(&self, device_bytes: u64) -> Result<(), AddError> {
        let core = self.core();
        let (superblock, _) = core.joining(device_bytes, [0; 16])?;
        core.parity_log_of(&superblock)?;
        Ok(())
    }

    /// Sectors that a former member would keep, without recovery, if it returned now. `found` is
    /// the newest superblock on its device.
    #[must_use]
    pub fn would_keep(&self, found: &Superblock) -> u64 {
        let core = self.core();
        let look = |returns| {
            core.array.inspect(|array| array.would_keep(returns), || core.drive(Machine::Array))
        };
        core.returns(found).map_or(0, look)
    }

    /// Whether the operator can fail a member now.
    ///
    /// # Errors
    /// No member has this name, or the array needs it.
    pub fn may_fail_member(&self, id: MemberId) -> Result<(), MemberRefusal> {
        let core = self.core();
        core.array.inspect(|array| array.may_fail(id), || core.drive(Machine::Array))
    }

    /// Fails a member at the operator's request.
    ///
    /// # Errors
    /// No member has this name, or the array needs it. Then nothing changed.
    pub fn fail_member(&self, id: MemberId) -> Result<(), MemberRefusal> {
        self.core().change_members(MemberChange::Fail(id))
    }

    /// The slot of a member, if the member can be replaced now.
    ///
    /// # Errors
    /// The member has no slot, lacks content, or is being replaced already.
    pub fn may_replace_member(&self, id: MemberId) -> Result<Slot, MemberRefusal> {
        let core = self.core();
        core.array.inspect(|array| array.may_replace(id), || core.drive(Machine::Array))
    }

    /// Starts to replace a member by a spare; the member serves until the spare has its content.
    ///
    /// # Errors
    /// The member cannot be replaced, or `spare` is no spare. Then nothing changed.
    pub fn replace_member(&self, id: MemberId, spare: MemberId) -> Result<(), MemberRefusal> {
        self.core().change_members(MemberChange::Replace(id, spare))
    }

    /// Makes a member write-mostly (read only if no other copy exists), or normal again. Returns
    /// when superblocks record the change, if all members answer soon.
    ///
    /// # Errors
    /// No member has this name.
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

    /// The spare that replaces the member in `slot`, or waits to replace it.
    #[must_use]
    pub fn replacement_of(&self, slot: Slot) -> Option<MemberId> {
        let core = self.core();
        core.array.inspect(|array| array.replacement_of(slot), || core.drive(Machine::Array))
    }

    /// Removes a member that is out, or a spare, and closes its device.
    ///
    /// # Errors
    /// The member has a slot, or operations on the member are in flight; a later call closes a
    /// member without a slot.
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

    /// Removes a spare as [`Self::remove_member`] does, and the array's superblock from its device.
    /// An array without redundancy has no spares: md does not start such an array with a spare.
    ///
    /// # Errors
    /// As for [`Self::remove_member`]. Then the superblock stays.
    pub fn let_go_spare(&self, id: MemberId) -> Result<(), RemoveError> {
        let core = self.core();
        let _one = core.membership.lock().expect("changing members does not panic");
        let members = core.members.load();
        let superblock = members.get(id).ok_or(MemberRefusal::NoMember)?.superblock();
        drop(members);
        core.change_members(MemberChange::Remove(id))?;
        if !core.drain_member(id, PATIENCE) {
            return Err(RemoveError::Busy);
        }
        let device = core.take_out(id);
        let zeroes = vec![0; superblock.to_bytes().len()];
        // If the zeroes cannot be written, the next start finds the spare and removes it again.
        let _found_again = device.write_at(&zeroes, superblock.offset_bytes(), true);
        Ok(())
    }

    /// Spares: members that wait without a slot.
    #[must_use]
    pub fn spares(&self) -> Vec<MemberId> {
        let core = self.core();
        core.array.inspect(Array::spares, || core.drive(Machine::Array))
    }

    /// Members of the array that have no slot in the published view: spares, and members whose slot
    /// no shard knows yet. Each comes with the slot of the member to replace, if any.
    #[must_use]
    pub fn waiting(&self) -> Vec<(MemberId, Option<Slot>)> {
        let core = self.core();
        let look = |array: &Array| -> Vec<(MemberId, Option<Slot>)> {
            // The journal's device has no slot either, and does not wait for one.
            let journal = array.journal().map(|journal| journal.member);
            let members = array.members().into_iter().filter(|id| Some(*id) != journal);
            members.map(|id| (id, array.slot_to_replace(id))).collect()
        };
        let members = core.array.inspect(look, || core.drive(Machine::Array));
        // The view is read last, so that it includes a member that got its slot meanwhile.
        let view = self.view();
        members.into_iter().filter(|(id, _)| !view.is_used(*id)).collect()
    }

    /// Every member whose device is open, in the array or out of it, by name.
    #[must_use]
    pub fn look_at_members(&self) -> Vec<MemberLook> {
        let core = self.core();
        let members = core.array.inspect(Array::members, || core.drive(Machine::Array));
        let view = self.view();
        // A failed member is out once the survivors' superblocks record it.
        let is_in = |id: MemberId| members.contains(&id) || view.is_used(id);
        let look = |member: &Arc<MemberHandle>| MemberLook {
            id: member.id(),
            path: member.path().to_path_buf(),
            key: member.device.identity().key,
            is_in: is_in(member.id()),
            superblock: member.superblock(),
            link: member.device.link(),
            claim_seen_ns: member.device.claim_seen_ns(),
        };
        // A bitmap file is in the table, but is no member of the array.
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
    /// The place of a parity log on a device that joins, if members keep such logs.
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

    /// The content of the array that a former member still holds.
    pub(crate) fn returns(self: &Arc<Self>, found: &Superblock) -> Option<ReturningMember> {
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

    /// The superblock of a device that joins, and the device's place in the role table.
    pub(crate) fn joining(
        self: &Arc<Self>,
        device_bytes: u64,
        uuid: [u8; 16],
    ) -> Result<(Superblock, u16), AddError> {
        let number = self.look(Array::free_device_number);
        let template = self.template().ok_or(AddError::Alone)?;
        Ok((template.joining(device_bytes, number, uuid)?, number))
    }

    /// A superblock of the array from which a new member's superblock can be made.
    pub(crate) fn template(self: &Arc<Self>) -> Option<Superblock> {
        let members = self.members.load();
        let view = Arc::clone(&self.view.lock().expect("looking does not panic"));
        let mut in_slots = view.slots.iter().flatten();
        in_slots.find_map(|member| members.get(member.id)).map(|member| member.superblock())
    }

    /// Sends a change of members to the array, and waits for the answer.
    pub(crate) fn change_members(
        self: &Arc<Self>,
        change: MemberChange,
    ) -> Result<(), MemberRefusal> {
        let (answer, answered) = channel();
        self.array.push(ArrayEvent::Member(change, answer));
        self.drive(Machine::Array);
        answered.recv().expect("the array answers")
    }

    /// Calls `look` with the array machine.
    pub(crate) fn look<R>(self: &Arc<Self>, look: impl FnOnce(&Array) -> R) -> R {
        self.array.inspect(look, || self.drive(Machine::Array))
    }

    /// Waits until `is_so` holds; returns false if it does not hold within [`PATIENCE`].
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
