//! `cargo xtask crash-loop --matrix`: kills braid in the middle of writes, under each write-hole
//! policy on each level with parity, and starts the arrays without some members.
//!
//! ```text
//!   all members: load ─ kill -9 ─▶ some withheld: serve --read-only ─▶ all members: serve ─┐
//!        ▲                                                                                 │
//!        └─────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! As many members are withheld as the level tolerates. Both servers are asked for every sector.
//!
//! A sector is right if it holds the last acknowledged write. A sector with a write in flight is
//! not judged: without its member it may hold anything. A sector at risk gives an I/O error under
//! `--read-only`, and is counted.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use fastrand::Rng;
use rustix::process::Signal;

use super::client::Client;
use super::manner::Manner;
use super::member_storage::{MemberStorage, StorageKind};
use super::model::{End, Model, SECTOR_BYTES, SectorCounts};
use super::round::Shape;
use crate::programs::output;
use crate::server::{Server, StartResult, send};

/// Write-hole policies by the word for `create`, and the levels that have them.
const POLICIES: [(&str, &[&str]); 6] = [
    ("resync", &["4", "5", "6"]),
    ("bitmap", &["4", "5", "6"]),
    ("llbitmap", &["4", "5", "6"]),
    ("ppl", &["5"]),
    ("log", &["4", "5", "6"]),
    ("journal", &["4", "5", "6"]),
];
const MEMBER_SIZE: &str = "6M";
/// Bytes for each bit of the bitmap, so that a bitmap is meaningful on arrays this small.
const BIT_SIZE: &str = "64K";
const LOAD_MS_MAX: u64 = 120;

/// Runs the matrix, and prints a line for each policy and level.
pub(super) fn run(braid: &Path, shapes: &[Shape], crashes: u64, seed: u64) -> Result<()> {
    println!(
        "policy   level  crashes  served whole  sectors right  at risk (I/O errors)  being written  wrong"
    );
    for (policy, levels) in POLICIES {
        for shape in shapes.iter().filter(|shape| levels.contains(&shape.level)) {
            let storage = MemberStorage::new(StorageKind::Tmpfs)?;
            let random = Rng::with_seed(seed);
            let mut array = Array::new(braid, (policy, *shape), &storage, random)?;
            let went = (0..crashes).try_for_each(|_| array.crash());
            went.map_err(|error| {
                error.context(format!("{policy} on RAID-{}; {}", shape.level, storage.keep()))
            })?;
            let Array { found: SectorCounts { right, failed, open, wrong }, served_whole, .. } =
                array;
            println!(
                "{policy:<8} {:<6} {crashes:>7} {served_whole:>13} {right:>14} {failed:>21} {open:>14} {wrong:>6}",
                shape.level
            );
            ensure!(wrong == 0, "sectors that nobody was writing are wrong");
            let has_log = matches!(policy, "ppl" | "log" | "journal");
            ensure!(!has_log || failed == 0, "a log names all that is in doubt");
        }
    }
    Ok(())
}

/// One array of the matrix, crashed again and again.
struct Array<'a> {
    braid: &'a Path,
    shape: Shape,
    folder: PathBuf,
    members: Vec<PathBuf>,
    /// The device of the array's write journal; it is never withheld.
    journal: Option<PathBuf>,
    model: Model,
    sectors: usize,
    random: Rng,
    found: SectorCounts,
    /// Number of starts without members in which every sector could be read.
    served_whole: u64,
}

impl<'a> Array<'a> {
    fn new(
        braid: &'a Path,
        (policy, shape): (&str, Shape),
        storage: &MemberStorage,
        random: Rng,
    ) -> Result<Self> {
        let folder = storage.members();
        let members: Vec<PathBuf> =
            (0..shape.members).map(|slot| folder.join(format!("m{slot}"))).collect();
        let mut create = Command::new(braid);
        create.arg("--state-dir").arg(storage.folder().join("state"));
        create.args(["create", "tank", "--level", shape.level, "--member-size", MEMBER_SIZE]);
        create.args(["--chunk", "64K", "--consistency", policy]);
        if matches!(policy, "bitmap" | "log") {
            create.args(["--bitmap-chunk", BIT_SIZE]);
        }
        let journal = (policy == "journal").then(|| folder.join("journal"));
        create.args(journal.iter().flat_map(|path| [Path::new("--write-journal"), path]));
        output(create.args(&members))?;
        let folder = storage.folder().to_owned();
        let (model, found) = (Model::new(0), SectorCounts::default());
        let mut array = Self {
            braid,
            shape,
            folder,
            members,
            journal,
            model,
            sectors: 0,
            random,
            found,
            served_whole: 0,
        };
        let server = array.start(&array.members, Manner::Writing { cache: "writethrough" })?;
        let mut client = Client::connect(&server.socket)?;
        array.sectors = usize::try_from(client.size_bytes())? / SECTOR_BYTES;
        array.model = Model::new(array.sectors);
        client.fill(&mut array.model, array.sectors)?;
        drop(client);
        server.stop()?;
        Ok(array)
    }

    fn start(&self, members: &[PathBuf], manner: Manner) -> Result<Server> {
        let devices: Vec<PathBuf> = members.iter().chain(&self.journal).cloned().collect();
        match Server::spawn(self.braid, &self.folder, &devices, &manner.options())?.serving()? {
            StartResult::Serving(server) => Ok(server),
            StartResult::Refused(code) => anyhow::bail!("refused with {code}"),
        }
    }

    fn crash(&mut self) -> Result<()> {
        let server = self.start(&self.members, Manner::Writing { cache: "writethrough" })?;
        let process = server.process()?;
        let mut client = Client::connect(&server.socket)?;
        let delay = Duration::from_millis(5 + self.random.u64(..LOAD_MS_MAX));
        let dying = AtomicBool::new(false);
        let (model, random, own) = (&mut self.model, &mut self.random, 0..self.sectors);
        std::thread::scope(|scope| {
            let killer = scope.spawn(|| {
                std::thread::sleep(delay);
                dying.store(true, Ordering::SeqCst);
                send(process, Signal::KILL)
            });
            client.load(model, random, own, &dying)?;
            killer.join().map_err(|_| anyhow::anyhow!("the killer panicked"))?
        })?;
        drop(client);
        server.kill()?;
        let mut slots: Vec<usize> = (0..self.members.len()).collect();
        self.random.shuffle(&mut slots);
        slots.truncate(1 + self.random.usize(..self.shape.lost_max));
        let here = self.members.iter().enumerate();
        let here = here.filter(|(slot, _)| !slots.contains(slot));
        let here: Vec<PathBuf> = here.map(|(_, member)| member.clone()).collect();
        let server = self.start(&here, Manner::ReadOnly)?;
        let found = Client::connect(&server.socket)?.compare(&self.model, self.sectors)?;
        server.stop()?;
        self.served_whole += u64::from(found.failed == 0);
        self.found.add(found);
        let server = self.start(&self.members, Manner::Writing { cache: "writethrough" })?;
        Client::connect(&server.socket)?.verify(&mut self.model, 0..self.sectors, End::Process)?;
        server.stop()
    }
}
