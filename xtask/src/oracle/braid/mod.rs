//! Braid's side of the oracle: it reads what md made, makes what md judges, and takes turns.
//!
//! ```text
//! reading     md made -> braid reads, healthy and with every tolerated loss
//! making      braid makes and writes -> md judges (`suite::Bench::reverse`)
//! turns       md made -> braid writes -> md reads, checks, writes -> braid reads
//! handover    md begins a job -> braid ends it -> md checks; and the other way round
//! examining   `mdadm --examine` against `braid examine`, and braid's arrays against md's
//! older       arrays of newer kernels, refused here until `braid set kernel-compat` changes them
//! bitmaps     md is killed while it writes an array with a bitmap -> braid resyncs by it
//!             -> md checks; and bitmaps that come and go
//! files       bitmaps in files: md is killed and braid goes on by one, and the other way round
//! policies    partial parity logs that come and go on a running array -> md takes them, and the
//!             other way round
//! reshaping   md begins a reshape -> braid ends it -> md checks; and the other way round
//! replaying   md is killed while it writes a partial parity log; a member is withheld
//! logging     braid is killed while it writes its own log; members are withheld, and md goes on
//!             in between
//! journaling  md is killed while it writes with a journal, in either mode; members are withheld
//! crashes     md is killed under each policy it has, on each level with parity; members are
//!             withheld (`--matrix`)
//! through     braid is killed while it writes with a journal; members are withheld, md replays,
//!             writes, and braid goes on
//! places      mdadm's places of metadata and data on members of 20 GiB and 1 TiB
//!   | killed_arrays   common checks for arrays under which braid was killed
//!   | array           braid as a library, in this process
//!   | program         braid as operators run it: create, serve with nbdcopy, examine
//! tally       counts and failures
//! ```
//!
//! Most arrays are read and written through the library, since a process for each of a thousand
//! reads would cost minutes; some of every level go through the program and its NBD server.

mod array;
mod bitmaps;
mod crashes;
mod examining;
mod files;
mod handover;
mod journaling;
mod killed_arrays;
mod logging;
mod making;
mod older;
mod places;
mod policies;
mod program;
mod reading;
mod replaying;
mod reshaping;
mod tally;
mod through;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use super::share_of;
use super::spec::{ArraySpec, Level};
use super::suite::{Bench, GivenArray, MadeArray, Verdict};
use crate::each::each;
use program::Program;
use tally::Tally;

/// A part of the oracle that makes its own arrays, independent of all other parts.
#[derive(Clone, Copy)]
struct Part {
    name: &'static str,
    counts: &'static [&'static str],
    run: fn(&Bench, &Program, &Tally) -> Result<()>,
}

/// Sectors of a member, in arrays that a part makes: 24 MiB.
const MEMBER_SECTORS: u64 = 49_152;

/// The longest part comes first, so that the last parts end together. A share is every fourth part.
const PARTS: &[Part] = &[
    Part { name: "journaling", counts: &journaling::COUNTS, run: journaling::run },
    Part { name: "through", counts: &through::COUNTS, run: through::run },
    Part { name: "replaying", counts: &replaying::COUNTS, run: replaying::run },
    Part { name: "logging", counts: &logging::COUNTS, run: logging::run },
    Part {
        name: "bitmaps",
        counts: &bitmaps::COUNTS,
        run: |bench, _, tally| bitmaps::run(bench, tally),
    },
    Part { name: "reshaping", counts: &reshaping::COUNTS, run: reshaping::run_some },
    Part { name: "files", counts: &files::COUNTS, run: files::run },
    Part {
        name: "policies",
        counts: &policies::COUNTS,
        run: |bench, _, tally| policies::run(bench, tally),
    },
    Part {
        name: "crashes",
        counts: &crashes::COUNTS,
        run: |bench, program, tally| crashes::run(bench, program, ("bitmap-5", 1), tally),
    },
];

/// An array on its way between braid and md.
struct Turn {
    given: GivenArray,
    /// The seeds of the streams written so far, which make the content.
    streams: Vec<u64>,
    sectors: u64,
}

/// Compares braid with md, both ways; returns the closing line, or the number of failures.
pub(crate) fn run(
    bench: &Bench,
    made: &[MadeArray],
    (begun, share): (Instant, Option<u8>),
) -> Result<String> {
    let program = Program::build()?;
    let tally = Tally::default();
    let told = |what: &str| println!("{:6.1} s  {what}", begun.elapsed().as_secs_f64());
    reading::read(bench, &program, made, &tally);
    told(&tally.line(&["reads by braid, healthy", "reads by braid, with losses", "read over NBD"]));
    let mut turns = turns::write(bench, made, &tally);
    let of_md = turns.len();
    let shapes: Vec<&MadeArray> = made.iter().collect();
    turns.extend(making::make(bench, &program, &shapes, &tally));
    told(&tally.line(&[
        "arrays made by braid",
        "written over NBD",
        "written with a member lost",
        "left dirty by a crash",
    ]));
    examining::compare(bench, &program, made, &turns[of_md..], &tally);
    told(&tally.line(&["fields of --examine compared"]));
    let given: Vec<GivenArray> = turns.iter().map(|turn| turn.given.clone()).collect();
    let verdicts = bench.reverse(&given, "reverse")?;
    judge(&turns, &verdicts, &tally);
    told(&tally.line(&["given to md", "given degraded to md", "given stale and rebuilt by md"]));
    turns::read_back(bench, &turns, &verdicts, &tally);
    told(&tally.line(&["round trips"]));
    handover::run(bench, made, &tally)?;
    told(&tally.line(&handover::COUNTS));
    older::compare(bench, &program, made, &tally)?;
    told(&tally.line(&["logical blocks cleared for md"]));
    places::compare(bench, &tally)?;
    told(&tally.line(&["placements on large members"]));
    let parts = share_of(PARTS.to_vec(), share);
    run_parts(bench, &program, &parts, (begun, &tally))?;
    tally.close()
}

