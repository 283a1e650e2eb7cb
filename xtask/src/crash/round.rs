//! One round: an array is made, loaded, crashed, started again, read, and stopped in order.
//!
//! ```text
//!   kills   load ─ SIGTERM under load ─ SIGKILL under load, then any of: SIGKILL while starting,
//!           SIGKILL while stopping, SIGKILL under load, SIGTERM under load; verified after each
//!   loss    load ─ a member deleted or cut ─ SIGKILL or SIGTERM; verified, or refused (write hole)
//!   jobs    a resync, a recovery and a replacement, SIGKILL at one percent after another;
//!           verified after each ([`jobs`])
//!   shapes  one reshape after another, crashed again and again; verified after each ([`reshapes`])
//!   power   load ─ ext4 loses power ─ SIGKILL, mounted again; flushed writes are verified
//! ```
//!
//! The model client has the lower part of the array, and fio (in rounds of kills) the upper part.
//! The border between them is in the middle of a stripe. Sectors that were never written are
//! compared, too.

mod jobs;
mod reshapes;

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use braid_test_needs::is_installed;
use fastrand::Rng;
use rustix::process::Signal;

use super::client::Client;
use super::foreign::Foreign;
use super::member_storage::{MemberStorage, StorageKind};
use super::model::{End, Model, SECTOR_BYTES};
use super::offline;
use crate::programs::{opens_fuse, output};

use super::manner::Manner;
use crate::server::{Server, StartResult, send};

/// Longest time from a client's connection to a signal.
const LOAD_MS_MAX: u64 = 600;
/// Longest time from starting a process, or from asking it to stop, to SIGKILL.
const STARTING_MS_MAX: u64 = 40;
/// Crashes in a round of kills, after the first crash.
const KILLS: usize = 3;
/// Crashes in a round whose array changes its shape.
const CRASHES: u32 = 12;
/// Percents from one kill of a job to the next.
const STEP: u32 = 14;
/// The error code by which braid refuses an array with a write hole.
const WRITE_HOLE: &str = "B031";
const MEMBER_SIZE: &str = "8M";
/// The size of members in rounds of jobs, large enough for a kill in mid-job.
const MEMBER_SIZE_JOBS: &str = "16M";

const CACHES: [&str; 2] = ["writeback", "writethrough"];

/// A level as `braid create` calls it, its number of members, and how many may be lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) level: &'static str,
    pub(super) members: usize,
    pub(super) lost_max: usize,
}

/// The arrays that are tried in turn.
pub(super) const SHAPES: [Shape; 6] = [
    Shape { level: "5", members: 4, lost_max: 1 },
    Shape { level: "1", members: 2, lost_max: 1 },
    Shape { level: "6", members: 5, lost_max: 2 },
    Shape { level: "10", members: 4, lost_max: 1 },
    Shape { level: "4", members: 4, lost_max: 1 },
    Shape { level: "0", members: 4, lost_max: 0 },
];

impl Shape {
    /// Whether an array of this shape can take part in a round of this plan.
    pub(super) fn can(self, plan: Plan) -> bool {
        match plan {
            Plan::Kills | Plan::PowerCut => true,
            Plan::Loss | Plan::Jobs { .. } => self.lost_max > 0,
            // A mirror is not reshaped.
            Plan::Reshapes { .. } => self.level != "1",
        }
    }
}

/// The kind of crash in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    Kills,
    Loss,
    PowerCut,
    /// Kills a job after each step of this many percent.
    Jobs {
        step: u32,
    },
    /// Crashes an array whose shape changes this many times.
    Reshapes {
        crashes: u32,
    },
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) rounds: u64,
    pub(super) kills: u64,
    pub(super) kills_starting: u64,
    pub(super) kills_stopping: u64,
    pub(super) jobs_killed: u64,
    pub(super) shape_changes: u64,
    pub(super) reshapes_killed: u64,
    /// Those kills during reshapes at which the client used the FUSE door.
    pub(super) reshapes_killed_by_fuse: u64,
    pub(super) power_cuts: u64,
    pub(super) members_lost: u64,
    pub(super) stops: u64,
    pub(super) refusals: u64,
    pub(super) answered: u64,
    pub(super) flushed: u64,
    pub(super) sectors: u64,
    pub(super) fio_blocks: u64,
    pub(super) clean_checks: u64,
}

