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
    match json {
        true => outjson!(&serde_json::json!({
            "event": "ownership-lost", "array": name, "why": end.to_string()
        })),
        false => errln!("{name}: {end}. This server has ended at once; what it answered is kept."),
    }
    braid_console::output::stdout::flush();
    std::process::exit(i32::from(Exit::Refused.number()));
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

    pub(super) fn latest(&self) -> Option<Mark> {
        self.0.lock().expect("noting does not panic").latest.take()
    }

    /// From now on a refusal ends the process.
    pub(super) fn end_process(&self, name: &str, json: bool) {
        self.0.lock().expect("noting does not panic").ends = Some((name.to_owned(), json));
    }
}
