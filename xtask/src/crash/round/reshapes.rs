//! Crashes an array again and again while it changes its shape.
//!
//! ```text
//!   start, paced ─ verify ─┬─ at rest: a new change ──────────┐
//!        ▲                 └─ in a reshape: go on, or revert ─┤
//!        └────── SIGKILL, or a power cut ◀── load ◀───────────┘
//!   ... at last until the reshape is over: redundancy is whole, and all writes are there
//! ```
//!
//! An array has one member more or not, one of two chunks, and one of two layouts if its level has
//! any. Each change leads to another of these shapes, so an array goes through many. Some commands
//! are cut short by SIGKILL. Members with metadata 1.0 have no free space before their data: their
//! reshapes overwrite the sectors that they read, and copy them to the state folder first.
//!
//! Clients use the sectors that each of the shapes holds. Half of the rounds use the array by NBD,
//! the others as a file of the FUSE door.

use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;

use super::super::manner::Manner;
use super::super::member_storage::StorageKind;
use super::super::model::{End, SECTOR_BYTES};
use super::super::offline;
use super::jobs::{PACE, said, wait_for};
use super::{CACHES, Round};
use crate::server::Server;

/// Longest time from the request for a change to SIGKILL, if the change is to be cut short.
const ASKING_MS_MAX: u64 = 60;
/// Longest time that superblocks take to record another change, on a busy machine.
const REVERT_LIMIT: Duration = Duration::from_secs(10);

/// The values in `braid status` that a reshape changes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SeenShape {
    members: usize,
    chunk_bytes: u64,
    layout: String,
    /// Bytes that clients see.
    size_bytes: u64,
    is_changing: bool,
}

