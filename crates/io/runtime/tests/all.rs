//! The tests of the runtime in one program, since linking a program for each file takes long. Tests
//! that check their whole process are programs of their own.

mod bitmap;
#[path = "kit/client.rs"]
mod client;
mod extents;
#[path = "kit/files.rs"]
mod files;
mod jobs;
mod kit;
#[path = "kit/meanwhile.rs"]
mod meanwhile;
mod parity_logs;
mod reshape;
mod ring;
mod scheduling;
mod slow;
mod volume;
