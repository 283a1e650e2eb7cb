//! The thread that looks at connections to members on other hosts, so that losses become events.
//!
//! ```text
//!   the array starts, or a member joins ─ it is on another host ─▶ the thread starts
//!                                                    it looks ─▶ once a second, until the end
//! ```
//!
//! An array of local members has no such thread: its memory alone would take 64 MiB of addresses
//! (malloc's arena). The caller does the look.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often connections are looked at: a connection that is lost again and again is one or two
/// events a second.
const LOOK_EVERY: Duration = Duration::from_secs(1);

type Look = Box<dyn FnMut() + Send>;

#[derive(Default)]
pub(super) struct LinkWatch {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The look, until the thread has it.
    look: Option<Look>,
    thread: Option<JoinHandle<()>>,
    is_over: bool,
}

impl LinkWatch {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the look. No look begins after the guard is dropped.
    pub(super) fn set(self: &Arc<Self>, look: impl FnMut() + Send + 'static) -> LinkGuard {
        self.state().look = Some(Box::new(look));
        LinkGuard(Arc::clone(self))
    }

    /// Starts the thread, unless it runs or the array ends: a member is on another host.
    ///
    /// # Errors
    /// The thread could not start.
    pub(super) fn start(self: &Arc<Self>) -> io::Result<()> {
        let mut state = self.state();
        let Some(mut look) = state.look.take() else { return Ok(()) };
        let watch = Arc::clone(self);
        let run = move || {
            while !watch.is_over() {
                look();
                watch.pause();
            }
        };
        state.thread = Some(std::thread::Builder::new().name("braid-links".into()).spawn(run)?);
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.state().is_over
    }

    fn pause(&self) {
        let lasts = |state: &mut State| !state.is_over;
        let waited = self.changed.wait_timeout_while(self.state(), LOOK_EVERY, lasts);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// Ends the looks on drop: no event comes after that.
pub(super) struct LinkGuard(Arc<LinkWatch>);

impl Drop for LinkGuard {
    fn drop(&mut self) {
        let thread = {
            let mut state = self.0.state();
            (state.is_over, state.look) = (true, None);
            state.thread.take()
        };
        self.0.changed.notify_all();
        if let Some(thread) = thread {
            thread.join().expect("looking does not panic");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn looks_begin_with_the_first_member_of_another_host_and_end_with_the_guard() {
        let watch = Arc::new(LinkWatch::default());
        let (sender, looked) = channel();
        let guard = watch.set(move || sender.send(()).expect("the test listens"));
        assert!(looked.recv_timeout(LOOK_EVERY * 2).is_err(), "all members are local");
        watch.start().expect("a thread");
        watch.start().expect("one is enough");
        looked.recv().expect("at once");
        looked.recv().expect("after a second");
        drop(guard);
        let _one_more = looked.try_recv();
        assert!(looked.recv().is_err(), "the thread has ended");
        watch.start().expect("nothing is left to start");
    }
}
