//! Members that were away come back by themselves.
//!
//! A member is away when the array has put it out because it did not answer
//! ([`braid_engine::array`]). Its device stays open. Once everything has ended that it was asked,
//! it is flushed and its superblock is read, which says what it holds; then it is a member again,
//! under a new name: no answer to an old request can be taken for one to a new.
//!
//! ```text
//!   away ──all that was asked has ended──▶ well? ──yes──▶ a new name ──▶ recovered where it missed
//!                                            └──no───▶ away, until a person adds it
//! ```

use std::io;

use braid_engine::array::{Array, MemberId, SpareSetup};
use braid_engine::open::{bad_log_sectors, can_tear};
use braid_member::{Member, MemberError};
use braid_ondisk::{Snippet, Superblock, probe, probe_ranges};

use crate::core::Core;
use crate::events::MemberChange;
use crate::log;
use crate::members::handle::Place;
use crate::operator::AddError;
use crate::sync::atomic::Ordering;
use crate::sync::{Arc, thread};

/// Why a member that has answered stays away.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReturnError {
    #[error("it does not read or flush well: {0}")]
    Unwell(#[from] MemberError),
    #[error("it has no superblock of this array")]
    NoSuperblock,
    #[error(transparent)]
    NotAdded(#[from] AddError),
    #[error("no thread could be started for it")]
    Thread(#[source] io::Error),
}

impl Core {
    /// A member that has left has nothing more to do: if it is away, it comes back.
    pub(crate) fn bring_back_if_away(self: &Arc<Self>, id: MemberId) {
        if !self.look(|array| array.may_return(id)) {
            return;
        }
        let members = self.members.load();
        let Some(member) = members.get(id) else { return };
        // One try at a time, and none after one that failed.
        if member.is_returning.swap(true, Ordering::AcqRel) {
            return;
        }
        let core = Arc::clone(self);
        let bring_back = move || {
            if let Err(error) = core.bring_back(id) {
                log::stays_away(id, &error);
            }
        };
        let started = thread::Builder::new().name("braid-return".into()).spawn(bring_back);
        match started {
            Ok(thread) => {
                self.end.threads.lock().expect("starting does not panic").push(thread);
            }
            // The next look tries again.
            Err(_) => member.is_returning.store(false, Ordering::Release),
        }
    }

    fn bring_back(self: &Arc<Self>, id: MemberId) -> Result<(), ReturnError> {
        let _one = self.membership.lock().expect("changing members does not panic");
        let found = {
            let members = self.members.load();
            let Some(member) = members.get(id) else { return Ok(()) };
            // What fails here fails as a member, too.
            member.device.flush()?;
            newest_on(&*member.device)?.ok_or(ReturnError::NoSuperblock)?
        };
        if !self.look(|array| array.may_return(id)) {
            return Ok(()); // A person was quicker.
        }
        let device = self.take_out(id);
        let (mut superblock, number) = self.joining(device.size_bytes(), found.device.uuid)?;
        let is_write_mostly = found.device.flags.write_mostly;
        superblock.set_write_mostly(superblock.device.number, is_write_mostly);
        let newcomer = SpareSetup {
            id: self.members.load().next_id(),
            device_number: number,
            bad_log_sectors: bad_log_sectors(&superblock),
            tears: can_tear(&superblock),
            returns: self.returns(&found),
            parity_log: self.parity_log_of(&superblock).map_err(AddError::from)?,
        };
        self.register_member(newcomer.id, (device, superblock), Place { slot: None })
            .map_err(ReturnError::Thread)?;
        self.schedule_again();
        let returned = self.change_members(MemberChange::Return(id, newcomer));
        returned.inspect_err(|_| self.close_member(newcomer.id)).map_err(AddError::from)?;
        if is_write_mostly {
            let change = MemberChange::WriteMostly(newcomer.id, true);
            self.change_members(change).map_err(AddError::from)?;
        }
        let _in_time = self.comes_to(Array::tells_all);
        Ok(())
    }
}

/// The newest superblock on a device.
fn newest_on(device: &dyn Member) -> Result<Option<Superblock>, MemberError> {
    let mut snippets = Vec::new();
    for range in probe_ranges(device.size_bytes()) {
        let length = usize::try_from(range.end - range.start).expect("a few sectors");
        let mut bytes = vec![0; length];
        device.read_at(&mut bytes, range.start)?;
        snippets.push(Snippet { offset: range.start, bytes });
    }
    Ok(probe(device.size_bytes(), &snippets).newest().cloned())
}
