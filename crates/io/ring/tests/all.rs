//! The tests of rings, in one program, since linking one for each file takes long.

mod common;
mod files;
mod life;
mod sockets;
