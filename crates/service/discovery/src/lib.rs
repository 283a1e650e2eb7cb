//! Finds arrays: opens and probes devices, says what members make together, replays what a crash
//! has left, keeps what a command overwrites, and knows which arrays are being served.
//!
//! ```text
//!   paths ─ devices, probe ─▶ probed members ─ ready ─▶ array, with its members open ─ replay ─▶ ready to be served
//!                                  └─ known (how new the array was) ┘        └─ undo (saved before it is overwritten)
//! ```
//!
//! What it does not do: run an array, or listen for anybody. Refusals become errors with remedies
//! in [`refusal`].

#![forbid(unsafe_code)]

pub mod bitmap_file;
pub mod contents;
pub mod devices;
pub mod known;
pub mod maps;
pub mod policy;
pub mod probe;
pub mod raid0_layout;
pub mod ready;
pub mod refusal;
pub mod replay;
pub mod running;
pub mod status;
pub mod undo;
pub mod wrapped;
