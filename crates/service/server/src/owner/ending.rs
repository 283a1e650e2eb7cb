//! The intervals and time limits of an array's owner, the owner's errors, and its end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use braid_console::error::code::Code;
use braid_console::error::{CliError, Exit, Risk};
use braid_ownership::{Mark, TenureEnd};
use braid_store::StoreError;

/// An owner renews its record in the store each `BEAT`; an heir looks for a release each `LOOK`.
pub(super) const BEAT: Duration = Duration::from_millis(500);
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// A standby considers an owner gone if the owner's record stays unchanged for this long. This
/// limit decides only how soon the standby tries: members and the store decide who owns the array.
pub(super) const SILENCE: Duration = Duration::from_millis(3000);
/// How long an owner answers reads after members have last answered the owner.
pub(super) const LEASE: Duration = Duration::from_millis(1000);
/// How much longer than the lease an heir waits, since the clocks of two hosts differ in speed.
pub(super) const LEASE_MARGIN: Duration = Duration::from_millis(125);

/// Time for a process that ends at once to write the reason.
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

/// Ends the process, because another owner has the array or may have it. Clients get no more
/// answers, and the process writes nothing more.
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
    // A hanging reader of the output does not keep the process from ending.
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

/// Refusals by members' servers of requests by this owner, from the members' connections to the
/// keeper of the tenure.
#[derive(Clone, Default)]
pub(super) struct Refusals(Arc<Mutex<RefusalState>>);

#[derive(Default)]
struct RefusalState {
    /// The latest refusal that came before the tenure began.
    latest: Option<Mark>,
    /// The array's name and output format; set at the take-over. Then a refusal ends the process.
    ends: Option<(String, bool)>,
}

impl Refusals {
    /// Notes a refusal, on the thread of a member's connection.
    pub(super) fn take(&self, mark: Mark) {
        let mut state = self.0.lock().expect("noting does not panic");
        if state.latest.is_none_or(|latest| mark.supersedes(&latest)) {
            state.latest = Some(mark);
        }
        if let Some((name, json)) = &state.ends {
            end_at_once(name, &TenureEnd::Fenced(mark), *json);
        }
    }

    /// Ends the process if a disk's reservation is lost. Before the tenure begins, the disk's claim
    /// reports the loss.
    pub(super) fn take_loss(&self, why: &str) {
        if let Some((name, json)) = &self.0.lock().expect("noting does not panic").ends {
            end_with(Exit::Failed, (name, "reservation-lost"), why, *json);
        }
    }

    pub(super) fn latest(&self) -> Option<Mark> {
        self.0.lock().expect("noting does not panic").latest.take()
    }

    /// From now on, a member server's refusal ends the process, also one that came since the
    /// claims.
    pub(super) fn end_process(&self, name: &str, json: bool) {
        let mut state = self.0.lock().expect("noting does not panic");
        if let Some(mark) = state.latest {
            end_at_once(name, &TenureEnd::Fenced(mark), json);
        }
        state.ends = Some((name.to_owned(), json));
    }
}
