//! A host: its process waits, takes the array over by the shipped machine, owns it, and ends.
//!
//! Where it stands: between [`owner`](super::owner) and the world, which brings it messages and
//! ticks. A process whose tenure has ended is over; the world starts the next process.
//!
//! ```text
//!   standby ── record unchanged for the patience, or without owner ─▶ taking ── Serve ─▶ owning
//!                                                                       └─ GiveWay ─▶ down ◀─ end
//! ```

use braid_ownership::{
    Basis, OwnerId, ReadLease, Record, SwapResult, TakeOver, TakeOverStep, TenureEnd,
};

use super::context::{Context, Rule};
use super::layout::{Layout, Set, key_of};
use super::links::{LinkEvent, Links};
use super::message::{FromServer, FromStore, Process, Sent, ToStore};
use super::owner::{Entry, LEASE, Owner};
use super::plan::Habits;

const ARRAY: [u8; 16] = [0xb1; 16];
/// Pause between two reads of the record by a standby.
const LOOK: u64 = 400;
/// If the store does not answer for this long, the host asks it again.
const STORE_SILENCE: u64 = 600;
/// Pause between pings: a third of the lease.
const PING: u64 = LEASE / 3;

#[derive(Debug)]
struct Taking {
    take_over: TakeOver,
    claimed: Set,
    /// When the claiming ends, once enough members are claimed.
    settle_at: Option<u64>,
    /// The operator's rule when the take-over began.
    rule: Rule,
    /// The store was not restored since the take-over began.
    ends_rule: bool,
    lease: ReadLease,
}

/// The version of the record that a standby saw last.
type Seen = Option<(u64, u64, Option<OwnerId>)>;

#[derive(Debug)]
enum Role {
    Down,
    Standby { seen: Option<Seen>, since: u64 },
    Taking(Box<Taking>),
    Owning(Box<Owner>),
}

#[derive(Debug)]
struct StoreCall {
    call: u64,
    is_swap: bool,
    sent_at: u64,
}

#[derive(Debug)]
pub(super) struct Host {
    process: Process,
    layout: Layout,
    habits: Habits,
    role: Role,
    links: Links,
    store_call: Option<StoreCall>,
    next_call: u64,
    look_at: u64,
    ping_at: u64,
    /// The host takes over at its next look at the record, whatever the record says.
    pub(super) is_hasty: bool,
}

impl Host {
    pub(super) fn new(host: usize, layout: Layout, habits: Habits) -> Self {
        let process = Process { host, number: 0 };
        Self {
            process,
            layout,
            habits,
            role: Role::Down,
            links: Links::new(process, layout.members, habits.give_up),
            store_call: None,
            next_call: 0,
            look_at: 0,
            ping_at: 0,
            is_hasty: false,
        }
    }

    pub(super) fn process(&self) -> Process {
        self.process
    }

    pub(super) fn rate(&self) -> u64 {
        self.habits.rate
    }

    pub(super) fn is_down(&self) -> bool {
        matches!(self.role, Role::Down)
    }

    pub(super) fn owner(&self) -> Option<&Owner> {
        if let Role::Owning(owner) = &self.role { Some(owner) } else { None }
    }

    /// Hosts become patient when the faults are over, so that one owner can stay.
    pub(super) fn calm_down(&mut self) {
        self.habits.patience = self.habits.patience.max(4000);
        self.is_hasty = false;
    }

    fn time(&self, context: &Context<'_>) -> u64 {
        context.now * self.habits.rate / 1000
    }

    /// Starts a new process.
    pub(super) fn start(&mut self, context: &Context<'_>) {
        let (layout, habits, number) = (self.layout, self.habits, self.process.number + 1);
        let host = self.process.host;
        *self = Self::new(host, layout, habits);
        self.process = Process { host, number };
        self.links = Links::new(self.process, layout.members, habits.give_up);
        self.role = Role::Standby { seen: None, since: self.time(context) };
    }

    pub(super) fn crash(&mut self) {
        self.role = Role::Down;
    }

    pub(super) fn request(&mut self, wanted: (usize, bool), context: &mut Context<'_>) {
        let time = self.time(context);
        if let Role::Owning(owner) = &mut self.role {
            owner.request(wanted, (&mut self.links, time), context);
            self.after(context);
        }
    }

    pub(super) fn release(&mut self, context: &mut Context<'_>) {
        if let Role::Owning(owner) = &mut self.role
            && owner.is_serving()
        {
            owner.release();
            self.after(context);
        }
    }

