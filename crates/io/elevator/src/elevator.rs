//! Chooses the next dispatch. The rules are in the crate's header.

use std::collections::VecDeque;

use braid_sim_hooks::{Bug, spoiled};

use crate::counters::Counters;
use crate::depth::InFlight;
use crate::entry::{Class, Direction, Directions, Dispatch, Entry, QueuePosition, Tag};
use crate::nodes::{Node, Nodes, Parts};
use crate::queue::Queue;
use crate::settings::{Policy, Settings};

#[derive(Debug, Default)]
struct ClassQueues {
    /// The queues of one class, indexed by [`Direction`].
    queues: [Queue; 2],
    /// Entries inserted at the head, which go before all sorted entries.
    head: VecDeque<Node>,
    /// Batches of reads that went before waiting writes.
    passed_over: u32,
}

impl ClassQueues {
    fn queue(&self, direction: Direction) -> &Queue {
        &self.queues[direction as usize]
    }
}

/// The running batch: dispatches in one class and direction, in rising order of sectors.
#[derive(Clone, Copy, Debug)]
struct Batch {
    class: Class,
    direction: Direction,
    sent: u32,
}

/// One member's elevator.
#[derive(Debug)]
pub struct Elevator {
    settings: Settings,
    nodes: Nodes,
    /// The queues of all classes, indexed by [`Class`].
    classes: [ClassQueues; 3],
    /// Entries that wait under [`Policy::None`].
    straight: VecDeque<Node>,
    batch: Option<Batch>,
    /// Whether the last dispatch that followed its own direction's sweep was a write.
    is_at_writes: bool,
    out: InFlight,
    /// Number of waiting entries, indexed by [`Direction`].
    waiting: [usize; 2],
    /// When the hold of waiting entries began, indexed by [`Direction`].
    held_since_ns: [Option<u64>; 2],
    /// When the direction last had an entry that waited or was out, indexed by [`Direction`].
    busy_ns: [Option<u64>; 2],
    counters: Counters,
}

