//! Setting the stage: an array with its members, shards and oracle, from a seed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use braid_engine::array::{
    Array, ArrayEffect, ArraySetup, DeviceRole, MemberId, MemberSetup, SuperblockState,
};
use braid_engine::request::{Regions, RequestId};
use braid_engine::{BadBlocks, BadRange, CacheConfig, CacheMode, Instant, Shard, Tuning};
use braid_geometry::{Geometry, Shape, Slot};

use crate::SECTOR;
use braid_testbed::content::bytes;

use crate::device::Device;
use crate::image::image;
use crate::memory::Payloads;
use crate::model::{FIRST, Model, fill};
use crate::random::Random;
use crate::world::{Clients, Clock, Event, Habits, ShardSide, Told, World};

/// The event count that every story begins with.
pub(crate) const EVENTS: u64 = 40;

/// Milliseconds of rest before an array turns clean.
pub(crate) const CLEAN_DELAY_MS: u64 = 200;

/// More stripes than that are never asked for.
pub(crate) const STRIPES_MAX: u32 = 40;

/// What a story begins with.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) shape: Shape,
    pub(crate) seed: u64,
    pub(crate) unit_sectors_max: u32,
    pub(crate) tuning: Tuning,
    pub(crate) shards: u16,
    /// Slots without a member.
    pub(crate) missing: Vec<u16>,
    pub(crate) spares: u16,
    pub(crate) read_only: bool,
    pub(crate) resync_offset: u64,
    /// A slot whose member holds what it should only below this sector.
    pub(crate) recovering: Option<(u16, u64)>,
    /// A slot whose member has ranges not to be read.
    pub(crate) bad_blocks: Option<(u16, Vec<BadRange>)>,
    /// Superblocks take more than one sector: they are written in waves.
    pub(crate) superblocks_tear: bool,
    /// Whether answers may be errors.
    pub(crate) errors_allowed: bool,
}

impl Scene {
    pub(crate) fn new(shape: Shape, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let scene = Self {
            shape,
            seed,
            unit_sectors_max: 128,
            tuning: Tuning {
                stripes: *random.pick(&[1, 2, 8]),
                mode: CacheMode::WriteThrough,
                ..Tuning::default()
            },
            shards: *random.pick(&[1, 2, 3]),
            missing: Vec::new(),
            spares: 0,
            read_only: false,
            resync_offset: u64::MAX,
            recovering: None,
            bad_blocks: None,
            superblocks_tear: seed % 4 == 3,
            errors_allowed: false,
        };
        if random.chance(60) { scene.write_back() } else { scene }
    }

    /// The same, answering writes when the members have them, with stripes as high as can be.
    pub(crate) fn write_through(mut self) -> Self {
        self.unit_sectors_max = 128;
        self.tuning.mode = CacheMode::WriteThrough;
        self
    }

    /// The same with a cache that answers early, in a manner that the seed chooses.
    pub(crate) fn write_back(mut self) -> Self {
        let mut random = Random::new(self.seed ^ 0xcac4e);
        self.unit_sectors_max = *random.pick(&[2, 8, 128]);
        self.tuning = Tuning { mode: CacheMode::WriteBack, ..any_tuning(&mut random) };
        self
    }

    /// What the superblocks say at the beginning.
    pub(crate) fn first_superblock(&self) -> SuperblockState {
        let slots = (0..self.shape.slots).filter(|slot| !self.missing.contains(slot));
        let member = |slot: u16| DeviceRole {
            member: MemberId(slot),
            device_number: slot,
            slot: Some(Slot(slot)),
        };
        let spares = self.shape.slots..self.shape.slots + self.spares;
        let spare = |id: u16| DeviceRole { member: MemberId(id), device_number: id, slot: None };
        SuperblockState {
            events: EVENTS,
            resync_offset: self.resync_offset,
            roles: slots.map(member).chain(spares.map(spare)).collect(),
        }
    }

    fn setup(&self, geometry: &Geometry, zero_is_fast: bool) -> ArraySetup {
        let member = |slot: u16| {
            let recovering = self.recovering.filter(|(recovering, _)| *recovering == slot);
            let bad = self.bad_blocks.clone().filter(|(bad, _)| *bad == slot);
            (!self.missing.contains(&slot)).then(|| MemberSetup {
                id: MemberId(slot),
                device_number: slot,
                recovered_sectors: recovering.map_or(u64::MAX, |(_, sectors)| sectors),
                bad_blocks: bad.map_or_else(BadBlocks::default, |(_, bad)| BadBlocks::new(bad)),
            })
        };
        let spares = self.shape.slots..self.shape.slots + self.spares;
        ArraySetup {
            geometry: geometry.clone(),
            slots: (0..self.shape.slots).map(member).collect(),
            spares: spares.map(|id| (MemberId(id), id)).collect(),
            events: EVENTS,
            resync_offset: self.resync_offset,
            read_only: self.read_only,
            shards: self.shards,
            zero_is_fast,
            clean_delay_ms: CLEAN_DELAY_MS,
            superblocks_tear: self.superblocks_tear,
        }
    }

