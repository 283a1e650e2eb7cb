//! The state of a mirror, and the events that it handles.

use std::collections::VecDeque;

use braid_geometry::{LogicalSector, MemberSector, MirrorGeometry, Slot};
use braid_sim_hooks::{Bug, Mark, reached, spoiled};
use smallvec::SmallVec;

use super::background::{Background, BackgroundContext};
use super::decide::{Range, Stage};
use super::loads::Loads;
use crate::array::Gate;
use crate::buffer::{BlockIndex, Buffer, PayloadBuffer, SHADOW_BUFFER, payload_buffer_of};
use crate::computation::Computation;
use crate::context::{Common, Departures, OrphanRequest, PieceKey, ReservedMemory};
use crate::effect::{FaultKind, MemberIoDone, MemberOperation};
use crate::ids::{IoId, MemberId};
use crate::request::{LockKey, Operation, Piece, RangeLock};
use crate::slab::Slab;
use crate::tuning::UNIT_SECTORS_MAX;
use crate::work::{self, Purpose};

/// A part of a piece that is contiguous in every copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) key: PieceKey,
    pub(super) piece: Piece,
    pub(super) done: u32,
    pub(super) sectors: u32,
}

impl Extent {
    pub(super) fn start(&self) -> LogicalSector {
        LogicalSector(self.piece.start.0 + u64::from(self.done))
    }
}

/// The state of the work on one extent.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) extent: Extent,
    pub(super) stage: Stage,
    pub(super) range: Range,
    pub(super) outstanding: u16,
    /// Read: slots whose copies could not be read, with the fault.
    pub(super) failed: SmallVec<[(Slot, FaultKind); 2]>,
    /// Read: the payload holds a copy's data.
    pub(super) was_read: bool,
    /// Read: the read is repeated in halves.
    pub(super) halves: bool,
    /// Write: the write came before superblocks allowed writes to its region.
    pub(super) lacks_intent: bool,
    /// Write: requests to the copies were submitted.
    pub(super) begun: bool,
    pub(super) written: u16,
    /// Write: copies that missed the write: the slot, and its member at that time.
    pub(super) missed: SmallVec<[(Slot, MemberId); 2]>,
    /// Write: a copy's member had no space.
    pub(super) is_full: bool,
}

