//! Levels with copies: 1 and 10. Every sector has as many places as there are copies.
//!
//! ```text
//! read   ──▶ one copy ──ok──▶ answer
//!               └─failed──▶ lock the range ▶ read the next copy ▶ rewrite the bad ones ▶ answer
//! write  ──▶ lock the range ▶ write every copy ──all well──▶ unlock, answer
//!               └─some failed──▶ report; hold until a view without them arrives ▶ unlock, answer
//! ```
//!
//! A copy whose member sits out is read if there is no other. Reads that are under way there when it begins to sit
//! out are forsaken: another copy is read into the payload's second side ([`crate::buffer`]), once for each
//! read; what was forsaken comes back late and changes nothing [check: a_late_read_changes_no_answer].
//!
//! Where copies may differ (beyond the resync offset of an array that was found dirty, or once writes are refused) they
//! tell one story all the same: each *sector* is read from the first copy, in the order of copies, that has it, however it
//! is asked for. A read is cut where that would be another copy; one that fails is made again in halves, so that only
//! sectors that are unreadable themselves come from the next copy, and are written back from there. A member that sits out
//! is waited for there: the others may say something else. What a client has read changes only if the copy that it
//! came from is lost [check: what_was_read_from_a_dirty_mirror_reads_the_same_again]. Sectors that this run has written are
//! alike again; they are not told apart from the others.
//!
//! The range lock gives all copies the same order of overlapping writes, and keeps a repair from
//! putting old bytes over new ones [check: overlapping_writes_reach_copies_in_one_order].

mod change;
mod read;

use braid_hooks::{Mark, reached};
use std::collections::BTreeMap;

use braid_geometry::{LogicalSector, MemberSector, MirrorGeometry, Slot};
use smallvec::SmallVec;

use crate::buffer::{BlockIndex, Buffer};
use crate::effect::{MemberIoDone, MemberOperation};
use crate::ids::{IoId, MemberId};
use crate::request::{LockKey, Operation, Piece, RangeLock};
use crate::shard::{Common, PieceKey};
use crate::slab::Slab;
use change::Change;
use read::Read;

/// Part of a piece that is contiguous in every copy.
#[derive(Clone, Copy, Debug)]
struct Extent {
    key: PieceKey,
    piece: Piece,
    /// Sectors into the piece.
    done: u32,
    sectors: u32,
}

impl Extent {
    fn start(&self) -> LogicalSector {
        LogicalSector(self.piece.start.0 + u64::from(self.done))
    }
}

/// What one extent is going through.
#[derive(Debug)]
enum Work {
    Read(Read),
    Change(Change),
}

/// Whose a member request is.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Work(LockKey),
    /// A read that was forsaken.
    Forsaken,
    Probe,
}

/// The machine of RAID-1 and RAID-10.
#[derive(Debug)]
pub(crate) struct Mirror {
    geometry: MirrorGeometry,
    works: BTreeMap<LockKey, Work>,
    next_work: u64,
    in_flight: Slab<(Owner, Slot)>,
    lock: RangeLock,
    balance: Vec<Load>,
}

/// What a slot's member is doing, for choosing the copy to read.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    reads: u32,
    /// Where the last read ended: a read that goes on there is sequential.
    next_sector: u64,
}

impl Mirror {
    pub(crate) fn new(geometry: MirrorGeometry) -> Self {
        let slots = usize::from(geometry.slots());
        Self {
            geometry,
            works: BTreeMap::new(),
            next_work: 0,
            in_flight: Slab::default(),
            lock: RangeLock::default(),
            balance: vec![Load::default(); slots],
        }
    }

    pub(crate) fn handle_piece(&mut self, common: &mut Common, key: PieceKey, piece: &Piece) {
        if piece.operation == Operation::Trim && !common.view.zero_is_fast {
            return;
        }
        let mut done = 0;
        while done < piece.sectors {
            let start = LogicalSector(piece.start.0 + u64::from(done));
            let left = u64::from(piece.sectors - done);
            let sectors = self.geometry.contiguous_sectors(start).min(left);
            let sectors = u32::try_from(sectors).expect("at most a piece");
            let mut extent = Extent { key, piece: *piece, done, sectors };
            common.add_part(key);
            if piece.operation.is_write() {
                self.begin_write(common, extent);
            } else {
                self.cut_in_doubt(common, &mut extent);
                self.begin_read(common, extent);
            }
            done += extent.sectors;
        }
    }

    pub(crate) fn handle_io(&mut self, common: &mut Common, done: MemberIoDone) {
        let (owner, slot) = self.in_flight.remove(done.id.0).expect("an answer to our own request");
        let work = match owner {
            Owner::Work(work) => work,
            Owner::Forsaken => {
                reached(Mark::LateRead);
                self.balance[usize::from(slot.0)].reads -= 1;
                return common.stray_done(slot, done.result);
            }
            Owner::Probe => {
                common.clocks.probed(slot);
                return common.stray_done(slot, done.result);
            }
        };
        match self.works.remove(&work).expect("work lasts as long as its requests") {
            Work::Read(read) => self.read_done(common, (work, read), slot, done.result),
            Work::Change(change) => self.change_done(common, (work, change), slot, done.result),
        }
    }

    /// Writes that hold their answer may have become answerable.
    pub(crate) fn handle_view(&mut self, common: &mut Common) {
        let holding: Vec<LockKey> = self
            .works
            .iter()
            .filter(|(_, work)| matches!(work, Work::Change(change) if change.is_holding()))
            .map(|(key, _)| *key)
            .collect();
        for key in holding {
            if let Some(Work::Change(change)) = self.works.remove(&key) {
                self.change_settled(common, key, change);
            }
        }
    }

    /// A block for each slot's probes.
    pub(crate) fn arena_blocks(&self) -> u32 {
        u32::from(self.geometry.slots())
    }

    /// Reads a little, to see how long it takes.
    pub(crate) fn probe(&mut self, common: &mut Common, slot: Slot, run: (MemberSector, u32)) {
        let io = IoId(self.in_flight.insert((Owner::Probe, slot)));
        let buffer = Buffer::Block { block: BlockIndex(u32::from(slot.0)), offset_sectors: 0 };
        common.counters.probes += 1;
        common.submit((io, slot), run, MemberOperation::Read { buffer });
    }

    fn new_work(&mut self) -> LockKey {
        self.next_work += 1;
        LockKey(self.next_work)
    }

    /// Every copy of the extent: slot and place.
    fn copies(&self, extent: &Extent) -> SmallVec<[(Slot, MemberSector); 4]> {
        let start = extent.start();
        (0..self.geometry.copies()).map(|copy| self.geometry.copy(start, copy)).collect()
    }

    fn acquire(&mut self, common: &mut Common, key: LockKey, work: Work, extent: &Extent) {
        self.works.insert(key, work);
        if self.lock.acquire(key, extent.start().0, u64::from(extent.sectors)) {
            self.locked(common, key);
        } else {
            reached(Mark::WaitsForRange);
        }
    }

    fn release(&mut self, common: &mut Common, key: LockKey) {
        for granted in self.lock.release(key) {
            self.locked(common, granted);
        }
    }

    /// `key` holds its range from now on.
    fn locked(&mut self, common: &mut Common, key: LockKey) {
        match self.works.remove(&key).expect("waiting work is kept") {
            Work::Read(read) => self.try_next_copy(common, key, read.into_locked()),
            Work::Change(change) => self.submit_change(common, key, change),
        }
    }
}

/// A copy that missed a change: slot and the member that had it.
type Missed = (Slot, MemberId);
