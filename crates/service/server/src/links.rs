//! When connections to members on other hosts are looked at, so that losses become events.
//!
//! ```text
//!   the array starts, or a member joins ─▶ a look ─┬─ no member of another host: wait for a member
//!                                                  └─ others: look again after a second
//! ```
//!
//! An array of local members costs nothing while it is idle. The caller does the look.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often connections are looked at: a connection that is lost again and again is one or two
/// events a second.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct LinkWatch {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_due: bool,
    is_over: bool,
}

impl LinkWatch {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks, because a member of another host may have joined.
    pub(super) fn look(&self) {
        self.state().is_due = true;
        self.changed.notify_all();
    }

    /// Starts the thread. `look` returns whether there are connections to look at.
    ///
    /// # Errors
    /// The thread could not start.
    pub(super) fn start(
        self: &Arc<Self>,
        mut look: impl FnMut() -> bool + Send + 'static,
    ) -> io::Result<LinkThread> {
        let watch = Arc::clone(self);
        let run = move || {
            while !watch.state().is_over {
                let has_links = look();
                watch.wait(has_links);
            }
        };
        let thread = std::thread::Builder::new().name("braid-links".into()).spawn(run)?;
        Ok(LinkThread { watch: Arc::clone(self), thread: Some(thread) })
    }

    /// Waits until a look is due or the array stops.
    fn wait(&self, has_links: bool) {
        let is_idle = |state: &mut State| !state.is_due && !state.is_over;
        let mut state = if has_links {
            let waited = self.changed.wait_timeout_while(self.state(), LOOK_EVERY, is_idle);
            waited.unwrap_or_else(PoisonError::into_inner).0
        } else {
            let waited = self.changed.wait_while(self.state(), is_idle);
            waited.unwrap_or_else(PoisonError::into_inner)
        };
        state.is_due = false;
    }
}

/// Ends the looks on drop: no event comes after that.
pub(super) struct LinkThread {
    watch: Arc<LinkWatch>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for LinkThread {
    fn drop(&mut self) {
        self.watch.state().is_over = true;
        self.watch.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("looking does not panic");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn local_members_are_looked_at_when_a_member_joins_and_others_every_second() {
        let watch = Arc::new(LinkWatch::default());
        let (sender, looked) = channel();
        let (answers, answer) = channel();
        let look = move || {
            sender.send(()).expect("the test still listens");
            answer.recv().unwrap_or(false)
        };
        let thread = watch.start(look).expect("a thread");
        looked.recv().expect("at the start");
        answers.send(false).expect("it waits");
        assert!(looked.recv_timeout(LOOK_EVERY * 2).is_err(), "there is nothing to look at");
        watch.look();
        looked.recv().expect("a member has joined");
        answers.send(true).expect("it waits");
        looked.recv().expect("by itself");
        answers.send(true).expect("it waits");
        drop(answers);
        drop(thread);
        let _one_that_was_due = looked.try_recv();
        assert!(looked.recv().is_err(), "the thread has ended");
    }
}
