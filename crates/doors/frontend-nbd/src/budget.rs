//! The budget: what payloads of all connections may take, and who has to wait for it.
//!
//! Where it stands: one per server. Each connection has a [`Purse`]; it asks before a request has memory, for as much as
//! the memory's capacity, and gives back when the reply is out. A connection that has to wait is not read from; its
//! [`Bell`] is rung when it is worth another try. No thread waits here.
//!
//! ```text
//!   limit │ own: 1/4 │                      common: 3/4                           │
//!           each connection's share,   │ partial: 1/4 │ the largest request: 1/2  │
//!           for no other               unfinished growing writes, at most
//! ```
//!
//! - *Own*: every connection has its part of a quarter, whatever others do, so a small request never waits.
//! - *Common*: a connection takes no more than twice what it leaves to others; so those that come later find something,
//!   and none takes all. One that has something already waits for replies of its own to go out; one that has nothing waits in
//!   line, and may have all that is free when it is its turn; those whose clients have moved as much before take turns
//!   with those of which that is not known. Those that go by this rule overtake the line
//!   for a while, so that the longest requests do not hold up all others.
//! - *Partial*: a long write begins small and grows as its bytes arrive. Those that hold memory and need more of it to
//!   end could wait for each other; so together they hold at most a part that leaves room for the largest request, and
//!   beyond it only one of them, the claimant, goes on until it is whole. Everything else ends by itself.
//!
//! Bells are rung by the thread that gave something back, when it holds no lock that a bell's owner may want: [`Budget::give`]
//! only notes whose turn it is, [`Budget::ring`] rings.
//!
//! Invariants
//! - Never more is granted than the limit that was set when it was granted: `tests::no_more_is_granted_than_there_is`.
//! - A connection that waits for what is given back is told: `models::whoever_waits_for_memory_is_told`.
//! - Growing writes that hold all there is do not wait for each other: `tests::growing_writes_do_not_starve_each_other`.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use crate::limits::{OVERTAKING_MAX, OWN_BYTES_STEP, REQUEST_BYTES_LEAST, TAKEN_TO_LEFT};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{self, Flaw, Mutex, MutexGuard};

/// Tells a connection that it is worth asking again. Called with no lock held.
pub(crate) trait Bell: Send + Sync {
    fn ring(&self);
}

/// What a request asks memory for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// All that it will ever have, at once or not at all.
    Now,
    /// All that it will ever have.
    Whole,
    /// More of a payload that is coming.
    Growth,
}

/// What a connection has.
#[derive(Debug)]
pub(crate) struct Purse {
    /// Its own, and no other's.
    own_bytes: usize,
    held_bytes: usize,
    /// Of what is held from the common part: for a write that is growing.
    partial_bytes: usize,
    /// Memory of replies that its client has taken, and of payloads that it has sent: all of them so far.
    moved_bytes: usize,
    /// Its name among those who wait, and while it is the claimant.
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

    /// Bytes that it may take whatever others do.
    fn own_left(&self) -> usize {
        self.own_bytes.saturating_sub(self.held_bytes)
    }

    /// Whether it has something that others could have.
    pub(crate) fn has_common(&self) -> bool {
        self.held_bytes > self.own_bytes
    }

    /// How much of so many bytes held are common.
    fn common_of(&self, held_bytes: usize) -> usize {
        held_bytes.saturating_sub(self.own_bytes)
    }
}

/// What came of asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grant {
    Taken,
    /// The bell will ring.
    Wait,
    /// There is less than there was, and this is one of those that have to give back what they have.
    Never,
}

/// One that waits.
struct Waiter {
    name: usize,
    /// Of the common part.
    bytes: usize,
    bell: Arc<dyn Bell>,
    is_called: bool,
    /// Its client has moved as much before.
    is_proven: bool,
}

#[derive(Default)]
struct Lines {
    whole: VecDeque<Waiter>,
    growth: VecDeque<Waiter>,
    /// Common bytes of writes that are growing, but the claimant's.
    partial_bytes: usize,
    /// The write that may grow beyond the partial part.
    claimant: Option<usize>,
    names: usize,
    /// Bells to be rung.
    due: Vec<Arc<dyn Bell>>,
}

/// See the module.
pub(crate) struct Budget {
    limit_bytes: AtomicUsize,
    /// Connections that there may be.
    connections_max: AtomicUsize,
    /// Each connection's own part.
    share_bytes: AtomicUsize,
    /// Of the common part.
    held_bytes: AtomicUsize,
    /// Of connections' own parts.
    own_bytes: AtomicUsize,
    /// Connections in the lines.
    waiting: AtomicUsize,
    /// How many have overtaken the lines since the last one was served.
    overtaking: AtomicUsize,
    /// Bells that are due; changed with the lines locked.
    due: AtomicUsize,
    lines: Mutex<Lines>,
}

/// The largest request that a server with this limit takes.
pub(crate) fn request_bytes_max(limit_bytes: usize) -> usize {
    let half = (limit_bytes / 2).max(REQUEST_BYTES_LEAST);
    1 << (usize::BITS - 1 - half.leading_zeros())
}

impl Budget {
    /// So much, for so many connections at most.
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

    /// Deals a quarter out. A connection that holds something has its new part when it has given that back.
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

    /// Sets the limit. What is held beyond it is given back as replies go out, and by growing writes that ask for more.
    pub(crate) fn set_limit(&self, bytes: usize) {
        self.limit_bytes.store(bytes, Ordering::Relaxed);
        self.deal();
        // Those that hold more than there may be now, and wait for still more, have to find that out.
        self.call_all();
    }

