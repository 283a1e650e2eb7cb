//! Write-intent bitmaps: md writes an array, QEMU is killed, and braid resyncs by md's bits. Also
//! bitmaps that are created and removed while the array runs.
//!
//! ```text
//!   md makes and fills ─▶ md is writing, killed
//!     ─▶ braid resyncs by the bits, reads, stops ─▶ md reads, checks
//!   md makes and fills, without one ─▶ braid writes, makes one, writes
//!     ─┬▶ copied as a crash leaves it ─▶ md resyncs, reads, checks
//!      └▶ stopped ─▶ md reads, removes it ─▶ braid reads
//! ```
//!
//! Every second array gets its bitmap by `mdadm --grow`.
//!
//! braid skips regions without a set bit; md's check shows that these regions agree all the same.
//! `making` tests the opposite direction: braid creates bitmaps, and md gets the result of a crash.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use braid_runtime::{JobEnd, JobKind, Notice, Options};

use super::super::drive::Member;
use super::super::guest::{Case, Ending, Storm};
use super::super::report::CaseReport;
use super::super::suite::Bench;
use super::super::{content, pattern};
use super::array::{Array, copy, judge};
use super::tally::Tally;
use super::{MEMBER_SECTORS, names};

/// Levels, each with its number of members.
const SHAPES: [(&str, usize); 4] = [("1", 2), ("5", 4), ("6", 5), ("10", 4)];
/// The seed of the stream that fills the array.
const OLD: u64 = 73;
/// The seed of the stream that md is writing when QEMU is killed.
const NEW: u64 = 74;
/// Time limit for a resync of a few MiB.
const PATIENCE: Duration = Duration::from_secs(90);
pub(super) const COUNTS: [&str; 8] = [
    "crashes of md with a bitmap",
    "bits that md had set",
    "bits in all",
    "sectors without a write, wrong after braid's resync",
    "mismatches that md's check finds then",
    "bitmaps that braid made on a running array and md took",
    "of them after a crash",
    "bitmaps that md made or removed and braid took",
];

/// Kills QEMU under md's arrays; braid resyncs the arrays, and md judges the result.
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
    judged_by_md(bench, &left, &folder, tally)?;
    comes_and_goes(bench, &folder, tally)
}

