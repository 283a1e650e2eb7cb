//! Arrays of memory members for tests, which are made, assembled and opened as the command line
//! does it.

use std::sync::Arc;

use braid_assembly::{Assembly, ProbedMember, assemble};
use braid_geometry::Level;
use braid_member::layer::{Faults, Faulty};
use braid_member::{Member, MemoryMember};
use braid_ondisk::{
    BadBlockLog, BadBlockLogError, BadRecord, Features, NewSuperblock, Role, Snippet, Superblock,
    Version, probe, probe_ranges, sample,
};
use braid_runtime::{Notice, OpenError, OpenMember, Options, Volume};

/// An array of memory members that outlives the volumes opened on it.
pub(crate) struct Array {
    pub(crate) devices: Vec<Arc<MemoryMember>>,
    pub(crate) faults: Vec<Faults>,
    doors: Vec<Arc<Faulty<Arc<MemoryMember>>>>,
}

pub(crate) const MEMBER_BYTES: u64 = 8 << 20;

impl Array {
    /// Makes `slots` zeroed members of a clean array.
    pub(crate) fn new(level: Level, slots: u16, chunk_sectors: u32) -> Self {
        Self::with_spares(level, (slots, 0), chunk_sectors)
    }

    /// As `new`, with spares in addition to the members in slots.
    pub(crate) fn with_spares(
        level: Level,
        (slots, spares): (u16, u16),
        chunk_sectors: u32,
    ) -> Self {
        Self::of(superblocks_with_spares(level, (slots, spares), chunk_sectors, MEMBER_BYTES))
    }

    /// As `with_spares`, of members without bad-block logs.
    pub(crate) fn without_logs(
        level: Level,
        (slots, spares): (u16, u16),
        chunk_sectors: u32,
    ) -> Self {
        let placed = (chunk_sectors, MEMBER_BYTES, false);
        Self::of(superblocks_as((Version::V1_2, level), (slots, spares), placed))
    }

    /// As `with_spares`, with metadata at the end: no sector is free before the data.
    pub(crate) fn without_room(
        level: Level,
        (slots, spares): (u16, u16),
        chunk_sectors: u32,
    ) -> Self {
        let placed = (chunk_sectors, MEMBER_BYTES, true);
        Self::of(superblocks_as((Version::V1_0, level), (slots, spares), placed))
    }

    fn of(superblocks: Vec<Superblock>) -> Self {
        let devices = superblocks.into_iter().map(|superblock| {
            let device = MemoryMember::new(MEMBER_BYTES);
            device
                .write_at(&superblock.to_bytes(), superblock.offset_bytes(), true)
                .expect("memory takes writes");
            Arc::new(device)
        });
        let devices: Vec<_> = devices.collect();
        let doors: Vec<_> =
            devices.iter().map(|device| Arc::new(Faulty::new(Arc::clone(device)))).collect();
        let faults = doors.iter().map(|door| door.faults()).collect();
        Self { devices, faults, doors }
    }

    pub(crate) fn assemble(&self) -> (Vec<ProbedMember>, Assembly) {
        let probed: Vec<ProbedMember> =
            (0..).zip(&self.devices).map(|(i, d)| probed(i, d)).collect();
        let assembly = assemble(&probed, &braid_assembly::Options::default());
        (probed, assembly)
    }

    /// Opens the array, with jobs that start by themselves.
    pub(crate) fn open_busy(&self, watch: impl Fn(Notice) + Send + Sync + 'static) -> Volume {
        let options = Options { clean_delay_ms: 20, ..Options::default() };
        self.open_with(&options, watch).expect("it opens")
    }

    /// Opens the array without jobs; its members can be made to fail through `faults`.
    pub(crate) fn open(&self, watch: impl Fn(Notice) + Send + Sync + 'static) -> Volume {
        self.try_open(watch).expect("it opens")
    }

    pub(crate) fn try_open(
        &self,
        watch: impl Fn(Notice) + Send + Sync + 'static,
    ) -> Result<Volume, OpenError> {
        let options = Options { clean_delay_ms: 20, jobs_paused: true, ..Options::default() };
        self.open_with(&options, watch)
    }

