//! Job state for queries: progress and pace of the current job, and how the last jobs ended.
//!
//! ```text
//!   notices (began, ended) ──▶ board ──▶ status; may an operator request another job?
//!   sampler, while a job exists ──▶ the job's progress, four times a second
//! ```
//!
//! The engine has no clock, and does not remember finished jobs. The state folder also keeps the
//! last results and the time of the next check ([`super::saved_jobs`]). The sampler's thread writes
//! the folder, so no notice waits for the disk. One lock covers both noting an operator's request
//! (a check, a pause) and passing it to the engine, so that status agrees with the engine.
//!
//! An interrupted check is over: its client is told, and may request a new check. The engine alone
//! would start the check again once the array is whole, perhaps weeks later.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use braid_control::model::{Found, FoundRun, Job, JobKind, JobState, LastJob};
use braid_engine::array::MemberId;
use braid_geometry::SECTOR_BYTES;
use braid_pace::{Progress, RemainingTime};
use braid_runtime::{JobEnd, JobProgress, JobRequest, Notice, Volume};

use super::saved_jobs::SavedJobs;
use super::schedule::{Due, Schedule};
use super::words::{model_kind, result, run};
use crate::health::absolute;
use braid_console::output::utc::{now_seconds, rfc3339_utc};

/// Interval between samples of a job; the job's pace is known after a second.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);

/// Runs of a check's findings to keep, with neighbours merged. Further runs are only counted.
const RUNS_MAX: usize = 100;

#[derive(Debug)]
pub(crate) struct Board {
    noted: Mutex<BoardState>,
    /// Path of the saved state; `None` for a read-only array. The lock is held during a write.
    file: Mutex<Option<PathBuf>>,
    changed: Condvar,
    /// The moment from which the board counts monotonic times.
    start: Instant,
}

#[derive(Debug, Default)]
struct BoardState {
    is_paused: bool,
    /// The requested check, if any.
    wanted: Option<JobRequest>,
    /// The check was interrupted and is over, but the engine has not been told yet.
    is_check_cut: bool,
    under_way: Option<UnderWay>,
    last: BTreeMap<JobKind, LastJob>,
    ended_count: u64,
    schedule: Schedule,
    /// The saved state lacks a change that the board has.
    is_unsaved: bool,
    is_over: bool,
}

#[derive(Debug)]
struct UnderWay {
    kind: JobKind,
    from_bytes: u64,
    total_bytes: u64,
    began: String,
    began_at: Instant,
    pace: Progress,
    runs: Vec<FoundRun>,
    more_runs: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JobsSnapshot {
    pub(crate) jobs: Vec<Job>,
    pub(crate) last: Vec<LastJob>,
    pub(crate) is_paused: bool,
}

impl Board {
    /// Board of an array about to be started. `saved` is the saved state; `file` is its path, if
    /// the state is to be saved.
    pub(crate) fn new(is_paused: bool, saved: SavedJobs, file: Option<PathBuf>) -> Self {
        let SavedJobs { ended_count, last, schedule } = saved;
        let last = last.into_iter().map(|job| (job.kind, job)).collect();
        let noted = BoardState { is_paused, last, ended_count, schedule, ..BoardState::default() };
        let (noted, file) = (Mutex::new(noted), Mutex::new(file));
        Self { noted, file, changed: Condvar::new(), start: Instant::now() }
    }

    pub(crate) fn check_every(&self) -> Option<u64> {
        self.noted().schedule.every_seconds
    }

    /// When the next check is due, given the current time.
    pub(crate) fn check_due(&self, now_seconds: u64) -> Due {
        self.noted().schedule.due(now_seconds)
    }

    /// Sets the interval between checks, once the interval is saved.
    ///
    /// # Errors
    /// The interval cannot be saved; then nothing is changed.
    pub(crate) fn set_check_every(
        &self,
        every_seconds: Option<u64>,
        now_seconds: u64,
    ) -> Result<(), (PathBuf, io::Error)> {
        let before = {
            let schedule = &mut self.noted().schedule;
            let before = *schedule;
            *schedule = before.set(every_seconds, now_seconds);
            before
        };
        let kept = self.save().inspect_err(|_| self.noted().schedule = before);
        self.wake();
        kept
    }

