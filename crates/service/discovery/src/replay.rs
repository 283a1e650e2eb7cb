//! Replays an array's parity logs: onto its members, or in memory if nothing may be written.
//! `journal` does the same for a write journal.
//!
//! The engine's machine decides (`braid_engine::replay`); this module reads and writes members for
//! it, before anything else uses them.
//!
//! ```text
//!   assembled, dirty, with logs ─┬▶ serve --read-only   parity in memory, laid over the members
//!                                └▶ replay              parity on the members, flushed
//! ```
//!
//! With `--read-only` nothing on the members changes. A replay leaves superblocks and logs, so that
//! braid or md can repeat it.

pub mod journal;

use std::ops::Range;

use braid_assembly::AssembledArray;
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

/// Most bytes of parity in memory: logs of mdadm's arrays cover a few MiB.
const MEMORY_BYTES_MAX: u64 = 256 << 20;
/// Most ranges that a message lists; for further ranges the message gives only their number.
const RANGES_SHOWN: usize = 8;

/// Where the replay writes the parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayTarget {
    /// Memory: reads of the members see it.
    Memory,
    /// The members.
    Members,
    /// Nowhere: a dry run.
    Nowhere,
}

impl ReplayTarget {
    /// Whether the operator requested the replay; otherwise it runs because serving needs it.
    pub fn is_requested(self) -> bool {
        self != Self::Memory
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
    /// The result and the remaining damage, in words.
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

    /// The result as JSON.
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
    /// Torn entries; their stripes stay as they are.
    torn: u32,
    /// Unreadable logs, and why.
    unread: Vec<String>,
}

/// Gives the replay access to the members.
struct MemberDevices<'a> {
    array: &'a AssembledArray,
    members: &'a [Option<OpenMember>],
    labels: &'a [String],
    target: ReplayTarget,
    patches: Vec<Sectors>,
    /// The cause of the last failure.
    failure: Option<CliError>,
}

impl MemberDevices<'_> {
    fn index(&self, slot: Slot) -> usize {
        let occupant = self.array.slots.get(slot.index()).and_then(Option::as_ref);
        occupant.expect("a replay asks only those that are there").member
    }

    fn open(&self, slot: Slot) -> &OpenMember {
        let open = self.members.get(self.index(slot)).and_then(Option::as_ref);
        open.expect("members in slots are open")
    }

    fn byte(&self, slot: Slot, sector: u64) -> u64 {
        (self.open(slot).superblock.device.data_offset_sectors + sector) * SECTOR_BYTES
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
        let indices: Vec<usize> = std::iter::once(self.index(slot)).chain(replacements).collect();
        for index in indices {
            let open = self.members.get(index).and_then(Option::as_ref);
            if let Err(error) = act(open.expect("members of the array are open")) {
                let label = self.labels.get(index).map_or("a member", String::as_str);
                self.failure = Some(io_error(label, doing, &error));
                return false;
            }
        }
        true
    }

    /// Keeps parity in memory; returns whether there is room for it.
    fn keep(&mut self, slot: Slot, sector: u64, bytes: &[u8]) -> bool {
        let start = self.open(slot).superblock.device.data_offset_sectors + sector;
        let (sectors, _) = bytes.as_chunks::<512>();
        self.patches[slot.index()].extend((start..).zip(sectors.iter().copied()));
        let count: u64 = self.patches.iter().map(|sectors| sectors.len() as u64).sum();
        let has_room = count * SECTOR_BYTES <= MEMORY_BYTES_MAX;
        if !has_room {
            let most = format_size(MEMORY_BYTES_MAX);
            let what = format!("the logs cover more than {most} of parity, too much for memory");
            self.failure = Some(CliError::new(Code::PplNeeded, what));
        }
        has_room
    }
}

