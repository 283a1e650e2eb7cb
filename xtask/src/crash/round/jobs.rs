//! Kills a job at one percent after another: a resync, a recovery, and a replacement.
//!
//! ```text
//!   start, paced ─ verify ─ wait for p % ─┬─ pause, SIGKILL ─ the files: the saved offset is right
//!                                         └─ load, SIGKILL (SIGTERM if that would be a write hole)
//!   ... at last without pace, until the job is over: redundancy is whole, and all writes are there
//! ```
//!
//! A pause saves the job's offset, and SIGKILL follows within a moment.
//!
//! A degraded array with parity is loaded and stopped, but not loaded and killed: braid must refuse
//! such an array after a kill. Another kind of round tests this refusal.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;

use super::super::client::Client;
use super::super::manner::Manner;
use super::super::model::End;
use super::super::offline;
use super::Round;
use crate::server::{Server, control_of, send};

/// The pace of a job, in bytes per second: a job takes one second for each member.
pub(super) const PACE: &str = "16M";
const PAUSING_MS_MAX: u64 = 12;
/// Longest time that a job takes, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Recovery,
    Resync,
    /// Replaces the member in this slot.
    Replace(usize),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Progress {
    At(f64),
    Over,
}

impl Round<'_> {
    /// Kills a resync, and after that a recovery, at every one of these percents.
    pub(super) fn jobs(&mut self, percents: &[u32]) -> Result<bool> {
        for percent in percents {
            let is_dirty =
                || Ok::<_, anyhow::Error>(!offline::is_clean(&offline::examine(&self.members)?));
            if !is_dirty()? {
                let server = self.start(false)?;
                self.load_and(server, Signal::KILL, Vec::new())?;
            }
            self.kill_at(Kind::Resync, f64::from(*percent))
                .with_context(|| format!("resync, at {percent} %"))?;
        }
        let server = self.start(false)?;
        self.verify_and_wait(server)?;
        let slot = self.random.usize(..self.members.len());
        let spare = self.spare.take().context("such a round has a spare")?;
        // The next start finds the spare under the slot's file name, without the lost member.
        std::fs::rename(spare, &self.members[slot])?;
        for percent in percents {
            self.kill_at(Kind::Recovery, f64::from(*percent))
                .with_context(|| format!("recovery of slot {slot}, at {percent} %"))?;
        }
        self.counts.members_lost += 1;
        let server = self.start(true)?;
        self.verify_and_wait(server)?;
        self.replacements(percents)?;
        Ok(true)
    }

    /// Kills a replacement at every one of these percents, or until it is over.
    fn replacements(&mut self, percents: &[u32]) -> Result<()> {
        let slot = self.random.usize(..self.members.len());
        let new = self.storage.members().join("new");
        let bytes = std::fs::metadata(&self.members[slot])?.len();
        std::fs::File::create(&new)?.set_len(bytes)?;
        self.new = Some(new.clone());
        for percent in percents {
            self.kill_at(Kind::Replace(slot), f64::from(*percent))
                .with_context(|| format!("replacement in slot {slot}, at {percent} %"))?;
        }
        let server = self.serve(&self.named(), Manner::Writing { cache: self.cache })?;
        self.verify(&server, End::Process)?;
        self.ask_to_replace(slot)?;
        wait_for(|| self.ask("status"), f64::INFINITY)?;
        self.verify(&server, End::Process)?;
        server.stop()?;
        self.counts.stops += 1;
        // The new device now has the slot, so its file gets the slot's name.
        std::fs::rename(new, &self.members[slot])?;
        self.new = None;
        self.check_stopped()
    }

    /// Files of the members, then the replacement's file if it exists.
    fn named(&self) -> Vec<PathBuf> {
        self.members.iter().chain(&self.new).cloned().collect()
    }

    /// Asks the server to replace the slot's member with the new device, unless the server already
    /// does.
    fn ask_to_replace(&self, slot: usize) -> Result<()> {
        let new = self.new.as_ref().context("there is one")?.display().to_string();
        let said = said(&self.ask("status").output().context("braid status")?)?;
        let rows = said["arrays"][0]["slots"].as_array().context("rows")?;
        if rows.iter().any(|row| row["member"] == new.as_str()) {
            return Ok(());
        }
        let mut replace = self.ask("replace");
        let output = replace.arg(slot.to_string()).args(["--with", &new]).output()?;
        ensure!(
            output.status.success(),
            "braid replace: {}",
            String::from_utf8_lossy(&output.stdout)
        );
        Ok(())
    }

    /// Runs the server once, and kills it when the job has reached this percentage, or is over.
    fn kill_at(&mut self, kind: Kind, percent: f64) -> Result<()> {
        self.cache = super::CACHES[self.random.usize(..super::CACHES.len())];
        let manner = Manner::Paced { cache: self.cache, pace: PACE };
        let server = self.serve(&self.named(), manner)?;
        self.verify(&server, End::Process)?;
        if let Kind::Replace(slot) = kind {
            self.ask_to_replace(slot)?;
        }
        let may_lose = kind != Kind::Recovery || matches!(self.shape.level, "1" | "10");
        if self.random.bool() {
            let signal = if may_lose { Signal::KILL } else { Signal::TERM };
            return self.load_to(server, percent, signal);
        }
        wait_for(|| self.ask("status"), percent)?;
        let mut pausing = self.ask("pause");
        let mut pausing = pausing.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        std::thread::sleep(self.delay(PAUSING_MS_MAX));
        server.kill()?;
        pausing.wait()?;
        self.counts.kills += 1;
        self.counts.jobs_killed += 1;
        self.counts.sectors += match (kind, &self.new) {
            (Kind::Replace(slot), Some(new)) => offline::assert_copied(&self.members[slot], new)?,
            _ => offline::assert_prefix(self.shape.level, &self.members)?,
        };
        Ok(())
    }

    fn load_to(&mut self, server: Server, percent: f64, signal: Signal) -> Result<()> {
        let mut client = Client::connect(&server.socket)?;
        let (process, dying) = (server.process()?, AtomicBool::new(false));
        let (braid, folder) = (self.braid, self.storage.folder());
        let (model, random, own) = (&mut self.model, &mut self.random, 0..self.own_sectors);
        std::thread::scope(|scope| {
            let killer = scope.spawn(|| {
                let waited = wait_for(|| ask(braid, folder, "status"), percent);
                dying.store(true, Ordering::SeqCst);
                send(process, signal)?;
                waited
            });
            client.load(model, random, own, &dying)?;
            killer.join().map_err(|_| anyhow::anyhow!("the killer panicked"))?
        })?;
        drop(client);
        self.counts.jobs_killed += u64::from(signal == Signal::KILL);
        if signal == Signal::KILL {
            self.counts.kills += 1;
            server.kill()
        } else {
            self.counts.stops += 1;
            server.stopped()
        }
    }

    /// Verifies all sectors, waits for the job's end, and stops the server.
    fn verify_and_wait(&mut self, server: Server) -> Result<()> {
        self.verify(&server, End::Process)?;
        wait_for(|| self.ask("status"), f64::INFINITY)?;
        self.verify(&server, End::Process)?;
        server.stop()?;
        self.counts.stops += 1;
        let examined = offline::examine(&self.members)?;
        ensure!(offline::is_clean(&examined), "its job is over, and yet it is not clean");
        self.check_stopped()
    }

    pub(super) fn ask(&self, verb: &str) -> Command {
        ask(self.braid, self.storage.folder(), verb)
    }
}

