//! The tests of contents, in one program.

mod kit;
mod tables;
mod tools;
