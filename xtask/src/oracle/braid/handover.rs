//! Jobs that md begins and braid ends, or vice versa: recoveries, replacements and resyncs.
//!
//! ```text
//! md begins     halted half way, stopped          -> braid ends it by itself  -> md checks
//! braid begins  paced, paused on the way, stopped -> md ends it by itself, and checks
//! ```
//!
//! Two facts show that the second program continues where the first stopped. One fact is the offset
//! that the second program reports. The other is damage that the test does to redundancy in
//! between. The job repairs damage above the offset; md's check must still count the damage below
//! the offset.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use braid_ondisk::Superblock;
use braid_runtime::{GovernorSettings, JobEnd, JobKind, Notice, Options};

use super::super::content;
use super::super::drive::Member;
use super::super::guest::{Case, Ending};
use super::super::report::CaseReport;
use super::super::script;
use super::super::spec::{Level, Making};
use super::super::suite::{Bench, MadeArray};
use super::array::{Array, copy, judge};
use super::present;
use super::tally::Tally;
use crate::each::each;

/// Shapes that have jobs, with their number of members. Each is tried with 0.90 and with version 1
/// superblocks.
const SHAPES: [(Level, Option<&str>, usize); 6] = [
    (Level::Raid1, None, 2),
    (Level::Raid5, Some("left-symmetric"), 4),
    (Level::Raid6, Some("left-symmetric"), 5),
    (Level::Raid10, Some("n2"), 4),
    (Level::Raid4, None, 4),
    (Level::Raid10, Some("f2"), 4),
];
/// The largest chunk: a job must stop in the middle of many rows.
const CHUNK_MAX_KIB: u32 = 64;
/// Sectors of one damaged place: the unit of md's check.
const HARM: u64 = 8;
/// Bytes of one damaged place.
const HARM_LENGTH: usize = 8 * 512;
/// Time limit for a job of a few MiB.
const PATIENCE: Duration = Duration::from_secs(90);

/// The names of the counts of jobs, by the program that begins the job.
pub(super) const COUNTS: [&str; 2] =
    ["jobs md began and braid ended", "jobs braid began and md ended"];

/// The program that begins the job; the other program ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StartingProgram {
    Md,
    Braid,
}

/// One job of one array.
struct Handover<'a> {
    array: &'a MadeArray,
    kind: JobKind,
    first: StartingProgram,
}

struct StartedJob<'a> {
    handover: &'a Handover<'a>,
    /// One image for each slot, then the image of a replacement.
    images: Vec<PathBuf>,
    /// The job's offset in the superblocks, in sectors; `None` if 0.90 cannot record one.
    offset: Option<u64>,
}

/// Hands jobs over in both directions, for every shape.
pub(super) fn run(bench: &Bench, made: &[MadeArray], tally: &Tally) -> Result<()> {
    let all = handovers(made);
    let begun = begin(bench, &all, tally)?;
    let ready = each(bench.boots, &begun, |_, begun| {
        tally.take(&begun.handover.name(), begun.hand_over(bench))
    });
    let ready: Vec<&StartedJob<'_>> =
        begun.iter().zip(ready).filter_map(|(begun, ready)| ready.map(|()| begun)).collect();
    let cases = ready.iter().map(|begun| begun.judged()).collect::<Result<Vec<_>>>()?;
    let report = bench.run(cases, Ending::PowerOff, &bench.folder.join("handover-judged"))?;
    for begun in ready {
        let name = begun.handover.name();
        let counted = COUNTS[usize::from(begun.handover.first == StartingProgram::Braid)];
        let judged = begun.judge(bench, &report.cases[&name]);
        tally.count(counted, usize::from(tally.take(&name, judged).is_some()));
    }
    Ok(())
}

