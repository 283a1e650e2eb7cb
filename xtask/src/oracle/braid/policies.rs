//! Partial parity logs that are made and removed while an array runs: made by braid for md, and by
//! md for braid.
//!
//! ```text
//!   md makes and fills, without ─▶ braid writes, makes one, writes
//!     ─┬▶ copied as a crash leaves it ─▶ md replays, reads, checks
//!      └▶ stopped ─▶ md reads, gives it up ─▶ braid reads
//!         (the same with a log of braid's own, which md does not see)
//!   md makes and fills, gives its log up, makes it again
//!     ─▶ braid writes, gives it up, makes it again ─▶ the same
//! ```

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::super::content;
use super::super::drive::Member;
use super::super::guest::{Case, Ending};
use super::super::report::CaseReport;
use super::super::suite::Bench;
use super::MEMBER_SECTORS;
use super::array::{Array, copy, judge};
use super::tally::Tally;

const SLOTS: usize = 4;
const NAMES: &str = "$M1 $M2 $M3 $M4";
/// The seed of the stream with which md fills the array.
const OLD: u64 = 83;
/// The seed of the stream that braid writes before a change of the log.
const BEFORE: u64 = 84;
/// The seed of the stream that braid writes after a change of the log.
const AFTER: u64 = 85;
pub(super) const COUNTS: [&str; 4] = [
    "partial parity logs that braid made on a running array and md took",
    "of these arrays after a crash",
    "partial parity logs that md made or gave up and braid took",
    "arrays that md took, to which braid had added a log of its own",
];

/// Arrays that md makes: name, options of `--create`, and commands after the filling.
const MAKES: [(&str, &str, &str); 2] = [
    ("ppl-by-braid", "--bitmap=none --consistency-policy=resync", ""),
    (
        "ppl-by-md",
        "--consistency-policy=ppl",
        "mdadm --grow --consistency-policy=resync $A\nmdadm --grow --consistency-policy=ppl $A\n",
    ),
];

/// An array with a partial parity log that braid made. The array exists twice: as a crash leaves
/// it, and stopped in order.
struct LogArray {
    name: &'static str,
    crashed: Vec<PathBuf>,
    stopped: Vec<PathBuf>,
    /// Hash of the array's content, equal in both copies.
    sha256: String,
}

pub(super) fn run(bench: &Bench, tally: &Tally) -> Result<()> {
    let folder = bench.folder.join("policies");
    std::fs::remove_dir_all(&folder).ok();
    let made = folder.join("made");
    let case = |(name, words, then): (&str, &str, &str)| {
        let script = format!(
            "mdadm --create $A --run --metadata=1.2 --level=5 --raid-devices={SLOTS} --homehost=oracle --assume-clean --chunk=64 \
             {words} {NAMES}\nagent fill $A {OLD}\n{then}mdadm --stop $A\n"
        );
        let members = vec![Member::zeros(MEMBER_SECTORS); SLOTS];
        Case { name: name.to_owned(), members, script }
    };
    let report = bench.run(MAKES.into_iter().map(case).collect(), Ending::PowerOff, &made)?;
    let mut all = Vec::new();
    let images = images_of(&made, MAKES[0].0);
    let own = own_by_braid(bench, &images, &folder);
    if let Some(own) = tally.check("own-by-braid", own) {
        let went = own_taken_by_md(bench, &own, &folder);
        if tally.check("own-by-braid", went).is_some() {
            let what = "arrays that md took, to which braid had added a log of its own";
            tally.count(what, own.len());
        }
    }
    for (name, _, then) in MAKES {
        report.cases[name].succeeded()?;
        let images = images_of(&made, name);
        all.extend(tally.check(name, changed_by_braid(bench, (name, &images), then, &folder)));
        let by_md = usize::from(!then.is_empty());
        tally.count("partial parity logs that md made or gave up and braid took", by_md);
    }
    taken_by_md(bench, &all, &folder, tally)
}

