//! One file system on one array through one door: its phases, and the conditions after each.
//!
//! ```text
//! healthy ─ a member is lost ─ it is rebuilt ─ the array grows ─ the server is killed ─ the end
//!   │          under load         under load      under load        under load           │
//!   files written, synced, their checksums taken                                unmounted, fsck,
//!                                                              all files again, braid check
//! ```
//!
//! Invariants:
//! - before a kill no writing program sees an error, whatever members do (`CellRun::under_load`);
//! - after the kill, every promised file and all bytes synced before are there (`CellRun::verify`);
//! - a mounted file system gets the space that the array has got (`CellRun::grows`);
//! - the file system's checker finds nothing, after the kill and at the end (`CellRun::check`).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::disk::{Disk, FileSystem};
use super::door::{ArrayFile, Door};
use super::load::{Checksums, DurableFiles, Program};
use crate::programs::output;
use crate::server::{Server, StartResult, control_of};
use crate::tidy;

/// The pace of a rebuild, slow enough that it lasts while programs write.
const REBUILD_PACE: &str = "64M";
/// Time limit: longer than a server takes to notice that a member is gone.
const LOSS_LIMIT: Duration = Duration::from_secs(20);
/// Time under load before the next event.
const BEFORE: Duration = Duration::from_millis(700);

#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    pub(super) level: &'static str,
    members: usize,
    /// Size of members: XFS needs 300 MiB.
    member_size: &'static str,
    lost: usize,
}

pub(super) const LEVELS: [Level; 4] = [
    Level { level: "1", members: 2, member_size: "640M", lost: 1 },
    Level { level: "5", members: 4, member_size: "216M", lost: 1 },
    Level { level: "6", members: 5, member_size: "216M", lost: 2 },
    Level { level: "10", members: 4, member_size: "320M", lost: 1 },
];

/// One combination of file system, array and door.
pub(super) struct Cell {
    pub(super) kind: FileSystem,
    pub(super) level: Level,
    pub(super) door: Door,
}

/// The numbers of files and bytes that were compared.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    pub(super) files: usize,
    pub(super) promised: usize,
    pub(super) bytes: u64,
    pub(super) is_trimmed: bool,
}

impl Cell {
    /// Whether the array takes another member, and the door reports the array's new size.
    fn can_grow(&self) -> bool {
        self.level.level != "1" && self.door == Door::Fuse
    }

    pub(super) fn run(&self, braid: &Path) -> Result<Outcome> {
        let folder =
            tempfile::Builder::new().prefix("braid-filesystems-").tempdir_in("/dev/shm")?;
        let done = CellRun::begin(self, braid, folder.path()).and_then(CellRun::live);
        done.map_err(|error| {
            let kept = folder.keep();
            let (kind, level, door) = (self.kind.word(), self.level.level, self.door.word());
            error.context(format!(
                "{kind} on RAID-{level} through {door} (--kind {kind} --level {level} --door {door}); the members are in {}",
                kept.display()
            ))
        })
    }
}

/// A mounted file system under load, with its array and server.
struct CellRun<'a> {
    cell: &'a Cell,
    braid: &'a Path,
    folder: PathBuf,
    members: Vec<PathBuf>,
    promised: DurableFiles,
    promised_at_kill: usize,
    /// Folders that must be intact, with the checksums of their files.
    kept: Vec<(PathBuf, Checksums)>,
    // The three fields below are dropped in their order: the disk first.
    disk: Option<Disk>,
    opened: Option<ArrayFile>,
    server: Option<Server>,
}

impl<'a> CellRun<'a> {
    fn begin(cell: &'a Cell, braid: &'a Path, folder: &Path) -> Result<Self> {
        let folder = folder.to_owned();
        std::fs::create_dir(folder.join("mounted"))?;
        let level = cell.level;
        let members: Vec<PathBuf> =
            (0..level.members).map(|slot| folder.join(format!("m{slot}"))).collect();
        let mut create = Command::new(braid);
        create.arg("--state-dir").arg(folder.join("state"));
        create.args(["create", "tank", "--level", level.level, "--member-size", level.member_size]);
        output(create.args(&members))?;
        let (promised, kept, promised_at_kill) = (DurableFiles::default(), Vec::new(), 0);
        let (disk, opened, server) = (None, None, None);
        let mut living = Self {
            cell,
            braid,
            folder,
            members,
            promised,
            promised_at_kill,
            kept,
            disk,
            opened,
            server,
        };
        living.start()?;
        living.disk().make()?;
        living.disk().mount()?;
        Ok(living)
    }

