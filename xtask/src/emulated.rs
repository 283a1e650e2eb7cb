//! `cargo xtask emulated`: tests braid for another processor under qemu-user: the pure crates'
//! tests, and arrays that both processors write alike.
//!
//! ```text
//!   tests    the crates that compute: parity, formats, protocols, geometry, engine
//!   arrays   blank members ─┬─▶ this processor: image in by nbdcopy, stopped ─▶ members ─┐
//!                           └─▶ emulated:       the same                     ─▶ members ─┴▶ equal
//!            without one member: each processor's braid reads the image in the other's array
//! ```
//!
//! The tests compare parity's vector kernel with the definition.
//!
//! qemu-user has no io_uring, so both programs serve with `--io threads`. Emulated speed is not
//! measured.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::build::{Profile, Program};
use crate::dist::target::{Library, Processor};

/// Crates that compute without system calls.
const PURE: [&str; 9] = [
    "geometry",
    "ondisk",
    "nbd-proto",
    "fuse-proto",
    "elevator",
    "pace",
    "prefetch",
    "assembly",
    "engine",
];

/// Level, number of members, and the member that is removed before the array is read back. The
/// arrays have no logs: their content depends on timing.
const ARRAYS: [(&str, usize, Option<usize>); 6] = [
    ("0", 3, None),
    ("1", 2, Some(0)),
    ("4", 4, Some(1)),
    ("5", 4, Some(2)),
    ("6", 5, Some(3)),
    ("10", 4, Some(1)),
];
const MEMBER_SIZE: &str = "16M";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Leave the tests of the crates out
    #[arg(long)]
    arrays_only: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let own = Processor::own()?;
    let other = match own {
        Processor::X86_64 => Processor::Aarch64,
        Processor::Aarch64 => Processor::X86_64,
    };
    if !options.arrays_only {
        tests(other)?;
    }
    let programs =
        [(own, Program::Braid.release()?), (other, other.built(Library::Glibc, Profile::Release)?)];
    let folder = tempfile::tempdir()?;
    for (level, count, lost) in ARRAYS {
        let one = Array { programs: &programs, folder: &folder.path().join(level), count };
        let bytes = one.compared(level, lost).with_context(|| format!("level {level}"))?;
        println!("level {level}: {count} members, {bytes} bytes of them alike");
    }
    Ok(())
}

fn tests(other: Processor) -> Result<()> {
    let run = |words: &[&str]| -> Result<()> {
        let mut command = other.cargo(&[&["test", "--quiet"], words].concat(), Library::Glibc)?;
        let status = command.status().context("cargo test")?;
        ensure!(status.success(), "{command:?}: {status}");
        Ok(())
    };
    // braid-parity's third test program, which compares speeds, is left out.
    run(&["--package", "braid-parity", "--lib", "--test", "kernels"])?;
    let packages = PURE.map(|name| format!("braid-{name}"));
    let packages = packages.iter().flat_map(|name| ["--package", name]);
    run(&packages.chain(["--tests"]).collect::<Vec<_>>())
}

/// One array of the comparison, made once and written by each processor's braid.
struct Array<'a> {
    programs: &'a [(Processor, PathBuf); 2],
    folder: &'a Path,
    count: usize,
}

impl Array<'_> {
    fn members(&self, whose: usize) -> Vec<PathBuf> {
        (0..self.count).map(|slot| self.folder.join(format!("{whose}-m{slot}"))).collect()
    }

    fn state(&self, whose: usize) -> PathBuf {
        self.folder.join(format!("{whose}-state"))
    }

    fn braid(&self, whose: usize, words: &[&str], members: &[PathBuf]) -> Result<String> {
        let (processor, program) = &self.programs[whose];
        let mut command = processor.running(program)?;
        command.arg("--state-dir").arg(self.state(whose)).args(words);
        command.args(members).env("BRAID_RUNTIME_DIR", self.folder).stdin(Stdio::null());
        let output = command.output().with_context(|| format!("{command:?}"))?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{command:?}: {}\n{errors}", output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Serves these members with one of the two programs while a command runs; `whose` selects the
    /// program.
    fn serve(&self, whose: usize, command: &str, members: &[PathBuf]) -> Result<()> {
        self.braid(whose, &["serve", "--io", "threads", "--run", command], members).map(|_| ())
    }

    /// Writes the array with both programs; compares the members, and returns the bytes compared.
    fn compared(&self, level: &str, lost: Option<usize>) -> Result<usize> {
        fs::create_dir_all(self.folder)?;
        let chunk: &[&str] = if level == "1" { &[] } else { &["--chunk", "64K"] };
        let plain: &[&str] = lost.map_or(&[], |_| &["--consistency", "resync"]);
        let words = ["create", "tank", "--level", level, "--member-size", MEMBER_SIZE];
        let create = [&words, chunk, plain];
        self.braid(1, &create.concat(), &self.members(0))?;
        for (from, to) in self.members(0).iter().zip(self.members(1)) {
            fs::copy(from, to)?;
        }
        let image = self.folder.join("image");
        let made =
            format!("head -c 5000000 /dev/urandom > {0}; truncate -s 6M {0}", image.display());
        ensure!(Command::new("sh").args(["-c", &made]).status()?.success(), "no image");
        for whose in [0, 1] {
            let copy = format!("nbdcopy --flush {} \"$uri\"", image.display());
            self.serve(whose, &copy, &self.members(whose))?;
        }
        let bytes = self.alike()?;
        // Each program reads the other's array, with a member missing.
        for (reader, writer) in [(0, 1), (1, 0)] {
            let mut members = self.members(writer);
            if let Some(lost) = lost {
                members.remove(lost);
            }
            // The state folder records the reader's own members, so the reader would call these
            // older copies.
            fs::remove_dir_all(self.state(reader))?;
            let back = self.folder.join("back");
            let copy = format!("nbdcopy \"$uri\" {}", back.display());
            self.serve(reader, &copy, &members)?;
            let (image, back) = (fs::read(&image)?, fs::read(&back)?);
            ensure!(back.starts_with(&image), "{reader} reads other bytes than {writer} wrote");
        }
        Ok(bytes)
    }

    /// Compares both sets of members byte for byte, except for times and checksums in superblocks.
    fn alike(&self) -> Result<usize> {
        let mut bytes = 0;
        for (one, other) in self.members(0).iter().zip(self.members(1)) {
            let mut both = [fs::read(one)?, fs::read(&other)?];
            for times in both.iter_mut().flat_map(|member| superblock_times(member)) {
                times.fill(0);
            }
            let differs = both[0].iter().zip(&both[1]).position(|(one, other)| one != other);
            ensure!(
                differs.is_none() && both[0].len() == both[1].len(),
                "{} and {} differ at byte {differs:?}",
                one.display(),
                other.display()
            );
            bytes += both[0].len();
        }
        Ok(bytes)
    }
}

/// The parts of a version 1.2 superblock that differ: the update time (bytes 192 to 200) and the
/// checksum (216 to 220).
fn superblock_times(member: &mut [u8]) -> [&mut [u8]; 2] {
    const AT: usize = 4096;
    let (before, after) = member[AT..].split_at_mut(208);
    [&mut before[192..200], &mut after[8..12]]
}
