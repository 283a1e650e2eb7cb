//! The budget of payload memory: it grants memory to connections, and queues those that must wait.
//!
//! Where it stands: one per server. Each connection has a [`Purse`]. The connection asks the budget
//! before it allocates memory for a request, for the memory's capacity, and gives the memory back
//! when the reply is sent. The server does not read from a connection that waits for memory. The
//! budget rings the connection's [`Bell`] when another try is worthwhile. No thread waits in this
//! module.
//!
//! ```text
//!   limit │ own: 1/4 │                      common: 3/4                           │
//!           each connection's share,   │ partial: 1/4 │ the largest request: 1/2  │
//!           for no other               unfinished growing writes, at most
//! ```
//!
//! - *Own*: each connection has its share of a quarter of the memory, so a small request never
//!   waits.
//! - *Common*: a connection takes at most twice the bytes that it leaves to others. So no
//!   connection takes all common memory, and later connections still find some. A connection that
//!   holds common memory and needs more waits until its own replies are sent. A connection that
//!   holds none waits in a queue, and at its turn gets all free memory. Clients that have earlier
//!   moved as many bytes as they request take turns in the queue with other clients. Requests
//!   within the "twice" rule overtake the queue for a while, so that the longest requests do not
//!   delay all others.
//! - *Partial*: a long write begins small and grows as its bytes arrive. Growing writes that hold
//!   memory and need more could wait for each other. So all growing writes together hold at most a
//!   part of the memory that leaves room for the largest request. Beyond that part only one write,
//!   the claimant, grows until it is whole. All other requests end without more memory.
//!
//! [`Budget::give`] only notes which connection is next. The thread that gives memory back calls
//! [`Budget::ring`] later, when it holds no lock of the bells' owners.
//!
//! Invariants
//! - The budget never grants more than the limit at the time:
//!   `tests::no_more_is_granted_than_there_is`.
//! - Memory that is given back wakes a connection that waits:
//!   `models::whoever_waits_for_memory_is_told`.
//! - Growing writes that hold all memory do not wait for each other:
//!   `tests::growing_writes_do_not_starve_each_other`.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use crate::limits::{OVERTAKING_MAX, OWN_BYTES_STEP, REQUEST_BYTES_LEAST, TAKEN_TO_LEFT};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{self, Flaw, Mutex, MutexGuard};

/// Wakes a connection so that it asks the budget again. Called with no lock held.
pub(crate) trait Bell: Send + Sync {
    fn ring(&self);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// The whole request's memory, without waiting in line if the memory is not free.
    Now,
    /// The whole request's memory; the connection waits in line if the memory is not free.
    Whole,
    /// More memory for a payload that is arriving.
    Growth,
}

#[derive(Debug)]
pub(crate) struct Purse {
    own_bytes: usize,
    held_bytes: usize,
    /// Common bytes that the connection's growing write holds.
    partial_bytes: usize,
    /// Payload bytes that the client has sent, or has taken in replies, so far.
    moved_bytes: usize,
    /// Identifies the connection in a queue and as the claimant.
    name: usize,
    is_waiting: bool,
}

impl Purse {
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    fn own_left(&self) -> usize {
        self.own_bytes.saturating_sub(self.held_bytes)
    }

    pub(crate) fn has_common(&self) -> bool {
        self.held_bytes > self.own_bytes
    }

