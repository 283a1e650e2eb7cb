//! The one way to ask something of an array's jobs: for clients of the control socket, and for the schedule of checks.
//!
//! The schedule is asked once a minute whether a check is due; one that cannot begin (jobs are paused, a member is missing) is
//! due still, and asked for again. So a clock that jumps is noticed within a minute, and nothing is waited for longer. Where no check
//! is ever due, nothing is asked, and no processor woken.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use braid_control::model::{JobEffect, JobRequest};

use super::array::ground;
use super::jobs::{Not, decide, handed_on};
use super::setting::Running;
use crate::jobs::{Board, Due, Told};
use braid_console::output::utc::now_seconds;

/// How often the schedule is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Asks, if that can be done; with `dry_run` it says only what would come of it.
pub(super) fn ask(
    running: &Running,
    request: JobRequest,
    dry_run: bool,
) -> Result<(JobEffect, Told), Not> {
    let ground = ground(&running.volume);
    let may = |told: &Told| {
        let effect = decide(ground, told, request)?;
        Ok((!dry_run && effect != JobEffect::Nothing, (effect, told.clone())))
    };
    running.board.ask(&running.volume, handed_on(request), may)
}

/// Begins checks that are due, on a thread of its own. Dropped, it ends.
pub(crate) struct Checks {
    is_over: Arc<AtomicBool>,
    board: Arc<Board>,
    thread: Option<JoinHandle<()>>,
}

impl Checks {
    /// Starts the thread.
    ///
    /// # Errors
    /// There is none to be had.
    pub(crate) fn start(running: Running) -> io::Result<Self> {
        let (is_over, board) = (Arc::<AtomicBool>::default(), Arc::clone(&running.board));
        let told = Arc::clone(&is_over);
        let thread = std::thread::Builder::new().name("braid-checks".into());
        let thread = thread.spawn(move || begin_due(&running, &told))?;
        Ok(Self { is_over, board, thread: Some(thread) })
    }
}

fn begin_due(running: &Running, over: &AtomicBool) {
    let is_over = || over.load(Ordering::SeqCst);
    while !is_over() {
        if matches!(running.board.check_due(now_seconds()), Due::Since(_)) {
            // What cannot be now is asked for again.
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
