//! The tests of the engine, in one program: if each file were a program, each would be linked.

mod array;
mod away;
mod bed;
mod mirror;
mod one_shard;
mod open;
mod read_errors;
mod sitting_out;
mod slots;
