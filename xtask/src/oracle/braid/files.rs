//! Bitmap files: md is killed while it writes arrays that have a bitmap file, and braid resyncs by
//! this file. The other way round, braid is killed with its own log in the file, and md resyncs by
//! the bitmap.
//!
//! ```text
//!   md makes and fills ─▶ md is writing, killed ─▶ braid resyncs by the bits, stops ─▶ (1)
//!   braid makes and fills ─▶ braid is writing, killed
//!     ─┬▶ (1) md takes array and file, resyncs, reads, checks, writes, stops ─▶ braid reads
//!      └▶ without each member: braid serve --read-only, no sector without a write is wrong
//! ```
//!
//! md asks the file system for the blocks of the bitmap file, and writes these blocks. The file
//! system in this test is ext2 on a drive of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::super::drive::Member;
use super::super::guest::{Case, Ending, Storm};
use super::super::initramfs::output;
use super::super::pattern;
use super::super::report::CaseReport;
use super::super::suite::Bench;
use super::killed_arrays::{self, KilledArray};
use super::program::Program;
use super::replaying::{self, NEW, OLD};
use super::tally::Tally;
use super::{MEMBER_SECTORS, names};

/// Arrays that md makes: level, members, metadata.
const MDS: [(&str, usize, &str); 2] = [("1", 2, "1.2"), ("5", 4, "1.0")];
/// Arrays that braid makes: level, members, metadata.
const BRAIDS: [(&str, usize, &str); 1] = [("5", 4, "1.0")];
/// The seed of the stream that md writes to the array.
const AFTER: u64 = 79;
const FILE_SYSTEM_BYTES: u64 = 8 << 20;
pub(super) const COUNTS: [&str; 8] = [
    "crashes of md with a bitmap file",
    "crashes of braid with a bitmap file",
    "starts with a file and a member withheld",
    "bits that are set in files after crashes",
    "bits in these files",
    "sectors without a write, wrong with a file",
    "mismatches that md's check finds with a file",
    "bitmap files that md took from braid, and braid from md",
];

/// Kills each program while it writes; the other program takes the arrays over.
pub(super) fn run(bench: &Bench, program: &Program, tally: &Tally) -> Result<()> {
    let folder = bench.folder.join("files");
    std::fs::remove_dir_all(&folder).ok();
    let mut all = of_md(bench, program, &folder, tally)?;
    for (number, shape) in BRAIDS.into_iter().enumerate() {
        let name = format!("file-braid-{}", shape.0);
        let own = folder.join(&name);
        std::fs::create_dir_all(&own)?;
        let killed =
            of_braid(program, &name, (number, shape), &own).with_context(|| name.clone())?;
        count_bits(&killed, tally).with_context(|| name.clone())?;
        tally.count("crashes of braid with a bitmap file", 1);
        let words = (
            "starts with a file and a member withheld",
            "sectors without a write, wrong with a file",
        );
        if tally
            .check(&name, killed_arrays::withheld(program, &killed, words, (&own, tally)))
            .is_some()
        {
            all.push(killed);
        }
    }
    let taken = taken_by_md(bench, &all, &folder, tally)?;
    for killed in taken {
        let went = killed_arrays::reads_alike(program, &killed, &folder);
        let went = went.and_then(|()| is_taken_back(program, &killed));
        let is_well = tally.check(&killed.name, went).is_some();
        tally
            .count("bitmap files that md took from braid, and braid from md", usize::from(is_well));
    }
    Ok(())
}

