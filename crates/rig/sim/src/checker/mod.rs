//! The checkers, each where its rule could break.
//!
//! `answers`: answers to clients. `verdicts`: assembly's choice of members. `redundancy`: the
//! promises of a clean superblock. Each panics with a description.

mod answers;
pub(crate) mod layouts;
pub(crate) mod redundancy;
pub(crate) mod verdicts;
