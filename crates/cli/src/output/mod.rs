//! How the command speaks: colour, sizes, tables, and text that cannot do harm.
//!
//! Small, pure helpers; none of them prints. Data goes to standard output and everything else to
//! standard error: that is the commands' part.

pub(crate) mod colour;
pub(crate) mod printable;
pub(crate) mod shell;
pub(crate) mod size;
pub(crate) mod table;
pub(crate) mod utc;
