//! A whole volume in a model. Its members are in memory and let other threads run in the middle of
//! every access; schedules come from a seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use braid_geometry::Level;
use braid_member::{Identity, Member, MemberError, MemoryMember};

use crate::{Cache, CacheMode, Notice, OpenMember, Options, Scheduling, Volume};

#[allow(dead_code, unreachable_pub)]
#[path = "../../tests/kit/mod.rs"]
mod kit;

/// A member on which every access takes long enough for other threads to run.
struct SlowMember {
    device: Arc<MemoryMember>,
    shared: Arc<Shared>,
    is_fragile: bool,
}

#[derive(Default)]
struct Shared {
    dead: AtomicBool,
    closed: AtomicBool,
}

impl SlowMember {
    fn pause(&self) -> Result<(), MemberError> {
        shuttle::thread::yield_now();
        assert!(!self.shared.closed.load(Ordering::SeqCst), "a member is used after the stop");
        let is_dead = self.is_fragile && self.shared.dead.load(Ordering::SeqCst);
        if is_dead { Err(MemberError::Gone { errno: 19 }) } else { Ok(()) }
    }
}

impl Member for SlowMember {
    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn identity(&self) -> &Identity {
        self.device.identity()
    }

    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<(), MemberError> {
        self.pause()?;
        self.device.read_at(buffer, offset_bytes)?;
        self.pause()
    }

    fn write_at(&self, buffer: &[u8], offset_bytes: u64, durable: bool) -> Result<(), MemberError> {
        self.pause()?;
        self.device.write_at(buffer, offset_bytes, durable)?;
        self.pause()
    }

    fn flush(&self) -> Result<(), MemberError> {
        self.pause()?;
        self.device.flush()
    }

    fn zero(&self, offset: u64, length: u64, may_punch: bool) -> Result<(), MemberError> {
        self.pause()?;
        self.device.zero(offset, length, may_punch)
    }

    fn can_zero_fast(&self) -> bool {
        false
    }
}

/// The members of one array, and the switches with which a model makes them fail or closes them.
pub(super) struct Array {
    kit: kit::Array,
    shared: Arc<Shared>,
}

impl Array {
    pub(super) fn new(level: Level, slots: u16) -> Self {
        let chunk = if level == Level::Raid1 { 0 } else { 8 };
        Self { kit: kit::Array::new(level, slots, chunk), shared: Arc::default() }
    }

    /// Opens the array with few threads. The last `fragile` members are those that can fail.
    pub(super) fn open(&self, fragile: usize, watch: impl Fn(Notice) + Send + 'static) -> Volume {
        self.open_scheduled(Scheduling::default(), fragile, watch)
    }

    /// As `open`, with elevators.
    pub(super) fn open_scheduled(
        &self,
        scheduling: Scheduling,
        fragile: usize,
        watch: impl Fn(Notice) + Send + 'static,
    ) -> Volume {
        let (probed, assembly) = self.kit.assemble();
        let sturdy = probed.len() - fragile;
        let members = self.kit.devices.iter().zip(&probed).enumerate().map(|(index, pair)| {
            let (device, shared) = (Arc::clone(pair.0), Arc::clone(&self.shared));
            let superblock = pair.1.probe.newest().expect("a member").clone();
            let device = Box::new(SlowMember { device, shared, is_fragile: index >= sturdy });
            Some(OpenMember { device, superblock })
        });
        let options = Options {
            shards: 2,
            cache: Cache {
                memory_bytes: 1 << 19,
                mode: CacheMode::WriteThrough,
                ..Cache::default()
            },
            scheduling,
            threads_per_member: 1,
            clean_delay_ms: 20,
            ..Options::default()
        };
        let array = assembly.array.expect("an array that can be run");
        Volume::open(&array, members.collect(), &options, watch).expect("it opens")
    }

    /// From now on fragile members fail.
    pub(super) fn kill(&self) {
        self.shared.dead.store(true, Ordering::SeqCst);
    }

    /// From now on no operation may touch a member.
    pub(super) fn close(&self) {
        self.shared.closed.store(true, Ordering::SeqCst);
    }

    /// Whether assembly would call the array dirty.
    pub(super) fn is_dirty(&self) -> bool {
        self.kit.assemble().1.array.expect("an array that can be run").dirty
    }
}