    /// Waits until the schedule of checks is to be examined, at most for `longest`; without a
    /// schedule, until one is set. Returns early if `is_over` holds when [`Self::wake`] is called.
    pub(crate) fn wait_for_check(&self, longest: Duration, is_over: impl Fn() -> bool) {
        let until = Instant::now() + longest;
        let mut noted = self.noted();
        while !is_over() {
            if noted.schedule.every_seconds.is_none() {
                noted = self.changed.wait(noted).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(noted, left);
            noted = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Makes the waiting thread examine the schedule again.
    pub(crate) fn wake(&self) {
        // The waiting thread holds the lock from its look at the schedule until it waits. Taking
        // the lock makes sure that the thread gets the signal.
        drop(self.noted());
        self.changed.notify_all();
    }

    /// Writes the saved state.
    ///
    /// # Errors
    /// The state cannot be written.
    pub(crate) fn save(&self) -> Result<(), (PathBuf, io::Error)> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(path) = &*file else { return Ok(()) };
        let saved = {
            let mut noted = self.noted();
            noted.is_unsaved = false;
            let last = noted.last.values().cloned().collect();
            SavedJobs { ended_count: noted.ended_count, last, schedule: noted.schedule }
        };
        saved.write(path).map_err(|error| (path.clone(), error))
    }

    fn noted(&self) -> MutexGuard<'_, BoardState> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Records a notice about a job; `label` returns the label of a member.
    pub(crate) fn note(&self, notice: &Notice, label: impl Fn(MemberId) -> String) {
        match notice {
            Notice::Found(found) => {
                self.noted().found(run(found, |member| absolute(&label(member))));
            }
            Notice::JobBegan(progress) => {
                self.noted().see(progress, self.now_ns());
                self.changed.notify_all();
            }
            Notice::JobEnded { progress, end } => {
                self.noted().end(progress, *end, self.now_ns());
                self.changed.notify_all();
            }
            _ => {}
        }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.noted().is_paused
    }

    /// Pauses or resumes jobs; does nothing if they are in that state already.
    pub(crate) fn set_paused(&self, volume: &Volume, is_paused: bool) {
        let request = if is_paused { JobRequest::Pause } else { JobRequest::Resume };
        let differs = |told: &JobsSnapshot| Ok::<_, Infallible>((told.is_paused != is_paused, ()));
        let Ok(()) = self.ask(volume, request, differs);
    }

    pub(crate) fn snapshot(&self, volume: &Volume) -> JobsSnapshot {
        let mut noted = self.noted();
        // Reads the job under the lock, so that the job's end cannot be noted in between.
        let job = volume.job();
        noted.snapshot(job.as_ref(), self.now_ns())
    }

    /// Passes a job request to the engine if `may` allows the request in the current state. Returns
    /// the answer of `may`.
    ///
    /// # Errors
    /// The error of `may`.
    pub(crate) fn ask<T, E>(
        &self,
        volume: &Volume,
        request: JobRequest,
        may: impl FnOnce(&JobsSnapshot) -> Result<(bool, T), E>,
    ) -> Result<T, E> {
        let mut noted = self.noted();
        let job = volume.job();
        let (is_done, answer) = may(&noted.snapshot(job.as_ref(), self.now_ns()))?;
        if is_done {
            if std::mem::take(&mut noted.is_check_cut) {
                volume.request_job(JobRequest::EndCheck);
            }
            noted.wish(request);
            volume.request_job(request);
        }
        Ok(answer)
    }

    /// Samples the job until sampling ends; calls `fails` when the jobs' state cannot be saved.
    fn sample(&self, volume: &Volume, fails: &impl Fn(&Path, &io::Error)) {
        let mut noted = self.noted();
        while !noted.is_over {
            if noted.is_unsaved {
                drop(noted);
                if let Err((path, error)) = self.save() {
                    fails(&path, &error);
                }
                noted = self.noted();
                continue;
            }
            if std::mem::take(&mut noted.is_check_cut) {
                volume.request_job(JobRequest::EndCheck);
            }
            if noted.under_way.is_none() {
                noted = self.changed.wait(noted).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            if let Some(job) = volume.job() {
                noted.see(&job, self.now_ns());
            }
            let waited = self.changed.wait_timeout(noted, SAMPLE_EVERY);
            noted = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl BoardState {
    fn see(&mut self, job: &JobProgress, now_ns: u64) {
        let (kind, from_bytes) = (model_kind(job.kind), job.from * SECTOR_BYTES);
        let total_bytes = job.end * SECTOR_BYTES;
        let is_same = |one: &UnderWay| {
            (one.kind, one.from_bytes, one.total_bytes) == (kind, from_bytes, total_bytes)
        };
        if !self.under_way.as_ref().is_some_and(is_same) {
            self.under_way = Some(UnderWay {
                kind,
                from_bytes,
                total_bytes,
                began: rfc3339_utc(now_seconds()),
                began_at: Instant::now(),
                pace: Progress::new(now_ns, from_bytes, total_bytes),
                runs: Vec::new(),
                more_runs: 0,
            });
        }
        let under_way = self.under_way.as_mut().expect("one was made");
        under_way.pace.set_paused(now_ns, job.paused);
        under_way.pace.handle_done(now_ns, job.done * SECTOR_BYTES);
    }

    fn end(&mut self, job: &JobProgress, end: JobEnd, now_ns: u64) {
        self.see(job, now_ns);
        let under_way = self.under_way.take().expect("it was seen just now");
        self.ended_count += 1;
        let kind = under_way.kind;
        if kind == JobKind::Check {
            let was_wanted = self.wanted.take();
            self.is_check_cut = was_wanted.is_some() && end == JobEnd::Interrupted;
            if !self.is_check_cut {
                self.schedule.note_over(now_seconds());
            }
        }
        let found = under_way.found(job);
        let took = under_way.began_at.elapsed().as_millis();
        let last = LastJob {
            number: self.ended_count,
            kind,
            result: result(end),
            began: under_way.began,
            ended: rfc3339_utc(now_seconds()),
            took_ms: u64::try_from(took).unwrap_or(u64::MAX),
            from_bytes: under_way.from_bytes,
            done_bytes: job.done * SECTOR_BYTES,
            total_bytes: under_way.total_bytes,
            differing_sectors: job.differing,
            written_sectors: job.written,
            unmade_sectors: job.unmade,
            named_sectors: job.named,
            found,
        };
        self.last.insert(kind, last);
        self.is_unsaved = true;
    }

    fn wish(&mut self, request: JobRequest) {
        match request {
            JobRequest::Check | JobRequest::Repair | JobRequest::RetryBad => {
                self.wanted = Some(request);
            }
            JobRequest::EndCheck => self.wanted = None,
            JobRequest::Pause => self.is_paused = true,
            JobRequest::Resume => self.is_paused = false,
        }
    }

    fn snapshot(&mut self, job: Option<&JobProgress>, now_ns: u64) -> JobsSnapshot {
        let mut jobs: Vec<Job> = job.map(|job| self.job(job, now_ns)).into_iter().collect();
        let is_there = jobs.iter().any(|job| job.kind == JobKind::Check);
        if let Some(request) = self.wanted.filter(|_| !is_there) {
            jobs.push(waiting_check(request));
        }
        JobsSnapshot {
            jobs,
            last: self.last.values().cloned().collect(),
            is_paused: self.is_paused,
        }
    }

    fn job(&mut self, job: &JobProgress, now_ns: u64) -> Job {
        self.see(job, now_ns);
        // Shows the job as paused once that is requested: the engine may not have reacted yet.
        let is_paused = self.is_paused;
        let under_way = self.under_way.as_mut().expect("it was seen just now");
        let estimate = under_way.pace.estimate(now_ns);
        let seconds_left = estimate.and_then(|estimate| match estimate.remaining {
            RemainingTime::Seconds(seconds) => Some(seconds),
            RemainingTime::Long | RemainingTime::Unknown => None,
        });
        Job {
            kind: under_way.kind,
            state: if is_paused { JobState::Paused } else { JobState::Running },
            from_bytes: under_way.from_bytes,
            done_bytes: job.done * SECTOR_BYTES,
            total_bytes: under_way.total_bytes,
            percent: percent(job.done, job.end),
            bytes_per_second: estimate.map(|estimate| estimate.bytes_per_second),
            seconds_left: seconds_left.filter(|_| !is_paused),
            differing_sectors: job.differing,
            written_sectors: job.written,
            unmade_sectors: job.unmade,
            named_sectors: job.named,
            found: under_way.found(job),
        }
    }

    fn found(&mut self, run: FoundRun) {
        let Some(under_way) = &mut self.under_way else { return };
        if under_way.runs.iter_mut().any(|one| join(one, &run)) {
            return;
        }
        if under_way.runs.len() < RUNS_MAX {
            under_way.runs.push(run);
        } else {
            under_way.more_runs += 1;
        }
    }
}

impl UnderWay {
    /// The findings of the current job, if it is a check.
    fn found(&self, job: &JobProgress) -> Found {
        let mut runs = self.runs.clone();
        runs.sort_by_key(|run| (run.member_offset_bytes, run.slot));
        Found {
            repairs: job.kind == braid_runtime::JobKind::Repair,
            retries_bad: job.retries,
            located_sectors: job.located,
            repaired_sectors: job.repaired,
            ambiguous_sectors: job.ambiguous,
            runs,
            // The findings list no further runs, but count their sectors.
            more_runs: self.more_runs,
        }
    }
}

/// Merges `run` into `one`, if they are adjacent and alike in kind, slot and fate.
fn join(one: &mut FoundRun, run: &FoundRun) -> bool {
    let is_alike = (one.kind, one.slot, one.fate) == (run.kind, run.slot, run.fate)
        && one.candidate_slots == run.candidate_slots;
    let follows = |first: &FoundRun, second: &FoundRun| {
        let array = first.array_offset_bytes.map(|at| at + first.length_bytes);
        first.member_offset_bytes + first.length_bytes == second.member_offset_bytes
            && array == second.array_offset_bytes
    };
    let (is_behind, is_before) = (follows(one, run), follows(run, one));
    if !is_alike || !is_behind && !is_before {
        return false;
    }
    if is_before {
        one.member_offset_bytes = run.member_offset_bytes;
        one.array_offset_bytes = run.array_offset_bytes;
    }
    one.length_bytes += run.length_bytes;
    true
}

/// The row of a check that waits for another job.
fn waiting_check(request: JobRequest) -> Job {
    let repairs = request == JobRequest::Repair;
    let retries_bad = request == JobRequest::RetryBad;
    Job {
        kind: JobKind::Check,
        state: JobState::Waiting,
        from_bytes: 0,
        done_bytes: 0,
        total_bytes: 0,
        percent: 0.0,
        bytes_per_second: None,
        seconds_left: None,
        differing_sectors: 0,
        written_sectors: 0,
        unmade_sectors: 0,
        named_sectors: 0,
        found: Found { repairs, retries_bad, ..Found::default() },
    }
}

/// Percentage truncated to two decimals, so that it is below 100 until the job is complete.
fn percent(done: u64, end: u64) -> f64 {
    let hundredths = u128::from(done) * 10_000 / u128::from(end.max(1));
    f64::from(u32::try_from(hundredths).unwrap_or(10_000)) / 100.0
}

/// Samples jobs on its own thread, which sleeps while no job runs. Drop ends it.
pub(crate) struct Sampler {
    board: Arc<Board>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Starts the sampling thread, which calls `fails` when the jobs' state cannot be saved.
    ///
    /// # Errors
    /// The thread could not start.
    pub(crate) fn start(
        board: &Arc<Board>,
        volume: &Arc<Volume>,
        fails: impl Fn(&Path, &io::Error) + Send + 'static,
    ) -> io::Result<Self> {
        let (sampled, volume) = (Arc::clone(board), Arc::clone(volume));
        let thread = std::thread::Builder::new().name("braid-jobs".into());
        let thread = thread.spawn(move || sampled.sample(&volume, &fails))?;
        Ok(Self { board: Arc::clone(board), thread: Some(thread) })
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.board.noted().is_over = true;
        self.board.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("sampling does not panic");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_control::model::JobResult;

    const SECOND: u64 = 1_000_000_000;

    fn job(kind: braid_runtime::JobKind, done: u64) -> JobProgress {
        let (differing, written, located, repaired, ambiguous) = (2, 3, 1, 1, 0);
        let (from, end, paused) = (0, 1000, false);
        JobProgress {
            kind,
            from,
            done,
            end,
            differing,
            written,
            located,
            repaired,
            ambiguous,
            unmade: 0,
            named: 0,
            retries: false,
            paused,
        }
    }

    #[test]
    fn a_job_has_a_pace_once_it_was_looked_at_for_a_while() {
        let mut noted = BoardState::default();
        let at = |seconds: u64| job(braid_runtime::JobKind::Recovery, seconds * 100);
        for second in 0..=4 {
            noted.see(&at(second), second * SECOND);
        }
        let told = noted.snapshot(Some(&at(5)), 5 * SECOND);
        let one = &told.jobs[0];
        assert_eq!((one.kind, one.state), (JobKind::Recovery, JobState::Running));
        assert_eq!((one.done_bytes, one.total_bytes, one.percent), (256_000, 512_000, 50.0));
        assert_eq!((one.bytes_per_second, one.seconds_left), (Some(51_200), Some(5)));
        // The pace of one job says nothing about the next job.
        let told = noted.snapshot(Some(&job(braid_runtime::JobKind::Check, 10)), 6 * SECOND);
        assert_eq!((told.jobs[0].bytes_per_second, told.jobs[0].percent), (None, 1.0));
    }

    #[test]
    fn a_paused_job_has_no_end() {
        let mut noted = BoardState::default();
        for second in 0..5 {
            noted.see(&job(braid_runtime::JobKind::Resync, second * 100), second * SECOND);
        }
        noted.wish(JobRequest::Pause);
        let paused = job(braid_runtime::JobKind::Resync, 400);
        let one = noted.snapshot(Some(&paused), 5 * SECOND).jobs.remove(0);
        assert_eq!((one.state, one.seconds_left), (JobState::Paused, None));
    }

    #[test]
    fn a_check_waits_is_there_and_is_over_and_one_that_was_cut_is_over_too() {
        let mut noted = BoardState::default();
        let check = job(braid_runtime::JobKind::Check, 1000);
        let states = |noted: &mut BoardState, there: Option<&JobProgress>| -> Vec<JobState> {
            noted.snapshot(there, SECOND).jobs.iter().map(|job| job.state).collect()
        };
        for (end, is_cut) in [(JobEnd::Completed, false), (JobEnd::Interrupted, true)] {
            noted.wish(JobRequest::Check);
            let other = job(braid_runtime::JobKind::Recovery, 1);
            assert_eq!(states(&mut noted, Some(&other)), [JobState::Running, JobState::Waiting]);
            assert_eq!(states(&mut noted, Some(&check)), [JobState::Running]);
            noted.end(&check, end, SECOND);
            assert_eq!(states(&mut noted, None), []);
            assert_eq!(noted.is_check_cut, is_cut, "the engine is told");
        }
        let last = noted.snapshot(None, SECOND).last;
        assert_eq!((last[0].number, last[0].result), (2, JobResult::Interrupted));
        assert_eq!((last[0].differing_sectors, last[0].written_sectors), (2, 3));
        // A check that the client ended is not reported to the engine as interrupted.
        noted.is_check_cut = false;
        noted.wish(JobRequest::Check);
        noted.wish(JobRequest::EndCheck);
        noted.end(&check, JobEnd::Interrupted, SECOND);
        assert!(!noted.is_check_cut);
    }

    #[test]
    fn a_check_that_was_cut_is_due_still_and_one_that_a_person_ended_is_not() {
        let check = job(braid_runtime::JobKind::Check, 10);
        for (was_ended, end, is_over) in [
            (false, JobEnd::Completed, true),
            (false, JobEnd::Unreadable, true),
            (false, JobEnd::Interrupted, false),
            (true, JobEnd::Interrupted, true),
        ] {
            let schedule = Schedule { every_seconds: Some(86_400), counted_from: 1 };
            let mut noted = BoardState { schedule, ..BoardState::default() };
            noted.wish(JobRequest::Check);
            if was_ended {
                noted.wish(JobRequest::EndCheck);
            }
            noted.end(&check, end, SECOND);
            let is_due = matches!(noted.schedule.due(now_seconds()), Due::Since(86_401));
            assert_eq!((is_due, noted.is_unsaved), (!is_over, true), "{was_ended} {end:?}");
        }
        // The end of another job does not change the schedule of checks.
        let mut noted = BoardState::default();
        noted.end(&job(braid_runtime::JobKind::Resync, 10), JobEnd::Completed, SECOND);
        assert_eq!(noted.schedule, Schedule::default());
    }

    #[test]
    fn what_cannot_be_kept_is_not_set() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file/a.jobs");
        let board = Board::new(false, SavedJobs::default(), Some(path.clone()));
        std::fs::write(folder.path().join("file"), "").expect("a file");
        let failed = board.set_check_every(Some(86_400), 7).expect_err("a file is no folder");
        assert_eq!((failed.0, board.check_every()), (path.clone(), None));
        std::fs::remove_file(folder.path().join("file")).expect("a file");
        board.set_check_every(Some(86_400), 7).expect("it can be made");
        assert_eq!((board.check_due(7), board.check_every()), (Due::At(86_407), Some(86_400)));
        let again = Board::new(false, SavedJobs::read(&path), None);
        assert_eq!(again.check_due(7), Due::At(86_407));
    }

    #[test]
    fn who_begins_checks_sleeps_until_there_are_any_to_begin() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let (board, is_over) =
            (Board::new(false, SavedJobs::default(), None), AtomicBool::new(false));
        let (looked, looks) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    let told = || is_over.load(Ordering::SeqCst);
                    board.wait_for_check(Duration::from_millis(1), told);
                    looked.send(()).expect("it is heard");
                }
            });
            let silence = looks.recv_timeout(Duration::from_millis(50));
            assert!(silence.is_err(), "no check is ever due: a clock is not looked at");
            board.set_check_every(Some(86_400), 7).expect("it is kept nowhere");
            for _ in 0..3 {
                looks
                    .recv_timeout(Duration::from_secs(10))
                    .expect("one is to be, and it is looked");
            }
            board.set_check_every(None, 8).expect("it is kept nowhere");
            is_over.store(true, Ordering::SeqCst);
            board.wake();
        });
    }

