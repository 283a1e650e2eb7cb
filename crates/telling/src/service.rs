//! The service manager: told when the array is served and when it stops, and its watchdog fed.
//!
//! systemd's protocol (`sd_notify`). Without `$NOTIFY_SOCKET` nothing is said, and without `$WATCHDOG_USEC` there is no
//! watchdog. It is fed only when the loops that do the work answer ([`Heart`]): a process that runs and serves nothing is one
//! to restart.
//!
//! Invariants
//! - a heart that does not beat is not fed, and neither is one that hangs
//!   `[check: a_heart_that_stands_still_is_not_fed]`.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// Says whether the loops that do the work are alive.
pub trait Heart: Send + 'static {
    /// Asks them, and waits for so long at most if they can be asked so. One that cannot may hang: it is asked on a thread of
    /// its own, and is not fed meanwhile.
    fn beats(&self, patience: Duration) -> bool;
}

/// The array is served; `status` is shown by `systemctl status`.
///
/// # Errors
/// There is a socket to tell it to, and it cannot be told.
pub fn ready(status: &str) -> io::Result<()> {
    sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(&one_line(status))])
}

/// How it is now.
///
/// # Errors
/// There is a socket to tell it to, and it cannot be told.
pub fn status(status: &str) -> io::Result<()> {
    sd_notify::notify(&[NotifyState::Status(&one_line(status))])
}

/// The array is being stopped.
///
/// # Errors
/// There is a socket to tell it to, and it cannot be told.
pub fn stopping() -> io::Result<()> {
    sd_notify::notify(&[NotifyState::Stopping])
}

/// The protocol goes by lines.
fn one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

/// Feeds the watchdog until it is dropped.
#[derive(Debug)]
pub struct Watchdog {
    stop: Option<Sender<()>>,
    /// None if the thread is not waited for.
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Begins, if the service manager has one for this process.
    ///
    /// # Errors
    /// There is no thread.
    pub fn start(heart: impl Heart) -> io::Result<Option<Self>> {
        let Some(patience) = sd_notify::watchdog_enabled() else { return Ok(None) };
        // Feeding that fails shows in what the service manager does.
        let feed = || drop(sd_notify::notify(&[NotifyState::Watchdog]));
        Self::start_with(patience, heart, feed).map(Some)
    }

    fn start_with(
        patience: Duration,
        heart: impl Heart,
        feed: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        // Half of it, as sd_watchdog_enabled(3) says; and time to find out.
        let period = (patience / 2).max(Duration::from_millis(1));
        let (stop, stopped) = channel::<()>();
        let body = move || {
            loop {
                let begun = Instant::now();
                if heart.beats(period / 2) {
                    feed();
                }
                let rest = period.saturating_sub(begun.elapsed());
                if stopped.recv_timeout(rest) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("braid-watchdog".into()).spawn(body)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.stop.take());
        // One that hangs with the heart it asks is not waited for.
        if let Some(thread) = self.thread.take().filter(JoinHandle::is_finished) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
    use std::sync::mpsc::Receiver;

    use super::*;

    const BEATS: u8 = 0;
    const STANDS_STILL: u8 = 1;
    const IS_TO_HANG: u8 = 2;
    const HANGS: u8 = 3;

    struct Test(Arc<AtomicU8>, Sender<()>);

    impl Heart for Test {
        fn beats(&self, _: Duration) -> bool {
            let _ = self.1.send(());
            match self.0.load(Ordering::SeqCst) {
                BEATS => true,
                STANDS_STILL => false,
                _ => {
                    self.0.store(HANGS, Ordering::SeqCst);
                    loop {
                        std::thread::park();
                    }
                }
            }
        }
    }

    fn asked(asked: &Receiver<()>, times: usize) {
        // What was asked before does not count.
        asked.try_iter().for_each(drop);
        assert_eq!(asked.iter().take(times).count(), times);
    }

    #[test]
    fn a_heart_that_stands_still_is_not_fed() {
        let (mood, fed) = (Arc::new(AtomicU8::new(BEATS)), Arc::new(AtomicUsize::new(0)));
        let (sender, hears) = channel();
        let food = Arc::clone(&fed);
        let feed = move || {
            food.fetch_add(1, Ordering::SeqCst);
        };
        let heart = Test(Arc::clone(&mood), sender);
        let watchdog =
            Watchdog::start_with(Duration::from_millis(2), heart, feed).expect("a thread");
        asked(&hears, 3);
        assert!(fed.load(Ordering::SeqCst) >= 2);
        mood.store(STANDS_STILL, Ordering::SeqCst);
        asked(&hears, 2);
        let before = fed.load(Ordering::SeqCst);
        asked(&hears, 3);
        assert_eq!(fed.load(Ordering::SeqCst), before);
        mood.store(IS_TO_HANG, Ordering::SeqCst);
        while mood.load(Ordering::SeqCst) != HANGS {
            std::thread::yield_now();
        }
        let begun = Instant::now();
        drop(watchdog);
        assert!(begun.elapsed() < Duration::from_secs(10), "a heart that hangs is not waited for");
        assert_eq!(fed.load(Ordering::SeqCst), before);
    }
}
