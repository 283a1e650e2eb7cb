//! Members that join while the array runs: a new disk replaces one that is out or absent.
//!
//! ```text
//!   out, or withheld ──▶ a new disk, full of garbage
//!     ──Array::handle_member_added──▶ spare ──▶ slot ──▶ recovered
//! ```
//!
//! In the simulator the new disk has the index of the old one. Once superblocks record the new
//! disk, the checkers take it for the disk of its slot again. Until recovery completes, no request
//! reads the new disk beyond its recovery offset. After a crash assembly may choose the new disk or
//! not, but never believes it beyond that offset.

mod world;
