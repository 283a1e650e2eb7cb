//! The world of hosts: time, network, faults, clients, and the end of a history.
//!
//! Where it stands: on top of the other files of this folder. It brings each message to its
//! receiver after a delay, and begins and ends faults.
//!
//! ```text
//!   faults ──────────────▶ calm ── one owner, all members in sync ──▶ last reads ─▶ disks compared
//! ```

use std::collections::BTreeMap;

use super::checker::Checker;
use super::context::{Context, Rule};
use super::host::Host;
use super::layout::{BLOCKS, members_of};
use super::message::{Process, Sent};
use super::plan::{Fault, Plan, TimedFault};
use super::server::Server;
use super::store::Store;
use crate::random::Random;
use crate::tally::Tally;

/// Pause between two ticks of a process, on its own clock.
const TICK: u64 = 100;
/// After the faults, one owner must have all members in sync within this time.
const CALM: u64 = 40_000;
/// Time for the last requests.
const LAST: u64 = 3_000;

#[derive(Debug)]
enum Event {
    Tick(Process),
    Sent(Sent),
    /// A client of a host submits a request.
    Client(usize),
    Begins(usize),
    Ends(usize),
    Restart(usize),
}

#[derive(Debug)]
pub(super) struct World {
    plan: Plan,
    now: u64,
    /// Events by their time and the order of planning.
    queue: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    random: Random,
    checker: Checker,
    pub(super) tally: Tally,
    hosts: Vec<Host>,
    servers: Vec<Server>,
    store: Store,
    rule: Rule,
    /// For each host, when its paused machine continues.
    awake_at: Vec<u64>,
    /// Faults that have begun and not ended.
    active: Vec<bool>,
    has_clients: bool,
    /// An array was taken over from an owner that lived.
    has_taken_from_the_living: bool,
    is_calm: bool,
}

impl World {
    pub(super) fn new(plan: Plan, random: Random) -> Self {
        let layout = plan.layout;
        let hosts = plan.hosts.iter().enumerate();
        let hosts: Vec<Host> = hosts.map(|(at, habits)| Host::new(at, layout, *habits)).collect();
        let mut world = Self {
            now: 0,
            queue: BTreeMap::new(),
            sequence: 0,
            random,
            checker: Checker::new(),
            tally: Tally::default(),
            servers: (0..layout.members).map(Server::new).collect(),
            store: Store::default(),
            rule: Rule::None,
            awake_at: vec![0; hosts.len()],
            active: vec![false; plan.faults.len()],
            has_clients: true,
            has_taken_from_the_living: false,
            is_calm: false,
            hosts,
            plan,
        };
        for host in 0..world.hosts.len() {
            let after = world.plan.starts[host];
            world.at(after, Event::Restart(host));
            world.at(after, Event::Client(host));
        }
        for (number, timed) in world.plan.faults.clone().into_iter().enumerate() {
            world.at(timed.at, Event::Begins(number));
            world.at(timed.until, Event::Ends(number));
        }
        world
    }

