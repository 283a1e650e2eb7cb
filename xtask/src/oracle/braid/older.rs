//! Kernels before 6.19, such as the guest's, refuse arrays with a logical block size, as newer
//! kernels make them. They accept such an array after `braid set NAME kernel-compat` has cleared
//! the field, and refuse it again after `braid undo`.
//!
//! No newer kernel is available: the test patches the field into arrays of an older kernel.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use braid_ondisk::{Version, checksum_v1};

use super::super::drive::Member;
use super::super::guest::{Case, Ending};
use super::super::report::CaseReport;
use super::super::suite::{Bench, MadeArray};
use super::array::copy;
use super::must_refuse;
use super::program::Program;
use super::tally::Tally;

/// Offset of the logical block size in superblocks.
const LOGICAL_BLOCK_AT: usize = 224;
/// Offset of the checksum in superblocks.
const CHECKSUM_AT: usize = 216;

/// Tries the first array of each metadata version, with redundancy and without.
pub(super) fn compare(
    bench: &Bench,
    program: &Program,
    made: &[MadeArray],
    tally: &Tally,
) -> Result<()> {
    let mut seen = BTreeSet::new();
    let is_first = |array: &&MadeArray| {
        let spec = &array.spec;
        let is_of_one = spec.metadata.starts_with("1.") && must_refuse(spec).is_none();
        is_of_one && seen.insert((spec.metadata, spec.is_redundant()))
    };
    let arrays: Vec<&MadeArray> = made.iter().filter(is_first).collect();
    let folder = bench.folder.join("older");
    std::fs::remove_dir_all(&folder).ok();
    let mut cases = Vec::new();
    for array in &arrays {
        let name = format!("older-{}", array.spec.name);
        let prepared = prepare(program, array, &folder.join(&array.spec.name));
        let Some(members) = tally.check(&name, prepared) else { continue };
        cases.push(Case { name, members, script: script(array.images.len()) });
    }
    let report = bench.run(cases, Ending::PowerOff, &folder.join("guest"))?;
    for array in arrays {
        let name = format!("older-{}", array.spec.name);
        let Some(case) = report.cases.get(&name) else { continue };
        let is_so = tally.check(&name, judge(case, array)).is_some();
        tally.count("logical blocks cleared for md", usize::from(is_so));
    }
    Ok(())
}

/// Copies the array's members three times: with the field, without it, and with it again.
fn prepare(program: &Program, array: &MadeArray, folder: &Path) -> Result<Vec<Member>> {
    let copied = |word: &str, from: &[PathBuf]| copy(from, &folder.join(word).join("m"));
    let said = copied("said", &array.images)?;
    for image in &said {
        say(image, array.spec.metadata.parse()?)?;
    }
    let cleared = copied("cleared", &said)?;
    program.kernel_compat(&cleared)?;
    let back = copied("back", &said)?;
    program.kernel_compat(&back)?;
    program.undo(&back)?;
    for (image, before) in back.iter().zip(&said) {
        ensure!(std::fs::read(image)? == std::fs::read(before)?, "undo leaves something else");
    }
    [said, cleared, back].concat().iter().map(|image| Member::image(image)).collect()
}

/// Patches the logical block size into a member's superblock.
fn say(image: &Path, version: Version) -> Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(image)?;
    let sectors = file.metadata()?.len() / 512;
    let place = version.super_offset_sectors(sectors).context("no place for a superblock")? * 512;
    let mut superblock = vec![0; 4096];
    file.read_exact_at(&mut superblock, place)?;
    superblock[LOGICAL_BLOCK_AT..LOGICAL_BLOCK_AT + 4].copy_from_slice(&512_u32.to_le_bytes());
    let sum = checksum_v1(&superblock).context("no superblock")?;
    superblock[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
    file.write_all_at(&superblock, place)?;
    Ok(())
}

fn script(count: usize) -> String {
    let members = |nth: usize| {
        let numbers = nth * count + 1..=(nth + 1) * count;
        numbers.map(|number| format!("$M{number}")).collect::<Vec<_>>().join(" ")
    };
    let assemble = |nth| format!("mdadm --assemble --readonly $A {}", members(nth));
    let tries = |word: &str, nth| {
        format!(
            "if {}; then value {word} taken; mdadm --stop $A; else value {word} refused; fi\n",
            assemble(nth)
        )
    };
    let mut script = tries("said", 0);
    script += &format!("{}\ncontent sha256.cleared\nmdadm --stop $A\n", assemble(1));
    script + &tries("back", 2)
}

fn judge(case: &CaseReport, array: &MadeArray) -> Result<()> {
    case.succeeded()?;
    for word in ["said", "back"] {
        ensure!(case.value(word)? == "refused", "md takes an array that says its logical block");
    }
    ensure!(case.value("sha256.cleared")? == array.sha256, "cleared, it reads differently");
    Ok(())
}
