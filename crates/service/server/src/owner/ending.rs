//! The periods of an owner, its errors, and its end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use braid_console::error::code::Code;
use braid_console::error::{CliError, Exit, Risk};
use braid_ownership::{Mark, TenureEnd};
use braid_store::StoreError;

/// An owner says that it lives this often, and an heir looks as often for a release.
pub(super) const BEAT: Duration = Duration::from_millis(500);
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// An owner whose record stays unchanged for this long has gone, as far as a standby knows. That
/// decides only how soon it tries: members and the store decide who owns.
pub(super) const SILENCE: Duration = Duration::from_millis(3000);
/// How long an owner that hears nothing from members answers reads.
pub(super) const LEASE: Duration = Duration::from_millis(1000);
/// How much longer an heir waits: clocks of two hosts differ in speed.
pub(super) const LEASE_MARGIN: Duration = Duration::from_millis(125);

/// How long a process that ends at once may take to say why.
const WORDS: Duration = Duration::from_millis(200);

pub(super) fn store_error(error: &StoreError) -> CliError {
    let new = |what: &str| CliError::new(Code::StoreUnusable, what).because(error.to_string());
    let error = match error {
        StoreError::Unreachable(_) => new("the store does not answer"),
        StoreError::Unconditional(_) => new("the store cannot keep two owners apart"),
        StoreError::Refused(_) | StoreError::NoRecord(_) | StoreError::Credentials(_) => {
            new("the store cannot be used")
        }
    };
    error.remedy(Risk::Look, "See what --store needs", "braid help B126")
}

/// Ends the process: another owner has the array, or may have it. No client gets an answer any
/// more, and nothing more is written.
pub(super) fn end_at_once(name: &str, end: &TenureEnd, json: bool) -> ! {
    end_with(Exit::Refused, (name, "ownership-lost"), &end.to_string(), json)
}

/// Ends the process: clients have waited for the store for too long.
pub(super) fn end_without_store(name: &str, waited: Duration, json: bool) -> ! {
    let why = format!("the store has not answered for {} s, and a write waits", waited.as_secs());
    end_with(Exit::Failed, (name, "store-away"), &why, json)
}

fn end_with(exit: Exit, (name, event): (&str, &str), why: &str, json: bool) -> ! {
    let status = i32::from(exit.number());
    // A reader of the output that hangs does not keep the process.
    std::thread::spawn(move || {
        std::thread::sleep(WORDS);
        std::process::exit(status);
    });
    match json {
        true => outjson!(&serde_json::json!({ "event": event, "array": name, "why": why })),
        false => errln!("{name}: {why}. This server has ended at once; what it answered is kept."),
    }
    braid_console::output::stdout::flush();
    std::process::exit(status);
}

/// The refusals of members' servers, on their way to the keeper of the tenure.
#[derive(Clone, Default)]
pub(super) struct Refusals(Arc<Mutex<RefusalState>>);

#[derive(Default)]
struct RefusalState {
    /// The latest refusal, before there is a tenure.
    latest: Option<Mark>,
    /// From the take-over on a refusal ends the process.
    ends: Option<(String, bool)>,
}

impl Refusals {
    /// Takes a refusal, on the thread of a connection.
    pub(super) fn take(&self, mark: Mark) {
        let mut state = self.0.lock().expect("noting does not panic");
        if state.latest.is_none_or(|latest| mark.supersedes(&latest)) {
            state.latest = Some(mark);
        }
        if let Some((name, json)) = &state.ends {
            end_at_once(name, &TenureEnd::Fenced(mark), *json);
        }
    }

    /// Takes the loss of a disk's reservation. Before there is a tenure, its claim tells.
    pub(super) fn take_loss(&self, why: &str) {
        if let Some((name, json)) = &self.0.lock().expect("noting does not panic").ends {
            end_with(Exit::Failed, (name, "reservation-lost"), why, *json);
        }
    }

    pub(super) fn latest(&self) -> Option<Mark> {
        self.0.lock().expect("noting does not panic").latest.take()
    }

    /// From now on a refusal ends the process, also one that came since the claims.
    pub(super) fn end_process(&self, name: &str, json: bool) {
        let mut state = self.0.lock().expect("noting does not panic");
        if let Some(mark) = state.latest {
            end_at_once(name, &TenureEnd::Fenced(mark), json);
        }
        state.ends = Some((name.to_owned(), json));
    }
}
