//! Write-intent bitmaps: md writes an array, QEMU is killed, and braid goes on by md's bits.
//!
//! ```text
//!   md makes and fills ─▶ md is writing, killed ─▶ braid resyncs what bits name, reads, stops ─▶ md reads, checks
//! ```
//!
//! What no bit names is not looked at: that it agrees all the same is what md's check shows. The other way round is in `making`: braid
//! makes bitmaps, and md gets what a crash leaves.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use braid_runtime::{JobEnd, JobKind, Notice, Options};

use super::super::drive::Member;
use super::super::guest::{Case, Ending, Storm};
use super::super::pattern;
use super::super::report::CaseReport;
use super::super::suite::Bench;
use super::array::{Array, copy, judge};
use super::tally::Tally;

/// Levels, with how many members.
const SHAPES: [(&str, usize); 4] = [("1", 2), ("5", 4), ("6", 5), ("10", 4)];
/// Sectors of a member.
const MEMBER_SECTORS: u64 = 49_152;
/// The streams that the array is filled with, and that the storm writes.
const OLD: u64 = 73;
const NEW: u64 = 74;
/// How long a resync of a few MiB may take here.
const PATIENCE: Duration = Duration::from_secs(90);
/// What is told of it.
pub(super) const COUNTS: [&str; 5] = [
    "crashes of md with a bitmap",
    "bits that md had set",
    "bits in all",
    "sectors that nobody wrote, wrong after braid's resync",
    "mismatches that md's check finds then",
];

/// Makes crashes, has braid go on, and md judge.
pub(super) fn run(bench: &Bench, tally: &Tally) -> Result<()> {
    let folder = bench.folder.join("bitmaps");
    std::fs::remove_dir_all(&folder).ok();
    let made = make(bench, &folder.join("made"))?;
    let mut left = Vec::new();
    for ((level, slots), images) in SHAPES.into_iter().zip(&made) {
        let name = format!("bitmap-{level}");
        let images = killed(bench, &name, images, &folder)?;
        let went = goes_on(&images, tally).with_context(|| name.clone());
        if tally.check(&name, went).is_some() {
            tally.count("crashes of md with a bitmap", 1);
            left.push((name, slots, images));
        }
    }
    judged_by_md(bench, &left, &folder, tally)
}

/// Arrays that md made and filled, stopped in order.
fn make(bench: &Bench, folder: &Path) -> Result<Vec<Vec<PathBuf>>> {
    let case = |(level, slots): (&str, usize)| {
        let chunk = if level == "1" { "" } else { "--chunk=64" };
        let script = format!(
            "mdadm --create $A --run --metadata=1.2 --level={level} --raid-devices={slots} --homehost=oracle --assume-clean {chunk} \
             --bitmap=internal --bitmap-chunk=64K {}\nagent fill $A {OLD}\nmdadm --stop $A\n",
            names(slots)
        );
        let members = vec![Member::zeros(MEMBER_SECTORS); slots];
        Case { name: format!("bitmap-{level}"), members, script }
    };
    let report = bench.run(SHAPES.into_iter().map(case).collect(), Ending::PowerOff, folder)?;
    let images = |(level, slots): (&str, usize)| {
        let name = format!("bitmap-{level}");
        report.cases[&name].succeeded()?;
        Ok((0..slots).map(|slot| folder.join(format!("{name}/{slot}.img"))).collect())
    };
    SHAPES.into_iter().map(images).collect()
}

/// `$M1 $M2 ...`
fn names(slots: usize) -> String {
    (1..=slots).map(|number| format!("$M{number}")).collect::<Vec<_>>().join(" ")
}

/// md is writing when QEMU is killed.
fn killed(bench: &Bench, name: &str, made: &[PathBuf], folder: &Path) -> Result<Vec<PathBuf>> {
    let images = copy(made, &folder.join(name))?;
    let script = format!(
        "mdadm --assemble $A {}\nagent storm $A {NEW} </dev/null 3>&- &\n",
        names(images.len())
    );
    let lasting = Duration::from_millis(4000);
    let storm = Storm { images: &images, writes_per_second: 150, script: &script, lasting };
    bench.guest.storm(&storm, &folder.join(format!("{name}-guest")))?;
    Ok(images)
}

/// Braid resyncs what bits name, reads all of it, and stops.
fn goes_on(images: &[PathBuf], tally: &Tally) -> Result<()> {
    let judged = judge(images, true)?;
    let array = judged.assembly.array.as_ref().ok().context("braid refuses it")?;
    let bitmap = array.bitmap.as_ref().context("braid sees no bitmap")?;
    ensure!(array.dirty && bitmap.is_current, "the bitmap is not believed");
    let (set, all) = (bitmap.bits.set_count(), bitmap.bits.count());
    ensure!(set > 0 && set < all, "{set} of {all} bits are set: the trial shows nothing");
    tally.count("bits that md had set", usize::try_from(set)?);
    tally.count("bits in all", usize::try_from(all)?);
    drop(judged);
    let (tell, heard) = channel();
    let tell = Mutex::new(tell);
    let tell = move |notice| {
        let _closed = tell.lock().expect("telling does not panic").send(notice);
    };
    let array = Array::open_unfinished(images, &Options::default(), tell)?;
    loop {
        let notice = heard.recv_timeout(PATIENCE).context("braid does not end the resync")?;
        if let Notice::JobEnded { progress, end } = notice
            && progress.kind == JobKind::Resync
        {
            ensure!(end == JobEnd::Completed, "braid's resync ends as {end:?}");
            break;
        }
    }
    let (untouched, _) = pattern::wrong(OLD, NEW, 0, &array.content()?);
    tally.count(
        "sectors that nobody wrote, wrong after braid's resync",
        usize::try_from(untouched)?,
    );
    ensure!(untouched == 0, "{untouched} sectors that nobody wrote are wrong");
    array.stop()
}

/// md reads and checks each.
fn judged_by_md(
    bench: &Bench,
    left: &[(String, usize, Vec<PathBuf>)],
    folder: &Path,
    tally: &Tally,
) -> Result<()> {
    let case = |(name, slots, images): &(String, usize, Vec<PathBuf>)| {
        let script = format!(
            "mdadm --assemble $A {}\nstate\nvalue wrong \"$(agent wrong $A {OLD} {NEW})\"\nscrub mismatch_cnt\n",
            names(*slots)
        );
        let members = images.iter().map(|image| Member::image(image)).collect::<Result<_>>()?;
        Ok(Case { name: name.clone(), members, script })
    };
    let cases = left.iter().map(case).collect::<Result<Vec<_>>>()?;
    let report = bench.run(cases, Ending::PowerOff, &folder.join("judged"))?;
    for (name, ..) in left {
        tally.check(name, judge_one(&report.cases[name], tally));
    }
    Ok(())
}

fn judge_one(case: &CaseReport, tally: &Tally) -> Result<()> {
    case.succeeded()?;
    ensure!(case.value("wrong")?.starts_with("0 "), "md reads something else");
    let found: usize = case.value("mismatch_cnt")?.parse()?;
    tally.count("mismatches that md's check finds then", found);
    ensure!(found == 0, "md's check finds {found}");
    Ok(())
}
