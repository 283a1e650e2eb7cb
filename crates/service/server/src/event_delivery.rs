//! Events of `braid serve` at destinations other than its own output: the history, a command, a web
//! server, mail.
//!
//! Events that come before the array's start is reported wait for that report, so that the history
//! begins with it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use braid_assembly::Verdict;
use braid_events::hooks::command::OnEvent;
use braid_events::hooks::mail::{Address, Mail, SENDMAIL};
use braid_events::hooks::webhook::{PATIENCE, Url, Webhook};
use braid_events::notice::{Doubt, Mapping, Names};
use braid_events::{
    Backoff, Change, Complaint, Deliver, History, HistoryError, Identity, Kind, Listener, Moment,
    OutletNotice, Severity, Teller, Voice, history, service,
};
use braid_ondisk::format_uuid;
use braid_runtime::{MemberId, Notice, Volume};
use serde_json::json;

use super::health::{Health, absolute};
use super::hook_process;
use super::report::Reporter;
use braid_console::Globals;
use braid_console::error::code::Code;
use braid_console::error::system::system;
use braid_console::error::{CliError, Risk};
use braid_console::state::make_folders;
use braid_discovery::ready::Ready;

/// Time for hooks to deliver the last events after the array has stopped.
const GRACE: Duration = Duration::from_secs(5);

/// Destinations of events other than the history.
#[derive(Clone, Debug)]
pub struct EventConfig {
    /// A shell command to run for each event.
    pub on_event: Option<String>,
    /// Seconds after which the server ends the command for an event.
    pub on_event_timeout: u64,
    /// A web address to which the server POSTs each event.
    pub webhook: Option<String>,
    /// A mail address for critical events.
    pub mail: Option<String>,
    /// The program that sends mail.
    pub sendmail: PathBuf,
}

impl Default for EventConfig {
    fn default() -> Self {
        let sendmail = SENDMAIL.into();
        Self { on_event: None, on_event_timeout: 30, webhook: None, mail: None, sendmail }
    }
}

impl EventConfig {
    /// The configured hooks.
    ///
    /// # Errors
    /// A hook's address is invalid.
    pub fn hooks(&self, globals: &Globals) -> Result<Hooks, CliError> {
        let mut hooks: Hooks = Vec::new();
        if let Some(command) = &self.on_event {
            let script = format!("umask {:04o}; {command}", globals.umask.bits());
            let patience = Duration::from_secs(self.on_event_timeout);
            hooks.push((Box::new(OnEvent::new(script, patience)), Backoff::default()));
        }
        if let Some(url) = &self.webhook {
            let url: Url = url.parse().map_err(|error| {
                let what = "events cannot be sent to the address given to --webhook";
                let like = "braid serve --webhook https://hooks.example.org/braid MEMBER...";
                CliError::new(Code::HookInvalid, what).caused_by(&error).remedy(
                    Risk::Look,
                    "Like this",
                    like,
                )
            })?;
            hooks.push((Box::new(Webhook::new(url, PATIENCE)), Backoff::default()));
        }
        if let Some(address) = &self.mail {
            let to: Address = address.parse().map_err(|error| {
                let what = format!("mail cannot be sent to '{address}'");
                let like = "braid serve --mail root@localhost MEMBER...";
                CliError::new(Code::HookInvalid, what).caused_by(&error).remedy(
                    Risk::Look,
                    "Like this",
                    like,
                )
            })?;
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            hooks.push((Box::new(Mail::new(to, &self.sendmail, &host)), Backoff::default()));
        }
        Ok(hooks)
    }

    /// The configured hooks, each in its own process: for a server that may run no program and open
    /// no connection.
    pub(super) fn hook_processes(&self, globals: &Globals) -> Result<Hooks, CliError> {
        let mut hooks = Hooks::new();
        for (like, backoff) in self.hooks(globals)? {
            let options = self.options_of(like.name());
            hooks.push((hook_process::start(like, options, globals)?, backoff));
        }
        Ok(hooks)
    }

