//! The crash matrix for md: each of md's write-hole policies on each level with parity. QEMU is
//! killed while md writes, and as many members are withheld as the level tolerates. Then md starts
//! the other members, by force if needed, and braid reads them.
//!
//! ```text
//!   md makes and fills ─▶ md is writing, killed ─▶ images without some members
//!     ─┬▶ md assembles, and reads
//!      └▶ braid serve --read-only; unreadable sectors are counted
//! ```
//!
//! The matrix counts sectors without a write in flight that read wrong. The same matrix with braid
//! as the writer is `cargo xtask crash-loop --matrix`, and in the simulator.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::super::drive::Member;
use super::super::guest::{Case, Ending, Storm};
use super::super::pattern::{self, BLOCK};
use super::super::suite::Bench;
use super::array::copy;
use super::program::Program;
use super::replaying::untouched;
use super::tally::Tally;
use super::{MEMBER_SECTORS, names, present};

/// Write-hole policies, and the levels that have them.
const POLICIES: [(&str, &[u8]); 4] =
    [("resync", &[4, 5, 6]), ("bitmap", &[4, 5, 6]), ("ppl", &[5]), ("journal", &[4, 5, 6])];
/// The seed of the stream that fills the array.
const OLD: u64 = 91;
/// The seed of the stream that md is writing when QEMU is killed.
const NEW: u64 = 92;
pub(super) const COUNTS: [&str; 3] = [
    "crashes of md under a policy",
    "sectors without a write, wrong under md, by policy",
    "sectors without a write, wrong under braid, by policy",
];

/// One write-hole policy on one level.
#[derive(Clone, Copy)]
struct Kind {
    policy: &'static str,
    level: u8,
}

impl Kind {
    fn all() -> impl Iterator<Item = Self> {
        let of_policy = |(policy, levels): (&'static str, &'static [u8])| {
            levels.iter().map(move |level| Self { policy, level: *level })
        };
        POLICIES.into_iter().flat_map(of_policy)
    }

    fn name(self) -> String {
        format!("{}-{}", self.policy, self.level)
    }

    /// The number of members with data; the journal's device, if any, follows these members.
    fn slots(self) -> usize {
        if self.level == 6 { 5 } else { 4 }
    }

    fn devices(self) -> usize {
        self.slots() + usize::from(self.policy == "journal")
    }

    /// The slots whose members are withheld after crash `number`.
    fn withheld(self, number: usize) -> Vec<usize> {
        let first = number % self.slots();
        match self.level {
            6 => vec![first, (first + 1 + number / self.slots()) % self.slots()],
            _ => vec![first],
        }
    }

    fn create(self) -> String {
        let words = match self.policy {
            "resync" => "--bitmap=none".to_owned(),
            "bitmap" => "--bitmap=internal --bitmap-chunk=64K".to_owned(),
            "ppl" => "--consistency-policy=ppl".to_owned(),
            _ => format!("--write-journal=$M{}", self.devices()),
        };
        format!(
            "mdadm --create $A --run --metadata=1.2 --level={} --raid-devices={} --homehost=oracle --assume-clean --chunk=64 {words} {}\n\
             agent fill $A {OLD}\nmdadm --stop $A\n",
            self.level,
            self.slots(),
            names(self.slots())
        )
    }
}

/// The images of an array after a crash.
struct CrashImages {
    name: String,
    kind: Kind,
    images: Vec<PathBuf>,
    /// The number of unwritten sectors that read wrong under braid, and of all unreadable sectors.
    by_braid: (u64, u64),
}

/// Runs this many crashes of each kind whose name contains `only`, and prints a line for each kind.
pub(super) fn run(
    bench: &Bench,
    program: &Program,
    (only, crashes): (&str, usize),
    tally: &Tally,
) -> Result<()> {
    let kinds: Vec<Kind> = Kind::all().filter(|kind| kind.name().contains(only)).collect();
    let folder = bench.folder.join("crashes");
    std::fs::remove_dir_all(&folder).ok();
    let case = |kind: Kind| {
        let members = vec![Member::zeros(MEMBER_SECTORS); kind.devices()];
        Case { name: kind.name(), members, script: kind.create() }
    };
    let made = folder.join("made");
    let report = bench.run(kinds.iter().copied().map(case).collect(), Ending::PowerOff, &made)?;
    let mut crashed = Vec::new();
    for kind in kinds.iter().copied() {
        report.cases[&kind.name()].succeeded()?;
        let image = |slot: usize| made.join(format!("{}/{slot}.img", kind.name()));
        let images: Vec<PathBuf> = (0..kind.devices()).map(image).collect();
        for number in 0..crashes {
            crashed.push(crash(bench, program, (kind, number, &images), &folder)?);
            tally.count("crashes of md under a policy", 1);
        }
    }
    judged_by_md(bench, (&kinds, &crashed), &folder, tally)
}