/// Arrays that md made and was writing when QEMU was killed, resynced by braid.
fn of_md(
    bench: &Bench,
    program: &Program,
    folder: &Path,
    tally: &Tally,
) -> Result<Vec<KilledArray>> {
    let empty = empty_file_system(folder)?;
    let case = |(level, slots, metadata): (&str, usize, &str)| {
        let chunk = if level == "1" { "" } else { "--chunk=64" };
        let script = format!(
            "{}mdadm --create $A --run --name=tank --metadata={metadata} --level={level} --raid-devices={slots} \
             --homehost=oracle --assume-clean {chunk} --bitmap=/mnt/tank --bitmap-chunk=64K {}\n\
             agent fill $A {OLD}\nmdadm --stop $A\numount /mnt\n",
            mount(slots + 1),
            names(slots)
        );
        let mut members = vec![Member::zeros(MEMBER_SECTORS); slots];
        members.push(Member::image(&empty)?);
        Ok(Case { name: format!("file-md-{level}"), members, script })
    };
    let cases = MDS.into_iter().map(case).collect::<Result<Vec<_>>>()?;
    let made = folder.join("made");
    let report = bench.run(cases, Ending::PowerOff, &made)?;
    let mut killed = Vec::new();
    for (level, slots, _) in MDS {
        let name = format!("file-md-{level}");
        report.cases[&name].succeeded()?;
        let mut images: Vec<PathBuf> =
            (0..=slots).map(|at| made.join(format!("{name}/{at}.img"))).collect();
        let script = format!(
            "{}mdadm --assemble $A --bitmap=/mnt/tank {}\nagent storm $A {NEW} </dev/null 3>&- &\n",
            mount(slots + 1),
            names(slots)
        );
        let lasting = Duration::from_millis(4000);
        let storm = Storm { images: &images, writes_per_second: 150, script: &script, lasting };
        bench.guest.storm(&storm, &folder.join(format!("{name}-guest")))?;
        tally.count("crashes of md with a bitmap file", 1);
        let file_system = images.pop().context("the file system comes last")?;
        let file = folder.join(format!("{name}.bitmap"));
        let dump = format!("dump /tank {}", file.display());
        output(Command::new("/sbin/debugfs").args(["-R", &dump]).arg(&file_system))?;
        let one = KilledArray { name, level, slots, images, file: Some(file) };
        if tally.check(&one.name, resynced(program, &one, folder, tally)).is_some() {
            killed.push(one);
        }
    }
    Ok(killed)
}

/// braid resyncs the array by its bitmap file, reads all of it, and stops.
fn resynced(program: &Program, killed: &KilledArray, folder: &Path, tally: &Tally) -> Result<()> {
    count_bits(killed, tally)?;
    let target = folder.join("content");
    let load =
        format!("\"$BRAID\" wait tank --timeout 90 && nbdcopy \"$uri\" '{}'", target.display());
    program.serve_with_tool(&killed.words(), &killed.images, &load)?;
    let (untouched, _) = pattern::wrong(OLD, NEW, 0, &std::fs::read(&target)?);
    std::fs::remove_file(&target)?;
    tally.count("sectors without a write, wrong with a file", usize::try_from(untouched)?);
    ensure!(untouched == 0, "{untouched} sectors without a write are wrong");
    Ok(())
}

/// Checks `mdadm --examine-bitmap` on the file: some bits are set, and not all.
fn count_bits(killed: &KilledArray, tally: &Tally) -> Result<()> {
    let file = killed.file.as_ref().context("it has a file")?;
    let said = output(Command::new("/sbin/mdadm").arg("--examine-bitmap").arg(file))?;
    let said = String::from_utf8_lossy(&said);
    let line = said.lines().find(|line| line.trim_start().starts_with("Bitmap"));
    let line = line.with_context(|| format!("no bits in {said}"))?;
    let numbers: Vec<usize> =
        line.split_whitespace().filter_map(|word| word.parse().ok()).take(2).collect();
    let [all, set] = numbers[..] else { anyhow::bail!("no numbers in {line}") };
    ensure!(set > 0 && set < all, "{set} of {all} bits are set: the trial shows nothing");
    tally.count("bits that are set in files after crashes", set);
    tally.count("bits in these files", all);
    Ok(())
}