fn handovers(made: &[MadeArray]) -> Vec<Handover<'_>> {
    let mut all = Vec::new();
    for (level, layout, members) in SHAPES {
        for metadata in ["0.90", "1.2"] {
            let fits = |array: &&MadeArray| {
                let spec = &array.spec;
                let is_shape =
                    (spec.level, spec.layout, spec.metadata) == (level, layout, metadata);
                let is_small = spec.chunk_kib.is_none_or(|chunk| chunk <= CHUNK_MAX_KIB);
                let is_plain = spec.making == Making::Mdadm && spec.members.len() == members;
                is_shape && is_small && is_plain
            };
            let Some(array) = made.iter().find(fits) else { continue };
            // 0.90 cannot assign two devices to one slot.
            let replace = Some(JobKind::Replace).filter(|_| metadata != "0.90");
            // With far copies, the second copy of a damaged place is elsewhere on the members.
            let resync = Some(JobKind::Resync).filter(|_| layout != Some("f2"));
            for kind in [Some(JobKind::Recovery), resync, replace].into_iter().flatten() {
                for first in [StartingProgram::Md, StartingProgram::Braid] {
                    all.push(Handover { array, kind, first });
                }
            }
        }
    }
    all
}

fn begin<'a>(bench: &Bench, all: &'a [Handover<'a>], tally: &Tally) -> Result<Vec<StartedJob<'a>>> {
    let folder = bench.folder.join("handover-begun");
    let of_md = all.iter().filter(|one| one.first == StartingProgram::Md);
    let cases = of_md.map(Handover::begun_by_md).collect::<Result<Vec<_>>>()?;
    let report = bench.run(cases, Ending::PowerOff, &folder)?;
    let begun = each(bench.boots, all, |_, one| {
        let images = match one.first {
            StartingProgram::Md => report.cases[&one.name()].succeeded().map(|()| {
                let count = one.array.spec.members.len();
                // Recovery and replacement use an additional device, so they get one more image.
                let slots: Vec<usize> = match one.kind {
                    JobKind::Recovery => (0..count - 1).chain([count]).collect(),
                    JobKind::Replace => (0..=count).collect(),
                    _ => (0..count).collect(),
                };
                let slots = slots.into_iter();
                slots.map(|slot| folder.join(one.name()).join(format!("{slot}.img"))).collect()
            }),
            StartingProgram::Braid => one.begun_by_braid(bench),
        };
        let begun = images.and_then(|images| {
            let offset = one.offset(&images)?;
            Ok((images, offset))
        });
        tally.take(&one.name(), begun)
    });
    let begun = all.iter().zip(begun).filter_map(|(handover, begun)| {
        let (images, offset) = begun?;
        Some(StartedJob { handover, images, offset })
    });
    Ok(begun.collect())
}

impl Handover<'_> {
    fn name(&self) -> String {
        let kind = match self.kind {
            JobKind::Recovery => "recovery",
            JobKind::Replace => "replace",
            _ => "resync",
        };
        let first = if self.first == StartingProgram::Md { "md" } else { "braid" };
        format!("{}-{kind}-by-{first}", self.array.spec.name)
    }

    /// Sectors of each member that the array uses.
    fn used(&self) -> Result<u64> {
        // md reports `component_size` in KiB.
        Ok(2 * self.array.report.value("component_size")?.parse::<u64>()?)
    }

    fn chunk(&self) -> u64 {
        u64::from(self.array.spec.chunk_kib.unwrap_or(64)) * 2
    }

    fn has_parity(&self) -> bool {
        matches!(self.array.spec.level, Level::Raid4 | Level::Raid5 | Level::Raid6)
    }

    /// The array's content when the job begins.
    fn content(&self) -> Result<Vec<u8>> {
        let seed = self.array.seed;
        content::bytes(&[seed, seed + 1, seed + 2], self.array.sectors)
    }

    fn begun_by_md(&self) -> Result<Case> {
        let MadeArray { spec, seed, images, .. } = self.array;
        let half = self.used()? / 2 / self.chunk() * self.chunk();
        let mut members =
            images.iter().map(|image| Member::image(image)).collect::<Result<Vec<_>>>()?;
        let script = match self.kind {
            JobKind::Recovery => {
                members.extend(spec.members.last().map(|sectors| Member::zeros(*sectors)));
                script::begin_recovery(spec, seed + 2, half)
            }
            JobKind::Replace => {
                members.extend(spec.members.last().map(|sectors| Member::zeros(*sectors)));
                script::begin_replace(spec, seed + 2, half)
            }
            _ => script::begin_resync(spec, seed + 2, half),
        };
        Ok(Case { name: self.name(), members, script })
    }

    fn begun_by_braid(&self, bench: &Bench) -> Result<Vec<PathBuf>> {
        let MadeArray { spec, seed, images, .. } = self.array;
        let folder = bench.folder.join("handover").join(self.name());
        let images = copy(images, &folder)?;
        let job_pace = GovernorSettings {
            ceiling_bytes_per_second: 1 << 20,
            window_bytes: 64 << 10,
            in_flight_max_bytes: 64 << 10,
            ..GovernorSettings::default()
        };
        let paced = Options { job_pace, ..Options::default() };
        let (array, images) = match self.kind {
            JobKind::Recovery => {
                let last = spec.members.len() - 1;
                let new = folder.join("new.img");
                File::create(&new)?.set_len(spec.members[last] * 512)?;
                let array = Array::open_unfinished(&present(&images, &[last]), &paced, |_| {})?;
                array.scribble(seed + 2)?;
                array.add(&new)?;
                (array, images[..last].iter().cloned().chain([new]).collect())
            }
            JobKind::Replace => {
                let last = spec.members.len() - 1;
                let new = folder.join("new.img");
                File::create(&new)?.set_len(spec.members[last] * 512)?;
                let array = Array::open_unfinished(&images, &paced, |_| {})?;
                array.replace(u16::try_from(last)?, &new)?;
                array.scribble(seed + 2)?;
                (array, images.iter().cloned().chain([new]).collect())
            }
            _ => {
                let array = Array::open_to_stay_dirty(&images)?;
                array.scribble(seed + 2)?;
                array.flush()?;
                let crashed = copy(&images, &folder.join("crashed"))?;
                array.stop()?;
                (Array::open_unfinished(&crashed, &paced, |_| {})?, crashed)
            }
        };
        let deadline = Instant::now() + PATIENCE;
        while array.job().is_none_or(|job| job.kind != self.kind || job.done < job.end / 3) {
            ensure!(Instant::now() < deadline, "braid's job does not begin: {:?}", array.job());
            std::thread::sleep(Duration::from_millis(5));
        }
        array.stop_job();
        Ok(images)
    }

    /// The job's offset in the superblocks of these images.
    fn offset(&self, images: &[PathBuf]) -> Result<Option<u64>> {
        let superblocks = superblocks(images)?;
        if self.kind == JobKind::Resync {
            let offset = superblocks[0].state.resync_offset;
            ensure!(offset > 0 && offset < self.array.sectors, "a resync at {offset}");
            return Ok(Some(offset));
        }
        let offset = superblocks.last().and_then(|last| last.device.recovery_offset_sectors);
        let is_said = self.array.spec.metadata != "0.90";
        ensure!(offset.is_some() == is_said, "a recovery at {offset:?}");
        let used = self.used()?;
        ensure!(
            offset.is_none_or(|offset| offset > 0 && offset < used),
            "a recovery at {offset:?}"
        );
        Ok(offset)
    }
}

