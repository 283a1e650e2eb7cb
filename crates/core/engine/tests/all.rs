//! The tests of the engine, in one program: a program for each file is linked for each file.

mod array;
mod away;
mod mirror;
mod one_shard;
mod open;
mod read_errors;
mod sitting_out;
mod slots;