/// An array in the middle of a round.
pub(super) struct Round<'a> {
    braid: &'a Path,
    shape: Shape,
    storage: &'a mut MemberStorage,
    members: Vec<PathBuf>,
    /// The spare that takes over for a lost member, in rounds of jobs.
    spare: Option<PathBuf>,
    /// The device that replaces or has replaced a member, in rounds of jobs.
    new: Option<PathBuf>,
    model: Model,
    random: Rng,
    cache: &'static str,
    /// The array as a file of the FUSE door; `None` if the client uses NBD.
    file: Option<PathBuf>,
    /// Whether power was cut since fio wrote.
    foreign_lost: bool,
    /// The number of sectors that the model client writes; fio has the remaining sectors, if it
    /// takes part.
    own_sectors: usize,
    foreign: Option<Foreign>,
    foreign_runs: Option<Child>,
    foreign_wrote: bool,
    counts: &'a mut Counts,
}

impl<'a> Round<'a> {
    /// Creates the array, and fills it or leaves it empty.
    pub(super) fn new(
        braid: &'a Path,
        (shape, plan): (Shape, Plan),
        storage: &'a mut MemberStorage,
        mut random: Rng,
        counts: &'a mut Counts,
    ) -> Result<Self> {
        let folder = storage.members();
        let members: Vec<PathBuf> =
            (0..shape.members).map(|slot| folder.join(format!("m{slot}"))).collect();
        let mut create = Command::new(braid);
        create.args(["--state-dir"]).arg(storage.folder().join("state"));
        let has_jobs = matches!(plan, Plan::Jobs { .. });
        let is_reshaped = matches!(plan, Plan::Reshapes { .. });
        let size = if has_jobs || is_reshaped { MEMBER_SIZE_JOBS } else { MEMBER_SIZE };
        create.args(["create", "tank", "--level", shape.level, "--member-size", size]);
        if shape.level != "1" {
            create.args(["--chunk", "64K"]);
        }
        let spare = has_jobs.then(|| folder.join("spare"));
        if spare.is_some() {
            create.args(["--spare", "1"]);
        }
        if is_reshaped {
            // Copies move only into free space, which metadata 1.0 does not leave.
            let is_in_place = shape.level != "10" && random.bool();
            create.args(["--metadata", if is_in_place { "1.0" } else { "1.2" }]);
        }
        output(create.args(&members).args(&spare))?;
        if is_reshaped {
            // The file of the member that the array gets later.
            let bytes = std::fs::metadata(&members[0])?.len();
            let later = folder.join(format!("m{}", members.len()));
            std::fs::File::create(later)?.set_len(bytes)?;
        }
        let (model, own_sectors) = (Model::new(0), 0);
        let (foreign, foreign_runs, foreign_wrote) = (None, None, false);
        let (cache, foreign_lost) = (CACHES[0], false);
        let by_fuse = is_reshaped && random.bool() && is_fuse_usable();
        let file = by_fuse.then(|| storage.folder().join("array"));
        let mut round = Self {
            braid,
            shape,
            storage,
            members,
            spare,
            new: None,
            model,
            random,
            cache,
            file,
            foreign_lost,
            own_sectors,
            foreign,
            foreign_runs,
            foreign_wrote,
            counts,
        };
        round.begin(plan)?;
        Ok(round)
    }

    /// Starts the array for the first time; the server reports the array's size.
    fn begin(&mut self, plan: Plan) -> Result<()> {
        let server = self.start(false)?;
        let mut client = self.client(&server)?;
        let size_bytes = client.size_bytes();
        let sectors = usize::try_from(size_bytes)? / SECTOR_BYTES;
        self.model = Model::new(sectors);
        self.own_sectors = sectors;
        if plan == Plan::Kills && Foreign::is_installed() {
            // An odd number of sectors: the border is within a block of fio's, a chunk and a row.
            self.own_sectors = (sectors * 3 / 4) | 1;
            let start = (self.own_sectors * SECTOR_BYTES) as u64;
            let seed = self.random.u64(..1 << 30);
            let folder = self.storage.folder();
            self.foreign = Some(Foreign::new(folder, start, size_bytes - start, seed));
        }
        if self.random.bool() {
            client.fill(&mut self.model, self.own_sectors)?;
        }
        drop(client);
        server.stop()?;
        self.check_stopped()
    }

