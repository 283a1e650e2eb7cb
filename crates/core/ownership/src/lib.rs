//! One owner of an array at a time, agreed on by a store.
//!
//! Where it stands: below the member's server, which keeps a [`Fence`] for each member, and below
//! the service, which takes an array over ([`TakeOver`]) and keeps it ([`Tenure`], [`ReadLease`]).
//! The simulator drives the same machines. They do no I/O: the store, the servers and the clock are
//! their drivers'.
//!
//! ```text
//!   store:   record { epoch, owner, serial, members in sync } ── changed by compare-and-swap only
//!               ▲ swap                                  ▲ swap: give up a member, beat
//!   owner:   TakeOver ── claim epoch ──▶ servers ─▶ Tenure ── requests ──▶ servers
//!                                        Fence                             Fence: holder only
//! ```
//!
//! 1. A new owner swaps the record to the next epoch.
//! 2. It claims that epoch at each member's server. The server makes the epoch durable, serves no
//!    older claim any more, waits until all that it gave to the device has come back, and answers.
//! 3. It waits until the claimed members can run the array by themselves. A swap gives up the
//!    others. It waits for the old owner's lease of reads, and serves.
//! 4. While it owns, it gives up a member by a swap before it writes a superblock without it.
//!
//! # Why no write is lost, without a clock
//!
//! A write reaches every member in sync, or a swap gives up the missing ones before the write is
//! answered. The members that a new owner has claimed can run the array by themselves, so the rest
//! cannot hold all copies and parities of any block: each write of the old owner needs one of the
//! claimed members, or a swap. The first refuses it, and the second fails since the epoch moved.
//!
//! # Why no read is old
//!
//! An owner answers reads only while the silent members could not run the array by themselves.
//! After a take-over the claimed ones are silent to it. The new owner waits one lease.
//!
//! # Invariants
//! - No acknowledged write is lost, no read is older than an acknowledged write, and no two owners
//!   acknowledge: `braid-sim hosts`.

#![forbid(unsafe_code)]

mod claim;
mod fence;
mod lease;
mod record;
mod take_over;
mod tenure;
mod words;

pub use claim::{Claim, ClaimError, OwnerId};
pub use fence::{Fence, Judgement, Mark, User};
pub use lease::ReadLease;
pub use record::{MemberKey, Record, RecordedMember};
pub use take_over::{SwapResult, TakeOver, TakeOverError, TakeOverStep};
pub use tenure::{Tenure, TenureEnd};
pub use words::{mark_before, refused_by, refused_words, served_words};
