//! Consistency keeps redundancy right over a crash: a bitmap, parity logs, a journal, or none of
//! them; and the changes from one to another.
//!
//! A member's write is not atomic, and a stripe's or mirror's is several of them. So where members
//! may differ is said durably before they do: by bits ([`intent`]), by records of what is being
//! written ([`parity_logs`], [`journal`]), or by superblocks alone, which say that the array is
//! active.
//!
//! ```text
//!   kept      none, a bitmap, our own logs (with a bitmap or without), md's logs, or a journal
//!   changes   bitmap_change, while clients write; log_change, while nothing is written
//!   requests  a person asks for a change, or what is kept
//!   machine   what is kept; what superblocks, shards and jobs are told of it
//!   facts     how it stands beside the rest of the array (ground) ─▶ decide, its table ─▶ act
//! ```
//!
//! One owner has all of it, so that the rest of the array need not know which log is kept. It
//! does not know superblocks' updates, members' caches or jobs: what it asks of them is an [`Ask`],
//! and what it says goes to the outbox.

mod act;
mod bitmap_change;
mod decide;
mod facts;
mod ground;
mod intent;
mod journal;
mod log_change;
mod machine;
mod parity_logs;
mod requests;
mod returns;

pub(super) use act::Ask;
pub use bitmap_change::NewBitmap;
pub(super) use decide::{
    Action as ConsistencyAction, Facts as ConsistencyFacts, decide as decide_consistency,
};
pub(super) use ground::{Awaiting, Ground as ConsistencyGround};
#[cfg(test)]
pub(super) use intent::IntentAction;
pub use journal::JournalLook;
pub(super) use log_change::Changing;
pub(super) use machine::{Consistency, Said};
#[cfg(test)]
pub(super) use parity_logs::LogAction;
pub(super) use parity_logs::News;
