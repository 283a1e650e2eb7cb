//! The tests of the engine, in one program: with a program for each file, each file would be
//! linked.

mod array;
mod away;
mod bed;
mod mirror;
mod one_shard;
mod open;
mod read_errors;
mod sitting_out;
mod slots;
