//! The links of one process to the servers of all members: sessions, requests, silence.
//!
//! Where it stands: below [`owner`](super::owner) and [`host`](super::host). Each link has a
//! session, and a broken link begins the next one: it claims the member again, and then sends the
//! unanswered requests again. Answers of earlier sessions are ignored.
//!
//! ```text
//!   closed ── open: session + 1, claim ──▶ claiming ── claimed ──▶ up ── broken, silent ──▶ closed
//! ```

use std::collections::BTreeMap;

use braid_ownership::{Claim, Mark};

use super::context::Context;
use super::layout::{Set, members_of};
use super::message::{FromServer, Process, Reply, Sent, ToServer, Work};

/// A link that waits longer than this for an answer is broken.
const SILENCE: u64 = 800;
/// Pause before a closed link is opened again.
const RETRY: u64 = 300;

/// The part of the owner that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Ping,
    /// An operation on a block, by its number.
    Operation(usize, u64),
    /// An update of superblocks, by its number.
    Superblock(u64),
    /// Bits and superblock at the begin of a tenure.
    State,
    /// The bits of a member that returns.
    Bits,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    work: Work,
    purpose: Purpose,
    /// When the request was last sent, on the host's clock.
    begun: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed { since: u64 },
    Claiming { since: u64 },
    Up,
}

#[derive(Debug)]
struct Link {
    session: u64,
    state: State,
    /// When the server last answered, on the host's clock.
    heard: u64,
    /// The last answer was an error of the device.
    has_error: bool,
    calls: BTreeMap<u64, Call>,
}

/// The meaning of a server's answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum LinkEvent {
    Claimed,
    /// The server has a later owner.
    Fenced(Mark),
    Answer(Purpose, Reply),
}

#[derive(Debug)]
pub(super) struct Links {
    process: Process,
    epoch: u64,
    links: Vec<Link>,
    next_call: u64,
    /// Silence after which a member counts as failed.
    give_up: u64,
}

impl Links {
    pub(super) fn new(process: Process, members: usize, give_up: u64) -> Self {
        let link = |_| Link {
            session: 0,
            state: State::Closed { since: 0 },
            heard: 0,
            has_error: false,
            calls: BTreeMap::new(),
        };
        Self { process, epoch: 0, links: (0..members).map(link).collect(), next_call: 0, give_up }
    }

    pub(super) fn process(&self) -> Process {
        self.process
    }

    /// Claims all members for an epoch.
    pub(super) fn claim(&mut self, epoch: u64, time: u64, context: &mut Context<'_>) {
        self.epoch = epoch;
        for member in 0..self.links.len() {
            self.links[member].heard = time;
            self.links[member].calls.clear();
            self.open(member, time, context);
        }
    }

    fn open(&mut self, member: usize, time: u64, context: &mut Context<'_>) {
        context.checker.acts(self.process);
        self.next_call += 1;
        let (process, epoch, call) = (self.process, self.epoch, self.next_call);
        let link = &mut self.links[member];
        (link.session, link.state) = (link.session + 1, State::Claiming { since: time });
        // For the lease, the time of the claim counts, not the time of its answer.
        link.calls.insert(call, Call { work: Work::Ping, purpose: Purpose::Ping, begun: time });
        let claim = Claim { epoch, owner: process.owner_id(), session: link.session };
        let message = ToServer { process, claim, call, work: None };
        // A session may have several connections, and each connection claims the member.
        let connections = 1 + usize::from(context.random.chance(20));
        for _ in 0..connections {
            context.sent.push(Sent::ToServer(member, message));
        }
    }

    /// Ends the session: the next one is opened on a tick.
    pub(super) fn close(&mut self, member: usize, time: u64) {
        let link = &mut self.links[member];
        link.calls.retain(|_, call| call.purpose != Purpose::Ping);
        link.state = State::Closed { since: time };
    }

    /// Forgets the requests to a member that has left, and ends the session.
    pub(super) fn leave(&mut self, member: usize, time: u64) {
        self.links[member].calls.clear();
        self.close(member, time);
    }

