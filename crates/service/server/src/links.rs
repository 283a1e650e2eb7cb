//! The thread that checks the connections to members on other hosts, and reports lost connections
//! as events.
//!
//! ```text
//!   the array starts, or a member joins ─ it is on another host ─▶ the thread starts
//!                                                    it looks ─▶ once a second, until the end
//! ```
//!
//! An array of local members has no such thread, since a thread alone takes 64 MiB of address space
//! (malloc's arena). The caller supplies the function that looks.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval between looks at connections: a connection that is lost again and again causes one or
/// two events a second.
const LOOK_EVERY: Duration = Duration::from_secs(1);

type Look = Box<dyn FnMut() + Send>;

#[derive(Default)]
pub(super) struct LinkWatch {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The function that looks at connections, until the thread has it.
    look: Option<Look>,
    thread: Option<JoinHandle<()>>,
    is_over: bool,
}

impl LinkWatch {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the function that looks at connections. No call begins after the guard is dropped.
    pub(super) fn set(self: &Arc<Self>, look: impl FnMut() + Send + 'static) -> LinkGuard {
        self.state().look = Some(Box::new(look));
        LinkGuard(Arc::clone(self))
    }

    /// Starts the thread, because a member is on another host; does nothing if the thread runs or
    /// the array ends.
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

/// Ends the looks at connections on drop: no event about a connection follows.
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