    /// Devices whose content agrees everywhere, but for what the scene says.
    fn devices(&self, geometry: &Geometry) -> Vec<Device> {
        let mut content = vec![0; geometry.capacity_sectors() as usize * SECTOR];
        for (sector, out) in (0..).zip(content.chunks_exact_mut(SECTOR)) {
            fill(FIRST, sector, out);
        }
        let mut members = image(&self.shape, geometry, &content);
        if let Some((slot, sectors)) = self.recovering {
            members[usize::from(slot)][sectors as usize * SECTOR..].fill(0xAB);
        }
        for range in self.bad_blocks.iter().flat_map(|(_, ranges)| ranges) {
            let slot = self.bad_blocks.as_ref().map_or(0, |(slot, _)| *slot);
            members[usize::from(slot)][bytes(range.start.0, range.sectors)].fill(0xBA);
        }
        for slot in &self.missing {
            members[usize::from(*slot)].fill(0xCD);
        }
        members.resize_with(members.len() + usize::from(self.spares), Vec::new);
        let superblock = Arc::new(self.first_superblock());
        members.into_iter().map(|data| Device::new(data, Arc::clone(&superblock))).collect()
    }

    /// The world as this scene has it.
    pub(crate) fn open(&self) -> World {
        let geometry = Geometry::new(&self.shape).expect("a scene's shape is valid");
        let model = Model::new(geometry.capacity_sectors());
        let devices = self.devices(&geometry);
        self.open_with(devices, model)
    }

    /// The same on devices that have a past.
    pub(crate) fn open_with(&self, devices: Vec<Device>, model: Model) -> World {
        let mut random = Random::new(self.seed ^ 0x5ce7e);
        let geometry = Geometry::new(&self.shape).expect("a scene's shape is valid");
        let mut array = Array::new(self.setup(&geometry, random.chance(50)));
        let Some(ArrayEffect::Publish(view)) = array.poll_effect() else {
            panic!("the first effect is the first view")
        };
        let cache = CacheConfig {
            unit_sectors_max: self.unit_sectors_max,
            stripes_max: STRIPES_MAX,
            tuning: self.tuning,
        };
        let side = |_| {
            let shard = Shard::new(cache, Arc::clone(&view));
            let block_bytes = shard.block_sectors() as usize * SECTOR;
            ShardSide {
                arena: arena(&shard, &geometry, block_bytes),
                block_bytes,
                view: Arc::clone(&view),
                inbox: VecDeque::new(),
                reports: VecDeque::new(),
                shard,
            }
        };
        let nothing_held: fn(&Event) -> bool = |_| false;
        World {
            shards: (0..self.shards).map(side).collect(),
            regions: Regions::new(&geometry, self.shards),
            habits: Habits::new(&mut random, nothing_held),
            clock: Clock { step: 1, now: Instant(1_000_000_000) },
            pending: Vec::new(),
            payloads: Payloads::new(),
            clients: Clients {
                next: RequestId(1),
                flights: BTreeMap::new(),
                flushes: BTreeMap::new(),
                answers: BTreeMap::new(),
                kept: BTreeMap::new(),
                holds: BTreeMap::new(),
                early: BTreeMap::new(),
            },
            told: Told { notices: Vec::new(), out: BTreeSet::new(), clean_began: 0 },
            mishaps: Vec::new(),
            scene: self.clone(),
            geometry,
            random,
            array,
            devices,
            model,
        }
    }
}

/// Memory that nothing was written to: rubbish for the stripes, and nothing beside them, which costs less.
fn arena(shard: &Shard, geometry: &Geometry, block_bytes: usize) -> Vec<u8> {
    let mut arena = vec![0; shard.arena_blocks() as usize * block_bytes];
    let stripes = STRIPES_MAX as usize * 2 * usize::from(geometry.slots()) * block_bytes;
    let rubbish = stripes.min(arena.len());
    arena[..rubbish].fill(0x5A);
    arena
}

/// One way for a stripe cache to work.
pub(crate) fn any_tuning(random: &mut Random) -> Tuning {
    Tuning {
        stripes: *random.pick(&[1, 2, 8, STRIPES_MAX]),
        mode: *random.pick(&[CacheMode::WriteBack, CacheMode::WriteThrough]),
        bypass_threshold: *random.pick(&[0, 1, 3]),
        dirty_sectors_max: *random.pick(&[4, 64, 4000]),
        age_max_ms: *random.pick(&[1, 50, 1000]),
    }
}
