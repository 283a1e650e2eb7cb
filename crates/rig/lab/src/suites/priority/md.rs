//! The order of stripes in two older designs. *before* releases delayed stripes all at once. In
//! *seed* delayed stripes wait on a hold list that full-width writes may pass.
//! ```text
//!               full ─────────────────────────────────────────▶ writes ─▶ answered
//!   block ─▶ handle ─┤                                             ▲
//!               partial ─▶ delayed ─ activate ─▶ handle (before) ──┤ after its pre-reads
//!                                            └─▶ hold   (seed) ────┘
//! ```
//! This model has no other mechanism. Stripes have 4 KiB blocks and are found by band. A new band
//! takes the least recently used free stripe. Once no stripe was free, none is given out before a
//! quarter is free. A full stripe is written at once. For a partial stripe the model first reads
//! the missing blocks, by rmw or rcw, whichever is cheaper. A request that finds no stripe waits,
//! and so do all later requests.
//!
//! As in md at the time, delayed stripes are activated once no other stripe needs handling and none
//! pre-reads. (md also plugs its queue, but a reader that waits for a page unplugs it.) A later
//! block joins its stripe until the stripe is written. Blocks that were read or written stay valid
//! until the stripe is taken for another band. Clients' reads bypass the stripes. Handling costs no
//! time. No bytes are moved: only the times and numbers of requests matter.

use std::collections::{BTreeMap, VecDeque};

use braid_geometry::{ChunkRow, LogicalSector, MemberSector, Role, Slot, StripeGeometry};

use super::backend::{Backend, ClientRequest, Effects};
use super::traffic::Traffic;
use crate::disk::ArmPurpose;

pub(super) const BLOCK_SECTORS: u64 = 8;

/// The rule that releases partial stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// Releases all delayed stripes at once.
    Dump,
    /// Releases delayed stripes one by one, after full-width writes, which may pass at most
    /// `threshold` times; 0: no limit.
    Hold { threshold: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The stripe has no requests at disks.
    Ready,
    /// The stripe's pre-reads are at the disks.
    Reading,
    /// The stripe's data and parity are being written.
    Writing,
}

#[derive(Clone, Debug)]
struct Stripe {
    band: u64,
    phase: Phase,
    /// Blocks to write: a bit for each data column.
    wanted: u64,
    written: u64,
    /// Blocks with valid content: a bit for each slot.
    valid: u64,
    outstanding: u32,
    waiters: Vec<u64>,
    writers: Vec<u64>,
    is_listed: bool,
    /// Whether the stripe was released although it is partial.
    may_read: bool,
}

#[derive(Clone, Copy, Debug)]
enum Owner {
    Stripe(usize, u16),
    Read(u64),
}

#[derive(Debug)]
pub(super) struct Md {
    geometry: StripeGeometry,
    policy: Policy,
    stripes: Vec<Stripe>,
    index: BTreeMap<u64, usize>,
    /// Stripes without work, the least recently used first.
    idle: VecDeque<usize>,
    handle: VecDeque<usize>,
    delayed: VecDeque<usize>,
    hold: VecDeque<usize>,
    /// Whether no request takes a stripe, because no stripe was free and less than a quarter are
    /// free again.
    is_blocked: bool,
    pre_reading: u32,
    full_writes: u32,
    bypass_count: u64,
    last_hold: Option<usize>,
    /// Requests with blocks that no stripe has yet: id, next sector, sectors left.
    waiting: VecDeque<(u64, u64, u64)>,
    full: u64,
    partial: u64,
    dumps: u64,
    traffic: Traffic<Owner>,
}

impl Md {
    pub(super) fn new(geometry: StripeGeometry, stripes: usize, policy: Policy) -> Self {
        let blank = Stripe {
            band: u64::MAX,
            phase: Phase::Ready,
            wanted: 0,
            written: 0,
            valid: 0,
            outstanding: 0,
            waiters: Vec::new(),
            writers: Vec::new(),
            is_listed: false,
            may_read: false,
        };
        Self {
            geometry,
            policy,
            stripes: vec![blank; stripes],
            index: BTreeMap::new(),
            idle: (0..stripes).collect(),
            handle: VecDeque::new(),
            delayed: VecDeque::new(),
            hold: VecDeque::new(),
            is_blocked: false,
            pre_reading: 0,
            full_writes: 0,
            bypass_count: 0,
            last_hold: None,
            waiting: VecDeque::new(),
            full: 0,
            partial: 0,
            dumps: 0,
            traffic: Traffic::new(),
        }
    }

    fn all_data(&self) -> u64 {
        (1 << self.geometry.data_slots()) - 1
    }