    /// Carries out the plan, then stops the array in order and checks all sectors once more.
    pub(super) fn run(mut self, plan: Plan) -> Result<()> {
        let goes_on = match plan {
            Plan::Kills => self.kills()?,
            Plan::Loss => self.loss()?,
            Plan::PowerCut => self.power_cut()?,
            Plan::Jobs { step } => self.jobs(&percents(step))?,
            Plan::Reshapes { crashes } => self.reshapes(crashes)?,
        };
        if goes_on {
            let server = self.start(plan == Plan::Loss)?;
            self.verify(&server, End::Process)?;
            server.stop()?;
            self.check_stopped()?;
        }
        self.counts.rounds += 1;
        let tally = self.model.tally;
        self.counts.answered += tally.answered;
        self.counts.flushed += tally.flushed;
        self.counts.sectors += tally.sectors;
        Ok(())
    }

    fn kills(&mut self) -> Result<bool> {
        self.load_until(Signal::TERM)?;
        self.restart(End::Process)?;
        self.load_until(Signal::KILL)?;
        self.restart(End::Process)?;
        for _ in 0..KILLS {
            match self.random.u64(..4) {
                0 => self.kill_while_starting()?,
                1 => self.kill_while_stopping()?,
                2 => self.load_until(Signal::TERM)?,
                _ => self.load_until(Signal::KILL)?,
            }
            self.restart(End::Process)?;
        }
        Ok(true)
    }

    /// Deletes or cuts members under load, then ends the server.
    fn loss(&mut self) -> Result<bool> {
        let lost = 1 + self.random.usize(..self.shape.lost_max);
        let server = self.start(false)?;
        let first = self.random.usize(..self.members.len());
        let slots: Vec<usize> = (0..lost).map(|add| (first + add) % self.members.len()).collect();
        let losses: Vec<(PathBuf, bool)> =
            slots.iter().map(|slot| (self.members[*slot].clone(), self.random.bool())).collect();
        let kind = if self.random.bool() { Signal::KILL } else { Signal::TERM };
        self.load_and(server, kind, losses)?;
        self.counts.members_lost += lost as u64;
        // Members are removed by name: a request in flight may have made a cut file grow again.
        let names = slots.iter().map(|slot| self.members[*slot].clone()).collect::<Vec<_>>();
        self.members.retain(|member| !names.contains(member));
        ensure!(offline::present(&self.members) == self.members, "a member more is gone");
        match self.open(&self.members, Manner::Writing { cache: self.cache })? {
            StartResult::Refused(code) => {
                ensure!(code == WRITE_HOLE && kind == Signal::KILL, "refused with {code}");
                let mirrors = matches!(self.shape.level, "1" | "10");
                ensure!(!mirrors, "a level without parity has no write hole");
                let is_clean = offline::is_clean(&offline::examine(&self.members)?);
                ensure!(!is_clean, "a clean array has no write hole");
                self.counts.refusals += 1;
                Ok(false)
            }
            StartResult::Serving(server) => {
                self.verify(&server, End::Process)?;
                server.stop()?;
                Ok(true)
            }
        }
    }

    fn power_cut(&mut self) -> Result<bool> {
        for _ in 0..2 {
            let server = self.start(false)?;
            self.cut_power_of(server)?;
            self.restart(End::Unflushed)?;
        }
        Ok(true)
    }

    /// Loads the array until its members lose power, and mounts their storage again.
    fn cut_power_of(&mut self, server: Server) -> Result<()> {
        let process = server.process()?;
        let mut client = self.client(&server)?;
        let (delay, dying) = (self.delay(LOAD_MS_MAX), AtomicBool::new(false));
        let (model, random, storage) = (&mut self.model, &mut self.random, &*self.storage);
        let own = 0..self.own_sectors;
        std::thread::scope(|scope| {
            let cutter = scope.spawn(|| {
                std::thread::sleep(delay);
                dying.store(true, Ordering::SeqCst);
                storage.cut_power()?;
                send(process, Signal::KILL)
            });
            client.load(model, random, own, &dying)?;
            cutter.join().map_err(|_| anyhow::anyhow!("the cutter panicked"))?
        })?;
        server.kill()?;
        self.counts.power_cuts += 1;
        self.storage.restore_power()?;
        self.storage.forget_answered()
    }

    fn load_until(&mut self, signal: Signal) -> Result<()> {
        let server = self.start(false)?;
        if !self.foreign_wrote
            && signal == Signal::KILL
            && let Some(foreign) = &self.foreign
        {
            self.foreign_runs = Some(foreign.write()?);
        }
        self.load_and(server, signal, Vec::new())
    }

