//! The tests of assembly as one program, since cargo links a program for each file otherwise.

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
