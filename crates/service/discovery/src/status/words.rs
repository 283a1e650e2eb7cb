//! Words about arrays, shared by several of braid's commands.

use std::time::Duration;

use braid_control::model::{
    Array, Found, FoundFate, FoundKind, FoundRun, Job, JobKind, JobState, LastJob, Link, Slot,
    State,
};
use braid_geometry::SECTOR_BYTES;
use braid_pace::RemainingTime;

use braid_ondisk::ByteOrder;

use braid_console::error::CliError;
use braid_console::error::code::Code;
use braid_console::output::bar::{bar, is_unicode};
use braid_console::output::size::format_size;
use braid_console::output::utc::now_seconds;

/// The byte order of a superblock in words; empty for little-endian, the order of PCs.
pub fn byte_order_words(order: ByteOrder) -> &'static str {
    match order {
        ByteOrder::Little => "",
        ByteOrder::Big => ", big-endian (an old NAS on PowerPC or MIPS)",
    }
}

/// Inputs of a status text other than the array.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Whether the terminal shows more than ASCII.
    pub is_unicode: bool,
    /// The present time, in seconds since 1970.
    pub utc_seconds: u64,
}

impl Manner {
    /// The inputs for this process's terminal and the present time.
    pub fn now() -> Self {
        Self { is_unicode: is_unicode(), utc_seconds: now_seconds() }
    }
}

/// The progress of a job: `41.2 % ████████▎··········· 312 MiB/s 1h 52m left (done about 17:40
/// UTC)`
pub fn progress_words(job: &Job, manner: Manner) -> String {
    let bar = bar(job.percent, manner.is_unicode);
    let mut text = format!("{:.1} %  {bar}", down_to_a_tenth(job.percent));
    if job.state == JobState::Paused {
        return text + "  paused";
    }
    if let Some(rate) = job.bytes_per_second.filter(|rate| *rate > 0) {
        text.push_str(&format!("  {}/s", format_size(rate)));
    }
    let left = match (job.seconds_left, job.bytes_per_second) {
        (Some(seconds), _) => Some(RemainingTime::Seconds(seconds)),
        (None, Some(0)) => Some(RemainingTime::Unknown),
        (None, Some(_)) => Some(RemainingTime::Long),
        (None, None) => None,
    };
    if let Some(left) = left {
        text.push_str(&format!("  {}", left.words(manner.utc_seconds)));
    }
    text
}

/// Rounds a percentage down to a tenth, so that 100 means complete.
pub fn down_to_a_tenth(percent: f64) -> f64 {
    (percent * 10.0).floor() / 10.0
}

/// The job in everyday words: `rebuilding`.
pub fn doing_word(kind: JobKind) -> &'static str {
    match kind {
        JobKind::Resync => "resyncing",
        JobKind::Recovery => "rebuilding",
        JobKind::Replace => "replacing",
        JobKind::Check => "checking",
        JobKind::Reshape => "reshaping",
    }
}

/// Sectors of redundancy in words: `16 sectors (8 KiB)`.
pub fn sectors_words(sectors: u64) -> String {
    let word = if sectors == 1 { "sector" } else { "sectors" };
    format!("{sectors} {word} ({})", format_size(sectors * SECTOR_BYTES))
}

