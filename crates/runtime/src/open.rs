//! From an assembled array and its opened members to a running [`Volume`].

use std::sync::Arc;
use std::thread;

use braid_assembly::AssembledArray;
use braid_engine::array::{
    Array, ArrayEffect, ArraySetup, MemberId, MemberSetup, Notice, level_with,
};
use braid_engine::{BadBlocks, BadRange, Shard, ShardConfig};
use braid_geometry::{Geometry, MemberSector, SECTOR_BYTES};
use braid_member::Member;
use braid_ondisk::Superblock;

use crate::arena::ShardMemory;
use crate::clock::{Clock, seconds_since_1970};
use crate::combiner::Combiner;
use crate::core::{Core, End, ShardCell};
use crate::member_threads::{self, MemberQueue};
use crate::options::Options;
use crate::requests::Requests;
use crate::timer::{self, Alarm};
use crate::volume::Volume;
use crate::watch::Watch;

/// A member as the caller opened it: the same index as in the list that assembly was given.
pub struct OpenMember {
    /// The device, opened for writing unless the array is read-only.
    pub device: Box<dyn Member>,
    /// Its validated superblock.
    pub superblock: Superblock,
}

/// Why an array could not be started.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Assembly chose a member that the caller did not open.
    #[error("member {index} was chosen by assembly but is not open")]
    NotOpen {
        /// Its index.
        index: usize,
    },
    /// Two members have one number in the superblocks' table of roles.
    #[error("two members have the device number {number}")]
    NumberTwice {
        /// The number.
        number: u16,
    },
    /// Threads could not be started.
    #[error("no thread could be started")]
    Thread(#[from] std::io::Error),
    /// Assembly allows reading only.
    #[error("this array may only be read: {reason}")]
    ReadOnly {
        /// Why.
        reason: String,
    },
}

/// Members that take part, by [`MemberId`].
struct Roster {
    queues: Vec<Arc<MemberQueue>>,
    slots: Vec<Option<MemberSetup>>,
    spares: Vec<(MemberId, u16)>,
    zero_is_fast: bool,
}

impl Volume {
    /// Starts the array. `members` are indexed as assembly's input was; those that it did not
    /// choose may be `None` and are dropped. `watch` hears of everything a person wants to know.
    ///
    /// # Errors
    /// A chosen member that is not open, an array that may only be read, or no threads.
    pub fn open(
        assembled: &AssembledArray,
        members: Vec<Option<OpenMember>>,
        options: &Options,
        watch: impl Fn(Notice) + Send + 'static,
    ) -> Result<Self, OpenError> {
        if let Some(reason) = assembled.read_only.as_ref().filter(|_| !options.read_only) {
            return Err(OpenError::ReadOnly { reason: reason.to_string() });
        }
        let mut members = members;
        if !options.read_only && crate::volume::keeps_intent(&assembled.geometry) {
            bring_level(assembled, &mut members);
        }
        let roster = roster(assembled, members)?;
        let geometry = assembled.geometry.clone();
        let zero_is_fast = roster.zero_is_fast;
        let mut array = Array::new(ArraySetup {
            geometry: geometry.clone(),
            slots: roster.slots,
            spares: roster.spares,
            // The first update counts one up from here.
            events: assembled.newest.state.events.max(assembled.events_next_min.saturating_sub(1)),
            resync_offset: resync_offset(assembled),
            read_only: options.read_only,
            shards: options.shards,
            zero_is_fast,
            clean_delay_ms: options.clean_delay_ms,
        });
        let Some(ArrayEffect::Publish(view)) = array.poll_effect() else {
            unreachable!("an array's first effect is its first view");
        };
        let requests = Arc::new(Requests::default());
        let config = ShardConfig { stripes: stripes(&geometry, options), geometry };
        let cell = |_| {
            let shard = Shard::new(config.clone(), Arc::clone(&view));
            let memory = ShardMemory::new(
                shard.arena_blocks(),
                shard.block_sectors(),
                Arc::clone(&requests),
            );
            ShardCell { combiner: Combiner::new(shard), memory }
        };
        let shards = (0..options.shards).map(cell).collect();
        let core = Arc::new(Core {
            shards,
            array: Combiner::new(array),
            members: roster.queues,
            requests,
            kernel: braid_parity::kernel(),
            clock: Clock::new(),
            alarm: Alarm::default(),
            watch: Watch::start(watch)?,
            end: End::default(),
        });
        let threads = spawn(&core, options)?;
        Ok(Self::new(core, config.geometry, (options.read_only, zero_is_fast), threads))
    }
}

