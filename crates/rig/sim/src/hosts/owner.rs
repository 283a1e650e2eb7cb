//! An owner: the shipped tenure and lease, with the driver's rules around them.
//!
//! Where it stands: between [`lanes`](super::lanes) and [`host`](super::host), which carries out
//! the swaps.
//!
//! ```text
//!   start:  read bits ─▶ make dirty blocks equal ─▶ superblocks, lease waited for ─▶ serve
//!   fails:  member silent ─▶ want without it ─▶ swap ─▶ allows ─▶ superblocks ─▶ not waited for
//!   back:   new session ─▶ copies, all writes ─▶ in sync ─▶ superblocks ─▶ want with it ─▶ swap
//! ```
//!
//! # Invariants
//! - The members that the owner uses include all that the store's record may name.
//! - A member that has left begins a new session before it returns, so that old requests do not
//!   meet new ones at its device.

use braid_ownership::{ReadLease, Record, SwapResult, Tenure};

use super::context::{Context, Rule};
use super::lanes::{Kind, Lanes, Membership, Tools};
use super::layout::{BLOCKS, Blocks, Layout, Set, key_of, keys_of, members_of, set_of};
use super::links::{Links, Purpose};
use super::message::{Process, Reply, Superblock, Work};

/// The lease of reads, in units of a host's clock.
pub(super) const LEASE: u64 = 1000;
/// Pause between two updates of the record by which the owner shows that it lives.
const BEAT: u64 = 1000;

/// An update of superblocks that is under way.
#[derive(Debug)]
struct Update {
    number: u64,
    goal: Set,
    pending: Set,
    /// Members that leave when the update is done.
    dropped: Set,
}

#[derive(Debug)]
struct Start {
    /// Members whose bits are not known yet.
    pending: Set,
    states: Vec<(usize, Blocks, Superblock)>,
}

/// How an owner begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) waits_for_lease: bool,
    pub(super) trusts_superblocks: bool,
    /// The members that the take-over claimed.
    pub(super) claimed: Set,
    /// When this owner serves, the operator's rule is over.
    pub(super) ends_rule: bool,
}

#[derive(Debug)]
pub(super) struct Owner {
    process: Process,
    epoch: u64,
    layout: Layout,
    pub(super) tenure: Tenure,
    lease: ReadLease,
    in_sync: Set,
    /// The members that superblocks name as in sync.
    named: Set,
    /// The members that the record should name.
    wanted: Set,
    /// The store's record may differ from the wanted record.
    may_be_behind: bool,
    /// Superblocks of this epoch have been written.
    is_named: bool,
    update: Option<Update>,
    updates: u64,
    joining: Option<usize>,
    is_joiner_marked: bool,
    lanes: Lanes,
    start: Option<Start>,
    /// Superblocks decide which members are in sync, since the store was restored.
    trusts_superblocks: bool,
    serve_after: u64,
    /// Once this owner serves, the operator's rule is over.
    pub(super) ends_rule: bool,
    is_serving: bool,
    /// The owner is giving the array back, and answers no client any more.
    is_released: bool,
    beat_at: u64,
}

impl Owner {
    pub(super) fn new(
        layout: Layout,
        record: Record,
        entry: Entry,
        (links, lease): (&mut Links, ReadLease),
        time: u64,
        context: &mut Context<'_>,
    ) -> Self {
        let process = links.process();
        // The array continues with the members that were claimed; the record names no others.
        let in_sync = set_of(&record.in_sync()) & entry.claimed;
        let asked = if entry.trusts_superblocks { entry.claimed } else { in_sync };
        for member in members_of(asked) {
            links.call(member, (Work::ReadState, Purpose::State), time, context);
        }
        let waited = if entry.waits_for_lease { LEASE * 9 / 8 } else { 0 };
        Self {
            process,
            epoch: record.epoch,
            layout,
            tenure: Tenure::new(process.owner_id(), record),
            lease,
            in_sync,
            named: in_sync,
            wanted: in_sync,
            may_be_behind: true,
            is_named: false,
            update: None,
            updates: 0,
            joining: None,
            is_joiner_marked: false,
            lanes: Lanes::default(),
            start: Some(Start { pending: asked, states: Vec::new() }),
            trusts_superblocks: entry.trusts_superblocks,
            serve_after: time + waited,
            ends_rule: entry.ends_rule,
            is_serving: false,
            is_released: false,
            beat_at: time + BEAT,
        }
    }

    pub(super) fn is_serving(&self) -> bool {
        self.is_serving && !self.is_released && self.tenure.end().is_none()
    }

    /// Whether the array is whole, by the owner's knowledge and by the record.
    pub(super) fn is_whole(&self) -> bool {
        let all = self.layout.all();
        self.members().is_whole
            && self.is_serving()
            && set_of(&self.tenure.record().in_sync()) == all
    }

    pub(super) fn swapped(&mut self, result: SwapResult) {
        self.may_be_behind = true;
        self.tenure.swapped(result);
    }

    pub(super) fn note(&mut self, member: usize, begun: u64) {
        self.lease.note(key_of(member), begun);
    }

