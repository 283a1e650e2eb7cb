//! Replays an array's parity logs: onto its members, or in memory if nothing may be written. The
//! module `journal` replays a write journal in the same way.
//!
//! The engine's machine decides (`braid_engine::replay`); this module reads and writes members for
//! the machine, before anything else uses the members.
//!
//! ```text
//!   assembled, dirty, with logs ─┬▶ serve --read-only   parity in memory, laid over the members
//!                                └▶ replay              parity on the members, flushed
//! ```
//!
//! With `--read-only` nothing on the members changes. A replay does not change superblocks and
//! logs, so that braid or md can repeat the replay.

pub mod journal;

use std::ops::Range;

use braid_assembly::{AssembledArray, Occupant};
use braid_engine::replay::{
    Devices, Finish, Log, Member as Source, Replay, ReplayError, Report, Setup, run,
};
use braid_geometry::{Geometry, SECTOR_BYTES, Slot, StripeGeometry};
use braid_member::layer::{Patched, Sectors};
use braid_member::{Member, MemberError};
use braid_ondisk::PplLog;
use braid_runtime::OpenMember;
use serde_json::{Value, json};

use crate::probe::io_error;
use crate::refusal::words;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_console::output::size::format_size;

/// Most bytes of replayed parity in memory: logs of mdadm's arrays cover only a few MiB.
const MEMORY_BYTES_MAX: u64 = 256 << 20;
/// Most ranges that a message lists; for further ranges the message gives only their number.
const RANGES_SHOWN: usize = 8;

/// Where the replay writes the parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayTarget {
    /// Writes to memory: reads of the members then return the parity.
    Memory,
    /// Writes to the members.
    Members,
    /// Writes nothing: a dry run.
    Nowhere,
}

impl ReplayTarget {
    /// Whether the operator requested the replay; otherwise serving needs the replay.
    pub fn is_requested(self) -> bool {
        self != Self::Memory
    }

    /// The verb and the place by which a sentence describes a replay to this target.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Memory => ("was", "in memory, nothing is written"),
            Self::Members => ("was", "on the members"),
            Self::Nowhere => ("would be", "nothing is written"),
        }
    }

    fn to_json(self) -> Value {
        match self {
            Self::Memory => "memory",
            Self::Members => "members",
            Self::Nowhere => "nowhere",
        }
        .into()
    }
}

/// The result of a replay.
#[derive(Clone, Debug)]
pub enum ReplayResult {
    /// The result of replaying partial parity logs.
    Ppl(PplResult),
    /// The result of replaying a write journal.
    Journal(journal::JournalResult),
}

impl ReplayResult {
    /// The result of the replay and the remaining damage, in words.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::Ppl(replayed) => replayed.lines(),
            Self::Journal(replayed) => replayed.lines(),
        }
    }

    /// Array ranges whose parity could not be computed, because a present member is unreadable.
    pub fn unread(&self) -> &[Range<u64>] {
        match self {
            Self::Ppl(replayed) => &replayed.report.unread,
            Self::Journal(_) => &[],
        }
    }

    /// The result of the replay as JSON.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Ppl(replayed) => replayed.to_json(),
            Self::Journal(replayed) => replayed.to_json(),
        }
    }
}

/// The result of replaying parity logs, md's or braid's own.
#[derive(Clone, Debug)]
pub struct PplResult {
    /// The kind of logs, in words.
    kind: &'static str,
    report: Report,
    target: ReplayTarget,
    /// Number of torn log entries, whose stripes stay unchanged.
    torn: u32,
    /// Labels of unreadable logs, each with the reason.
    unread: Vec<String>,
}

/// The members of the array, as the replay reads and writes them.
struct MemberDevices<'a> {
    array: &'a AssembledArray,
    members: &'a [Option<OpenMember>],
    labels: &'a [String],
    target: ReplayTarget,
    patches: Vec<Sectors>,
    /// The cause of the last failed read or write.
    failure: Option<CliError>,
}

impl<'a> MemberDevices<'a> {
    fn new(
        array: &'a AssembledArray,
        (members, labels): (&'a [Option<OpenMember>], &'a [String]),
        target: ReplayTarget,
    ) -> Self {
        let patches = vec![Sectors::new(); array.slots.len()];
        Self { array, members, labels, target, patches, failure: None }
    }

    fn index(&self, slot: Slot) -> usize {
        let occupant = self.array.slots.get(slot.index()).and_then(Option::as_ref);
        occupant.expect("a replay asks only those that are there").member
    }