    /// The command-line options that configure the hook `name` and no other.
    fn options_of(&self, name: &str) -> Vec<OsString> {
        let option = |key: &str, value: &OsStr| {
            let mut word = OsString::from(format!("--{key}="));
            word.push(value);
            word
        };
        let text = |key: &str, value: &Option<String>| {
            option(key, OsStr::new(value.as_deref().unwrap_or_default()))
        };
        match name {
            "command" => vec![
                text("on-event", &self.on_event),
                option("on-event-timeout", OsStr::new(&self.on_event_timeout.to_string())),
            ],
            "webhook" => vec![text("webhook", &self.webhook)],
            "mail" => vec![text("mail", &self.mail), option("sendmail", self.sendmail.as_os_str())],
            other => unreachable!("there is no hook called {other}"),
        }
    }
}

/// Hooks that deliver events, each with the pauses between its attempts.
pub type Hooks = Vec<(Box<dyn Deliver>, Backoff)>;

/// Event delivery while the array is served.
pub(super) struct EventDelivery {
    array: String,
    teller: Teller,
    deferred: Arc<DeferredChanges>,
    mapping: Arc<Mutex<Mapping>>,
    /// The last run ended without reporting that the array stopped.
    after_crash: bool,
    is_new: bool,
}

/// Changes of the array that wait until its start is reported.
struct DeferredChanges {
    voice: Voice,
    changes: Mutex<Option<Vec<Change>>>,
}

impl DeferredChanges {
    fn tell(&self, change: Change) {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *changes {
            Some(waiting) => waiting.push(change),
            None => self.voice.tell(change),
        }
    }
}

impl EventDelivery {
    /// Begins event delivery. If the history cannot be opened, reports the error and delivers
    /// events without a history.
    pub(super) fn start(
        hooks: Hooks,
        state_dir: &Path,
        ready: &Ready,
        reporter: &Arc<Reporter>,
    ) -> Result<Self, CliError> {
        let uuid = format_uuid(&ready.array.newest.array.uuid);
        let history = match open_history(state_dir, &uuid) {
            Ok(history) => Some(history),
            Err(error) => {
                complain(reporter, &Complaint::Unwritten(&error));
                None
            }
        };
        let last = history.as_ref().and_then(History::last);
        let after_crash = last.is_some_and(|event| event.change.kind != Kind::ArrayStopped);
        let is_new = history.is_some() && last.is_none();
        let listener: Listener = {
            let reporter = Arc::clone(reporter);
            Arc::new(move |complaint| complain(&reporter, &complaint))
        };
        let identity = Identity { array: reporter.name().to_owned(), uuid };
        let teller = Teller::start(identity, history, hooks, &listener);
        let teller =
            teller.map_err(|error| system("the thread for events could not be started", &error))?;
        let deferred =
            DeferredChanges { voice: teller.voice(), changes: Mutex::new(Some(Vec::new())) };
        // Members are numbered in the order of their slots; replacements follow.
        let numbered = (0..).map(MemberId).zip(ready.array.occupants());
        let unfinished = numbered.filter(|(_, one)| !one.is_in_sync()).map(|(member, _)| member);
        let mapping = Arc::new(Mutex::new(Mapping::new(unfinished)));
        let array = reporter.name().to_owned();
        Ok(Self { array, teller, deferred: Arc::new(deferred), mapping, after_crash, is_new })
    }

