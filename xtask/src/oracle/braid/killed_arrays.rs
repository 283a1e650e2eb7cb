//! Common checks for arrays that braid was writing when it was killed, with any write-hole policy.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::super::drive::Member;
use super::super::guest::{Case, Ending};
use super::super::pattern;
use super::super::report::Report;
use super::super::suite::Bench;
use super::array::judge;
use super::program::Program;
use super::replaying::{NEW, OLD};
use super::tally::Tally;
use super::{names, present};

/// Levels, and the number of members that gives three data columns.
pub(super) const SHAPES: [(&str, usize); 3] = [("4", 4), ("5", 4), ("6", 5)];

/// An array after a kill, with all its devices: the members in the order of slots come first.
pub(super) struct KilledArray {
    pub(super) name: String,
    pub(super) level: &'static str,
    pub(super) slots: usize,
    pub(super) images: Vec<PathBuf>,
    pub(super) file: Option<PathBuf>,
}

impl KilledArray {
    /// Options of `braid serve` for the array, in addition to its devices.
    pub(super) fn words(&self) -> Vec<&str> {
        let file = self.file.as_ref().map(|file| file.to_str().expect("the oracle's own paths"));
        file.map_or_else(Vec::new, |file| vec!["--bitmap-file", file])
    }
}

/// Fills an array with the stream of a seed.
pub(super) fn fill(
    program: &Program,
    images: &[PathBuf],
    stream: u64,
    source: &Path,
) -> Result<()> {
    std::fs::write(source, stream_of(images, stream)?)?;
    program.copy_in(images, source)?;
    std::fs::remove_file(source)?;
    Ok(())
}

/// The beginning of a stream, as long as the array.
pub(super) fn stream_of(images: &[PathBuf], stream: u64) -> Result<Vec<u8>> {
    let judged = judge(images, true)?;
    let array = judged.assembly.array.as_ref().ok().context("braid refuses it")?;
    let mut content = vec![0; usize::try_from(array.geometry.capacity_sectors() * 512)?];
    pattern::stream(stream, 0, &mut content);
    Ok(content)
}

/// Sets of slots to withhold: each slot, and with two parities each pair.
fn sets(killed: &KilledArray) -> Vec<Vec<usize>> {
    let single = (0..killed.slots).map(|slot| vec![slot]);
    let pairs = (0..killed.slots).flat_map(|one| (0..one).map(move |other| vec![other, one]));
    single.chain(pairs.filter(|_| killed.level == "6")).collect()
}

/// Checks that no set of missing members makes an unwritten sector wrong. Counts the starts of the
/// array and the wrong sectors.
pub(super) fn withheld(
    program: &Program,
    killed: &KilledArray,
    (starts, wrong): (&'static str, &'static str),
    (folder, tally): (&Path, &Tally),
) -> Result<()> {
    let target = folder.join("content");
    for missing in sets(killed) {
        program.copy_out(&killed.words(), &present(&killed.images, &missing), &target)?;
        let (untouched, _) = pattern::wrong(OLD, NEW, 0, &std::fs::read(&target)?);
        tally.count(starts, 1);
        tally.count(wrong, usize::try_from(untouched)?);
        ensure!(untouched == 0, "without {missing:?}: {untouched} {wrong}");
    }
    std::fs::remove_file(&target)?;
    Ok(())
}

/// Checks that the array reads the same if any one slot is missing.
pub(super) fn reads_alike(program: &Program, killed: &KilledArray, folder: &Path) -> Result<()> {
    let target = folder.join("content");
    program.copy_out(&killed.words(), &killed.images, &target)?;
    let whole = std::fs::read(&target)?;
    for missing in 0..killed.slots {
        program.copy_out(&killed.words(), &present(&killed.images, &[missing]), &target)?;
        ensure!(std::fs::read(&target)? == whole, "without {missing} it is something else");
    }
    std::fs::remove_file(&target)?;
    Ok(())
}

/// md starts each array, checks it, writes the stream of this seed, and stops. Returns md's reports
/// with the arrays.
pub(super) fn taken_by_md(
    bench: &Bench,
    killed: &[KilledArray],
    stream: u64,
    folder: &Path,
) -> Result<(Report, Vec<KilledArray>)> {
    let case = |killed: &KilledArray| {
        let script = format!(
            "mdadm --assemble $A {}\nstate\nvalue wrong \"$(agent wrong $A {OLD} {NEW})\"\nscrub mismatch_cnt\n\
             agent scribble $A {stream} 60\nmdadm --stop $A\n",
            names(killed.images.len())
        );
        let members =
            killed.images.iter().map(|image| Member::image(image)).collect::<Result<_>>()?;
        Ok(Case { name: killed.name.clone(), members, script })
    };
    let cases = killed.iter().map(case).collect::<Result<Vec<_>>>()?;
    let report = bench.run(cases, Ending::PowerOff, folder)?;
    let of_md = |killed: &KilledArray| {
        let KilledArray { level, slots, .. } = *killed;
        let image = |slot: usize| folder.join(format!("{}/{slot}.img", killed.name));
        let images = (0..killed.images.len()).map(image).collect();
        KilledArray { name: killed.name.clone(), level, slots, images, file: None }
    };
    Ok((report, killed.iter().map(of_md).collect()))
}
