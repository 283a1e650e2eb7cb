//! Stripe caches as they were: *before*, where whatever is freed wakes all who wait; and *seed*, where each hash value has
//! its own queue and one is woken.
//!
//! ```text
//!   writers ──take a stripe, or wait──▶ handle queue ──▶ the daemon: copy, parity, members, free ──▶ wake
//! ```
//!
//! What they share with each other, and with md at the time: a writer asks for one stripe after the other and goes on as
//! soon as it has one; one daemon does all the work on stripes, up to eight in a go, and gives them back together; once
//! a writer found none free, all wait until less than three quarters are taken. The work on a stripe is braid's: the same
//! parity kernel, the same copies into the same kind of member. Kinder to them than md was: no lookup, no state machine.
//!
//! Invariants
//! - What is written is what was asked for: `models_write_what_they_are_told`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use braid_member::{Member, MemoryMember};
use braid_parity::kernel;

use super::work::{BLOCK_BYTES, DATA, Files, ROW_BYTES, ROWS_PER_FILE, STRIPES};

/// Stripes that the daemon works on in one go.
const BATCH: usize = 8;
/// Hash values of the seed.
const HASHES: usize = 8;

/// Who is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Discipline {
    /// All, from one queue, when a batch is freed.
    WakeAll,
    /// One for each stripe that is freed, from the queue of its hash value.
    WakeOnePerHash,
}

/// The stripes of one hash value, or all.
struct Pool {
    lock: Mutex<Free>,
    freed: Condvar,
    capacity: usize,
}

struct Free {
    stripes: Vec<usize>,
    /// A writer found none free; until less than three quarters are taken, none takes one.
    is_blocked: bool,
}

/// A stripe that has its data.
struct Work {
    stripe: usize,
    row: u64,
    payload: Arc<Vec<u8>>,
    offset: usize,
    unwritten: Arc<Unwritten>,
}

/// Stripes of one writer that are not on the members yet.
#[derive(Default)]
pub(super) struct Unwritten {
    count: Mutex<usize>,
    none: Condvar,
}

/// A cache and its daemon.
pub(super) struct Model {
    shared: Arc<Shared>,
    daemon: Option<thread::JoinHandle<()>>,
}

struct Shared {
    discipline: Discipline,
    pools: Vec<Pool>,
    members: Vec<MemoryMember>,
    handle: Mutex<Handle>,
    given: Condvar,
    wake_ups: AtomicU64,
}

#[derive(Default)]
struct Handle {
    works: VecDeque<Work>,
    is_over: bool,
}

impl Model {
    pub(super) fn new(discipline: Discipline, rows: u64) -> Self {
        let pools = if discipline == Discipline::WakeAll { 1 } else { HASHES };
        let pool = |hash: usize| {
            let stripes: Vec<usize> = (hash..STRIPES).step_by(pools).collect();
            let capacity = stripes.len();
            Pool {
                lock: Mutex::new(Free { stripes, is_blocked: false }),
                freed: Condvar::new(),
                capacity,
            }
        };
        let member_bytes = rows * BLOCK_BYTES as u64;
        let shared = Arc::new(Shared {
            discipline,
            pools: (0..pools).map(pool).collect(),
            members: (0..=DATA).map(|_| MemoryMember::new(member_bytes)).collect(),
            handle: Mutex::default(),
            given: Condvar::new(),
            wake_ups: AtomicU64::new(0),
        });
        let body = Arc::clone(&shared);
        let daemon = thread::spawn(move || body.run());
        Self { shared, daemon: Some(daemon) }
    }

    /// How often a writer that waited for a stripe was woken, so far.
    pub(super) fn wake_ups(&self) -> u64 {
        self.shared.wake_ups.load(Ordering::Relaxed)
    }
}

impl Files for Model {
    type Payload = Arc<Vec<u8>>;

    fn payload(&self, bytes: Vec<u8>) -> Self::Payload {
        Arc::new(bytes)
    }

    fn write_file(&self, file: u64, payload: &mut Self::Payload) {
        let unwritten = Arc::new(Unwritten::default());
        for row in 0..ROWS_PER_FILE {
            let number = file * ROWS_PER_FILE + row;
            let stripe = self.shared.take(number);
            unwritten.add();
            let offset = usize::try_from(row).expect("few rows") * ROW_BYTES;
            self.shared.give(Work {
                stripe,
                row: number,
                payload: Arc::clone(payload),
                offset,
                unwritten: Arc::clone(&unwritten),
            });
        }
        unwritten.wait_for_none();
        for member in &self.shared.members {
            member.flush().expect("memory is durable enough");
        }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.shared.handle.lock().expect("no holder panics").is_over = true;
        self.shared.given.notify_all();
        if let Some(daemon) = self.daemon.take() {
            daemon.join().expect("the daemon does not panic");
        }
    }
}

impl Unwritten {
    fn add(&self) {
        *self.count.lock().expect("no holder panics") += 1;
    }

    fn done(&self) {
        let mut count = self.count.lock().expect("no holder panics");
        *count -= 1;
        if *count == 0 {
            self.none.notify_one();
        }
    }

    fn wait_for_none(&self) {
        let count = self.count.lock().expect("no holder panics");
        drop(self.none.wait_while(count, |count| *count > 0).expect("no holder panics"));
    }
}

