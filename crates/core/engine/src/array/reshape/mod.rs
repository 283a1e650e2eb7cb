//! The array's reshape, window by window. Superblocks record each window before its waiting writes
//! begin.
//!
//! ```text
//!   Hold ─▶ passed ─▶ Flush ─▶ (copy) ─▶ Move .. Move ─▶ Flush ─▶ Record ─▶ Release ─▶ Hold ..
//!   the driver:  earlier requests end                      superblocks: the new position
//! ```
//!
//! The first flush brings writes that were acknowledged early to the members. If such a write came
//! after the move, it would overwrite data of the new shape. The second flush comes before the
//! record: a recorded position says that all sectors up to it are durable in the new shape.
//!
//! Invariants
//! - superblocks record a position only after a flush of all moved sectors before it
//!   `[check: a_reshape_survives_a_crash_before_any_effect]`;
//! - a window that fails changes no data that clients read: clients still use the old shape
//!   `[check: arrays_that_change_their_shape_keep_what_clients_wrote]`.

mod decide;
mod machine;

pub(super) use decide::{
    Action as ReshapeAction, Facts as ReshapeFacts, Stage as ReshapeStage, decide as decide_reshape,
};
pub(super) use machine::{ReshapeContext, Reshaper};
