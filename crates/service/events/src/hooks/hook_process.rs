//! A hook in its own process: for a server that may run no program and open no connection.
//!
//! ```text
//!   server: HookProcess ──one event, a line of JSON──▶ socket ──▶ process: carry_out ──▶ hook
//!                       ◀──the result, a line──────────
//! ```
//!
//! The hook's process is started before the server gives up its rights. The process's command line
//! names the target, and the process gets only events through the socket. So an attacker in the
//! server can send false events, but run no program. When the socket ends, the process has reached
//! its deadline.
//!
//! Invariants
//! - a hook process returns the result that the hook would return in the server
//!   `[check: what_comes_of_an_event_comes_back]`;
//! - the server's end does not wait for a silent hook process
//!   `[check: a_process_that_is_gone_is_an_error_and_no_wait]`.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::ending::Ending;
use crate::event::Event;
use crate::outlet::{Deliver, DeliveryError, DeliveryFailure};

/// Interval between checks of the deadline while the server waits for the hook process's answer.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    /// Why the event was not delivered; `None` if it was.
    error: Option<String>,
    may_retry: bool,
}

/// A hook as the server sees it: events go to the hook's process.
pub struct HookProcess {
    /// The hook itself, made in the server as well. This copy gives the name, decides which events
    /// the process gets, and delivers no event.
    like: Box<dyn Deliver>,
    socket: BufReader<UnixStream>,
    line: Vec<u8>,
}

impl HookProcess {
    /// A hook that runs at the other end of the socket.
    ///
    /// # Errors
    /// The socket allows no read timeout.
    pub fn new(like: Box<dyn Deliver>, socket: UnixStream) -> io::Result<Self> {
        socket.set_read_timeout(Some(LOOK_INTERVAL))?;
        Ok(Self { like, socket: BufReader::new(socket), line: Vec::new() })
    }

    fn answer(&mut self, ending: &Ending) -> Result<Answer, DeliveryError> {
        self.line.clear();
        loop {
            match self.socket.read_until(b'\n', &mut self.line) {
                Ok(_) if self.line.ends_with(b"\n") => break,
                Ok(_) => return Err(gone("it has ended")),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    if ending.allows(LOOK_INTERVAL).is_none() {
                        return Err(DeliveryError::Ended);
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(gone(&error.to_string())),
            }
        }
        serde_json::from_slice(&self.line).map_err(|error| gone(&error.to_string()))
    }
}

fn gone(why: &str) -> DeliveryError {
    DeliveryError::HookProcess(format!("the process that delivers events cannot go on: {why}"))
}

impl Deliver for HookProcess {
    fn name(&self) -> &'static str {
        self.like.name()
    }

    fn wants(&self, event: &Event) -> bool {
        self.like.wants(event)
    }

    fn deliver(&mut self, event: &Event, ending: &Ending) -> Result<(), DeliveryFailure> {
        let mut line = serde_json::to_vec(event).expect("it is made of text and numbers");
        line.push(b'\n');
        let written = self.socket.get_mut().write_all(&line);
        written.map_err(|error| DeliveryFailure::for_good(gone(&error.to_string())))?;
        match self.answer(ending).map_err(DeliveryFailure::for_good)? {
            Answer { error: None, .. } => Ok(()),
            Answer { error: Some(error), may_retry } => {
                Err(DeliveryFailure { error: DeliveryError::HookProcess(error), may_retry })
            }
        }
    }
}

/// Runs in the hook's process: delivers events from the socket until the socket ends.
///
/// # Errors
/// The socket cannot be read or written.
pub fn carry_out(mut hook: Box<dyn Deliver>, socket: UnixStream) -> io::Result<()> {
    let ending = Arc::new(Ending::default());
    let (sender, lines) = channel::<Vec<u8>>();
    let mut out = socket.try_clone()?;
    let ends = Arc::clone(&ending);
    let read = move || {
        let mut socket = BufReader::new(socket);
        let mut line = Vec::new();
        while socket.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            if sender.send(std::mem::take(&mut line)).is_err() {
                break;
            }
        }
        ends.begin(Instant::now());
    };
    std::thread::Builder::new().name("braid-events".into()).spawn(read)?;
    for line in lines {
        let answer = match serde_json::from_slice::<Event>(&line) {
            Err(error) => Answer { error: Some(error.to_string()), may_retry: false },
            Ok(event) => match hook.deliver(&event, &ending) {
                Ok(()) => Answer { error: None, may_retry: false },
                Err(DeliveryFailure { error, may_retry }) => {
                    Answer { error: Some(error.to_string()), may_retry }
                }
            },
        };
        let mut line = serde_json::to_vec(&answer).expect("it is made of text");
        line.push(b'\n');
        out.write_all(&line)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    /// A hook whose delivery fails for every second event.
    struct Second(u32);

    impl Deliver for Second {
        fn name(&self) -> &'static str {
            "second"
        }

        fn deliver(&mut self, _: &Event, _: &Ending) -> Result<(), DeliveryFailure> {
            self.0 += 1;
            match self.0.is_multiple_of(2) {
                true => Err(DeliveryFailure::for_now(DeliveryError::Answer(503))),
                false => Ok(()),
            }
        }
    }

    #[test]
    fn what_comes_of_an_event_comes_back() {
        let (here, there) = UnixStream::pair().expect("sockets");
        let process = std::thread::spawn(|| carry_out(Box::new(Second(0)), there));
        let mut hook = HookProcess::new(Box::new(Second(0)), here).expect("a hook");
        let ending = Ending::default();
        assert_eq!(hook.name(), "second");
        for event in samples::events() {
            hook.deliver(&event, &ending).expect("the first is delivered");
            let refused = hook.deliver(&event, &ending).expect_err("the second is not");
            assert!(refused.may_retry);
            assert_eq!(refused.error.to_string(), DeliveryError::Answer(503).to_string());
        }
        drop(hook);
        process.join().expect("it does not panic").expect("it ends with the socket");
    }

    #[test]
    fn a_process_that_is_gone_is_an_error_and_no_wait() {
        let (here, there) = UnixStream::pair().expect("sockets");
        let mut hook = HookProcess::new(Box::new(Second(0)), here).expect("a hook");
        let event = samples::events().into_iter().next().expect("there is one");
        let ending = Ending::default();
        ending.begin(Instant::now() + Duration::from_millis(100));
        let refused = hook.deliver(&event, &ending).expect_err("no process answers");
        assert!(matches!(refused.error, DeliveryError::Ended), "{refused:?}");
        drop(there);
        let refused = hook.deliver(&event, &Ending::default()).expect_err("the process has ended");
        assert!(
            matches!(refused.error, DeliveryError::HookProcess(_)) && !refused.may_retry,
            "{refused:?}"
        );
    }
}