/// Arrays of braid with its log in a file; braid was killed during writes.
fn of_braid(
    program: &Program,
    name: &str,
    (number, (level, slots, metadata)): (usize, (&'static str, usize, &str)),
    folder: &Path,
) -> Result<KilledArray> {
    let images: Vec<PathBuf> = (0..slots).map(|slot| folder.join(format!("{slot}.img"))).collect();
    let file = folder.join("tank.bitmap");
    let size = format!("{}K", MEMBER_SECTORS / 2);
    let with_file = ["--bitmap-file".to_owned(), file.display().to_string()];
    let with_file: Vec<&str> = with_file.iter().map(String::as_str).collect();
    let words =
        ["--level", level, "--metadata", metadata, "--chunk", "64K", "--member-size", &size];
    program.create_with(&[&words[..], &with_file, &["--bitmap-chunk", "64K"]].concat(), &images)?;
    let source = folder.join("content");
    std::fs::write(&source, killed_arrays::stream_of(&images, OLD)?)?;
    // Fills the array. Some time after the last write braid makes the superblocks clean, and then
    // clears bits.
    let load = format!("nbdcopy --flush '{}' \"$uri\"", source.display());
    program.serve_with_tool(&with_file, &images, &load)?;
    std::fs::remove_file(&source)?;
    let images = replaying::braid_killed(program, &with_file, &images, number, folder)?;
    Ok(KilledArray { name: name.to_owned(), level, slots, images, file: Some(file) })
}

/// md starts each array with its file, checks, writes and stops. Returns the arrays that succeed.
fn taken_by_md(
    bench: &Bench,
    all: &[KilledArray],
    folder: &Path,
    tally: &Tally,
) -> Result<Vec<KilledArray>> {
    let empty = empty_file_system(folder)?;
    let case = |killed: &KilledArray| {
        let (members, raw) = (names(killed.slots), killed.slots + 2);
        let script = format!(
            "{}dd if=$M{raw} of=/mnt/tank bs=64k\nsync\n\
             mdadm --assemble $A --bitmap=/mnt/tank {members}\nstate\n\
             read -r place <\"/sys/block/$D/md/bitmap/location\"\nvalue place \"$place\"\nidle\n\
             value wrong \"$(agent wrong $A {OLD} {NEW})\"\nscrub mismatch_cnt\nagent scribble $A {AFTER} 60\n\
             content sha256\nmdadm --stop $A\ndd if=/mnt/tank of=$M{raw} bs=64k\numount /mnt\n",
            mount(killed.slots + 1),
        );
        let images = killed.images.iter().chain([&empty]).chain(&killed.file);
        let members = images.map(|image| Member::image(image)).collect::<Result<_>>()?;
        Ok(Case { name: killed.name.clone(), members, script })
    };
    let cases = all.iter().map(case).collect::<Result<Vec<_>>>()?;
    let taken = folder.join("taken");
    let report = bench.run(cases, Ending::PowerOff, &taken)?;
    let mut well = Vec::new();
    for KilledArray { name, level, slots, .. } in all {
        let (name, level, slots) = (name.clone(), *level, *slots);
        if tally.check(&name, judge(&report.cases[&name], tally)).is_some() {
            let image = |at: usize| taken.join(format!("{name}/{at}.img"));
            let (images, file) = ((0..slots).map(image).collect(), Some(image(slots + 1)));
            well.push(KilledArray { name, level, slots, images, file });
        }
    }
    Ok(well)
}

/// Checks md's report on one array with a bitmap file.
fn judge(case: &CaseReport, tally: &Tally) -> Result<()> {
    case.succeeded()?;
    ensure!(case.value("place")? == "file", "md has its bitmap at {}", case.value("place")?);
    let wrong = case.value("wrong")?;
    ensure!(wrong.starts_with("0 "), "md reads something else: {wrong}");
    let found: usize = case.value("mismatch_cnt")?.parse()?;
    tally.count("mismatches that md's check finds with a file", found);
    ensure!(found == 0, "md's check finds {found}");
    Ok(())
}

/// Checks that braid serves the array with its bitmap file, has the bitmap, and is in sync.
fn is_taken_back(program: &Program, killed: &KilledArray) -> Result<()> {
    let load = "\"$BRAID\" get tank bitmap-file && \"$BRAID\" check tank";
    program.serve_with_tool(&killed.words(), &killed.images, load)
}

fn empty_file_system(folder: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let image = folder.join("empty.ext2");
    let file = std::fs::File::create(&image)?;
    file.set_len(FILE_SYSTEM_BYTES)?;
    output(Command::new("/sbin/mkfs.ext2").args(["-q", "-F", "-b", "4096"]).arg(&image))?;
    Ok(image)
}

fn mount(member: usize) -> String {
    format!("mkdir -p /mnt\nmount -t ext2 $M{member} /mnt\n")
}
