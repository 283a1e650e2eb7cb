//! Reads the file system that a guest left on an array, with this machine's programs.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::array::Array;
use crate::programs::{output, run};

/// Checks the file system that begins at `start_bytes`, and compares its `/work` with the guest's
/// `/sums`; returns the number of files.
pub(super) fn compare(array: &Array, folder: &Path, start_bytes: u64) -> Result<usize> {
    let (disk, system) = (folder.join("after.img"), folder.join("system.img"));
    run(Command::new("nbdcopy").arg(array.uri()).arg(&disk))?;
    let mut cut = Command::new("dd");
    cut.arg(format!("if={}", disk.display())).arg(format!("of={}", system.display()));
    run(cut.args(["bs=1M", "conv=sparse"]).arg(format!("skip={}", start_bytes >> 20)))?;
    run(Command::new("e2fsck").args(["-f", "-n"]).arg(&system))?;
    for request in ["dump /sums sums", "rdump /work ."] {
        let mut read = Command::new("debugfs");
        run(read.current_dir(folder).args(["-R", request]).arg(&system))?;
    }
    let mut check = Command::new("sha256sum");
    let same = output(check.current_dir(folder.join("work")).args(["-c", "../sums"]))?;
    Ok(same.lines().filter(|line| line.ends_with(": OK")).count())
}
