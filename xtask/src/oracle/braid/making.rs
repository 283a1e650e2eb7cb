//! Braid makes arrays and writes them, some while the arrays lose a member, for md to judge.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::super::content;
use super::super::spec::ArraySpec;
use super::super::suite::{Bench, GivenArray, MadeArray, Maker};
use super::array::{Array, copy};
use super::program::Program;
use super::tally::Tally;
use super::{Turn, first_of_each_level, must_refuse};
use crate::each::each;

/// Number of arrays of each level that the program `braid` writes, not the library.
const SERVED_PER_LEVEL: usize = 4;
/// Number of arrays of each redundant level, for each way to lose a member.
const LOST_PER_LEVEL: usize = 5;
/// Additional sectors for members when a shape of 0.90 is made as 1.2.
const MORE_SECTORS: u64 = 6144;
const CRASHED_PER_LEVEL: usize = 2;
/// Time limit for a volume to notice that a member's file was deleted.
const NOTICE_DEADLINE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteMethod {
    Library,
    /// `nbdcopy` writes into `braid serve`.
    Served,
    /// A member misses the last writes; md gets the stale member back and must rebuild it.
    LeftOut,
    /// A member's file is deleted between the writes.
    Deleted,
    /// md gets the members of a running, dirty array, as after a crash.
    Crashed,
}

/// Makes every array of these shapes. A shape of 0.90, which braid cannot make, is made with 1.2.
pub(super) fn make(
    bench: &Bench,
    program: &Program,
    shapes: &[&MadeArray],
    tally: &Tally,
) -> Vec<Turn> {
    std::fs::remove_dir_all(bench.folder.join("making")).ok();
    let mut specs: Vec<ArraySpec> = shapes
        .iter()
        .filter(|array| must_refuse(&array.spec).is_none())
        .map(|array| creatable(&array.spec))
        .collect();
    specs.sort_by(|a, b| a.name.cmp(&b.name));
    specs.dedup_by(|a, b| a.name == b.name);
    let methods = methods(&specs);
    let plans: Vec<(ArraySpec, WriteMethod)> = specs.into_iter().zip(methods).collect();
    let turns = each(bench.boots, &plans, |index, (spec, method)| {
        let maker = ArrayMaker { bench, program, spec, seed: 100_000 + 10 * index as u64 };
        let turn = tally.take(&format!("{}-by-braid", spec.name), maker.make(*method, index));
        if turn.is_some() {
            tally.count("arrays made by braid", 1);
            tally.count("written over NBD", usize::from(*method == WriteMethod::Served));
            let lost = matches!(method, WriteMethod::LeftOut | WriteMethod::Deleted);
            tally.count("written with a member lost", usize::from(lost));
            tally.count("left dirty by a crash", usize::from(*method == WriteMethod::Crashed));
        }
        turn
    });
    turns.into_iter().flatten().collect()
}

/// The spec with braid's metadata version, and with larger members: 1.2 reserves more room.
fn creatable(spec: &ArraySpec) -> ArraySpec {
    let mut spec = spec.clone();
    if spec.metadata == "0.90" {
        spec.metadata = "1.2";
        spec.name = spec.name.replace("m0.90", "m1.2-larger");
        spec.members.iter_mut().for_each(|sectors| *sectors += MORE_SECTORS);
        spec.making = super::super::spec::Making::Mdadm;
    }
    spec
}

/// Assigns each array a way of writing, in turn within every level.
fn methods(specs: &[ArraySpec]) -> Vec<WriteMethod> {
    let served = first_of_each_level(specs.iter(), SERVED_PER_LEVEL);
    let with = |more: usize| first_of_each_level(specs.iter(), SERVED_PER_LEVEL + more);
    let crashed = with(CRASHED_PER_LEVEL);
    let lost = |times: usize| with(CRASHED_PER_LEVEL + times * LOST_PER_LEVEL);
    let (left_out, deleted) = (lost(1), lost(2));
    let method = |(index, spec): (usize, &ArraySpec)| {
        if served.contains(&index) {
            WriteMethod::Served
        } else if !spec.is_redundant() {
            WriteMethod::Library
        } else if crashed.contains(&index) {
            WriteMethod::Crashed
        } else if left_out.contains(&index) {
            WriteMethod::LeftOut
        } else if deleted.contains(&index) {
            WriteMethod::Deleted
        } else {
            WriteMethod::Library
        }
    };
    specs.iter().enumerate().map(method).collect()
}