impl Elevator {
    /// An empty elevator.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            nodes: Nodes::default(),
            classes: Default::default(),
            straight: VecDeque::new(),
            batch: None,
            is_at_writes: false,
            out: InFlight::default(),
            waiting: [0; 2],
            held_since_ns: [None; 2],
            busy_ns: [None; 2],
            counters: Counters::default(),
        }
    }

    /// The current settings.
    #[inline]
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes the settings from now on. Queued entries keep their order.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Insertions, dispatches, merges, batches, expiries.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Entries queued or in flight.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether nothing is queued or in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waiting entries: reads, and everything else. Dispatches in flight do not count.
    #[must_use]
    #[inline]
    pub fn waiting(&self) -> (usize, usize) {
        let [reads, writes] = self.waiting;
        (reads, writes)
    }

    /// The kinds of entries that wait: a multiplexer's demand.
    #[must_use]
    #[inline]
    pub fn waits(&self) -> Directions {
        let [reads, writes] = self.waiting;
        Directions { reads: reads > 0, writes: writes > 0 }
    }

    /// Dispatches in flight: reads, and everything else.
    #[must_use]
    #[inline]
    pub fn out(&self) -> (u32, u32) {
        (self.out.reads, self.out.writes)
    }

    /// Queues an entry that arrived at `now_ns`. From call to call `now_ns` never decreases.
    ///
    /// # Panics
    /// If the entry has no sectors.
    pub fn handle_insert(&mut self, now_ns: u64, entry: Entry, position: QueuePosition) {
        assert!(entry.sectors > 0, "an entry has sectors");
        self.counters.inserted += 1;
        self.waiting[entry.operation.direction() as usize] += 1;
        if self.settings.policy == Policy::None {
            self.straight.push_back(self.nodes.add(entry, now_ns));
            return;
        }
        let waiting = &mut self.classes[entry.class.index()];
        match position {
            QueuePosition::Head => waiting.head.push_back(self.nodes.add(entry, now_ns)),
            QueuePosition::Sorted => {
                let queue = &mut waiting.queues[entry.operation.direction() as usize];
                let came = (entry, now_ns);
                queue.insert(&mut self.nodes, came, &self.settings, &mut self.counters);
            }
        }
    }

    /// The member's next dispatch, of the kinds that are `allowed`. `None` if no entry of these
    /// kinds waits, or no tag is free. Entries queued under [`Policy::None`] go whatever is
    /// allowed, as without an elevator. A kind held for [`Settings::hold_max_ns`] may go as well.
    pub fn poll_dispatch(&mut self, now_ns: u64, allowed: Directions) -> Option<Dispatch> {
        if let Some(node) = self.straight.pop_front() {
            // Other held entries of this kind stay held, and their hold time continues.
            return Some(self.send(node));
        }
        self.note_busy(now_ns);
        let allowed = self.lift(now_ns, allowed);
        if let Some(node) = self.take_aged(now_ns, allowed) {
            self.counters.aged += 1;
            return Some(self.let_go(node));
        }
        let node = Class::ALL.into_iter().find_map(|class| self.take(class, now_ns, allowed))?;
        Some(self.let_go(node))
    }

    /// The entries of a dispatch in flight, in the order of sectors.
    pub fn parts(&self, tag: Tag) -> Parts<'_> {
        self.nodes.parts(tag.0)
    }

    /// Sends up to `count_max` dispatches while entries wait and both kinds may go. Repeated calls
    /// of [`Self::poll_dispatch`] would choose the same dispatches
    /// [check: a_run_is_what_one_after_the_other_would_be]. If only one kind waits, one check is
    /// enough for the whole run.
    pub fn poll_run(
        &mut self,
        now_ns: u64,
        count_max: usize,
        mut send: impl FnMut(Dispatch, Parts<'_>),
    ) {
        let mut left = count_max;
        while left > 0 && self.waiting != [0; 2] {
            let Some((class, direction)) = self.only_kind(now_ns) else {
                let Some(dispatch) = self.poll_dispatch(now_ns, Directions::ALL) else { return };
                send(dispatch, self.nodes.parts(dispatch.tag.0));
                left -= 1;
                continue;
            };
            self.note_busy(now_ns);
            self.lift(now_ns, Directions::ALL);
            while left > 0 && self.waiting[direction as usize] > 0 {
                let Some(node) = self.take_sorted(class, now_ns, Directions::ALL) else { return };
                let dispatch = self.let_go(node);
                send(dispatch, self.nodes.parts(node));
                left -= 1;
            }
        }
    }

    /// The class and direction of all waiting entries, if all have the same and none goes out of
    /// order: because of its age, or because it lies on the arm's way.
    fn only_kind(&self, now_ns: u64) -> Option<(Class, Direction)> {
        let mut only = None;
        for class in Class::ALL {
            let waiting = &self.classes[class.index()];
            if !waiting.head.is_empty() {
                return None;
            }
            for direction in Direction::BOTH {
                if let Some(oldest) = waiting.queue(direction).oldest()
                    && only.replace((class, direction, oldest)).is_some()
                {
                    return None;
                }
            }
        }
        let (class, direction, oldest) = only?;
        let due = now_ns.checked_sub(self.settings.aging_ns);
        let has_aged = due.is_some_and(|due| self.nodes.get(oldest).came_ns <= due);
        let comes_by = self.is_at_writes && direction == Direction::Read;
        (self.straight.is_empty() && !has_aged && !comes_by).then_some((class, direction))
    }

    /// A dispatch is done. The dispatch's tag becomes free and no longer names a dispatch.
    pub fn handle_done(&mut self, tag: Tag) {
        self.out.give_back(self.nodes.get(tag.0).entry.operation.direction());
        self.nodes.free(tag.0);
    }

    /// Returns `allowed` with each kind added that has been held for too long.
    fn lift(&mut self, now_ns: u64, allowed: Directions) -> Directions {
        let mut lifted = [allowed.reads, allowed.writes];
        for (direction, is_allowed) in lifted.iter_mut().enumerate() {
            let since = &mut self.held_since_ns[direction];
            if self.waiting[direction] == 0 {
                *since = None;
            } else if !*is_allowed {
                let since_ns = *since.get_or_insert(now_ns);
                let is_long = since_ns.saturating_add(self.settings.hold_max_ns) <= now_ns;
                let is_long = spoiled(Bug::HeldForEver, is_long, false);
                *is_allowed = is_long;
            }
        }
        let [reads, writes] = lifted;
        Directions { reads, writes }
    }

    /// Sends an entry whose kind was held. The kind's hold time ends, or starts anew if further
    /// entries of that kind wait.
    fn let_go(&mut self, node: Node) -> Dispatch {
        self.held_since_ns[self.direction_of(node) as usize] = None;
        self.send(node)
    }

    fn send(&mut self, node: Node) -> Dispatch {
        let group = self.nodes.get(node);
        let operation = group.entry.operation;
        let (start, sectors, parts) = (group.entry.start, group.sectors, group.parts);
        self.waiting[operation.direction() as usize] -= parts as usize;
        self.out.take(operation.direction());
        self.counters.dispatched += 1;
        Dispatch { tag: Tag(node), operation, start, sectors, parts }
    }

    /// Notes the time for each direction that has entries waiting or in flight.
    fn note_busy(&mut self, now_ns: u64) {
        let out = [self.out.reads, self.out.writes];
        for ((busy_ns, waiting), out) in self.busy_ns.iter_mut().zip(self.waiting).zip(out) {
            if waiting > 0 || out > 0 {
                *busy_ns = Some(now_ns);
            }
        }
    }

    /// Whether a tag is free for this direction. Valid only after `note_busy`.
    fn has_tag(&self, direction: Direction) -> bool {
        let [own_ns, other_ns] = match direction {
            Direction::Read => self.busy_ns,
            Direction::Write => [self.busy_ns[1], self.busy_ns[0]],
        };
        let is_shared = other_ns.is_some_and(|other_ns| {
            own_ns.is_none_or(|now_ns| now_ns < other_ns.saturating_add(self.settings.hold_max_ns))
        });
        let Settings { depth, depth_alone, .. } = self.settings;
        self.out.allows(if is_shared { depth } else { depth_alone }, direction)
    }

    fn may_go(&self, direction: Direction, allowed: Directions) -> bool {
        allowed.has(direction) && self.has_tag(direction)
    }

    /// The oldest allowed entry of all classes, if it has waited longer than `aging_ns`. Chosen by
    /// age only, so that no aged entry is passed over again.
    fn take_aged(&mut self, now_ns: u64, allowed: Directions) -> Option<Node> {
        let due = now_ns.checked_sub(self.settings.aging_ns)?;
        let mut oldest: Option<(u64, Class, Option<Direction>, Node)> = None;
        for class in Class::ALL {
            let waiting = &self.classes[class.index()];
            let head = waiting.head.front().map(|node| (None, *node));
            let sorted = Direction::BOTH.into_iter().filter_map(|direction| {
                waiting.queue(direction).oldest().map(|node| (Some(direction), node))
            });
            for (place, node) in head.into_iter().chain(sorted) {
                let came_ns = self.nodes.get(node).came_ns;
                let is_older = oldest.is_none_or(|(other_ns, ..)| came_ns < other_ns);
                if is_older && came_ns <= due && self.may_go(self.direction_of(node), allowed) {
                    oldest = Some((came_ns, class, place, node));
                }
            }
        }
        let (_, class, place, node) = oldest?;
        match place {
            Some(direction) => self.remove(class, direction, node),
            None => _ = self.classes[class.index()].head.pop_front(),
        }
        Some(node)
    }

    fn direction_of(&self, node: Node) -> Direction {
        self.nodes.get(node).entry.operation.direction()
    }

    fn remove(&mut self, class: Class, direction: Direction, node: Node) {
        self.is_at_writes = direction == Direction::Write;
        self.classes[class.index()].queues[direction as usize].remove(&mut self.nodes, node);
    }

    fn take(&mut self, class: Class, now_ns: u64, allowed: Directions) -> Option<Node> {
        let head = self.classes[class.index()].head.front().copied();
        if head.is_some_and(|node| self.may_go(self.direction_of(node), allowed)) {
            return self.classes[class.index()].head.pop_front();
        }
        if let Some(node) = self.take_along(class, now_ns, allowed) {
            return Some(node);
        }
        self.take_sorted(class, now_ns, allowed)
    }

    /// The next entry of one class in the order of its directions' sweeps.
    fn take_sorted(&mut self, class: Class, now_ns: u64, allowed: Directions) -> Option<Node> {
        if let Some(node) = self.continue_batch(class, allowed) {
            return Some(node);
        }
        let direction = self.choose_direction(class, allowed)?;
        let waiting = self.classes[class.index()].queue(direction);
        let oldest = waiting.oldest().expect("a direction is chosen if something waits");
        let is_expired = self.is_expired(oldest, now_ns);
        let node = if is_expired {
            oldest
        } else {
            waiting.next_up().or(waiting.lowest()).expect("the oldest is sorted as well")
        };
        self.counters.expired += u64::from(is_expired);
        self.counters.batches += 1;
        self.batch = Some(Batch { class, direction, sent: 1 });
        self.remove(class, direction, node);
        Some(node)
    }

    fn is_expired(&self, node: Node, now_ns: u64) -> bool {
        let expiry_ns = match self.direction_of(node) {
            Direction::Read => self.settings.read_expiry_ns,
            Direction::Write => self.settings.write_expiry_ns,
        };
        self.nodes.get(node).came_ns.saturating_add(expiry_ns) <= now_ns
    }

    /// An entry of the other direction that lies on the arm's way, or where the arm is. `None`
    /// while an older entry of that direction has expired.
    fn take_along(&mut self, class: Class, now_ns: u64, allowed: Directions) -> Option<Node> {
        if !self.settings.takes_along || !allowed.reads {
            return None;
        }
        let waiting = &self.classes[class.index()];
        let [reads, writes] = Direction::BOTH.map(|direction| waiting.queue(direction));
        let (direction, node) = if !allowed.writes {
            (Direction::Write, before_next(writes, reads)?)
        } else if self.is_at_writes && self.waiting[Direction::Write as usize] == 0 {
            (Direction::Read, reads.next_from(writes.position())?.1)
        } else {
            return None;
        };
        let oldest = self.classes[class.index()].queue(direction).oldest()?;
        if self.is_expired(oldest, now_ns) || !self.has_tag(direction) {
            return None;
        }
        let [reads, writes] = &mut self.classes[class.index()].queues;
        let (from, sweep) = match direction {
            Direction::Read => (reads, writes),
            Direction::Write => (writes, reads),
        };
        from.remove_by_the_way(&mut self.nodes, node);
        sweep.go_on_from(self.nodes.get(node).end());
        Some(node)
    }

    /// The next entry of the running batch, if the batch is of this class.
    fn continue_batch(&mut self, class: Class, allowed: Directions) -> Option<Node> {
        let Batch { direction, sent, .. } = self.batch.filter(|batch| batch.class == class)?;
        if sent >= self.settings.batch || !self.may_go(direction, allowed) {
            return None;
        }
        let queue = &mut self.classes[class.index()].queues[direction as usize];
        let node = queue.take_next_up(&mut self.nodes)?;
        self.is_at_writes = direction == Direction::Write;
        self.batch = Some(Batch { class, direction, sent: sent + 1 });
        Some(node)
    }

    /// Reads, unless writes have been passed over often enough. A direction is chosen only if it
    /// has a tag.
    fn choose_direction(&mut self, class: Class, allowed: Directions) -> Option<Direction> {
        let may_go = |direction| {
            let queue = self.classes[class.index()].queue(direction);
            !queue.is_empty() && self.may_go(direction, allowed)
        };
        let (reads, writes) = (may_go(Direction::Read), may_go(Direction::Write));
        let waiting = &mut self.classes[class.index()];
        match (reads, writes) {
            (false, false) => None,
            (true, false) => Some(Direction::Read),
            (true, true) if waiting.passed_over < self.settings.writes_starved => {
                waiting.passed_over += 1;
                Some(Direction::Read)
            }
            (reads, true) => {
                self.counters.starved += u64::from(reads);
                waiting.passed_over = 0;
                Some(Direction::Write)
            }
        }
    }
}

/// The next group of the held queue, if it lies before the next group of the other queue's sweep.
fn before_next(held: &Queue, sweep: &Queue) -> Option<Node> {
    let (lowest, _) = sweep.next_from(0)?;
    let (next, held_next) = (sweep.next_from(sweep.position()), held.next_from(sweep.position()));
    let before = match (next, held_next) {
        (Some((next, _)), held_next) => held_next.filter(|(start, _)| *start < next),
        (None, Some(beyond)) => Some(beyond),
        (None, None) => held.next_from(0).filter(|(start, _)| *start < lowest),
    };
    before.map(|(_, node)| node)
}

#[cfg(test)]
mod tests;