    #[test]
    fn runs_that_touch_are_one_and_the_list_ends() {
        use braid_control::model::{FoundFate, FoundKind};
        let run = |slot: u16, at: u64| FoundRun {
            kind: FoundKind::Data,
            slot: Some(slot),
            member: Some("/dev/sda".into()),
            candidate_slots: Vec::new(),
            member_offset_bytes: at * 512,
            array_offset_bytes: Some(at * 1024),
            length_bytes: 512,
            fate: FoundFate::Repaired,
        };
        let mut noted = BoardState::default();
        let repair = job(braid_runtime::JobKind::Repair, 10);
        noted.see(&repair, SECOND);
        let next = |of: &FoundRun| FoundRun {
            member_offset_bytes: of.member_offset_bytes + 512,
            array_offset_bytes: of.array_offset_bytes.map(|at| at + 512),
            ..of.clone()
        };
        let one = run(1, 100);
        [next(&one), one, run(2, 102)].into_iter().for_each(|run| noted.found(run));
        let told = noted.snapshot(Some(&repair), SECOND).jobs.remove(0).found;
        assert!(told.repairs && told.is_repaired());
        assert_eq!((told.runs.len(), told.runs[0].length_bytes), (2, 1024));
        assert_eq!(told.runs[0].member_offset_bytes, 51_200);
        (0..200).for_each(|at| noted.found(run(3, 10_000 + 2 * at)));
        let told = noted.snapshot(Some(&repair), SECOND).jobs.remove(0).found;
        assert_eq!((told.runs.len(), told.more_runs), (RUNS_MAX, 102));
        // The findings of a check do not pass to the next job.
        noted.end(&repair, JobEnd::Completed, SECOND);
        assert_eq!(noted.snapshot(None, SECOND).last[0].found.runs.len(), RUNS_MAX);
        let check = job(braid_runtime::JobKind::Check, 10);
        assert!(noted.snapshot(Some(&check), SECOND).jobs[0].found.runs.is_empty());
    }

    #[test]
    fn only_all_of_it_is_a_hundred_percent() {
        assert_eq!([percent(0, 0), percent(0, 7), percent(7, 7)], [0.0, 0.0, 100.0]);
        assert!(percent(u64::MAX - 1, u64::MAX) < 100.0);
    }
}