    fn open(&self, index: usize) -> &'a OpenMember {
        let open = self.members.get(index).and_then(Option::as_ref);
        open.expect("members of the array are open")
    }

    /// Converts a sector of the member's data to a sector of the slot's device.
    fn sector(&self, slot: Slot, sector: u64) -> u64 {
        self.open(self.index(slot)).superblock.device.data_offset_sectors + sector
    }

    fn read(&self, slot: Slot, start: u64, bytes: &mut [u8]) -> bool {
        let at = self.sector(slot, start) * SECTOR_BYTES;
        self.open(self.index(slot)).device.read_at(bytes, at).is_ok()
    }

    /// Writes to the slot's member and to its replacement.
    fn write(&mut self, slot: Slot, start: u64, bytes: &[u8]) -> bool {
        self.each_of_slot(slot, "writing", |open| {
            let sector = open.superblock.device.data_offset_sectors + start;
            open.device.write_at(bytes, sector * SECTOR_BYTES, false)
        })
    }

    fn flush(&mut self, slot: Slot) -> bool {
        self.each_of_slot(slot, "flushing", |open| open.device.flush())
    }

    /// Runs `act` for the slot's member and for its replacement, if any. Returns whether both
    /// succeeded.
    fn each_of_slot(
        &mut self,
        slot: Slot,
        doing: &str,
        act: impl Fn(&OpenMember) -> Result<(), MemberError>,
    ) -> bool {
        let replacements = self.array.replacements.iter().filter(|(of, _)| *of == slot);
        let replacements = replacements.map(|(_, occupant)| occupant.member);
        for index in std::iter::once(self.index(slot)).chain(replacements) {
            if let Err(error) = act(self.open(index)) {
                let label = self.labels.get(index).map_or("a member", String::as_str);
                self.failure = Some(io_error(label, doing, &error));
                return false;
            }
        }
        true
    }

    /// Keeps sectors of the slot's device in memory. Returns whether memory has room for them; if
    /// not, `too_much` makes the error from the largest allowed size.
    fn keep(
        &mut self,
        slot: Slot,
        sectors: impl Iterator<Item = (u64, [u8; 512])>,
        too_much: impl FnOnce(String) -> CliError,
    ) -> bool {
        self.patches[slot.index()].extend(sectors);
        let count: u64 = self.patches.iter().map(|sectors| sectors.len() as u64).sum();
        let has_room = count * SECTOR_BYTES <= MEMORY_BYTES_MAX;
        if !has_room {
            self.failure = Some(too_much(format_size(MEMORY_BYTES_MAX)));
        }
        has_room
    }
}

impl Devices for MemberDevices<'_> {
    fn read(&mut self, slot: Slot, sectors: Range<u64>, bytes: &mut [u8]) -> bool {
        MemberDevices::read(self, slot, sectors.start, bytes)
    }

    fn partial(&self, slot: Slot, entry: u32, sectors: Range<u64>) -> &[u8] {
        let log = log_of(self.array, slot);
        let logged = log.and_then(|log| log.entries().find(|(index, _)| *index == entry));
        let (_, logged) = logged.expect("its entries were taken from there");
        let byte = |sector: u64| usize::try_from(sector * SECTOR_BYTES).expect("in memory");
        &logged.partial[byte(sectors.start)..byte(sectors.end)]
    }

    fn write(&mut self, slot: Slot, sectors: Range<u64>, bytes: &[u8]) -> bool {
        match self.target {
            ReplayTarget::Nowhere => true,
            ReplayTarget::Memory => {
                let (parity, _) = bytes.as_chunks::<512>();
                let parity = (self.sector(slot, sectors.start)..).zip(parity.iter().copied());
                self.keep(slot, parity, |most| {
                    let what =
                        format!("the logs cover more than {most} of parity, too much for memory");
                    CliError::new(Code::PplNeeded, what)
                })
            }
            ReplayTarget::Members => MemberDevices::write(self, slot, sectors.start, bytes),
        }
    }

    fn flush(&mut self, slot: Slot) -> bool {
        MemberDevices::flush(self, slot)
    }

    fn record_clean(&mut self, _: Slot) -> bool {
        unreachable!("superblocks stay as they are")
    }

    fn void(&mut self, _: Slot) -> bool {
        unreachable!("logs stay as they are")
    }
}

fn log_of(array: &AssembledArray, slot: Slot) -> Option<&PplLog> {
    let mut logs = array.replay.as_ref()?.logs.iter();
    logs.find(|(of, _)| *of == slot).map(|(_, log)| log)
}

/// The members that are present, by slot.
fn sources(array: &AssembledArray) -> Vec<Option<Source>> {
    let source = |occupant: &Occupant| Source {
        recovered_sectors: occupant.recovered_until,
        bad_sectors: occupant.bad_sectors(),
    };
    array.slots.iter().map(|slot| slot.as_ref().map(source)).collect()
}

/// The members that are present, and their logs.
fn setup(array: &AssembledArray, geometry: &StripeGeometry, finish: Finish) -> Setup {
    let slots = (0..geometry.slots()).map(Slot);
    let log = |slot| {
        let entries = log_of(array, slot)?.entries();
        let entries = entries.map(|(index, logged)| (index, logged.entry)).collect();
        Some(Log { slot, entries })
    };
    let members = sources(array);
    Setup { geometry: *geometry, members, logs: slots.filter_map(log).collect(), finish }
}