    /// Serves the members through the door; the disk is not mounted yet.
    fn start(&mut self) -> Result<()> {
        let file = self.folder.join("disk");
        let mut options = vec!["--job-ceiling", REBUILD_PACE, "--job-latency-factor", "any"];
        if self.cell.door == Door::Fuse {
            options.extend(["--fuse", file.to_str().context("a path of text")?]);
        }
        let server = match Server::start(self.braid, &self.folder, &self.members, &options)? {
            StartResult::Serving(server) => server,
            StartResult::Refused(code) => bail!("refused with {code}"),
        };
        let opened = ArrayFile::new(self.cell.door, &file, &server.socket)?;
        self.disk = Some(Disk::attach(&file, self.cell.kind, &self.mounted())?);
        (self.server, self.opened) = (Some(server), Some(opened));
        Ok(())
    }

    fn live(mut self) -> Result<Outcome> {
        let is_trimmed = self.healthy().context("healthy")?;
        self.loses_members().context("while members are lost")?;
        self.is_rebuilt().context("while members are rebuilt")?;
        if self.cell.can_grow() {
            self.grows().context("while the array grows")?;
        }
        self.is_killed().context("while the server is killed")?;
        self.end(is_trimmed).context("at the end")
    }

    fn healthy(&mut self) -> Result<bool> {
        self.under_load("healthy", |_| Ok(()))?;
        Program::Dbench { seconds: 3 }.run(&self.mounted().join("dbench"))?;
        let is_trimmed = self.disk().trim()?;
        self.verify()?;
        Ok(is_trimmed)
    }

    fn loses_members(&mut self) -> Result<()> {
        let lost = self.cell.level.lost;
        self.under_load("lost", |living| {
            for member in living.members.split_off(living.members.len() - lost) {
                std::fs::remove_file(member)?;
                living.server()?.hear("Fail", LOSS_LIMIT)?;
            }
            Ok(())
        })?;
        self.verify()?;
        Ok(())
    }

    fn is_rebuilt(&mut self) -> Result<()> {
        self.under_load("rebuilt", |living| {
            for number in 0..living.cell.level.lost {
                let new = living.new_member(&format!("new{number}"))?;
                living.ask("add", &[new.to_str().context("a path of text")?])?;
                living.members.push(new);
            }
            living.ask("wait", &["--for", "rebuild", "--timeout", "120"])?;
            let state = living.ask("status", &[])?;
            ensure!(state["arrays"][0]["state"] == "ok", "not whole after its rebuild: {state}");
            Ok(())
        })?;
        self.verify()?;
        Ok(())
    }

    /// The array gets another member under load, and then the file system the array's new space.
    fn grows(&mut self) -> Result<()> {
        let before = rustix::fs::statvfs(self.mounted())?.f_blocks;
        self.under_load("grown", |living| {
            let new = living.new_member("larger")?;
            living.ask("grow", &[new.to_str().context("a path of text")?])?;
            living.members.push(new);
            living.ask("wait", &["--for", "idle", "--timeout", "240"])?;
            if living.disk().grows_mounted()? { living.disk().grow() } else { Ok(()) }
        })?;
        if !self.disk().grows_mounted()? {
            println!("ext4 grows unmounted: this process has no CAP_SYS_RESOURCE");
            self.disk().unmount()?;
            self.disk().grow()?;
            self.disk().mount()?;
        }
        let after = rustix::fs::statvfs(self.mounted())?.f_blocks;
        ensure!(after > before, "the file system had {before} blocks, and has {after}");
        self.verify()?;
        self.check()
    }

    /// Makes an empty device for the array.
    fn new_member(&self, name: &str) -> Result<PathBuf> {
        let new = self.folder.join(name);
        let mut truncate = Command::new("truncate");
        output(truncate.args(["-s", self.cell.level.member_size]).arg(&new))?;
        Ok(new)
    }

    /// Kills the server (SIGKILL) under load, and serves the array again.
    fn is_killed(&mut self) -> Result<()> {
        let folder = self.mounted().join("killed");
        let ending = AtomicBool::new(false);
        std::fs::create_dir(&folder)?;
        let server = self.server.take().context("it serves")?;
        let before = self.promised.len();
        std::thread::scope(|scope| -> Result<()> {
            let (promised, places) =
                (&self.promised, [folder.join("promised"), folder.join("marks")]);
            let [place, marks] = places;
            let ending = &ending;
            // Both writing programs end with the errors of a dead disk.
            let writer = scope.spawn(move || promised.write(&place, ending));
            let marker = scope.spawn(move || Program::FsMark { files: 40_000 }.run(&marks));
            std::thread::sleep(2 * BEFORE);
            server.kill()?;
            let errors = [
                writer.join().map_err(|_| anyhow::anyhow!("a writer panicked"))?.is_err(),
                marker.join().map_err(|_| anyhow::anyhow!("a writer panicked"))?.is_err(),
            ];
            ensure!(errors == [true; 2], "a program went on without its disk: {errors:?}");
            Ok(())
        })?;
        ensure!(self.promised.len() > before, "no file was promised before the kill");
        self.disk().unmount()?;
        self.disk.take().context("a disk")?.detach()?;
        self.opened.take().context("a door")?.end(true)?;
        self.start()?;
        self.disk().mount()?;
        self.promised_at_kill = self.promised.len();
        self.verify()?;
        self.check()
    }

