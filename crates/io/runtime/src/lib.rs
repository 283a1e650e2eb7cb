//! Threads around the engine: combiners, payload memory, member I/O, and the [`Volume`].
//!
//! Place in the flow: front ends call [`Volume`]. The runtime turns requests into events for
//! `braid_engine`'s machines, carries out their effects on `braid_member`s, and feeds the results
//! back. The runtime decides nothing about RAID and knows no protocol.
//!
//! ```text
//!   front end ──submit──▶ Volume ──pieces──▶ shard combiners ◀──views── array combiner
//!                                               │   ▲                     │      ▲
//!                                       member I/O  results     superblocks, flushes
//!                                               ▼   │                     │      │
//!                             a scheduler for each member (braid_dispatch)│      │
//!                                               ▼   │                     ▼      │
//!                              workers with a ring each, or a queue and a few threads per member
//! ```
//!
//! No thread ever waits for a shard. A thread with an event leaves it in the shard's inbox and
//! tries to become the owner ([`braid_dispatch::Combiner`]). If another thread owns the shard, the
//! first thread continues with other work.
//!
//! # Layers
//!
//! A file imports from the layers below its own, and from files left of it in its layer (`cargo
//! xtask tidy`: no circles of files). Layers above receive events: a layer leaves work for them in
//! a machine's inbox, and names the machine to drive.
//!
//! ```text
//!   disk                                            the array as doors see it, and tests make up
//!   volume, extents          open                   the array as its user sees it; its opening
//!   completions  timekeeper, elevators  membership  what wakes machines
//!   drive                                           the loop: events into machines, effects out
//!   steps                    executor/              a request, step by step; the way to a member
//!   core                                            what the threads of one array share
//!   ────────────────────────────────────────────────────────────────────────────────────────────
//!   pending_request, requests, arena, cache_file   members/   alarm, workers   turns   pacing
//!   hand_over   updates   watch   write_admission   border   log
//!                                                   parts, each of which knows little of others
//!   client, events, options, cache, scheduling, cause, clock, waiter, shared_bytes, sync/
//!                                                   values, and hand-overs
//! ```
//!
//! Ends, moments, settings, and members that come and go wake machines.
#![deny(unsafe_code)]
// loom explores the hand-overs of a few modules, so the other modules are unused under loom.
#![cfg_attr(loom, allow(dead_code))]

// The models and the executor's tests share the tests' kit, which uses this crate's name from
// outside.
#[cfg(all(test, not(loom)))]
extern crate self as braid_runtime;

#[cfg(not(loom))]
mod alarm;
mod arena;
#[cfg(not(loom))]
mod bitmap;
#[cfg(not(loom))]
mod border;
#[cfg(not(loom))]
mod cache;
#[cfg(not(loom))]
mod cache_file;
#[cfg(not(loom))]
mod cause;
#[cfg(not(loom))]
mod clock;
#[cfg(not(loom))]
mod completions;
#[cfg(not(loom))]
mod core;
#[cfg(not(loom))]
mod direct_change;
#[cfg(not(loom))]
mod disk;
#[cfg(not(loom))]
mod drive;
#[cfg(not(loom))]
mod elevators;
#[cfg(not(loom))]
mod events;
#[cfg(not(loom))]
mod executor;
#[cfg(not(loom))]
mod extents;
#[cfg(not(loom))]
mod hand_over;
#[cfg(not(loom))]
mod log;
#[cfg(not(loom))]
mod looks;
#[cfg(not(loom))]
mod member_return;
#[cfg(not(loom))]
mod members;
#[cfg(not(loom))]
mod membership;
#[cfg(all(test, any(loom, shuttle)))]
mod models;
#[cfg(not(loom))]
mod open;
#[cfg(not(loom))]
mod open_member;
#[cfg(not(loom))]
mod operator;
#[cfg(not(loom))]
mod options;
#[cfg(not(loom))]
mod pacing;
#[cfg(not(loom))]
mod parity_logs;
#[cfg(not(loom))]
mod pending_request;
mod requests;
#[cfg(not(loom))]
mod reshape;
#[cfg(not(loom))]
mod scheduling;
#[cfg(not(loom))]
mod scratch;
mod shared_bytes;
#[cfg(not(loom))]
mod steps;
mod sync;
#[cfg(not(loom))]
mod timekeeper;
#[cfg(not(loom))]
mod turns;
#[cfg(not(loom))]
mod updates;
#[cfg(not(loom))]
mod volume;
#[cfg(not(loom))]
mod waiter;
#[cfg(not(loom))]
mod watch;
#[cfg(not(loom))]
mod window_copy;
#[cfg(not(loom))]
mod workers;
mod write_admission;
#[cfg(not(loom))]
mod write_journal;

#[cfg(not(loom))]
pub use bitmap::{BitmapError, BitmapHome, WantedBitmap};
#[cfg(not(loom))]
pub use braid_ring::client::{ClientRequest, Completion, Outcome, Receiver, RequestError, Token};
#[cfg(not(loom))]
pub use cache::Cache;
#[cfg(not(loom))]
pub use cache_file::{CacheFile, CacheFileError, FoundContent, FoundWrite, FoundWrites};
#[cfg(not(loom))]
pub use cause::{AnswerWords, CauseWords};
#[cfg(not(loom))]
pub use disk::Disk;
#[cfg(not(loom))]
pub use extents::Extent;
#[cfg(not(loom))]
pub use operator::{AddError, MemberLook, Newcomer, RemoveError};

#[cfg(not(loom))]
pub use braid_ondisk::{CopiedWindow, ReshapePoint};
#[cfg(not(loom))]
pub use members::traffic::TrafficCounts;
#[cfg(not(loom))]
pub use open_member::{OpenError, OpenMember};
#[cfg(not(loom))]
pub use options::{Direct, Io, Options};
#[cfg(not(loom))]
pub use parity_logs::{LogError, LogKind};
#[cfg(not(loom))]
pub use reshape::ReshapeError;
#[cfg(not(loom))]
pub use scheduling::{Elevator, ElevatorState, ElevatorTuning, Multiplex, Scheduling};
#[cfg(not(loom))]
pub use updates::{Consenter, PlannedUpdate, RecordedMember, RecordedUpdate};
#[cfg(not(loom))]
pub use volume::{Reassembled, StopResult, StoppedMember, Volume};
#[cfg(not(loom))]
pub use window_copy::WindowCopy;
#[cfg(not(loom))]
pub use write_journal::JournalError;

pub use braid_dispatch::{
    Counters as ElevatorCounters, Depth, Policy, Settings as ElevatorSettings,
};
pub use braid_elevator::{MultiplexerSettings, Slice};
pub use braid_engine::array::{
    ArrayView, BitmapRefusal, ErrorReaction, Gate, JobEnd, JobKind, JobProgress, JobRequest,
    JournalLook, LogRefusal, MemberId, MemberRefusal, MemberView, Notice, ReadErrors, ReshapeLook,
    ShapeChange, ShapeRefusal, Wish,
};
pub use braid_engine::cause::{Answer, Cause, RequestKind};
pub use braid_engine::reshape::{ShapeProposal, ShapeWish, WishError};
pub use braid_engine::work::{Candidates, Fate, Finding, RotKind};
pub use braid_engine::{CacheMode, Counters, OnReadErrors, Patience, ReadErrorLimit, SitOut};
pub use braid_pace::{GovernorSettings, GovernorState, Phase};
pub use braid_ring::{Payload, Workers};
