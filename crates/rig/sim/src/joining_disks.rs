//! Members that join while the array runs: a new disk replaces one that is out or absent.
//!
//! ```text
//!   out, or withheld ──▶ a new disk, full of garbage ──Array::handle_member_added──▶ spare ──▶ slot ──▶ recovered
//! ```
//!
//! The disk keeps its index here: once superblocks say so, the checkers take it for the disk of its
//! slot again. Until recovery completes, nothing is read of it beyond its recovery offset. A crash
//! leaves it in or out, and never believed too far.

mod world;
