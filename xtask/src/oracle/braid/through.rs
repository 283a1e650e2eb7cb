//! Journals in write-through mode: braid is killed while it writes arrays with a write journal.
//! Members are withheld, and md and braid take turns with the arrays.
//!
//! ```text
//!   braid makes and fills ─▶ braid is writing, killed
//!     ─┬▶ without members: braid serve --read-only, no sector without a write is wrong
//!      └▶ md replays, checks, writes, stops ─▶ braid reads the same, with any member missing;
//!           writes, stops ─▶ md reads what braid wrote, and checks;
//!           rebuilds a device that comes, writes meanwhile ─▶ md reads, and checks
//! ```

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::super::drive::Member;
use super::super::guest::{Case, Ending};
use super::super::report::CaseReport;
use super::super::suite::Bench;
use super::killed_arrays::{self, KilledArray, SHAPES};
use super::program::Program;
use super::replaying::{self, OLD};
use super::tally::Tally;
use super::{MEMBER_SECTORS, names};

/// The seed of the stream that md writes to the array.
const MDS: u64 = 76;
/// The seed of the stream that braid writes to the array afterwards.
const BRAIDS: u64 = 77;
/// The seed of the stream that braid writes during a rebuild.
const REBUILT: u64 = 78;
pub(super) const COUNTS: [&str; 6] = [
    "crashes of braid with a write journal",
    "starts from it with members withheld",
    "sectors without a write, wrong with a journal",
    "mismatches that md's check finds after its replay",
    "times that md and braid took the journal of the other",
    "arrays with a journal that md took after a rebuild of braid's",
];

/// Kills braid while it writes; braid and md start the images.
pub(super) fn run(bench: &Bench, program: &Program, tally: &Tally) -> Result<()> {
    let folder = bench.folder.join("through");
    std::fs::remove_dir_all(&folder).ok();
    let mut killed = Vec::new();
    for (number, (level, slots)) in SHAPES.into_iter().enumerate() {
        let name = format!("journal-{level}");
        let own = folder.join(&name);
        std::fs::create_dir_all(&own)?;
        let made = make(program, level, slots, &own).with_context(|| name.clone())?;
        let images = replaying::braid_killed(program, &[], &made, number, &own)?;
        tally.count("crashes of braid with a write journal", 1);
        let crash = KilledArray { name, level, slots, images, file: None };
        let words = (
            "starts from it with members withheld",
            "sectors without a write, wrong with a journal",
        );
        tally.check(&crash.name, killed_arrays::withheld(program, &crash, words, (&own, tally)));
        killed.push(crash);
    }
    let taken = taken_by_md(bench, program, &killed, &folder, tally)?;
    given_back(bench, program, &taken, &folder, tally)?;
    rebuilt(bench, program, &taken, &folder, tally)
}

/// Images of an array that braid made, filled and stopped in order; the journal comes last.
fn make(program: &Program, level: &str, slots: usize, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut images: Vec<PathBuf> =
        (0..slots).map(|slot| folder.join(format!("{slot}.img"))).collect();
    let journal = folder.join(format!("{slots}.img"));
    let size = format!("{}K", MEMBER_SECTORS / 2);
    let device = journal.display().to_string();
    let words =
        ["--level", level, "--write-journal", &device, "--chunk", "64K", "--member-size", &size];
    program.create_with(&words, &images)?;
    images.push(journal);
    killed_arrays::fill(program, &images, OLD, &folder.join("content"))?;
    Ok(images)
}