    /// Loads the array, deletes these members or cuts them to nothing, then sends the signal.
    fn load_and(
        &mut self,
        server: Server,
        signal: Signal,
        losses: Vec<(PathBuf, bool)>,
    ) -> Result<()> {
        let mut client = self.client(&server)?;
        let dying = std::sync::Arc::new(AtomicBool::new(false));
        let killer = {
            let (dying, process) = (dying.clone(), server.process()?);
            let wait = self.delay(LOAD_MS_MAX) + self.foreign_head_start();
            let step = self.delay(LOAD_MS_MAX / 3);
            std::thread::spawn(move || {
                for (path, deleted) in losses {
                    std::thread::sleep(step);
                    lose(&path, deleted)?;
                }
                std::thread::sleep(wait);
                dying.store(true, Ordering::SeqCst);
                send(process, signal)
            })
        };
        let own = 0..self.own_sectors;
        client.load(&mut self.model, &mut self.random, own, &dying)?;
        join(killer)?;
        drop(client);
        if signal == Signal::KILL {
            server.kill()?;
            self.counts.kills += 1;
        } else {
            server.stopped()?;
            self.counts.stops += 1;
        }
        self.foreign_ended()
    }

    /// The time that fio gets before the crash, since it takes a while to begin.
    fn foreign_head_start(&self) -> Duration {
        Duration::from_millis(if self.foreign_runs.is_some() { 400 } else { 0 })
    }

    fn foreign_ended(&mut self) -> Result<()> {
        if let Some(mut child) = self.foreign_runs.take() {
            child.wait().context("fio")?;
            // On a busy machine fio may start too late; then the round waits again.
            self.foreign_wrote = self.foreign.as_ref().is_some_and(Foreign::has_begun);
        }
        Ok(())
    }

    fn kill_while_starting(&mut self) -> Result<()> {
        for _ in 0..=self.random.u64(..2) {
            let manner = Manner::Writing { cache: self.cache };
            let server = Server::spawn_with(
                self.braid,
                self.storage.folders(),
                &self.members,
                &manner.options(),
            )?;
            std::thread::sleep(self.delay(STARTING_MS_MAX));
            server.kill()?;
            self.counts.kills += 1;
            self.counts.kills_starting += 1;
        }
        Ok(())
    }

    /// Sends SIGTERM under load, and SIGKILL before the stop can have finished.
    fn kill_while_stopping(&mut self) -> Result<()> {
        let server = self.start(false)?;
        let mut client = self.client(&server)?;
        let dying = std::sync::Arc::new(AtomicBool::new(false));
        let killer = {
            let (dying, process) = (dying.clone(), server.process()?);
            let (wait, more) = (self.delay(LOAD_MS_MAX / 2), self.delay(STARTING_MS_MAX));
            std::thread::spawn(move || {
                std::thread::sleep(wait);
                dying.store(true, Ordering::SeqCst);
                send(process, Signal::TERM)?;
                std::thread::sleep(more);
                // The stopping process has not been waited for yet, so no other process has its ID.
                send(process, Signal::KILL)
            })
        };
        client.load(&mut self.model, &mut self.random, 0..self.own_sectors, &dying)?;
        join(killer)?;
        server.kill()?;
        self.counts.kills += 1;
        self.counts.kills_stopping += 1;
        Ok(())
    }

    fn delay(&mut self, most_ms: u64) -> Duration {
        Duration::from_micros(self.random.u64(..most_ms * 1000))
    }

    /// Starts a server on these member files.
    fn open(&self, files: &[PathBuf], manner: Manner) -> Result<StartResult> {
        let folders = self.storage.folders();
        let mut options = manner.options();
        if let Some(file) = &self.file {
            options.extend(["--fuse", file.to_str().context("a path of text")?]);
        }
        Server::spawn_with(self.braid, folders, files, &options)?.serving()
    }

    fn client(&self, server: &Server) -> Result<Client> {
        match &self.file {
            Some(file) => Client::open(file),
            None => Client::connect(&server.socket),
        }
    }

    /// Like `open`, for an array that must not be refused.
    fn serve(&self, files: &[PathBuf], manner: Manner) -> Result<Server> {
        match self.open(files, manner)? {
            StartResult::Serving(server) => Ok(server),
            StartResult::Refused(code) => {
                bail!("the array is refused with {code}, with {} files", files.len())
            }
        }
    }

