//! A disk in virtual time, deterministic: seek, rotation, transfer, a write cache, read-ahead.
//!
//! ```text
//!   write ─▶ cache has room? ─yes─▶ done after command overhead  cache ─▶ destaged, by position
//!                            └─no─▶ waits for room                              │
//!   read ──▶ in the cache? done after the overhead; else ─▶ waits for the arm ◀─┘
//!
//!   time of the arm = seek (by tracks) + rotation (where the platter is at that moment) + transfer
//! ```
//!
//! The one arm serves one run of adjacent sectors after the other, upwards from its position and
//! then from the lowest again. Reads go first. Once the cache is half full of writes, one run of
//! writes goes between two runs of reads. Time is whole nanoseconds. Every choice is a function of
//! the requests; nothing is random.
//!
//! Without a write cache (size 0) writes wait for the arm as reads do, in one order with them. They
//! are done when they are on the platter.
//!
//! A flush occupies the arm until the cache is on the platter, like SATA's unqueued command.
//!
//! The model leaves out zones (one transfer rate), track skew (part of the rate), errors, and bus
//! time beyond a command's overhead.
//!
//! Invariants
//! - Runs of adjacent sectors go at the transfer rate, distant ones at a seek and half a turn each:
//!   `a_disk_is_as_fast_as_its_sheet`.
//! - Every request is done once, and writes reach the platter: `everything_is_done_once`.

mod ledger;
mod plan;
mod runs;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use ledger::Ledger;
pub use ledger::{Account, ArmPurpose, ArmTime};
pub use plan::DiskPlan;
use runs::Runs;

/// A request to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskRequest {
    /// The request's number.
    pub id: u64,
    /// First sector of the request.
    pub sector: u64,
    /// Number of sectors.
    pub sectors: u64,
    /// Whether the request is a write.
    pub is_write: bool,
}

#[derive(Debug)]
enum Arm {
    Idle,
    /// The arm is busy with these requests until this time.
    Requests(u64, Vec<u64>),
    /// The arm is busy with this many sectors from the cache until this time.
    Destage(u64, u64),
}

/// One disk.
#[derive(Debug)]
pub struct Disk {
    plan: DiskPlan,
    arm: Arm,
    /// The position of the arm: the sector after the last one served, and the time since which the
    /// arm is there.
    head: u64,
    since: u64,
    /// Whether the last run was a read, so that the disk reads ahead.
    was_read: bool,
    reads: RequestQueue,
    /// If the disk has no cache: the writes that wait for the arm.
    writes: RequestQueue,
    /// Flushes that wait for an empty cache.
    flushes: Vec<u64>,
    /// Sectors in the cache that are not on the platter.
    dirty: Runs,
    /// Sectors on their way from the cache to the platter.
    leaving_sectors: u64,
    /// Writes that wait for room in the cache.
    waiting: VecDeque<(DiskRequest, ArmPurpose)>,
    done: BinaryHeap<Reverse<(u64, u64)>>,
    arrivals: u64,
    ledger: Ledger,
    /// Time for which the arm was busy with reads, and with writes.
    busy_ns: [u64; 2],
}

impl Disk {
    /// An idle disk.
    #[must_use]
    pub fn new(plan: DiskPlan) -> Self {
        Self {
            plan,
            arm: Arm::Idle,
            head: 0,
            since: 0,
            was_read: false,
            reads: BTreeMap::new(),
            writes: BTreeMap::new(),
            flushes: Vec::new(),
            dirty: Runs::default(),
            leaving_sectors: 0,
            waiting: VecDeque::new(),
            done: BinaryHeap::new(),
            arrivals: 0,
            ledger: Ledger::default(),
            busy_ns: [0; 2],
        }
    }

    /// Busy time with reads, and with writes, in nanoseconds; the current run counts in full.
    #[must_use]
    pub fn busy_ns(&self) -> [u64; 2] {
        self.busy_ns
    }

    /// Number of times that the arm had to seek, or wait for the platter.
    #[must_use]
    pub fn positionings(&self) -> u64 {
        self.account().0.iter().map(|spent| spent.positionings).sum()
    }

    /// The account of the arm's time; the run that it serves counts in full.
    #[must_use]
    pub fn account(&self) -> Account {
        self.ledger.account()
    }

