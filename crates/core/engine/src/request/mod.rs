//! Client requests: their operations and faults, and how a request is cut into pieces.
//!
//! A request covers any range of the array. [`Split`] cuts it where ownership changes (a region
//! belongs to one shard). Each [`Piece`] is answered by its shard with one reply, and [`Progress`]
//! folds the replies into the client's one answer. A request in bytes becomes a plan of requests in
//! sectors ([`RequestPlan`]), and passes a [`WriteAdmission`].

mod edges;
mod operation;
mod range_lock;
mod split;
mod write_admission;

pub use crate::ids::{RequestId, ShardIndex};
pub use edges::{
    ByteOperation, ByteRequest, Denial, Next, Patch, RequestLimits, RequestPlan, Step, check,
    unit_bytes,
};
pub use operation::{Fault, Operation, Progress, Request};
pub(crate) use range_lock::{LockKey, RangeLock};
pub use split::{Piece, Regions, Split};
pub use write_admission::{AdmissionMode, Ticket, WriteAdmission};
