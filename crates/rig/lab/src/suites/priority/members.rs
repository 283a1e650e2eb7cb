//! The members in this suite: bare disks, or disks below the shipped elevator.

use braid_elevator::{Demand, Directions, Multiplexer, MultiplexerSettings, Operation, Settings};

use crate::disk::{Account, ArmPurpose, Disk, DiskPlan, DiskRequest};
use crate::member::Member;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberScheduler {
    /// No layer: the disks order their requests themselves.
    Nothing,
    /// The shipped elevators, with Linux's old settings.
    Elevators,
    /// The shipped elevators and the multiplexer, the default for rotational members.
    Multiplexer,
}

pub(super) struct Elevators {
    members: Vec<Member>,
    /// `None`: both reads and writes may always go.
    multiplexer: Option<Multiplexer>,
    asks_at: Option<u64>,
}

pub(super) enum Members {
    Bare(Vec<Disk>),
    Elevators(Elevators),
}

impl Members {
    pub(super) fn new(scheduler: MemberScheduler, count: usize) -> Self {
        let plan = DiskPlan::SATA_2005;
        let settings = match scheduler {
            MemberScheduler::Nothing => {
                return Self::Bare((0..count).map(|_| Disk::new(plan)).collect());
            }
            MemberScheduler::Elevators => Settings::default(),
            MemberScheduler::Multiplexer => Settings::multiplexed(),
        };
        let is_multiplexed = scheduler == MemberScheduler::Multiplexer;
        Self::Elevators(Elevators {
            members: (0..count).map(|_| Member::new(settings, plan)).collect(),
            multiplexer: is_multiplexed
                .then(|| Multiplexer::new(MultiplexerSettings::default(), 0)),
            asks_at: None,
        })
    }

    pub(super) fn account(&self) -> Account {
        let add = |all: Account, one| all.with(&one, u64::wrapping_add);
        match self {
            Self::Bare(disks) => disks.iter().map(Disk::account).fold(Account::default(), add),
            Self::Elevators(Elevators { members, .. }) => {
                members.iter().map(Member::account).fold(Account::default(), add)
            }
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        match self {
            Self::Bare(disks) => disks.iter().all(Disk::is_idle),
            Self::Elevators(Elevators { members, .. }) => members.iter().all(Member::is_idle),
        }
    }

    /// When the next request ends, or when one may be given to a disk, whichever is first.
    pub(super) fn next(&self) -> Option<u64> {
        match self {
            Self::Bare(disks) => disks.iter().filter_map(Disk::next).min(),
            Self::Elevators(Elevators { members, asks_at, .. }) => {
                members.iter().filter_map(Member::next).chain(*asks_at).min()
            }
        }
    }

    pub(super) fn advance(&mut self, now: u64) -> Vec<u64> {
        let mut ids = Vec::new();
        match self {
            Self::Bare(disks) => {
                for disk in disks {
                    while disk.next().is_some_and(|next| next <= now) {
                        disk.advance(now, |id| ids.push(id));
                    }
                }
            }
            Self::Elevators(Elevators { members, multiplexer, .. }) => {
                for member in members {
                    let done = member.advance(now);
                    for side in (0..2).filter(|side| done.served[*side]) {
                        if let Some(multiplexer) = multiplexer {
                            multiplexer.handle_served(side == 0, done.busy_ns[side]);
                        }
                    }
                    ids.extend(done.entries);
                }
            }
        }
        ids
    }

    pub(super) fn push(
        &mut self,
        now: u64,
        slot: usize,
        request: DiskRequest,
        purpose: ArmPurpose,
    ) {
        match self {
            Self::Bare(disks) => disks[slot].push_for(now, request, purpose),
            Self::Elevators(Elevators { members, .. }) => {
                let operation = match purpose {
                    ArmPurpose::Reader => Operation::Read,
                    ArmPurpose::PreRead => Operation::PreRead,
                    ArmPurpose::Data | ArmPurpose::Parity => Operation::Write { durable: false },
                };
                members[slot].insert(now, (request, purpose), operation);
            }
        }
    }

    /// Gives the disks the requests that may go with this backlog of writes.
    pub(super) fn dispatch(&mut self, now: u64, backlog_permille: u32) {
        let Self::Elevators(Elevators { members, multiplexer, asks_at }) = self else { return };
        let queued = members.iter().map(Member::queued);
        let (reads_queued, writes_queued) =
            queued.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        let reads = members.iter().any(|member| member.waits_for().reads);
        let demand = Demand {
            backlog_permille,
            is_urgent: false,
            reads,
            writes: writes_queued > 0,
            reads_queued,
            writes_queued,
        };
        let turn = multiplexer.as_mut().map(|multiplexer| multiplexer.turn(now, demand));
        for member in members {
            member.dispatch(now, |waits, out| {
                turn.map_or(Directions::ALL, |turn| turn.allowed_at(waits, out))
            });
        }
        let is_wanted = reads || writes_queued > 0;
        *asks_at = turn.filter(|_| is_wanted).map(|turn| turn.until_ns.max(now + 1));
    }
}