    /// Turns each notice into one change, and passes the changes in one order to health, hooks,
    /// reporter and log.
    pub(super) fn of_notices(
        &self,
        reporter: &Arc<Reporter>,
        health: &Arc<Health>,
    ) -> impl Fn(&Notice) + Send + Sync + 'static {
        let (deferred, reporter, health) =
            (Arc::clone(&self.deferred), Arc::clone(reporter), Arc::clone(health));
        let mapping = Arc::clone(&self.mapping);
        move |notice| {
            // Paths are made absolute, because readers of events have another working folder.
            let member = |member| absolute(&reporter.label(member));
            let names = Names { array: reporter.name(), member: &member, doubt: reporter.doubt() };
            let change = {
                // Holds the lock until this change is queued, so that later changes follow it.
                let mut mapping = mapping.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(change) = mapping.change(notice, Moment::now(), names) else { return };
                health.note(&change);
                deferred.tell(change.clone());
                change
            };
            // The lock is released here, so a slow terminal delays only notices.
            reporter.change(&change);
            log(reporter.name(), &change);
            if change.kind.severity() == Severity::Critical {
                // `systemctl status` shows this message. If the message cannot be sent, history and
                // hooks still have the event.
                let _ = service::status(&change.message);
            }
        }
    }

    pub(super) fn of_members(&self) -> MemberEvents {
        MemberEvents {
            array: self.array.clone(),
            deferred: Arc::clone(&self.deferred),
            mapping: Arc::clone(&self.mapping),
        }
    }

    pub(super) fn started(&self, facts: &StartFacts, volume: &Volume) {
        let tell = |change: Change| {
            log(&facts.name, &change);
            self.deferred.voice.tell(change);
        };
        let mut changes = self.deferred.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let name = &facts.name;
        if self.is_new {
            tell(Change::now(Kind::NewArray, format!("{name} is served here for the first time")));
        }
        let how = match (self.after_crash, facts.dirty) {
            (true, _) => "; the last run did not end in order",
            (false, true) => "; it was not stopped cleanly",
            (false, false) => "",
        };
        let started =
            Change::now(Kind::ArrayStarted, format!("{name} has started ({}){how}", facts.level));
        let started = started
            .with("level", facts.level.as_str())
            .with("size_bytes", volume.size_bytes())
            .with("degraded", u64::from(facts.degraded))
            .with("can_lose", u64::from(facts.can_lose))
            .with("dirty", facts.dirty)
            .with("read_only", volume.is_read_only())
            .with("after_crash", self.after_crash);
        tell(started);
        if facts.degraded > 0 {
            let (degraded, can_lose) = (facts.degraded, facts.can_lose);
            let message =
                format!("{name} is degraded: {degraded} missing, {can_lose} more may be lost");
            let change = Change::now(Kind::DegradedArray, message);
            tell(
                change.with("degraded", u64::from(degraded)).with("can_lose", u64::from(can_lose)),
            );
        }
        for (member, behind) in &facts.stale {
            let message = format!(
                "{member} is an old copy ({behind} events behind) and was left out of {name}"
            );
            let change = Change::now(Kind::StaleDiskIgnored, message);
            tell(change.of(member, None).with("events_behind", *behind));
        }
        for change in changes.take().into_iter().flatten() {
            self.deferred.voice.tell(change);
        }
    }

    /// The handle that sends changes to history and hooks.
    pub(super) fn voice(&self) -> Voice {
        self.deferred.voice.clone()
    }

    /// Gives hooks a moment to deliver the last events, then ends event delivery.
    pub(super) fn end(self) {
        drop(self.teller.end(GRACE));
    }
}

/// Reports the operator's changes of members in the order in which they happen.
pub(super) struct MemberEvents {
    array: String,
    deferred: Arc<DeferredChanges>,
    mapping: Arc<Mutex<Mapping>>,
}

impl MemberEvents {
    /// Runs `act`. If it succeeds, reports its `change` and returns result and change. Notices that
    /// the array sends meanwhile are reported after the change.
    pub(super) fn around<T, E>(
        &self,
        act: impl FnOnce() -> Result<T, E>,
        change: impl FnOnce(&T) -> Change,
    ) -> Result<(T, Change), E> {
        let _what_comes_after = self.mapping.lock().unwrap_or_else(PoisonError::into_inner);
        let done = act()?;
        let change = change(&done);
        log(&self.array, &change);
        self.deferred.tell(change.clone());
        Ok((done, change))
    }
}

pub(super) struct StartFacts {
    name: String,
    level: String,
    degraded: u16,
    can_lose: u16,
    dirty: bool,
    /// Stale members, and how many events behind the newest member each is.
    stale: Vec<(String, u64)>,
}

