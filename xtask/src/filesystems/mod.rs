//! `cargo xtask filesystems`: file systems on arrays whose members die, rebuild, and lose their
//! server.
//!
//! ```text
//! mod          choice of cells; the table
//! cell         one file system on one array through one door: its phases and their checks
//!    | door        how the array becomes a file: braid's own FUSE door, or nbdfuse
//!    | disk        that file as a loop device, with a file system on it: made, mounted, checked
//!    | load        load on it: promised files, fs_mark, dbench, a source tree
//! ```
//!
//! File systems are those of the running kernel. Foreign programs make all load except the promised
//! files: only the writer knows which files a file system has promised. The cells need root, loop
//! devices and /dev/fuse, and the report names the missing one. If a cell fails, its files are
//! kept.

mod cell;
mod disk;
mod door;
mod load;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::build::Program;
use crate::programs::{opens_fuse, output};
use cell::{Cell, LEVELS, Outcome};
use disk::FileSystem;
use door::Door;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Only this file system
    #[arg(long, value_enum)]
    kind: Option<FileSystem>,
    /// Only arrays of one level
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(LEVELS.map(|level| level.level)))]
    level: Option<String>,
    /// Only through this door
    #[arg(long, value_enum)]
    door: Option<Door>,
    /// With the development build, not the release build
    #[arg(long)]
    dev: bool,
}

impl Options {
    /// Options for one cell, for `cargo xtask test`.
    pub(crate) fn short() -> Self {
        Self {
            kind: Some(FileSystem::Ext4),
            level: Some("6".into()),
            door: Some(Door::Fuse),
            dev: true,
        }
    }

    fn cells(&self) -> Vec<Cell> {
        let kinds = [FileSystem::Ext4, FileSystem::Xfs, FileSystem::Btrfs];
        let mut cells = Vec::new();
        for kind in kinds.into_iter().filter(|kind| self.kind.is_none_or(|one| one == *kind)) {
            let levels = LEVELS.into_iter();
            for level in
                levels.filter(|level| self.level.as_ref().is_none_or(|one| one == level.level))
            {
                let doors = [Door::Fuse, Door::Nbdfuse].into_iter();
                let doors = doors.filter(|door| self.door.is_none_or(|one| one == *door));
                cells.extend(doors.map(|door| Cell { kind, level, door }));
            }
        }
        cells
    }
}

/// The requirement of the cells that the machine lacks, if any.
fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root may mount".into());
    }
    if !opens_fuse() {
        return Some("no /dev/fuse".into());
    }
    match output(std::process::Command::new("losetup").arg("--find")) {
        Ok(_) => None,
        Err(error) => Some(format!("no loop device: {error:#}")),
    }
}

/// The end of a run without failures.
pub(crate) enum RunResult {
    Cells(usize),
    /// No cell ran: the machine lacks this requirement.
    Skipped(String),
}

/// Runs every requested cell.
pub(crate) fn run(options: &Options) -> Result<RunResult> {
    if let Some(why) = missing() {
        println!("SKIPPED: {why}");
        return Ok(RunResult::Skipped(why));
    }
    let begun = Instant::now();
    let braid = if options.dev { Program::Braid.dev()? } else { Program::Braid.release()? };
    let cells = options.cells();
    println!(
        "{:<6} {:<8} {:<8} {:>6} {:>9} {:>9} {:>8}  trim",
        "fs", "level", "door", "files", "promised", "MiB", "took"
    );
    let mut all = Outcome::default();
    for cell in &cells {
        let begun = Instant::now();
        let outcome = cell.run(&braid)?;
        row(cell, &outcome, begun.elapsed());
        all.files += outcome.files;
        all.promised += outcome.promised;
    }
    ensure!(all.promised > 0, "no file was promised anything");
    println!(
        "{} cells: {} files compared, {} of them promised before a kill; 0 differences; fsck clean in each; {:.0} s",
        cells.len(),
        all.files,
        all.promised,
        begun.elapsed().as_secs_f64()
    );
    Ok(RunResult::Cells(cells.len()))
}

fn row(cell: &Cell, outcome: &Outcome, took: Duration) {
    println!(
        "{:<6} RAID-{:<3} {:<8} {:>6} {:>9} {:>9} {:>6.1} s  {}",
        cell.kind.word(),
        cell.level.level,
        cell.door.word(),
        outcome.files,
        outcome.promised,
        outcome.bytes >> 20,
        took.as_secs_f64(),
        if outcome.is_trimmed { "yes" } else { "not through this door" },
    );
}
