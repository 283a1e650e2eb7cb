//! Times of the modelled machine, and the source of each figure.
//!
//! All other parts of the model read their times here. Times are in picoseconds, so that fractions
//! of nanoseconds add up.

/// One figure of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// A load or a store of a line in the core's own cache.
    Own,
    /// A locked instruction on a line that the core owns exclusively.
    Locked,
    /// Fetching a line from a core of the same cluster.
    Near,
    /// Fetching a line from another cluster of the socket.
    Far,
    /// Fetching a line from the other socket.
    Remote,
    /// One turn of a spin loop.
    Pause,
    /// A `sched_yield` when no other thread can run.
    Yield,
    /// A system call that wakes a sleeper.
    Wake,
    /// The time from that system call until the sleeper runs.
    Asleep,
    /// Reading the clock.
    Clock,
    /// One entry into the elevator.
    Insert,
    /// One dispatch out of the elevator.
    Choose,
    /// One tag freed.
    Done,
    /// Work of a thread for its own request, outside all shared state.
    Client,
}

/// All figures.
pub const COSTS: [Cost; 14] = [
    Cost::Own,
    Cost::Locked,
    Cost::Near,
    Cost::Far,
    Cost::Remote,
    Cost::Pause,
    Cost::Yield,
    Cost::Wake,
    Cost::Asleep,
    Cost::Clock,
    Cost::Insert,
    Cost::Choose,
    Cost::Done,
    Cost::Client,
];

/// How a thread waits for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Like the standard library's lock: a waiter spins a hundred turns, then sleeps in the kernel.
    Futex,
    /// Like the kernel's own lock: waiters queue, each spins on its own line, and the holder hands
    /// the lock on.
    Queue,
}

/// The size of the modelled machine, and its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    ps: [u64; COSTS.len()],
    /// Lines of an elevator's state that move when another core takes it over.
    pub state_lines: u64,
    /// Cores that share a last-level cache.
    pub cluster_cores: usize,
    /// Cores in a socket.
    pub socket_cores: usize,
    /// How threads wait for locks.
    pub waiting: WaitPolicy,
}

impl Costs {
    /// A server with two sockets of 128 cores, in clusters of eight. That is the size of the
    /// largest servers with two sockets. The times were measured in public on a smaller server of
    /// the same family.
    #[must_use]
    pub fn server() -> Self {
        Self {
            ps: COSTS.map(|cost| cost.usual().0),
            state_lines: 8,
            cluster_cores: 8,
            socket_cores: 128,
            waiting: WaitPolicy::Futex,
        }
    }

    /// The time of a cost in picoseconds.
    #[must_use]
    pub fn ps(&self, cost: Cost) -> u64 {
        self.ps[cost as usize]
    }

    /// The same costs with another time for one cost, in picoseconds.
    #[must_use]
    pub fn with(mut self, cost: Cost, ps: u64) -> Self {
        self.ps[cost as usize] = ps;
        self
    }

    /// Replaces the number of lines of an elevator's state.
    #[must_use]
    pub fn with_state_lines(self, state_lines: u64) -> Self {
        Self { state_lines, ..self }
    }

    /// Replaces the way in which threads wait for locks.
    #[must_use]
    pub fn with_waiting(self, waiting: WaitPolicy) -> Self {
        Self { waiting, ..self }
    }

    /// Time to transfer a line from another core.
    pub(crate) fn transfer_ps(&self, from: usize, to: usize) -> u64 {
        self.ps(if from / self.cluster_cores == to / self.cluster_cores {
            Cost::Near
        } else if from / self.socket_cores == to / self.socket_cores {
            Cost::Far
        } else {
            Cost::Remote
        })
    }
}

impl Cost {
    /// The figure's name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "load or store of an own line",
            Self::Locked => "locked instruction on an own line",
            Self::Near => "line from the same cluster",
            Self::Far => "line from another cluster",
            Self::Remote => "line from the other socket",
            Self::Pause => "turn of a spin loop",
            Self::Yield => "yield with no other thread to run",
            Self::Wake => "waking a sleeper",
            Self::Asleep => "until the sleeper runs",
            Self::Clock => "look at the clock",
            Self::Insert => "entry into the elevator",
            Self::Choose => "dispatch out of it",
            Self::Done => "tag freed",
            Self::Client => "a client's own work for a request",
        }
    }

    /// The figure, in picoseconds, and its source.
    #[must_use]
    pub fn usual(self) -> (u64, &'static str) {
        const LATENCY: &str = "nviennot/core-to-core-latency, README: EPYC 7R13 (Milan), two sockets, compare-exchange";
        const HERE: &str = "callgrind: 230, 330 and 52 instructions; 6 in a nanosecond, as one thread of the lab before has on an EPYC 7R13";
        match self {
            Self::Own => {
                (1_200, "4 cycles at 3.4 GHz: AnandTech 14694, level 1 of Rome and of Xeon 8280")
            }
            Self::Locked => {
                (5_600, "19 cycles at 3.4 GHz: uops.info, CMPXCHG_LOCK_M64_R64, Alder Lake-P")
            }
            Self::Near => (23_000, LATENCY),
            Self::Far => (107_000, LATENCY),
            Self::Remote => (197_000, LATENCY),
            Self::Pause => {
                (19_000, "65 cycles at 3.4 GHz, an estimate: PAUSE takes from a few to 140 cycles")
            }
            Self::Yield => (400_000, "a system call and a look at an empty queue; an estimate"),
            Self::Wake => (
                1_070_000,
                "a thread's half of a ping-pong through the kernel, Linux 6.6: ddumbying, context switch overhead",
            ),
            Self::Asleep => (
                5_000_000,
                "a switch to a thread on another core: crackingwalnuts, context switch cost",
            ),
            Self::Clock => (20_000, "clock_gettime without a system call; an estimate"),
            Self::Insert | Self::Choose | Self::Done => {
                (HERE_PS[self as usize - Self::Insert as usize], HERE)
            }
            Self::Client => (11_160_000, "the seed's own figure: 32 threads at 2867 K IOPS"),
        }
    }
}

/// The measured times of the elevator for an entry, for a dispatch, and for a tag.
const HERE_PS: [u64; 3] = [38_000, 55_000, 9_000];