    /// Starts a server with a random cache mode; a crash must cost no member.
    fn start(&mut self, degraded: bool) -> Result<Server> {
        self.cache = CACHES[self.random.usize(..CACHES.len())];
        let server = self.serve(&self.members, Manner::Writing { cache: self.cache })?;
        let missing = server.degraded;
        ensure!(degraded || missing == 0, "{missing} members are left out after a crash");
        Ok(server)
    }

    /// Examines, starts, reads and stops the array after a crash.
    fn restart(&mut self, end: End) -> Result<()> {
        self.foreign_lost |= end == End::Unflushed;
        let examined = offline::examine(&self.members)?;
        if offline::is_clean(&examined) {
            self.check_redundant(&examined, end)?;
        }
        let server = self.start(false)?;
        self.verify(&server, end)?;
        if self.foreign_wrote
            && let Some(foreign) = &self.foreign
        {
            self.counts.fio_blocks += foreign.verify(self.foreign_lost)?;
        }
        // This server's end is chosen at random, as part of the trial: it has written nothing.
        if self.random.bool() {
            server.stop()?;
            self.counts.stops += 1;
        } else {
            server.kill()?;
            self.counts.kills += 1;
        }
        Ok(())
    }

    /// Verifies all sectors of the model.
    fn verify(&mut self, server: &Server, end: End) -> Result<()> {
        let mut client = self.client(server)?;
        client.verify(&mut self.model, 0..self.own_sectors, end)?;
        self.model.judged_all();
        Ok(())
    }

    /// Checks after an orderly stop that the superblocks agree, and that a clean array is
    /// redundant.
    fn check_stopped(&mut self) -> Result<()> {
        if self.members.len() < self.shape.members {
            return Ok(());
        }
        let examined = offline::examine(&self.members)?;
        offline::assert_agree(&examined)?;
        if offline::is_clean(&examined) {
            self.check_redundant(&examined, End::Process)?;
        }
        Ok(())
    }

    /// Checks redundancy by arithmetic on the files, and by reading without as many members as the
    /// level tolerates.
    fn check_redundant(&mut self, examined: &[offline::ExamineOutput], end: End) -> Result<()> {
        self.counts.sectors +=
            offline::assert_redundant(self.shape.level, &self.members, examined)?;
        let mut members = self.members.clone();
        for _ in 0..self.shape.lost_max {
            members.remove(self.random.usize(..members.len()));
        }
        let server = self.serve(&members, Manner::ReadOnly)?;
        let mut client = Client::connect(&server.socket)?;
        // Judges with a copy of the model: versions found without some members pin nothing.
        let mut model = self.model.clone();
        model.tally.sectors = 0;
        client.verify(&mut model, 0..self.own_sectors, end)?;
        self.counts.sectors += model.tally.sectors;
        self.counts.clean_checks += 1;
        drop(client);
        server.stop()
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        if let Some(mut child) = self.foreign_runs.take() {
            // fio still runs here only after a failure.
            let _ = child.kill();
            let _ = child.wait();
        }
        // The FUSE file is still mounted if the round has failed.
        if let Some(file) = &self.file {
            let _ = Command::new("umount").arg("--lazy").arg(file).output();
        }
    }
}

/// The plans that a kind of storage allows.
pub(super) fn plans(kind: StorageKind) -> &'static [Plan] {
    match kind {
        StorageKind::Tmpfs => &[
            Plan::Kills,
            Plan::Loss,
            Plan::Kills,
            Plan::Jobs { step: STEP },
            Plan::Reshapes { crashes: CRASHES },
        ],
        StorageKind::Ext4 => &[
            Plan::PowerCut,
            Plan::Kills,
            Plan::PowerCut,
            Plan::Loss,
            Plan::Reshapes { crashes: CRASHES },
        ],
    }
}

/// Whether the server can mount a file system of its own.
pub(super) fn is_fuse_usable() -> bool {
    let may_mount = rustix::process::geteuid().is_root() || is_installed("fusermount3");
    may_mount && opens_fuse()
}

fn percents(step: u32) -> Vec<u32> {
    (1..100).step_by(step as usize).collect()
}

fn lose(path: &Path, deleted: bool) -> Result<()> {
    if deleted {
        std::fs::remove_file(path)?;
    } else {
        OpenOptions::new().write(true).open(path)?.set_len(0)?;
    }
    Ok(())
}

fn join(killer: JoinHandle<Result<()>>) -> Result<()> {
    killer.join().map_err(|_| anyhow::anyhow!("the killer panicked"))?
}
