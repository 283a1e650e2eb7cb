//! Write journals: md writes a RAID-5 or RAID-6 in either mode, QEMU is killed, and members are
//! withheld. Every sector must read as old or new, and sectors without a write in flight as before.
//!
//! ```text
//!   md makes and fills ─▶ md is writing, killed ─▶ images ─ for each member withheld, and with all
//!     ─┬▶ braid serve --read-only
//!      │  md assembles them
//!      └▶ braid replay, then md assembles them
//! ```
//!
//! With all members md's own check examines braid's replay. If two members of a RAID-6 are missing
//! and the journal has data without parity, md 6.1 never ends its replay. In this case md gets only
//! the images that braid has replayed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::super::drive::Member;
use super::super::guest::{Case, Ending, Storm};
use super::super::pattern;
use super::super::report::CaseReport;
use super::super::suite::Bench;
use super::array::copy;
use super::program::Program;
use super::tally::Tally;
use super::{MEMBER_SECTORS, names, present};

/// Members of the arrays; the journal is an additional device.
const MEMBERS: usize = 4;
/// Levels and modes of the journal.
const KINDS: [(u8, &str); 4] =
    [(5, "write-through"), (5, "write-back"), (6, "write-through"), (6, "write-back")];
/// The seed of the stream that fills the array.
const OLD: u64 = 81;
/// The seed of the stream that md is writing when QEMU is killed.
const NEW: u64 = 82;
pub(super) const COUNTS: [&str; 8] = [
    "crashes with a write journal",
    "starts from it",
    "stripes replayed",
    "of them without parity in the journal",
    "sectors wrong under braid",
    "sectors wrong under md",
    "sectors wrong under md after braid replay",
    "mismatches that md's check finds after braid replay",
];

/// The images after a crash, with some members.
struct Start {
    name: String,
    /// The images as the crash left them.
    left: Vec<PathBuf>,
    /// The images after `braid replay`.
    replayed: Vec<PathBuf>,
    /// Whether no member is missing from the start.
    is_whole: bool,
    /// Whether md 6.1 would never end its replay: data without parity, and two members missing.
    is_too_much_for_md: bool,
    /// Number of sectors that braid reads wrong.
    by_braid: u64,
}

/// Crashes of each kind: one, unless `BRAID_JOURNAL_CRASHES` gives another number.
fn crashes() -> usize {
    let said = std::env::var("BRAID_JOURNAL_CRASHES").ok();
    said.and_then(|count| count.parse().ok()).unwrap_or(1)
}

/// Kills QEMU while md writes; braid and md start the images.
pub(super) fn run(bench: &Bench, program: &Program, tally: &Tally) -> Result<()> {
    let folder = bench.folder.join("journaling");
    std::fs::remove_dir_all(&folder).ok();
    let mut starts = Vec::new();
    for level in [5, 6] {
        let made = make(bench, level, &folder.join(format!("made-{level}")))?;
        for (_, mode) in KINDS.into_iter().filter(|(of, _)| *of == level) {
            for number in 0..crashes() {
                let name = format!("raid{level}-{mode}-{number}");
                let images = killed(bench, &made, (&name, mode, number), &folder)?;
                tally.count("crashes with a write journal", 1);
                let mut without: Vec<Vec<usize>> = (0..MEMBERS).map(|slot| vec![slot]).collect();
                without.push(Vec::new());
                without.extend((level == 6).then(|| vec![number % 3, 3]));
                for lost in without {
                    starts.push(start(program, (&name, &images, &lost), &folder, tally)?);
                }
            }
        }
    }
    judged_by_md(bench, &starts, &folder, tally)
}

/// An array that md made, filled and stopped in order; the journal comes last.
fn make(bench: &Bench, level: u8, folder: &Path) -> Result<Vec<PathBuf>> {
    let script = format!(
        "mdadm --create $A --run --metadata=1.2 --level={level} --raid-devices={MEMBERS} --homehost=oracle --assume-clean --chunk=64 \
         --write-journal=$M{} {}\nagent fill $A {OLD}\nmdadm --stop $A\n",
        MEMBERS + 1,
        names(MEMBERS)
    );
    let members = vec![Member::zeros(MEMBER_SECTORS); MEMBERS + 1];
    let name = format!("journal-{level}");
    let case = Case { name: name.clone(), members, script };
    let report = bench.run(vec![case], Ending::PowerOff, folder)?;
    report.cases[&name].succeeded()?;
    Ok((0..=MEMBERS).map(|slot| folder.join(format!("{name}/{slot}.img"))).collect())
}

/// Kills QEMU while md writes the array.
fn killed(
    bench: &Bench,
    made: &[PathBuf],
    (name, mode, number): (&str, &str, usize),
    folder: &Path,
) -> Result<Vec<PathBuf>> {
    let images = copy(made, &folder.join(name))?;
    let script = format!(
        "mdadm --assemble $A {}\necho {mode} >/sys/block/$D/md/journal_mode\nagent storm $A {NEW} </dev/null 3>&- &\n",
        names(MEMBERS + 1)
    );
    let lasting = Duration::from_millis(3000 + 700 * (number as u64 % 7));
    let storm = Storm { images: &images, writes_per_second: 150, script: &script, lasting };
    bench.guest.storm(&storm, &folder.join(format!("{name}-guest")))?;
    Ok(images)
}

