//! The one way to ask something of an array's jobs: for clients of the control socket, and for the schedule of checks.
//!
//! The schedule is asked once a minute whether a check is due; one that cannot begin (jobs are paused, a member is missing) is
//! due still, and asked for again. So a clock that jumps is noticed within a minute, and nothing is waited for longer.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use braid_control::model::{JobEffect, JobRequest};

use super::array::ground;
use super::jobs::{Not, decide, handed_on};
use super::setting::Running;
use crate::cmd::serve::jobs::{Due, Told};
use crate::output::utc::now_seconds;

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

/// Whether it is over, and a word that it is.
type Over = Arc<(Mutex<bool>, Condvar)>;

/// Begins checks that are due, on a thread of its own. Dropped, it ends.
pub(crate) struct Checks {
    over: Over,
    thread: Option<JoinHandle<()>>,
}

impl Checks {
    /// Starts the thread.
    ///
    /// # Errors
    /// There is none to be had.
    pub(crate) fn start(running: Running) -> io::Result<Self> {
        let over = Over::default();
        let told = Arc::clone(&over);
        let thread = std::thread::Builder::new().name("braid-checks".into());
        let thread = thread.spawn(move || begin_due(&running, &told))?;
        Ok(Self { over, thread: Some(thread) })
    }
}

fn begin_due(running: &Running, over: &Over) {
    let (is_over, changed) = &**over;
    loop {
        if matches!(running.board.check_due(now_seconds()), Due::Since(_)) {
            // What cannot be now is asked for again.
            let _ = ask(running, JobRequest::Check, false);
        }
        let waited = is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(waited, LOOK_EVERY, |is_over| !*is_over);
        if *waited.unwrap_or_else(PoisonError::into_inner).0 {
            return;
        }
    }
}

impl Drop for Checks {
    fn drop(&mut self) {
        let (is_over, changed) = &*self.over;
        *is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("looking at a schedule does not panic");
        }
    }
}
