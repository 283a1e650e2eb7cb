//! Starts an engine on simulated disks, with the same steps as the runtime and the `braid` command.
//!
//! ```text
//!   bytes of disks ──probe──▶ superblocks ──assemble──▶ verdicts, array ──▶ Array, Shards
//! ```
//!
//! The engine's own `open` decides which settings an assembled array starts with, and which writes
//! members get before the start. Simulated disks do these writes, and a power cut can interrupt
//! them.

use std::collections::VecDeque;
use std::sync::Arc;

use braid_assembly::{AssembledArray, Assembly, GivenBitmapFile, Options, ProbedMember, assemble};
use braid_engine::array::{
    Array, ArrayEffect, ArrayView, Gate, MemberId, SuperblockState, UpdateTimes, apply_to,
};
use braid_engine::effect::{LogTicket, Report, SlowMembers};
use braid_engine::request::{Regions, ShardIndex};
use braid_engine::work::Work;
use braid_engine::{CacheConfig, CacheMode, Instant, Shard, Tuning, open};
use braid_geometry::Geometry;
use braid_ondisk::{
    BadBlockLog, BadBlockLogError, BadRecord, Bitmap, BitmapError, BitmapFile, Features,
    JournalLog, JournalLogError, OwnLog, PplLog, PplLogError, Snippet, Superblock, Timestamp,
    UnvalidatedBitmap, probe, probe_ranges,
};

use crate::content::{SECTOR, bytes};
use crate::disk::Disk;

/// A disk that takes part in the array. A [`MemberId`] is its index in the list of members.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) disk: usize,
    pub(crate) superblock: Superblock,
}

impl Member {
    /// Sector of the disk where its data area begins.
    pub(crate) fn data_offset(&self) -> u64 {
        self.superblock.device.data_offset_sectors
    }

    /// The sectors of the disk that hold its superblock.
    pub(crate) fn superblock_sectors(&self) -> std::ops::Range<u64> {
        let start = self.superblock.offset_bytes() / SECTOR as u64;
        start..start + (self.superblock.to_bytes().len() / SECTOR) as u64
    }

    /// The superblock for `state`: the sector where it belongs, and its bytes.
    pub(crate) fn superblock_for(
        &mut self,
        disks: &[Disk],
        id: MemberId,
        (state, time): (&SuperblockState, Timestamp),
    ) -> (u64, Vec<u8>) {
        let device_bytes = disks[self.disk].size_bytes();
        let applied = apply_to(&mut self.superblock, id, device_bytes, state, time);
        applied.expect("the array checks a shape before it sends it");
        (self.superblock.offset_bytes() / SECTOR as u64, self.superblock.to_bytes())
    }
}

pub(crate) enum Message {
    View(Arc<ArrayView>),
    Query,
    QueryTouched,
    WriteBack(u64),
    Tuning(Tuning),
    SlowMembers(Arc<SlowMembers>),
    Work(Work),
    Logged(LogTicket),
}

/// A shard, its memory, its unread messages, and its unread reports.
pub(crate) struct ShardSide {
    pub(crate) shard: Shard,
    pub(crate) arena: Vec<u8>,
    pub(crate) block_bytes: usize,
    pub(crate) view: Arc<ArrayView>,
    pub(crate) cache: CacheConfig,
    pub(crate) mode_at_start: CacheMode,
    /// The last step at which the shard could acknowledge a write early; `u64::MAX` while it can.
    pub(crate) early_until: u64,
    /// How many times in a row the shard asked for a timeout that was past already.
    pub(crate) unheeded: u32,
    /// The shard's dirty sectors when they were last checked.
    pub(crate) dirty: u64,
    /// The longest age limit of the cache in this run so far.
    pub(crate) age_before_ms: u64,
    pub(crate) inbox: VecDeque<Message>,
    pub(crate) reports: VecDeque<Report>,
}

/// The time of day, which never advances. Updates of superblocks still get increasing times.
pub(crate) const NOW: Timestamp =
    Timestamp { seconds: crate::create::MADE_AT_SECONDS, microseconds: 0 };

pub(crate) struct Machines {
    pub(crate) times: UpdateTimes,
    pub(crate) array: Array,
    pub(crate) shards: Vec<ShardSide>,
    pub(crate) members: Vec<Member>,
    pub(crate) regions: Regions,
}

impl ShardSide {
    /// Whether the shard may acknowledge a write early, by its view and settings.
    fn may_answer_early(&self, geometry: &Geometry) -> bool {
        let Geometry::Stripe(stripe) = geometry else { return false };
        let Self { view, cache, .. } = self;
        // A member under recovery counts as present, because its content below the recovery offset
        // is present.
        let present = view.slots.iter().flatten().count();
        let is_redundant =
            usize::from(stripe.slots()) - present < usize::from(stripe.parity_slots());
        let is_kept = cache.tuning.mode == CacheMode::WriteBack && !view.keeps_journal;
        is_kept && view.gate == Gate::Open && is_redundant
    }