/// braid starts the images after a crash: read-only, and by `braid replay`.
fn start(
    program: &Program,
    (crash, images, lost): (&str, &[PathBuf], &[usize]),
    folder: &Path,
    tally: &Tally,
) -> Result<Start> {
    let words: Vec<String> = lost.iter().map(ToString::to_string).collect();
    let name =
        if lost.is_empty() { "whole".to_owned() } else { format!("without-{}", words.join("-")) };
    let name = format!("{crash}-{name}");
    let left = present(images, lost);
    let target = folder.join(format!("{name}.content"));
    program.copy_out(&[], &left, &target).with_context(|| name.clone())?;
    let (untouched, torn) = pattern::wrong(OLD, NEW, 0, &std::fs::read(&target)?);
    std::fs::remove_file(&target)?;
    let by_braid = untouched + torn;
    let replayed = copy(&left, &folder.join(&name))?;
    let said = program.replay_json(&replayed).with_context(|| name.clone())?;
    let number = |key: &str| said["replayed"][key].as_u64().unwrap_or_default();
    let counted = |key: &str| usize::try_from(number(key)).unwrap_or(usize::MAX);
    tally.count("starts from it", 1);
    tally.count("stripes replayed", counted("journal_stripes"));
    tally.count("of them without parity in the journal", counted("pending_stripes"));
    tally.count("sectors wrong under braid", usize::try_from(by_braid)?);
    let fine = (by_braid == 0).then_some(());
    tally.check(
        &name,
        fine.with_context(|| format!("{untouched} sectors without a write, {torn} others")),
    );
    ensure!(
        number("journal_stripes") > 0,
        "the journal of {name} has nothing: the trial shows nothing"
    );
    let is_too_much_for_md = lost.len() == 2 && number("pending_stripes") > 0;
    Ok(Start { name, left, replayed, is_whole: lost.is_empty(), is_too_much_for_md, by_braid })
}

/// md starts the images of each crash: as the crash left them, and after `braid replay`.
fn judged_by_md(bench: &Bench, starts: &[Start], folder: &Path, tally: &Tally) -> Result<()> {
    let mut cases = Vec::new();
    for start in starts {
        let left = Some(("left", &start.left)).filter(|_| !start.is_too_much_for_md);
        for (what, images) in left.into_iter().chain([("replayed", &start.replayed)]) {
            let names = names(images.len());
            let is_settled = start.is_whole && what == "replayed";
            // If the journal's superblock is newer than the members', md takes the journal only by
            // force.
            let force = format!("|| mdadm --assemble --run --force $A {names}");
            let (force, check) =
                if is_settled { ("", "scrub mismatch_cnt\n") } else { (force.as_str(), "") };
            let script = format!(
                "mdadm --assemble --run $A {names} {force}\n\
                 value wrong \"$(agent wrong $A {OLD} {NEW})\"\n{check}"
            );
            let members = images.iter().map(|image| Member::image(image)).collect::<Result<_>>()?;
            cases.push(Case { name: format!("{}-{what}", start.name), members, script });
        }
    }
    let report = bench.run(cases, Ending::PowerOff, &folder.join("judged"))?;
    for start in starts {
        let left = match report.cases.get(&format!("{}-left", start.name)) {
            Some(case) => {
                let left = wrong(case)?;
                tally.count("sectors wrong under md", left);
                left.to_string()
            }
            None => "not asked".to_owned(),
        };
        let judged = judged(&report.cases[&format!("{}-replayed", start.name)], start, tally);
        let told = judged.as_ref().map_or_else(|error| format!("{error:#}"), usize::to_string);
        println!(
            "          {}: wrong under braid {}, md {left}, md after braid replay {told}",
            start.name, start.by_braid
        );
        tally.check(&start.name, judged.map(drop));
    }
    Ok(())
}

/// Checks the bytes that md read after braid's replay, and the result of md's check.
fn judged(case: &CaseReport, start: &Start, tally: &Tally) -> Result<usize> {
    let wrong = wrong(case)?;
    tally.count("sectors wrong under md after braid replay", wrong);
    ensure!(wrong == 0, "md reads {wrong} sectors wrong");
    if start.is_whole {
        let found: usize = case.value("mismatch_cnt")?.parse()?;
        tally.count("mismatches that md's check finds after braid replay", found);
        ensure!(found == 0, "md's check finds {found}");
    }
    Ok(wrong)
}

/// Counts sectors with an impossible content, from md's report.
fn wrong(case: &CaseReport) -> Result<usize> {
    case.succeeded()?;
    let words = case.value("wrong")?;
    let numbers: Result<Vec<usize>, _> = words.split_whitespace().map(str::parse).collect();
    Ok(numbers.with_context(|| format!("md said {words}"))?.into_iter().sum())
}