    /// Gives waiting requests' blocks to stripes, as long as stripes are available.
    fn attach(&mut self) {
        while let Some((id, sector, left)) = self.waiting.pop_front() {
            let address = self.geometry.locate(LogicalSector(sector));
            let start = self.geometry.row_start(address.row).0 + u64::from(address.offset_sectors);
            let Some(stripe) = self.stripe_of(start / BLOCK_SECTORS) else {
                return self.waiting.push_front((id, sector, left));
            };
            let column = 1 << address.data_index;
            let one = &mut self.stripes[stripe];
            one.wanted |= column;
            one.waiters.push(id);
            self.list(stripe);
            if left > BLOCK_SECTORS {
                self.waiting.push_front((id, sector + BLOCK_SECTORS, left - BLOCK_SECTORS));
            }
        }
    }

    /// The stripe of a band. If the band has no stripe, takes a free one; `None` if no stripe may
    /// be taken.
    fn stripe_of(&mut self, band: u64) -> Option<usize> {
        if let Some(stripe) = self.index.get(&band).copied() {
            self.idle.retain(|other| *other != stripe);
            return Some(stripe);
        }
        let is_short = 4 * self.idle.len() <= self.stripes.len();
        if self.idle.is_empty() || self.is_blocked && is_short {
            self.is_blocked = true;
            return None;
        }
        self.is_blocked = false;
        let stripe = self.idle.pop_front()?;
        self.index.remove(&self.stripes[stripe].band);
        self.index.insert(band, stripe);
        let one = &mut self.stripes[stripe];
        (one.band, one.valid) = (band, 0);
        Some(stripe)
    }

    /// Puts a stripe with work on the handle list, unless it is busy, or delayed and still partial.
    fn list(&mut self, stripe: usize) {
        let all = self.all_data();
        let one = &mut self.stripes[stripe];
        if one.phase != Phase::Ready {
            return;
        }
        if one.is_listed && one.wanted == all {
            self.delayed.retain(|other| *other != stripe);
            self.hold.retain(|other| *other != stripe);
            if !self.handle.contains(&stripe) {
                self.handle.push_back(stripe);
            }
        } else if !one.is_listed {
            one.is_listed = true;
            self.handle.push_back(stripe);
        }
    }

    /// The work of md's daemon: handles stripes until none can proceed.
    fn work(&mut self) {
        loop {
            self.attach();
            if let Some(stripe) = self.next() {
                self.handle(stripe);
            } else if !self.activate() {
                return;
            }
        }
    }

    /// Releases delayed stripes, if the policy allows it now.
    fn activate(&mut self) -> bool {
        if self.delayed.is_empty() || self.pre_reading > 0 {
            return false;
        }
        self.dumps += 1;
        for stripe in self.delayed.drain(..) {
            self.stripes[stripe].may_read = true;
            match self.policy {
                Policy::Dump => self.handle.push_back(stripe),
                Policy::Hold { .. } => self.hold.push_back(stripe),
            }
        }
        true
    }

    fn next(&mut self) -> Option<usize> {
        let Policy::Hold { threshold } = self.policy else { return self.handle.pop_front() };
        if let Some(stripe) = self.handle.pop_front() {
            match self.hold.front() {
                None => self.bypass_count = 0,
                Some(head) if Some(*head) == self.last_hold => self.bypass_count += 1,
                Some(head) => {
                    self.last_hold = Some(*head);
                    self.bypass_count = self.bypass_count.saturating_sub(threshold);
                }
            }
            return Some(stripe);
        }
        let is_passed = threshold > 0 && self.bypass_count > threshold;
        if !is_passed && self.full_writes > 0 {
            return None;
        }
        let stripe = self.hold.pop_front()?;
        self.bypass_count = self.bypass_count.saturating_sub(threshold);
        Some(stripe)
    }

    fn handle(&mut self, stripe: usize) {
        let all = self.all_data();
        let one = &self.stripes[stripe];
        if one.wanted == all {
            self.full += 1;
            self.write(stripe);
        } else if !one.may_read {
            self.delayed.push_back(stripe);
        } else {
            self.pre_read(stripe);
        }
    }