impl StartFacts {
    pub(super) fn of(ready: &Ready, reporter: &Reporter) -> Self {
        let stale = ready.verdicts.iter().filter_map(|one| match one.verdict {
            Verdict::Stale { behind } => Some((absolute(&one.label), behind)),
            _ => None,
        });
        Self {
            name: reporter.name().to_owned(),
            level: ready.array.newest.array.level.to_string(),
            degraded: ready.array.degraded,
            can_lose: ready.array.tolerance().can_lose,
            dirty: ready.array.dirty,
            stale: stale.collect(),
        }
    }
}

fn open_history(state_dir: &Path, uuid: &str) -> Result<History, HistoryError> {
    let folder = history::folder_of(state_dir, uuid);
    let parent = folder.parent().expect("it lies in the state folder");
    make_folders(parent).map_err(|(path, source)| HistoryError::System { path, source })?;
    History::open(&folder, history::BYTES_MAX)
}

pub(super) fn logged(array: String, labels: Vec<String>) -> impl Fn(Notice) + Send + 'static {
    let mapping = Mutex::new(Mapping::default());
    move |notice| {
        let member = |id: MemberId| labels.get(usize::from(id.0)).cloned().unwrap_or_default();
        let names = Names { array: &array, member: &member, doubt: Doubt::Nothing };
        let mut mapping = mapping.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(change) = mapping.change(&notice, Moment::now(), names) {
            log(&array, &change);
        }
    }
}

fn log(array: &str, change: &Change) {
    macro_rules! write_at {
        ($level:ident) => {
            tracing::$level!(
                target: "braid::array",
                array,
                kind = %change.kind,
                member = change.subject.as_ref().map(|subject| subject.member.as_str()),
                slot = change.subject.as_ref().and_then(|subject| subject.slot),
                operation = change.cause.as_ref().map(|why| why.operation.as_str()),
                sector = change.cause.as_ref().and_then(|why| why.sector),
                sectors = change.cause.as_ref().and_then(|why| why.sectors),
                os_error = change.cause.as_ref().and_then(|why| why.os_error),
                error = change.cause.as_ref().map(|why| why.error.as_str()),
                result = change.result.as_ref().map(|result| json!(result).to_string()),
                details = (!change.details.is_empty()).then(|| json!(change.details).to_string()),
                "{}", change.message
            )
        };
    }
    match change.kind.severity() {
        Severity::Info => write_at!(info),
        Severity::Warning => write_at!(warn),
        Severity::Critical => write_at!(error),
    }
}

/// Reports a failure of event delivery itself.
fn complain(reporter: &Reporter, complaint: &Complaint<'_>) {
    let name = reporter.name();
    match complaint {
        Complaint::Unwritten(error) => {
            let text = format!(
                "events of {name} cannot be recorded: {error} (--state-dir names another folder)"
            );
            reporter.aside("history-not-kept", &json!({ "why": error.to_string() }), &text);
        }
        Complaint::WrittenAgain(lost) => {
            let text = format!(
                "events of {name} are recorded again; {lost} events are missing in the \
                         history"
            );
            reporter.aside("history-kept-again", &json!({ "lost": lost }), &text);
        }
        Complaint::Outlet(hook, OutletNotice::Failed(error)) => {
            let text = format!(
                "an event was not delivered ({hook}): {error}; no more warnings until a delivery \
                 succeeds"
            );
            let facts = json!({ "hook": hook, "why": error.to_string() });
            reporter.aside("hook-failed", &facts, &text);
        }
        Complaint::Outlet(hook, OutletNotice::Full) => {
            let text =
                format!("too many events wait to be delivered ({hook}); new ones are dropped");
            reporter.aside("hook-full", &json!({ "hook": hook }), &text);
        }
        Complaint::Outlet(hook, OutletNotice::Again(missed)) => {
            let text = format!("events are delivered again ({hook}); {missed} were not");
            reporter.aside("hook-again", &json!({ "hook": hook, "missed": missed }), &text);
        }
    }
}