    /// Bytes of `held_bytes` that exceed the connection's own share.
    fn common_of(&self, held_bytes: usize) -> usize {
        held_bytes.saturating_sub(self.own_bytes)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grant {
    Taken,
    Wait,
    /// The memory limit was lowered, and this growing write must give back its memory.
    Never,
}

struct Waiter {
    name: usize,
    bytes: usize,
    bell: Arc<dyn Bell>,
    is_called: bool,
    /// The client has earlier moved at least as many bytes as it now waits for.
    is_proven: bool,
}

#[derive(Default)]
struct Lines {
    whole: VecDeque<Waiter>,
    growth: VecDeque<Waiter>,
    /// Common bytes of all growing writes except the claimant.
    partial_bytes: usize,
    /// The connection whose write may grow beyond the part for growing writes.
    claimant: Option<usize>,
    names: usize,
    due: Vec<Arc<dyn Bell>>,
}

pub(crate) struct Budget {
    limit_bytes: AtomicUsize,
    connections_max: AtomicUsize,
    share_bytes: AtomicUsize,
    /// Common bytes that connections hold.
    held_bytes: AtomicUsize,
    /// Bytes of their own shares that connections hold.
    own_bytes: AtomicUsize,
    waiting: AtomicUsize,
    /// Requests that have overtaken the queues since the last waiting request was served.
    overtaking: AtomicUsize,
    /// Number of bells to ring; changed only while the queues are locked.
    due: AtomicUsize,
    lines: Mutex<Lines>,
}

pub(crate) fn request_bytes_max(limit_bytes: usize) -> usize {
    let half = (limit_bytes / 2).max(REQUEST_BYTES_LEAST);
    1 << (usize::BITS - 1 - half.leading_zeros())
}

impl Budget {
    pub(crate) fn new(limit_bytes: usize, connections_max: usize) -> Self {
        let budget = Self {
            limit_bytes: AtomicUsize::new(limit_bytes),
            connections_max: AtomicUsize::new(connections_max),
            share_bytes: AtomicUsize::new(0),
            held_bytes: AtomicUsize::new(0),
            own_bytes: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            overtaking: AtomicUsize::new(0),
            due: AtomicUsize::new(0),
            lines: Mutex::default(),
        };
        budget.deal();
        budget
    }

    /// Divides a quarter of the memory limit into the connections' own shares. A connection that
    /// holds memory gets its new share after it has given the memory back.
    fn deal(&self) {
        let connections = self.connections_max.load(Ordering::Relaxed).max(1);
        let share = self.limit_bytes() / 4 / connections;
        self.share_bytes.store(share - share % OWN_BYTES_STEP, Ordering::Relaxed);
    }

    pub(crate) fn set_connections_max(&self, count: usize) {
        self.connections_max.store(count, Ordering::Relaxed);
        self.deal();
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn limit_bytes(&self) -> usize {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// Sets the memory limit. Memory beyond the limit is freed as replies are sent, or when a
    /// growing write asks for more.
    pub(crate) fn set_limit(&self, bytes: usize) {
        self.limit_bytes.store(bytes, Ordering::Relaxed);
        self.deal();
        // Wake connections that wait for more than the new limit, so that their requests fail.
        self.call_all();
    }

    fn common_bytes(&self) -> usize {
        let limit = self.limit_bytes();
        limit - limit / 4
    }

    fn partial_bytes_max(&self) -> usize {
        self.common_bytes().saturating_sub(request_bytes_max(self.limit_bytes()))
    }

    pub(crate) fn purse(&self) -> Purse {
        let mut lines = self.lock();
        lines.names += 1;
        Purse {
            own_bytes: 0,
            held_bytes: 0,
            partial_bytes: 0,
            moved_bytes: 0,
            name: lines.names,
            is_waiting: false,
        }
    }

    pub(crate) fn own_left(&self, purse: &mut Purse) -> usize {
        self.renew(purse);
        purse.own_left()
    }

    /// If the purse is empty, sets its own share to the current share.
    fn renew(&self, purse: &mut Purse) {
        if purse.held_bytes == 0 {
            purse.own_bytes = self.share_bytes.load(Ordering::Relaxed);
        }
    }

    /// Asks for `bytes` more of memory. After [`Grant::Wait`], the connection asks again for the
    /// same amount when its bell rings or one of its replies is sent; or it leaves the queue
    /// ([`Self::leave`]).
    pub(crate) fn take(
        &self,
        purse: &mut Purse,
        bytes: usize,
        need: Need,
        bell: &Arc<dyn Bell>,
    ) -> Grant {
        self.renew(purse);
        if need == Need::Growth && self.is_beyond(purse) {
            return Grant::Never;
        }
        let (before, held) = (purse.common_of(purse.held_bytes), purse.held_bytes + bytes);
        let common = purse.common_of(held) - before;
        let is_taken = if common == 0 {
            self.leave(purse);
            true
        } else if need != Need::Growth && !purse.is_waiting {
            let is_free = self.waiting.load(Ordering::SeqCst) == 0 || self.may_overtake();
            let may_wait = need == Need::Whole && before == 0;
            (is_free && self.take_some(purse, common))
                || (may_wait && self.take_in_line(purse, common, need, bell))
        } else {
            self.take_in_line(purse, common, need, bell)
        };
        if !is_taken {
            return Grant::Wait;
        }
        self.own_bytes.fetch_add(bytes - common, Ordering::Relaxed);
        purse.held_bytes = held;
        Grant::Taken
    }

    fn may_overtake(&self) -> bool {
        self.overtaking.load(Ordering::Relaxed) < OVERTAKING_MAX
            && self.overtaking.fetch_add(1, Ordering::Relaxed) < OVERTAKING_MAX
    }

    /// Takes common bytes, if the connection then holds at most twice what it leaves to others.
    fn take_some(&self, purse: &Purse, bytes: usize) -> bool {
        let mine = purse.common_of(purse.held_bytes) + bytes;
        let left = mine.div_ceil(TAKEN_TO_LEFT);
        self.take_within(bytes, self.common_bytes().saturating_sub(left))
    }

    fn take_within(&self, bytes: usize, most: usize) -> bool {
        let within = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= most);
        self.held_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, within).is_ok()
    }

    /// Takes common bytes for a growing write or a queued connection.
    fn take_in_line(
        &self,
        purse: &mut Purse,
        bytes: usize,
        need: Need,
        bell: &Arc<dyn Bell>,
    ) -> bool {
        let mut lines = self.lock();
        if !purse.is_waiting {
            if need == Need::Growth && self.grow_some(&mut lines, purse, bytes) {
                return true;
            }
            let waiter = Waiter {
                name: purse.name,
                bytes,
                bell: Arc::clone(bell),
                is_called: false,
                is_proven: purse.moved_bytes >= bytes,
            };
            // A thread that gives memory back reads this counter afterwards: see `give`.
            self.waiting.fetch_add(1, Ordering::SeqCst);
            purse.is_waiting = true;
            let is_claimant = lines.claimant == Some(purse.name);
            let line = lines.line(need);
            let place = match need {
                Need::Growth if is_claimant => 0,
                Need::Growth => line.len(),
                Need::Whole | Need::Now => place_in(line, waiter.is_proven),
            };
            line.insert(place, waiter);
        }
        let is_first = lines.line(need).front().is_some_and(|first| first.name == purse.name);
        let is_taken = is_first && self.take_first(&mut lines, purse, bytes, need);
        if is_taken {
            lines.line(need).pop_front();
            self.overtaking.store(0, Ordering::Relaxed);
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            purse.is_waiting = false;
        } else if let Some(me) =
            lines.line(need).iter_mut().find(|waiter| waiter.name == purse.name)
        {
            (me.is_called, me.bytes) = (false, bytes);
        }
        self.call_next(&mut lines);
        is_taken
    }

    /// Grows a write within the part for growing writes, if enough stays free for new writes.
    fn grow_some(&self, lines: &mut Lines, purse: &mut Purse, bytes: usize) -> bool {
        let (partial, most) = (lines.partial_bytes, self.partial_bytes_max());
        let is_little = purse.partial_bytes + bytes <= most.saturating_sub(partial + bytes);
        let may = lines.claimant != Some(purse.name)
            && is_little
            && self.waiting.load(Ordering::SeqCst) == 0
            && self.take_within(bytes, self.common_bytes());
        if may {
            lines.partial_bytes += bytes;
            purse.partial_bytes += bytes;
        }
        may
    }

    /// Whether this write is growing while all growing writes together exceed the lowered limit, so
    /// that none could get more memory.
    fn is_beyond(&self, purse: &Purse) -> bool {
        purse.partial_bytes > 0 && self.lock().partial_bytes > self.partial_bytes_max()
    }

    /// Grants the first connection in the queue all free memory. A growing write gets the memory
    /// only if its connection is the claimant.
    fn take_first(&self, lines: &mut Lines, purse: &mut Purse, bytes: usize, need: Need) -> bool {
        if need == Need::Growth {
            if *lines.claimant.get_or_insert(purse.name) != purse.name {
                return false;
            }
            lines.partial_bytes -= std::mem::take(&mut purse.partial_bytes);
        } else if lines.claim().is_some() {
            return false;
        }
        self.take_within(bytes, self.common_bytes())
    }

    /// # Panics
    /// When the purse holds fewer than `bytes`.
    pub(crate) fn give(&self, purse: &mut Purse, bytes: usize) {
        let held = purse.held_bytes.checked_sub(bytes).expect("only what was taken is given back");
        let common = purse.common_of(purse.held_bytes) - purse.common_of(held);
        purse.held_bytes = held;
        self.own_bytes.fetch_sub(bytes - common, Ordering::Relaxed);
        if common == 0 {
            return;
        }
        self.held_bytes.fetch_sub(common, Ordering::SeqCst);
        // No wake-up is lost: a connection counts itself as waiting before it last reads the held
        // bytes.
        if self.waiting.load(Ordering::SeqCst) > 0 && !sync::has(Flaw::GiveSilent) {
            self.call_next(&mut self.lock());
        }
    }

    /// Notes that the client has moved a payload of `bytes` in memory.
    pub(crate) fn note_moved(purse: &mut Purse, bytes: usize) {
        purse.moved_bytes = purse.moved_bytes.saturating_add(bytes);
    }

    /// Notes that the growing write is complete or given up, and needs no more memory.
    pub(crate) fn end_growth(&self, purse: &mut Purse) {
        let mut lines = self.lock();
        lines.partial_bytes -= std::mem::take(&mut purse.partial_bytes);
        lines.claimant = lines.claimant.filter(|claimant| *claimant != purse.name);
        self.call_next(&mut lines);
    }

    pub(crate) fn leave(&self, purse: &mut Purse) {
        if !std::mem::take(&mut purse.is_waiting) {
            return;
        }
        let mut lines = self.lock();
        let before = lines.whole.len() + lines.growth.len();
        lines.whole.retain(|waiter| waiter.name != purse.name);
        lines.growth.retain(|waiter| waiter.name != purse.name);
        assert_eq!(lines.whole.len() + lines.growth.len() + 1, before, "one waits in one line");
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        lines.claimant = lines.claimant.filter(|claimant| *claimant != purse.name);
        self.call_next(&mut lines);
    }

    /// Notes the bell of the next connection in the queue that can proceed.
    fn call_next(&self, lines: &mut Lines) {
        let (common, held) = (self.common_bytes(), self.held_bytes.load(Ordering::SeqCst));
        let may_claim = lines.claim().is_some();
        let line = if may_claim { &mut lines.growth } else { &mut lines.whole };
        let Some(first) = line.front_mut() else { return };
        // Wake a waiter whose request can never fit, so that it fails.
        let fits = held + first.bytes <= common || first.bytes > common;
        if fits && !std::mem::replace(&mut first.is_called, true) {
            lines.due.push(Arc::clone(&first.bell));
            self.due.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Wakes every waiting connection, because of a change other than free memory.
    pub(crate) fn call_all(&self) {
        let mut lines = self.lock();
        let Lines { whole, growth, due, .. } = &mut *lines;
        let before = due.len();
        due.extend(whole.iter().chain(growth.iter()).map(|waiter| Arc::clone(&waiter.bell)));
        self.due.fetch_add(due.len() - before, Ordering::Relaxed);
    }

    pub(crate) fn is_due(&self) -> bool {
        self.due.load(Ordering::Relaxed) > 0
    }

    /// Rings the noted bells. The caller must hold no lock that the bells' owners need.
    pub(crate) fn ring(&self) {
        if self.is_due() {
            let mut lines = self.lock();
            let due = std::mem::take(&mut lines.due);
            self.due.store(0, Ordering::Relaxed);
            drop(lines);
            due.iter().for_each(|bell| bell.ring());
        }
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.own_bytes.load(Ordering::Relaxed) + self.held_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// The position of a new waiter in the queue. Clients that have earlier moved as many bytes as they
/// request alternate with others. Clients that request much and take no replies would make a queue
/// as slow as their deadlines.
fn place_in(line: &VecDeque<Waiter>, is_proven: bool) -> usize {
    let proven = line.iter().filter(|waiter| waiter.is_proven).count();
    if is_proven { line.len().min(2 * proven + 1) } else { line.len() }
}

impl Lines {
    fn line(&mut self, need: Need) -> &mut VecDeque<Waiter> {
        match need {
            Need::Now | Need::Whole => &mut self.whole,
            Need::Growth => &mut self.growth,
        }
    }

    /// The first growing write in the queue, if it is the claimant or there is no claimant.
    fn claim(&self) -> Option<&Waiter> {
        self.growth.front().filter(|first| self.claimant.is_none_or(|name| name == first.name))
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
#[path = "budget_tests.rs"]
pub(crate) mod tests;
