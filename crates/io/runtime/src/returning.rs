//! Members that were away come back by themselves.
//!
//! A member is away when the array has put it out because it did not answer
//! ([`braid_engine::array`]). Its device stays open. Once everything has ended that it was asked,
//! it is flushed and its superblock is read, which says what it holds; then it is a member again,
//! under a new name: no answer to an old request can be taken for one to a new.
//!
//! ```text
//!   away ──all that was asked has ended──▶ well? ──yes──▶ a new name ──▶ recovered where it missed
//!                                            └──no───▶ it has failed, as any other
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
use crate::members::handle::Place;
use crate::members::operation::Operation;
use crate::members::rejoining::Next;
use crate::operator::AddError;
use crate::sync::{Arc, thread};

/// Why a member that has answered does not come back.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReturnError {
    #[error(transparent)]
    NotAdded(#[from] AddError),
    #[error("no thread could be started for it")]
    Thread(#[source] io::Error),
}

impl Core {
    /// Looks after a member that has left, and that has nothing more to do.
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

    /// Has a member flushed and read, if it is away and may come back now.
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
            let heard = submitter.into_heard();
            drop(members);
            self.drive_heard(heard, None);
        }
    }

    /// By a thread of its own: superblocks are waited for.
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
            // A person was quicker.
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
        let place = Place { slot: None };
        let registered = self.register_member(newcomer.id, (device, superblock), place);
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

    /// A member that is back is read only where no other copy is, as before: all superblocks say so.
    fn tell_write_mostly(self: &Arc<Self>, id: MemberId, number: u16) {
        let members = self.members.load();
        members.iter().for_each(|member| member.set_write_mostly(number.into(), true));
        drop(members);
        // It has come back all the same if it is refused.
        let _as_before = self.change_members(MemberChange::WriteMostly(id, true));
    }
}
