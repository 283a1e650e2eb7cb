//! Tests the judge, which is the kernel's md: its own arrays pass, and damaged ones do not.
//!
//! md gets each of its own arrays back as if braid had made it. Every untouched array must pass.
//! With one byte of data flipped on one member, content or check must fail. With one superblock bit
//! flipped, md must refuse the array, or start it without that member.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::content;
use super::drive::Member;
use super::guest::{Case, Ending, Job};
use super::spec::Level;
use super::suite::{Bench, GivenArray, MadeArray, Maker};

/// md judges every array, untouched; md also writes every third array and must find its writes.
/// Returns how many arrays passed.
pub(crate) fn just(bench: &Bench, made: &[MadeArray]) -> Result<usize> {
    let mut given: Vec<GivenArray> = made.iter().map(|array| give(array, &[])).collect();
    for (array, given) in made.iter().zip(&mut given).step_by(3) {
        given.rewrite = Some(array.seed + 2);
    }
    let verdicts = bench.reverse(&given, "proof-just")?;
    for (array, verdict) in made.iter().zip(verdicts) {
        let verdict = verdict?;
        let name = &array.spec.name;
        ensure!(verdict.is_good(), "md does not agree with itself on {name}");
        if let Some(rewritten) = &verdict.rewritten {
            let streams = [array.seed, array.seed + 1, array.seed + 2];
            let expected = content::bytes(&streams, array.sectors)?;
            let expected = content::sha256(&bench.folder, &expected)?;
            ensure!(*rewritten == expected, "md does not find its own writes on {name}");
            ensure!(verdict.images.iter().all(|image| image.is_file()), "{name}: members are gone");
        }
    }
    Ok(made.len())
}

/// Judges one array of each level with redundancy, with every loss that it must survive.
pub(crate) fn degraded(bench: &Bench, made: &[MadeArray]) -> Result<usize> {
    let mut seen = BTreeSet::new();
    let mut given = Vec::new();
    for array in made.iter().filter(|array| seen.insert(array.spec.level)) {
        let losses = array.spec.tolerated_losses();
        given.extend(losses.iter().skip(1).map(|lost| give(array, lost)));
    }
    let verdicts = bench.reverse(&given, "proof-degraded")?;
    let count = verdicts.len();
    for verdict in verdicts {
        let verdict = verdict?;
        ensure!(verdict.is_good(), "a tolerated loss is not survived: {:?}", verdict.report);
    }
    Ok(count)
}

/// Judges one array of each of these levels, with one byte of data flipped on its second member.
pub(crate) fn severe(bench: &Bench, made: &[MadeArray], levels: &[Level]) -> Result<usize> {
    let mut seen = BTreeSet::new();
    let first =
        |array: &&MadeArray| levels.contains(&array.spec.level) && seen.insert(array.spec.level);
    let chosen: Vec<&MadeArray> = made.iter().filter(first).collect();
    let mut given = Vec::new();
    for array in &chosen {
        let folder = bench.folder.join("damaged").join(&array.spec.name);
        std::fs::create_dir_all(&folder)?;
        let mut damaged = give(array, &[]);
        for (slot, image) in damaged.images.iter_mut().enumerate() {
            let copy = folder.join(format!("{slot}.img"));
            std::fs::copy(image.as_ref().context("no slot is lost")?, &copy)?;
            if slot == 1 {
                flip(&copy, data_start(array, slot)? + 777)?;
            }
            *image = Some(copy);
        }
        given.push(damaged);
    }
    let verdicts = bench.reverse(&given, "proof-severe")?;
    for (array, verdict) in chosen.iter().zip(verdicts) {
        let verdict = verdict?;
        let name = &array.spec.name;
        ensure!(!verdict.is_good(), "md sees nothing wrong with a flipped byte in {name}");
        if array.spec.is_redundant() {
            ensure!(verdict.mismatches > Some(0), "md's check sees no mismatch in {name}");
        }
        if matches!(array.spec.level, Level::Linear | Level::Raid0) {
            ensure!(!verdict.same_content, "the content of {name} does not show the flip");
        }
    }
    Ok(chosen.len())
}

/// Checks that a hanging script, a failing script and a kernel panic are reported as errors.
pub(crate) fn failures(bench: &Bench) -> Result<usize> {
    let case = |name: &str, script: &str| Case {
        name: name.to_owned(),
        members: vec![Member::zeros(2048)],
        script: script.to_owned(),
    };
    let cases = vec![case("hangs", "sleep 100\n"), case("fails", "false\n"), case("ends", "")];
    let mut job = Job::new(cases, Ending::PowerOff);
    job.case_seconds = 2;
    let report = bench.guest.run(&job, &bench.folder.join("proof-failures"))?;
    let words = |name: &str| report.cases[name].succeeded().err().map(|error| error.to_string());
    ensure!(words("hangs").is_some_and(|said| said.contains("deadline")), "a hang is not told");
    ensure!(words("fails").is_some_and(|said| said.contains("ended with 1")), "nor a failure");
    ensure!(words("ends").is_none(), "a case after a hang does not run");
    let cases = vec![case("panics", "echo c >/proc/sysrq-trigger\n")];
    let panic = bench.guest.run(&Job::new(cases, Ending::PowerOff), &bench.folder.join("panic"));
    let said = panic.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(said.contains("in case panics") && said.contains("panicked"), "a panic tells: {said}");
    Ok(3)
}

/// The array as md left it, without the members of the slots in `lost`.
pub(crate) fn give(array: &MadeArray, lost: &[usize]) -> GivenArray {
    let images = array.images.iter().enumerate();
    GivenArray {
        spec: array.spec.clone(),
        images: images
            .map(|(slot, image)| (!lost.contains(&slot)).then(|| image.clone()))
            .collect(),
        sha256: array.sha256.clone(),
        rewrite: None,
        stale: Vec::new(),
        crashed: false,
        maker: Maker::Md,
    }
}

/// First byte of a member's data, from the kernel's report.
fn data_start(array: &MadeArray, slot: usize) -> Result<u64> {
    let facts = array.report.value(&format!("member.{slot}"))?;
    let offset = facts.split(' ').nth(1).context("a member's facts are slot, offset, size")?;
    Ok(offset.parse::<u64>()? * 512)
}

fn flip(path: &Path, place: u64) -> Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, place)?;
    file.write_all_at(&[byte[0] ^ 0x10], place)?;
    Ok(())
}