    /// A message at step `now` may have allowed or forbidden early acknowledgement: notes which.
    pub(crate) fn note_early(&mut self, geometry: &Geometry, now: u64) {
        if self.may_answer_early(geometry) {
            self.early_until = u64::MAX;
        } else if self.early_until == u64::MAX {
            self.early_until = now;
        }
    }
}

impl Machines {
    pub(crate) fn time_of(&mut self, state: &SuperblockState) -> Timestamp {
        self.times.of(state.events, NOW)
    }

    /// The next timeout of the array or of a shard.
    pub(crate) fn due(&self) -> Option<Instant> {
        let shards = self.shards.iter().filter_map(|side| side.shard.poll_timeout());
        shards.chain(self.array.poll_timeout()).min()
    }
}

/// The settings with which the array runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) read_only: bool,
    pub(crate) shards: u16,
    pub(crate) cache: CacheConfig,
    pub(crate) jobs_paused: bool,
    pub(crate) zero_is_fast: bool,
    pub(crate) clean_delay_ms: u64,
}

pub(crate) fn probe_disk(disk: &Disk, index: usize) -> ProbedMember {
    let size_bytes = disk.size_bytes();
    let snippet = |range: std::ops::Range<u64>| Snippet {
        offset: range.start,
        bytes: disk.seen[range.start as usize..range.end as usize].to_vec(),
    };
    let snippets: Vec<Snippet> = probe_ranges(size_bytes).into_iter().map(snippet).collect();
    let found = probe(size_bytes, &snippets);
    let bitmap = found.newest().and_then(|superblock| bitmap(disk, superblock));
    let found_ppl = found.newest().and_then(|superblock| parity_log(disk, superblock));
    let own_log = found.newest().and_then(|superblock| own_log(disk, superblock));
    let bad_blocks = found.newest().map_or(Ok(Vec::new()), |one| bad_block_log(disk, one));
    ProbedMember {
        label: format!("disk{index}"),
        size_bytes,
        identity: format!("disk{index}"),
        bad_blocks,
        bitmap,
        ppl: found_ppl,
        own_log,
        journal: found.newest().and_then(|superblock| journal(disk, superblock)),
        probe: found,
    }
}

pub(crate) fn journal(
    disk: &Disk,
    superblock: &Superblock,
) -> Option<Result<JournalLog, JournalLogError>> {
    superblock.read_journal(&mut |start, bytes| {
        let start = usize::try_from(start).expect("disks are in memory");
        bytes.copy_from_slice(&disk.seen[start..start + bytes.len()]);
        true
    })
}

pub(crate) fn bitmap(disk: &Disk, superblock: &Superblock) -> Option<Result<Bitmap, BitmapError>> {
    let start = usize::try_from(superblock.bitmap_offset_bytes()?).expect("disks are in memory");
    let bytes = disk.seen.get(start..)?;
    let found = UnvalidatedBitmap::recognise(bytes)?.validate(&superblock.uuid_as_stored());
    Some(found.and_then(|head| Bitmap::read(head, bytes)))
}

fn parity_log(disk: &Disk, superblock: &Superblock) -> Option<Result<PplLog, PplLogError>> {
    let (start, place) = superblock.ppl_area()?;
    let start = usize::try_from(start).expect("disks are in memory");
    let bytes = disk.seen.get(start..start + place.used_bytes() as usize)?;
    Some(PplLog::read(bytes, place, &superblock.uuid_as_stored()))
}

/// The own parity log on a disk, if the log's head exists.
pub(crate) fn own_log(disk: &Disk, superblock: &Superblock) -> Option<OwnLog> {
    let read = |start: u64, length_bytes: u64| -> Result<Vec<u8>, std::convert::Infallible> {
        let start = usize::try_from(start).expect("disks are in memory");
        Ok(disk.seen[start..start + length_bytes as usize].to_vec())
    };
    let Ok(found) = superblock.read_own_log(read);
    found
}

/// The records of a disk's bad-block log; none unless the superblock says that the log is in use.
fn bad_block_log(disk: &Disk, superblock: &Superblock) -> Result<Vec<BadRecord>, BadBlockLogError> {
    let is_used = superblock.state.features.contains(Features::BAD_BLOCKS);
    let place = superblock.device.bad_block_log.filter(|_| is_used);
    let Some(place) = place else { return Ok(Vec::new()) };
    let own = (superblock.offset_bytes() / SECTOR as u64) as i64;
    let start = (own + i64::from(place.offset_sectors)) as u64;
    BadBlockLog::parse(&disk.seen[bytes(start, u64::from(place.size_sectors))], place)
}

/// Assembles the presented disks, in this order. A bitmap file must be the last of them.
pub(crate) fn assemble_disks(disks: &[Disk], presented: &[usize]) -> (Vec<ProbedMember>, Assembly) {
    assemble_as(disks, presented, None)
}

