//! Common parts of all cases: tools and their availability, arrays in temporary folders, the server
//! as a child process, and test data.
//!
//! Without a needed tool a case reports the missing tool and passes; under `cargo xtask test`,
//! which installs the tools, the case fails (`braid_test_needs`).

mod array;
mod bytes;
mod client;
mod fault_fs;
mod mount;
mod process;
mod raw_client;
mod remedies;
mod server_process;
mod syscall_filter;

pub(crate) use array::{Array, CHUNK_BYTES, Refusal, SUPERBLOCK_BYTES};
pub(crate) use braid_test_needs::{Need, is_installed, needs, skip};
pub(crate) use bytes::{assert_same, random_bytes};
pub(crate) use client::Client;
pub(crate) use fault_fs::{Fail, FaultFs, FileOp, Hang};
pub(crate) use mount::Mount;
pub(crate) use process::{Background, Ran, is_heard, ok, run, say, shell, wait_until};
pub(crate) use raw_client::RawClient;
pub(crate) use remedies::{note, offered};
pub(crate) use server_process::ServerProcess;
pub(crate) use syscall_filter::{FILTER, FLOCK, IO_URING_SETUP, MOUNT, SECCOMP};

/// A level, its number of members, and how many it can lose in any combination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) level: &'static str,
    pub(crate) members: usize,
    pub(crate) lost_max: usize,
}

impl Shape {
    pub(crate) const fn new(level: &'static str, members: usize, lost_max: usize) -> Self {
        Self { level, members, lost_max }
    }
}

pub(crate) const RAID_0: Shape = Shape::new("0", 3, 0);
pub(crate) const RAID_1: Shape = Shape::new("1", 2, 1);
pub(crate) const RAID_4: Shape = Shape::new("4", 4, 1);
pub(crate) const RAID_5: Shape = Shape::new("5", 4, 1);
pub(crate) const RAID_6: Shape = Shape::new("6", 5, 2);
pub(crate) const RAID_10: Shape = Shape::new("10", 4, 1);
