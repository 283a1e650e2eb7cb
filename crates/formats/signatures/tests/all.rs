//! The tests of signatures, in one program.

mod kit;
mod tables;
mod tools;
