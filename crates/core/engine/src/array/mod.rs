//! The control side: the array's members, superblocks' content, and whether writes may start.
//!
//! Each array has one control machine, whose inputs are the shards' reports and the results of its
//! own effects. As every machine of this folder, it has four files: `facts` folds the state into a
//! small value, and `decide` is the pure table of next actions. `act` carries the actions out, and
//! `machine` holds the state:
//!
//! ```text
//!            a shard wants to write            nothing written for a while, or stop
//!   clean ──────────────────────────▶ active ────────────────────────────────────────┐
//!     ▲   write superblocks "active",         close the gate, wait for every shard,  │
//!     │   then open the gate                  flush members, write "clean"           │
//!     └──────────────────────────────────────────────────────────────────────────────┘
//!   a little later, nothing waits for it: the same again, with one more event (`event_count`)
//!   at any time: a member failed ─▶ write the survivors' superblocks ─▶ publish a view without it
//! ```
//!
//! The control side does not know sectors, requests' content, devices or threads.

mod act;
mod away;
mod bad_logs;
mod bitmap_record;
mod caches;
mod consistency;
mod decide;
mod effect;
mod erring_members;
mod event_count;
mod facts;
mod fixed;
mod gatekeeper;
mod jobs;
mod lost_sectors;
mod machine;
mod member_requests;
mod order;
mod outbox;
mod parity_log_record;
mod pending_shape;
#[cfg(test)]
mod product;
mod read_errors;
mod refusals;
mod reshape;
mod roster;
mod set;
mod setup;
mod shape_change;
mod silent_members;
mod sitting_out;
mod slow_members;
mod superblocks;
mod update;
mod upkeep;
mod view;
mod waves;

pub use crate::ids::{BitmapId, MemberId};
pub use away::AwayMember;
pub use bitmap_record::{BitmapLook, BitmapRecord, bitmap_for};
pub use consistency::{JournalLook, NewBitmap};
pub use effect::{
    ArrayEffect, BorderChange, ErrorReaction, MetadataArea, MetadataRecord, MovedPiece, Notice,
    WindowAccess,
};
pub use jobs::{ClassFlow, JobAllowance, JobEnd, JobFlow, JobKind, JobProgress, JobRequest};
pub use machine::{Array, ReshapeLook};
pub use parity_log_record::{ParityLogRecord, parity_log_for};
pub use pending_shape::{ShapeChange, ShapeRefusal};
pub use read_errors::ReadErrors;
pub use refusals::{BitmapRefusal, LogRefusal, MemberRefusal};
pub use roster::Wish;
pub use setup::{
    AcceptedRisk, ArraySetup, BitmapSetup, DataMove, JournalSetup, MemberSetup, ParityLogSetup,
    ReplacementSetup, ReshapeSetup, ReturningMember, SpareSetup,
};
pub use update::{
    DataArea, DeviceRole, JournalState, ShapeState, SuperblockState, UpdateTimes, apply_to,
    bad_block_log_for, level_with, update_for,
};
pub use view::{ArrayView, Gate, IntentView, MemberView};
pub(crate) use waves::next_wave;