/// Runs only the crash matrix of md, with this many crashes of each kind.
pub(crate) fn run_matrix(bench: &Bench, crashes: usize) -> Result<String> {
    let (program, tally) = (Program::build()?, Tally::default());
    crashes::run(bench, &program, ("", crashes), &tally)?;
    println!("{}", tally.line(&crashes::COUNTS));
    tally.close()
}

/// Runs only the parts about bitmaps and about logs that are made and removed.
pub(crate) fn run_bitmaps(bench: &Bench, begun: Instant) -> Result<String> {
    let (program, tally) = (Program::build()?, Tally::default());
    let is_about_bitmaps = |part: &&Part| ["bitmaps", "files", "policies"].contains(&part.name);
    let parts: Vec<Part> = PARTS.iter().filter(is_about_bitmaps).copied().collect();
    run_parts(bench, &program, &parts, (begun, &tally))?;
    tally.close()
}

/// Runs only the part about reshapes, and only the kinds of reshapes whose name contains `only`.
pub(crate) fn run_reshapes(bench: &Bench, (begun, only): (Instant, &str)) -> Result<String> {
    let (program, tally) = (Program::build()?, Tally::default());
    reshaping::run(bench, &program, (only, &tally))?;
    println!("{:6.1} s  {}", begun.elapsed().as_secs_f64(), tally.line(&reshaping::COUNTS));
    tally.close()
}

/// Runs parts side by side, one boot each: a crash mostly waits for its guest to boot.
fn run_parts(
    bench: &Bench,
    program: &Program,
    parts: &[Part],
    (begun, tally): (Instant, &Tally),
) -> Result<()> {
    let alone = Bench { boots: 1, ..bench.clone() };
    let done = each(bench.boots, parts, |_, part| {
        (part.run)(&alone, program, tally).with_context(|| part.name)?;
        println!("{:6.1} s  {}", begun.elapsed().as_secs_f64(), tally.line(part.counts));
        Ok(())
    });
    done.into_iter().collect()
}

/// Counts md's verdicts on arrays that braid wrote.
fn judge(turns: &[Turn], verdicts: &[Result<Verdict>], tally: &Tally) {
    for (turn, verdict) in turns.iter().zip(verdicts) {
        let name = &turn.given.name();
        let judged =
            verdict.as_ref().map_err(|error| anyhow::anyhow!("{error:#}")).and_then(|verdict| {
                ensure!(verdict.same_content, "md reads something else than was written");
                ensure!(verdict.mismatches.unwrap_or(0) == 0, "md's check finds mismatches");
                Ok(())
            });
        if tally.take(name, judged).is_none() {
            continue;
        }
        tally.count("given to md", 1);
        if turn.given.images.iter().any(Option::is_none) || !turn.given.stale.is_empty() {
            tally.count("given degraded to md", 1);
        }
        tally.count("given stale and rebuilt by md", usize::from(!turn.given.stale.is_empty()));
    }
}

/// The first `count` arrays of every level, by index.
fn first_of_each_level<'a>(
    specs: impl Iterator<Item = &'a ArraySpec>,
    count: usize,
) -> BTreeSet<usize> {
    let mut seen: BTreeMap<Level, usize> = BTreeMap::new();
    let mut chosen = BTreeSet::new();
    for (index, spec) in specs.enumerate() {
        let so_far = seen.entry(spec.level).or_default();
        if *so_far < count {
            *so_far += 1;
            chosen.insert(index);
        }
    }
    chosen
}

/// The names of this many devices in scripts: `$M1 $M2 ...`.
fn names(count: usize) -> String {
    (1..=count).map(|number| format!("$M{number}")).collect::<Vec<_>>().join(" ")
}

fn present(images: &[PathBuf], lost: &[usize]) -> Vec<PathBuf> {
    let kept = images.iter().enumerate().filter(|(slot, _)| !lost.contains(slot));
    kept.map(|(_, image)| image.clone()).collect()
}

/// The reason why braid must refuse an array that md runs; `None` if braid must start it.
///
/// Far sets arise only outside mdadm. A raid0 of 0.90 with unequal members is ambiguous on disk.
fn must_refuse(spec: &ArraySpec) -> Option<&'static str> {
    use super::spec::Making;
    match spec.making {
        Making::PatchedFarSets(_) | Making::PatchedLinear => Some("geometry"),
        Making::Mdadm | Making::Takeover => None,
    }
}
