//! Consistency keeps redundancy right over a crash: by a bitmap, parity logs, a journal, or none of
//! them; and carries out changes from one to another.
//!
//! A member's write is not atomic, and a write of a stripe or mirror is several member writes. So a
//! durable record names the places where members may differ, before they differ. The record is in
//! bits ([`intent`]), in records of the writes ([`parity_logs`], [`journal`]), or in superblocks
//! alone, which call the array active.
//!
//! ```text
//!   kept      none, a bitmap, our own logs (with a bitmap or without), md's logs, or a journal
//!   changes   bitmap_change, while clients write; log_change, while nothing is written
//!   requests  an operator asks for a change, or for the policy that is kept
//!   machine   the logs that are kept; the answers to superblocks, shards and jobs
//!   facts     its state and the rest of the array's (context) ─▶ decide, its table ─▶ act
//! ```
//!
//! Consistency alone owns bitmap, logs and journal, so that the rest of the array need not know
//! which of them is kept. Consistency does not handle superblocks' updates, members' caches or
//! jobs: it requests their work by an [`ArrayRequest`], and its effects go to the outbox.

mod act;
mod bitmap_change;
mod context;
mod decide;
mod facts;
mod held_ranges;
mod intent;
mod journal;
mod log_change;
mod machine;
mod parity_logs;
mod requests;

pub(super) use act::ArrayRequest;
pub use bitmap_change::NewBitmap;
pub(super) use context::{ConsistencyContext, PendingUpdate};
pub(super) use decide::{
    Action as ConsistencyAction, Facts as ConsistencyFacts, decide as decide_consistency,
};
#[cfg(test)]
pub(super) use intent::IntentAction;
pub use journal::JournalLook;
pub(super) use log_change::LogChangeStage;
pub(super) use machine::{Consistency, ConsistencyRecord};
#[cfg(test)]
pub(super) use parity_logs::LogAction;
pub(super) use parity_logs::News;