    /// Verifies all files from the array, past all caches, and ends disk, door and server in order.
    fn end(mut self, is_trimmed: bool) -> Result<Outcome> {
        self.under_load("last", |_| Ok(()))?;
        self.check()?;
        let bytes = self.verify()?;
        self.disk().unmount()?;
        self.disk.take().context("a disk")?.detach()?;
        self.opened.take().context("a door")?.end(false)?;
        self.ask("wait", &["--for", "idle", "--timeout", "120"])?;
        let checked = self.ask("check", &[])?;
        ensure!(checked["check"]["differing_sectors"] == 0, "its redundancy differs: {checked}");
        self.server.take().context("it serves")?.stop()?;
        let promised = self.promised_at_kill;
        let files =
            self.promised.len() + self.kept.iter().map(|(_, sums)| sums.len()).sum::<usize>();
        Ok(Outcome { files, promised, bytes, is_trimmed })
    }

    /// Writes into a new folder while `happens` runs; records the checksums of the files.
    fn under_load(
        &mut self,
        name: &str,
        happens: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let (folder, ending) = (self.mounted().join(name), AtomicBool::new(false));
        std::fs::create_dir(&folder)?;
        let promised = std::mem::take(&mut self.promised);
        let tree = tidy::repository_root()?.join("crates");
        let written = std::thread::scope(|scope| -> Result<()> {
            let programs = [
                ("marks", Program::FsMark { files: 800 }),
                ("copy", Program::Copy { tree: &tree }),
            ];
            let (ending, place, folder) = (&ending, folder.join("promised"), &folder);
            let promised = &promised;
            let writer = scope.spawn(move || promised.write(&place, ending));
            let others = programs
                .map(|(place, program)| scope.spawn(move || program.run(&folder.join(place))));
            std::thread::sleep(BEFORE);
            let happened = happens(self);
            let others: Result<Vec<()>> =
                others.into_iter().map(|other| other.join().expect("no panic")).collect();
            ending.store(true, Ordering::Relaxed);
            let written = writer.join().expect("no panic");
            // The event's error comes first: it explains the errors of the writing programs.
            happened.and(others.map(|_| ())).and(written)
        });
        self.promised = promised;
        written?;
        output(Command::new("sync").arg("-f").arg(&folder))?;
        for place in ["marks", "copy"] {
            let place = folder.join(place);
            self.kept.push((place.clone(), Checksums::of(&place)?));
        }
        Ok(())
    }

    /// Reads all files that must be intact from the array, after a new mount. Returns the bytes of
    /// promised files.
    fn verify(&mut self) -> Result<u64> {
        self.disk().unmount()?;
        self.disk().mount()?;
        let bytes = self.promised.verify()?;
        for (folder, sums) in &self.kept {
            sums.compare(&Checksums::of(folder)?).with_context(|| folder.display().to_string())?;
        }
        Ok(bytes)
    }

    /// Unmounts the disk, runs the file system's checker, and mounts the disk again.
    fn check(&mut self) -> Result<()> {
        self.disk().unmount()?;
        self.disk().check()?;
        self.disk().mount()
    }

    /// The JSON answer of `braid VERB` about the served array.
    fn ask(&self, verb: &str, arguments: &[&str]) -> Result<Value> {
        let mut command = Command::new(self.braid);
        command.args(["--json", verb]).arg(control_of(&self.folder)).args(arguments);
        let text = output(&mut command).with_context(|| format!("braid {verb}"))?;
        serde_json::from_str(text.lines().last().unwrap_or_default())
            .with_context(|| format!("braid {verb} says {text}"))
    }

    fn mounted(&self) -> PathBuf {
        self.folder.join("mounted")
    }

    fn disk(&mut self) -> &mut Disk {
        self.disk.as_mut().expect("it is attached while it is lived in")
    }

    fn server(&self) -> Result<&Server> {
        self.server.as_ref().context("it serves")
    }
}