struct ArrayMaker<'a> {
    bench: &'a Bench,
    program: &'a Program,
    spec: &'a ArraySpec,
    seed: u64,
}

impl ArrayMaker<'_> {
    fn make(&self, method: WriteMethod, index: usize) -> Result<Turn> {
        let folder = self.bench.folder.join("making").join(&self.spec.name);
        std::fs::create_dir_all(&folder)?;
        let images: Vec<PathBuf> =
            (0..self.spec.members.len()).map(|slot| folder.join(format!("{slot}.img"))).collect();
        self.program.create(self.spec, &images)?;
        let slot = index % images.len();
        let mut given: Vec<Option<PathBuf>> = images.iter().cloned().map(Some).collect();
        let (mut stale, mut rewrite) = (Vec::new(), None);
        let mut streams = vec![self.seed, self.seed + 1, self.seed + 2];
        let sectors = match method {
            WriteMethod::Library => {
                rewrite = index.is_multiple_of(2).then_some(self.seed + 3);
                self.write(&images)?
            }
            WriteMethod::Served => self.serve(&images, &folder)?,
            WriteMethod::LeftOut => {
                stale.push(slot);
                self.leave_out(&images, slot)?
            }
            WriteMethod::Deleted => {
                given[slot] = None;
                streams.push(self.seed + 4);
                self.delete(&images, slot)?
            }
            WriteMethod::Crashed => {
                let after = folder.join("crashed");
                given =
                    (0..images.len()).map(|slot| Some(after.join(format!("{slot}.img")))).collect();
                self.crash(&images, &after)?
            }
        };
        let content = content::bytes(&streams, sectors)?;
        let sha256 = content::sha256(&self.bench.folder, &content)?;
        let spec = self.spec.clone();
        Ok(Turn {
            given: GivenArray {
                spec,
                images: given,
                sha256,
                rewrite,
                stale,
                crashed: method == WriteMethod::Crashed,
                maker: Maker::Braid,
            },
            streams,
            sectors,
        })
    }

    fn write(&self, images: &[PathBuf]) -> Result<u64> {
        let array = Array::open(images, false)?;
        array.fill(self.seed)?;
        array.scribble(self.seed + 1)?;
        array.scribble(self.seed + 2)?;
        let sectors = array.sectors();
        array.stop()?;
        Ok(sectors)
    }

    fn serve(&self, images: &[PathBuf], folder: &Path) -> Result<u64> {
        let sectors = Array::open(images, true)?.sectors();
        let streams = [self.seed, self.seed + 1, self.seed + 2];
        let source = folder.join("content");
        std::fs::write(&source, content::bytes(&streams, sectors)?)?;
        self.program.copy_in(images, &source)?;
        std::fs::remove_file(&source)?;
        Ok(sectors)
    }

    fn leave_out(&self, images: &[PathBuf], slot: usize) -> Result<u64> {
        let array = Array::open(images, false)?;
        array.fill(self.seed)?;
        array.scribble(self.seed + 1)?;
        array.stop()?;
        let array = Array::open(&super::present(images, &[slot]), false)?;
        array.scribble(self.seed + 2)?;
        let sectors = array.sectors();
        array.stop()?;
        Ok(sectors)
    }

    fn delete(&self, images: &[PathBuf], slot: usize) -> Result<u64> {
        let array = Array::open(images, false)?;
        array.fill(self.seed)?;
        array.scribble(self.seed + 1)?;
        std::fs::remove_file(&images[slot])?;
        // The server has not noticed the loss: part of this stream goes to the deleted file.
        array.scribble(self.seed + 2)?;
        let deadline = Instant::now() + NOTICE_DEADLINE;
        while array.missing() == 0 {
            ensure!(Instant::now() < deadline, "braid does not notice that a member is deleted");
            std::thread::sleep(Duration::from_millis(20));
        }
        array.scribble(self.seed + 4)?;
        let sectors = array.sectors();
        array.stop()?;
        Ok(sectors)
    }

    fn crash(&self, images: &[PathBuf], after: &Path) -> Result<u64> {
        let array = Array::open_to_stay_dirty(images)?;
        array.fill(self.seed)?;
        array.scribble(self.seed + 1)?;
        array.scribble(self.seed + 2)?;
        // Every write was acknowledged and flushed, and the array is copied without being stopped.
        array.flush()?;
        copy(images, after)?;
        let sectors = array.sectors();
        array.stop()?;
        Ok(sectors)
    }
}