/// md starts each array, writes, and stops; braid reads the bytes that md wrote. Returns the arrays
/// that succeed.
fn taken_by_md(
    bench: &Bench,
    program: &Program,
    killed: &[KilledArray],
    folder: &Path,
    tally: &Tally,
) -> Result<Vec<KilledArray>> {
    let after = folder.join("taken");
    let (report, mut taken) = killed_arrays::taken_by_md(bench, killed, MDS, &after)?;
    taken.retain(|of_md| {
        let case = &report.cases[&of_md.name];
        let went = case.succeeded().and_then(|()| {
            let found: usize = case.value("mismatch_cnt")?.parse()?;
            tally.count("mismatches that md's check finds after its replay", found);
            ensure!(found == 0, "md's check finds {found}");
            let wrong = case.value("wrong")?;
            ensure!(wrong.starts_with("0 "), "md reads something else: {wrong}");
            killed_arrays::reads_alike(program, of_md, &after.join(&of_md.name))
        });
        let is_well = tally.check(&of_md.name, went).is_some();
        tally.count("times that md and braid took the journal of the other", usize::from(is_well));
        is_well
    });
    Ok(taken)
}

/// braid takes the arrays back from md, writes them whole and stops; md reads braid's writes.
fn given_back(
    bench: &Bench,
    program: &Program,
    taken: &[KilledArray],
    folder: &Path,
    tally: &Tally,
) -> Result<()> {
    let mut cases = Vec::new();
    for KilledArray { name, images, .. } in taken {
        killed_arrays::fill(program, images, BRAIDS, &folder.join("content"))
            .with_context(|| name.clone())?;
        cases.push(case(name, images, BRAIDS)?);
    }
    let what = "times that md and braid took the journal of the other";
    are_whole(bench, cases, (&folder.join("given-back"), what), tally)
}

/// braid replaces a member of an array with a journal by a device; md reads the bytes that braid
/// wrote meanwhile.
fn rebuilt(
    bench: &Bench,
    program: &Program,
    taken: &[KilledArray],
    folder: &Path,
    tally: &Tally,
) -> Result<()> {
    let mut cases = Vec::new();
    for KilledArray { name, images, .. } in taken {
        let content = folder.join("content");
        std::fs::write(&content, killed_arrays::stream_of(images, REBUILT)?)?;
        let device = images[1].with_extension("new");
        std::fs::File::create(&device)?.set_len(images[1].metadata()?.len())?;
        program.rebuild(images, (1, &device), &content).with_context(|| name.clone())?;
        std::fs::remove_file(&content)?;
        let mut images = images.clone();
        images[1] = device;
        cases.push(case(name, &images, REBUILT)?);
    }
    let what = "arrays with a journal that md took after a rebuild of braid's";
    are_whole(bench, cases, (&folder.join("rebuilt"), what), tally)
}

/// A case in which md reads the stream of braid's writes, and checks.
fn case(name: &str, images: &[PathBuf], stream: u64) -> Result<Case> {
    let script = format!(
        "mdadm --assemble $A {}\nstate\nvalue wrong \"$(agent wrong $A {stream} {stream})\"\nscrub mismatch_cnt\nmdadm --stop $A\n",
        names(images.len())
    );
    let members = images.iter().map(|image| Member::image(image)).collect::<Result<_>>()?;
    Ok(Case { name: name.to_owned(), members, script })
}

/// Boots md with these cases, and counts the faultless ones.
fn are_whole(
    bench: &Bench,
    cases: Vec<Case>,
    (folder, what): (&Path, &'static str),
    tally: &Tally,
) -> Result<()> {
    let names: Vec<String> = cases.iter().map(|case| case.name.clone()).collect();
    let report = bench.run(cases, Ending::PowerOff, folder)?;
    let ending = folder.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    for name in names {
        let went = is_whole(&report.cases[&name]);
        if tally.check(&format!("{name}-{ending}"), went).is_some() {
            tally.count(what, 1);
        }
    }
    Ok(())
}

fn is_whole(case: &CaseReport) -> Result<()> {
    case.succeeded()?;
    let (wrong, found) = (case.value("wrong")?, case.value("mismatch_cnt")?);
    ensure!(wrong == "0 0", "md reads something else than braid wrote: {wrong}");
    ensure!(found == "0", "md's check finds {found}");
    Ok(())
}