fn ask(braid: &std::path::Path, folder: &std::path::Path, verb: &str) -> Command {
    let mut command = Command::new(braid);
    command.args(["--json", verb]).arg(control_of(folder));
    command
}

pub(super) fn wait_for(status: impl Fn() -> Command, percent: f64) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let said = said(&status().output().context("braid status")?)?;
        match progress(&said["arrays"][0]).with_context(|| said.to_string())? {
            Progress::Over => return Ok(()),
            Progress::At(at) if at >= percent => return Ok(()),
            Progress::At(_) => {}
        }
        ensure!(Instant::now() < deadline, "the job does not go on: {said}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(super) fn said(output: &Output) -> Result<Value> {
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("braid status says {}", String::from_utf8_lossy(&output.stderr)))
}

/// The progress of a running or coming job. A job is coming if the array is degraded, was dirty, or
/// has a member that is being replaced.
fn progress(array: &Value) -> Option<Progress> {
    let jobs = array["jobs"].as_array()?;
    if let Some(job) = jobs.first() {
        return Some(Progress::At(job["percent"].as_f64()?));
    }
    let waits = array["slots"].as_array()?.iter().any(|row| !row["replaces"].is_null());
    let is_over = array["state"] == "ok" && !array["dirty"].as_bool()? && !waits;
    Some(if is_over { Progress::Over } else { Progress::At(0.0) })
}