    fn at(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), event);
    }

    /// Runs the history.
    ///
    /// # Panics
    /// At the first error.
    pub(super) fn run(&mut self) {
        self.run_until(self.plan.calm_at + 1);
        self.is_calm = true;
        assert!(!self.active.contains(&true), "all faults have ended");
        self.hosts.iter_mut().for_each(Host::calm_down);
        let deadline = self.now + CALM;
        let mut owner = None;
        while owner.is_none() || owner != self.settled_owner() {
            assert!(self.now < deadline, "no owner serves all members {CALM} after the last fault");
            owner = self.settled_owner();
            // A take-over that began before the calm may still end it.
            self.run_until(self.now + if owner.is_some() { LAST } else { 250 });
        }
        self.finish();
        if self.has_taken_from_the_living {
            self.tally.count("histories-with-an-old-owner-alive");
        }
        self.tally.worlds += 1;
        self.tally.cycles += 1;
    }

    /// Runs the last reads, and compares the disks.
    fn finish(&mut self) {
        self.has_clients = false;
        self.run_until(self.now + LAST);
        let owner = self.settled_owner();
        let (host, answered) =
            (owner.expect("an owner stays").host, self.tally.of("reads-answered"));
        for block in 0..BLOCKS {
            self.with_host(host, |host, context| host.request((block, false), context));
        }
        self.run_until(self.now + LAST);
        let answered = self.tally.of("reads-answered") - answered;
        assert!(answered == BLOCKS as u64, "{answered} of {BLOCKS} last reads were answered");
        for block in 0..BLOCKS {
            let members = members_of(self.plan.layout.touched(block));
            let values: Vec<u64> = members.map(|at| self.servers[at].values()[block]).collect();
            assert!(values.iter().all(|one| *one == values[0]), "block {block} has {values:?}");
        }
        if self.servers.iter().all(|server| server.bits() == 0) {
            self.tally.count("ended-without-bits");
        }
    }

    /// The only owner that serves, if it has all members in sync.
    fn settled_owner(&self) -> Option<Process> {
        let (epoch, process) = self.checker.serving()?;
        let is_recorded = self.store.record().is_some_and(|record| record.epoch == epoch);
        let is_whole = |host: &&Host| host.owner().is_some_and(|owner| owner.is_whole());
        let host = Some(&self.hosts[process.host]).filter(is_whole)?;
        (is_recorded && host.process() == process).then_some(process)
    }

    fn run_until(&mut self, end: u64) {
        while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= end) {
            let ((at, _), event) = entry.remove_entry();
            self.now = at;
            self.tally.steps += 1;
            self.happen(event);
        }
        self.now = end;
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Tick(process) => self.tick(process),
            Event::Sent(sent) => self.arrive(sent),
            Event::Client(host) => self.ask(host),
            Event::Begins(number) => self.begin(number),
            Event::Ends(number) => self.end(number),
            Event::Restart(host) if self.hosts[host].is_down() => {
                self.with_host(host, |host, context| host.start(context));
                let process = self.hosts[host].process();
                self.at(self.now, Event::Tick(process));
            }
            Event::Restart(_) => {}
        }
    }

    /// Lets machines act, and then sends their messages.
    fn with(&mut self, act: impl FnOnce(&mut [Host], &mut [Server], &mut Context<'_>)) {
        let Self { hosts, servers, now, random, checker, tally, rule, .. } = self;
        let mut sent = Vec::new();
        let sending = &mut sent;
        let mut context = Context { now: *now, random, checker, tally, sent: sending, rule };
        act(hosts, servers, &mut context);
        sent.into_iter().for_each(|sent| self.send(sent));
    }

    /// Lets a host act. A process that ends is started again later.
    fn with_host(&mut self, host: usize, act: impl FnOnce(&mut Host, &mut Context<'_>)) {
        let was_down = self.hosts[host].is_down();
        let serving = self.checker.serving();
        self.with(|hosts, _, context| act(&mut hosts[host], context));
        if !was_down && self.hosts[host].is_down() {
            let after = 100 + self.random.below(1500);
            self.at(self.now + after, Event::Restart(host));
        }
        if serving.is_some() && self.checker.serving() != serving {
            self.tally.count("served-after-another");
            self.tally.count_many("served-while-an-old-owner-lived", self.is_other_serving(host));
        }
    }

    /// 1 if another host believes that it owns the array.
    fn is_other_serving(&self, host: usize) -> u64 {
        let others = self.hosts.iter().enumerate().filter(|(other, _)| *other != host);
        let mut owners = others.filter_map(|(_, host)| host.owner());
        u64::from(owners.any(|owner| owner.is_serving()))
    }

    /// Counts the take-overs from owners that live.
    fn note_new_epoch(&mut self, host: usize) {
        let lives = self.is_other_serving(host);
        self.tally.count("epochs-after-the-first");
        self.tally.count_many("epochs-while-an-old-owner-lived", lives);
        self.has_taken_from_the_living |= lives > 0;
    }

    fn with_server(&mut self, member: usize, act: impl FnOnce(&mut Server, &mut Context<'_>)) {
        self.with(|_, servers, context| act(&mut servers[member], context));
    }

    fn tick(&mut self, process: Process) {
        let host = process.host;
        if self.hosts[host].process() != process || self.hosts[host].is_down() {
            return;
        }
        if self.awake_at[host] > self.now {
            return self.at(self.awake_at[host] + 1, Event::Tick(process));
        }
        self.with_host(host, |host, context| host.tick(context));
        let after = TICK * 1000 / self.hosts[host].rate();
        self.at(self.now + after, Event::Tick(process));
    }

    fn ask(&mut self, host: usize) {
        if !self.has_clients {
            return;
        }
        let after = 1 + self.random.below(2 * self.plan.client_pause);
        let next = (self.now + after).max(self.awake_at[host]);
        self.at(next, Event::Client(host));
        let block = self.random.below(BLOCKS as u64) as usize;
        let wanted = (block, self.random.chance(50));
        self.with_host(host, |host, context| host.request(wanted, context));
    }

    /// A delay of the network.
    fn delay(&mut self) -> u64 {
        let late = if self.is_calm { 0 } else { self.plan.late_percent };
        let longest =
            if self.random.chance(late) { *self.random.pick(&[300, 300, 3000]) } else { 30 };
        1 + self.random.below(longest)
    }

    fn send(&mut self, mut sent: Sent) {
        let mut delay = self.delay();
        match &mut sent {
            Sent::ToDevice { member, .. } => {
                let is_slow = self.is_active(|fault| fault == Fault::SlowDevice(*member));
                if is_slow {
                    delay = self.random.below(2500);
                }
            }
            Sent::ToStore(message) => {
                message.life = self.store.life();
                if self.is_active(|fault| fault == Fault::SlowStore) {
                    delay = self.random.below(3000);
                }
                if !self.is_calm && self.random.chance(self.plan.lost_percent) {
                    return;
                }
                if !self.is_calm && self.random.chance(self.plan.twice_percent) {
                    let again = self.now + self.random.below(3000);
                    self.at(again, Event::Sent(sent.clone()));
                }
            }
            Sent::FromStore(..) => {
                if !self.is_calm && self.random.chance(self.plan.lost_percent) {
                    return;
                }
            }
            Sent::ToServer(..) | Sent::FromServer(..) => {}
        }
        self.at(self.now + delay, Event::Sent(sent));
    }

    fn is_active(&self, is_wanted: impl Fn(Fault) -> bool) -> bool {
        let faults = self.plan.faults.iter().zip(&self.active);
        faults.into_iter().any(|(timed, is_active)| *is_active && is_wanted(timed.fault))
    }

    /// Whether a host's link to a member (or to the store) is cut in this direction.
    fn is_cut(&self, host: usize, member: Option<usize>, is_towards: bool) -> bool {
        self.is_active(|fault| match fault {
            Fault::Cut { host: cut, servers, is_store_cut, towards, back } => {
                let is_link = member.map_or(is_store_cut, |member| servers & 1 << member != 0);
                cut == host && is_link && if is_towards { towards } else { back }
            }
            _ => false,
        })
    }

    fn arrive(&mut self, sent: Sent) {
        let (host, member, is_towards) = match &sent {
            Sent::ToDevice { member, life, job } => {
                let (member, done) = (*member, (*life, *job));
                return self.with_server(member, |server, context| server.done(done, context));
            }
            Sent::ToServer(member, message) => (message.process.host, Some(*member), true),
            Sent::FromServer(process, message) => (process.host, Some(message.member), false),
            Sent::ToStore(message) => (message.process.host, None, true),
            Sent::FromStore(process, _) => (process.host, None, false),
        };
        if self.is_cut(host, member, is_towards) {
            // The network sends the message again, until the link is whole.
            let again = self.now + 50 + self.random.below(300);
            return self.at(again, Event::Sent(sent));
        }
        if !is_towards && self.awake_at[host] > self.now {
            let again = self.awake_at[host] + self.random.below(20);
            return self.at(again, Event::Sent(sent));
        }
        match sent {
            Sent::ToDevice { .. } => {}
            Sent::ToServer(member, message) => {
                self.with_server(member, |server, context| server.take(message, context));
            }
            Sent::ToStore(message) => {
                let epoch = self.store.record().map(|record| record.epoch);
                let mut sent = Vec::new();
                let mut context = Context {
                    now: self.now,
                    random: &mut self.random,
                    checker: &mut self.checker,
                    tally: &mut self.tally,
                    sent: &mut sent,
                    rule: &mut self.rule,
                };
                self.store.take(*message, &mut context);
                sent.into_iter().for_each(|sent| self.send(sent));
                if epoch.is_some() && self.store.record().map(|record| record.epoch) != epoch {
                    self.note_new_epoch(host);
                }
            }
            Sent::FromServer(process, message) if self.hosts[host].process() == process => {
                self.with_host(host, |host, context| host.take_from_server(message, context));
            }
            Sent::FromStore(process, message) if self.hosts[host].process() == process => {
                self.with_host(host, |host, context| host.take_from_store(*message, context));
            }
            Sent::FromServer(..) | Sent::FromStore(..) => {}
        }
    }

    fn begin(&mut self, number: usize) {
        let TimedFault { fault, until, .. } = self.plan.faults[number];
        self.active[number] = true;
        match fault {
            Fault::Pause(host) => {
                self.tally.count("fault-pause");
                self.awake_at[host] = self.awake_at[host].max(until);
            }
            Fault::Crash(host) => {
                self.tally.count("fault-crash");
                self.with_host(host, |host, _| host.crash());
            }
            Fault::Cut { .. } => self.tally.count("fault-cut"),
            Fault::Break(host, member) => {
                self.tally.count("fault-break");
                self.with_host(host, |host, context| host.break_link(member, context));
            }
            Fault::ServerCrash(member) => {
                self.tally.count("fault-server-crash");
                self.with_server(member, Server::crash);
                // Some hosts learn of it at once.
                for host in 0..self.hosts.len() {
                    if self.random.chance(50) {
                        self.with_host(host, |host, context| host.break_link(member, context));
                    }
                }
            }
            Fault::DeviceErrors(member) => {
                self.tally.count("fault-device-errors");
                self.servers[member].errors += 1;
            }
            Fault::SlowDevice(_) => self.tally.count("fault-slow-device"),
            Fault::StoreAway => {
                self.tally.count("fault-store-away");
                self.store.absences += 1;
            }
            Fault::SlowStore => self.tally.count("fault-slow-store"),
            Fault::Restore(swaps) => {
                if self.store.restore(swaps) {
                    self.tally.count("store-restored");
                    self.rule = self.rule_of_restored();
                    self.hosts.iter_mut().for_each(Host::store_was_restored);
                }
            }
            Fault::Release(host) => self.with_host(host, Host::release),
            Fault::Haste(host) => {
                self.tally.count("fault-haste");
                // An owner is no standby, so another host takes over.
                let count = self.hosts.len();
                let hosts = (host..host + count).map(|host| host % count);
                let mut standbys = hosts.filter(|host| self.hosts[*host].owner().is_none());
                if let Some(standby) = standbys.next() {
                    self.hosts[standby].is_hasty = true;
                }
            }
        }
    }

    /// The operator's demand on take-overs, since the store has an older record.
    fn rule_of_restored(&mut self) -> Rule {
        let epoch = self.store.record().map_or(0, |record| record.epoch);
        let knows = |server: &&Server| server.mark().is_some_and(|mark| mark.epoch > epoch);
        let knowing = self.servers.iter().filter(knows);
        let knowing = knowing.fold(0, |set, server| set | 1 << server.member());
        let is_noticed = !self.plan.layout.can_run(self.plan.layout.all() & !knowing);
        if is_noticed && self.rule == Rule::None {
            self.tally.count("store-restored-noticeably");
            return Rule::IsNoticed;
        }
        Rule::All
    }

    fn end(&mut self, number: usize) {
        self.active[number] = false;
        match self.plan.faults[number].fault {
            Fault::ServerCrash(member) => self.servers[member].restart(),
            Fault::DeviceErrors(member) => self.servers[member].errors -= 1,
            Fault::StoreAway => self.store.absences -= 1,
            _ => {}
        }
    }
}
