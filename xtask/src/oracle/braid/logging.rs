//! Braid's own log: braid is killed while it writes arrays with its own log, members are withheld,
//! and md runs in between.
//!
//! ```text
//!   braid makes and fills ─▶ braid is writing, killed
//!     ─┬▶ without members: braid serve --read-only, no sector without a write is wrong
//!      ├▶ md resyncs, checks, writes, stops ─▶ braid: the log is void, all is as md left it
//!      └▶ md is writing, killed ─▶ braid: the log is void; degraded it is not started
//! ```
//!
//! The log is valid only while braid's stamp is in the superblocks. This test shows on a real
//! kernel that md removes the stamp with its first update, before md writes data. The simulator
//! tests everything else about the log.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use braid_assembly::Refusal;

use super::super::guest::Storm;
use super::super::suite::Bench;
use super::array::{copy, judge};
use super::killed_arrays::{self, KilledArray, SHAPES};
use super::program::Program;
use super::replaying::{self, NEW, OLD};
use super::tally::Tally;
use super::{MEMBER_SECTORS, names, present};

/// The seed of the stream that md writes to the array.
const MDS: u64 = 75;
pub(super) const COUNTS: [&str; 4] = [
    "crashes of braid with its own log",
    "starts with members withheld",
    "sectors without a write, wrong with its own log",
    "own logs that md made void",
];

/// Kills braid while it writes; braid and md start the images.
pub(super) fn run(bench: &Bench, program: &Program, tally: &Tally) -> Result<()> {
    let folder = bench.folder.join("logging");
    std::fs::remove_dir_all(&folder).ok();
    let mut killed = Vec::new();
    for (number, (level, slots)) in SHAPES.into_iter().enumerate() {
        let name = format!("own-log-{level}");
        let own = folder.join(&name);
        std::fs::create_dir_all(&own)?;
        let made = make(program, level, slots, &own).with_context(|| name.clone())?;
        let images = replaying::braid_killed(program, &[], &made, number, &own)?;
        ensure!(replaying::is_dirty(&images)?, "{name}: braid was not writing");
        tally.count("crashes of braid with its own log", 1);
        let crash = KilledArray { name, level, slots, images, file: None };
        let words =
            ("starts with members withheld", "sectors without a write, wrong with its own log");
        tally.check(&crash.name, killed_arrays::withheld(program, &crash, words, (&own, tally)));
        killed.push(crash);
    }
    taken_by_md(bench, program, &killed, &folder, tally)?;
    cut_off_under_md(bench, &killed, &folder, tally)
}

/// Images of an array that braid made, filled and stopped in order.
fn make(program: &Program, level: &str, slots: usize, folder: &Path) -> Result<Vec<PathBuf>> {
    let images: Vec<PathBuf> = (0..slots).map(|slot| folder.join(format!("{slot}.img"))).collect();
    let size = format!("{}K", MEMBER_SECTORS / 2);
    let words =
        ["--level", level, "--consistency", "log", "--chunk", "64K", "--member-size", &size];
    program.create_with(&words, &images)?;
    killed_arrays::fill(program, &images, OLD, &folder.join("content"))?;
    Ok(images)
}

/// md starts each array, writes, and stops in order.
fn taken_by_md(
    bench: &Bench,
    program: &Program,
    killed: &[KilledArray],
    folder: &Path,
    tally: &Tally,
) -> Result<()> {
    let after = folder.join("taken");
    let (report, taken) = killed_arrays::taken_by_md(bench, killed, MDS, &after)?;
    for of_md in &taken {
        let case = &report.cases[&of_md.name];
        let went = case.succeeded().and_then(|()| {
            ensure!(case.value("wrong")?.starts_with("0 "), "md reads something else");
            ensure!(case.value("mismatch_cnt")? == "0", "md's check finds something");
            is_void(&of_md.images, false)?;
            killed_arrays::reads_alike(program, of_md, &after.join(&of_md.name))
        });
        tally.check(&of_md.name, went);
        tally.count("own logs that md made void", 1);
    }
    Ok(())
}

/// Checks that braid notices md's writes: braid replays nothing, and its log begins anew.
fn is_void(images: &[PathBuf], is_dirty: bool) -> Result<()> {
    let judged = judge(images, true)?;
    let array = judged.assembly.array.as_ref().ok().context("braid refuses it")?;
    ensure!(array.newest.state.log_counts.is_none(), "md left the stamp");
    ensure!(array.dirty == is_dirty && array.replay.is_none(), "the log is believed");
    let logs = array.parity_logs.as_ref().context("braid sees no log of its own")?;
    ensure!(logs.values().all(|log| log.newest.is_none()), "records are believed");
    Ok(())
}

/// md starts an array, and QEMU is killed while md writes.
fn cut_off_under_md(
    bench: &Bench,
    killed: &[KilledArray],
    folder: &Path,
    tally: &Tally,
) -> Result<()> {
    let KilledArray { name, images, .. } = killed.last().context("there are some")?;
    let images = copy(images, &folder.join("cut-off"))?;
    let script = format!(
        "mdadm --assemble $A {}\nagent storm $A {NEW} </dev/null 3>&- &\n",
        names(images.len())
    );
    let lasting = Duration::from_millis(4000);
    let storm = Storm { images: &images, writes_per_second: 150, script: &script, lasting };
    bench.guest.storm(&storm, &folder.join("cut-off-guest"))?;
    let went = is_void(&images, true).and_then(|()| {
        let judged = judge(&present(&images, &[1]), false)?;
        let refused = matches!(judged.assembly.array, Err(Refusal::DirtyAndDegraded(_)));
        ensure!(refused, "dirty, degraded and without a log it is started");
        Ok(())
    });
    tally.check(&format!("{name}-cut-off"), went);
    tally.count("own logs that md made void", 1);
    Ok(())
}