    /// The store was restored: take-overs begun before the restoration end no rule of the operator.
    pub(super) fn store_was_restored(&mut self) {
        match &mut self.role {
            Role::Taking(taking) => taking.ends_rule = false,
            Role::Owning(owner) => owner.ends_rule = false,
            Role::Down | Role::Standby { .. } => {}
        }
    }

    pub(super) fn break_link(&mut self, member: usize, context: &Context<'_>) {
        let time = self.time(context);
        if !matches!(self.role, Role::Down | Role::Standby { .. }) {
            self.links.close(member, time);
        }
    }

    pub(super) fn tick(&mut self, context: &mut Context<'_>) {
        let time = self.time(context);
        if let Some(call) = &self.store_call
            && time.saturating_sub(call.sent_at) > STORE_SILENCE
        {
            // The store's answer is lost, or late. The record tells whether the swap happened.
            let is_swap = call.is_swap;
            context.tally.count("store-asked-again");
            self.ask_store(None, is_swap, context);
        }
        match &mut self.role {
            Role::Down => {}
            Role::Standby { .. } => {
                if time >= self.look_at && self.store_call.is_none() {
                    self.look_at = time + LOOK;
                    self.ask_store(None, false, context);
                }
            }
            Role::Taking(_) => self.links.tick(time, context),
            Role::Owning(owner) => {
                self.links.tick(time, context);
                if time >= self.ping_at {
                    self.ping_at = time + PING;
                    self.links.ping(time, context);
                }
                if context.random.chance(10) {
                    owner.clear_bits(&mut self.links, time, context);
                }
            }
        }
        self.after(context);
    }

    fn ask_store(
        &mut self,
        swap: Option<(Option<Record>, Record)>,
        is_swap: bool,
        context: &mut Context<'_>,
    ) {
        self.next_call += 1;
        let (call, sent_at) = (self.next_call, self.time(context));
        self.store_call = Some(StoreCall { call, is_swap, sent_at });
        let message = ToStore { life: 0, process: self.process, call, swap };
        context.sent.push(Sent::ToStore(Box::new(message)));
    }

    /// Continues the take-over or the tenure, after each event.
    fn after(&mut self, context: &mut Context<'_>) {
        let time = self.time(context);
        match &mut self.role {
            Role::Down | Role::Standby { .. } => {}
            Role::Taking(_) => self.settle(context),
            Role::Owning(owner) => {
                owner.tend(&mut self.links, time, context);
                if let Some(end) = owner.tenure.end() {
                    context.tally.count(match end {
                        TenureEnd::Fenced(_) => "ended-fenced",
                        TenureEnd::TakenOver { .. } => "ended-taken-over",
                        TenureEnd::StoreWentBack => "ended-store-went-back",
                        TenureEnd::Released => "ended-released",
                    });
                    self.role = Role::Down;
                } else if self.store_call.is_none() && owner.wants_swap(time) {
                    let from = owner.tenure.record().clone();
                    if let Some(to) = owner.tenure.begin_swap() {
                        self.ask_store(Some((Some(from), to)), true, context);
                    }
                }
            }
        }
    }

    pub(super) fn take_from_store(&mut self, message: FromStore, context: &mut Context<'_>) {
        let is_awaited = |call: &mut StoreCall| call.call == message.call;
        let Some(_) = self.store_call.take_if(is_awaited) else { return };
        match &mut self.role {
            Role::Down => {}
            Role::Standby { .. } => {
                if let SwapResult::Record(record) = message.result {
                    self.look(record, context);
                }
            }
            Role::Taking(taking) => {
                let step = taking.take_over.swapped(message.result);
                self.follow(step, context);
            }
            Role::Owning(owner) => owner.swapped(message.result),
        }
        self.after(context);
    }

