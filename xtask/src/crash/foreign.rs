//! fio as an independent client.
//!
//! fio writes each block of its part of the array at most once, in random order, with a checksum
//! and a number in it. It syncs every few writes, and its log lists the acknowledged blocks. After
//! the crash fio reads back every block whose write it had begun (`verify_state_load`) and names
//! each mismatch. A mismatch is legal only for a block in flight.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

const BLOCK_BYTES: u64 = 4096;
/// fio's queue depth; its state file records no more requests in flight.
const DEPTH: &str = "--iodepth=8";

const SYNC: &str = "--fsync=8";
/// The most acknowledged blocks at the end that need not be covered by a completed sync. They are
/// the blocks since the last sync was sent, those then in flight, and those written until it was
/// acknowledged.
const UNSYNCED_MAX: usize = 32;

/// fio's name for the log of acknowledged blocks.
const LOG: &str = "foreign_bw.1.log";
/// fio's name for its state file.
const STATE: &str = "local-foreign-0-verify.state";

/// fio on one part of one array.
pub(super) struct Foreign {
    folder: PathBuf,
    socket: PathBuf,
    offset_bytes: u64,
    size_bytes: u64,
    seed: u64,
}

impl Foreign {
    /// Runs fio with `folder` for fio's files.
    pub(super) fn new(folder: &Path, offset_bytes: u64, size_bytes: u64, seed: u64) -> Self {
        let socket = folder.join("nbd.sock");
        let size_bytes = size_bytes / BLOCK_BYTES * BLOCK_BYTES;
        Self { folder: folder.to_owned(), socket, offset_bytes, size_bytes, seed }
    }

    pub(super) fn is_installed() -> bool {
        Command::new("fio").arg("--version").stdout(Stdio::null()).status().is_ok()
    }

    fn command(&self) -> Command {
        let mut command = Command::new("fio");
        command.args(["--name=foreign", "--ioengine=nbd", "--rw=randwrite", "--bs=4k", DEPTH]);
        command.args([SYNC, "--verify=crc32c", "--verify_fatal=0"]);
        command.arg(format!("--uri=nbd+unix:///?socket={}", self.socket.display()));
        command.arg(format!("--offset={}", self.offset_bytes));
        command.arg(format!("--size={}", self.size_bytes));
        command.arg(format!("--randseed={}", self.seed));
        command.current_dir(&self.folder).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    pub(super) fn write(&self) -> Result<Child> {
        let mut command = self.command();
        command.args(["--do_verify=0", "--verify_state_save=1"]);
        command.args(["--write_bw_log=foreign", "--log_offset=1"]);
        command.stderr(Stdio::null()).spawn().context("fio")
    }

    /// Whether fio had written any block before the server was gone.
    pub(super) fn has_begun(&self) -> bool {
        self.folder.join(LOG).exists() && self.folder.join(STATE).exists()
    }

    /// Reads fio's blocks back; returns how many acknowledged blocks are intact.
    /// `may_lose_unsynced` permits the loss of the last blocks, which were not synced.
    pub(super) fn verify(&self, may_lose_unsynced: bool) -> Result<u64> {
        let mut answered = self.answered()?;
        let may_be_lost = if may_lose_unsynced { UNSYNCED_MAX } else { 0 };
        answered.truncate(answered.len().saturating_sub(may_be_lost));
        let answered: BTreeSet<u64> = answered.into_iter().collect();
        if answered.is_empty() {
            return Ok(0);
        }
        let mut command = self.command();
        command.args(["--verify_only", "--verify_state_load=1"]);
        let output = command.stderr(Stdio::piped()).output().context("fio")?;
        let words = String::from_utf8_lossy(&output.stderr);
        let wrong = wrong_blocks(&words);
        let lost: Vec<&u64> = answered.intersection(&wrong).collect();
        ensure!(lost.is_empty(), "fio misses its answered blocks at {lost:?}: {words}");
        ensure!(output.status.success() || !wrong.is_empty(), "fio: {}: {words}", output.status);
        Ok(answered.len() as u64)
    }

    /// Offsets of the acknowledged blocks, in order, from fio's log.
    fn answered(&self) -> Result<Vec<u64>> {
        let log = std::fs::read_to_string(self.folder.join(LOG)).context(LOG)?;
        Ok(answered_blocks(&log))
    }
}

/// The blocks of fio's log: `time, bandwidth, direction, size, offset, ...`; 1 is a write.
fn answered_blocks(log: &str) -> Vec<u64> {
    let block = |line: &str| {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        if fields.get(2)? != &"1" { None } else { fields.get(4)?.parse().ok() }
    };
    log.lines().filter_map(block).collect()
}

/// The blocks that fio reports as wrong, from lines like `verify: bad magic header 0, wanted acca
/// at file x offset 19955712, length 4096 (...)` and `crc32c: verify failed at file x offset 8192,
/// length 4096 (...)`.
fn wrong_blocks(words: &str) -> BTreeSet<u64> {
    let block = |line: &str| {
        let is_about_a_block =
            line.starts_with("verify: ") || line.contains(": verify failed at file ");
        let (_, rest) = line.split_once(" offset ").filter(|_| is_about_a_block)?;
        rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
    };
    words.lines().filter_map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_and_complaints_of_fio_are_read() {
        let log = "3, 1000, 1, 4096, 8192, 0\n4, 10, 0, 4096, 4096, 0\n5, 7, 1, 4096, 0, 0\n";
        assert_eq!(answered_blocks(log), [8192, 0]);
        let words = "fio: x\nverify: bad magic header 0, wanted acca at file load.0.0 offset 19955712, length 4096 (requested block: offset=19955712, length=4096)\n";
        assert_eq!(wrong_blocks(words), BTreeSet::from([19_955_712]));
        let words = "crc32c: verify failed at file load.0.0 offset 8192, length 4096 (requested block: offset=8192)\n";
        assert_eq!(wrong_blocks(words), BTreeSet::from([8192]));
    }
}
