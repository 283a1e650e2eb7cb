//! The tests of rings, in one program: a program for each file is linked for each file.

mod common;
mod files;
mod life;
mod sockets;
