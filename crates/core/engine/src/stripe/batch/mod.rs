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
//! Four rooms: [`mod@facts`] folds a stripe into a small value, [`mod@decide`] is the pure table,
//! [`act`] changes the state and emits effects, and [`mod@stripe`] says what there is to change.
//! [`content`] is what a batch writes, [`steps`] the work on its bytes. A stripe does not know its
//! number's place in any list, nor when it may begin: the pool and the scheduler do.
//!
//! A *batch* is what a stripe works on at a time: all the writes that had come by the time it was
//! begun. Its *window* is the set of sectors of the stripe unit that any of them touches, in
//! whatever column, with the gaps that are too small to be worth a request ([`crate::sectors`]);
//! every read, every parity byte and every write of the batch stays inside it.
//!
//! How a batch goes on when its reads are in, the plan says that asked for them
//! ([`Filled`](super::plan::Filled)). It is planned anew when one of them failed, when a view came,
//! or when parity that it believes is not to be believed any more.
//!
//! Where members keep partial parity logs, what is computed is logged before it is written
//! ([`log`]).
//!
//! What a batch has read or made stays in the stripe's blocks and is used again, until another
//! stripe gets their memory: each column says which sectors of its block hold what its member
//! holds, or would hold if it could be read (`Column::valid`). From the moment that a batch
//! computes, that is what members will hold when it has written; if it cannot, nothing of it is
//! believed.

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
pub(super) use facts::{Around, facts};
pub(super) use stripe::{ColumnState, Phase, Stripe};