impl Round<'_> {
    /// Crashes the array this often, and lets its last reshape end.
    pub(super) fn reshapes(&mut self, crashes: u32) -> Result<bool> {
        let mut end = End::Process;
        for _ in 0..crashes {
            let server = self.start_reshape(end)?;
            end = self.change_and_crash(server)?;
        }
        let server = self.start_reshape(end)?;
        wait_for(|| self.ask("status"), f64::INFINITY)?;
        self.verify(&server, End::Process)?;
        let slots = self.seen_shape()?.members;
        self.members = (0..slots).map(|slot| self.file_of(slot)).collect();
        server.stop()?;
        self.counts.stops += 1;
        self.check_stopped()?;
        Ok(false)
    }

    /// Starts a server on all files with a superblock of the array, and verifies all sectors.
    fn start_reshape(&mut self, end: End) -> Result<Server> {
        self.cache = CACHES[self.random.usize(..CACHES.len())];
        let files: Vec<PathBuf> = (0..=self.shape.members).map(|slot| self.file_of(slot)).collect();
        self.members = files.iter().filter(|file| offline::has_superblock(file)).cloned().collect();
        let lost = files[..self.shape.members].iter().find(|file| !self.members.contains(file));
        ensure!(lost.is_none(), "{lost:?} has no superblock after a crash");
        let manner = Manner::Paced { cache: self.cache, pace: PACE };
        let server = self.serve(&self.members, manner)?;
        ensure!(server.degraded == 0, "{} members are left out after a crash", server.degraded);
        self.verify(&server, end)?;
        Ok(server)
    }

    fn change_and_crash(&mut self, server: Server) -> Result<End> {
        let before = self.seen_shape()?;
        let asked = if before.is_changing {
            self.counts.reshapes_killed += 1;
            self.counts.reshapes_killed_by_fuse += u64::from(self.file.is_some());
            self.random.u8(..5) == 0 && self.revert()?
        } else {
            wait_for(|| self.ask("status"), f64::INFINITY)?;
            match self.change(&before)? {
                Some(child) => return self.cut_short(server, child),
                None => true,
            }
        };
        self.counts.shape_changes += u64::from(asked);
        if self.storage.kind() == StorageKind::Ext4 && self.random.bool() {
            self.cut_power_of(server)?;
            return Ok(End::Unflushed);
        }
        self.load_and(server, Signal::KILL, Vec::new())?;
        Ok(End::Process)
    }

    /// Kills the server while it carries out a command of `braid`.
    fn cut_short(&mut self, server: Server, mut asking: Child) -> Result<End> {
        std::thread::sleep(self.delay(ASKING_MS_MAX));
        server.kill()?;
        asking.wait()?;
        self.counts.kills += 1;
        Ok(End::Process)
    }

    /// Reverts the reshape; returns whether it was still under way. A revert is refused while the
    /// reshape's end is being written to the superblocks.
    fn revert(&mut self) -> Result<bool> {
        let begun = Instant::now();
        while self.seen_shape()?.is_changing {
            let said = self.ask("revert").output().context("braid revert")?;
            if said.status.success() {
                return Ok(true);
            }
            let words = String::from_utf8_lossy(&said.stdout);
            ensure!(begun.elapsed() < REVERT_LIMIT, "braid revert: {words}");
        }
        Ok(false)
    }

    /// Requests another shape. Returns the last command if it is to be cut short.
    fn change(&mut self, now: &SeenShape) -> Result<Option<Child>> {
        let later = self.file_of(self.shape.members);
        let is_spare = offline::has_superblock(&later);
        if !is_spare {
            // A RAID-0 has released this member, whose data is still on it, so the file is emptied.
            let bytes = std::fs::metadata(&later)?.len();
            std::fs::File::create(&later)?.set_len(bytes)?;
        }
        let mut all = self.changes(now, is_spare);
        let commands = all.swap_remove(self.random.usize(..all.len()));
        let (last, first) = commands.split_last().context("a change has a command")?;
        for words in first {
            self.grow(words)?;
        }
        if self.random.u8(..4) == 0 {
            let mut grow = self.ask("grow");
            grow.args(last).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            return Ok(Some(grow.spawn().context("braid grow")?));
        }
        self.grow(last).with_context(|| format!("of {now:?}"))?;
        Ok(None)
    }

    fn grow(&self, words: &[String]) -> Result<()> {
        let said = self.ask("grow").args(words).output().context("braid grow")?;
        let answer = String::from_utf8_lossy(&said.stdout);
        ensure!(said.status.success(), "braid grow {words:?}: {answer}");
        Ok(())
    }

    /// The words of `braid grow` for each change that this shape can make. `is_spare` says whether
    /// the later member is already a spare of the array.
    fn changes(&self, now: &SeenShape, is_spare: bool) -> Vec<Vec<Vec<String>>> {
        let few = self.shape.members;
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let chunk = if now.chunk_bytes == 64 << 10 { "32K" } else { "64K" };
        let mut changes = vec![vec![words(&["--chunk", chunk])]];
        let layout = match (self.shape.level, now.layout.as_str()) {
            ("5" | "6", "left-symmetric") => Some("left-asymmetric"),
            ("5" | "6", _) => Some("left-symmetric"),
            ("10", "near=2") => Some("o2"),
            ("10", _) => Some("n2"),
            _ => None,
        };
        changes.extend(layout.map(|layout| vec![words(&["--layout", layout])]));
        if now.members > few {
            let bytes = (self.own_sectors * SECTOR_BYTES) as u64;
            let clip = words(&["--array-size", &format!("{bytes}B")]);
            let clip = Some(clip).filter(|_| now.size_bytes > bytes);
            let fewer = words(&["--members", &few.to_string()]);
            changes.push(clip.into_iter().chain([fewer]).collect());
        } else {
            changes.push(vec![match is_spare {
                true => words(&["--members", &(few + 1).to_string()]),
                false => words(&[&self.file_of(few).display().to_string()]),
            }]);
        }
        changes
    }

    fn seen_shape(&self) -> Result<SeenShape> {
        let said = said(&self.ask("status").output().context("braid status")?)?;
        let array = &said["arrays"][0];
        let rows = array["slots"].as_array().context("rows")?;
        Ok(SeenShape {
            members: rows.iter().filter(|row| row["slot"].is_u64()).count(),
            chunk_bytes: array["chunk_bytes"].as_u64().unwrap_or_default(),
            layout: array["layout"].as_str().unwrap_or_default().to_owned(),
            size_bytes: array["size_bytes"].as_u64().unwrap_or_default(),
            is_changing: array["reshape"] != Value::Null,
        })
    }

    fn file_of(&self, slot: usize) -> PathBuf {
        self.storage.members().join(format!("m{slot}"))
    }
}
