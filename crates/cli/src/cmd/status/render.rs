//! An array in words: a headline, problems and remedies, and a row for each slot.

use braid_control::model::{
    Array, Bitmap, JobKind, JobResult, JobState, Link, ParityLogs, Reshape, Slot, SlotState, State,
};

use super::super::grow::shape_words;
use braid_console::output::colour::{Paint, Style};
use braid_console::output::printable::printable;
use braid_console::output::size::{format_size, format_size_exact};
use braid_console::output::table::{Align, Table};
use braid_console::output::utc::rfc3339_utc;
use braid_discovery::running::Silent;
use braid_discovery::status::advice::{advice, clock};
use braid_discovery::status::words::{
    Manner, can_lose_words, connection_words, down_to_a_tenth, found_words, is_redundant,
    latency_words, level_word, place_of, progress_words, run_words, sectors_words, silent_word,
    state_word,
};

/// Runs of sectors found by the last check that are shown here; `--json` has more.
const RUNS_SHOWN: usize = 5;

/// An array's status in words; the operator calls the array `word`.
pub(super) fn array(array: &Array, word: &str, paint: Paint, manner: Manner) -> String {
    let mut text = headline(array, paint);
    let mut line = |label: &str, words: &str| {
        text.push_str(&format!("  {label:<8} {}\n", printable(words)));
    };
    for one in advice(array, word, manner) {
        line("problem", &one.problem);
        line("now", &one.now);
        match &one.command {
            Some(command) => line("do", &format!("{}  {command}", one.what)),
            None => line("do", &one.what),
        }
    }
    if let Some(reshape) = &array.reshape {
        line("reshape", &reshape_words(array, reshape, word, manner));
        let (before, after) = (shape_words(&reshape.before), shape_words(&reshape.after));
        line("", &format!("from {before} to {after}"));
    }
    for words in lost(array) {
        line("lost", &words);
    }
    if let Some(whole) = array.whole_size_bytes {
        let (end, whole) = (format_size(array.size_bytes), format_size(whole));
        let all = format!("all of it again:  braid grow {word} --array-size max");
        line("end", &format!("clients see {end} of {whole}; {all}"));
    }
    if let Some(words) = check(array, word, manner) {
        line("check", &words);
        let runs = array.last_job(JobKind::Check).map(|last| &last.found.runs);
        let is_over = array.job(JobKind::Check).is_none();
        for run in runs.into_iter().flatten().filter(|_| is_over).take(RUNS_SHOWN) {
            line("", &run_words(run));
        }
    }
    line("layout", &shape(array));
    if let Some(Bitmap { bit_bytes, bits, bits_set, unwritten }) = array.bitmap {
        let each = format_size_exact(bit_bytes);
        let words = match unwritten {
            None => format!("{bits_set} of {bits} bits set, one for {each}"),
            Some(unwritten) => format!(
                "lockless: {bits_set} of {bits} marks set, {unwritten} unwritten, one for {each}"
            ),
        };
        line("bitmap", &words);
    }
    if array.settings.get("consistency") == Some(&"resync".into()) {
        line("bitmap", "none: a crash needs a full resync");
    }
    match array.parity_logs {
        None => {}
        Some(ParityLogs::Kept) => line("logs", "writes go to parity logs first"),
        Some(ParityLogs::Pending) => {
            line("logs", "nothing is logged yet: parity logs wait for parity to agree");
        }
    }

    if let Some(journal) = &array.journal {
        let (used, size) = (format_size(journal.used_bytes), format_size(journal.size_bytes));
        let path = &journal.path;
        line("journal", &format!("{path}: {used} of {size} in use; all writes go there first"));
    }
    let clients = &array.clients;
    let dirty = format_size(array.dirty_bytes);
    line("cache", &format!("{dirty} answered and not on the members yet"));
    let (read, written) = (format_size(clients.bytes_read), format_size(clients.bytes_written));
    let held = format_size(clients.payload_bytes);
    let connected = clients.connections;
    line(
        "clients",
        &format!("{connected} connected, {held} of payloads; {read} read, {written} written"),
    );
    let server = &array.server;
    line(
        "server",
        &format!("process {}, since {}; asked at {}", server.pid, server.since, server.control),
    );
    if let Some(log) = &server.log {
        line("log", &printable(log));
    }
    text.push_str(&slots(array).render("  "));
    text.push_str(&format!("  md: {}\n", pattern(&array.slots)));
    text
}