impl Devices for MemberDevices<'_> {
    fn read(&mut self, slot: Slot, sectors: Range<u64>, bytes: &mut [u8]) -> bool {
        let at = self.byte(slot, sectors.start);
        self.open(slot).device.read_at(bytes, at).is_ok()
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
            ReplayTarget::Memory => self.keep(slot, sectors.start, bytes),
            ReplayTarget::Members => self.each_of_slot(slot, "writing", |open| {
                let sector = open.superblock.device.data_offset_sectors + sectors.start;
                open.device.write_at(bytes, sector * SECTOR_BYTES, false)
            }),
        }
    }

    fn flush(&mut self, slot: Slot) -> bool {
        self.each_of_slot(slot, "flushing", |open| open.device.flush())
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

/// The present members and their logs.
fn setup(array: &AssembledArray, geometry: &StripeGeometry, finish: Finish) -> Setup {
    let source = |occupant: &braid_assembly::Occupant| Source {
        recovered_sectors: occupant.recovered_until,
        bad_sectors: occupant.bad_sectors(),
    };
    let members = array.slots.iter().map(|slot| slot.as_ref().map(source)).collect();
    let slots = (0..geometry.slots()).map(Slot);
    let log = |slot| {
        let entries = log_of(array, slot)?.entries();
        let entries = entries.map(|(index, logged)| (index, logged.entry)).collect();
        Some(Log { slot, entries })
    };
    Setup { geometry: *geometry, members, logs: slots.filter_map(log).collect(), finish }
}

/// Replays parity logs; `None` without any. With [`ReplayTarget::Memory`] reads see the new parity.
///
/// # Errors
/// An unfit log, a member that cannot be written, or more parity than `MEMORY_BYTES_MAX`.
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
    let patches = vec![Sectors::new(); array.slots.len()];
    let mut devices = MemberDevices { array, members, labels, target, patches, failure: None };
    let ended = run(machine, &mut devices);
    let MemberDevices { patches, failure, .. } = devices;
    let report = ended.map_err(|error| failure.unwrap_or_else(|| refused(error)))?;
    if target == ReplayTarget::Memory {
        let occupants: Vec<Option<usize>> =
            array.slots.iter().map(|slot| slot.as_ref().map(|one| one.member)).collect();
        for (index, sectors) in occupants.into_iter().zip(patches) {
            index.into_iter().for_each(|index| lay_over(&mut members[index], &sectors));
        }
    }
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

/// Makes reads of the member return these sectors.
fn lay_over(member: &mut Option<OpenMember>, sectors: &Sectors) {
    let Some(open) = member.take_if(|_| !sectors.is_empty()) else { return };
    let device: Box<dyn Member> = Box::new(Patched::new(open.device, sectors.clone()));
    *member = Some(OpenMember { device, superblock: open.superblock });
}

fn not_replayed(kind: &str, why: String, labels: &[String]) -> CliError {
    let all = words(labels, &[]);
    CliError::new(Code::PplNeeded, format!("{kind} of the array could not be replayed"))
        .because(why)
        .remedy(Risk::Look, "See what it says", format!("braid examine {all}"))
}

impl PplResult {
    /// The result and the remaining damage, in words.
    pub fn lines(&self) -> Vec<String> {
        let Report { entries, written_sectors, unsettled, .. } = &self.report;
        let size = format_size(written_sectors * SECTOR_BYTES);
        let noun = if *entries == 1 { "entry" } else { "entries" };
        let (was, target) = match self.target {
            ReplayTarget::Memory => ("was", "in memory, nothing is written"),
            ReplayTarget::Members => ("was", "on the members"),
            ReplayTarget::Nowhere => ("would be", "nothing is written"),
        };
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
            let shown = unsettled.iter().take(RANGES_SHOWN);
            let shown = shown.map(|range| format!("{} to {}", range.start, range.end - 1));
            let shown: Vec<String> = shown.collect();
            let more = unsettled.len().saturating_sub(RANGES_SHOWN);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            lines.push(format!(
                "interrupted while being written, and unreadable now: array sectors {}{more}; if \
                 that write did not complete, they hold neither the old nor the new data",
                shown.join(", ")
            ));
        }
        lines.extend(self.unread.iter().map(|unread| format!("not replayed: {unread}")));
        lines
    }

    /// The result as JSON.
    pub fn to_json(&self) -> Value {
        let Report { entries, written_sectors, unsettled, .. } = &self.report;
        let range = |range: &Range<u64>| {
            json!({
                "offset_bytes": range.start * SECTOR_BYTES,
                "length_bytes": (range.end - range.start) * SECTOR_BYTES,
            })
        };
        json!({
            "entries": entries,
            "torn_entries": self.torn,
            "parity_bytes": written_sectors * SECTOR_BYTES,
            "unsettled": unsettled.iter().map(range).collect::<Vec<_>>(),
            "unread_logs": self.unread,
            "where": match self.target {
                ReplayTarget::Memory => "memory",
                ReplayTarget::Members => "members",
                ReplayTarget::Nowhere => "nowhere",
            },
        })
    }
}
