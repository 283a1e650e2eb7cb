//! The array's reshape: one window after the other, each recorded before its writers go on.
//!
//! ```text
//!   Hold ─▶ passed ─▶ Flush ─▶ (copy) ─▶ Move .. Move ─▶ Flush ─▶ Record ─▶ Release ─▶ Hold ..
//!   the driver:  earlier requests end                      superblocks: the new position
//! ```
//!
//! The first flush brings writes that were answered early to the members: later they would be
//! written where data of the new shape lies by then. The second flush comes before the record: a
//! recorded position says that all sectors up to it are durable in the new shape.
//!
//! Invariants
//! - superblocks have a position only after a flush of all that lies before it
//!   `[check: a_reshape_survives_a_crash_before_any_effect]`;
//! - a window that fails changes nothing that clients read: they go on in the old shape
//!   `[check: arrays_that_change_their_shape_keep_what_clients_wrote]`.

mod decide;
mod machine;

pub(super) use decide::{
    Action as ReshapeAction, Facts as ReshapeFacts, Stage as ReshapeStage, decide as decide_reshape,
};
pub(super) use machine::{ReshapeContext, Reshaper};
