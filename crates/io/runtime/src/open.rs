//! From an assembled array and its opened members to a running [`Volume`].

use braid_assembly::{AssembledArray, Occupant, journal_sectors_min};
use braid_dispatch::Combiner;
use braid_engine::array::{
    Array, ArrayEffect, ArrayView, JobAllowance, MemberId, MemberSetup, Notice,
};
use braid_engine::cause::RequestKind;
use braid_engine::open::{
    MemberSuperblock, Opening, OpeningMember, OpeningSettings, can_miss, levelling, opening,
};
use braid_engine::{CacheConfig, CacheMode, Instant, Shard};
use braid_geometry::Geometry;
use braid_member::{DirectError, Member, MemberError};
use braid_ondisk::{JOURNAL_META_BYTES, ReshapePoint};

use crate::alarm::Alarm;
use crate::arena::ShardMemory;
use crate::cache::{Cache, room_bytes};
use crate::clock::Clock;
use crate::core::{Clients, Core, End, ShardCell};
use crate::events::{ArrayEvent, Machine};
use crate::executor::fault;
use crate::hand_over::HandOver;
use crate::log;
use crate::looks::Looks;
use crate::members::Members;
use crate::members::handle;
use crate::open_member::{OpenError, OpenMember};
use crate::options::{Direct, Options};
use crate::pacing::Pacing;
use crate::requests::Requests;
use crate::sync::{Arc, Mutex};
use crate::turns::Turns;
use crate::updates::Updates;
use crate::volume::{Opened, Volume};
use crate::watch::Watch;
use crate::workers::Drivers;

impl Volume {
    /// Starts the array. `members` have the indices of assembly's input. A member that assembly did
    /// not choose is dropped, or may be `None`. `watch` receives every notice for the operator.
    ///
    /// # Errors
    /// A chosen member is not open or its superblock cannot be written, the array is read-only, or
    /// no thread starts.
    pub fn open(
        assembled: &AssembledArray,
        members: Vec<Option<OpenMember>>,
        options: &Options,
        watch: impl Fn(Notice) + Send + 'static,
    ) -> Result<Self, OpenError> {
        let volume = Self::new(Opened::open(assembled, members, options, watch)?);
        volume.say_started(options.shards);
        Ok(volume)
    }

    fn say_started(&self, shards: u16) {
        let geometry = self.geometry();
        let level = geometry.level().to_string();
        let shape = (level.as_str(), geometry.slots(), self.missing_count());
        let made = (self.size_bytes(), self.is_read_only(), shards);
        log::started(shape, made, self.core().workers.is_some());
    }
}