/// A finding: `64 KiB of data at 2 MiB of /dev/sdc (slot 2), at 10 MiB of the array: repaired`.
pub fn run_words(run: &FoundRun) -> String {
    let (length, at) = (format_size(run.length_bytes), format_size(run.member_offset_bytes));
    let array = run.array_offset_bytes.map(|at| format!(", at {} of the array", format_size(at)));
    let array = array.unwrap_or_default();
    if run.fate == FoundFate::Lost {
        return format!("{length}{array}: no member held it; reads fail until it is written");
    }
    let Some(member) = &run.member else {
        let slots: Vec<String> = run.candidate_slots.iter().map(ToString::to_string).collect();
        let slots = slots.join(", ");
        return format!(
            "{length} at {at} of the members' data{array}: any of slots {slots} may be wrong; left as it is"
        );
    };
    let what = match run.kind {
        FoundKind::P => "P",
        FoundKind::Q => "Q",
        FoundKind::Data | FoundKind::Unknown => "data",
    };
    let fate = match run.fate {
        FoundFate::Left | FoundFate::Lost => "left as it is",
        FoundFate::Unverified => "rewritten, but not yet verified",
        FoundFate::Repaired => "repaired",
    };
    let slot = run.slot.map(|slot| format!(" (slot {slot})")).unwrap_or_default();
    format!("{length} of {what} at {at} of the data of {member}{slot}{array}: {fate}")
}

/// The result of a check with findings: `128 sectors (64 KiB) were wrong, all are repaired`.
pub fn found_words(last: &LastJob) -> String {
    let Found { located_sectors, repaired_sectors, ambiguous_sectors, repairs, .. } = last.found;
    let mut parts = Vec::new();
    let located = sectors_words(located_sectors);
    if repairs && located_sectors > 0 && located_sectors == repaired_sectors {
        parts.push(format!("{located} were wrong, and are repaired"));
    } else if repairs && located_sectors > 0 {
        let left = sectors_words(located_sectors - repaired_sectors);
        parts.push(format!("{located} were wrong, of which {left} could not be repaired"));
    } else if located_sectors > 0 {
        parts.push(format!("{located} are wrong, and their members are known"));
    }
    if ambiguous_sectors > 0 {
        let ambiguous = sectors_words(ambiguous_sectors);
        parts.push(format!("in {ambiguous} of the members the wrong part is unknown"));
    }
    parts.join("; ")
}

/// The slot's number, `for 3` of a replacement, or `spare`.
pub fn place_of(row: &Slot) -> String {
    match (row.slot, row.replaces) {
        (Some(number), _) => number.to_string(),
        (None, Some(number)) => format!("for {number}"),
        (None, None) => "spare".to_owned(),
    }
}

/// The suffix of the state of a member on another host: empty while its server is connected.
pub fn connection_words(link: &Link) -> &'static str {
    if link.is_up { "" } else { ", not connected" }
}

/// The mean time of the last requests to a member's server: `0.3 ms`.
pub fn latency_words(link: &Link) -> String {
    let latency = Duration::from_micros(link.mean_latency_us).as_secs_f64() * 1000.0;
    format!("{latency:.1} ms")
}

/// Whether the level keeps several copies, or parity.
pub fn is_redundant(array: &Array) -> bool {
    !matches!(array.level.as_str(), "linear" | "raid0")
}

/// `raid6` in its usual form: `RAID-6`.
pub fn level_word(level: &str) -> String {
    level.strip_prefix("raid").map_or_else(|| level.to_owned(), |number| format!("RAID-{number}"))
}

/// The array's state, in a word or two.
pub fn state_word(array: &Array) -> &'static str {
    match (array.server.stopping, array.state) {
        (true, _) => "stopping",
        (false, State::Ok) if array.dirty => "ok, dirty",
        (false, State::Degraded) if array.dirty => "DEGRADED, dirty",
        (false, State::Ok) => "ok",
        (false, State::Degraded) => "DEGRADED",
        (false, State::Failed) => "FAILED",
    }
}

/// The state of a socket where no array answers.
pub fn silent_word(error: &CliError) -> &'static str {
    match error.code() {
        Code::ServerGone => "gone",
        Code::ControlDenied => "denied",
        Code::NotServed => "no server",
        _ => "silent",
    }
}

/// `can lose 1 more member`.
pub fn can_lose_words(can_lose: u16) -> String {
    match can_lose {
        0 => "cannot lose a member".to_owned(),
        1 => "can lose 1 more member".to_owned(),
        more => format!("can lose {more} more members"),
    }
}