/// Replays parity logs; `None` if there are no logs. With [`ReplayTarget::Memory`], reads return
/// the new parity.
///
/// # Errors
/// A log is unfit, a member cannot be written, or the parity exceeds `MEMORY_BYTES_MAX`.
pub fn replay(
    array: &mut AssembledArray,
    members: &mut [Option<OpenMember>],
    labels: &[String],
    target: ReplayTarget,
) -> Result<Option<PplResult>, CliError> {
    let (Some(logs), Geometry::Stripe(geometry)) = (&array.replay, &array.geometry) else {
        return Ok(None);
    };
    let torn = logs.logs.iter().filter_map(|(_, log)| log.newest.as_ref());
    let torn = torn.map(|record| record.torn).sum();
    let unread = logs.unread.iter();
    let unread = unread.map(|(slot, error)| format!("the log of slot {slot}: {error}")).collect();
    let finish = if target == ReplayTarget::Members { Finish::Flushed } else { Finish::Written };
    let kind = kind_of(array);
    let refused = |error: ReplayError| not_replayed(kind, error.to_string(), labels);
    let machine = Replay::new(setup(array, geometry, finish)).map_err(refused)?;
    let mut devices = MemberDevices::new(array, (members, labels), target);
    let ended = run(machine, &mut devices);
    let MemberDevices { patches, failure, .. } = devices;
    let report = ended.map_err(|error| failure.unwrap_or_else(|| refused(error)))?;
    lay_over(array, members, patches);
    // In a degraded array, unread ranges are reported, and the array is not served for writing.
    array.note_replayed(report.unread.is_empty() || array.degraded > 0);
    Ok(Some(PplResult { kind, report, target, torn, unread }))
}

fn kind_of(array: &AssembledArray) -> &'static str {
    match array.newest.intent.ppl {
        Some(_) => "the partial parity log",
        None => "braid's own log",
    }
}

/// Makes reads of each slot's member return the sectors in `patches`, not those on the device.
fn lay_over(array: &AssembledArray, members: &mut [Option<OpenMember>], patches: Vec<Sectors>) {
    for (occupant, sectors) in array.slots.iter().zip(patches) {
        let Some(index) = occupant.as_ref().map(|one| one.member) else { continue };
        let Some(open) = members[index].take_if(|_| !sectors.is_empty()) else { continue };
        let device: Box<dyn Member> = Box::new(Patched::new(open.device, sectors));
        members[index] = Some(OpenMember { device, superblock: open.superblock });
    }
}

/// Ranges of the array in words: the first few, and the number of the others.
fn shown(ranges: &[Range<u64>]) -> String {
    let shown = ranges.iter().take(RANGES_SHOWN);
    let shown = shown.map(|range| format!("{} to {}", range.start, range.end - 1));
    let shown = shown.collect::<Vec<String>>().join(", ");
    match ranges.len().saturating_sub(RANGES_SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn ranges_json(ranges: &[Range<u64>]) -> Value {
    let range = |range: &Range<u64>| {
        json!({
            "offset_bytes": range.start * SECTOR_BYTES,
            "length_bytes": (range.end - range.start) * SECTOR_BYTES,
        })
    };
    ranges.iter().map(range).collect()
}

fn not_replayed(kind: &str, why: String, labels: &[String]) -> CliError {
    let all = words(labels, &[]);
    CliError::new(Code::PplNeeded, format!("{kind} of the array could not be replayed"))
        .because(why)
        .remedy(Risk::Look, "See what it says", format!("braid examine {all}"))
}

impl PplResult {
    /// The result of the replay and the remaining damage, in words.
    pub fn lines(&self) -> Vec<String> {
        let Report { entries, written_sectors, unsettled, .. } = &self.report;
        let size = format_size(written_sectors * SECTOR_BYTES);
        let noun = if *entries == 1 { "entry" } else { "entries" };
        let (was, target) = self.target.words();
        let torn = match self.torn {
            0 => String::new(),
            torn => format!("; {torn} torn entries cover no write to the members"),
        };
        let done = format!(
            "{} {was} replayed: {entries} {noun}, {size} of parity recomputed ({target}){torn}",
            self.kind
        );
        let mut lines = vec![done];
        if !unsettled.is_empty() {
            let shown = shown(unsettled);
            lines.push(format!(
                "interrupted while being written, and unreadable now: array sectors {shown}; if \
                 that write did not complete, they hold neither the old nor the new data"
            ));
        }
        lines.extend(self.unread.iter().map(|unread| format!("not replayed: {unread}")));
        lines
    }

    /// The result of the replay as JSON.
    pub fn to_json(&self) -> Value {
        let Report { entries, written_sectors, unsettled, .. } = &self.report;
        json!({
            "entries": entries,
            "torn_entries": self.torn,
            "parity_bytes": written_sectors * SECTOR_BYTES,
            "unsettled": ranges_json(unsettled),
            "unread_logs": self.unread,
            "where": self.target.to_json(),
        })
    }
}
