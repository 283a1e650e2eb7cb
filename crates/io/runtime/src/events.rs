//! What machines are told: the events of shards and of the array.
//!
//! Where it stands: below all that tells them anything. An event is left in the machine's inbox
//! ([`braid_dispatch::Combiner`]); then the machine is driven ([`crate::drive`]).

use std::collections::BTreeMap;

use braid_engine::Tuning;
use braid_engine::array::{
    ArrayView, BitmapRefusal, JobRequest, JournalSetup, LogRefusal, MemberId, MemberRefusal,
    MetadataArea, NewBitmap, SpareSetup, Wish,
};
use braid_engine::cause::Cause;
use braid_engine::computation::Computation;
use braid_engine::effect::{LogTicket, MemberFault, MemberIoDone, Report, SlowMembers};
use braid_engine::request::{Piece, RequestId, ShardIndex};
use braid_engine::work::Work;
use braid_engine::{Patience, ReadErrorLimit, SitOut};
use braid_ondisk::LogPlace;

use crate::sync::Arc;
use crate::sync::mpsc::Sender;

/// An event for a shard.
pub(crate) enum ShardEvent {
    Piece(Piece),
    MemberIo(MemberIoDone),
    ComputationDone(Computation),
    View(Arc<ArrayView>),
    ActivityQuery,
    TouchedQuery,
    Logged(LogTicket),
    WriteBack(u64),
    Tuning(Tuning),
    SlowMembers(Arc<SlowMembers>),
    Work(Work),
    Timeout,
}

/// An event for the array.
pub(crate) enum ArrayEvent {
    Report(ShardIndex, Report),
    MetadataWritten(MemberId, MetadataArea, Result<(), MemberFault>),
    Flushed(MemberId, Result<(), Cause>),
    FlushRequest(RequestId),
    MemberLost(Cause),
    SitOut(SitOut),
    Patience(Patience),
    /// A member that is away has failed.
    StaysAway(Cause),
    /// Members that were asked something, and milliseconds for which nothing of it has ended.
    Silence(Vec<(MemberId, u64)>),
    ReadErrorLimit(ReadErrorLimit),
    Job(JobRequest),
    Member(MemberChange, Sender<Result<(), MemberRefusal>>),
    /// A bitmap is to be made, or that given up which there is.
    Bitmap(Option<NewBitmap>, Sender<Result<(), BitmapRefusal>>),
    /// Parity logs are to be made at these places, or those given up which there are.
    Logs(Option<BTreeMap<MemberId, LogPlace>>, Sender<Result<(), LogRefusal>>),
    /// A device is to have a write journal.
    Journal(JournalSetup, Sender<Result<(), LogRefusal>>),
    /// How fast jobs go is to be looked at.
    Pace,
    Timeout,
    /// Whether losses are written to a record beside the members.
    KeepsRecord(bool),
    /// The record has the update of this count.
    RecordKept(u64),
    Stop,
}

/// What a person wants of the members.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MemberChange {
    /// One comes, and is to have this slot.
    Add(SpareSetup, Option<Wish>),
    /// The first was away, and comes back as the other.
    Return(MemberId, SpareSetup),
    /// One fails.
    Fail(MemberId),
    /// One goes.
    Remove(MemberId),
    /// The first is to be replaced by the second, a spare.
    Replace(MemberId, MemberId),
    /// One is read only where no other copy is, or as the others are.
    WriteMostly(MemberId, bool),
}

/// A machine to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Machine {
    Shard(ShardIndex),
    Array,
}
