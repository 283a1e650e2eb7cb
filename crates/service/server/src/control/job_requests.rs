//! The single path for job requests: from clients of the control socket, and from the schedule of
//! checks.
//!
//! Once a minute a thread asks the schedule whether a check is due. A due check that cannot begin
//! (paused jobs, a missing member) stays due and is requested again. No wait is longer than a
//! minute, so the thread notices a clock that jumps within a minute. Without scheduled checks the
//! thread sleeps and wakes no processor.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use braid_control::model::{JobEffect, JobRequest};

use super::array::ground;
use super::jobs::{Not, decide, handed_on};
use super::setting::ArrayParts;
use crate::jobs::{Board, Due, JobsSnapshot};
use braid_console::output::utc::now_seconds;

/// Interval between looks at the schedule.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Requests a job, if the array allows the job. With `dry_run` it only returns the expected effect.
pub(super) fn ask(
    running: &ArrayParts,
    request: JobRequest,
    dry_run: bool,
) -> Result<(JobEffect, JobsSnapshot), Not> {
    let ground = ground(&running.volume);
    let may = |snapshot: &JobsSnapshot| {
        let effect = decide(ground, snapshot, request)?;
        Ok((!dry_run && effect != JobEffect::Nothing, (effect, snapshot.clone())))
    };
    running.board.ask(&running.volume, handed_on(request), may)
}

/// Thread that begins due checks; drop ends it.
pub(crate) struct Checks {
    is_over: Arc<AtomicBool>,
    board: Arc<Board>,
    thread: Option<JoinHandle<()>>,
}

impl Checks {
    /// # Errors
    /// The thread could not start.
    pub(crate) fn start(running: ArrayParts) -> io::Result<Self> {
        let (is_over, board) = (Arc::<AtomicBool>::default(), Arc::clone(&running.board));
        let told = Arc::clone(&is_over);
        let thread = std::thread::Builder::new().name("braid-checks".into());
        let thread = thread.spawn(move || begin_due(&running, &told))?;
        Ok(Self { is_over, board, thread: Some(thread) })
    }
}

fn begin_due(running: &ArrayParts, over: &AtomicBool) {
    let is_over = || over.load(Ordering::SeqCst);
    while !is_over() {
        if matches!(running.board.check_due(now_seconds()), Due::Since(_)) {
            // If the array refuses the check now, a later turn requests it again.
            let _ = ask(running, JobRequest::Check, false);
        }
        running.board.wait_for_check(LOOK_EVERY, is_over);
    }
}

impl Drop for Checks {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.board.wake();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("looking at a schedule does not panic");
        }
    }
}
