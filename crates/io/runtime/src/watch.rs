//! Reports events of the array to the watcher, on a thread of its own for which no other thread
//! waits.
//!
//! A watcher writes to terminals and pipes, which may be slow, full or closed. None of that may
//! hold up an answer, so the data path only leaves the notice in a channel.

use std::time::Duration;

use braid_engine::array::Notice;

use crate::sync::flaw::{self, Flaw};
use crate::sync::mpsc::{Receiver, Sender, channel};
use crate::sync::{Mutex, thread};

/// How long a stop waits for the watcher to report the last notices.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The sending end of the watcher's channel.
pub(crate) struct Watch {
    notices: Mutex<Option<Sender<Notice>>>,
    done: Mutex<Receiver<()>>,
}

impl Watch {
    pub(crate) fn start(hear: impl Fn(Notice) + Send + 'static) -> std::io::Result<Self> {
        let (sender, notices) = channel();
        let (ended, done) = channel();
        thread::Builder::new().name("braid-watch".into()).spawn(move || {
            notices.iter().for_each(hear);
            // The send fails if the stop no longer waits.
            let _ = ended.send(());
        })?;
        Ok(Self { notices: Mutex::new(Some(sender)), done: Mutex::new(done) })
    }

    pub(crate) fn tell(&self, notice: Notice) {
        if let Some(sender) = &*self.notices.lock().expect("telling does not panic") {
            // The send fails if the watcher has died, and then the notice is lost.
            let _ = sender.send(notice);
        }
    }

    /// Ends the notices, after the watcher had a moment to report the last ones.
    pub(crate) fn end(&self) {
        if !flaw::has(Flaw::WatchNotEnded) {
            self.notices.lock().expect("telling does not panic").take();
        }
        let done = self.done.lock().expect("waiting does not panic");
        let _ = done.recv_timeout(LAST_WORDS);
    }
}
