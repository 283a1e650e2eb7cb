//! Braid's own log: braid is killed while it writes arrays with one, members are withheld, and md takes the arrays in between.
//!
//! ```text
//!   braid makes and fills ─▶ braid is writing, killed ─┬▶ without members: braid serve --read-only, nothing that nobody wrote is wrong
//!                                                      ├▶ md resyncs, checks, writes, stops ─▶ braid: the log is void, all is as md left it
//!                                                      └▶ md is writing, killed ─▶ braid: the log is void; degraded it is not started
//! ```
//!
//! That md takes the stamp away with its first update, and before it writes data, is what this shows of a kernel; the simulator shows
//! the rest.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use braid_assembly::Refusal;

use super::super::drive::Member;
use super::super::guest::{Case, Ending, Storm};
use super::super::pattern;
use super::super::suite::Bench;
use super::array::{copy, judge};
use super::present;
use super::program::Program;
use super::replaying::{self, MEMBER_SECTORS, NEW, OLD};
use super::tally::Tally;

/// Levels, with how many members: three columns of data each.
const SHAPES: [(&str, usize); 3] = [("4", 4), ("5", 4), ("6", 5)];
/// What md writes when it has the array.
const MDS: u64 = 75;
/// What is told of it.
pub(super) const COUNTS: [&str; 4] = [
    "crashes of braid with its own log",
    "starts with members withheld",
    "sectors that nobody wrote, wrong with its own log",
    "own logs that md made void",
];

/// Makes crashes, and has both start what is left.
pub(super) fn run(bench: &Bench, program: &Program, tally: &Tally) -> Result<()> {
    let folder = bench.folder.join("logging");
    std::fs::remove_dir_all(&folder).ok();
    let mut left = Vec::new();
    for (number, (level, slots)) in SHAPES.into_iter().enumerate() {
        let name = format!("own-log-{level}");
        let own = folder.join(&name);
        std::fs::create_dir_all(&own)?;
        let made = make(program, level, slots, &own).with_context(|| name.clone())?;
        let images = replaying::braid_killed(program, &made, number, &own)?.images;
        tally.count("crashes of braid with its own log", 1);
        tally.check(&name, withheld(program, &images, (level, &own), tally));
        left.push((name, images));
    }
    taken_by_md(bench, program, &left, &folder, tally)?;
    cut_off_under_md(bench, &left, &folder, tally)
}

/// Arrays that braid made and filled, stopped in order.
fn make(program: &Program, level: &str, slots: usize, folder: &Path) -> Result<Vec<PathBuf>> {
    let images: Vec<PathBuf> = (0..slots).map(|slot| folder.join(format!("{slot}.img"))).collect();
    let size = format!("{}K", MEMBER_SECTORS / 2);
    let words =
        ["--level", level, "--consistency", "log", "--chunk", "64K", "--member-size", &size];
    program.create_with(&words, &images)?;
    let judged = judge(&images, true)?;
    let array = judged.assembly.array.as_ref().ok().context("braid refuses it")?;
    let bytes = array.geometry.capacity_sectors() * 512;
    drop(judged);
    let mut content = vec![0; usize::try_from(bytes)?];
    pattern::stream(OLD, 0, &mut content);
    let source = folder.join("content");
    std::fs::write(&source, content)?;
    program.copy_in(&images, &source)?;
    std::fs::remove_file(&source)?;
    Ok(images)
}

/// Slots to be withheld: each, and with two parities each pair.
fn sets(level: &str, slots: usize) -> Vec<Vec<usize>> {
    let single = (0..slots).map(|slot| vec![slot]);
    let pairs = (0..slots).flat_map(|one| (0..one).map(move |other| vec![other, one]));
    single.chain(pairs.filter(|_| level == "6")).collect()
}

/// Nothing that nobody was writing is wrong, whoever is missing.
fn withheld(
    program: &Program,
    images: &[PathBuf],
    (level, folder): (&str, &Path),
    tally: &Tally,
) -> Result<()> {
    let target = folder.join("content");
    for missing in sets(level, images.len()) {
        program.copy_out(&present(images, &missing), &target)?;
        let (untouched, _) = pattern::wrong(OLD, NEW, 0, &std::fs::read(&target)?);
        tally.count("starts with members withheld", 1);
        let what = "sectors that nobody wrote, wrong with its own log";
        tally.count(what, usize::try_from(untouched)?);
        ensure!(untouched == 0, "without {missing:?}: {untouched} {what}");
    }
    std::fs::remove_file(&target)?;
    Ok(())
}

fn names(slots: usize) -> String {
    (1..=slots).map(|number| format!("$M{number}")).collect::<Vec<_>>().join(" ")
}

/// md takes each as it was left, writes, and stops in order.
fn taken_by_md(
    bench: &Bench,
    program: &Program,
    left: &[(String, Vec<PathBuf>)],
    folder: &Path,
    tally: &Tally,
) -> Result<()> {
    let case = |(name, images): &(String, Vec<PathBuf>)| {
        let script = format!(
            "mdadm --assemble $A {}\nstate\nvalue wrong \"$(agent wrong $A {OLD} {NEW})\"\nscrub mismatch_cnt\n\
             agent scribble $A {MDS} 60\nmdadm --stop $A\n",
            names(images.len())
        );
        let members = images.iter().map(|image| Member::image(image)).collect::<Result<_>>()?;
        Ok(Case { name: name.clone(), members, script })
    };
    let cases = left.iter().map(case).collect::<Result<Vec<_>>>()?;
    let after = folder.join("taken");
    let report = bench.run(cases, Ending::PowerOff, &after)?;
    for (name, images) in left {
        let case = &report.cases[name];
        let went = case.succeeded().and_then(|()| {
            ensure!(case.value("wrong")?.starts_with("0 "), "md reads something else");
            ensure!(case.value("mismatch_cnt")? == "0", "md's check finds something");
            let of_md: Vec<PathBuf> =
                (0..images.len()).map(|slot| after.join(format!("{name}/{slot}.img"))).collect();
            is_void(&of_md, false)?;
            reads_alike(program, &of_md, &after.join(name))
        });
        tally.check(name, went);
        tally.count("own logs that md made void", 1);
    }
    Ok(())
}

/// Braid sees that somebody wrote since: there is nothing to replay, and its log begins anew.
fn is_void(images: &[PathBuf], is_dirty: bool) -> Result<()> {
    let judged = judge(images, true)?;
    let array = judged.assembly.array.as_ref().ok().context("braid refuses it")?;
    ensure!(!array.newest.state.log_counts, "md left the stamp");
    ensure!(array.dirty == is_dirty && array.replay.is_none(), "the log is believed");
    let logs = array.parity_logs.as_ref().context("braid sees no log of its own")?;
    ensure!(logs.values().all(|log| log.newest.is_none()), "records are believed");
    Ok(())
}

/// Whoever is missing, it is what it is.
fn reads_alike(program: &Program, images: &[PathBuf], folder: &Path) -> Result<()> {
    let target = folder.join("content");
    program.copy_out(images, &target)?;
    let whole = std::fs::read(&target)?;
    for missing in 0..images.len() {
        program.copy_out(&present(images, &[missing]), &target)?;
        ensure!(std::fs::read(&target)? == whole, "without {missing} it is something else");
    }
    std::fs::remove_file(&target)?;
    Ok(())
}

/// md takes one as it was left, and QEMU is killed while it writes.
fn cut_off_under_md(
    bench: &Bench,
    left: &[(String, Vec<PathBuf>)],
    folder: &Path,
    tally: &Tally,
) -> Result<()> {
    let (name, images) = left.last().context("there are some")?;
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