impl Shared {
    fn pool(&self, stripe_or_row: u64) -> &Pool {
        let pools = self.pools.len() as u64;
        &self.pools[usize::try_from(stripe_or_row % pools).expect("few pools")]
    }

    /// A free stripe for a row; waits for one.
    fn take(&self, row: u64) -> usize {
        let pool = self.pool(row);
        let mut free = pool.lock.lock().expect("no holder panics");
        let may_take = |free: &Free| {
            let taken = pool.capacity - free.stripes.len();
            !free.stripes.is_empty() && (!free.is_blocked || taken < pool.capacity * 3 / 4)
        };
        while !may_take(&free) {
            free.is_blocked = true;
            free = pool.freed.wait(free).expect("no holder panics");
            self.wake_ups.fetch_add(1, Ordering::Relaxed);
        }
        free.is_blocked = false;
        free.stripes.pop().expect("there is one")
    }

    fn give(&self, work: Work) {
        let mut handle = self.handle.lock().expect("no holder panics");
        handle.works.push_back(work);
        drop(handle);
        self.given.notify_one();
    }

    /// The daemon.
    fn run(&self) {
        let mut blocks = vec![0; STRIPES * (DATA + 1) * BLOCK_BYTES];
        let mut batch = Vec::new();
        loop {
            let handle = self.handle.lock().expect("no holder panics");
            let idle = |handle: &mut Handle| handle.works.is_empty() && !handle.is_over;
            let mut handle = self.given.wait_while(handle, idle).expect("no holder panics");
            let count = handle.works.len().min(BATCH);
            batch.extend(handle.works.drain(..count));
            if batch.is_empty() {
                return;
            }
            drop(handle);
            let stripe_bytes = (DATA + 1) * BLOCK_BYTES;
            for work in &batch {
                self.work(work, &mut blocks[work.stripe * stripe_bytes..][..stripe_bytes]);
            }
            self.free(&batch);
            batch.drain(..).for_each(|work| work.unwritten.done());
        }
    }

    /// Copies the data in, makes parity, writes the members.
    fn work(&self, work: &Work, stripe: &mut [u8]) {
        let (data, parity) = stripe.split_at_mut(DATA * BLOCK_BYTES);
        data.copy_from_slice(&work.payload[work.offset..work.offset + ROW_BYTES]);
        let mut sources: [&[u8]; DATA] = [&[]; DATA];
        for (source, block) in sources.iter_mut().zip(data.chunks_exact(BLOCK_BYTES)) {
            *source = block;
        }
        kernel().xor(parity, &sources);
        // Left-symmetric: parity walks down, data begin behind it.
        let slots = DATA + 1;
        let parity_slot = DATA - usize::try_from(work.row % slots as u64).expect("few slots");
        let at = work.row * BLOCK_BYTES as u64;
        for (index, block) in sources.iter().chain([&&*parity]).enumerate() {
            let slot = (parity_slot + 1 + index) % slots;
            self.members[slot].write_at(block, at, false).expect("memory takes writes");
        }
    }

    fn free(&self, batch: &[Work]) {
        match self.discipline {
            Discipline::WakeAll => {
                let pool = &self.pools[0];
                let mut free = pool.lock.lock().expect("no holder panics");
                free.stripes.extend(batch.iter().map(|work| work.stripe));
                drop(free);
                pool.freed.notify_all();
            }
            Discipline::WakeOnePerHash => {
                for work in batch {
                    let pool = self.pool(work.stripe as u64);
                    pool.lock.lock().expect("no holder panics").stripes.push(work.stripe);
                    pool.freed.notify_one();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_write_what_they_are_told() {
        for discipline in [Discipline::WakeAll, Discipline::WakeOnePerHash] {
            let model = Model::new(discipline, 4 * ROWS_PER_FILE);
            let bytes = |file: u64| -> Vec<u8> {
                let file = u8::try_from(file).unwrap();
                let size = usize::try_from(ROWS_PER_FILE).unwrap() * ROW_BYTES;
                (0..size).map(|at| u8::try_from(at / 512 % 251).unwrap() ^ file).collect()
            };
            thread::scope(|scope| {
                for file in 0..4 {
                    let model = &model;
                    scope.spawn(move || model.write_file(file, &mut Arc::new(bytes(file))));
                }
            });
            for row in [0, 1, 2, 3, 4, ROWS_PER_FILE, 4 * ROWS_PER_FILE - 1] {
                let mut blocks = vec![vec![0; BLOCK_BYTES]; DATA + 1];
                for (member, block) in model.shared.members.iter().zip(&mut blocks) {
                    member.read_at(block, row * BLOCK_BYTES as u64).unwrap();
                }
                let sum = |at: usize| blocks.iter().fold(0, |sum, block| sum ^ block[at]);
                assert!((0..BLOCK_BYTES).all(|at| sum(at) == 0), "parity of row {row}");
                let at = usize::try_from(row % ROWS_PER_FILE).unwrap() * ROW_BYTES;
                let wanted = &bytes(row / ROWS_PER_FILE)[at..at + BLOCK_BYTES];
                let parity_slot = DATA - usize::try_from(row).unwrap() % (DATA + 1);
                assert_eq!(blocks[(parity_slot + 1) % (DATA + 1)], wanted, "row {row}");
            }
        }
    }
}
