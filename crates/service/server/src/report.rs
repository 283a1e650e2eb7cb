//! Output of `braid serve` while it serves: lines for an operator on standard error, or one JSON
//! object per event on standard output.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use braid_assembly::{MemberVerdict, Reason, Tolerance};
use braid_engine::array::MemberId;
use braid_events::event::{Detail, Outcome};
use braid_events::notice::Doubt;
use braid_events::{Change, Kind, Severity};
use braid_frontend_nbd::{Counts, Notice as ClientNotice};
use braid_member::DirectError;
use braid_ondisk::format_uuid;
use braid_ring::{Limit, RingError};
use braid_runtime::Volume;
use serde_json::{Value, json};

use super::client_addresses::ClientAddresses;
use super::device::Device;
use super::lost_ranges::{LostRanges, RangeLine};
use super::parts::Part;
use braid_console::Globals;
use braid_console::error::CliError;
use braid_console::output::colour::{Paint, Style};
use braid_console::output::printable::printable;
use braid_console::output::shell::shell_word;
use braid_console::output::size::format_size;
use braid_console::signals::name_of;
use braid_discovery::ready::served_name;
use braid_discovery::ready::{Ready, is_well};
use braid_discovery::refusal::{at_risk_words, tolerance_words};
use braid_discovery::replay::ReplayResult;

pub(crate) struct Reporter {
    json: bool,
    paint: Paint,
    name: String,
    uuid: String,
    level: String,
    /// Whether the array started dirty, and so stays dirty when it stops: only a resync makes its
    /// redundancy agree.
    stays_dirty: bool,
    /// How many further losses of members the array tolerated when it was started.
    tolerance: Tolerance,
    /// Labels of members, by number. Labels of members that left stay, since later reports may name
    /// them.
    labels: RwLock<BTreeMap<u16, String>>,
    /// Whether a resync has completed since the array started.
    is_resynced: AtomicBool,
    /// Lost ranges: the watcher's thread adds them, and the main thread reports their sum.
    lost: Mutex<LostRanges>,
}

impl Reporter {
    pub(crate) fn new(globals: &Globals, ready: &Ready) -> Self {
        let facts = &ready.array.newest.array;
        let uuid = format_uuid(&facts.uuid);
        let name = served_name(&facts.name, &uuid);
        let chosen = ready.array.occupants().map(|occupant| occupant.member);
        let journal = ready.array.journal.iter().map(|journal| journal.member);
        let spares = ready.array.spares.iter().copied();
        let file = ready.array.bitmap_file.iter().map(|file| file.member);
        let in_order: Vec<usize> = chosen.chain(spares).chain(journal).chain(file).collect();
        let labels = ready.labels();
        let label = |index: &usize| labels[*index].clone();
        Self {
            json: globals.json,
            paint: globals.paint_err,
            name,
            uuid,
            level: facts.level.to_string(),
            tolerance: ready.array.tolerance(),
            stays_dirty: ready.array.dirty && ready.array.accepted_risk.is_none(),
            labels: RwLock::new((0..).zip(in_order.iter().map(label)).collect()),
            is_resynced: AtomicBool::new(false),
            lost: Mutex::default(),
        }
    }