/// `tank  RAID-6  14.55 TiB  DEGRADED (can lose 1 more member)  nbd+unix:///...`
fn headline(array: &Array, paint: Paint) -> String {
    let style = match array.state {
        State::Ok if array.dirty => Style::Warning,
        State::Ok => Style::Good,
        State::Degraded => Style::Warning,
        State::Failed => Style::Error,
    };
    let name = printable(&array.name);
    let (level, size) = (level_word(&array.level), format_size(array.size_bytes));
    let state = paint.paint(style, state_word(array));
    let access = if array.read_only { ", read-only" } else { "" };
    let lose = can_lose_words(array.can_lose);
    let places = array.uris.iter().chain(&array.file).chain(&array.device).chain(&array.vhost_user);
    let places: Vec<&str> = places.map(String::as_str).collect();
    let places = printable(&places.join("  ")).into_owned();
    let name = paint.paint(Style::Strong, &name);
    format!("{name}  {}  {size}  {state} ({lose}{access})  {places}\n", printable(&level))
}

/// A running check's progress, or the last check's result.
fn check(array: &Array, word: &str, manner: Manner) -> Option<String> {
    if let Some(job) = array.job(JobKind::Check) {
        return Some(match job.state {
            JobState::Running => progress_words(job, manner),
            JobState::Paused => {
                format!("{}, go on with  braid resume {word}", progress_words(job, manner))
            }
            JobState::Waiting => "begins when the job before it is over".to_owned(),
        });
    }
    let next = array.next_check.as_deref().map(|next| next_check(next, manner)).unwrap_or_default();
    let Some(last) = array.last_job(JobKind::Check) else {
        let is_known = is_redundant(array) && !array.read_only;
        return is_known.then(|| format!("none is known of{next}"));
    };
    let at = last.ended.replace('T', " ").replace('Z', " UTC");
    let words = match (last.result, last.differing_sectors) {
        (JobResult::Completed, 0) => format!("{at}: all of it agrees"),
        (JobResult::Completed, _) if last.found.is_repaired() => {
            format!("{at}: {}", found_words(last))
        }
        (JobResult::Completed, found) => {
            let known = found_words(last);
            let known = if known.is_empty() { known } else { format!("; {known}") };
            format!("{at}: {} do not agree{known}", sectors_words(found))
        }
        (_, found) => format!(
            "{at}: ended at {:.1} %, {} found not to agree until then",
            down_to_a_tenth(share(last.done_bytes, last.total_bytes)),
            sectors_words(found)
        ),
    };
    Some(words + &next)
}

/// The progress of a reshape, and the command that reverts it.
fn reshape_words(array: &Array, reshape: &Reshape, word: &str, manner: Manner) -> String {
    let done = down_to_a_tenth(share(reshape.moved_bytes, reshape.total_bytes));
    let words = array.job(JobKind::Reshape).map(|job| match job.state {
        JobState::Paused => {
            format!("{}, go on with  braid resume {word}", progress_words(job, manner))
        }
        JobState::Running | JobState::Waiting => progress_words(job, manner),
    });
    let words = words.unwrap_or_else(|| format!("{done:.1} %"));
    format!("{words}; go back with  braid revert {word}")
}

/// The sectors that the present or the last reshape found on no member, and their positions.
fn lost(array: &Array) -> Vec<String> {
    let now = array.job(JobKind::Reshape).map(|job| (job.unmade_sectors, &job.found));
    let last = array.last_job(JobKind::Reshape).map(|job| (job.unmade_sectors, &job.found));
    let Some((sectors, found)) = now.or(last).filter(|(sectors, _)| *sectors > 0) else {
        return Vec::new();
    };
    let mut lines =
        vec![format!("{}, that no member held when the shape changed", sectors_words(sectors))];
    lines.extend(found.runs.iter().take(RUNS_SHOWN).map(run_words));
    let more = found.runs.len().saturating_sub(RUNS_SHOWN) as u64 + found.more_runs;
    lines.extend((more > 0).then(|| format!("and {more} more places, which --json lists")));
    lines
}

