//! All tests of rings in one program, since linking a program for each file takes long.

mod common;
mod files;
mod life;
mod sockets;