    /// Whether no request is left, and the cache is on the platter.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        matches!(self.arm, Arm::Idle) && self.done.is_empty() && self.dirty.is_empty()
    }

    /// Takes a request at the moment `now`, as a reader's or as data.
    pub fn push(&mut self, now: u64, request: DiskRequest) {
        let purpose = if request.is_write { ArmPurpose::Data } else { ArmPurpose::Reader };
        self.push_for(now, request, purpose);
    }

    /// Takes a request like [`Self::push`]. The given purpose changes only the account.
    pub fn push_for(&mut self, now: u64, request: DiskRequest, purpose: ArmPurpose) {
        let end = request.sector + request.sectors;
        assert!(end <= self.plan.sectors(), "sector {end} is beyond the disk");
        if request.is_write && self.plan.cache_sectors == 0 {
            self.writes.insert((request.sector, self.arrivals), (request, purpose));
            self.arrivals += 1;
        } else if request.is_write {
            self.waiting.push_back((request, purpose));
            self.admit(now);
        } else if self.dirty.holds(request.sector, end) {
            self.done.push(Reverse((now + self.plan.overhead_ns, request.id)));
        } else {
            self.reads.insert((request.sector, self.arrivals), (request, purpose));
            self.arrivals += 1;
        }
        self.go_on(now);
    }

    /// Takes a flush with this number, which is done when the cache is empty.
    pub fn flush(&mut self, now: u64, id: u64) {
        self.flushes.push(id);
        self.go_on(now);
    }

    /// When the next request ends, if no other arrives before.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        let arm = match self.arm {
            Arm::Idle => None,
            Arm::Requests(end, _) | Arm::Destage(end, _) => Some(end),
        };
        let done = self.done.peek().map(|Reverse((at, _))| *at);
        arm.into_iter().chain(done).min()
    }

    /// Ends the requests that are done by `now`, which is not later than [`Self::next`].
    pub fn advance(&mut self, now: u64, mut answer: impl FnMut(u64)) {
        while let Some(Reverse((_, id))) =
            self.done.peek().copied().filter(|Reverse((at, _))| *at <= now)
        {
            self.done.pop();
            answer(id);
        }
        match std::mem::replace(&mut self.arm, Arm::Idle) {
            Arm::Requests(end, ids) if end <= now => ids.into_iter().for_each(answer),
            Arm::Destage(end, sectors) if end <= now => {
                self.leaving_sectors -= sectors;
                self.admit(now);
            }
            busy => self.arm = busy,
        }
        self.go_on(now);
    }

    /// Takes writes into the cache while the cache has room. A write larger than the cache goes in
    /// alone.
    fn admit(&mut self, now: u64) {
        if !self.flushes.is_empty() {
            return;
        }
        while let Some((first, _)) = self.waiting.front() {
            let held = self.dirty_sectors();
            if held > 0 && held + first.sectors > self.plan.cache_sectors {
                return;
            }
            let (first, purpose) = self.waiting.pop_front().expect("it was just looked at");
            let run = (first.sector, first.sector + first.sectors);
            self.dirty.add(run.0, run.1);
            self.ledger.cached(run, purpose);
            self.done.push(Reverse((now + self.plan.overhead_ns, first.id)));
        }
    }

    fn dirty_sectors(&self) -> u64 {
        self.dirty.sectors() + self.leaving_sectors
    }

    /// Starts the next run, if the arm is idle.
    fn go_on(&mut self, now: u64) {
        if !matches!(self.arm, Arm::Idle) {
            return;
        }
        if self.dirty.is_empty() && !self.flushes.is_empty() {
            let at = now + self.plan.overhead_ns;
            self.done.extend(self.flushes.drain(..).map(|id| Reverse((at, id))));
            self.admit(now);
        }
        let reads = if self.flushes.is_empty() { next_up(&self.reads, self.head) } else { None };
        let writes = next_up(&self.writes, self.head);
        let dirty = self.dirty.next_up(self.head);
        let is_urgent = 2 * self.dirty_sectors() >= self.plan.cache_sectors;
        let way = |sector: u64| (sector < self.head, sector);
        match (reads, writes, dirty) {
            (None, None, None) => {}
            (Some(_), _, Some(dirty)) if is_urgent && self.was_read => {
                self.begin_destage(now, dirty);
            }
            (Some(read), Some(write), _) if way(write) < way(read) => {
                self.begin_writes(now, write);
            }
            (Some(read), ..) => self.begin_reads(now, read),
            (None, Some(write), _) => self.begin_writes(now, write),
            (None, None, Some(dirty)) => self.begin_destage(now, dirty),
        }
    }

    fn begin_reads(&mut self, now: u64, first: u64) {
        let (to, ids, purpose) = take_run(&mut self.reads, first, self.plan.run_sectors_max);
        let ends = if self.was_read
            && first >= self.head
            && to - self.head <= self.plan.read_ahead_sectors
        {
            // After a read the disk has read ahead while idle; its buffer has those sectors.
            let ends = now.max(self.since + self.plan.transfer_ns(to - self.head));
            self.ledger.of(purpose).transfer_ns += ends - now;
            ends
        } else {
            self.position(now, first, purpose) + self.pass(to - first, purpose)
        };
        (self.head, self.since, self.was_read) = (to, ends, true);
        self.busy_ns[0] += ends - now;
        self.arm = Arm::Requests(ends + self.plan.overhead_ns, ids);
    }

    fn begin_writes(&mut self, now: u64, first: u64) {
        let (to, ids, purpose) = take_run(&mut self.writes, first, self.plan.run_sectors_max);
        let ends = self.position(now, first, purpose) + self.pass(to - first, purpose);
        (self.head, self.since, self.was_read) = (to, ends, false);
        self.busy_ns[1] += ends - now;
        self.arm = Arm::Requests(ends + self.plan.overhead_ns, ids);
    }

    fn begin_destage(&mut self, now: u64, first: u64) {
        let purpose = self.ledger.of_cached(first);
        let to = self.dirty.take_first(first, self.plan.run_sectors_max);
        let transfer_ns = self.plan.transfer_ns(to - first);
        let ends = self.position(now, first, purpose) + transfer_ns;
        self.ledger.destaged((first, to), transfer_ns);
        (self.head, self.since, self.was_read) = (to, ends, false);
        self.busy_ns[1] += ends - now;
        self.leaving_sectors = to - first;
        self.arm = Arm::Destage(ends, to - first);
    }

    /// Charges the transfer of these sectors, and returns its time.
    fn pass(&mut self, sectors: u64, purpose: ArmPurpose) -> u64 {
        let transfer_ns = self.plan.transfer_ns(sectors);
        self.ledger.of(purpose).transfer_ns += transfer_ns;
        transfer_ns
    }

    /// Charges seek and rotation, and returns the time when `sector` is under the head.
    fn position(&mut self, now: u64, sector: u64, purpose: ArmPurpose) -> u64 {
        if sector == self.head && now == self.since {
            return now;
        }
        let seek_ns = self.plan.seek_ns(self.head, sector);
        let turn = self.plan.turn_ns();
        let (is_at, should_be) = ((now + seek_ns) % turn, self.plan.angle_ns(sector));
        let rotation_ns = (should_be + turn - is_at) % turn;
        let spent = self.ledger.of(purpose);
        spent.seek_ns += seek_ns;
        spent.rotation_ns += rotation_ns;
        spent.positionings += 1;
        now + seek_ns + rotation_ns
    }
}