    /// A standby sees the record, and begins a take-over if the record is old enough.
    fn look(&mut self, record: Option<Record>, context: &mut Context<'_>) {
        let time = self.time(context);
        let Role::Standby { seen, since } = &mut self.role else { return };
        let version = record.as_ref().map(|record| (record.epoch, record.serial, record.owner));
        if *seen != Some(version) {
            (*seen, *since) = (Some(version), time);
        }
        let name = name_of(self.process.host);
        let has_owner = record.as_ref().is_some_and(|record| record.owner.is_some());
        let patience = if has_owner { self.habits.patience } else { 0 };
        if !self.is_hasty && time.saturating_sub(*since) < patience {
            return;
        }
        self.is_hasty = false;
        context.tally.count("take-overs-begun");
        let me = (self.process.owner_id(), name.as_str());
        let first = || Basis::First { array: ARRAY, members: self.layout.recorded() };
        let begun = TakeOver::begin(me, record.map_or_else(first, Basis::Record));
        let (take_over, step) = begun.expect("the epoch is low");
        let lease = ReadLease::new(LEASE);
        let rule = *context.rule;
        if rule == Rule::IsNoticed {
            // The take-over may end before it notices the servers' epoch, and leave a higher one in
            // the store.
            *context.rule = Rule::All;
        }
        let ends_rule = rule != Rule::None;
        let taking = Taking { take_over, claimed: 0, settle_at: None, rule, ends_rule, lease };
        self.role = Role::Taking(Box::new(taking));
        self.follow(step, context);
    }

    /// Carries out a step of a take-over.
    fn follow(&mut self, step: TakeOverStep, context: &mut Context<'_>) {
        let time = self.time(context);
        let Role::Taking(taking) = &mut self.role else { return };
        match step {
            TakeOverStep::Swap { from, to } => self.ask_store(Some((from, to)), true, context),
            TakeOverStep::Claim { epoch } => {
                (taking.claimed, taking.settle_at) = (0, None);
                taking.lease = ReadLease::new(LEASE);
                self.links.claim(epoch, time, context);
            }
            TakeOverStep::Serve { record, waits_for_lease } => {
                let went_back = taking.take_over.store_went_back();
                let entry = Entry {
                    waits_for_lease,
                    trusts_superblocks: went_back || taking.rule == Rule::All,
                    claimed: taking.claimed,
                    ends_rule: taking.ends_rule,
                };
                let lease = std::mem::replace(&mut taking.lease, ReadLease::new(LEASE));
                context.tally.count("take-overs-done");
                if went_back {
                    context.tally.count("store-noticed-to-be-old");
                }
                let links = (&mut self.links, lease);
                let owner = Owner::new(self.layout, record, entry, links, time, context);
                self.role = Role::Owning(Box::new(owner));
            }
            TakeOverStep::GiveWay { .. } => {
                context.tally.count("gave-way");
                // The next attempt is made by another process, with another owner's number.
                self.role = Role::Down;
            }
        }
    }

    pub(super) fn take_from_server(&mut self, message: FromServer, context: &mut Context<'_>) {
        let time = self.time(context);
        if self.is_down() {
            return;
        }
        let role = &mut self.role;
        let note = |member, begun| match role {
            Role::Taking(taking) => taking.lease.note(key_of(member), begun),
            Role::Owning(owner) => owner.note(member, begun),
            Role::Down | Role::Standby { .. } => {}
        };
        let Some(event) = self.links.take(message, time, note, context) else { return };
        match (&mut self.role, event) {
            (Role::Taking(taking), LinkEvent::Claimed) => {
                taking.claimed |= 1 << message.member;
                taking.take_over.claimed(key_of(message.member));
            }
            (Role::Taking(taking), LinkEvent::Fenced(mark)) => {
                if let Some(step) = taking.take_over.refused(mark.epoch) {
                    self.follow(step, context);
                }
            }
            (Role::Owning(owner), LinkEvent::Fenced(mark)) => {
                owner.tenure.refused(mark);
                context.checker.is_fenced(self.process);
            }
            (Role::Owning(owner), LinkEvent::Answer(purpose, reply)) => {
                let answer = (message.member, purpose, reply);
                owner.take(answer, (&mut self.links, time), context);
            }
            _ => {}
        }
        self.after(context);
    }

    /// Ends the claiming once enough members are claimed, after the grace.
    fn settle(&mut self, context: &mut Context<'_>) {
        let (time, layout) = (self.time(context), self.layout);
        let Role::Taking(taking) = &mut self.role else { return };
        let has_enough = taking.take_over.has_enough(|set| layout.can_run_keys(set));
        if !has_enough || taking.rule == Rule::All && taking.claimed != layout.all() {
            return;
        }
        let settle_at = *taking.settle_at.get_or_insert(time + self.habits.grace);
        if time >= settle_at {
            let step = taking.take_over.settle();
            self.follow(step, context);
        }
    }
}

pub(super) fn name_of(host: usize) -> String {
    format!("host{host}")
}