/// braid adds its own kind of log while it writes the array. Returns crashed and stopped images,
/// and the content's hash.
fn own_by_braid(
    bench: &Bench,
    images: &[PathBuf],
    folder: &Path,
) -> Result<[(&'static str, Vec<PathBuf>, String); 2]> {
    let stopped = copy(images, &folder.join("own-stopped"))?;
    let array = Array::open_to_stay_dirty(&stopped)?;
    array.scribble(BEFORE)?;
    array.make_own_logs()?;
    array.scribble(AFTER)?;
    array.flush()?;
    let sha256 = content::sha256(&bench.folder, &array.content()?)?;
    let crashed = copy(&stopped, &folder.join("own-crashed"))?;
    array.stop()?;
    Ok([("own-crashed", crashed, sha256.clone()), ("own-stopped", stopped, sha256)])
}

/// Checks that md, which does not see braid's own log, resyncs and reads the same content.
fn own_taken_by_md(
    bench: &Bench,
    own: &[(&'static str, Vec<PathBuf>, String)],
    folder: &Path,
) -> Result<()> {
    let script = format!(
        "mdadm --assemble $A {NAMES}\nidle\n\
         read -r policy <\"/sys/block/$D/md/consistency_policy\"\nvalue policy \"$policy\"\ncontent sha256\nscrub mismatch_cnt\n"
    );
    let case = |(name, images, _): &(&str, Vec<PathBuf>, String)| {
        let members = images.iter().map(|image| Member::image(image)).collect::<Result<_>>()?;
        anyhow::Ok(Case { name: (*name).to_owned(), members, script: script.clone() })
    };
    let cases = own.iter().map(case).collect::<Result<Vec<_>>>()?;
    let report = bench.run(cases, Ending::PowerOff, &folder.join("own-taken"))?;
    for (name, _, sha256) in own {
        took(&report.cases[*name], "resync", sha256).with_context(|| *name)?;
    }
    Ok(())
}

fn images_of(folder: &Path, name: &str) -> Vec<PathBuf> {
    (0..SLOTS).map(|slot| folder.join(format!("{name}/{slot}.img"))).collect()
}

/// braid creates a partial parity log while it writes the array. If the array has one, braid
/// removes it first.
fn changed_by_braid(
    bench: &Bench,
    (name, images): (&'static str, &[PathBuf]),
    then: &str,
    folder: &Path,
) -> Result<LogArray> {
    let stopped = copy(images, &folder.join(format!("{name}-stopped")))?;
    let array = Array::open_to_stay_dirty(&stopped)?;
    array.scribble(BEFORE)?;
    if !then.is_empty() {
        array.change_ppl(false)?;
        array.scribble(AFTER)?;
    }
    array.change_ppl(true)?;
    array.scribble(BEFORE)?;
    array.scribble(AFTER)?;
    array.flush()?;
    let sha256 = content::sha256(&bench.folder, &array.content()?)?;
    let crashed = copy(&stopped, &folder.join(format!("{name}-crashed")))?;
    array.stop()?;
    for images in [&crashed, &stopped] {
        let judged = judge(images, true)?;
        let array = judged.assembly.array.as_ref().ok().context("braid refuses it")?;
        ensure!(array.parity_logs.is_some(), "braid does not see its own log");
    }
    Ok(LogArray { name, crashed, stopped, sha256 })
}

/// md examines, reads and checks each array. md removes the log from stopped arrays, which braid
/// then reads.
fn taken_by_md(bench: &Bench, all: &[LogArray], folder: &Path, tally: &Tally) -> Result<()> {
    let look = format!(
        "mdadm --assemble $A {NAMES}\nidle\n\
         read -r policy <\"/sys/block/$D/md/consistency_policy\"\nvalue policy \"$policy\"\ncontent sha256\nscrub mismatch_cnt\n"
    );
    let case = |name: String, images: &[PathBuf], script: String| {
        let members = images.iter().map(|image| Member::image(image)).collect::<Result<_>>()?;
        anyhow::Ok(Case { name, members, script })
    };
    let mut cases = Vec::new();
    for LogArray { name, crashed, stopped, .. } in all {
        cases.push(case(format!("{name}-crashed"), crashed, look.clone())?);
        let end = "mdadm --grow --consistency-policy=resync $A\nmdadm --stop $A\n";
        cases.push(case(format!("{name}-stopped"), stopped, look.clone() + end)?);
    }
    let taken = folder.join("taken");
    let report = bench.run(cases, Ending::PowerOff, &taken)?;
    for LogArray { name, sha256, .. } in all {
        for (end, is_crashed) in [("crashed", true), ("stopped", false)] {
            let name = format!("{name}-{end}");
            if tally.check(&name, took(&report.cases[&name], "ppl", sha256)).is_some() {
                tally
                    .count("partial parity logs that braid made on a running array and md took", 1);
                tally.count("of these arrays after a crash", usize::from(is_crashed));
            }
        }
        let name = format!("{name}-stopped");
        let read = has_none(bench, &images_of(&taken, &name), sha256);
        if tally.check(&name, read).is_some() {
            tally.count("partial parity logs that md made or gave up and braid took", 1);
        }
    }
    Ok(())
}

/// Checks md's report on an array with a log that braid made.
fn took(case: &CaseReport, kept: &str, sha256: &str) -> Result<()> {
    case.succeeded()?;
    let policy = case.value("policy")?;
    ensure!(policy == kept, "md keeps {policy}");
    ensure!(case.value("sha256")? == sha256, "md reads something else");
    let found = case.value("mismatch_cnt")?;
    ensure!(found == "0", "md's check finds {found}");
    Ok(())
}

/// Checks an array from which md has removed the log.
fn has_none(bench: &Bench, images: &[PathBuf], sha256: &str) -> Result<()> {
    let judged = judge(images, true)?;
    let array = judged.assembly.array.as_ref().ok().context("braid refuses it")?;
    ensure!(array.parity_logs.is_none() && !array.dirty, "braid sees a log, or calls it dirty");
    drop(judged);
    let array = Array::open(images, false)?;
    let found = content::sha256(&bench.folder, &array.content()?)?;
    ensure!(found == sha256, "braid reads something else");
    array.change_ppl(true)?;
    array.stop()
}