    fn members(&self) -> Membership {
        let (layout, in_sync, joining) = (self.layout, self.in_sync, self.joining);
        let all = layout.all();
        let is_whole = in_sync == all && self.named == all && self.is_named;
        Membership { layout, in_sync, joining, is_whole }
    }

    /// A client submits a request.
    pub(super) fn request(
        &mut self,
        (block, is_write): (usize, bool),
        (links, time): (&mut Links, u64),
        context: &mut Context<'_>,
    ) {
        if !self.is_serving() || !self.lanes.has_room(block) {
            return;
        }
        let now = context.now;
        let kind = match is_write {
            true => Kind::Write(context.checker.write_begins(block, self.epoch, now)),
            false => Kind::Read,
        };
        let members = self.members();
        self.lanes.submit(block, kind, &mut Tools { members, links, time, context });
    }

    /// Gives the array back, as at an orderly stop: no client gets an answer any more.
    pub(super) fn release(&mut self) {
        (self.is_released, self.may_be_behind) = (true, true);
        self.tenure.want_release("");
    }

    /// Takes a server's answer.
    pub(super) fn take(
        &mut self,
        (member, purpose, reply): (usize, Purpose, Reply),
        (links, time): (&mut Links, u64),
        context: &mut Context<'_>,
    ) {
        match (purpose, reply) {
            (Purpose::Operation(block, number), reply) => {
                let members = self.members();
                let mut tools = Tools { members, links, time, context };
                self.lanes.answered((block, number, member), reply, &mut tools);
            }
            (Purpose::Superblock(number), _) => {
                if let Some(update) = self.update.as_mut().filter(|update| update.number == number)
                {
                    update.pending &= !(1 << member);
                }
            }
            (Purpose::State, Reply::State(bits, superblock)) => {
                if let Some(start) = &mut self.start {
                    start.pending &= !(1 << member);
                    start.states.push((member, bits, superblock));
                }
            }
            (Purpose::Bits, _) => self.is_joiner_marked |= self.joining == Some(member),
            (Purpose::State | Purpose::Ping, _) => {}
        }
    }

    /// Does the work that is due, after each event and on each tick.
    pub(super) fn tend(&mut self, links: &mut Links, time: u64, context: &mut Context<'_>) {
        if self.tenure.end().is_some() || self.is_released {
            return;
        }
        let failed = links.failed(time);
        self.tend_members(failed, (links, time), context);
        self.tend_start((links, time), context);
        self.tend_joining(failed, (links, time), context);
        self.answer((links, time), context);
    }

    /// Gives up members that fail, and lets superblocks and the record name the members in sync.
    fn tend_members(
        &mut self,
        failed: Set,
        (links, time): (&mut Links, u64),
        context: &mut Context<'_>,
    ) {
        if self.start.is_some() && self.trusts_superblocks {
            return;
        }
        self.end_update((links, time), context);
        let kept = self.in_sync & !failed;
        let goal = if self.layout.can_run(kept) { kept } else { self.in_sync };
        // A member that superblocks no longer name is out until it has been recovered.
        let leaving = self.update.as_ref().map_or(0, |update| update.dropped);
        let wanted = goal & self.named & !leaving;
        if self.layout.can_run(wanted) && self.wanted != wanted {
            (self.wanted, self.may_be_behind) = (wanted, true);
            self.tenure.want_in_sync(keys_of(wanted), "members came or went");
        }
        if self.update.as_ref().is_some_and(|update| update.pending & failed != 0) {
            self.update = None;
        }
        if self.update.is_some() || self.is_named && goal == self.named && goal == self.in_sync {
            return;
        }
        let may_go = |goal| self.tenure.allows(&keys_of(goal));
        let goal = if may_go(goal) { goal } else { self.in_sync };
        let pending = goal & !failed;
        let is_wanted = !self.is_named || goal != self.named;
        // The take-over has made sure that the first superblocks may be written.
        let is_first = !self.is_named && !self.trusts_superblocks && goal == self.in_sync;
        if pending == 0 || !is_wanted || !(is_first || may_go(goal)) {
            return;
        }
        self.updates += 1;
        let number = self.updates;
        let superblock = Superblock { events: (self.epoch, number), in_sync: goal };
        self.update = Some(Update { number, goal, pending, dropped: self.in_sync & !goal });
        for member in members_of(pending) {
            let work = Work::WriteSuperblock(superblock);
            links.call(member, (work, Purpose::Superblock(number)), time, context);
        }
    }

    fn end_update(&mut self, (links, time): (&mut Links, u64), context: &mut Context<'_>) {
        let Some(update) = self.update.take_if(|update| update.pending == 0) else { return };
        (self.named, self.is_named) = (update.goal, true);
        for member in members_of(update.dropped) {
            context.tally.count("members-given-up");
            self.in_sync &= !(1 << member);
            self.drop_member(member, (links, time), context);
        }
    }

    fn drop_member(
        &mut self,
        member: usize,
        (links, time): (&mut Links, u64),
        context: &mut Context<'_>,
    ) {
        links.leave(member, time);
        if let Some(start) = &mut self.start {
            start.pending &= !(1 << member);
        }
        let members = self.members();
        self.lanes.drop_member(member, &mut Tools { members, links, time, context });
    }

