//! What must hold, checked where it could break.
//!
//! `answers`: what clients are told. `verdicts`: whom assembly believes. `redundancy`: what a clean
//! superblock promises. Each panics with what is wrong; the command that runs a seed names it.

mod answers;
pub(crate) mod layouts;
pub(crate) mod redundancy;
pub(crate) mod verdicts;
