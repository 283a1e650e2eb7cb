//! The checkers. Each runs where its rule could break, and panics with a description.
//!
//! `answers`: answers to clients. `verdicts`: assembly's choice of members. `redundancy`: the
//! promises of a clean superblock. `layouts`: the places of bytes on members.

mod answers;
pub(crate) mod layouts;
pub(crate) mod redundancy;
pub(crate) mod verdicts;