    /// Before the owner serves: collects the bits, and makes dirty blocks equal.
    fn tend_start(&mut self, (links, time): (&mut Links, u64), context: &mut Context<'_>) {
        if let Some(start) = self.start.take_if(|start| start.pending == 0) {
            if self.trusts_superblocks {
                let newest = start.states.iter().map(|(_, _, superblock)| *superblock);
                let newest = newest.max_by_key(|superblock| superblock.events);
                if let Some(newest) = newest.filter(|newest| newest.in_sync != 0) {
                    context.tally.count("superblocks-trusted");
                    (self.in_sync, self.named) = (newest.in_sync, newest.in_sync);
                }
            }
            let bits_of = |member: usize| {
                let state = start.states.iter().find(|(at, _, _)| *at == member);
                state.map(|(_, bits, _)| *bits)
            };
            let of_members: Vec<Blocks> = members_of(self.in_sync).filter_map(bits_of).collect();
            let any = of_members.iter().fold(0, |any, bits| any | bits);
            let is_complete = of_members.len() == self.in_sync.count_ones() as usize;
            let all =
                of_members.iter().fold(if is_complete { !0 } else { 0 }, |all, bits| all & bits);
            self.lanes.begin((any, all));
            let members = self.members();
            for block in (0..BLOCKS).filter(|block| any & 1 << block != 0) {
                context.tally.count("dirty-blocks-made-equal");
                let mut tools = Tools { members, links, time, context };
                self.lanes.submit(block, Kind::Equalise, &mut tools);
            }
        }
        let is_ready = self.start.is_none()
            && !self.is_serving
            && self.lanes.count(|kind| kind == Kind::Equalise) == 0
            && time >= self.serve_after
            && self.is_named
            && self.update.is_none();
        if is_ready {
            self.is_serving = true;
            if self.ends_rule {
                *context.rule = Rule::None;
            }
            context.tally.count("owners-served");
            context.checker.serves((self.epoch, self.process), context.now);
        }
    }

    /// Lets a missing member return.
    fn tend_joining(
        &mut self,
        failed: Set,
        (links, time): (&mut Links, u64),
        context: &mut Context<'_>,
    ) {
        if let Some(member) = self.joining {
            if failed & 1 << member != 0 {
                context.tally.count("recoveries-broken-off");
                self.joining = None;
                self.drop_member(member, (links, time), context);
            } else if self.is_joiner_marked
                && self.lanes.count(|kind| matches!(kind, Kind::Copy(_))) == 0
            {
                context.tally.count("members-recovered");
                self.joining = None;
                self.in_sync |= 1 << member;
            }
            return;
        }
        let missing = self.layout.all() & !self.in_sync & links.up() & !failed;
        if !self.is_serving || missing == 0 {
            return;
        }
        let candidates: Vec<usize> = members_of(missing).collect();
        let member = *context.random.pick(&candidates);
        (self.joining, self.is_joiner_marked) = (Some(member), false);
        let copies_all = context.random.chance(15);
        let bits = self.lanes.dirty();
        links.call(member, (Work::SetBits(bits), Purpose::Bits), time, context);
        let members = self.members();
        for block in 0..BLOCKS {
            let is_stale = copies_all || bits & 1 << block != 0;
            if is_stale && self.layout.touched(block) & 1 << member != 0 {
                context.tally.count("blocks-copied");
                let mut tools = Tools { members, links, time, context };
                self.lanes.submit(block, Kind::Copy(member), &mut tools);
            }
        }
    }

    /// Answers clients, while the lease lasts.
    fn answer(&mut self, (links, time): (&mut Links, u64), context: &mut Context<'_>) {
        while self.is_serving && self.lanes.has_ready() {
            let layout = self.layout;
            let until = self.lease.until_ns(&keys_of(self.in_sync), |set| layout.can_run_keys(set));
            if time >= until {
                context.tally.count("answers-held-by-lease");
                return;
            }
            let (owner, members) = ((self.epoch, self.process), self.members());
            self.lanes.answer(owner, &mut Tools { members, links, time, context });
        }
    }

    /// Whether a swap is due.
    pub(super) fn wants_swap(&mut self, time: u64) -> bool {
        if !self.may_be_behind && time < self.beat_at {
            return false;
        }
        let is_behind = self.tenure.is_behind();
        self.may_be_behind = is_behind;
        let is_due = is_behind || time >= self.beat_at;
        if is_due {
            self.beat_at = time + BEAT;
        }
        is_due
    }

    /// Now and then clears the bits of blocks that are equal on all members.
    pub(super) fn clear_bits(&mut self, links: &mut Links, time: u64, context: &mut Context<'_>) {
        let members = self.members();
        if !self.is_serving() || !members.is_whole {
            return;
        }
        let dirty = self.lanes.dirty();
        for block in (0..BLOCKS).filter(|block| dirty & 1 << block != 0) {
            if self.lanes.is_idle(block) {
                let mut tools = Tools { members, links, time, context };
                self.lanes.submit(block, Kind::Clear, &mut tools);
            }
        }
    }
}
