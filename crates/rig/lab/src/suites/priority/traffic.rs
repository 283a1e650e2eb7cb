//! A model's requests in progress: requests to disks with their owners, and the parts of clients'
//! requests.

use std::collections::BTreeMap;

use braid_geometry::{LogicalSector, StripeGeometry};

use super::backend::{ClientRequest, Effects};
use crate::disk::{ArmPurpose, DiskRequest};

/// Requests to disks by number, each with its owner.
#[derive(Debug)]
pub(super) struct Traffic<O> {
    owners: BTreeMap<u64, O>,
    /// Unfinished parts of each client's request.
    parts: BTreeMap<u64, u64>,
    next_id: u64,
    effects: Effects,
    pub(super) pre_read_sectors: u64,
}

impl<O> Traffic<O> {
    pub(super) fn new() -> Self {
        Self {
            owners: BTreeMap::new(),
            parts: BTreeMap::new(),
            next_id: 0,
            effects: Effects::default(),
            pre_read_sectors: 0,
        }
    }

    /// Sends a disk a request for a run of sectors: the first sector, and the count.
    pub(super) fn ask(&mut self, owner: O, slot: u16, run: (u64, u64), purpose: ArmPurpose) {
        let ((sector, sectors), id) = (run, self.next_id);
        self.next_id += 1;
        self.owners.insert(id, owner);
        self.pre_read_sectors += if purpose == ArmPurpose::PreRead { sectors } else { 0 };
        let is_write = matches!(purpose, ArmPurpose::Data | ArmPurpose::Parity);
        let request = DiskRequest { id, sector, sectors, is_write };
        self.effects.disks.push((usize::from(slot), request, purpose));
    }

    /// Sends the disks a client's read, with a part for each chunk.
    pub(super) fn read(
        &mut self,
        geometry: &StripeGeometry,
        request: ClientRequest,
        owner: impl Fn(u64) -> O,
    ) {
        let end = request.start + u64::from(request.sectors);
        let mut sector = request.start;
        while sector < end {
            let address = geometry.locate(LogicalSector(sector));
            let offset = u64::from(address.offset_sectors);
            let sectors = (u64::from(geometry.chunk_sectors()) - offset).min(end - sector);
            let slot = geometry.row_map(address.row).data_slot(address.data_index).0;
            let start = geometry.row_start(address.row).0 + offset;
            *self.parts.entry(request.id).or_default() += 1;
            self.ask(owner(request.id), slot, (start, sectors), ArmPurpose::Reader);
            sector += sectors;
        }
    }

    /// Registers a client's request with its number of parts.
    pub(super) fn begin(&mut self, request: u64, parts: u64) {
        self.parts.insert(request, parts);
    }

    /// Notes that a part of a client's request is done. Returns whether that ends the request.
    pub(super) fn part_done(&mut self, request: u64) -> bool {
        let parts = self.parts.get_mut(&request).expect("it is under way");
        *parts -= 1;
        let is_last = *parts == 0;
        if is_last {
            self.parts.remove(&request);
            self.answer(request);
        }
        is_last
    }

    pub(super) fn answer(&mut self, request: u64) {
        self.effects.answers.push(request);
    }

    /// Notes that a disk has done this request; returns the request's owner.
    pub(super) fn disk_done(&mut self, id: u64) -> O {
        self.owners.remove(&id).expect("it was asked for")
    }

    pub(super) fn take(&mut self) -> Effects {
        std::mem::take(&mut self.effects)
    }

    /// Whether no disk has a request of this model.
    pub(super) fn is_quiet(&self) -> bool {
        self.owners.is_empty()
    }

    pub(super) fn has_answered_all(&self) -> bool {
        self.parts.is_empty()
    }
}
