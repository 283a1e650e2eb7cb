//! What must hold at every step, checked where it could break.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use braid_engine::array::{MemberId, SuperblockState};
use braid_engine::effect::{MemberIo, MemberOperation};
use braid_engine::request::{Fault, RequestId};
use braid_geometry::{Family, Geometry, LogicalSector, StripeGeometry};

use crate::SECTOR;
use crate::image::{image, parity, places};
use crate::model::{fill, version_of};
use crate::world::{Event, World};
use braid_testbed::content::bytes;

impl World {
    fn keeps_intent(&self) -> bool {
        self.geometry.level().family() != Family::Direct
    }

    /// Members that occupy a slot and have not been said to be out.
    fn members(&self) -> impl Iterator<Item = MemberId> + '_ {
        let slots = 0..self.scene.shape.slots;
        slots
            .filter(|slot| !self.scene.missing.contains(slot))
            .map(MemberId)
            .filter(|member| !self.told.out.contains(member))
    }

    /// Members that assembly would believe if power were cut now: those that any superblock which
    /// can still be written lists, among the devices that the newest one lists.
    fn believed(&self) -> BTreeSet<MemberId> {
        let in_slots = |state: &SuperblockState| -> BTreeSet<MemberId> {
            let roles = state.roles.iter().filter(|role| role.slot.is_some());
            roles.map(|role| role.member).collect()
        };
        let superblock = |member: &MemberId| &self.devices[usize::from(member.0)].superblock;
        let all: Vec<MemberId> = (0..self.scene.shape.slots)
            .map(MemberId)
            .filter(|member| !self.scene.missing.contains(&member.0))
            .collect();
        let newest = all.iter().map(superblock).max_by_key(|state| state.events);
        let Some(newest) = newest.map(|state| in_slots(state)) else { return BTreeSet::new() };
        let can_tell = |member: &MemberId| self.devices[usize::from(member.0)].can_tell();
        let tellers = all.iter().filter(|member| newest.contains(member) && can_tell(member));
        tellers.flat_map(|member| in_slots(superblock(member))).collect()
    }

    /// A member request as the shard makes it.
    pub(crate) fn check_io(&self, shard: usize, io: &MemberIo) {
        let seed = self.scene.seed;
        let view = &self.shards[shard].view;
        let member = view.member(io.slot).map(|member| member.id);
        assert_eq!(member, Some(io.member), "seed {seed}: {io:?} to a member not in the view");
        let (start, sectors) = (io.sector, u64::from(io.sectors));
        let end = start.0 + sectors;
        assert!(sectors > 0 && end <= self.geometry.used_sectors(io.slot), "seed {seed}: {io:?}");
        if !io.operation.is_write() {
            let readable = view.readable(io.slot, start, sectors).is_some();
            assert!(readable, "seed {seed}: {io:?} reads what is not to be read");
            return;
        }
        assert!(!self.scene.read_only, "seed {seed}: {io:?} writes to a read-only array");
        if self.geometry.level().family() == Family::Direct {
            return;
        }
        for event in &self.pending {
            if let Event::Io { io: other, .. } = event
                && other.member == io.member
                && other.operation.is_write()
                && other.sector.0 < end
                && start.0 < other.sector.0 + u64::from(other.sectors)
            {
                panic!("seed {seed}: {io:?} overlaps {other:?}, their order is not one");
            }
        }
    }

    /// I3: when a device is written, every member's superblock says "active"; unless the write puts
    /// back what is there already, as a repair does.
    pub(crate) fn check_write_is_announced(&self, io: &MemberIo, data: &[u8]) {
        if !self.keeps_intent() || self.scene.resync_offset != u64::MAX {
            return;
        }
        let device = &self.devices[usize::from(io.member.0)];
        if device.seen[bytes(io.sector.0, u64::from(io.sectors))] == *data {
            return;
        }
        for member in self.members() {
            let device = &self.devices[usize::from(member.0)];
            assert!(
                device.superblock.resync_offset == 0 || !device.can_tell(),
                "seed {}: {io:?} although {member:?} says clean",
                self.scene.seed
            );
        }
    }

    /// A superblock as the array orders it.
    pub(crate) fn check_superblock(&mut self, member: MemberId, state: &Arc<SuperblockState>) {
        let seed = self.scene.seed;
        assert!(!self.scene.read_only, "seed {seed}: a superblock of a read-only array");
        assert!(!self.told.out.contains(&member), "seed {seed}: {member:?} is out");
        assert!(self.keeps_intent(), "seed {seed}: there is nothing to tell");
        let listed = state.roles.iter().any(|role| role.member == member);
        assert!(listed, "seed {seed}: a device is told that it is not there");
        let is_clean = state.resync_offset != 0;
        if !is_clean || self.scene.resync_offset != u64::MAX {
            return;
        }
        self.told.clean_began += 1;
        for role in state.roles.iter().filter(|role| role.slot.is_some()) {
            let device = &self.devices[usize::from(role.member.0)];
            for (sector, writes) in &device.unflushed {
                let durable = &device.durable[bytes(*sector, 1)];
                let nothing_new = writes.iter().all(|(_, data)| data == durable);
                assert!(nothing_new, "seed {seed}: I5: clean before sector {sector} is durable");
            }
        }
        for event in &self.pending {
            if let Event::Io { shard, io, result: None } = event
                && io.operation.is_write()
            {
                assert!(
                    self.is_repair(*shard, io),
                    "seed {seed}: I5: clean although {io:?} is under way"
                );
            }
        }
    }

    /// A write under way that changes nothing.
    fn is_repair(&self, shard: usize, io: &MemberIo) -> bool {
        let MemberOperation::Write { buffer, .. } = io.operation else { return false };
        let seen = &self.devices[usize::from(io.member.0)].seen;
        let seen = &seen[bytes(io.sector.0, u64::from(io.sectors))];
        let side = &self.shards[shard];
        match buffer {
            braid_engine::buffer::Buffer::Block { block, offset_sectors } => {
                let start = block.0 as usize * side.block_bytes + offset_sectors as usize * SECTOR;
                side.arena[start..start + seen.len()] == *seen
            }
            braid_engine::buffer::Buffer::Payload { request, offset_sectors } => {
                let start = offset_sectors as usize * SECTOR;
                self.payloads[&request].data[start..start + seen.len()] == *seen
            }
        }
    }

    /// A member is said to be out: no survivor's superblock counts it any more.
    pub(crate) fn check_member_out(&self, out: MemberId) {
        let told = !self.believed().contains(&out);
        assert!(told || self.scene.read_only, "seed {}: {out:?} is out", self.scene.seed);
    }

    /// I4 and FUA: a write was answered, so every member that would be believed after a power cut
    /// holds it, and the parity that goes with it; if durable, on stable storage.
    /// Only what was answered in one of `steps` counts.
    pub(crate) fn check_written(
        &self,
        (start, sectors): (u64, u64),
        durable: bool,
        steps: RangeInclusive<u64>,
    ) {
        let seed = self.scene.seed;
        let believed = self.believed();
        let mut rows = BTreeSet::new();
        let mut expected = [0; SECTOR];
        for sector in start..start + sectors {
            let Some(version) = self.on_members(sector, &steps) else { continue };
            if durable && self.model.allowed(sector).len() > 1 {
                continue; // The same bytes, but written beside this write, and perhaps volatile.
            }
            fill(version, sector, &mut expected);
            for (slot, place) in places(&self.geometry, sector) {
                if believed.contains(&MemberId(slot.0)) {
                    let device = &self.devices[slot.index()];
                    let data = if durable { &device.durable } else { &device.seen };
                    assert!(
                        data[bytes(place.0, 1)] == expected,
                        "seed {seed}: sector {sector} was answered, slot {slot} lacks it"
                    );
                }
            }
            if let Geometry::Stripe(stripe) = &self.geometry {
                let address = stripe.locate(LogicalSector(sector));
                rows.insert((address.row, address.offset_sectors));
            }
        }
        let Geometry::Stripe(stripe) = &self.geometry else { return };
        for (row, offset) in rows {
            for (slot, expected) in self.expected_parity(stripe, (row, offset), &steps) {
                let place = stripe.row_start(row).0 + u64::from(offset);
                if believed.contains(&MemberId(slot.0)) {
                    let device = &self.devices[slot.index()];
                    // Volatile parity may follow a later write beside this one.
                    let durable = durable && !device.unflushed.contains_key(&place);
                    let data = if durable { &device.durable } else { &device.seen };
                    assert!(
                        data[bytes(place, 1)] == expected,
                        "seed {seed}: {row:?}+{offset} was answered, parity in {slot} is wrong"
                    );
                }
            }
        }
    }

    /// What a sector must be on the members: it was answered in one of `steps`, there is no doubt, and
    /// no cache has it for itself.
    fn on_members(
        &self,
        sector: u64,
        steps: &RangeInclusive<u64>,
    ) -> Option<crate::model::Version> {
        let mut early = self.clients.early.values();
        let is_early = early.any(|(start, sectors)| (*start..start + sectors).contains(&sector));
        if is_early { None } else { self.model.only_of(sector, steps) }
    }

    /// Parity of one line of sectors, if nothing there is in doubt.
    fn expected_parity(
        &self,
        stripe: &StripeGeometry,
        (row, offset): (braid_geometry::ChunkRow, u32),
        steps: &RangeInclusive<u64>,
    ) -> Vec<(braid_geometry::Slot, Vec<u8>)> {
        let mut columns = Vec::new();
        for index in 0..stripe.data_slots() {
            let sector = stripe.logical(row, index, offset).0;
            let Some(version) = self.on_members(sector, steps) else { return Vec::new() };
            let mut column = vec![0; SECTOR];
            fill(version, sector, &mut column);
            columns.push(column);
        }
        let columns: Vec<&[u8]> = columns.iter().map(Vec::as_slice).collect();
        parity(stripe, row, &columns)
    }

    /// I8: a flush was answered, so nothing that was answered before it was asked for is volatile.
    pub(crate) fn flush_answered(&mut self, request: RequestId, result: Result<(), Fault>) {
        let seed = self.scene.seed;
        let asked = self.clients.flushes.remove(&request).expect("a flush under way");
        self.clients.answers.insert(request, result);
        if result.is_err() {
            assert!(self.scene.errors_allowed, "seed {seed}: a flush failed within tolerance");
            return;
        }
        if !self.scene.read_only {
            // What nobody has written in this run may lack anything still.
            self.check_written((0, self.geometry.capacity_sectors()), true, 1..=asked);
        }
        self.model.flushed(asked);
    }

    /// At rest: every member that is in holds exactly what geometry and parity say.
    pub(crate) fn check_members(&mut self) {
        let content = self.read_all();
        let expected = image(&self.scene.shape, &self.geometry, &content);
        for member in self.members() {
            let index = usize::from(member.0);
            let seen = &self.devices[index].seen;
            for (sector, data) in (0..).zip(seen.chunks_exact(SECTOR)) {
                assert!(
                    *data == expected[index][bytes(sector, 1)],
                    "seed {}: sector {sector} of {member:?} is not what it must be",
                    self.scene.seed
                );
            }
        }
    }

    /// After a power cut, straight from the devices: every copy of every sector is something that
    /// may be there; if nothing was under way, it is what it must be.
    pub(crate) fn check_devices_alone(&self, was_clean: bool) {
        let seed = self.scene.seed;
        for sector in 0..self.geometry.capacity_sectors() {
            for (slot, place) in places(&self.geometry, sector) {
                let data = &self.devices[slot.index()].durable[bytes(place.0, 1)];
                let version = version_of(sector, data);
                let version = version.unwrap_or_else(|| panic!("seed {seed}: {sector} is torn"));
                let allowed = match was_clean {
                    true => self.model.allowed(sector),
                    false => self.model.history(sector),
                };
                assert!(
                    allowed.contains(&version),
                    "seed {seed}: after the cut sector {sector} in slot {slot} is {version}, \
                     not one of {allowed:?}"
                );
            }
        }
    }
}