impl Work {
    pub(super) fn new(extent: Extent, stage: Stage) -> Self {
        Self {
            extent,
            stage,
            range: Range::NotAsked,
            outstanding: 0,
            failed: SmallVec::new(),
            was_read: false,
            halves: false,
            lacks_intent: false,
            begun: false,
            written: 0,
            missed: SmallVec::new(),
            is_full: false,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Owner {
    Work(LockKey),
    Abandoned,
    Probe,
    /// Background work, named by the index of its entry.
    Background(u32),
}

#[derive(Debug)]
pub(crate) struct Mirror {
    pub(super) geometry: MirrorGeometry,
    pub(super) works: Slab<Work>,
    /// Work to be continued, first come, first served.
    pub(super) ready: VecDeque<LockKey>,
    /// Writes that came before superblocks allowed writes to their region, in order.
    gated: Vec<LockKey>,
    pub(super) in_flight: Slab<(Owner, Slot)>,
    pub(super) lock: RangeLock,
    pub(super) loads: Loads,
    background: Background,
}

impl Mirror {
    pub(crate) fn new(geometry: MirrorGeometry) -> Self {
        let loads = Loads::new(geometry.slots());
        let background = Background::new(&geometry, u32::from(geometry.slots()), UNIT_SECTORS_MAX);
        Self {
            background,
            geometry,
            works: Slab::default(),
            ready: VecDeque::new(),
            gated: Vec::new(),
            in_flight: Slab::default(),
            lock: RangeLock::default(),
            loads,
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
                let lacks_intent = !common.has_intent(key);
                self.begin(Work { lacks_intent, ..Work::new(extent, Stage::Write) });
            } else {
                extent.sectors = self.cut_in_doubt(common, &extent);
                self.begin(Work::new(extent, Stage::Read));
            }
            done += extent.sectors;
        }
        self.settle(common);
    }

    pub(crate) fn handle_io(&mut self, common: &mut Common, done: MemberIoDone) {
        let (owner, slot) = self.in_flight.remove(done.id.0).expect("an answer to our own request");
        match owner {
            Owner::Abandoned => {
                reached(Mark::LateRead);
                self.loads.end(slot);
                common.stray_done(slot, done.result);
            }
            Owner::Probe => {
                common.clocks.probed(slot);
                common.stray_done(slot, done.result);
            }
            Owner::Background(place) => {
                self.with_background(common, |background, context| {
                    background.io_done(context, (place, slot), done.result);
                });
            }
            Owner::Work(key) => {
                let work = self.works.get_mut(key.0).expect("work lasts as long as its requests");
                match work.stage {
                    Stage::Read => {
                        self.loads.end(slot);
                        work.note_read(common, slot, done.result);
                    }
                    Stage::Write => work.note_written(common, slot, done.result),
                    Stage::Mend => {
                        work.note_written(common, slot, done.result);
                        let extent = work.extent;
                        let mut copies = self.copies(&extent).into_iter();
                        if let Err(fault) = done.result
                            && let Some((_, start)) = copies.find(|(copy, _)| *copy == slot)
                        {
                            common.report_unmended(slot, fault, (start, extent.sectors));
                        }
                        if done.result.is_ok() {
                            common.note_mended(slot);
                        }
                    }
                }
                self.ready.push_back(key);
            }
        }
        self.settle(common);
    }

    /// Continues, under a new view, the writes that waited for superblocks before they began or
    /// before they were answered.
    pub(crate) fn handle_view(&mut self, common: &mut Common, geometry: &MirrorGeometry) {
        if self.geometry != *geometry {
            assert_eq!(self.geometry.slots(), geometry.slots(), "the arena has a block for each");
            self.geometry = geometry.clone();
        }
        // Writes lock their ranges in order of arrival.
        self.ready.extend(&self.gated);
        let Self { gated, works, .. } = self;
        gated.retain(|key| {
            let waits = works.get(key.0).is_some_and(|work| !common.has_intent(work.extent.key));
            waits && matches!(common.view.gate, Gate::Open | Gate::Closed)
        });
        let awaits_record = |work: &Work| !work.missed.is_empty();
        let waiting = self.works.iter_mut().filter(|(_, work)| awaits_record(work));
        self.ready.extend(waiting.map(|(name, _)| LockKey(name)));
        self.settle(common);
    }

    /// Called when members begin to sit out, or return. Abandons reads of members that begin to sit
    /// out, and reads other copies.
    pub(crate) fn handle_slow_members(&mut self, common: &mut Common) {
        if !common.clocks.is_any_out() {
            return;
        }
        let under_way = self.in_flight.iter_mut();
        let slow = under_way.filter(|(_, (_, slot))| common.clocks.sits_out(*slot));
        let slow: Vec<u64> = slow.map(|(name, _)| name).collect();
        for name in slow {
            self.abandon(common, name);
        }
        self.settle(common);
    }

    /// Called when members left: ends the requests at these members for the requests' owners.
    /// Returns the requests.
    pub(crate) fn leave(
        &mut self,
        common: &mut Common,
        departures: &Departures,
    ) -> Vec<OrphanRequest> {
        let (mut orphans, mut reads) = (Vec::new(), Vec::new());
        for (name, (owner, slot)) in self.in_flight.iter() {
            let (memory, is_copy) = match owner {
                Owner::Work(key) => {
                    let work = self.works.get(key.0).expect("work lasts as long as its requests");
                    match work.stage {
                        Stage::Write => (ReservedMemory::Payload(work.extent.key), false),
                        Stage::Read => {
                            reads.extend(departures.has(*slot).then_some(name));
                            common.forget_pace_at(departures, (IoId(name), *slot));
                            continue;
                        }
                        // The answer to the piece releases the payload of a read.
                        Stage::Mend => continue,
                    }
                }
                // The bytes of a probe are never used.
                Owner::Probe => (ReservedMemory::Nothing, false),
                Owner::Background(place) => {
                    (ReservedMemory::Place(*place), self.background.is_copy(*place))
                }
                Owner::Abandoned => {
                    common.forget_pace_at(departures, (IoId(name), *slot));
                    continue;
                }
            };
            orphans.extend(common.out_at(departures, (IoId(name), *slot), (memory, is_copy)));
        }
        for name in reads {
            self.abandon(common, name);
        }
        for OrphanRequest { memory, .. } in &orphans {
            match *memory {
                ReservedMemory::Payload(piece) => common.hold_payload(piece),
                ReservedMemory::Place(place) => self.background.hold(place),
                ReservedMemory::Nothing | ReservedMemory::Frame(_) => {}
            }
        }
        orphans
    }

    /// Frees the memory of background work whose request has ended at a member that left.
    pub(crate) fn let_go_of(&mut self, common: &mut Common, place: u32) {
        self.with_background(common, |background, context| background.let_go_of(context, place));
        self.settle(common);
    }

    fn abandon(&mut self, common: &mut Common, name: u64) {
        let Some((Owner::Work(key), _)) = self.in_flight.get(name).copied() else { return };
        let work = self.works.get(key.0).expect("work lasts as long as its requests");
        let (payload_buffer, offset_sectors) =
            payload_buffer_of(work.extent.piece.payload_offset_sectors);
        let other = self.choose_copy(common, work).map(|(slot, _)| slot);
        let has_other = other.is_some_and(|slot| !common.clocks.sits_out(slot));
        if work.stage != Stage::Read || payload_buffer == PayloadBuffer::Shadow || !has_other {
            return;
        }
        reached(Mark::DirectReadAbandoned);
        common.abandon(work.extent.key);
        self.in_flight.get_mut(name).expect("just seen").0 = Owner::Abandoned;
        let work = self.works.get_mut(key.0).expect("just seen");
        let shadow_offset_sectors = offset_sectors + SHADOW_BUFFER;
        let shadow_offset_sectors =
            spoiled(Bug::AbandonedSameMemory, shadow_offset_sectors, offset_sectors);
        work.extent.piece.payload_offset_sectors = shadow_offset_sectors;
        work.outstanding -= 1;
        self.ready.push_back(key);
    }

    /// Number of blocks: one for each slot's probes, and the blocks of background work.
    pub(crate) fn arena_blocks(&self) -> u32 {
        u32::from(self.geometry.slots()) + self.background.blocks()
    }

    /// The purpose of a read into a block.
    pub(crate) fn purpose_of(&self, io: IoId) -> Purpose {
        match self.in_flight.get(io.0) {
            Some((Owner::Background(place), _)) => {
                self.background.class_of(*place).map_or(Purpose::Client, Purpose::Background)
            }
            _ => Purpose::Client,
        }
    }

    pub(crate) fn handle_work(&mut self, common: &mut Common, work: work::Work) {
        self.with_background(common, |background, context| background.ask(context, work));
        self.settle(common);
    }

    pub(crate) fn handle_computation_done(
        &mut self,
        common: &mut Common,
        computation: Computation,
    ) {
        self.with_background(common, |background, context| {
            background.computation_done(context, &computation);
        });
        common.recycle(computation);
        self.settle(common);
    }

    /// Calls `act` with the background work; then admits the work that waited for the ranges
    /// released by `act`.
    fn with_background(
        &mut self,
        common: &mut Common,
        act: impl FnOnce(&mut Background, &mut BackgroundContext<'_>),
    ) {
        let Self { background, geometry, lock, in_flight, .. } = self;
        let mut submitted =
            |place: u32, slot: Slot| IoId(in_flight.insert((Owner::Background(place), slot)));
        act(
            background,
            &mut BackgroundContext { common, geometry, lock, submitted: &mut submitted },
        );
        for granted in std::mem::take(&mut self.background.granted) {
            self.grant(common, granted);
        }
    }

    /// Gives a client's work, or background work, the range that it waited for.
    pub(super) fn grant(&mut self, common: &mut Common, key: LockKey) {
        match self.works.get_mut(key.0) {
            Some(work) => {
                work.range = Range::Locked;
                self.ready.push_back(key);
            }
            None => {
                self.with_background(common, |background, context| background.grant(context, key));
            }
        }
    }

    /// Reads a few sectors, to measure the member's latency.
    pub(crate) fn probe(&mut self, common: &mut Common, slot: Slot, run: (MemberSector, u32)) {
        let io = IoId(self.in_flight.insert((Owner::Probe, slot)));
        let buffer = Buffer::Block { block: BlockIndex(u32::from(slot.0)), offset_sectors: 0 };
        common.counters.probes += 1;
        common.submit((io, slot), run, MemberOperation::Read { buffer });
    }

    pub(super) fn begin(&mut self, work: Work) {
        let lacks_intent = work.lacks_intent;
        let key = LockKey(self.works.insert(work));
        self.gated.extend(lacks_intent.then_some(key));
        self.ready.push_back(key);
    }

    /// The slot and the first sector of every copy of the extent.
    pub(super) fn copies(&self, extent: &Extent) -> SmallVec<[(Slot, MemberSector); 4]> {
        let start = extent.start();
        (0..self.geometry.copies()).map(|copy| self.geometry.copy(start, copy)).collect()
    }
}