/// Requests that wait for the arm, by first sector and arrival.
type RequestQueue = BTreeMap<(u64, u64), (DiskRequest, ArmPurpose)>;

/// The first sector of the next request upwards from the head. If there is none, the first sector
/// of the lowest request.
fn next_up(waiting: &RequestQueue, head: u64) -> Option<u64> {
    let next = waiting.range((head, 0)..).next().or_else(|| waiting.iter().next());
    next.map(|((sector, _), _)| *sector)
}

/// Takes adjacent requests from `first` on. Returns the sector after these requests, their numbers,
/// and the purpose of the first.
fn take_run(
    waiting: &mut RequestQueue,
    first: u64,
    sectors_max: u64,
) -> (u64, Vec<u64>, ArmPurpose) {
    let (mut to, mut ids, mut purpose) = (first, Vec::new(), ArmPurpose::Reader);
    while let Some((key, (request, of))) = waiting.range((first, 0)..=(to, u64::MAX)).next() {
        let end = to.max(request.sector + request.sectors);
        if !ids.is_empty() && end - first > sectors_max {
            break;
        }
        if ids.is_empty() {
            purpose = *of;
        }
        (to, _) = (end, ids.push(request.id));
        let key = *key;
        waiting.remove(&key);
    }
    (to, ids, purpose)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Keeps `depth` requests at the disk until all are done. Returns the time at which the last
    /// request is on the platter.
    fn serve(requests: &[DiskRequest], depth: usize) -> (u64, usize) {
        let mut disk = Disk::new(DiskPlan::SATA_2005);
        let (mut now, mut next, mut done) = (0, 0, 0);
        loop {
            while next < requests.len() && next - done < depth {
                disk.push(now, requests[next]);
                next += 1;
            }
            let Some(at) = disk.next() else { break };
            now = at;
            disk.advance(now, |_| done += 1);
        }
        assert!(disk.is_idle());
        (now, done)
    }

    fn run(count: u64, is_write: bool, mut place: impl FnMut(u64) -> u64) -> Vec<DiskRequest> {
        let request = |id| DiskRequest { id, sector: place(id), sectors: 8, is_write };
        (0..count).map(request).collect()
    }

    #[test]
    fn a_disk_is_as_fast_as_its_sheet() {
        let plan = DiskPlan::SATA_2005;
        let whole = 8 * 20_000 * plan.turn_ns() / plan.sectors_per_track;
        for is_write in [false, true] {
            let (time, _) = serve(&run(20_000, is_write, |n| n * 8), 32);
            // Times are rounded to whole nanoseconds once for each run of sectors.
            assert!((whole - 1000..whole + whole / 20).contains(&time), "{time} for {whole}");
        }
        let mut random = Random::new(1);
        let mut anywhere = |_| random.below(plan.sectors() - 8);
        let (time, done) = serve(&run(2000, false, &mut anywhere), 1);
        let each = time / done as u64;
        let wanted = plan.average_seek_ns + plan.turn_ns() / 2;
        assert!(each.abs_diff(wanted) < wanted / 20, "{each} instead of {wanted}");
        let (queued, _) = serve(&run(2000, false, &mut anywhere), 32);
        assert!(queued < time * 2 / 3, "in order of position it is quicker");
    }

    #[test]
    fn without_a_cache_a_write_is_done_on_the_platter_and_waits_among_the_reads() {
        let mut disk = Disk::new(DiskPlan { cache_sectors: 0, ..DiskPlan::SATA_2005 });
        for (id, sector, is_write) in
            [(0, 500, false), (1, 90_000, true), (2, 70_000, false), (3, 90_008, true)]
        {
            disk.push(0, DiskRequest { id, sector, sectors: 8, is_write });
        }
        let (mut now, mut order) = (0, Vec::new());
        while let Some(at) = disk.next() {
            now = at;
            disk.advance(now, |id| order.push(id));
        }
        assert_eq!(order, [0, 2, 1, 3], "upwards, whatever they are");
        let [reads, writes] = disk.busy_ns();
        assert!(reads > 0 && writes > 0 && reads + writes <= now);
    }

    #[test]
    fn the_account_is_the_arms_time_and_says_whose_it_was() {
        for cache_sectors in [0, 16 << 10] {
            let mut disk = Disk::new(DiskPlan { cache_sectors, ..DiskPlan::SATA_2005 });
            let mut random = Random::new(4);
            for id in 0..400 {
                let purpose = ArmPurpose::ALL[usize::try_from(random.below(4)).expect("few")];
                let is_write = matches!(purpose, ArmPurpose::Data | ArmPurpose::Parity);
                let sector = 64 * random.below(1 << 20);
                disk.push_for(0, DiskRequest { id, sector, sectors: 64, is_write }, purpose);
            }
            while let Some(at) = disk.next() {
                disk.advance(at, |_| {});
            }
            let account = disk.account();
            let [reads, writes] = disk.busy_ns();
            assert_eq!(account.all_ns(), reads + writes);
            for purpose in ArmPurpose::ALL {
                let spent = account.of(purpose);
                assert!((80..=120).contains(&spent.positionings), "{purpose:?} {spent:?}");
                assert!(spent.seek_ns > 0 && spent.rotation_ns > 0 && spent.transfer_ns > 0);
            }
        }
    }

    #[test]
    fn a_flush_is_done_when_the_cache_is_empty_and_reads_wait_for_it() {
        let mut disk = Disk::new(DiskPlan::SATA_2005);
        disk.push(0, DiskRequest { id: 0, sector: 90_000, sectors: 8, is_write: true });
        disk.flush(0, 1);
        disk.push(0, DiskRequest { id: 2, sector: 8, sectors: 8, is_write: false });
        let mut order = Vec::new();
        while let Some(at) = disk.next() {
            disk.advance(at, |id| order.push(id));
            assert!(disk.dirty.is_empty() || !order.contains(&1), "it is on the platter");
        }
        assert_eq!(order, [0, 1, 2]);
    }

    #[test]
    fn everything_is_done_once() {
        let mut random = Random::new(2);
        let requests: Vec<DiskRequest> = (0..5000)
            .map(|id| DiskRequest {
                id,
                sector: random.below(100_000),
                sectors: 1 + random.below(300),
                is_write: random.below(2) == 0,
            })
            .collect();
        let (time, done) = serve(&requests, 64);
        assert_eq!(done, requests.len());
        assert_eq!(serve(&requests, 64), (time, done), "to the last digit");
    }
}
