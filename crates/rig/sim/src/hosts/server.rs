//! The server of one member, with the shipped fence, and its device.
//!
//! Where it stands: takes messages from the network, and gives jobs to its device, which carries
//! them out after a delay, in any order. The server handles one claim at a time, so that durable
//! marks only rise.
//!
//! A crash decides for each job with the device whether the job happens. The mark survives.

use std::collections::{BTreeMap, VecDeque};

use braid_ownership::{Fence, Judgement, Mark, User};

use super::context::Context;
use super::layout::{BLOCKS, Blocks};
use super::message::{FromServer, Reply, Sent, Superblock, ToServer, Value, Work};

#[derive(Debug)]
enum Job {
    Work(ToServer, Work),
    /// Makes the mark of a claim durable.
    Mark(ToServer),
}

/// The content of the member, which survives crashes.
#[derive(Debug, Default)]
struct Disk {
    mark: Option<Mark>,
    values: [Value; BLOCKS],
    bits: Blocks,
    superblock: Superblock,
}

#[derive(Debug)]
pub(super) struct Server {
    member: usize,
    disk: Disk,
    fence: Fence,
    /// How many faults keep the server down at present.
    crashes: u32,
    /// Counts restarts: jobs from before the last restart are void.
    life: u64,
    jobs: BTreeMap<u64, Job>,
    next_job: u64,
    is_marking: bool,
    /// Claims that wait until another claim's mark is durable.
    claims: VecDeque<ToServer>,
    /// Claims that wait until the device has answered older requests.
    waiters: Vec<ToServer>,
    /// How many faults make the device fail at present.
    pub(super) errors: u32,
}

impl Server {
    pub(super) fn new(member: usize) -> Self {
        Self {
            member,
            disk: Disk::default(),
            fence: Fence::new(None),
            crashes: 0,
            life: 0,
            jobs: BTreeMap::new(),
            next_job: 0,
            is_marking: false,
            claims: VecDeque::new(),
            waiters: Vec::new(),
            errors: 0,
        }
    }

    pub(super) fn member(&self) -> usize {
        self.member
    }

    /// The durable mark.
    pub(super) fn mark(&self) -> Option<Mark> {
        self.disk.mark
    }

    pub(super) fn values(&self) -> &[Value; BLOCKS] {
        &self.disk.values
    }

    pub(super) fn bits(&self) -> Blocks {
        self.disk.bits
    }

    pub(super) fn take(&mut self, message: ToServer, context: &mut Context<'_>) {
        if self.crashes > 0 {
            return;
        }
        let Some(work) = message.work else {
            self.claims.push_back(message);
            return self.take_claims(context);
        };
        let user = User::Owner(message.claim);
        if !self.fence.begin(user) {
            context.tally.count("requests-refused");
            let mark = self.fence.mark().expect("a server that refuses has a mark");
            return self.reply(&message, Reply::Refused(mark), context);
        }
        if work == Work::Ping {
            self.fence.end(user);
            return self.reply(&message, Reply::Done, context);
        }
        self.give(Job::Work(message, work), context);
    }

    fn give(&mut self, job: Job, context: &mut Context<'_>) {
        self.next_job += 1;
        self.jobs.insert(self.next_job, job);
        let (member, life, job) = (self.member, self.life, self.next_job);
        context.sent.push(Sent::ToDevice { member, life, job });
    }

    fn reply(&self, to: &ToServer, reply: Reply, context: &mut Context<'_>) {
        let (member, session) = (self.member, to.claim.session);
        let message = FromServer { member, session, call: to.call, reply };
        context.sent.push(Sent::FromServer(to.process, message));
    }

    fn take_claims(&mut self, context: &mut Context<'_>) {
        while !self.is_marking
            && let Some(claim) = self.claims.pop_front()
        {
            match self.fence.judge(&claim.claim) {
                Judgement::Refused(mark) => {
                    context.tally.count("claims-refused");
                    self.reply(&claim, Reply::Refused(mark), context);
                }
                Judgement::Joins => self.waiters.push(claim),
                Judgement::Succeeds { mark: Some(_) } => {
                    self.is_marking = true;
                    self.give(Job::Mark(claim), context);
                }
                Judgement::Succeeds { mark: None } => {
                    self.fence.succeed(claim.claim);
                    self.waiters.push(claim);
                }
            }
        }
        self.answer_waiters(context);
    }

    /// Answers the claims that need not wait any more.
    fn answer_waiters(&mut self, context: &mut Context<'_>) {
        for waiter in std::mem::take(&mut self.waiters) {
            match self.fence.judge(&waiter.claim) {
                Judgement::Refused(mark) => self.reply(&waiter, Reply::Refused(mark), context),
                _ if self.fence.is_drained() => self.reply(&waiter, Reply::Claimed, context),
                _ => {
                    context.tally.count("claims-waited-for-drain");
                    self.waiters.push(waiter);
                }
            }
        }
    }

    /// The device has done a job.
    pub(super) fn done(&mut self, (life, job): (u64, u64), context: &mut Context<'_>) {
        if life != self.life {
            return;
        }
        match self.jobs.remove(&job).expect("a device does each job once") {
            Job::Mark(claim) => {
                self.disk.mark = Some(Mark::of(&claim.claim));
                self.fence.succeed(claim.claim);
                self.waiters.push(claim);
                self.is_marking = false;
                self.take_claims(context);
            }
            Job::Work(message, work) => {
                let reply = if self.errors > 0 { Reply::Failed } else { self.disk.apply(work) };
                self.fence.end(User::Owner(message.claim));
                self.reply(&message, reply, context);
                self.answer_waiters(context);
            }
        }
    }

    pub(super) fn crash(&mut self, context: &mut Context<'_>) {
        let mut jobs: Vec<Job> = std::mem::take(&mut self.jobs).into_values().collect();
        context.random.shuffle(&mut jobs);
        for job in jobs {
            match job {
                _ if context.random.chance(50) => {}
                Job::Work(_, work) => _ = self.disk.apply(work),
                Job::Mark(claim) => self.disk.mark = Some(Mark::of(&claim.claim)),
            }
        }
        (self.is_marking, self.life, self.crashes) = (false, self.life + 1, self.crashes + 1);
        self.claims.clear();
        self.waiters.clear();
    }

    pub(super) fn restart(&mut self) {
        self.crashes -= 1;
        self.fence = Fence::new(self.disk.mark);
    }
}

impl Disk {
    fn apply(&mut self, work: Work) -> Reply {
        match work {
            Work::Ping => {}
            Work::Read(block) => return Reply::Read(self.values[block]),
            Work::Write(block, value) => self.values[block] = value,
            Work::SetBits(blocks) => self.bits |= blocks,
            Work::ClearBits(blocks) => self.bits &= !blocks,
            Work::ReadState => return Reply::State(self.bits, self.superblock),
            Work::WriteSuperblock(superblock) => {
                // Updates of superblocks are ordered by their events.
                if superblock.events > self.superblock.events {
                    self.superblock = superblock;
                }
            }
        }
        Reply::Done
    }
}
