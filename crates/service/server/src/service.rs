//! The server's side of the service manager: its sockets, reports to it, and its watchdog.

use std::os::fd::OwnedFd;
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use braid_events::service::{self, Heart, Watchdog};
use braid_events::sockets::InheritedSockets;
use braid_ring::Workers;
use braid_runtime::Volume;
use serde_json::json;

use super::control::ControlSocket;
use super::report::Reporter;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};

fn refused(error: CliError) -> CliError {
    let how = "systemctl cat 'braid*.socket'";
    error.remedy(Risk::Look, "See the socket unit (FileDescriptorName=)", how)
}

const UNUSABLE: &str = "the sockets that were passed on cannot be used";

pub(super) fn inherited() -> Result<InheritedSockets, CliError> {
    InheritedSockets::take()
        .map_err(|error| refused(CliError::new(Code::UriInvalid, UNUSABLE).caused_by(&error)))
}

/// The control socket, if the service manager passed one on.
pub(super) fn control_socket(
    mut passed_on: Vec<OwnedFd>,
    is_named: bool,
) -> Result<Option<ControlSocket>, CliError> {
    let Some(socket) = passed_on.pop() else { return Ok(None) };
    let because = |why: &str| Err(refused(CliError::new(Code::UriInvalid, UNUSABLE).because(why)));
    if is_named {
        return because("a control socket was passed on, and --control names another");
    }
    if !passed_on.is_empty() {
        return because("several control sockets were passed on, and only one is allowed");
    }
    match ControlSocket::adopt(socket) {
        Ok(Some(place)) => Ok(Some(place)),
        Ok(None) => because("the control socket must be a Unix socket"),
        Err(error) => Err(refused(CliError::new(Code::UriInvalid, UNUSABLE).caused_by(&error))),
    }
}

/// Checks that the worker and shard loops still run.
struct Loops {
    volumes: Vec<Weak<Volume>>,
    workers: Option<Arc<Workers>>,
}

impl Heart for Loops {
    fn beats(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        if let Some(workers) = &self.workers {
            let (sender, answers) = channel();
            for worker in 0..workers.count() {
                let sender = sender.clone();
                let answer = move |_: &_| {
                    // The watchdog may have given up waiting for this answer.
                    let _ = sender.send(());
                };
                // The workers are being stopped. A stop has its own time limit, so this is no hang.
                if workers.post(worker, Box::new(answer)).is_err() {
                    return true;
                }
            }
            let left = || until.saturating_duration_since(Instant::now());
            if (0..workers.count()).any(|_| answers.recv_timeout(left()).is_err()) {
                return false;
            }
        }
        for volume in self.volumes.iter().filter_map(Weak::upgrade) {
            // Locks every shard and the array: hangs if one of the locks is never released.
            let _ = volume.counters();
            let _ = volume.sitting_out();
        }
        true
    }
}

pub(super) fn ready(
    volumes: &[Arc<Volume>],
    workers: Option<&Arc<Workers>>,
    (reporter, uris): (&Reporter, &[String]),
) -> Option<Watchdog> {
    let what = match volumes.len() {
        0 | 1 => reporter.name().to_owned(),
        count => format!("{count} arrays"),
    };
    let status = format!("serving {what} at {}", uris.join(", "));
    let told = service::ready(&status);
    let loops = Loops {
        volumes: volumes.iter().map(Arc::downgrade).collect(),
        workers: workers.map(Arc::clone),
    };
    let watchdog = Watchdog::start(loops);
    for error in [told.as_ref().err(), watchdog.as_ref().err()].into_iter().flatten() {
        let text = format!("the service manager cannot be notified: {error}");
        reporter.aside("service-manager", &json!({ "why": error.to_string() }), &text);
    }
    watchdog.ok().flatten()
}

pub(super) fn stopping() {
    // If the report fails, the service manager still notices the end of the process.
    let _ = service::stopping();
}