    /// Reads the missing blocks of a partial write; writes at once if none is missing.
    fn pre_read(&mut self, stripe: usize) {
        let map = self.map(stripe);
        let one = &self.stripes[stripe];
        let mut ways = [0_u64; 2];
        for slot in 0..self.geometry.slots() {
            let (keep, change) = match map.role(Slot(slot)) {
                Role::Data(column) if one.wanted >> column & 1 == 1 => (0, 1),
                Role::Data(_) => (1, 0),
                _ => (0, 1),
            };
            let lacks = u64::from(one.valid >> slot & 1 == 0);
            ways[0] |= (keep & lacks) << slot;
            ways[1] |= (change & lacks) << slot;
        }
        let [reconstruct, modify] = ways;
        let reads =
            if modify.count_ones() < reconstruct.count_ones() { modify } else { reconstruct };
        self.partial += 1;
        if reads == 0 {
            return self.write(stripe);
        }
        self.pre_reading += 1;
        self.stripes[stripe].phase = Phase::Reading;
        for slot in (0..self.geometry.slots()).filter(|slot| reads >> slot & 1 == 1) {
            self.ask(stripe, slot, false);
        }
    }

    fn map(&self, stripe: usize) -> braid_geometry::RowMap {
        let start = MemberSector(self.stripes[stripe].band * BLOCK_SECTORS);
        self.geometry.row_map(self.geometry.row_of(start))
    }

    fn write(&mut self, stripe: usize) {
        let map = self.map(stripe);
        let one = &mut self.stripes[stripe];
        (one.phase, one.written) = (Phase::Writing, std::mem::take(&mut one.wanted));
        one.writers = std::mem::take(&mut one.waiters);
        (one.is_listed, one.may_read) = (false, false);
        let written = one.written;
        self.full_writes += u32::from(written == self.all_data());
        for slot in 0..self.geometry.slots() {
            let is_written = match map.role(Slot(slot)) {
                Role::Data(column) => written >> column & 1 == 1,
                _ => true,
            };
            if is_written {
                self.ask(stripe, slot, true);
            }
        }
    }

    fn ask(&mut self, stripe: usize, slot: u16, is_write: bool) {
        let one = &mut self.stripes[stripe];
        one.outstanding += 1;
        let sector = one.band * BLOCK_SECTORS;
        let row = ChunkRow(sector / u64::from(self.geometry.chunk_sectors()));
        let purpose = match self.geometry.row_map(row).role(Slot(slot)) {
            _ if !is_write => ArmPurpose::PreRead,
            Role::Data(_) => ArmPurpose::Data,
            Role::P | Role::Q => ArmPurpose::Parity,
        };
        self.traffic.ask(Owner::Stripe(stripe, slot), slot, (sector, BLOCK_SECTORS), purpose);
    }

    fn stripe_done(&mut self, stripe: usize, slot: u16) {
        let all = self.all_data();
        let one = &mut self.stripes[stripe];
        one.valid |= 1 << slot;
        one.outstanding -= 1;
        if one.outstanding > 0 {
            return;
        }
        if one.phase == Phase::Reading {
            self.pre_reading -= 1;
            return self.write(stripe);
        }
        self.full_writes -= u32::from(one.written == all);
        one.phase = Phase::Ready;
        for writer in std::mem::take(&mut one.writers) {
            self.traffic.part_done(writer);
        }
        if one.wanted == 0 {
            self.idle.push_back(stripe);
        } else {
            self.list(stripe);
        }
    }
}

impl Backend for Md {
    fn request(&mut self, _now: u64, request: ClientRequest) {
        if !request.is_write {
            return self.traffic.read(&self.geometry, request, Owner::Read);
        }
        let sectors = u64::from(request.sectors);
        assert!((request.start | sectors).is_multiple_of(BLOCK_SECTORS), "whole blocks");
        self.traffic.begin(request.id, sectors / BLOCK_SECTORS);
        self.waiting.push_back((request.id, request.start, sectors));
        self.work();
    }

    fn disk_done(&mut self, _now: u64, id: u64) {
        match self.traffic.disk_done(id) {
            Owner::Read(request) => {
                self.traffic.part_done(request);
            }
            Owner::Stripe(stripe, slot) => self.stripe_done(stripe, slot),
        }
        self.work();
    }

    /// Never called: the model has no timeout.
    fn handle_timeout(&mut self, _now: u64) {}

    fn timeout(&self) -> Option<u64> {
        None
    }

    /// Nothing to do: only written requests are acknowledged.
    fn flush(&mut self, _now: u64) {}

    fn take(&mut self) -> Effects {
        self.traffic.take()
    }

    /// Always 0: only written requests are acknowledged.
    fn backlog_permille(&self) -> u32 {
        0
    }

    fn is_idle(&self) -> bool {
        self.traffic.has_answered_all()
    }

    fn pre_read_sectors(&self) -> u64 {
        self.traffic.pre_read_sectors
    }

    fn counters(&self) -> String {
        let Self { full, partial, dumps, .. } = self;
        format!("full-stripe writes {full}, partial writes {partial}, activations {dumps}")
    }
}