/// The time when the next check of the array is due. Times are written so that the later time is
/// the larger text.
fn next_check(next: &str, manner: Manner) -> String {
    let at = next.replace('T', " ").replace('Z', " UTC");
    if next > rfc3339_utc(manner.utc_seconds).as_str() {
        format!("; the next one at {at}")
    } else {
        format!("; the next one is due since {at} and begins as soon as possible")
    }
}

fn share(done: u64, total: u64) -> f64 {
    100.0 * done as f64 / total.max(1) as f64
}

fn shape(array: &Array) -> String {
    let slots = array.slots.iter().filter(|slot| slot.slot.is_some()).count();
    let mut parts = vec![format!("{slots} slots")];
    parts.extend(array.layout.clone());
    parts.extend(array.chunk_bytes.map(|bytes| format!("chunk {}", format_size(bytes))));
    parts.push(format!("md {}", array.metadata));
    parts.push(format!("uuid {}", array.uuid));
    parts.join(", ")
}

/// Every slot with its state's word: a replaced member before its replacement, failed spares last.
fn rows<'a>(array: &'a Array) -> impl Iterator<Item = (&'a Slot, &'static str)> {
    let with_replaced = |row: &'a Slot| {
        let is_here = |out: &&Slot| out.slot.is_some() && out.slot == row.slot;
        let word = |out: &Slot| match out.state {
            SlotState::Replaced => "replaced",
            _ => "REPLACED",
        };
        let before = array.replaced.iter().filter(is_here).map(|out| (out, word(out)));
        before.chain(std::iter::once((row, state_of(row)))).collect::<Vec<_>>()
    };
    let without_slot = array.replaced.iter().filter(|out| out.slot.is_none());
    array.slots.iter().flat_map(with_replaced).chain(without_slot.map(|out| (out, "FAILED")))
}

pub(crate) fn state_of(row: &Slot) -> &'static str {
    match row.state {
        SlotState::Failed => "FAILED",
        SlotState::Away => "AWAY",
        SlotState::Missing => "MISSING",
        SlotState::Recovering => "rebuilding",
        other => other.word(),
    }
}

fn slots(array: &Array) -> Table {
    let columns = [
        ("slot", Align::Left),
        ("member", Align::Left),
        ("state", Align::Left),
        ("since", Align::Left),
    ];
    let mut table = Table::new(&columns);
    for (row, state) in rows(array) {
        let number = place_of(row);
        let member = row.member.clone().unwrap_or_else(|| "-".to_owned());
        let since = row.since.as_deref().map(clock).unwrap_or_default();
        let manner = if row.write_mostly { ", write-mostly" } else { "" };
        let errors = match row.read_errors.corrected {
            0 => String::new(),
            1 => ", 1 read error corrected".to_owned(),
            count => format!(", {count} read errors corrected"),
        };
        let link = row.link.as_ref().map(link_words).unwrap_or_default();
        table.row([number, member, format!("{state}{manner}{errors}{link}"), since]);
    }
    table
}

/// The connection to a member on another host, in words.
fn link_words(link: &Link) -> String {
    let (state, latency) = (connection_words(link), latency_words(link));
    let again = match link.reconnects {
        0 => String::new(),
        1 => ", connected anew once".to_owned(),
        count => format!(", connected anew {count} times"),
    };
    format!("{state}{again}, {latency}")
}

/// Slots with an up-to-date member, as `/proc/mdstat` shows them: `[UU_U]`.
fn pattern(rows: &[Slot]) -> String {
    let letters = rows.iter().filter(|row| row.slot.is_some()).map(|row| match row.state {
        SlotState::Ok | SlotState::Slow => 'U',
        _ => '_',
    });
    format!("[{}]", letters.collect::<String>())
}

/// The line for a socket whose array does not answer.
pub(super) fn silent(silent: &Silent, paint: Paint) -> String {
    let name = silent.control.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let state = paint.paint(Style::Error, silent_word(&silent.error));
    let mut text = format!("{}  {state}\n", paint.paint(Style::Strong, &printable(&name)));
    for line in silent.error.to_text(paint).lines() {
        text.push_str(&format!("  {line}\n"));
    }
    text
}

#[cfg(test)]
mod tests;
