//! Load on a file system: promised files, fs_mark, dbench, and a copy of this source tree.
//!
//! A file is *promised* once the file, and then its folder, were synced: after these syncs the file
//! system must have the file, whichever process is killed. The writer withdraws the promise before
//! it removes the file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;

use crate::programs::{output, run};

/// The number of threads that write promised files.
const WRITERS: u64 = 3;
/// The most files of each thread at a time.
const FILES_MAX: usize = 150;
const FILE_BYTES_MAX: usize = 200_000;

/// Content of a promised file, made from a seed.
#[derive(Clone, Copy, Debug)]
struct Content {
    seed: u64,
    bytes: usize,
}

impl Content {
    fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes];
        Rng::with_seed(self.seed).fill(&mut bytes);
        bytes
    }
}

/// The promised files of a file system, with their content.
#[derive(Default)]
pub(super) struct DurableFiles {
    files: Mutex<BTreeMap<PathBuf, Content>>,
}

impl DurableFiles {
    pub(super) fn len(&self) -> usize {
        self.files.lock().expect("no writer panics").len()
    }

    /// Writes promised files into a new folder until `ending` is set. Fails earlier if a write
    /// fails, as after a kill of the server.
    pub(super) fn write(&self, folder: &Path, ending: &AtomicBool) -> Result<()> {
        std::fs::create_dir(folder)?;
        let written = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| scope.spawn(move || self.write_one_by_one(folder, writer, ending)))
                .collect();
            writers.into_iter().try_for_each(|writer| writer.join().expect("no writer panics"))
        });
        written.with_context(|| format!("writing files in {}", folder.display()))
    }

    fn write_one_by_one(
        &self,
        folder: &Path,
        writer: u64,
        ending: &AtomicBool,
    ) -> std::io::Result<()> {
        let mut random = Rng::new();
        let mut names = std::collections::VecDeque::new();
        for number in 0_u64.. {
            if ending.load(Ordering::Relaxed) {
                break;
            }
            if names.len() >= FILES_MAX {
                let oldest: PathBuf = names.pop_front().expect("it has some");
                self.files.lock().expect("no writer panics").remove(&oldest);
                std::fs::remove_file(&oldest)?;
            }
            let path = folder.join(format!("promised-{writer}-{number}"));
            let bytes = random.usize(1..FILE_BYTES_MAX);
            let content = Content { seed: random.u64(..), bytes };
            let mut file = File::create(&path)?;
            file.write_all(&content.bytes())?;
            file.sync_all()?;
            File::open(folder)?.sync_all()?;
            self.files.lock().expect("no writer panics").insert(path.clone(), content);
            names.push_back(path);
        }
        Ok(())
    }

    /// Checks that each promised file has its content; returns the number of compared bytes.
    pub(super) fn verify(&self) -> Result<u64> {
        let mut bytes = 0;
        for (path, content) in &*self.files.lock().expect("no writer panics") {
            let found = std::fs::read(path);
            let found = found.with_context(|| format!("{} was promised", path.display()))?;
            let is_so = found == content.bytes();
            ensure!(is_so, "{} has other bytes than were promised", path.display());
            bytes += found.len() as u64;
        }
        Ok(bytes)
    }
}

/// The checksum of each file of a folder, as `sha256sum` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Checksums {
    lines: BTreeSet<String>,
}

impl Checksums {
    pub(super) fn of(folder: &Path) -> Result<Self> {
        let script = "cd \"$1\" && find . -type f -print0 | xargs -0 -r sha256sum";
        let text = output(Command::new("sh").args(["-c", script, "sh"]).arg(folder))?;
        Ok(Self { lines: text.lines().map(str::to_owned).collect() })
    }

    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Compares the names and checksums of files; the error names the differences.
    pub(super) fn compare(&self, found: &Self) -> Result<()> {
        let lacking: Vec<_> = self.lines.difference(&found.lines).collect();
        let other: Vec<_> = found.lines.difference(&self.lines).collect();
        ensure!(
            lacking.is_empty() && other.is_empty(),
            "{} files differ: not there any more {lacking:?}, there instead {other:?}",
            lacking.len().max(other.len())
        );
        Ok(())
    }
}

/// A program of others that writes to the file system.
pub(super) enum Program<'a> {
    /// Small files, each synced, by four threads
    FsMark { files: u32 },
    /// Requests of office workers to a file server
    Dbench { seconds: u32 },
    /// A copy of a source tree, compared with its origin
    Copy { tree: &'a Path },
}

impl Program<'_> {
    pub(super) fn run(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir(folder)?;
        let mut command = match self {
            Self::FsMark { files } => {
                let mut command = Command::new("fs_mark");
                let each = (files / 4).to_string();
                command.args(["-k", "-S", "1", "-s", "20000", "-t", "4", "-n", &each]);
                // fs_mark's paths must be shorter than 40 bytes, so fs_mark runs in the folder,
                // where its log stays.
                command.args(["-d", ".", "-l", "/dev/null"]).current_dir(folder);
                command
            }
            Self::Dbench { seconds } => {
                let mut command = Command::new("dbench");
                command.args(["-F", "-t", &seconds.to_string(), "-D"]).arg(folder).arg("4");
                command
            }
            Self::Copy { tree } => {
                let mut command = Command::new("cp");
                command.arg("-a").arg(tree).arg(folder.join("tree"));
                command
            }
        };
        run(command.stdin(Stdio::null()))?;
        if let Self::Copy { tree } = self {
            run(Command::new("diff").arg("-r").arg(tree).arg(folder.join("tree")))?;
        }
        Ok(())
    }
}