impl Opened {
    pub(crate) fn open(
        assembled: &AssembledArray,
        mut members: Vec<Option<OpenMember>>,
        options: &Options,
        watch: impl Fn(Notice) + Send + 'static,
    ) -> Result<Self, OpenError> {
        let wanted = options.clone();
        if let Some(reason) = assembled.read_only.as_ref().filter(|_| !options.read_only) {
            return Err(OpenError::ReadOnly { reason: reason.to_string() });
        }
        // A journal needs whole blocks, and a journal may be added while the array runs.
        let may_have = journal_sectors_min(&assembled.geometry).is_some();
        let unit_min = if may_have { JOURNAL_META_BYTES } else { 0 };
        let unit_min = u32::try_from(unit_min).expect("4 KiB");
        let cache = Cache { unit_bytes: options.cache.unit_bytes.max(unit_min), ..options.cache };
        let mut options = Options { cache, ..options.clone() };
        if assembled.reshape.is_some() {
            // In a reshape no write is acknowledged early: the cache names a write by its position
            // in one shape.
            (options.cache.mode, options.cache_file) = (CacheMode::WriteThrough, None);
        }
        let options = &options;
        let not_recorded = bring_level(assembled, &mut members, options)?;
        let through_page_cache =
            go_direct(open_devices(&members), (options.direct, options.read_only))?;
        let device = |slot: &Occupant| members.get(slot.member)?.as_ref().map(|open| &open.device);
        let mut devices = assembled.occupants().filter_map(device);
        let zero_is_fast = devices.all(|device| device.can_zero_fast());
        let manner = OpeningSettings {
            read_only: options.read_only,
            shards: options.shards,
            cache: CacheConfig {
                cached_blocks_max: options.cache_file.as_ref().map(|file| file.blocks()),
                ..options.cache.config(&assembled.geometry, options.shards, room_bytes())
            },
            jobs_paused: options.jobs_paused,
            zero_is_fast,
            clean_delay_ms: options.clean_delay_ms,
        };
        if let (None, Some(copy), false) =
            (&assembled.reshape, &options.window_copy, options.read_only)
            && let Err(error) = copy.remove()
        {
            log::no_window_copy(&error);
        }
        // md may have begun the reshape. Without the copy file windows in place fail; others move.
        let reshape_point = ReshapePoint::of(&assembled.newest);
        if let (Some(point), Some(copy), false) =
            (reshape_point, &options.window_copy, options.read_only)
            && let Err(error) = copy.prepare_for(point)
        {
            log::no_window_copy(&error);
        }
        let of = |index: usize| members.get(index)?.as_ref().map(|member| &member.superblock);
        let mut opening = opening(assembled, of, &manner)?;
        let copied = match (&mut opening.setup.reshape, &options.window_copy, reshape_point) {
            (Some(reshape), Some(copy), Some(point)) if reshape.is_in_place() => {
                let copied = copy.at(point).map_err(|source| OpenError::WindowCopy {
                    path: copy.path().to_path_buf(),
                    source,
                })?;
                reshape.copied = copied.as_ref().map(|one| one.sectors.clone());
                copied
            }
            _ => None,
        };
        if copied.is_some() && options.read_only {
            let reason = "a part of it must move first, from its copy".to_owned();
            return Err(OpenError::ReadOnly { reason });
        }
        let not_recorded = names(&opening, not_recorded);
        let joining = joining(&opening, members);
        let has_file = joining.iter().any(|one| one.open.device.raw().is_some());
        let workers = Drivers::start(options, (has_file, opening.setup.regions.shards()))
            .map_err(OpenError::Ring)?;
        let geometry = served_geometry(assembled);
        let config = manner.cache;
        let regions = opening.setup.regions;
        let mut array = Array::new(opening.setup);
        let Some(ArrayEffect::Publish(view)) = array.poll_effect() else {
            unreachable!("an array's first effect is its first view");
        };
        if options.consenter.is_some() {
            array.handle_gives_consent(Instant::default(), true);
        }
        // A job obeys its allowance from the start.
        array.handle_job_allowance(Instant::default(), JobAllowance::default());
        let clients = Clients::new(regions, HandOver::new(options.hand_over_bytes));
        let of_shape = |view: &Arc<ArrayView>, config: CacheConfig| {
            let shard = || Shard::new(config, Arc::clone(view));
            let cell = |_| cell((shard(), &joining), &clients.requests);
            (0..options.shards).map(cell).collect::<Result<Vec<_>, _>>()
        };
        let mut shards = of_shape(&view, config)?;
        if let Some(after) = &view.after {
            let after_config = options.cache.config(&after.geometry, options.shards, room_bytes());
            shards.extend(of_shape(after, after_config)?);
        }
        let turns = Turns::new(options.scheduling.turns, usize::from(regions.shards()));
        let cache = &options.cache;
        turns.set_cache(cache.answers_early(&geometry), cache.dirty_sectors_max());
        let core = Arc::new(Core {
            shards,
            array: Combiner::new(array),
            members: Members::new(options.threads_per_member.max(1)),
            view: Mutex::new(Arc::new(view.of_all_members().clone())),
            clients,
            kernel: braid_parity::kernel(),
            clock: Clock::new(),
            alarm: Alarm::new(regions.shards()),
            looks: Looks::default(),
            turns,
            pacing: Pacing::new(options.job_pace),
            scheduling: Mutex::default(),
            tuning: Mutex::new(config.tuning),
            sit_out: Mutex::new(options.sit_out),
            patience: Mutex::new(options.patience),
            watch: Watch::start(watch)?,
            end: End::default(),
            membership: Mutex::default(),
            updates: Updates::new(&assembled.newest, options.consenter.clone()),
            cache_file: options.cache_file.clone(),
            window_copy: options.window_copy.clone(),
            copied_window: Mutex::new(copied),
            reshape_point,
            workers,
        });
        begin(&core, joining)?;
        core.array.push(ArrayEvent::ReadErrorLimit(options.read_errors));
        core.array.push(ArrayEvent::Patience(options.patience));
        // The first turn begins a job if one is due.
        core.array.push(ArrayEvent::Timeout);
        core.drive(Machine::Array);
        core.schedule(|chosen| chosen.clone_from(&options.scheduling));
        not_recorded.into_iter().for_each(|(id, not_recorded)| lose(&core, id, &not_recorded));
        let made = (options, zero_is_fast, config.stripes_max);
        Ok(Self::new(core, geometry, made, wanted, through_page_cache))
    }
}

