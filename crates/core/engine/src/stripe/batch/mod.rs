//! A stripe, and the machine of the batch that it writes.
//!
//! ```text
//!            work queued             all read               computation done           all written
//!   Ready ───────────────▶ Fill ───────────────▶ Compute ───────────▶ Write ───────────────▶ Ready
//!     ▲                     │ ▲ a read failed:                          │ some members missed it
//!     │                     └─┘ plan again       (logged first)         ▼
//!     │◀──────────────────────────────────────────────────────── AwaitRecord
//!     │                                           a view without them arrived
//!     └── no work left: the stripe is free
//! ```
//!
//! [`mod@facts`] folds a stripe into a small value, [`mod@decide`] is the pure table, [`act`]
//! changes the state and emits effects, and [`mod@stripe`] is the state. [`content`] finds the new
//! bytes of a batch, [`steps`] computes on them. The pool and the scheduler, not the stripe, decide
//! the stripe's place in lists and when it may begin.
//!
//! A *batch* is the work of a stripe at one time: all writes that had arrived when it began. Its
//! *window* is the set of sectors of the stripe unit that any of these writes touches, in any
//! column. The window includes gaps too small to be worth a request ([`crate::sectors`]). Every
//! read, every parity byte and every write of the batch stays inside the window.
//!
//! The plan that submitted a batch's reads also says how the batch continues after the reads
//! ([`FilledPlan`](super::plan::FilledPlan)). A batch is planned again if a read failed, a view
//! came, or the parity that it uses became untrustworthy.
//!
//! With partial parity logs, a batch is logged after it computes and before it writes ([`log`]).
//!
//! Bytes that a batch has read or computed stay in the stripe's blocks for later batches, until
//! another stripe takes the memory. Each column notes which sectors of its block hold what its
//! member holds, or would hold if it could be read (`Column::valid`). Once a batch computes, these
//! sectors hold the member's content after the batch's writes. If the batch fails, no sector of its
//! blocks is believed.

mod act;
mod content;
mod decide;
mod facts;
mod log;
mod steps;
mod stripe;

pub(super) use act::Effects;
pub(super) use content::Content;
pub(super) use decide::{Action, decide, waits};
pub(super) use facts::{BatchContext, facts};
pub(super) use stripe::{ColumnState, Phase, Stripe};