/// Brings members that are one event behind level with the newest, before anything counts on. One
/// that cannot be written now will fail the next update as well, and be put out by it.
fn bring_level(assembled: &AssembledArray, members: &mut [Option<OpenMember>]) {
    let now = seconds_since_1970();
    let (newest, resync_offset) = (&assembled.newest, assembled.resync_offset);
    for occupant in assembled.slots.iter().flatten() {
        let Some(Some(member)) = members.get_mut(occupant.member) else { continue };
        let update = level_with(&member.superblock, newest, resync_offset, now);
        let Some(update) = update else { continue };
        let mut superblock = member.superblock.clone();
        superblock.apply(&update);
        let bytes = superblock.to_bytes();
        if member.device.write_at(&bytes, superblock.offset_bytes(), true).is_ok() {
            member.superblock = superblock;
        }
    }
}

/// Where redundancy agrees up to; levels without redundancy have nothing to agree.
fn resync_offset(assembled: &AssembledArray) -> u64 {
    let accepted = assembled.accepted_risk.is_some();
    let keeps = crate::volume::keeps_intent(&assembled.geometry);
    if accepted || !keeps { u64::MAX } else { assembled.resync_offset }
}

/// As many stripes as fit into the memory that was allowed, within reason.
fn stripes(geometry: &Geometry, options: &Options) -> u16 {
    let unit_bytes = u64::from(geometry.chunk_sectors().clamp(1, 128)) * SECTOR_BYTES;
    let stripe_bytes = 2 * unit_bytes * u64::from(geometry.slots());
    let count = options.stripe_memory_bytes as u64 / stripe_bytes;
    u16::try_from(count.clamp(4, 1024)).expect("clamped")
}

fn roster(
    assembled: &AssembledArray,
    mut members: Vec<Option<OpenMember>>,
) -> Result<Roster, OpenError> {
    let mut roster =
        Roster { queues: Vec::new(), slots: Vec::new(), spares: Vec::new(), zero_is_fast: true };
    let mut take = |index: usize| {
        let member = members.get_mut(index).and_then(Option::take);
        member.ok_or(OpenError::NotOpen { index })
    };
    for slot in &assembled.slots {
        let Some(occupant) = slot else {
            roster.slots.push(None);
            continue;
        };
        let member = take(occupant.member)?;
        roster.zero_is_fast &= member.device.can_zero_fast();
        let bad = occupant.bad_sectors.iter().map(|range| BadRange {
            start: MemberSector(range.start),
            sectors: range.end - range.start,
        });
        let bad_blocks = BadBlocks::new(bad.collect());
        let (id, device_number) = roster.join(member, occupant.recovered_until)?;
        let recovered_sectors = occupant.recovered_until;
        roster.slots.push(Some(MemberSetup { id, device_number, recovered_sectors, bad_blocks }));
    }
    for index in &assembled.spares {
        let spare = roster.join(take(*index)?, u64::MAX)?;
        roster.spares.push(spare);
    }
    Ok(roster)
}

impl Roster {
    fn join(
        &mut self,
        member: OpenMember,
        recovered_sectors: u64,
    ) -> Result<(MemberId, u16), OpenError> {
        let id = MemberId(u16::try_from(self.queues.len()).expect("md's limit is far lower"));
        let number = member.superblock.device.number;
        let device_number = u16::try_from(number).expect("validated: at most 1920 devices");
        let in_slots = self.slots.iter().flatten().map(|member| member.device_number);
        if in_slots.chain(self.spares.iter().map(|(_, n)| *n)).any(|other| other == device_number) {
            return Err(OpenError::NumberTwice { number: device_number });
        }
        let OpenMember { device, superblock } = member;
        let queue = MemberQueue::new(id, device, superblock, recovered_sectors);
        self.queues.push(Arc::new(queue));
        Ok((id, device_number))
    }
}

fn spawn(core: &Arc<Core>, options: &Options) -> Result<Vec<thread::JoinHandle<()>>, OpenError> {
    let mut threads = Vec::new();
    for member in &core.members {
        for _ in 0..options.threads_per_member.max(1) {
            let (core, member) = (Arc::downgrade(core), Arc::clone(member));
            let body = move || member_threads::run(&core, &member);
            threads.push(thread::Builder::new().name("braid-member".into()).spawn(body)?);
        }
    }
    let alarm = Arc::downgrade(core);
    let body = move || timer::run(&alarm);
    threads.push(thread::Builder::new().name("braid-alarm".into()).spawn(body)?);
    Ok(threads)
}