/// Assembles the presented disks. With `accept_risk` the operator accepts that so many stripes can
/// read wrong.
pub(crate) fn assemble_as(
    disks: &[Disk],
    presented: &[usize],
    accept_risk: Option<u64>,
) -> (Vec<ProbedMember>, Assembly) {
    let is_file = |index: &&usize| UnvalidatedBitmap::recognise(&disks[**index].seen).is_some();
    let bitmap_file = presented.last().filter(is_file);
    let members = presented.iter().filter(|index| Some(*index) != bitmap_file);
    let probed: Vec<ProbedMember> =
        members.map(|index| probe_disk(&disks[*index], *index)).collect();
    let bitmap_file = bitmap_file.map(|index| given_file(&disks[*index]));
    let assembly = assemble(&probed, &Options { bitmap_file, accept_risk, ..Options::default() });
    (probed, assembly)
}

/// Assembles the presented disks. The state folder has copies of windows of the arrays in
/// `window_copies`.
pub(crate) fn assemble_with_copies(
    disks: &[Disk],
    presented: &[usize],
    window_copies: Vec<[u8; 16]>,
) -> (Vec<ProbedMember>, Assembly) {
    let probed: Vec<ProbedMember> =
        presented.iter().map(|index| probe_disk(&disks[*index], *index)).collect();
    let assembly = assemble(&probed, &Options { window_copies, ..Options::default() });
    (probed, assembly)
}

pub(crate) fn given_file(disk: &Disk) -> GivenBitmapFile {
    let read = |start: u64, length_bytes: u64| -> Result<Vec<u8>, std::convert::Infallible> {
        let start = usize::try_from(start).expect("disks are in memory");
        Ok(disk.seen[start..start + length_bytes as usize].to_vec())
    };
    let Ok(file) = BitmapFile::read(disk.size_bytes(), read);
    GivenBitmapFile { label: "file".to_owned(), file }
}

/// The superblocks of the presented disks, in order. With a bitmap file, the last one stands in for
/// the superblock that the file lacks.
pub(crate) fn superblocks(
    probed: &[ProbedMember],
    array: Option<&AssembledArray>,
) -> Vec<Option<Superblock>> {
    let file = array.and_then(|array| Some((&array.newest, array.bitmap_file.as_ref()?)));
    let stand_in = file.map(|(newest, file)| Some(newest.for_bitmap_file(file.size_bytes)));
    probed.iter().map(|member| member.probe.newest().cloned()).chain(stand_in).collect()
}

pub(crate) fn start(
    assembled: &AssembledArray,
    superblocks: Vec<Option<Superblock>>,
    presented: &[usize],
    mut manner: Manner,
) -> Machines {
    if assembled.journal.is_some() {
        // A journal stores whole blocks of 8 sectors.
        manner.cache.unit_sectors_max = manner.cache.unit_sectors_max.max(8);
    }
    let opening = opening_of(assembled, &superblocks, manner);
    start_opening(opening, assembled, superblocks, presented, manner)
}

/// The input of the machines of an assembled array.
///
/// # Panics
/// If assembly chose a member that is not presented, or a reshape that cannot continue.
pub(crate) fn opening_of(
    assembled: &AssembledArray,
    superblocks: &[Option<Superblock>],
    manner: Manner,
) -> open::Opening {
    let wanted = open::OpeningSettings {
        read_only: manner.read_only,
        shards: manner.shards,
        cache: manner.cache,
        jobs_paused: manner.jobs_paused,
        zero_is_fast: manner.zero_is_fast,
        clean_delay_ms: manner.clean_delay_ms,
    };
    let opening = open::opening(assembled, |index| superblocks[index].as_ref(), &wanted);
    opening.expect("assembly chooses members that are there, once each")
}

/// Makes the machines of an opening. During a reshape the shards of the new shape follow the shards
/// of the old shape.
pub(crate) fn start_opening(
    opening: open::Opening,
    assembled: &AssembledArray,
    mut superblocks: Vec<Option<Superblock>>,
    presented: &[usize],
    manner: Manner,
) -> Machines {
    let members = opening.members.iter().map(|joined| Member {
        disk: presented[joined.index],
        superblock: superblocks[joined.index].take().expect("assembly chose it"),
    });
    let members = members.collect();
    let regions = opening.setup.regions;
    let mut array = Array::new(opening.setup);
    let Some(ArrayEffect::Publish(view)) = array.poll_effect() else {
        unreachable!("an array's first effect is its first view")
    };
    let after = view.after.as_ref().unwrap_or(&view);
    let of = |index| if regions.is_after(ShardIndex(index)) { after } else { &view };
    let shards = (0..regions.shards()).map(|index| shard_side(manner, of(index)));
    let times = UpdateTimes::after(&assembled.newest);
    Machines { times, shards: shards.collect(), array, members, regions }
}

fn shard_side(manner: Manner, view: &Arc<ArrayView>) -> ShardSide {
    let shard = Shard::new(manner.cache, Arc::clone(view));
    let block_bytes = shard.block_sectors() as usize * SECTOR;
    ShardSide {
        arena: vec![0; shard.arena_blocks() as usize * block_bytes],
        block_bytes,
        view: Arc::clone(view),
        cache: manner.cache,
        mode_at_start: manner.cache.tuning.mode,
        early_until: 0,
        unheeded: 0,
        dirty: 0,
        age_before_ms: manner.cache.tuning.age_max_ms,
        inbox: VecDeque::new(),
        reports: VecDeque::new(),
        shard,
    }
}