    /// A reporter for a device that is served without an array around it.
    pub(crate) fn of_device(globals: &Globals, device: &Device) -> Self {
        Self {
            json: globals.json,
            paint: globals.paint_err,
            name: device.name.clone(),
            uuid: format_uuid(&device.uuid),
            level: device.kind.clone(),
            tolerance: Tolerance { can_lose: 0, parity_in_doubt: false, copies_in_doubt: false },
            stays_dirty: false,
            labels: RwLock::default(),
            is_resynced: AtomicBool::new(false),
            lost: Mutex::default(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn uuid(&self) -> &str {
        &self.uuid
    }

    /// Whether the array will be dirty after any stop, because it started dirty and its resync is
    /// not complete.
    pub(crate) fn stays_dirty(&self) -> bool {
        self.stays_dirty && !self.is_resynced.load(Ordering::Relaxed)
    }

    /// Reports the verdict on each member that needs attention, and what the array lacks.
    pub(crate) fn members(&self, ready: &Ready) {
        if let Some(replayed) = &ready.replayed {
            self.replayed(replayed);
        }
        let fault = ready.array.journal_fault.as_ref().filter(|_| !self.json);
        if let Some(fault) = fault {
            let (name, is_read) = (&self.name, ready.array.read_only.is_some());
            let how = match is_read {
                true => "is read without its write journal",
                false => "goes on without its write journal, which is dropped, and is resynced",
            };
            let text = format!(
                "{name} {how}, so the newest writes may be missing anywhere: \
                                {fault}"
            );
            self.say(Style::Warning, &text);
        }
        if self.json {
            let verdicts: Vec<Value> = ready
                .verdicts
                .iter()
                .map(|verdict| {
                    json!({
                        "member": verdict.label,
                        "verdict": verdict.verdict.code(),
                        "slot": verdict.verdict.slot(),
                        "reason": verdict.reason.to_string(),
                    })
                })
                .collect();
            return self.event(
                "assembled",
                &json!({
                    "members": verdicts,
                    "unreadable": ready.unreadable.iter().map(|(label, _)| label).collect::<Vec<_>>(),
                    "journal_fault": ready.array.journal_fault.as_ref().map(ToString::to_string),
                    "at_risk": ready.array.accepted_risk.as_ref().map(at_risk_words),
                    "withheld": ready.array.withheld_risk.as_ref().map(at_risk_words),
                    "degraded_slots": ready.array.degraded,
                    "dirty": ready.array.dirty,
                    "can_lose": ready.array.tolerance().can_lose,
                    "events": ready.array.newest.state.events,
                }),
            );
        }
        for (label, why) in &ready.unreadable {
            self.say(Style::Warning, &format!("{} is left out: {why}", printable(label)));
        }
        let is_worth_a_word = |verdict: &&MemberVerdict| {
            !is_well(verdict.verdict) || matches!(verdict.reason, Reason::OneBehind { .. })
        };
        for verdict in ready.verdicts.iter().filter(is_worth_a_word) {
            let label = printable(&verdict.label);
            self.say(Style::Warning, &format!("{label}: {}: {}", verdict.verdict, verdict.reason));
        }
        if ready.array.degraded > 0 {
            let more = tolerance_words(ready.array.tolerance());
            let count = ready.array.degraded;
            let slots = if count == 1 { "slot" } else { "slots" };
            let text = format!("{} is degraded: {count} {slots} missing, {more}", self.name);
            self.say(Style::Warning, &text);
        }
        match &ready.array.accepted_risk {
            Some(risk) => {
                let risk = at_risk_words(risk);
                let text =
                    format!("{} is started although some data may be wrong; {risk}", self.name);
                self.say(Style::Warning, &text);
            }
            None if ready.array.withheld_risk.is_some() => {
                let risk = ready.array.withheld_risk.as_ref().map(at_risk_words);
                let risk = risk.unwrap_or_default();
                let text =
                    format!("reads of the data at risk of {} are I/O errors; {risk}", self.name);
                self.say(Style::Warning, &text);
            }
            None if ready.array.dirty => {
                let never_ran = ready.array.newest.state.events == 0;
                let why =
                    if never_ran { "has never been synced" } else { "was not stopped cleanly" };
                let name = &self.name;
                let lose = tolerance_words(ready.array.tolerance());
                let text = format!("{name} {why}: {lose}");
                self.say(Style::Warning, &text);
            }
            None => {}
        }
    }

    fn replayed(&self, replayed: &ReplayResult) {
        let lines = replayed.lines();
        tracing::info!(target: "braid::serve", array = self.name, "{}", lines.join("; "));
        if self.json {
            return self.event("replayed", &replayed.to_json());
        }
        for line in lines {
            self.say(Style::Warning, &format!("{}: {line}", self.name));
        }
    }

    /// Reports a member that could not bypass the page cache as configured.
    pub(crate) fn through_page_cache(&self, label: &str, why: &DirectError) {
        if self.json {
            let facts = json!({ "member": label, "why": why.to_string() });
            return self.event("through-page-cache", &facts);
        }
        let text = format!("{} is used through the page cache: {why}", printable(label));
        self.say(Style::Warning, &text);
    }

    pub(crate) fn serving(
        &self,
        (size, read_only): (u64, bool),
        ClientAddresses { uris, file, device, vhost_user }: &ClientAddresses,
        control: Option<&str>,
    ) {
        if self.json {
            return self.event(
                "serving",
                &json!({
                    "level": self.level,
                    "size_bytes": size,
                    "read_only": read_only,
                    "uris": uris,
                    "file": file,
                    "device": device,
                    "vhost_user": vhost_user,
                    "control": control,
                }),
            );
        }
        let access = if read_only { "read-only" } else { "flush fua trim zeroes multi-conn" };
        for uri in uris {
            let (level, size) = (&self.level, format_size(size));
            errln!("serving {} ({level}, {size}, {access}) at {uri}", self.name);
        }
        if let Some(file) = file {
            errln!("{} is the file {}", self.name, printable(file));
        }
        if let Some(device) = device {
            errln!("{} is the block device {device}", self.name);
        }
        if let Some(socket) = vhost_user {
            errln!("{} is a disk of virtual machines at {}", self.name, printable(socket));
        }
    }

    /// Reports a part that is served under a name of its own.
    pub(super) fn part(&self, part: &dyn Part, uris: &[String]) {
        let size = part.size_bytes();
        if self.json {
            let facts = json!({
                "name": part.name(),
                "offset_bytes": part.offset_bytes(),
                "size_bytes": size,
                "holds": part.words(),
                "uris": uris,
            });
            return self.event("part", &facts);
        }
        let (words, size) = (printable(part.words()), format_size(size));
        for uri in uris {
            errln!("  {}, {size} ({words}) at {uri}", part.name());
        }
    }

    pub(crate) fn without_control(&self, error: &CliError) {
        if self.json {
            return self.event("without-control", &json!({ "error": error.to_json() }));
        }
        let name = &self.name;
        let text = format!(
            "{error}; {name} is served without a control socket: only `braid examine` shows it, \
             and only a signal stops it (--control names another path)"
        );
        self.say(Style::Warning, &text);
    }

    /// The content that may have been wrong when the array started: parity, copies or none.
    pub(super) fn doubt(&self) -> Doubt {
        match self.tolerance {
            Tolerance { parity_in_doubt: true, .. } => Doubt::Parity,
            Tolerance { copies_in_doubt: true, .. } => Doubt::Copies,
            Tolerance { .. } => Doubt::Nothing,
        }
    }

    /// Reports a change of the array. Programs get the event that hooks and the history get,
    /// without the event's number.
    pub(crate) fn change(&self, change: &Change) {
        let is_completed =
            change.result.as_ref().map(|end| end.outcome) == Some(Outcome::Completed);
        if change.kind == Kind::ResyncFinished && is_completed {
            self.is_resynced.store(true, Ordering::Relaxed);
        }
        // Skips the stop: `stopped` reports it with the counts, once the server is closed as well.
        if change.kind == Kind::ArrayStopped {
            return;
        }
        let lost = (change.kind == Kind::WriteLost).then(|| self.write_lost(change));
        if self.json {
            let mut facts = serde_json::to_value(change).expect("it is text and numbers");
            facts["severity"] = change.kind.severity().word().into();
            return self.event(&change.kind.to_string(), &facts);
        }
        let text = match (&change.kind, lost, &change.advice) {
            // Operators see the progress of a job in `braid status`.
            (Kind::Rebuild(_), ..) => return,
            (_, Some(None), _) => return,
            (_, Some(Some(line)), _) => line,
            (.., Some(advice)) => format!("{}; {advice}", change.message),
            (.., None) => change.message.clone(),
        };
        match severity(change) {
            Severity::Info => errln!("{}", printable(&text)),
            Severity::Warning => self.say(Style::Warning, &text),
            Severity::Critical => self.say(Style::Error, &text),
        }
    }

    /// The line about a lost range; `None` if many ranges have a line already.
    fn write_lost(&self, change: &Change) -> Option<String> {
        let number = |name| change.number(name).unwrap_or_default();
        let start = number("offset_bytes");
        let mut ranges = self.lost.lock().expect("adding does not panic");
        let line = ranges.add(start..start + number("length_bytes"));
        let why = change.cause.as_ref().map(|why| format!(" ({}: {why})", why.member));
        let (why, advice) = (why.unwrap_or_default(), change.advice.as_deref().unwrap_or_default());
        match line {
            RangeLine::Nothing => None,
            RangeLine::First(range) => Some(format!(
                "{range} of {} were acknowledged, but not flushed, and could not be written{why}: \
                 {advice}",
                self.name
            )),
            RangeLine::Further(range) => Some(format!("{range} of {} are lost, too", self.name)),
            RangeLine::TooMany => Some(format!(
                "more ranges of {} are lost; the end reports their sum, and --json each range",
                self.name
            )),
        }
    }

    pub(crate) fn label(&self, member: MemberId) -> String {
        let labels = self.labels.read().unwrap_or_else(PoisonError::into_inner);
        // A member without a label is a bitmap file that `braid set` added.
        labels.get(&member.0).cloned().unwrap_or_else(|| "of the array".to_owned())
    }

    pub(super) fn name_member(&self, member: MemberId, label: String) {
        self.labels.write().unwrap_or_else(PoisonError::into_inner).insert(member.0, label);
    }

    /// Reports slow members, since the coming stop waits for their requests.
    pub(crate) fn stopping(&self, volume: &Volume) {
        for member in volume.sitting_out() {
            let label = self.label(member);
            if self.json {
                self.event("stop-waits", &json!({ "member": label }));
            } else {
                let text = format!("{} is slow, and the stop waits for it", printable(&label));
                self.say(Style::Warning, &text);
            }
        }
    }

    pub(crate) fn ignored(&self, number: i32) {
        let signal = name_of(number);
        if self.json {
            return self.event("signal-ignored", &json!({ "signal": signal }));
        }
        let text = format!("{signal} is ignored; SIGTERM or SIGINT stops {}", self.name);
        self.say(Style::Warning, &text);
    }

    pub(crate) fn without_workers(&self, why: &RingError) {
        if self.json {
            return self.event("without-io-uring", &json!({ "message": why.to_string() }));
        }
        self.say(Style::Warning, &format!("{why}; clients are served by threads, more slowly"));
    }

    pub(crate) fn little_memory(&self, bytes: usize, limit: Limit) {
        let (bytes, limit) = (bytes as u64, limit.to_string());
        if self.json {
            let facts = json!({ "payload_memory": bytes, "limit": limit });
            return self.event("little-memory", &facts);
        }
        let text = format!(
            "clients have {} for their payloads, because {limit} leaves no more (--payload-memory \
             sets the amount)",
            format_size(bytes)
        );
        self.say(Style::Warning, &text);
    }

    pub(crate) fn answered_writes_written(&self, bytes: u64) {
        let size = format_size(bytes);
        let text = format!(
            "{size} that the previous server had acknowledged but not written are on the members \
             now"
        );
        self.aside("answered-writes-written", &json!({ "bytes": bytes }), &text);
    }

    pub(crate) fn answered_writes_lost(&self, bytes: u64, kept: &Path) {
        let (size, path) = (format_size(bytes), kept.display().to_string());
        let text = format!(
            "{size} that a killed server had acknowledged are lost: another program has written \
             to the array since. They are kept in {path}"
        );
        self.aside("answered-writes-lost", &json!({ "bytes": bytes, "path": path }), &text);
    }

    pub(crate) fn answered_writes_wait(&self, bytes: u64, path: &Path) {
        let (size, path) = (format_size(bytes), path.display().to_string());
        let text = format!(
            "{size} that a killed server had acknowledged are missing in reads: they wait in \
             {path} for a start without --read-only"
        );
        self.aside("answered-writes-wait", &json!({ "bytes": bytes, "path": path }), &text);
    }

    pub(crate) fn answered_writes_end(&self, path: &Path, why: &str) {
        let path = path.display().to_string();
        let text = format!(
            "writes that are acknowledged early are lost if this process is killed: {path} cannot \
             keep them ({why})"
        );
        self.aside("answered-writes-end", &json!({ "path": path, "why": why }), &text);
    }

    pub(crate) fn few_descriptors(&self, room: usize, connections: usize) {
        if self.json {
            let facts = json!({ "room": room, "connections": connections });
            return self.event("few-descriptors", &facts);
        }
        let text = format!(
            "there are file descriptors for {room} of {connections} clients: raise the limit \
             (ulimit -n, LimitNOFILE=)"
        );
        self.say(Style::Warning, &text);
    }

    /// Reports limits that affect clients and that only the operator can change.
    pub(crate) fn client_notice(&self, notice: ClientNotice) {
        let (event, facts, text) = match notice {
            ClientNotice::Full { connections_max } => (
                "full",
                json!({ "connections": connections_max }),
                format!(
                    "a client was rejected: all {connections_max} connections are in use (braid \
                     set {} connections=...)",
                    shell_word(&self.name)
                ),
            ),
            ClientNotice::NoDescriptors => (
                "no-descriptors",
                json!({}),
                "clients cannot connect: no file descriptors are left; new clients wait until \
                 another client leaves (ulimit -n, LimitNOFILE=)"
                    .to_owned(),
            ),
            ClientNotice::DescriptorsAgain => {
                ("descriptors-again", json!({}), "clients can connect again".to_owned())
            }
            ClientNotice::Stalled { count, is_stopping } => (
                "client-stalled",
                json!({ "count": count, "stopping": is_stopping }),
                format!(
                    "a client that stalled in the middle of a request or reply was disconnected \
                     ({count} so far)"
                ),
            ),
            ClientNotice::Idled { count } => (
                "client-idled",
                json!({ "count": count }),
                format!("an idle client was disconnected for a new one ({count} so far)"),
            ),
        };
        if self.json {
            return self.event(event, &facts);
        }
        self.say(Style::Warning, &text);
    }

    /// Reports the stop. `cut` connections had not finished in time; `served` counts the clients'
    /// requests. `volume` is `None` for a device.
    pub(crate) fn stopped(
        &self,
        volume: Option<&Volume>,
        is_in_order: bool,
        cut: usize,
        served: &Counts,
    ) {
        let (lost_ranges, lost_bytes) = self.lost.lock().expect("adding does not panic").sum();
        if self.json {
            let mut facts = json!({
                "clean": is_in_order && !self.stays_dirty(),
                "in_order": is_in_order,
                "lost_ranges": lost_ranges,
                "lost_bytes": lost_bytes,
                "connections_cut": cut,
                "connections": served.accepted,
                "requests": served.requests,
                "bytes_read": served.bytes_read,
                "bytes_written": served.bytes_written,
                "bytes_copied": served.bytes_copied,
            });
            if let (Some(volume), Value::Object(facts)) = (volume, &mut facts) {
                facts.extend(member_counts(volume));
            }
            return self.event("stopped", &facts);
        }
        if cut > 0 {
            self.say(
                Style::Warning,
                &format!("{cut} connection(s) were cut in the middle of a request"),
            );
        }
        if served.requests > 0 {
            let [read, written, copied] =
                [served.bytes_read, served.bytes_written, served.bytes_copied].map(format_size);
            errln!(
                "served {} requests: {read} read, {written} written, {copied} of it copied",
                served.requests
            );
        }
        if lost_bytes > 0 {
            let lost = format_size(lost_bytes);
            let text =
                format!("{lost} in {lost_ranges} range(s) were acknowledged and lost in this run");
            self.say(Style::Error, &text);
        }
        let state = match (is_in_order, self.stays_dirty()) {
            (true, false) => "cleanly",
            (true, true) => {
                "in order, everything is flushed; its resync is unfinished and continues at the \
                 next start"
            }
            (false, _) if volume.is_none() => "but its latest writes are not all durable",
            (false, _) => "but its superblocks are not clean",
        };
        errln!("stopped {} {state}", self.name);
    }

    pub(crate) fn not_kept(&self, path: &Path, error: &std::io::Error) {
        if self.json {
            let facts = json!({ "file": path.display().to_string(), "why": error.to_string() });
            return self.event("not-kept", &facts);
        }
        let path = path.display().to_string();
        let text = format!(
            "the event count of {} cannot be recorded in {}: {error}; the next start uses only \
             the superblocks, which do not reveal every old copy of a member (--state-dir names \
             another folder)",
            self.name,
            printable(&path)
        );
        self.say(Style::Warning, &text);
    }

    /// Reports a warning about something other than the array.
    pub(super) fn aside(&self, event: &str, facts: &Value, text: &str) {
        if self.json {
            return self.event(event, facts);
        }
        self.say(Style::Warning, text);
    }

    fn say(&self, style: Style, text: &str) {
        let word = match style {
            Style::Error => "error",
            _ => "warning",
        };
        errln!("{}: {}", self.paint.paint(style, word), printable(text));
    }

    fn event(&self, event: &str, facts: &Value) {
        let mut object = json!({ "event": event, "array": self.name, "uuid": self.uuid });
        if let (Value::Object(object), Value::Object(facts)) = (&mut object, facts) {
            object.extend(facts.clone());
        }
        outjson!(&object);
    }
}

fn member_counts(volume: &Volume) -> serde_json::Map<String, Value> {
    let counters = volume.counters();
    let facts = json!({
        "member_reads": counters.member_reads,
        "member_writes": counters.member_writes,
        "member_errors": counters.member_errors,
        "reconstructions": counters.reconstructions,
        "full_stripe_writes": counters.full_stripe_writes,
        "rcw_writes": counters.rcw_writes,
        "rmw_writes": counters.rmw_writes,
        "read_repairs": counters.read_repairs,
        "stripe_waits": counters.cache.stripe_waits,
        "owner_misses": volume.owner_misses(),
    });
    facts.as_object().cloned().unwrap_or_default()
}

/// Severity of a change for an operator: the begin or the success of a job is no warning.
fn severity(change: &Change) -> Severity {
    let is_begin =
        matches!(change.kind, Kind::CheckStarted | Kind::RebuildStarted | Kind::ResyncStarted);
    match &change.result {
        None if is_begin => Severity::Info,
        None => change.kind.severity(),
        Some(_) if change.word("end") == Some("interrupted") => Severity::Info,
        Some(end) => {
            let count = |name: &str| end.counts.get(name).copied().unwrap_or_default();
            // A check that repairs may have corrected the differences that it found.
            let differing = match change.details.get("repair") {
                Some(Detail::Flag(true)) => {
                    count("located").saturating_sub(count("repaired")) + count("ambiguous")
                }
                _ => count("differing_sectors"),
            };
            let is_check = change.kind == Kind::CheckFinished;
            let left = count("unmade_sectors") + count("named_sectors");
            let is_well = left == 0 && !(is_check && differing > 0);
            match end.outcome {
                Outcome::Completed if is_well => Severity::Info,
                Outcome::Completed | Outcome::Aborted => Severity::Warning,
            }
        }
    }
}