/// Images of arrays that md made, filled and stopped in order.
fn make(bench: &Bench, folder: &Path) -> Result<Vec<Vec<PathBuf>>> {
    let case = |(level, slots): (&str, usize)| {
        let bitmap = "--bitmap=internal --bitmap-chunk=64K";
        let script = match slots % 2 {
            0 => format!(
                "{}agent fill $A {OLD}\nmdadm --grow $A {bitmap}\nmdadm --stop $A\n",
                create((level, slots), "--bitmap=none")
            ),
            _ => {
                format!("{}agent fill $A {OLD}\nmdadm --stop $A\n", create((level, slots), bitmap))
            }
        };
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

/// A script line that creates an array with these options.
fn create((level, slots): (&str, usize), words: &str) -> String {
    let chunk = if level == "1" { "" } else { "--chunk=64" };
    format!(
        "mdadm --create $A --run --metadata=1.2 --level={level} --raid-devices={slots} --homehost=oracle --assume-clean {chunk} \
         {words} {}\n",
        names(slots)
    )
}

/// Kills QEMU while md writes the array; returns the array's images.
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

/// braid resyncs the array by its bitmap, reads all of it, and stops.
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
    tally.count("sectors without a write, wrong after braid's resync", usize::try_from(untouched)?);
    ensure!(untouched == 0, "{untouched} sectors without a write are wrong");
    array.stop()
}

/// md reads and checks each array.
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

/// The seed of the stream that braid writes before it creates a bitmap.
const BEFORE: u64 = 75;
/// The seed of the stream that braid writes after it has created the bitmap.
const AFTER: u64 = 76;
/// Bytes for each bit of the bitmap.
const CHUNK_BYTES: u32 = 64 << 10;

/// An array with a bitmap that braid created. The array exists twice: as a crash leaves it, and
/// stopped in order.
struct BitmapArray {
    name: String,
    slots: usize,
    crashed: Vec<PathBuf>,
    stopped: Vec<PathBuf>,
    /// Hash of the array's content, equal in both copies.
    sha256: String,
}

/// braid creates a bitmap while it writes; md uses and removes it; braid continues without it.
fn comes_and_goes(bench: &Bench, folder: &Path, tally: &Tally) -> Result<()> {
    let bare = folder.join("bare");
    let case = |(level, slots): (&str, usize)| {
        let create = create((level, slots), "--bitmap=none");
        let script = format!("{create}agent fill $A {OLD}\nmdadm --stop $A\n");
        let members = vec![Member::zeros(MEMBER_SECTORS); slots];
        Case { name: format!("bare-{level}"), members, script }
    };
    let report = bench.run(SHAPES.into_iter().map(case).collect(), Ending::PowerOff, &bare)?;
    let mut all = Vec::new();
    for (level, slots) in SHAPES {
        let name = format!("bare-{level}");
        report.cases[&name].succeeded()?;
        let images: Vec<_> =
            (0..slots).map(|slot| bare.join(format!("{name}/{slot}.img"))).collect();
        all.extend(tally.check(&name, gets_one(bench, &name, &images, folder)));
    }
    taken_by_md(bench, &all, folder, tally)
}

/// braid creates a bitmap while it writes the array.
fn gets_one(bench: &Bench, name: &str, images: &[PathBuf], folder: &Path) -> Result<BitmapArray> {
    let stopped = copy(images, &folder.join(format!("{name}-stopped")))?;
    let array = Array::open_to_stay_dirty(&stopped)?;
    array.scribble(BEFORE)?;
    array.change_bitmap(Some(2 * CHUNK_BYTES))?;
    array.change_bitmap(Some(CHUNK_BYTES))?;
    array.scribble(AFTER)?;
    array.flush()?;
    let sha256 = content::sha256(&bench.folder, &array.content()?)?;
    let crashed = copy(&stopped, &folder.join(format!("{name}-crashed")))?;
    array.stop()?;
    for images in [&crashed, &stopped] {
        let judged = judge(images, true)?;
        let array = judged.assembly.array.as_ref().ok().context("braid refuses it")?;
        let bitmap = array.bitmap.as_ref().context("braid sees no bitmap")?;
        let chunk_bytes = bitmap.superblock.chunk_bytes;
        ensure!(bitmap.is_current && chunk_bytes == CHUNK_BYTES, "braid does not believe its own");
    }
    let (name, slots) = (name.to_owned(), images.len());
    Ok(BitmapArray { name, slots, crashed, stopped, sha256 })
}

/// md examines, reads and checks each array. md removes the bitmap from stopped arrays, which braid
/// then reads.
fn taken_by_md(bench: &Bench, all: &[BitmapArray], folder: &Path, tally: &Tally) -> Result<()> {
    let look = |slots: usize| {
        format!(
            "text bitmap mdadm --examine-bitmap $M1\nmdadm --assemble $A {}\nidle\n\
             read -r place <\"/sys/block/$D/md/bitmap/location\"\nvalue place \"$place\"\ncontent sha256\nscrub mismatch_cnt\n",
            names(slots)
        )
    };
    let case = |name: String, images: &[PathBuf], script: String| {
        let members = images.iter().map(|image| Member::image(image)).collect::<Result<_>>()?;
        anyhow::Ok(Case { name, members, script })
    };
    let mut cases = Vec::new();
    for BitmapArray { name, slots, crashed, stopped, .. } in all {
        cases.push(case(format!("{name}-crashed"), crashed, look(*slots))?);
        let remove = "mdadm --grow $A --bitmap=none\nmdadm --stop $A\n";
        cases.push(case(format!("{name}-stopped"), stopped, look(*slots) + remove)?);
    }
    let taken = folder.join("taken");
    let report = bench.run(cases, Ending::PowerOff, &taken)?;
    for BitmapArray { name, slots, sha256, .. } in all {
        for (end, is_crashed) in [("crashed", true), ("stopped", false)] {
            let name = format!("{name}-{end}");
            let took = took(&report.cases[&name], sha256, is_crashed);
            if tally.check(&name, took).is_some() {
                tally.count("bitmaps that braid made on a running array and md took", 1);
                tally.count("of them after a crash", usize::from(is_crashed));
            }
        }
        let name = format!("{name}-stopped");
        let images: Vec<_> =
            (0..*slots).map(|slot| taken.join(format!("{name}/{slot}.img"))).collect();
        let read = has_none(bench, &images, sha256);
        if tally.check(&name, read).is_some() {
            tally.count("bitmaps that md made or removed and braid took", 1);
        }
    }
    Ok(())
}

/// Checks md's report on a bitmap that braid created.
fn took(case: &CaseReport, sha256: &str, is_crashed: bool) -> Result<()> {
    case.succeeded()?;
    let bitmap = case.text("bitmap")?;
    let line = |key: &str| {
        let line = bitmap.lines().find(|line| line.trim_start().starts_with(key));
        line.with_context(|| format!("no {key} in {bitmap}"))
    };
    ensure!(line("Version")?.contains('4'), "md sees another kind: {bitmap}");
    ensure!(line("Chunksize")?.contains("64 KB"), "md sees bits of another size: {bitmap}");
    let is_empty = line("Bitmap")?.contains(" 0 dirty");
    ensure!(is_empty != is_crashed, "md sees other bits: {bitmap}");
    ensure!(case.value("place")? == "+8", "md has it at {}", case.value("place")?);
    ensure!(case.value("sha256")? == sha256, "md reads something else");
    let found = case.value("mismatch_cnt")?;
    ensure!(found == "0", "md's check finds {found}");
    Ok(())
}

/// Checks an array from which md has removed the bitmap.
fn has_none(bench: &Bench, images: &[PathBuf], sha256: &str) -> Result<()> {
    let judged = judge(images, true)?;
    let array = judged.assembly.array.as_ref().ok().context("braid refuses it")?;
    ensure!(array.bitmap.is_none() && !array.dirty, "braid sees a bitmap, or calls it dirty");
    drop(judged);
    let array = Array::open(images, false)?;
    let found = content::sha256(&bench.folder, &array.content()?)?;
    ensure!(found == sha256, "braid reads something else");
    array.change_bitmap(Some(CHUNK_BYTES))?;
    array.stop()
}
