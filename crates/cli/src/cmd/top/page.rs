//! The page of one array: lines of text, each with its tone. Pure.
//!
//! The words are those of `braid status`, so that an operator learns one set.

use braid_control::model::{
    Array, Elevators, Job, JobPace, JobState, MemberRates, PacePhase, Rates, SettingValue,
    SliceRow, Slot, SlotState, State,
};

use super::poller::ArrayAnswers;
use crate::cmd::status::render::state_of;
use braid_console::output::bar::bar;
use braid_console::output::printable::printable;
use braid_console::output::size::format_size;
use braid_console::output::table::{Align, Table};
use braid_discovery::status::advice::advice;
use braid_discovery::status::words::{
    Manner, can_lose_words, connection_words, doing_word, latency_words, level_word, place_of,
    progress_words, state_word,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Strong,
    /// All is well.
    Good,
    /// Something is wrong, and redundancy makes up for it.
    Warning,
    /// Something is lost.
    Error,
}

/// A printable line and its tone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) tone: Tone,
    pub(super) text: String,
}

/// The inputs of a page in addition to the array.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    /// The word by which the operator calls the array.
    pub(super) word: &'a str,
    pub(super) manner: Manner,
    /// Width of the terminal.
    pub(super) columns: usize,
}

/// Bars for the multiplexer's periods, from a share of 0 to 1.
const MARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

const MARKS_MAX: usize = 40;

pub(super) fn lines(seen: &ArrayAnswers, rates: Option<&Rates>, frame: Frame<'_>) -> Vec<Line> {
    let array = &seen.running.array;
    let mut page = Page { lines: Vec::new(), frame };
    page.push(tone(array), &headline(array));
    page.fact("clients", &clients(array, rates));
    page.fact("cache", &cache(array, frame.manner));
    if array.jobs.is_empty() {
        page.fact("job", if array.jobs_paused { "none; jobs are paused" } else { "none" });
    }
    for job in &array.jobs {
        page.fact("job", &job_words(job, frame.manner));
    }
    if let Some(pace) = &array.pace {
        page.fact("pace", &pace_words(pace));
    }
    if let Some(elevators) = &seen.elevators {
        page.fact("turns", &turns(elevators, frame.manner));
    }
    for one in advice(array, frame.word, frame.manner) {
        page.long(Tone::Warning, "problem", &one.problem);
        page.long(Tone::Plain, "now", &one.now);
        let command = one.command.map(|command| format!("  {command}")).unwrap_or_default();
        page.long(Tone::Plain, "do", &format!("{}{command}", one.what));
    }
    page.push(Tone::Plain, "");
    page.members(array, seen.elevators.as_ref(), rates);
    page.lines
}

struct Page<'a> {
    lines: Vec<Line>,
    frame: Frame<'a>,
}

impl Page<'_> {
    fn push(&mut self, tone: Tone, text: &str) {
        self.lines.push(Line { tone, text: printable(text).into_owned() });
    }

    fn fact(&mut self, label: &str, words: &str) {
        self.push(Tone::Plain, &format!("  {label:<8} {words}"));
    }

    /// Adds text that may take several lines.
    fn long(&mut self, tone: Tone, label: &str, words: &str) {
        const INDENT: usize = 11;
        let columns = self.frame.columns.saturating_sub(INDENT).max(20);
        for (index, line) in wrapped(&printable(words), columns).into_iter().enumerate() {
            let label = if index == 0 { label } else { "" };
            self.push(tone, &format!("  {label:<8} {line}"));
        }
    }

    fn members(&mut self, array: &Array, elevators: Option<&Elevators>, rates: Option<&Rates>) {
        let has_links = array.slots.iter().any(|slot| slot.link.is_some());
        let links: &[_] = match has_links {
            true => &[("latency", Align::Right), ("anew", Align::Right)],
            false => &[],
        };
        let identity = [("slot", Align::Left), ("member", Align::Left), ("state", Align::Left)];
        let work = [
            ("read", Align::Right),
            ("write", Align::Right),
            ("waiting", Align::Right),
            ("out", Align::Right),
            ("elevator", Align::Left),
            ("errors", Align::Right),
        ];
        let mut table = Table::new(&[&identity[..], links, &work].concat());
        for slot in &array.slots {
            let links = has_links.then(|| link_cells(slot)).into_iter().flatten();
            let cells = identity_cells(slot).into_iter().chain(links);
            table.row(cells.chain(work_cells(slot, elevators, rates)));
        }
        let text = table.render("  ");
        let tones = std::iter::once(Tone::Strong).chain(array.slots.iter().map(tone_of));
        for (line, tone) in text.lines().zip(tones) {
            self.push(tone, line);
        }
    }
}

