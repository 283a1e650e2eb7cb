//! The tests of assembly, in one program: a program for each file is linked for each file.

mod bitmaps;
mod every_field;
mod kit;
mod log_changes;
mod members;
mod old_copies;
mod properties;
mod refusals;
mod rescue;
mod reshape;