    pub(super) fn is_up(&self, member: usize) -> bool {
        self.links[member].state == State::Up
    }

    pub(super) fn up(&self) -> Set {
        (0..self.links.len()).filter(|at| self.is_up(*at)).fold(0, |set, at| set | 1 << at)
    }

    /// The members that are silent too long, or whose device had an error.
    pub(super) fn failed(&self, time: u64) -> Set {
        let is_failed =
            |link: &Link| link.has_error || time.saturating_sub(link.heard) > self.give_up;
        let failed = self.links.iter().enumerate().filter(|(_, link)| is_failed(link));
        failed.fold(0, |set, (at, _)| set | 1 << at)
    }

    /// Sends a request, now or when the link is up.
    pub(super) fn call(
        &mut self,
        member: usize,
        (work, purpose): (Work, Purpose),
        time: u64,
        context: &mut Context<'_>,
    ) {
        self.next_call += 1;
        let call = self.next_call;
        self.links[member].calls.insert(call, Call { work, purpose, begun: time });
        if self.is_up(member) {
            self.send(member, call, time, context);
        }
    }

    fn send(&mut self, member: usize, call: u64, time: u64, context: &mut Context<'_>) {
        context.checker.acts(self.process);
        let (process, epoch, owner) = (self.process, self.epoch, self.process.owner_id());
        let link = &mut self.links[member];
        let claim = Claim { epoch, owner, session: link.session };
        let sent = link.calls.get_mut(&call).expect("a request that is sent was made");
        sent.begun = time;
        let message = ToServer { process, claim, call, work: Some(sent.work) };
        context.sent.push(Sent::ToServer(member, message));
    }

    pub(super) fn ping(&mut self, time: u64, context: &mut Context<'_>) {
        for member in members_of(self.up()) {
            self.call(member, (Work::Ping, Purpose::Ping), time, context);
        }
    }

    /// Takes a server's answer. `answered` gets the time at which an answered request began.
    pub(super) fn take(
        &mut self,
        message: FromServer,
        time: u64,
        mut answered: impl FnMut(usize, u64),
        context: &mut Context<'_>,
    ) -> Option<LinkEvent> {
        let link = &mut self.links[message.member];
        if message.session != link.session || matches!(link.state, State::Closed { .. }) {
            return None;
        }
        let call = link.calls.remove(&message.call);
        if let Reply::Refused(mark) = message.reply {
            if let Some(call) = call {
                link.calls.insert(message.call, call);
            }
            self.close(message.member, time);
            let is_own = mark.epoch == self.epoch && mark.owner == self.process.owner_id();
            let is_later = mark.epoch >= self.epoch && !is_own;
            return is_later.then_some(LinkEvent::Fenced(mark));
        }
        link.heard = time;
        // The second connection of a session is answered, too.
        let call = call?;
        answered(message.member, call.begun);
        match message.reply {
            Reply::Claimed => {
                (link.state, link.has_error) = (State::Up, false);
                let calls: Vec<u64> = link.calls.keys().copied().collect();
                for call in calls {
                    context.tally.count("requests-sent-again");
                    self.send(message.member, call, time, context);
                }
                Some(LinkEvent::Claimed)
            }
            Reply::Failed => {
                link.has_error = true;
                link.calls.insert(message.call, call);
                self.close(message.member, time);
                None
            }
            reply => Some(LinkEvent::Answer(call.purpose, reply)),
        }
    }

    /// Breaks links that are silent, and opens closed links.
    pub(super) fn tick(&mut self, time: u64, context: &mut Context<'_>) {
        for member in 0..self.links.len() {
            let link = &self.links[member];
            let is_due = match link.state {
                State::Closed { since } => time.saturating_sub(since) > RETRY,
                State::Claiming { since } => time.saturating_sub(since) > SILENCE,
                State::Up => {
                    link.calls.values().any(|call| time.saturating_sub(call.begun) > SILENCE)
                }
            };
            if is_due {
                self.close(member, time);
                self.open(member, time, context);
            }
        }
    }
}
