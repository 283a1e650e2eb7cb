//! The shipped scheduler over a null member; and that member without a scheduler.

use braid_member::{Member, MemoryMember};

use super::machine::dispatch::{
    Class, Counters, Device, Operation, QueuePosition, Request, Scheduler, Settings, Ticket, Vector,
};

use super::client_threads::{ClientThreads, RequestPath};

/// A member that completes every request at once, or a member in memory that was never written.
struct Null<'a> {
    clients: &'a ClientThreads,
    memory: Option<&'a MemoryMember>,
}

impl Device<u32> for Null<'_> {
    fn now_ns(&self) -> u64 {
        0
    }

    fn begin(&self, vector: Vector, parts: impl Iterator<Item = u32>) -> Option<Ticket> {
        let start = std::hint::black_box(vector.start);
        if let Some(memory) = self.memory {
            let mut sector = [0; 512];
            memory.read_at(&mut sector, start * 512).expect("memory reads");
            std::hint::black_box(&sector);
        }
        parts.for_each(|client| self.clients.answer(client));
        vector.ticket
    }
}

pub(super) struct Shipped {
    scheduler: Scheduler<u32>,
    memory: Option<MemoryMember>,
}

impl Shipped {
    pub(super) fn new(settings: Settings) -> Self {
        Self { scheduler: Scheduler::new(settings), memory: None }
    }

    /// A scheduler as for a machine with this many cores, whatever machine it runs on.
    #[allow(dead_code, reason = "the modelled machine's")]
    pub(super) fn for_cores(cores: usize) -> Self {
        let scheduler = Scheduler::with_lists(Settings::default(), 2 * cores);
        Self { scheduler, memory: None }
    }

    /// The same scheduler over a member in memory.
    pub(super) fn over(self, memory: Option<MemoryMember>) -> Self {
        Self { memory, ..self }
    }

    pub(super) fn counters(&self) -> Counters {
        let clients = &ClientThreads::new(0);
        self.scheduler.counters(&Null { clients, memory: None })
    }
}

impl Shipped {
    /// Attempts to own the scheduler, failed attempts, and nanoseconds waited, which are 0 since no
    /// thread waits.
    pub(super) fn contention(&self) -> [u64; 3] {
        let counters = self.counters();
        [counters.owner_misses + counters.ownerships, counters.owner_misses, 0]
    }
}

impl RequestPath for Shipped {
    fn submit(&self, clients: &ClientThreads, client: u32, places: &[u64]) {
        let member = Null { clients, memory: self.memory.as_ref() };
        self.scheduler.insert_all(&member, places.iter().map(|place| (request(*place), client)));
    }
}

fn request(place: u64) -> Request {
    let (operation, class) = (Operation::Read, Class::BestEffort);
    Request { operation, class, position: QueuePosition::Sorted, start: place, sectors: 1 }
}

/// The member without an elevator.
pub(super) struct Straight(pub(super) Option<MemoryMember>);

impl RequestPath for Straight {
    fn submit(&self, clients: &ClientThreads, client: u32, places: &[u64]) {
        let member = Null { clients, memory: self.0.as_ref() };
        for place in places {
            let operation = Operation::Read;
            let vector = Vector { operation, start: *place, sectors: 1, parts: 1, ticket: None };
            let ended = member.begin(vector, std::iter::once(client));
            assert!(ended.is_none(), "it has no ticket");
        }
    }
}