/// The geometry whose size clients see: of the two shapes of a reshape, the one that holds less.
fn served_geometry(assembled: &AssembledArray) -> Geometry {
    let Some(reshape) = &assembled.reshape else { return assembled.geometry.clone() };
    let shapes = [&reshape.before, &reshape.after].into_iter();
    let geometries = shapes.map(|shape| Geometry::new(shape).expect("assembly made it"));
    geometries.min_by_key(Geometry::capacity_sectors).expect("there are two")
}

/// A member whose superblock could not be written: its index in the input of assembly, then the
/// offset, length and error of the write.
type UnrecordedMember = (usize, (u64, u64), MemberError);

/// Reports a member whose superblock could not be written as lost from the start.
fn lose(core: &Arc<Core>, id: MemberId, (_, range, error): &UnrecordedMember) {
    let members = core.members.load();
    let member = members.get(id).expect("it was just taken in");
    let cause = fault::cause(member, RequestKind::Superblock, *range, *error);
    core.array.push(ArrayEvent::MemberLost(cause));
    core.drive(Machine::Array);
}

/// Maximum sectors of stripes that are computed before they are written, for members in memory.
/// This many sectors stay in a processor's own cache until the write.
const WARM_SECTORS_MAX: usize = 512;

fn cell(
    (shard, members): (Shard, &[JoiningMember]),
    requests: &Arc<Requests>,
) -> Result<ShardCell, OpenError> {
    let (blocks, block_sectors) = (shard.arena_blocks(), shard.block_sectors());
    let memory = ShardMemory::new(blocks, block_sectors, Arc::clone(requests));
    let memory = memory.map_err(OpenError::Memory)?;
    // Members that wait for a device get all writes of a step together: adjacent writes merge.
    let is_memory = members.iter().all(|one| handle::is_memory(&*one.open.device));
    let stripe_sectors = block_sectors as usize * members.len();
    let warm = (WARM_SECTORS_MAX / stripe_sectors.max(1)).max(1);
    let computations_max = if is_memory { warm } else { usize::MAX };
    Ok(ShardCell { combiner: Combiner::new(shard), memory, computations_max })
}

/// Flushes the superblocks that were read, and updates older members' superblocks to the newest
/// state. Returns the members whose superblock could not be updated: they are lost.
fn bring_level(
    assembled: &AssembledArray,
    members: &mut [Option<OpenMember>],
    options: &Options,
) -> Result<Vec<UnrecordedMember>, OpenError> {
    if options.read_only {
        return Ok(Vec::new());
    }
    for slot in assembled.occupants() {
        let member = members.get(slot.member).and_then(Option::as_ref);
        // A killed process may have left a superblock in a cache. Assembly read and believed that
        // superblock, and a power cut would lose it. A member that fails this flush fails every
        // later one.
        let _fails_again = member.map(|member| member.device.flush());
    }
    let of = |index: usize| members.get(index)?.as_ref().map(|member| &member.superblock);
    let mut not_recorded = Vec::new();
    // The writes go one after the other, so that a power cut tears at most one superblock.
    for levelled in levelling(assembled, of).into_iter().flatten() {
        let index = levelled.0;
        let member = members[index].as_mut().expect("its superblock was just looked at");
        let is_known = |not_recorded: &[UnrecordedMember]| {
            not_recorded.iter().any(|(other, ..)| *other == index)
        };
        if !is_known(&not_recorded)
            && let Err((range, source)) = bring_one_level(member, &levelled)
        {
            not_recorded.push((index, range, source));
            let indices: Vec<usize> = not_recorded.iter().map(|(index, ..)| *index).collect();
            if !can_miss(assembled, &indices) {
                return Err(OpenError::NotRecorded { index, source });
            }
        }
    }
    Ok(not_recorded)
}

/// Writes a superblock before the start, with one retry. An error comes with the offset and length
/// of the write.
fn bring_one_level(
    member: &mut OpenMember,
    (_, superblock): &MemberSuperblock,
) -> Result<(), ((u64, u64), MemberError)> {
    let bytes = superblock.to_bytes();
    let range = (superblock.offset_bytes(), bytes.len() as u64);
    let write = || member.device.write_at(&bytes, range.0, true);
    write().or_else(|_| write()).map_err(|error| (range, error))?;
    member.superblock = superblock.clone();
    Ok(())
}

/// Devices with their index in the input of assembly.
fn open_devices(members: &[Option<OpenMember>]) -> impl Iterator<Item = (usize, &dyn Member)> {
    let members = members.iter().enumerate();
    members.filter_map(|(index, member)| Some((index, &*member.as_ref()?.device)))
}

