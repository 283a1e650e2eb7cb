//! Arrays that md made and wrote: braid must read the same content, with every tolerated loss.

use anyhow::{Context, Result, bail, ensure};

use super::super::content;
use super::super::suite::{Bench, MadeArray};
use super::array::{Array, judge};
use super::program::Program;
use super::tally::Tally;
use super::{first_of_each_level, must_refuse, present};
use crate::each::each;

/// Number of arrays of each level that are also read through the program.
const SERVED_PER_LEVEL: usize = 4;

/// Reads every array through the library and the program, whole and with every tolerated loss.
pub(super) fn read(bench: &Bench, program: &Program, made: &[MadeArray], tally: &Tally) {
    let served = first_of_each_level(made.iter().map(|array| &array.spec), SERVED_PER_LEVEL);
    each(bench.boots, made, |index, array| {
        let name = &array.spec.name;
        if let Some(code) = must_refuse(&array.spec) {
            tally.take(name, refused(array, code));
            tally.count("refused as they must be", 1);
            return;
        }
        let Some(expected) = tally.take(name, content_of(array)) else { return };
        for lost in array.spec.tolerated_losses() {
            let read = read_without(array, &lost, &expected);
            let read = read.with_context(|| format!("without slots {lost:?}"));
            let counted = if lost.is_empty() {
                "reads by braid, healthy"
            } else {
                "reads by braid, with losses"
            };
            tally.count(counted, usize::from(tally.take(name, read).is_some()));
        }
        if served.contains(&index) {
            let losses = array.spec.tolerated_losses();
            for lost in losses.first().into_iter().chain(losses.last().filter(|l| !l.is_empty())) {
                let read = read_served(bench, program, (array, lost), &expected);
                let read = read.with_context(|| format!("over NBD, without slots {lost:?}"));
                tally.count("read over NBD", usize::from(tally.take(name, read).is_some()));
            }
        }
    });
}

/// The content that md wrote: `suite::forward` has compared md's SHA-256 with it.
fn content_of(array: &MadeArray) -> Result<Vec<u8>> {
    content::bytes(&[array.seed, array.seed + 1], array.sectors)
}

fn read_without(array: &MadeArray, lost: &[usize], expected: &[u8]) -> Result<()> {
    let images = present(&array.images, lost);
    Array::open(&images, true)?.holds(expected)
}

/// Reads an array through `braid serve` and `nbdcopy`.
fn read_served(
    bench: &Bench,
    program: &Program,
    (array, lost): (&MadeArray, &[usize]),
    expected: &[u8],
) -> Result<()> {
    let folder = tempfile::tempdir_in(&bench.folder)?;
    let target = folder.path().join("content");
    program.copy_out(&[], &present(&array.images, lost), &target)?;
    ensure!(std::fs::read(&target)? == expected, "the copy is not what md wrote");
    Ok(())
}

fn refused(array: &MadeArray, code: &str) -> Result<()> {
    match judge(&array.images, true)?.assembly.array {
        Ok(_) => bail!("braid serves an array that it cannot know the layout of"),
        Err(refusal) => {
            ensure!(refusal.code() == code, "refused as {}: {refusal}", refusal.code());
            Ok(())
        }
    }
}
