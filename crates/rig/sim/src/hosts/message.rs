//! Messages between hosts, the servers of members, and the store.
//!
//! Where it stands: values between [`layout`](super::layout) and the machines that exchange them.
//! The network delays them, and may repeat messages to the store.

use braid_ownership::{Claim, Mark, OwnerId, Record, SwapResult};

use super::layout::{Blocks, Set};

/// The content of a block: the number of the write that made it. Write numbers are unique.
pub(super) type Value = u64;

/// A process on a host. A restart makes another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Process {
    pub(super) host: usize,
    pub(super) number: u64,
}

impl Process {
    pub(super) fn owner_id(self) -> OwnerId {
        OwnerId((u128::from(self.number) << 8 | self.host as u128).to_be_bytes())
    }
}

/// The part of a superblock that ownership needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Superblock {
    /// The epoch, and the number of updates in it.
    pub(super) events: (u64, u64),
    pub(super) in_sync: Set,
}

/// An owner's request to a member's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Asks only whether the server still serves this claim.
    Ping,
    Read(usize),
    Write(usize, Value),
    SetBits(Blocks),
    ClearBits(Blocks),
    /// Reads bits and superblock.
    ReadState,
    WriteSuperblock(Superblock),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Claimed,
    /// The server serves another claim, which has this mark.
    Refused(Mark),
    Done,
    Read(Value),
    State(Blocks, Superblock),
    /// The device had an error.
    Failed,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ToServer {
    pub(super) process: Process,
    pub(super) claim: Claim,
    pub(super) call: u64,
    /// `None` claims the member.
    pub(super) work: Option<Work>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct FromServer {
    pub(super) member: usize,
    pub(super) session: u64,
    pub(super) call: u64,
    pub(super) reply: Reply,
}

#[derive(Clone, Debug)]
pub(super) struct ToStore {
    /// How many times the store had been restored when the request was sent; the network sets it.
    pub(super) life: u64,
    pub(super) process: Process,
    pub(super) call: u64,
    /// The old and the new record of a swap; `None` reads the record.
    pub(super) swap: Option<(Option<Record>, Record)>,
}

#[derive(Clone, Debug)]
pub(super) struct FromStore {
    pub(super) call: u64,
    pub(super) result: SwapResult,
}

/// A message on its way, or an entry of a device's queue.
#[derive(Clone, Debug)]
pub(super) enum Sent {
    ToServer(usize, ToServer),
    FromServer(Process, FromServer),
    ToStore(Box<ToStore>),
    FromStore(Process, Box<FromStore>),
    /// A server has given a job to its device.
    ToDevice {
        member: usize,
        life: u64,
        job: u64,
    },
}
