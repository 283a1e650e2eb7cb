//! The events of shards and of the array.
//!
//! Place in the flow: below all code that sends events. The sender leaves an event in the machine's
//! inbox ([`braid_dispatch::Combiner`]); then the machine is driven ([`crate::drive`]).

use std::collections::BTreeMap;
use std::ops::Range;

use braid_engine::Tuning;
use braid_engine::array::{
    ArrayView, BitmapRefusal, JobRequest, JournalSetup, LogRefusal, MemberId, MemberRefusal,
    MetadataArea, NewBitmap, ShapeChange, ShapeRefusal, SpareSetup, Wish,
};
use braid_engine::cause::Cause;
use braid_engine::computation::Computation;
use braid_engine::effect::{LogTicket, MemberFault, MemberIoDone, Report, SlowMembers};
use braid_engine::request::{Fault, Piece, RequestId, ShardIndex};
use braid_engine::work::Work;
use braid_engine::{Patience, ReadErrorLimit, SitOut};
use braid_ondisk::{CopiedWindow, LogPlace};

use crate::sync::Arc;
use crate::sync::mpsc::Sender;

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

pub(crate) enum ArrayEvent {
    Report(ShardIndex, Report),
    MetadataWritten(MemberId, MetadataArea, Result<(), MemberFault>),
    Flushed(MemberId, Result<(), Cause>),
    FlushRequest(RequestId),
    MemberLost(Cause),
    SitOut(SitOut),
    Patience(Patience),
    /// A member that is away has failed, and does not return to the array.
    StaysAway(Cause),
    /// Members with requests in flight, each with the milliseconds since its last request ended.
    Silence(Vec<(MemberId, u64)>),
    ReadErrorLimit(ReadErrorLimit),
    Job(JobRequest),
    Shape(ShapeChange, Sender<Result<(), ShapeRefusal>>),
    Member(MemberChange, Sender<Result<(), MemberRefusal>>),
    /// `Some` creates a bitmap, `None` drops it.
    Bitmap(Option<NewBitmap>, Sender<Result<(), BitmapRefusal>>),
    /// `Some` creates parity logs at these places, `None` drops them.
    Logs(Option<BTreeMap<MemberId, LogPlace>>, Sender<Result<(), LogRefusal>>),
    Journal(JournalSetup, Sender<Result<(), LogRefusal>>),
    /// All requests from before the last change of a reshape's border have ended.
    BorderPassed,
    /// The copy of a window of a reshape is durable, or has failed.
    Kept(Result<(), Fault>),
    /// A window of a reshape was read, except sectors that no member could give.
    LossyWindow(CopiedWindow),
    /// The piece of a reshape that begins at this sector was moved, except sectors that no member
    /// could give; or the move has failed.
    Moved(u64, Result<Vec<Range<u64>>, Fault>),
    Pace,
    Timeout,
    /// Whether losses are also written to a record outside the members.
    KeepsRecord(bool),
    /// The record outside the members has the update with this event count.
    RecordKept(u64),
    Consent(u64),
    Stop,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum MemberChange {
    /// A member joins and wants this slot.
    Add(SpareSetup, Option<Wish>),
    /// The member that was away returns to the array as this new member.
    Return(MemberId, SpareSetup),
    Fail(MemberId),
    Remove(MemberId),
    /// The second member, a spare, replaces the first.
    Replace(MemberId, MemberId),
    /// A member becomes write-mostly (read only if no other copy exists), or normal again.
    WriteMostly(MemberId, bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Machine {
    Shard(ShardIndex),
    Array,
}
