//! The tests of the runtime, in one program: a program for each file is linked for each file.
//!
//! Programs of their own have those that look at their whole process.

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
mod ring;
mod scheduling;
mod slow;
mod volume;
