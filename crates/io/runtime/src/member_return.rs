//! Brings back members that were away, once they answer.
//!
//! A member is away when the array has put it out because it did not answer
//! ([`braid_engine::array`]). Its device stays open. Once all its operations have ended, the device
//! is flushed, and its superblock is read to learn which content it holds. Then the device is a
//! member again, under a new name, so that no answer to an old request counts for a new one.
//! ```text
//!   away ──all operations have ended──▶ well? ──yes──▶ a new name ──▶ recovered where it missed
//!                                         └──no───▶ it has failed, as any other
//! ```

use std::io;

use braid_engine::array::{Array, MemberId, SpareSetup};
use braid_engine::cause::Cause;
use braid_engine::open::{bad_log_sectors, can_tear};
use braid_ondisk::Superblock;

use crate::core::Core;
use crate::events::{ArrayEvent, Machine, MemberChange};
use crate::executor::submitter::Submitter;
use crate::log;
use crate::members::operation::Operation;
use crate::members::rejoining::Next;
use crate::operator::AddError;
use crate::sync::{Arc, thread};

/// Why a member that answers again does not return to the array.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReturnError {
    #[error(transparent)]
    NotAdded(#[from] AddError),
    #[error("no thread could be started for it")]
    Thread(#[source] io::Error),
}

impl Core {
    /// Checks a member that has left and has no operation in flight.
    pub(crate) fn look_at_left(self: &Arc<Self>, id: MemberId) {
        let next = match self.members.load().get(id) {
            Some(member) => member.rejoining.look(),
            None => return,
        };
        match next {
            Next::Wait => {}
            Next::Ask => self.ask_to_rejoin(id),
            Next::Returns(found) => self.begin_return(id, found),
            Next::Fails(cause) => {
                self.array.push(ArrayEvent::StaysAway(cause));
                self.drive(Machine::Array);
            }
        }
    }

    /// Flushes a member and reads its superblock, if the member is away and may return now.
    fn ask_to_rejoin(self: &Arc<Self>, id: MemberId) {
        let is_away = |array: &Array| array.away().iter().any(|(member, _)| *member == id);
        let (is_away, may_return) = self.look(|array| (is_away(array), array.may_return(id)));
        let members = self.members.load();
        let Some(member) = members.get(id) else { return };
        if !is_away {
            return member.rejoining.is_over();
        }
        if may_return {
            member.rejoining.begins();
            let submitter = Submitter::new(self, member);
            submitter.submit(Operation::Rejoin);
            let notified = submitter.into_notified();
            drop(members);
            self.drive_notified(notified, None);
        }
    }

    /// Starts a thread for the return, since the return waits for superblocks.
    fn begin_return(self: &Arc<Self>, id: MemberId, found: Box<Superblock>) {
        let core = Arc::clone(self);
        let bring_back = move || {
            if let Err(error) = core.bring_back(id, &found) {
                log::stays_away(id, &error);
                core.array.push(ArrayEvent::StaysAway(Cause::vanished(id)));
                core.drive(Machine::Array);
            }
        };
        let started = thread::Builder::new().name("braid-return".into()).spawn(bring_back);
        let mut threads = self.end.threads.lock().expect("starting does not panic");
        #[cfg(not(any(loom, shuttle)))]
        threads.retain(|thread| !thread.is_finished());
        match started {
            Ok(thread) => threads.push(thread),
            Err(error) => log::stays_away(id, &error),
        }
    }

    fn bring_back(self: &Arc<Self>, id: MemberId, found: &Superblock) -> Result<(), ReturnError> {
        let _one = self.membership.lock().expect("changing members does not panic");
        let returns = match self.members.load().get(id) {
            // The operator has changed this member meanwhile.
            Some(_) if !self.look(|array| array.may_return(id)) => return Ok(()),
            Some(member) => member.returns_lately(),
            None => return Ok(()),
        };
        let device = self.take_out(id);
        let (mut superblock, number) = self.joining(device.size_bytes(), found.device.uuid)?;
        let is_write_mostly = found.device.flags.write_mostly;
        superblock.set_write_mostly(superblock.device.number, is_write_mostly);
        let newcomer = SpareSetup {
            id: self.members.load().next_id(),
            device_number: number,
            bad_log_sectors: bad_log_sectors(&superblock),
            tears: can_tear(&superblock),
            returns: self.returns(found),
            parity_log: self.parity_log_of(&superblock).map_err(AddError::from)?,
        };
        let registered = self.register_member(newcomer.id, (device, superblock), None);
        registered.map_err(ReturnError::Thread)?;
        if let Some(member) = self.members.load().get(newcomer.id) {
            member.rejoining.has_come_back(returns);
        }
        self.schedule_again();
        let returned = self.change_members(MemberChange::Return(id, newcomer));
        returned.inspect_err(|_| self.close_member(newcomer.id)).map_err(AddError::from)?;
        if is_write_mostly {
            self.tell_write_mostly(newcomer.id, number);
        }
        Ok(())
    }

    /// Makes a returned member write-mostly again: all superblocks record it.
    fn tell_write_mostly(self: &Arc<Self>, id: MemberId, number: u16) {
        let members = self.members.load();
        members.iter().for_each(|member| member.set_write_mostly(number.into(), true));
        drop(members);
        // If the array refuses the write-mostly mark, the member has returned all the same.
        let _as_before = self.change_members(MemberChange::WriteMostly(id, true));
    }
}