    fn common_bytes(&self) -> usize {
        let limit = self.limit_bytes();
        limit - limit / 4
    }

    fn partial_bytes_max(&self) -> usize {
        self.common_bytes().saturating_sub(request_bytes_max(self.limit_bytes()))
    }

    /// The purse of a new connection.
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

    /// Bytes that a connection may take whatever others do.
    pub(crate) fn own_left(&self, purse: &mut Purse) -> usize {
        self.renew(purse);
        purse.own_left()
    }

    /// A purse that is empty is made anew, after what has been set meanwhile.
    fn renew(&self, purse: &mut Purse) {
        if purse.held_bytes == 0 {
            purse.own_bytes = self.share_bytes.load(Ordering::Relaxed);
        }
    }

    /// Asks for `bytes` more. After [`Grant::Wait`] the connection asks for the same again when its bell has rung or a reply
    /// of its own is out, or it leaves the line ([`Self::leave`]).
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

    /// Takes common bytes if that leaves enough to others for what the connection then has.
    fn take_some(&self, purse: &Purse, bytes: usize) -> bool {
        let mine = purse.common_of(purse.held_bytes) + bytes;
        let left = mine.div_ceil(TAKEN_TO_LEFT);
        self.take_within(bytes, self.common_bytes().saturating_sub(left))
    }

    fn take_within(&self, bytes: usize, most: usize) -> bool {
        let within = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= most);
        self.held_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, within).is_ok()
    }

    /// The same for those who grow, and for those who have to wait.
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
            // A thread that gives back looks at this number after having given: see `give`.
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

    /// Growth that leaves room for others to begin.
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

    /// Whether growing writes hold more than they may since the limit was lowered, and this is one of them. They would
    /// wait for each other.
    fn is_beyond(&self, purse: &Purse) -> bool {
        purse.partial_bytes > 0 && self.lock().partial_bytes > self.partial_bytes_max()
    }

    /// What the first in line may have: all that is free, if it is no growth or the claimant's.
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

    /// Gives `bytes` back.
    ///
    /// # Panics
    /// When they were not taken.
    pub(crate) fn give(&self, purse: &mut Purse, bytes: usize) {
        let held = purse.held_bytes.checked_sub(bytes).expect("only what was taken is given back");
        let common = purse.common_of(purse.held_bytes) - purse.common_of(held);
        purse.held_bytes = held;
        self.own_bytes.fetch_sub(bytes - common, Ordering::Relaxed);
        if common == 0 {
            return;
        }
        self.held_bytes.fetch_sub(common, Ordering::SeqCst);
        // One that begins to wait has said so before it looked for the last time.
        if self.waiting.load(Ordering::SeqCst) > 0 && !sync::has(Flaw::GiveSilent) {
            self.call_next(&mut self.lock());
        }
    }

    /// Notes that the client has moved what so much memory was for.
    pub(crate) fn note_moved(purse: &mut Purse, bytes: usize) {
        purse.moved_bytes = purse.moved_bytes.saturating_add(bytes);
    }

    /// The write that was growing is whole, or is given up: what it has comes back by itself.
    pub(crate) fn end_growth(&self, purse: &mut Purse) {
        let mut lines = self.lock();
        lines.partial_bytes -= std::mem::take(&mut purse.partial_bytes);
        lines.claimant = lines.claimant.filter(|claimant| *claimant != purse.name);
        self.call_next(&mut lines);
    }

    /// Waits no longer, and claims nothing.
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

    /// Notes that the bells of those are to be rung that can go on.
    fn call_next(&self, lines: &mut Lines) {
        let (common, held) = (self.common_bytes(), self.held_bytes.load(Ordering::SeqCst));
        let may_claim = lines.claim().is_some();
        let line = if may_claim { &mut lines.growth } else { &mut lines.whole };
        let Some(first) = line.front_mut() else { return };
        // One that wants more than there is any more has to be told so.
        let fits = held + first.bytes <= common || first.bytes > common;
        if fits && !std::mem::replace(&mut first.is_called, true) {
            lines.due.push(Arc::clone(&first.bell));
            self.due.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Has every connection that waits look: something else has changed.
    pub(crate) fn call_all(&self) {
        let mut lines = self.lock();
        let Lines { whole, growth, due, .. } = &mut *lines;
        let before = due.len();
        due.extend(whole.iter().chain(growth.iter()).map(|waiter| Arc::clone(&waiter.bell)));
        self.due.fetch_add(due.len() - before, Ordering::Relaxed);
    }

    /// Whether bells are due.
    pub(crate) fn is_due(&self) -> bool {
        self.due.load(Ordering::Relaxed) > 0
    }

    /// Rings the bells that are due. No lock that their owners want may be held.
    pub(crate) fn ring(&self) {
        if self.is_due() {
            let mut lines = self.lock();
            let due = std::mem::take(&mut lines.due);
            self.due.store(0, Ordering::Relaxed);
            drop(lines);
            due.iter().for_each(|bell| bell.ring());
        }
    }

    /// Bytes held now.
    pub(crate) fn held_bytes(&self) -> usize {
        self.own_bytes.load(Ordering::Relaxed) + self.held_bytes.load(Ordering::Relaxed)
    }

    /// Connections that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// Where another comes in line. Clients that have moved as much before take turns with those that have not: a line of those
/// that ask for much and take nothing is long, and as slow as their deadlines.
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

    /// The growing write that is first in line, if it is the claimant or may be.
    fn claim(&self) -> Option<&Waiter> {
        self.growth.front().filter(|first| self.claimant.is_none_or(|name| name == first.name))
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
#[path = "budget_tests.rs"]
pub(crate) mod tests;
