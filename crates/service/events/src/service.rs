//! Talks to the service manager: reports when the array is served and when it stops, and feeds the
//! watchdog.
//!
//! The protocol is systemd's (`sd_notify`). Without `$NOTIFY_SOCKET` this module sends nothing, and
//! without `$WATCHDOG_USEC` there is no watchdog. The watchdog is fed only when the loops that
//! serve requests answer ([`Heart`]): a process that runs but serves nothing needs a restart.
//!
//! Invariants
//! - the watchdog is not fed while the heart stands still or hangs
//!   `[check: a_heart_that_stands_still_is_not_fed]`.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Tells whether the loops that serve requests are alive.
pub trait Heart: Send + 'static {
    /// Asks the loops for an answer, and waits for at most `patience` if the loops allow a
    /// deadline. Otherwise the call may hang: it runs on its own thread, and the watchdog is not
    /// fed meanwhile.
    fn beats(&self, patience: Duration) -> bool;
}

/// Reports that the array is served; `systemctl status` shows `status`.
///
/// # Errors
/// The socket exists, and the report cannot be sent.
pub fn ready(status: &str) -> io::Result<()> {
    notify(&format!("READY=1\nSTATUS={}\n", one_line(status)))
}

/// Reports a new status to the service manager.
///
/// # Errors
/// The socket exists, and the report cannot be sent.
pub fn status(status: &str) -> io::Result<()> {
    notify(&format!("STATUS={}\n", one_line(status)))
}

/// Reports to the service manager that the array is being stopped.
///
/// # Errors
/// The socket exists, and the report cannot be sent.
pub fn stopping() -> io::Result<()> {
    notify("STOPPING=1\n")
}

/// Sends a message, if the service manager has a socket for it. Each message uses a new,
/// unconnected socket: a confined server may still send, but not connect.
fn notify(words: &str) -> io::Result<()> {
    match std::env::var_os("NOTIFY_SOCKET") {
        None => Ok(()),
        Some(place) => send(&place, words),
    }
}

fn send(place: &OsString, words: &str) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    match place.as_bytes().strip_prefix(b"@") {
        Some(name) => socket.send_to_addr(words.as_bytes(), &SocketAddr::from_abstract_name(name)?),
        None => socket.send_to(words.as_bytes(), place),
    }
    .map(drop)
}

/// The service manager's watchdog timeout, if the watchdog watches this process.
fn watchdog() -> Option<Duration> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let is_ours = std::env::var_os("WATCHDOG_PID").is_none()
        || number("WATCHDOG_PID") == Some(u64::from(std::process::id()));
    number("WATCHDOG_USEC").filter(|time| is_ours && *time > 0).map(Duration::from_micros)
}

/// The text without newlines, because the service manager's protocol consists of lines.
fn one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

/// A guard that feeds the service manager's watchdog until it is dropped.
#[derive(Debug)]
pub struct Watchdog {
    stop: Option<Sender<()>>,
    /// The thread that feeds the watchdog; `None` if drop does not wait for it.
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts to feed the watchdog if the service manager watches this process.
    ///
    /// # Errors
    /// No thread could start.
    pub fn start(heart: impl Heart) -> io::Result<Option<Self>> {
        let Some(patience) = watchdog() else { return Ok(None) };
        // If the message cannot be sent, the service manager notices the missing message and acts.
        let feed = || drop(notify("WATCHDOG=1\n"));
        Self::start_with(patience, heart, feed).map(Some)
    }

    fn start_with(
        patience: Duration,
        heart: impl Heart,
        feed: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        // Half of the watchdog's timeout, as sd_watchdog_enabled(3) recommends. Half of this period
        // is the time for the heart's answer.
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
        // A thread that waits for a hanging heart is left running: a join would hang, too.
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

    #[test]
    fn words_come_to_sockets_of_both_kinds() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let named = UnixDatagram::bind(&path).expect("a socket");
        let name = format!("braid-service-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let hidden = UnixDatagram::bind_addr(&address).expect("a socket");
        for (place, socket) in [(path.into_os_string(), named), (format!("@{name}").into(), hidden)]
        {
            send(&place, "READY=1\n").expect("it is there");
            let mut words = [0; 16];
            assert_eq!(socket.recv(&mut words).expect("words"), 8, "{place:?}");
            assert_eq!(&words[..8], b"READY=1\n");
        }
        assert!(send(&folder.path().join("nobody").into_os_string(), "x").is_err());
    }

    fn asked(asked: &Receiver<()>, times: usize) {
        // Earlier requests to the heart do not count.
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
