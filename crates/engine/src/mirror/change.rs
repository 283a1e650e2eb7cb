//! Changing copies: a client's write to all of them, or a repair of those that could not be read.

use braid_geometry::{MemberSector, Slot};
use braid_hooks::{Bug, Mark, planted, reached};

use super::{Extent, Mirror, Missed, Owner, Work};
use crate::array::Gate;
use crate::buffer::Buffer;
use crate::direct::operation;
use crate::effect::{MemberFault, MemberOperation, Report};
use crate::ids::IoId;
use crate::request::{Fault, LockKey};
use crate::shard::Common;

/// A change under way; its range is locked, or it waits for that.
#[derive(Debug)]
pub(super) struct Change {
    extent: Extent,
    purpose: Purpose,
    outstanding: u16,
    written: u16,
    missed: Vec<Missed>,
    /// A copy could not be written for want of space.
    is_full: bool,
}

#[derive(Debug)]
enum Purpose {
    /// A client's write, to every copy.
    Write,
    /// The client's read succeeded elsewhere; these copies get its bytes again.
    Repair(Vec<Slot>),
}

impl Change {
    fn new(extent: Extent, purpose: Purpose) -> Self {
        Self { extent, purpose, outstanding: 0, written: 0, missed: Vec::new(), is_full: false }
    }

    pub(super) fn repair(extent: Extent, slots: Vec<Slot>) -> Self {
        Self::new(extent, Purpose::Repair(slots))
    }

    /// All copies have answered, some with an error whose consequences are not recorded yet.
    pub(super) fn is_holding(&self) -> bool {
        self.outstanding == 0 && !self.missed.is_empty()
    }
}

impl Mirror {
    pub(super) fn begin_write(&mut self, common: &mut Common, extent: Extent) {
        let key = self.new_work();
        let change = Change::new(extent, Purpose::Write);
        self.acquire(common, key, Work::Change(change), &extent);
    }

    /// Writes the copies; the range is locked.
    pub(super) fn submit_change(&mut self, common: &mut Common, key: LockKey, mut change: Change) {
        let extent = change.extent;
        let forgotten = usize::from(planted(Bug::CopyMissed));
        let copies = self.copies(&extent);
        for (slot, sector) in copies.iter().copied().take(copies.len() - forgotten) {
            let wanted = match &change.purpose {
                Purpose::Write => true,
                Purpose::Repair(slots) => slots.contains(&slot),
            };
            if wanted && common.view.member(slot).is_some() {
                change.outstanding += 1;
                self.submit_copy(common, key, &change, (slot, sector));
            }
        }
        if change.outstanding == 0 {
            self.change_settled(common, key, change);
        } else {
            self.works.insert(key, Work::Change(change));
        }
    }

    fn submit_copy(
        &mut self,
        common: &mut Common,
        key: LockKey,
        change: &Change,
        (slot, sector): (Slot, MemberSector),
    ) {
        let extent = &change.extent;
        let operation = match change.purpose {
            Purpose::Write => operation(&extent.piece, extent.done).0,
            Purpose::Repair(_) => MemberOperation::Write {
                buffer: Buffer::Payload {
                    request: extent.piece.request,
                    offset_sectors: if planted(Bug::RepairElsewhere) {
                        0
                    } else {
                        extent.piece.payload_offset_sectors + extent.done
                    },
                },
                durable: false,
            },
        };
        let io = IoId(self.in_flight.insert((Owner::Work(key), slot)));
        common.submit((io, slot), (sector, extent.sectors), operation);
    }

    pub(super) fn change_done(
        &mut self,
        common: &mut Common,
        (key, mut change): (LockKey, Change),
        slot: Slot,
        result: Result<(), MemberFault>,
    ) {
        change.outstanding -= 1;
        common.note_written(slot);
        match result {
            Ok(()) => change.written += 1,
            Err(_) if planted(Bug::CopyErrorIgnored) => change.written += 1,
            Err(MemberFault::NoSpace) if matches!(change.purpose, Purpose::Repair(_)) => {}
            Err(fault) => {
                if let Some(member) = common.view.member(slot).map(|member| member.id) {
                    change.is_full |= fault == MemberFault::NoSpace;
                    common.report(match fault {
                        MemberFault::NoSpace => Report::OutOfSpace { member },
                        MemberFault::Media | MemberFault::Gone => Report::MemberFailed { member },
                    });
                    change.missed.push((slot, member));
                }
            }
        }
        if change.outstanding > 0 {
            self.works.insert(key, Work::Change(change));
        } else {
            self.change_settled(common, key, change);
        }
    }

    /// No copy is being written any more: answer, unless a copy that missed it is still believed.
    pub(super) fn change_settled(&mut self, common: &mut Common, key: LockKey, change: Change) {
        let is_repair = matches!(change.purpose, Purpose::Repair(_));
        let believed = change.missed.iter().any(|(slot, member)| common.still_in(*slot, *member));
        let broken = common.view.gate == Gate::Broken;
        let believed = believed && (broken || !planted(Bug::MirrorAnswersEarly));
        if believed && !broken && !is_repair {
            reached(Mark::MirrorHolds);
            self.works.insert(key, Work::Change(change));
            return;
        }
        if !change.missed.is_empty() && !believed {
            reached(Mark::MirrorFinishesHeld);
        }
        let result = match change.purpose {
            // The read itself went well; what the repair did is between us and the member.
            Purpose::Repair(_) => Ok(()),
            Purpose::Write if believed && change.is_full => Err(Fault::NoSpace),
            Purpose::Write if believed || change.written == 0 => {
                reached(Mark::MirrorRefuses);
                Err(Fault::Unwritable)
            }
            Purpose::Write => Ok(()),
        };
        common.part_done(change.extent.key, result);
        self.release(common, key);
    }
}
