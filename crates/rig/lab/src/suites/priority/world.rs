//! Clients, an array and its disks in virtual time. Nothing is random, and every run gives the same
//! figures.

use super::backend::{Backend, ClientRequest};
use super::members::{MemberScheduler, Members};
use crate::disk::Account;
use crate::random::Random;

/// One client: a stream of requests of one kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) is_write: bool,
    /// Whether requests are at random places in the region. If not, each follows the last request.
    pub(super) is_random: bool,
    pub(super) sectors: u32,
    /// Maximum number of unanswered requests.
    pub(super) window: u64,
    /// The time that the client itself takes for each request.
    pub(super) think_ns: u64,
    /// The client's part of the array: first sector, and number of sectors.
    pub(super) region: (u64, u64),
    pub(super) requests: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) time_ns: u64,
    /// The time of phases with a writing client.
    pub(super) write_ns: u64,
    /// The time of phases with a reading client.
    pub(super) read_ns: u64,
    pub(super) written_sectors: u64,
    pub(super) read_sectors: u64,
    pub(super) pre_read_sectors: u64,
    pub(super) positionings: u64,
    /// The account of the arms' time; empty without disks.
    pub(super) account: Account,
    /// The account of the arms' time in phases that write.
    pub(super) writing: Account,
}

pub(super) struct Client {
    stream: Stream,
    random: Random,
    ready_at: u64,
    outstanding: u64,
    issued: u64,
}

impl Client {
    pub(super) fn new(seed: u64, stream: &Stream) -> Self {
        let (stream, random) = (*stream, Random::new(seed));
        Self { stream, random, ready_at: 0, outstanding: 0, issued: 0 }
    }

    pub(super) fn answered(&mut self, outcome: &mut Outcome) {
        self.outstanding -= 1;
        let sectors = u64::from(self.stream.sectors);
        if self.stream.is_write {
            outcome.written_sectors += sectors;
        } else {
            outcome.read_sectors += sectors;
        }
    }

    pub(super) fn may_ask(&self) -> bool {
        self.outstanding < self.stream.window && self.issued < self.stream.requests
    }

    pub(super) fn is_done(&self) -> bool {
        self.outstanding == 0 && self.issued == self.stream.requests
    }

    pub(super) fn ask(&mut self, id: u64, now: u64) -> ClientRequest {
        let Stream { is_write, is_random, sectors, region: (start, length), .. } = self.stream;
        let places = length / u64::from(sectors);
        let place = if is_random { self.random.below(places) } else { self.issued % places };
        self.issued += 1;
        self.outstanding += 1;
        self.ready_at = now + self.stream.think_ns;
        ClientRequest { id, start: start + place * u64::from(sectors), sectors, is_write }
    }
}

/// More than the number of clients in any phase.
const CLIENTS_MAX: u64 = 64;

pub(super) struct World<'a> {
    backend: &'a mut dyn Backend,
    members: Members,
    /// The phases after the current one.
    phases: std::slice::Iter<'a, Vec<Stream>>,
    clients: Vec<Client>,
    now: u64,
    next_id: u64,
    is_flushed: bool,
    outcome: Outcome,
}

impl<'a> World<'a> {
    /// A world in which the streams of a phase run at once. A phase begins when the previous one's
    /// data is on the platters.
    pub(super) fn new(
        backend: &'a mut dyn Backend,
        (scheduler, disks): (MemberScheduler, usize),
        phases: &'a [Vec<Stream>],
    ) -> Self {
        Self {
            backend,
            members: Members::new(scheduler, disks),
            phases: phases.iter(),
            clients: Vec::new(),
            now: 0,
            next_id: 0,
            is_flushed: false,
            outcome: Outcome::default(),
        }
    }

    /// Runs until all requests are on the platters.
    pub(super) fn run(mut self) -> Outcome {
        while let Some(streams) = self.phases.next() {
            assert!(streams.len() as u64 <= CLIENTS_MAX, "the world is made for fewer clients");
            self.clients =
                (1..).zip(streams).map(|(seed, stream)| Client::new(seed, stream)).collect();
            self.is_flushed = false;
            let (begun, before) = (self.now, self.members.account());
            self.run_phase();
            let time_ns = self.now - begun;
            let has = |is_write| streams.iter().any(|stream| stream.is_write == is_write);
            let spent = self.members.account().with(&before, u64::wrapping_sub);
            if has(true) {
                self.outcome.write_ns += time_ns;
                self.outcome.writing = self.outcome.writing.with(&spent, u64::wrapping_add);
            }
            self.outcome.read_ns += if has(false) { time_ns } else { 0 };
        }
        self.outcome.time_ns = self.now;
        self.outcome.pre_read_sectors = self.backend.pre_read_sectors();
        self.outcome.account = self.members.account();
        let spent = self.outcome.account.0;
        self.outcome.positionings = spent.iter().map(|spent| spent.positionings).sum();
        self.outcome
    }

    fn run_phase(&mut self) {
        loop {
            self.ask();
            if !self.is_flushed && self.clients.iter().all(|client| client.is_done()) {
                self.is_flushed = true;
                self.backend.flush(self.now);
            } else if let Some(at) = self.next() {
                self.advance(at);
            } else {
                assert!(self.is_over(), "something is under way, and nothing will happen");
                break;
            }
            self.carry_out();
        }
    }

    fn is_over(&self) -> bool {
        let answered = self.clients.iter().all(|client| client.outstanding == 0);
        answered && self.backend.is_idle() && self.members.is_idle()
    }

    /// Lets clients submit up to their windows.
    fn ask(&mut self) {
        while let Some(index) =
            self.clients.iter().position(|client| client.may_ask() && client.ready_at <= self.now)
        {
            let id = self.next_id * CLIENTS_MAX + index as u64;
            self.next_id += 1;
            let request = self.clients[index].ask(id, self.now);
            self.backend.request(self.now, request);
            self.carry_out();
        }
    }

    /// The time of the next event.
    fn next(&self) -> Option<u64> {
        let asking = self.clients.iter().filter(|client| client.may_ask());
        let asked = asking.map(|client| client.ready_at).min();
        let members = self.members.next();
        let timeout = self.backend.timeout();
        asked.into_iter().chain(members).chain(timeout).min().map(|at| at.max(self.now))
    }

    fn advance(&mut self, at: u64) {
        self.now = at;
        for id in self.members.advance(at) {
            self.backend.disk_done(at, id);
        }
        if self.backend.timeout().is_some_and(|timeout| timeout <= at) {
            self.backend.handle_timeout(at);
        }
    }

    fn carry_out(&mut self) {
        let effects = self.backend.take();
        for (disk, request, whose) in effects.disks {
            self.members.push(self.now, disk, request, whose);
        }
        self.members.dispatch(self.now, self.backend.backlog_permille());
        for id in effects.answers {
            let index = usize::try_from(id % CLIENTS_MAX).expect("few clients");
            self.clients[index].answered(&mut self.outcome);
        }
    }
}