/// Lines of at most `columns`, cut between words; a longer word has a line to itself.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is one");
        let length = line.chars().count() + 1 + word.chars().count();
        if line.is_empty() {
            line.push_str(word);
        } else if length <= columns {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

fn tone(array: &Array) -> Tone {
    match array.state {
        State::Failed => Tone::Error,
        State::Degraded => Tone::Warning,
        State::Ok if array.dirty => Tone::Warning,
        State::Ok => Tone::Good,
    }
}

fn tone_of(slot: &Slot) -> Tone {
    match slot.state {
        SlotState::Failed => Tone::Error,
        SlotState::Slow | SlotState::Recovering | SlotState::Missing | SlotState::Away => {
            Tone::Warning
        }
        SlotState::Ok | SlotState::Waiting | SlotState::Filling | SlotState::Replaced => {
            match &slot.link {
                Some(link) if !link.is_up => Tone::Warning,
                _ => Tone::Plain,
            }
        }
    }
}

fn headline(array: &Array) -> String {
    let (level, size) = (level_word(&array.level), format_size(array.size_bytes));
    let (state, lose) = (state_word(array), can_lose_words(array.can_lose));
    let access = if array.read_only { ", read-only" } else { "" };
    format!("{}  {level}  {size}  {state} ({lose}{access})", array.name)
}

fn per_second(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{}/s", format_size(bytes)))
}

fn clients(array: &Array, rates: Option<&Rates>) -> String {
    let requests = rates.map(|rates| rates.requests_per_second.to_string());
    let requests = requests.unwrap_or_else(|| "-".to_owned());
    let read = per_second(rates.map(|rates| rates.read_bytes_per_second));
    let written = per_second(rates.map(|rates| rates.written_bytes_per_second));
    let clients = &array.clients;
    let held = format_size(clients.payload_bytes);
    let connected = clients.connections;
    format!(
        "{connected} connected  {requests} requests/s  read {read}  write {written}  payloads {held}"
    )
}

fn number(array: &Array, key: &str) -> Option<u64> {
    match array.settings.get(key) {
        Some(SettingValue::Number(number)) => Some(*number),
        _ => None,
    }
}

#[allow(clippy::cast_precision_loss, reason = "a share of a bar's length")]
fn cache(array: &Array, manner: Manner) -> String {
    let mode = array.settings.get("cache").map(ToString::to_string).unwrap_or_default();
    let dirty = format_size(array.dirty_bytes);
    let Some(limit) = number(array, "dirty-limit").filter(|limit| *limit > 0) else {
        return format!("{dirty} answered and not on the members yet");
    };
    let bar = bar(100.0 * array.dirty_bytes as f64 / limit as f64, manner.is_unicode);
    let limit = format_size(limit);
    format!("{mode}  {bar}  {dirty} of {limit} answered and not on the members yet")
}

fn job_words(job: &Job, manner: Manner) -> String {
    let doing = doing_word(job.kind);
    match job.state {
        JobState::Waiting => format!("{doing} begins when the job before it is over"),
        JobState::Running | JobState::Paused => {
            format!("{doing}  {}", progress_words(job, manner))
        }
    }
}

fn pace_words(pace: &JobPace) -> String {
    let flow = format!("{} under way for the job", format_size(pace.in_flight_bytes));
    match pace.phase {
        PacePhase::Idle => format!("no clients: as fast as it goes; {flow}"),
        PacePhase::Probe => format!("stands still to see what clients feel without it; {flow}"),
        PacePhase::Shared => {
            let allowance = format_size(pace.allowance_bytes);
            let p99 = match (pace.alone_p99_ns, pace.target_p99_ns) {
                (Some(alone), Some(target)) => format!(
                    "; clients' p99 {} without it, to be {} at most",
                    milliseconds(alone),
                    milliseconds(target)
                ),
                _ => String::new(),
            };
            format!("beside clients: {flow}, {allowance} may be{p99}")
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "to a tenth of a millisecond")]
fn milliseconds(ns: u64) -> String {
    format!("{:.1} ms", ns as f64 / 1e6)
}

fn turns(elevators: &Elevators, manner: Manner) -> String {
    let Some(last) = elevators.slices.last().filter(|_| elevators.is_multiplexed) else {
        let why = if elevators.is_multiplexed { "reads and write-back take turns" } else { "off" };
        return why.to_owned();
    };
    let share = f64::from(last.share_permille) / 10.0;
    let held = match (last.held_reads, last.held_writes) {
        (true, true) => ", both held",
        (true, false) => ", reads held",
        (false, true) => ", writes held",
        (false, false) => "",
    };
    let (slice, reads, writes) = (last.flusher_ns, last.busy_reads_ns, last.busy_writes_ns);
    let [slice, reads, writes] = [slice, reads, writes].map(milliseconds);
    let marks = manner.is_unicode.then(|| format!("  {}", marks(&elevators.slices)));
    let marks = marks.unwrap_or_default();
    format!(
        "write-back {share:.1} % ({slice}); members together busy reading {reads}, writing {writes}{held}{marks}"
    )
}

/// Write-back's share of the last periods, the oldest first.
fn marks(slices: &[SliceRow]) -> String {
    let last = slices.len().saturating_sub(MARKS_MAX);
    let mark = |slice: &SliceRow| {
        let place = slice.share_permille as usize * MARKS.len() / 1001;
        MARKS[place.min(MARKS.len() - 1)]
    };
    slices[last..].iter().map(mark).collect()
}

fn dash() -> String {
    "-".to_owned()
}

fn identity_cells(slot: &Slot) -> [String; 3] {
    let state = match slot.state {
        SlotState::Slow => "SLOW",
        _ => state_of(slot),
    };
    let connection = slot.link.as_ref().map(connection_words).unwrap_or_default();
    let member = slot.member.clone().unwrap_or_else(dash);
    [place_of(slot), member, format!("{state}{connection}")]
}

/// Cells for the connection to a member on another host: latency, and number of reconnects.
fn link_cells(slot: &Slot) -> [String; 2] {
    let link = slot.link.as_ref();
    let anew = link.map(|link| link.reconnects.to_string());
    [link.map(latency_words), anew].map(|cell| cell.unwrap_or_else(dash))
}

fn work_cells(slot: &Slot, elevators: Option<&Elevators>, rates: Option<&Rates>) -> [String; 6] {
    let is_here = |one: Option<u16>| one.is_some() && one == slot.slot;
    let elevator =
        elevators.and_then(|all| all.elevators.iter().find(|one| is_here(one.slot))).filter(|_| {
            !matches!(slot.state, SlotState::Failed | SlotState::Missing | SlotState::Away)
        });
    let of_member =
        |rates: &Rates| rates.members.iter().find(|row| is_here(Some(row.slot))).copied();
    let rate: Option<MemberRates> = elevator.and(rates).and_then(of_member);
    [
        per_second(rate.map(|rate| rate.read_bytes_per_second)),
        per_second(rate.map(|rate| rate.written_bytes_per_second)),
        elevator.map_or_else(dash, |one| format!("{}r {}w", one.waiting_reads, one.waiting_writes)),
        elevator.map_or_else(dash, |one| format!("{}/{}", one.out, one.depth)),
        elevator.map_or_else(dash, |one| one.policy.clone()),
        elevator.map_or_else(dash, |one| match rate.map_or(0, |rate| rate.errors) {
            0 => one.errors.to_string(),
            new => format!("{} (+{new})", one.errors),
        }),
    ]
}

#[cfg(test)]
mod tests {
    use braid_control::model::Link;

    use super::super::samples::{NOW, rates, seen};
    use super::*;

    fn text(seen: &ArrayAnswers, rates: Option<&Rates>) -> String {
        let frame = Frame { word: "tank", manner: NOW, columns: usize::MAX };
        lines(seen, rates, frame).into_iter().map(|line| line.text + "\n").collect()
    }

    #[test]
    fn an_array_at_work_is_told_in_a_page() {
        let expected = "\
tank  RAID-6  4 GiB  DEGRADED (can lose 1 more member)
  clients  3 connected  250 requests/s  read 120 MiB/s  write 40 MiB/s  payloads 1 MiB
  cache    writeback  ##########..........  32 MiB of 64 MiB answered and not on the members yet
  job      rebuilding  41.2 %  ########............  312 MiB/s  1h 52m left (done about 17:40 UTC)
  job      checking begins when the job before it is over
  pace     beside clients: 4 MiB under way for the job, 8 MiB may be; clients' p99 1.2 ms without it, to be 2.5 ms at most
  turns    write-back 35.0 % (17.5 ms); members together busy reading 12.0 ms, writing 8.0 ms, reads held
  problem  /dev/sdc (slot 1) is slow at 14:02:11 UTC: it took 900 ms, and the others much less
  now      reads avoid it until it answers like the others again
  do       nothing now; a member that is slow repeatedly is about to fail
  problem  slot 3 has had no member since tank was started
  now      a spare is about to take its place; its data is served from the others; tank can lose 1 more member
  do       nothing now

  slot   member    state        read     write  waiting   out  elevator  errors
  0      /dev/sdb  ok       30 MiB/s  10 MiB/s    2r 1w  4/32  deadline       0
  1      /dev/sdc  SLOW     30 MiB/s  10 MiB/s    2r 1w  4/32  deadline  9 (+2)
  2      /dev/sdd  ok       30 MiB/s  10 MiB/s    2r 1w  4/32  deadline       0
  3      -         MISSING         -         -        -     -  -              -
  spare  /dev/sdf  waiting         -         -        -     -  -              -
";
        assert_eq!(text(&seen(), Some(&rates())), expected);
    }

    #[test]
    fn before_the_second_look_there_are_no_rates_and_without_elevators_no_queues() {
        let mut seen = seen();
        let told = text(&seen, None);
        assert!(told.contains("- requests/s  read -  write -"), "{told}");
        seen.elevators = None;
        let told = text(&seen, Some(&rates()));
        assert!(!told.contains("turns") && !told.contains("deadline"), "{told}");
    }

    #[test]
    fn members_on_other_hosts_have_their_connection_and_local_ones_a_dash() {
        let mut seen = seen();
        seen.running.array.slots[0].link = Some(Link { mean_latency_us: 1260, ..Link::default() });
        seen.running.array.slots[2].state = SlotState::Away;
        let link = Link { is_up: true, reconnects: 12, mean_latency_us: 340, last_loss: None };
        seen.running.array.slots[1].link = Some(link);
        seen.running.array.slots[2].link = Some(Link { reconnects: 1, ..Link::default() });
        let expected = "
  slot   member    state                latency  anew      read     write  waiting   out  elevator  errors
  0      /dev/sdb  ok, not connected     1.3 ms     0  30 MiB/s  10 MiB/s    2r 1w  4/32  deadline       0
  1      /dev/sdc  SLOW                  0.3 ms    12  30 MiB/s  10 MiB/s    2r 1w  4/32  deadline  9 (+2)
  2      /dev/sdd  AWAY, not connected   0.0 ms     1         -         -        -     -  -              -
  3      -         MISSING                    -     -         -         -        -     -  -              -
  spare  /dev/sdf  waiting                    -     -         -         -        -     -  -              -
";
        let told = text(&seen, Some(&rates()));
        assert!(told.ends_with(expected), "{told}");
        assert_eq!(tone_of(&seen.running.array.slots[0]), Tone::Warning);
    }

    #[test]
    fn names_steer_nothing() {
        let mut seen = seen();
        seen.running.array.name = "a\u{1b}[2Jb\nc".into();
        seen.running.array.slots[0].member = Some("/dev/\u{202e}sdb".into());
        let told = text(&seen, None);
        assert!(told.chars().all(|one| one == '\n' || !one.is_control()), "{told:?}");
        assert!(!told.contains('\u{202e}'), "{told:?}");
    }

    #[test]
    fn words_are_wrapped_between_words() {
        assert_eq!(wrapped("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrapped("a-word-that-is-long b", 5), ["a-word-that-is-long", "b"]);
        assert_eq!(wrapped("", 5), [""]);
    }

    #[test]
    fn a_share_has_a_mark_whatever_it_is() {
        let slice = |share_permille| SliceRow {
            start_ns: 0,
            share_permille,
            flusher_ns: 0,
            busy_reads_ns: 0,
            busy_writes_ns: 0,
            held_reads: false,
            held_writes: false,
        };
        assert_eq!(marks(&[slice(0), slice(500), slice(1000), slice(u32::MAX)]), "▁▄██");
        assert_eq!(marks(&vec![slice(0); 90]).chars().count(), MARKS_MAX);
    }
}