/// Switches members to direct I/O as `direct` demands. Returns the members that refused although
/// `direct` allows that, each with the error.
fn go_direct<'a>(
    devices: impl Iterator<Item = (usize, &'a dyn Member)>,
    (direct, read_only): (Direct, bool),
) -> Result<Vec<(usize, DirectError)>, OpenError> {
    let mut left = Vec::new();
    for (index, device) in devices {
        match (direct.apply(device, read_only), direct) {
            (Err(source), Direct::On) => return Err(OpenError::Direct { index, source }),
            (Err(source), _) => left.push((index, source)),
            (Ok(()), _) => {}
        }
    }
    Ok(left)
}

/// The names of the members whose superblocks could not be updated.
fn names(
    opening: &Opening,
    not_recorded: Vec<UnrecordedMember>,
) -> Vec<(MemberId, UnrecordedMember)> {
    let joined = |index: usize| opening.members.iter().position(|one| one.index == index);
    let name = |not_recorded: UnrecordedMember| {
        let place = u16::try_from(joined(not_recorded.0)?).expect("members have 16-bit names");
        Some((MemberId(place), not_recorded))
    };
    not_recorded.into_iter().filter_map(name).collect()
}

struct JoiningMember {
    id: MemberId,
    open: OpenMember,
    slot: Option<u16>,
}

fn joining(opening: &Opening, mut members: Vec<Option<OpenMember>>) -> Vec<JoiningMember> {
    let join = |(id, joined): (u16, &OpeningMember)| {
        let open = members[joined.index].take().expect("its superblock was just looked at");
        let is_it = |setup: &Option<MemberSetup>| setup.as_ref().is_some_and(|one| one.id.0 == id);
        let slot = (0..).zip(&opening.setup.slots).find(|(_, setup)| is_it(setup));
        let slot = slot.map(|(slot, _)| slot);
        JoiningMember { id: MemberId(id), open, slot }
    };
    (0..).zip(&opening.members).map(join).collect()
}

/// Registers the members and starts the alarm. If a thread cannot be started, the running threads
/// end and their devices close.
fn begin(core: &Arc<Core>, joining: Vec<JoiningMember>) -> std::io::Result<()> {
    let begun = joining.into_iter().try_for_each(|JoiningMember { id, open, slot }| {
        core.register_member(id, (open.device, open.superblock), slot)
    });
    begun.and_then(|()| core.keep_time()).inspect_err(|_| {
        core.members.stop();
        core.alarm.stop();
        core.end.stop_hearing();
        core.members.join();
        core.end.join();
        core.unregister_members();
    })
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use braid_member::{Identity, MemberKind, MemoryMember};

    /// A device that identifies as a block device and has no direct I/O.
    struct Stubborn(MemoryMember, Identity);

    impl Member for Stubborn {
        fn size_bytes(&self) -> u64 {
            self.0.size_bytes()
        }
        fn identity(&self) -> &Identity {
            &self.1
        }
        fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<(), MemberError> {
            self.0.read_at(buffer, offset_bytes)
        }
        fn write_at(&self, buffer: &[u8], offset: u64, durable: bool) -> Result<(), MemberError> {
            self.0.write_at(buffer, offset, durable)
        }
        fn flush(&self) -> Result<(), MemberError> {
            self.0.flush()
        }
        fn zero(&self, offset: u64, length: u64, may_punch: bool) -> Result<(), MemberError> {
            self.0.zero(offset, length, may_punch)
        }
        fn can_zero_fast(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_device_that_cannot_go_past_the_page_cache_is_named_or_refused() {
        let memory = MemoryMember::new(1 << 20);
        let identity = Identity { kind: MemberKind::BlockDevice, ..memory.identity().clone() };
        let device = Stubborn(memory, identity);
        let go = |direct| go_direct([(1, &device as &dyn Member)].into_iter(), (direct, false));
        assert_eq!(go(Direct::Off).expect("none"), []);
        let left = go(Direct::Auto).expect("it may");
        assert_eq!(left, [(1, DirectError::NotADevice)]);
        let refused = go(Direct::On).expect_err("it must");
        assert!(matches!(refused, OpenError::Direct { index: 1, .. }));
        let identity = Identity { kind: MemberKind::File, ..device.1.clone() };
        let file = Stubborn(MemoryMember::new(1 << 20), identity);
        assert_eq!(
            Direct::Auto.apply(&file, false),
            Ok(()),
            "a file may be used through the page cache"
        );
    }
}
