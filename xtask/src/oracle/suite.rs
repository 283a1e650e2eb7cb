//! The suites: distribution of cases over boots, and the conditions afterwards.
//!
//! `forward`: md makes arrays and writes them. `reverse`: md gets images and judges them. In
//! between, braid reads or writes the arrays; `proof` leaves braid out, to test md as the judge.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};

use super::content;
use super::drive::Member;
use super::guest::{Case, Ending, Guest, Job};
use super::report::{CaseReport, Report};
use super::script;
use super::spec::ArraySpec;

/// The environment of suites: the guest, and limits for boots.
#[derive(Clone)]
pub(crate) struct Bench {
    pub(crate) folder: PathBuf,
    pub(crate) guest: Arc<Guest>,
    pub(crate) boots: usize,
}

/// An array that md made and wrote, for braid to read.
#[derive(Clone, Debug)]
pub(crate) struct MadeArray {
    pub(crate) spec: ArraySpec,
    /// One image for each slot, in slot order.
    pub(crate) images: Vec<PathBuf>,
    /// Hash of the array's whole content, as md reads it.
    pub(crate) sha256: String,
    /// Size of the array.
    pub(crate) sectors: u64,
    /// The first of the two written streams (see `script::write`).
    pub(crate) seed: u64,
    pub(crate) report: CaseReport,
}

/// An array that braid (or md) wrote, for md to judge.
#[derive(Clone, Debug)]
pub(crate) struct GivenArray {
    /// The shape that md must find in the images.
    pub(crate) spec: ArraySpec,
    /// One image for each slot; `None` for a lost member.
    pub(crate) images: Vec<Option<PathBuf>>,
    /// Hash of the content that md must find.
    pub(crate) sha256: String,
    /// The stream that md writes to some places after reading (the second half of a round trip).
    pub(crate) rewrite: Option<u64>,
    /// Slots with stale images: md must notice, and rebuild them.
    pub(crate) stale: Vec<usize>,
    /// Whether the array was not stopped: md must call it dirty and resync it.
    pub(crate) crashed: bool,
    pub(crate) maker: Maker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Maker {
    Md,
    Braid,
}

impl GivenArray {
    /// The array's name in failures and cases. braid's arrays get a different name, since md may
    /// have an array of the same spec.
    pub(crate) fn name(&self) -> String {
        match self.maker {
            Maker::Md => self.spec.name.clone(),
            Maker::Braid => format!("{}-by-braid", self.spec.name),
        }
    }
}

/// md's verdict on a given array.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    /// Whether the content, read from a read-only array, is the expected one.
    pub(crate) same_content: bool,
    /// `mismatch_cnt` after md's `check`; `None` without redundancy.
    pub(crate) mismatches: Option<u64>,
    /// Hash of the content after md's own writes, if md wrote.
    pub(crate) rewritten: Option<String>,
    /// The members' images afterwards, in the given order.
    pub(crate) images: Vec<PathBuf>,
    pub(crate) report: CaseReport,
}

impl Verdict {
    /// Whether md found no fault.
    pub(crate) fn is_good(&self) -> bool {
        self.same_content && self.mismatches.unwrap_or(0) == 0
    }
}

impl Bench {
    /// Lets md make every array and fill it. If md fails on one array, the call returns an error
    /// and no arrays.
    pub(crate) fn forward(&self, specs: &[ArraySpec]) -> Result<Vec<MadeArray>> {
        let folder = self.folder.join("forward");
        let seeds = (1..).map(|number| number * 100);
        let cases = specs.iter().zip(seeds.clone()).map(|(spec, seed)| Case {
            name: spec.name.clone(),
            members: spec.members.iter().map(|sectors| Member::zeros(*sectors)).collect(),
            script: script::forward(spec, seed),
        });
        let report = self.run(cases.collect(), Ending::PowerOff, &folder)?;
        let made = specs.iter().zip(seeds).map(|(spec, seed)| {
            let case = &report.cases[&spec.name];
            let made = || {
                case.succeeded()?;
                let sectors = case.value("sectors")?.parse()?;
                let expected = content::bytes(&[seed, seed + 1], sectors)?;
                let expected = content::sha256(&self.folder, &expected)?;
                ensure!(case.value("sha256")? == expected, "md does not hold what was written");
                Ok::<_, anyhow::Error>(MadeArray {
                    spec: spec.clone(),
                    images: images(&folder.join(&spec.name), spec.members.len()),
                    sha256: case.value("sha256")?.to_owned(),
                    sectors,
                    seed,
                    report: case.clone(),
                })
            };
            made().with_context(|| format!("md could not make {}", spec.name))
        });
        made.collect()
    }