impl StartedJob<'_> {
    /// Damages redundancy above and below the offset; braid ends jobs that md began.
    fn hand_over(&self, bench: &Bench) -> Result<()> {
        for sector in self.harms()? {
            let last = self.images.last().context("an array has members")?;
            let superblocks = superblocks(std::slice::from_ref(last))?;
            let at = superblocks[0].device.data_offset_sectors + sector;
            let zeros = [0; HARM_LENGTH];
            File::options().write(true).open(last)?.write_all_at(&zeros, at * 512)?;
        }
        if self.handover.first == StartingProgram::Braid {
            return Ok(());
        }
        let (tell, heard) = channel();
        let tell = Mutex::new(tell);
        let tell = move |notice| {
            let _closed = tell.lock().expect("telling does not panic").send(notice);
        };
        let array = Array::open_unfinished(&self.images, &Options::default(), tell)?;
        let progress = loop {
            let notice = heard.recv_timeout(PATIENCE).context("braid does not end the job")?;
            if let Notice::JobEnded { progress, end } = notice
                && progress.kind == self.handover.kind
            {
                ensure!(end == JobEnd::Completed, "braid's job ends as {end:?}");
                break progress;
            }
        };
        // braid works on whole bands, so it may continue at the start of a band before md's offset.
        let (from, offset) = (progress.from, self.offset.unwrap_or(0));
        let is_resumed = from <= offset && (offset == 0 || from > 0);
        ensure!(is_resumed, "braid begins at {from}, md was at {offset}");
        array.holds(&self.handover.content()?)?;
        array.stop()?;
        let folder = bench.folder.join("handover").join(self.handover.name());
        std::fs::remove_dir_all(folder).ok();
        Ok(())
    }

    /// Places of the last member to damage, in sectors of its data: below the offset, and above it.
    fn harms(&self) -> Result<Vec<u64>> {
        let one = self.handover;
        let is_resync = one.kind == JobKind::Resync;
        let mut harms = Vec::new();
        // In the first row, P of the levels with parity is on the last member.
        harms.extend((one.has_parity() && self.offset.is_some()).then_some(0));
        // P is on the last member again after as many rows as members; with near copies, so is the
        // second copy.
        if is_resync {
            let period = one.chunk() * one.array.spec.members.len() as u64;
            let last = (one.used()? - one.chunk()) / period * period;
            ensure!(
                self.offset.is_some_and(|offset| offset < last),
                "nothing is left to be resynced"
            );
            harms.push(last);
        }
        Ok(harms)
    }

    /// The case in which md judges the array.
    fn judged(&self) -> Result<Case> {
        let spec = &self.handover.array.spec;
        let (count, devices) = (spec.members.len(), self.images.len());
        // After braid's replacement the old member has left the array.
        let is_old = |place: usize| {
            let is_over = self.handover.first == StartingProgram::Md;
            is_over && self.handover.kind == JobKind::Replace && place == count - 1
        };
        let images = self.images.iter().enumerate().filter(|(place, _)| !is_old(*place));
        let members = images.map(|(_, image)| Member::image(image)).collect::<Result<_>>()?;
        let script = match (self.handover.first, self.handover.kind) {
            (StartingProgram::Md, _) => script::reverse(spec, &[]),
            (StartingProgram::Braid, JobKind::Resync) => script::end_job(devices, "resync_start"),
            (StartingProgram::Braid, _) => {
                let file = format!("dev-${{M{devices}##*/}}/recovery_start");
                script::end_job(devices, &file)
            }
        };
        Ok(Case { name: self.handover.name(), members, script })
    }

    fn judge(&self, bench: &Bench, case: &CaseReport) -> Result<()> {
        case.succeeded()?;
        let sha256 = content::sha256(&bench.folder, &self.handover.content()?)?;
        ensure!(case.value("sha256.readonly")? == sha256, "md reads something else");
        match self.handover.first {
            StartingProgram::Md => ensure!(case.value("degraded")? == "0", "md misses a member"),
            StartingProgram::Braid => {
                let resumed = case.value("resumed")?;
                if let Some(offset) = self.offset {
                    ensure!(
                        resumed == offset.to_string(),
                        "md goes on at {resumed}, braid was at {offset}"
                    );
                }
                ensure!(case.value("degraded.ended")? == "0", "md has not ended the job");
                ensure!(
                    case.value("sha256.ended")? == sha256,
                    "md reads something else at the end"
                );
            }
        }
        // No job read the damaged place below the offset again, so its damage must remain.
        let is_harmed = self.harms()?.contains(&0);
        let expected = if is_harmed { HARM } else { 0 };
        let found = case.value("mismatch_cnt")?;
        ensure!(found == expected.to_string(), "md's check finds {found}, not {expected}");
        Ok(())
    }
}

fn superblocks(images: &[PathBuf]) -> Result<Vec<Superblock>> {
    let judged = judge(images, true)?;
    let newest = |one: &braid_assembly::ProbedMember| one.probe.newest().cloned();
    judged.probed.iter().map(|one| newest(one).context("a member has a superblock")).collect()
}
