//! Members that come while the array runs: a new disk takes the place of one that is out, or that was not there.
//!
//! ```text
//!   out, or withheld ──▶ a new disk, full of garbage ──Array::handle_member_added──▶ spare ──▶ slot ──▶ recovered
//! ```
//!
//! The disk keeps its index here: to the checkers it is the one of its slot again, once superblocks say so. Until it is
//! recovered nothing is read of it beyond its offset; a crash leaves it in or out, and never believed too far.

mod world;