    pub(crate) fn open_with(
        &self,
        options: &Options,
        watch: impl Fn(Notice) + Send + Sync + 'static,
    ) -> Result<Volume, OpenError> {
        self.open_assembled(options, &braid_assembly::Options::default(), watch)
    }

    /// As `open_with`, with the operator's choices for assembly.
    pub(crate) fn open_assembled(
        &self,
        options: &Options,
        choices: &braid_assembly::Options,
        watch: impl Fn(Notice) + Send + Sync + 'static,
    ) -> Result<Volume, OpenError> {
        let (probed, _) = self.assemble();
        let assembly = assemble(&probed, choices);
        let members = self.doors.iter().zip(&probed).map(|(door, probed)| {
            let superblock = probed.probe.newest().expect("a member").clone();
            Some(OpenMember { device: Box::new(Arc::clone(door)), superblock })
        });
        let array = assembly.array.expect("an array that can be run");
        Volume::open(&array, members.collect(), options, watch)
    }
}

/// The superblocks of a clean array that was never used.
pub(crate) fn superblocks(
    level: Level,
    slots: u16,
    chunk_sectors: u32,
    member_bytes: u64,
) -> Vec<Superblock> {
    superblocks_with_spares(level, (slots, 0), chunk_sectors, member_bytes)
}

fn superblocks_with_spares(
    level: Level,
    (slots, spares): (u16, u16),
    chunk_sectors: u32,
    member_bytes: u64,
) -> Vec<Superblock> {
    let placed = (chunk_sectors, member_bytes, true);
    superblocks_as((Version::V1_2, level), (slots, spares), placed)
}

fn superblocks_as(
    (version, level): (Version, Level),
    (slots, spares): (u16, u16),
    (chunk_sectors, member_bytes, has_logs): (u32, u64, bool),
) -> Vec<Superblock> {
    let place = sample::place(version, level, chunk_sectors, member_bytes);
    let mut place = place.expect("8 MiB are enough");
    place.bad_block_log = place.bad_block_log.filter(|_| has_logs);
    let roles: Arc<[Role]> =
        (0..slots).map(Role::Active).chain((0..spares).map(|_| Role::Spare)).collect();
    let member = sample::member(level, chunk_sectors, slots, place);
    let superblock = |slot| {
        let mut device_uuid = [7; 16];
        device_uuid[0] = u8::try_from(slot).expect("few slots");
        Superblock::new_v1(&NewSuperblock {
            device_number: u32::from(slot),
            device_uuid,
            roles: Arc::clone(&roles),
            events: 0,
            ..member.clone()
        })
        .expect("a valid superblock")
    };
    (0..slots + spares).map(superblock).collect()
}

pub(crate) fn probed(index: usize, device: &dyn Member) -> ProbedMember {
    let snippets: Vec<Snippet> = probe_ranges(device.size_bytes())
        .into_iter()
        .map(|range| {
            let mut bytes = vec![0; usize::try_from(range.end - range.start).expect("short")];
            device.read_at(&mut bytes, range.start).expect("memory reads");
            Snippet { offset: range.start, bytes }
        })
        .collect();
    let probe = probe(device.size_bytes(), &snippets);
    let bad_blocks = probe.newest().map_or(Ok(Vec::new()), |newest| bad_block_log(device, newest));
    ProbedMember {
        label: format!("m{index}"),
        size_bytes: device.size_bytes(),
        identity: format!("m{index}"),
        probe,
        bad_blocks,
        bitmap: None,
        ppl: None,
        own_log: None,
        journal: None,
    }
}

fn bad_block_log(
    device: &dyn Member,
    superblock: &Superblock,
) -> Result<Vec<BadRecord>, BadBlockLogError> {
    let is_used = superblock.state.features.contains(Features::BAD_BLOCKS);
    let Some(place) = superblock.device.bad_block_log.filter(|_| is_used) else {
        return Ok(Vec::new());
    };
    let mut bytes = vec![0; usize::from(place.size_sectors) * 512];
    let at = superblock.bad_block_log_offset_bytes().expect("it has a place");
    device.read_at(&mut bytes, at).expect("memory reads");
    BadBlockLog::parse(&bytes, place)
}
