//! The simulator's hooks in the product: planted bugs, rare choices, marks.
//!
//! This crate stands below all others: the pure crates call four functions, and only `--cfg
//! braid_sim_hooks` gives these functions a body. The switch is a cfg in `RUSTFLAGS`, not a
//! feature: dependencies cannot turn it on.
//!
//! ```text
//!              RUSTFLAGS="--cfg braid_sim_hooks"    any other build
//! planted      true for the one planted bug         false, const
//! spoiled      wrong for that bug, else right       right, const
//! sometimes    true by the world's seed             false, const
//! reached      counts                               nothing, const
//! ```
//!
//! A planted bug is a statement of its own, so that a reader who skips all of them reads the right
//! program. It has the form `if planted(..) { .. }` without an `else`, or `let x = spoiled(.., x,
//! wrong);` after the line that makes `x`. `cargo xtask tidy` refuses any other form
//! (planted-bugs).
//!
//! Each thread has its own bug, choices and counts: parallel tests do not see each other's bugs.
//! This crate does not know the meaning of the names; the product uses each name on one line.
//!
//! # Invariants
//! - Without the cfg every hook is a constant: the product holds no code and no name of the hooks
//!   [check: without_the_cfg_every_hook_is_a_constant].
//! - At most one bug is planted at a time [check: one_bug_at_a_time].
//! - The same seed makes the same rare choices [check: rare_choices_repeat].
#![forbid(unsafe_code)]

mod lists;
#[cfg(not(braid_sim_hooks))]
mod off;
#[cfg(braid_sim_hooks)]
mod on;

pub use lists::{Bug, Mark, Point};
#[cfg(not(braid_sim_hooks))]
pub use off::{forget, plant, planted, reached, shake, sometimes, spoiled, steady, visits};
#[cfg(braid_sim_hooks)]
pub use on::{forget, plant, planted, reached, shake, sometimes, spoiled, steady, visits};

/// Whether this build has the hooks.
pub const ARE_HERE: bool = cfg!(braid_sim_hooks);

/// Counts of hooks since [`forget`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visits {
    /// How often the product reached the planted bug.
    pub planted: u64,
    /// For each of [`Point::ALL`], how often the rare choice was made.
    pub points: Vec<u64>,
    /// For each of [`Mark::ALL`], how often the product reached the mark.
    pub marks: Vec<u64>,
}