/// Kills QEMU while md writes an array; after the kill braid reads the images.
fn crash(
    bench: &Bench,
    program: &Program,
    (kind, number, made): (Kind, usize, &[PathBuf]),
    folder: &Path,
) -> Result<CrashImages> {
    let name = format!("{}-{number}", kind.name());
    let images = copy(made, &folder.join(&name))?;
    let script = format!(
        "mdadm --assemble $A {}\nagent storm $A {NEW} </dev/null 3>&- &\n",
        names(kind.devices())
    );
    let lasting = Duration::from_millis(2500 + 700 * (number as u64 % 5));
    let storm = Storm { images: &images, writes_per_second: 150, script: &script, lasting };
    bench.guest.storm(&storm, &folder.join(format!("{name}-guest")))?;
    let images = present(&images, &kind.withheld(number));
    let target = folder.join(format!("{name}.content"));
    program.salvage(&images, &target).with_context(|| name.clone())?;
    let by_braid = wrong_and_unread(&std::fs::read(&target)?);
    std::fs::remove_file(&target)?;
    Ok(CrashImages { name, kind, images, by_braid })
}

/// Counts wrong sectors outside of interrupted writes, and all unreadable sectors, which read as
/// zeroes.
fn wrong_and_unread(content: &[u8]) -> (u64, u64) {
    let (wrong, _) = pattern::wrong(OLD, NEW, 0, content);
    let (mut unread, mut of_them_untouched) = (0, 0);
    for (block, bytes) in (0..).zip(content.chunks(BLOCK)) {
        let sectors = bytes.chunks(pattern::SECTOR);
        let zeroes = sectors.filter(|sector| sector.iter().all(|byte| *byte == 0)).count() as u64;
        unread += zeroes;
        of_them_untouched += if pattern::is_stormed(block) { 0 } else { zeroes };
    }
    (wrong - of_them_untouched, unread)
}

/// md starts the images of each crash; prints a line for each policy and level.
fn judged_by_md(
    bench: &Bench,
    (kinds, crashed): (&[Kind], &[CrashImages]),
    folder: &Path,
    tally: &Tally,
) -> Result<()> {
    let case = |crashed: &CrashImages| {
        let names = names(crashed.images.len());
        let script = format!(
            "mdadm --assemble --run $A {names} || mdadm --assemble --run --force $A {names}\n\
             value wrong \"$(agent wrong $A {OLD} {NEW})\"\n"
        );
        let members =
            crashed.images.iter().map(|image| Member::image(image)).collect::<Result<_>>()?;
        Ok(Case { name: crashed.name.clone(), members, script })
    };
    let cases = crashed.iter().map(case).collect::<Result<Vec<_>>>()?;
    let report = bench.run(cases, Ending::PowerOff, &folder.join("judged"))?;
    println!(
        "policy   level  crashes  md: crashes with wrong sectors, sectors  braid: wrong  I/O errors of"
    );
    for kind in kinds.iter().copied() {
        let of_kind = crashed.iter().filter(|crashed| crashed.kind.name() == kind.name());
        let (mut crashes, mut with_wrong, mut by_md, mut by_braid, mut unread) = (0, 0, 0, 0, 0);
        for crashed in of_kind {
            let wrong = untouched(&report.cases[&crashed.name]);
            let wrong = tally.check(&crashed.name, wrong).unwrap_or(0);
            crashes += 1;
            with_wrong += usize::from(wrong > 0);
            by_md += wrong;
            by_braid += crashed.by_braid.0;
            unread += crashed.by_braid.1;
        }
        let data = kind.slots() as u64 - if kind.level == 6 { 2 } else { 1 };
        let all = crashes * data * MEMBER_SECTORS;
        println!(
            "{:<8} {:<6} {crashes:>7}  {with_wrong:>30}, {by_md:>7}  {by_braid:>12}  {unread:>8} of about {all} sectors",
            kind.policy, kind.level
        );
        tally.count("sectors without a write, wrong under md, by policy", by_md);
        let what = "sectors without a write, wrong under braid, by policy";
        tally.count(what, usize::try_from(by_braid)?);
        let fine = (by_braid == 0).then_some(()).with_context(|| format!("{by_braid} {what}"));
        tally.check(&kind.name(), fine);
    }
    ensure!(!crashed.is_empty(), "no crash was made: the trial shows nothing");
    Ok(())
}