    /// Lets md judge every array; an array that does not start gets an error as its verdict.
    pub(crate) fn reverse(&self, given: &[GivenArray], word: &str) -> Result<Vec<Result<Verdict>>> {
        let folder = self.folder.join(word);
        let mut cases = Vec::new();
        for (index, array) in given.iter().enumerate() {
            let lost = |slot: &usize| array.images[*slot].is_none();
            let without: Vec<usize> = (0..array.images.len()).filter(lost).collect();
            let mut members = Vec::new();
            for (image, sectors) in array.images.iter().zip(&array.spec.members) {
                members.push(match image {
                    Some(image) => Member::image(image)?,
                    None => Member::zeros(*sectors),
                });
            }
            let script = match array.rewrite {
                Some(seed) => script::reverse_and_write(&array.spec, seed),
                None if array.crashed => script::crashed(&array.spec),
                None if !array.stale.is_empty() => script::rejoin(&array.spec, &array.stale),
                None => script::reverse(&array.spec, &without),
            };
            cases.push(Case { name: format!("{index}-{}", array.name()), members, script });
        }
        let names: Vec<String> = cases.iter().map(|case| case.name.clone()).collect();
        let report = self.run(cases, Ending::PowerOff, &folder)?;
        let verdicts = given.iter().zip(names).map(|(array, name)| {
            let case = &report.cases[&name];
            verdict(array, case, &folder.join(&name)).context(array.spec.name.clone())
        });
        Ok(verdicts.collect())
    }

    /// Spreads cases over parallel boots; returns one report, and puts members into `folder/CASE`.
    pub(crate) fn run(&self, cases: Vec<Case>, ending: Ending, folder: &Path) -> Result<Report> {
        self.run_jobs(cases, folder, |pile| Job::new(pile, ending))
    }

    /// Spreads cases over parallel boots as [`Self::run`] does, with other limits for boots.
    pub(crate) fn run_jobs(
        &self,
        cases: Vec<Case>,
        folder: &Path,
        job: impl Fn(Vec<Case>) -> Job,
    ) -> Result<Report> {
        if cases.is_empty() {
            return Ok(Report { done: true, ..Report::default() });
        }
        let count = self.boots.clamp(1, cases.len().max(1));
        let mut piles: Vec<Vec<Case>> = vec![Vec::new(); count];
        for (index, case) in cases.into_iter().enumerate() {
            piles[index % count].push(case);
        }
        std::fs::remove_dir_all(folder).ok();
        let reports = std::thread::scope(|scope| {
            let mut boots = Vec::new();
            for (number, pile) in piles.into_iter().enumerate() {
                let place = folder.join(format!("boot-{number}"));
                let job = job(pile);
                boots.push(scope.spawn(move || self.guest.run(&job, &place)));
            }
            let join = |boot: std::thread::ScopedJoinHandle<'_, Result<Report>>| {
                boot.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            boots.into_iter().map(join).collect::<Result<Vec<_>>>()
        })?;
        let mut whole = Report::default();
        for (number, report) in reports.into_iter().enumerate() {
            let place = folder.join(format!("boot-{number}"));
            for name in report.cases.keys() {
                std::fs::rename(place.join(name), folder.join(name))?;
            }
            whole.kernel = report.kernel;
            whole.boot_seconds = whole.boot_seconds.max(report.boot_seconds);
            whole.cases.extend(report.cases);
        }
        whole.done = true;
        Ok(whole)
    }
}

fn verdict(array: &GivenArray, case: &CaseReport, folder: &Path) -> Result<Verdict> {
    case.succeeded()?;
    let mismatches = case.values.get("mismatch_cnt").map(|count| count.parse()).transpose()?;
    let healthy = array.images.iter().all(Option::is_some);
    let lost = array.images.iter().filter(|image| image.is_none()).count() + array.stale.len();
    let degraded = case.value("degraded")?;
    ensure!(
        degraded == lost.to_string() || (degraded == "none" && lost == 0),
        "md misses {degraded} members, not {lost}"
    );
    // A dirty read-only array shows "resync=PENDING".
    let dirty = case.text("mdstat")?.contains("resync");
    ensure!(dirty == array.crashed, "md calls the array {}", if dirty { "dirty" } else { "clean" });
    if array.crashed {
        ensure!(case.value("sha256.resynced")? == array.sha256, "a resync changes the content");
    }
    if !array.stale.is_empty() {
        ensure!(case.value("degraded.rebuilt")? == "0", "md has not rebuilt what was stale");
        ensure!(case.value("sha256.rebuilt")? == array.sha256, "rebuilt, it reads differently");
    }
    ensure!(
        mismatches.is_some() == (healthy && array.spec.is_redundant()),
        "md's check was not made, or made for nothing"
    );
    Ok(Verdict {
        same_content: case.value("sha256.readonly")? == array.sha256,
        mismatches,
        rewritten: match array.rewrite {
            Some(_) => Some(case.value("sha256")?.to_owned()),
            None => None,
        },
        images: images(folder, array.images.len()),
        report: case.clone(),
    })
}

fn images(folder: &Path, count: usize) -> Vec<PathBuf> {
    (0..count).map(|slot| folder.join(format!("{slot}.img"))).collect()
}
