//! Write journals that braid writes through: braid is killed while it writes arrays with one, members are withheld, and md and braid take
//! them from each other.
//!
//! ```text
//!   braid makes and fills ─▶ braid is writing, killed ─┬▶ without members: braid serve --read-only, nothing that nobody wrote is wrong
//!                                                      └▶ md replays, checks, writes, stops ─▶ braid reads the same, whoever is missing;
//!                                                           writes, stops ─▶ md reads what braid wrote, and checks
//! ```

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::super::drive::Member;
use super::super::guest::{Case, Ending};
use super::super::pattern;
use super::super::suite::Bench;
use super::array::judge;
use super::present;
use super::program::Program;
use super::replaying::{self, MEMBER_SECTORS, NEW, OLD};
use super::tally::Tally;

/// Levels, with how many members: three columns of data each. The journal is one more.
const SHAPES: [(&str, usize); 3] = [("4", 4), ("5", 4), ("6", 5)];
/// What md writes when it has the array, and braid after it.
const MDS: u64 = 76;
const BRAIDS: u64 = 77;
/// What is told of it.
pub(super) const COUNTS: [&str; 5] = [
    "crashes of braid with a write journal",
    "starts from it with members withheld",
    "sectors that nobody wrote, wrong with a journal",
    "mismatches that md's check finds after its replay",
    "times that md and braid took the journal of the other",
];

/// Makes crashes, and has both start what is left.
pub(super) fn run(bench: &Bench, program: &Program, tally: &Tally) -> Result<()> {
    let folder = bench.folder.join("through");
    std::fs::remove_dir_all(&folder).ok();
    let mut left = Vec::new();
    for (number, (level, slots)) in SHAPES.into_iter().enumerate() {
        let name = format!("journal-{level}");
        let own = folder.join(&name);
        std::fs::create_dir_all(&own)?;
        let made = make(program, level, slots, &own).with_context(|| name.clone())?;
        let images = replaying::killed_mid_write(program, &made, number, &own)?.images;
        tally.count("crashes of braid with a write journal", 1);
        tally.check(&name, withheld(program, &images, (level, &own), tally));
        left.push((name, images));
    }
    let taken = taken_by_md(bench, program, &left, &folder, tally)?;
    given_back(bench, program, &taken, &folder, tally)
}

fn bytes_of(images: &[PathBuf]) -> Result<usize> {
    let judged = judge(images, true)?;
    let array = judged.assembly.array.as_ref().ok().context("braid refuses it")?;
    Ok(usize::try_from(array.geometry.capacity_sectors() * 512)?)
}

/// Has an array hold a stream.
fn fill(program: &Program, images: &[PathBuf], stream: u64, source: &Path) -> Result<()> {
    let mut content = vec![0; bytes_of(images)?];
    pattern::stream(stream, 0, &mut content);
    std::fs::write(source, content)?;
    program.copy_in(images, source)?;
    std::fs::remove_file(source)?;
    Ok(())
}

/// Arrays that braid made and filled, stopped in order; the journal comes last.
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
    fill(program, &images, OLD, &folder.join("content"))?;
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
    for missing in sets(level, images.len() - 1) {
        program.copy_out(&present(images, &missing), &target)?;
        let (untouched, _) = pattern::wrong(OLD, NEW, 0, &std::fs::read(&target)?);
        tally.count("starts from it with members withheld", 1);
        let what = "sectors that nobody wrote, wrong with a journal";
        tally.count(what, usize::try_from(untouched)?);
        ensure!(untouched == 0, "without {missing:?}: {untouched} {what}");
    }
    std::fs::remove_file(&target)?;
    Ok(())
}

fn names(count: usize) -> String {
    (1..=count).map(|number| format!("$M{number}")).collect::<Vec<_>>().join(" ")
}

/// Whoever is missing, it is what it is; the journal never is.
fn reads_alike(program: &Program, images: &[PathBuf], folder: &Path) -> Result<()> {
    let target = folder.join("content");
    program.copy_out(images, &target)?;
    let whole = std::fs::read(&target)?;
    for missing in 0..images.len() - 1 {
        program.copy_out(&present(images, &[missing]), &target)?;
        ensure!(std::fs::read(&target)? == whole, "without {missing} it is something else");
    }
    std::fs::remove_file(&target)?;
    Ok(())
}

/// md takes each as it was left, writes, and stops in order; braid reads what it wrote. Those with which all went well.
fn taken_by_md(
    bench: &Bench,
    program: &Program,
    left: &[(String, Vec<PathBuf>)],
    folder: &Path,
    tally: &Tally,
) -> Result<Vec<(String, Vec<PathBuf>)>> {
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
    let mut taken = Vec::new();
    for (name, images) in left {
        let case = &report.cases[name];
        let of_md: Vec<PathBuf> =
            (0..images.len()).map(|slot| after.join(format!("{name}/{slot}.img"))).collect();
        let went = case.succeeded().and_then(|()| {
            let found: usize = case.value("mismatch_cnt")?.parse()?;
            tally.count("mismatches that md's check finds after its replay", found);
            ensure!(found == 0, "md's check finds {found}");
            let wrong = case.value("wrong")?;
            ensure!(wrong.starts_with("0 "), "md reads something else: {wrong}");
            reads_alike(program, &of_md, &after.join(name))
        });
        if tally.check(name, went).is_some() {
            tally.count("times that md and braid took the journal of the other", 1);
            taken.push((name.clone(), of_md));
        }
    }
    Ok(taken)
}

/// Braid goes on with what md left, writes all of it and stops in order; md reads that.
fn given_back(
    bench: &Bench,
    program: &Program,
    taken: &[(String, Vec<PathBuf>)],
    folder: &Path,
    tally: &Tally,
) -> Result<()> {
    let mut cases = Vec::new();
    for (name, images) in taken {
        fill(program, images, BRAIDS, &folder.join("content")).with_context(|| name.clone())?;
        let script = format!(
            "mdadm --assemble $A {}\nstate\nvalue wrong \"$(agent wrong $A {BRAIDS} {BRAIDS})\"\nscrub mismatch_cnt\nmdadm --stop $A\n",
            names(images.len())
        );
        let members = images.iter().map(|image| Member::image(image)).collect::<Result<_>>()?;
        cases.push(Case { name: name.clone(), members, script });
    }
    let report = bench.run(cases, Ending::PowerOff, &folder.join("given-back"))?;
    for (name, _) in taken {
        let case = &report.cases[name];
        let went = case.succeeded().and_then(|()| {
            let (wrong, found) = (case.value("wrong")?, case.value("mismatch_cnt")?);
            ensure!(wrong == "0 0", "md reads something else than braid wrote: {wrong}");
            ensure!(found == "0", "md's check finds {found}");
            Ok(())
        });
        if tally.check(&format!("{name}-given-back"), went).is_some() {
            tally.count("times that md and braid took the journal of the other", 1);
        }
    }
    Ok(())
}
