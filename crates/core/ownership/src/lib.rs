//! One owner of an array at a time, agreed on by a store.
//!
//! Its place: below the member's server, which keeps a [`Fence`] for each member, and below the
//! service, which takes an array over ([`TakeOver`]) and keeps it ([`Tenure`], [`ReadLease`]). The
//! simulator drives the same machines. The machines do no I/O: the store, the servers and the clock
//! are their drivers'.
//!
//! ```text
//!   store:   record { epoch, owner, serial, members in sync } ── changed by compare-and-swap only
//!               ▲ swap                                  ▲ swap: give up a member, beat
//!   owner:   TakeOver ── claim epoch ──▶ servers ─▶ Tenure ── requests ──▶ servers
//!                                        Fence                             Fence: holder only
//! ```
//!
//! 1. A new owner swaps the record to the next epoch.
//! 2. The new owner claims that epoch at each member's server. The server makes the epoch durable,
//!    serves no older claim any more, waits until all requests that it gave to the device have
//!    returned, and answers.
//! 3. The new owner waits until the claimed members can run the array by themselves. A swap gives
//!    up the other members. The new owner makes dirty blocks equal, writes superblocks, waits for
//!    the old owner's lease, and serves.
//! 4. An owner gives up a member by a swap before it writes a superblock without the member.
//!
//! # Why no write is lost, without a clock
//!
//! A write reaches every member in sync, or a swap gives up the missing members before the write is
//! answered. The members that a new owner has claimed can run the array by themselves, so the other
//! members cannot hold all copies and parities of any block: each write of the old owner needs one
//! of the claimed members, or a swap. The claimed member refuses the write, and the swap fails
//! since the epoch moved.
//!
//! So an owner must use all members that the record may name. A swap whose result is unknown may
//! have let a member in, or may let it in later: [`Tenure::allows`] counts such a swap.
//!
//! # Why no read is old, and no two owners answer
//!
//! An owner answers reads only while the silent members could not run the array by themselves.
//! After a take-over the claimed members are silent to the old owner. The new owner waits one
//! lease, and an eighth more, since clocks differ in rate. A clock must run on while its machine
//! sleeps.
//!
//! Answers to writes wait for the lease, too. The writes' data is safe without the lease, but an
//! owner that slept between a member's answer and its own would answer after the next owner serves.
//!
//! # After the store was restored to an older record
//!
//! - The owner ends at its next swap ([`TenureEnd::StoreWentBack`]), and an heir that has not
//!   served gives way.
//! - A claim may meet a server that has served its epoch or a higher one. Then the heir takes a
//!   higher epoch, needs all members, and waits for the lease. The newest superblock of all
//!   members, not the record, says which members are in sync ([`TakeOver::store_went_back`]).
//! - Not promised: that a claim meets such a server. The record may have the same epoch, or an
//!   earlier heir may have ended and left a higher epoch. So the operator demands of every
//!   take-over all members and their superblocks, until an owner serves. Then no acknowledged write
//!   is lost.
//! - Not promised either: anything about swaps that were sent before the restoration and reach the
//!   store after it. A restored store must begin with new connections.
//!
//! # Invariants
//! - No acknowledged write is lost, no read is older than an acknowledged write, and no owner
//!   answers after a later one has begun to serve [check: one_owner_at_a_time_whatever_fails].

#![forbid(unsafe_code)]

mod claim;
mod fence;
mod lease;
mod record;
mod reservation;
mod take_over;
mod tenure;
mod words;

pub use claim::{Claim, ClaimError, OwnerId};
pub use fence::{Fence, Judgement, Mark, User};
pub use lease::ReadLease;
pub use record::{MemberKey, Record, RecordedMember};
pub use reservation::{
    CLAIM_TRIES, ReservationStep, mark_of_key, reservation_key, reservation_step,
};
pub use take_over::{Basis, EpochsExhausted, SwapResult, TakeOver, TakeOverStep};
pub use tenure::{Tenure, TenureEnd};
pub use words::{mark_before, refused_by, refused_words, served_words};
