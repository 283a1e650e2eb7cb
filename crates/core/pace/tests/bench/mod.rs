//! Members in virtual time: clients that come and go, an endless job, and the governor between
//! them.
//!
//! This bench serves the tests of the folder. A disk has one queue and several channels that serve
//! it; a request occupies its channel for its whole time. The governor sees only figures that a
//! runtime could measure.
//!
//! ```text
//!   clients ───────────▶ ┌───────┐    ┌──────────┐
//!   (open: by chance;    │ queue │ ─▶ │ channels │ ─▶ latencies, a slice every 100 ms ─▶ Governor
//!    closed: n at once)  └───────┘    └──────────┘                                          │
//!   job ────────────────▶ ◀─────────────────────────── so many bytes may begin ─────────────┘
//! ```

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use braid_pace::{Class, Governor, GovernorSettings, Latencies};

pub(crate) const US: u64 = 1000;
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const MIB: u64 = 1 << 20;
const SLICE_NS: u64 = 100 * MS;

/// Pseudorandom numbers (SplitMix64).
pub(crate) struct Chance(pub u64);

impl Chance {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number at least 0 and below 1.
    pub(crate) fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn index(&mut self, bound: u64) -> usize {
        usize::try_from(self.below(bound)).expect("an index")
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Disk {
    pub(crate) name: &'static str,
    pub(crate) channels: usize,
    /// Whether clients' requests are served before waiting requests of the job, as with class idle
    /// in an elevator.
    pub(crate) is_idle_class: bool,
    /// The least time of a client's request, and the most time that chance adds to it.
    pub(crate) client_ns: (u64, u64),
    /// The least time of any request of the job.
    pub(crate) seek_ns: u64,
    /// The whole time of a window of 1 MiB.
    pub(crate) window_ns: u64,
}

pub(crate) const TURNING: Disk = Disk {
    name: "turning, idle class",
    channels: 1,
    is_idle_class: true,
    client_ns: (4 * MS, 8 * MS),
    seek_ns: 4 * MS,
    window_ns: 9 * MS,
};
pub(crate) const TURNING_FIFO: Disk =
    Disk { name: "turning, fifo", is_idle_class: false, ..TURNING };
pub(crate) const FLASH: Disk = Disk {
    name: "flash, 8 channels",
    channels: 8,
    is_idle_class: false,
    client_ns: (60 * US, 80 * US),
    seek_ns: 40 * US,
    window_ns: 2 * MS,
};
pub(crate) const MEMORY: Disk = Disk {
    name: "memory, 2 channels",
    channels: 2,
    is_idle_class: false,
    client_ns: (4 * US, 6 * US),
    seek_ns: 2 * US,
    window_ns: 150 * US,
};

/// Flash as fast as in 2010: simulating it takes a tenth of the work.
pub(crate) const OLD_FLASH: Disk = Disk {
    name: "old flash, 4 channels",
    channels: 4,
    is_idle_class: false,
    client_ns: (300 * US, 900 * US),
    seek_ns: 200 * US,
    window_ns: 8 * MS,
};

/// A disk that takes a millisecond for each request, at 50 MB a second; a window is sixteen
/// requests.
pub(crate) const SMALL: Disk = Disk {
    name: "small",
    channels: 1,
    is_idle_class: false,
    client_ns: (1080 * US, 10 * US),
    seek_ns: 0,
    window_ns: 37 * MS,
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Load {
    None,
    /// This many requests for each second, at random times.
    Open(f64),
    /// This many requests at a time; each request that ends is followed by the next.
    Closed(u64),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival { epoch: u64 },
    ClientDone { began_ns: u64, epoch: u64, is_closed: bool },
    WindowDone { bytes: u64, is_owed: bool },
    Slice,
    Ask,
}

#[derive(Clone, Copy)]
enum QueuedRequest {
    Client { began_ns: u64, epoch: u64, is_closed: bool },
    Window { bytes: u64, is_owed: bool },
}

pub(crate) struct Bench {
    pub(crate) disk: Disk,
    pub(crate) governor: Governor,
    pub(crate) now_ns: u64,
    /// For each client's request: the time of its end, and its latency.
    pub(crate) latencies: Vec<(u64, u64)>,
    /// For each of the job's requests: the time at which it began, and its bytes.
    pub(crate) begun: Vec<(u64, u64)>,
    pub(crate) ended: Vec<(u64, u64)>,
    /// (Time, allowance), ten times a second.
    pub(crate) allowances: Vec<(u64, u64)>,
    /// Nanoseconds in phase probe, counted in whole slices.
    pub(crate) probing_ns: u64,
    pub(crate) has_job: bool,
    chance: Chance,
    load: Load,
    /// The current load's number. Closed clients of an earlier load stop after their current
    /// request.
    epoch: u64,
    under_way: u64,
    busy: usize,
    clients: VecDeque<(u64, QueuedRequest)>,
    windows: VecDeque<(u64, QueuedRequest)>,
    order: u64,
    slice: Latencies,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    asked_ns: Option<u64>,
}

impl Bench {
    pub(crate) fn new(disk: Disk, settings: GovernorSettings, seed: u64) -> Self {
        let mut bench = Self {
            disk,
            governor: Governor::new(settings, 0),
            now_ns: 0,
            latencies: Vec::new(),
            begun: Vec::new(),
            ended: Vec::new(),
            allowances: Vec::new(),
            probing_ns: 0,
            has_job: true,
            chance: Chance(seed),
            load: Load::None,
            epoch: 0,
            under_way: 0,
            busy: 0,
            clients: VecDeque::new(),
            windows: VecDeque::new(),
            order: 0,
            slice: Latencies::default(),
            events: BinaryHeap::new(),
            asked_ns: None,
        };
        bench.push(SLICE_NS, Event::Slice);
        bench.ask();
        bench
    }

    pub(crate) fn load(&mut self, load: Load) {
        self.load = load;
        self.epoch += 1;
        match load {
            Load::None => {}
            Load::Open(_) => self.next_arrival(),
            Load::Closed(clients) => (0..clients).for_each(|_| self.arrive(true)),
        }
    }

    pub(crate) fn run(&mut self, for_ns: u64) {
        let end_ns = self.now_ns + for_ns;
        while let Some(Reverse((at_ns, _, event))) = self.events.peek().copied() {
            if at_ns > end_ns {
                break;
            }
            self.events.pop();
            self.now_ns = at_ns;
            self.handle(event);
        }
        self.now_ns = end_ns;
    }

    /// p99 of the requests that ended since `from_ns`, in nanoseconds.
    pub(crate) fn p99_since(&self, from_ns: u64) -> u64 {
        let since = self.latencies.partition_point(|(at_ns, _)| *at_ns < from_ns);
        let mut sorted: Vec<u64> = self.latencies[since..].iter().map(|(_, ns)| *ns).collect();
        sorted.sort_unstable();
        sorted.get((sorted.len() * 99).div_ceil(100).max(1) - 1).copied().unwrap_or(0)
    }

    /// The job's bytes for each second since `from_ns`.
    pub(crate) fn rate_since(&self, from_ns: u64) -> f64 {
        let since = self.ended.partition_point(|(at_ns, _)| *at_ns < from_ns);
        let bytes: u64 = self.ended[since..].iter().map(|(_, bytes)| bytes).sum();
        bytes as f64 / ((self.now_ns - from_ns) as f64 / SECOND as f64)
    }

    /// The job's rate without clients.
    pub(crate) fn full_rate(&self) -> f64 {
        self.disk.channels as f64 * MIB as f64 / (self.disk.window_ns as f64 / SECOND as f64)
    }

    fn push(&mut self, at_ns: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((at_ns, self.order, event)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrival { epoch } => {
                if epoch == self.epoch {
                    self.arrive(false);
                    self.next_arrival();
                }
            }
            Event::ClientDone { began_ns, epoch, is_closed } => {
                let latency_ns = self.now_ns - began_ns;
                self.latencies.push((self.now_ns, latency_ns));
                self.slice.record(latency_ns);
                self.under_way -= 1;
                self.busy -= 1;
                if is_closed && epoch == self.epoch {
                    self.arrive(true);
                }
                self.serve();
            }
            Event::WindowDone { bytes, is_owed } => {
                self.busy -= 1;
                self.ended.push((self.now_ns, bytes));
                self.governor.handle_done(self.now_ns, class(is_owed), bytes);
                self.serve();
                self.ask();
            }
            Event::Slice => {
                let slice = std::mem::take(&mut self.slice);
                self.governor.handle_slice(self.now_ns, &slice, self.under_way);
                let look = self.governor.look();
                self.allowances.push((self.now_ns, look.allowance_bytes));
                if look.phase == braid_pace::Phase::Probe {
                    self.probing_ns += SLICE_NS;
                }
                self.push(self.now_ns + SLICE_NS, Event::Slice);
                self.ask();
            }
            Event::Ask => {
                if self.asked_ns == Some(self.now_ns) {
                    self.ask();
                }
            }
        }
    }

    fn next_arrival(&mut self) {
        if let Load::Open(per_second) = self.load {
            let wait = -(1.0 - self.chance.part()).ln() / per_second * SECOND as f64;
            self.push(self.now_ns + whole(wait), Event::Arrival { epoch: self.epoch });
        }
    }

    fn arrive(&mut self, is_closed: bool) {
        if self.under_way == 0 {
            self.governor.handle_client(self.now_ns);
        }
        self.under_way += 1;
        self.order += 1;
        let client = QueuedRequest::Client { began_ns: self.now_ns, epoch: self.epoch, is_closed };
        self.clients.push_back((self.order, client));
        self.serve();
    }

    /// Polls the governor, and begins the bytes that it allows.
    pub(crate) fn ask(&mut self) {
        if !self.has_job {
            return;
        }
        let allowance = self.governor.poll(self.now_ns);
        assert!(allowance.ask_at_ns > self.now_ns);
        let lots = [(allowance.owed_bytes, true), (allowance.idle_bytes, false)];
        for (mut left, is_owed) in lots {
            while left > 0 {
                let bytes = left.min(MIB);
                left -= bytes;
                self.governor.handle_begun(self.now_ns, class(is_owed), bytes);
                self.begun.push((self.now_ns, bytes));
                self.order += 1;
                // Requests that pay the floor's debt wait in line with clients' requests.
                let is_in_line = is_owed && self.disk.is_idle_class;
                let queue = if is_in_line { &mut self.clients } else { &mut self.windows };
                queue.push_back((self.order, QueuedRequest::Window { bytes, is_owed }));
            }
        }
        self.serve();
        self.asked_ns = Some(allowance.ask_at_ns);
        self.push(allowance.ask_at_ns, Event::Ask);
    }

    fn serve(&mut self) {
        while self.busy < self.disk.channels {
            let client_first = match (self.clients.front(), self.windows.front()) {
                (None, None) => return,
                (Some((client, _)), Some((window, _))) => {
                    self.disk.is_idle_class || client < window
                }
                (client, _) => client.is_some(),
            };
            let queue = if client_first { &mut self.clients } else { &mut self.windows };
            let (_, next) = queue.pop_front().expect("it has a front");
            self.busy += 1;
            match next {
                QueuedRequest::Client { began_ns, epoch, is_closed } => {
                    let (least_ns, more_ns) = self.disk.client_ns;
                    let service_ns = least_ns + self.chance.below(more_ns + 1);
                    let done = Event::ClientDone { began_ns, epoch, is_closed };
                    self.push(self.now_ns + service_ns, done);
                }
                QueuedRequest::Window { bytes, is_owed } => {
                    let Disk { seek_ns, window_ns, .. } = self.disk;
                    let service_ns = seek_ns + (window_ns - seek_ns) * bytes / MIB;
                    self.push(self.now_ns + service_ns, Event::WindowDone { bytes, is_owed });
                }
            }
        }
    }
}

fn class(is_owed: bool) -> Class {
    if is_owed { Class::BestEffort } else { Class::Idle }
}

/// A number without its fraction, at least zero.
#[allow(clippy::cast_possible_truncation, reason = "it saturates")]
pub(crate) fn whole(number: f64) -> u64 {
    number as u64
}
