//! Doing what was planned, so that a failure half-way leaves things as they were.
//!
//! ```text
//!   make files -> save what is wiped -> wipe -> zero -> superblocks, durable -> read back, assemble
//!        on any failure: files made here are removed, first and last bytes of others put back
//! ```
//!
//! Only `--zero` cannot be taken back; it is asked for by name. A signal is a failure between two steps.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use braid_assembly::{Choice, Options, ProbedMember, Verdict, assemble};
use braid_member::{Member, create_file};
use braid_ondisk::{ArrayFacts, DeviceFlags, NewSuperblock, Role, Superblock, Timestamp};
use uuid::Uuid;

use super::destroy::signature_sectors;
use super::plan::{Plan, Seat, Source, Sync};
use crate::cmd::Globals;
use crate::error::code::Code;
use crate::error::{CliError, Risk};
use crate::output::utc::now_seconds;
use crate::probe::{io_error, open_error, probe_member};
use crate::refusal;
use crate::state::{Saved, remove_files, save};

/// Bytes in a sector.
const SECTOR_BYTES: u64 = 512;
/// Bytes zeroed between two looks at the progress.
const ZERO_STEP_BYTES: u64 = 64 << 20;

/// What came of it.
pub(super) struct Made {
    pub(super) array_uuid: [u8; 16],
    /// Where the old superblocks were saved, if there were any.
    pub(super) saved_in: Option<PathBuf>,
}

/// What has to be taken back if something fails; does so when dropped.
struct TakeBack<'a> {
    plan: &'a Plan,
    /// Files made so far.
    files: Vec<PathBuf>,
    /// Whether members that were there may have been written.
    has_written: bool,
    is_done: bool,
}

impl Drop for TakeBack<'_> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        remove_files(&self.files);
        if !self.has_written {
            return;
        }
        for seat in &self.plan.seats {
            let Source::Existing(existing) = &seat.source else { continue };
            // The failure that brought us here is reported; the saved copy is still there. Not
            // durable writes: after a failed flush those are refused, and this is worth a try.
            for snippet in &existing.snippets {
                let _ = existing.device.write_at(&snippet.bytes, snippet.offset, false);
            }
            let _ = existing.device.flush();
        }
    }
}

/// Set by the signals that ask us to end.
#[derive(Clone)]
struct Signals(Arc<AtomicBool>);

impl Signals {
    fn watch() -> Result<Self, CliError> {
        let seen: Arc<AtomicBool> = Arc::default();
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&seen)).map_err(|error| {
                CliError::new(Code::MemberIo, "signals cannot be watched").caused_by(&error)
            })?;
        }
        Ok(Self(seen))
    }

    /// An error once a signal has come.
    fn check(&self) -> Result<(), CliError> {
        if !self.0.load(Ordering::Relaxed) {
            return Ok(());
        }
        let error = CliError::new(Code::Interrupted, "interrupted: the array was not made");
        Err(error.because("new files were removed, and superblocks of others put back"))
    }
}

/// Does all of it.
pub(super) fn apply(plan: &Plan, globals: &Globals) -> Result<Made, CliError> {
    let mut back = TakeBack { plan, files: Vec::new(), has_written: false, is_done: false };
    let signals = Signals::watch()?;
    let new_files = make_files(plan, &mut back.files)?;
    let saved_in = save_old(plan, globals)?;
    signals.check()?;
    back.has_written = true;
    wipe(plan)?;
    if plan.sync == Sync::Zeroed {
        zero(plan, globals, &signals)?;
    }
    let superblocks = superblocks(plan)?;
    signals.check()?;
    let devices = devices(plan, &new_files);
    for ((device, seat), superblock) in devices.iter().zip(&plan.seats).zip(&superblocks) {
        device
            .write_at(&superblock.to_bytes(), superblock.offset_bytes(), true)
            .and_then(|()| device.flush())
            .map_err(|error| io_error(&seat.label, "writing", &error))?;
    }
    let array_uuid = superblocks.first().expect("a plan has members").array.uuid;
    check(plan, &devices, array_uuid)?;
    back.is_done = true;
    Ok(Made { array_uuid, saved_in })
}

/// One for each seat: the new file, if it is one.
fn make_files(
    plan: &Plan,
    made: &mut Vec<PathBuf>,
) -> Result<Vec<Option<Box<dyn Member>>>, CliError> {
    let make = |seat: &Seat| match seat.source {
        Source::Existing(_) => Ok(None),
        Source::ToMake => {
            let device = create_file(&seat.path, seat.size_bytes).map_err(|e| open_error(&e))?;
            made.push(seat.path.clone());
            Ok(Some(device))
        }
    };
    plan.seats.iter().map(make).collect()
}

fn devices<'a>(plan: &'a Plan, files: &'a [Option<Box<dyn Member>>]) -> Vec<&'a dyn Member> {
    let device = |(seat, file): (&'a Seat, &'a Option<Box<dyn Member>>)| match (&seat.source, file)
    {
        (Source::Existing(existing), _) => existing.device.as_ref(),
        (Source::ToMake, file) => file.as_deref().expect("made before"),
    };
    plan.seats.iter().zip(files).map(device).collect()
}

/// Saves the ends of every member on which something was recognised.
fn save_old(plan: &Plan, globals: &Globals) -> Result<Option<PathBuf>, CliError> {
    let saved: Vec<Saved<'_>> = plan
        .seats
        .iter()
        .filter_map(|seat| match &seat.source {
            Source::Existing(existing) if !existing.probe.is_blank() => Some(Saved {
                label: &seat.label,
                size_bytes: seat.size_bytes,
                snippets: &existing.snippets,
            }),
            _ => None,
        })
        .collect();
    if saved.is_empty() {
        return Ok(None);
    }
    save(&globals.state_dir, &plan.wanted.name, &saved).map(Some)
}

fn wipe(plan: &Plan) -> Result<(), CliError> {
    for seat in &plan.seats {
        let Source::Existing(existing) = &seat.source else { continue };
        let device = existing.device.as_ref();
        for sector in signature_sectors(existing, plan.args.assume_clean) {
            device
                .write_at(&[0; 512], sector * SECTOR_BYTES, false)
                .map_err(|error| io_error(&seat.label, "wiping", &error))?;
        }
        device.flush().map_err(|error| io_error(&seat.label, "wiping", &error))?;
    }
    Ok(())
}

/// Zeroes the data areas of the members that were there; new files are zero already.
fn zero(plan: &Plan, globals: &Globals, signals: &Signals) -> Result<(), CliError> {
    let shows = std::io::stderr().is_terminal() && !globals.json;
    for seat in &plan.seats {
        let Source::Existing(existing) = &seat.source else { continue };
        let failed = |error| io_error(&seat.label, "zeroing", &error);
        let end = (seat.placement.data_offset_sectors + plan.member_size_sectors) * SECTOR_BYTES;
        let start = seat.placement.data_offset_sectors * SECTOR_BYTES;
        let mut at = start;
        while at < end {
            signals.check()?;
            let length = ZERO_STEP_BYTES.min(end - at);
            existing.device.zero(at, length, true).map_err(failed)?;
            at += length;
            if shows {
                let percent = (at - start) * 100 / (end - start);
                // Progress is a courtesy: a closed standard error does not stop the work.
                let mut err = std::io::stderr();
                let _ = write!(err, "\rzeroing {}  {percent:>3} %", seat.label)
                    .and_then(|()| err.flush());
            }
        }
        existing.device.flush().map_err(failed)?;
        if shows {
            errln!("");
        }
    }
    Ok(())
}

/// One superblock for each seat. Slots have the device numbers of their slot, spares those behind.
fn superblocks(plan: &Plan) -> Result<Vec<Superblock>, CliError> {
    let wanted = &plan.wanted;
    let slots = plan.geometry.slots();
    let spares = plan.seats.iter().filter(|seat| seat.slot.is_none()).count();
    let mut roles = vec![Role::Spare; usize::from(slots) + spares];
    for slot in plan.seats.iter().filter_map(|seat| seat.slot) {
        roles[usize::from(slot)] = Role::Active(slot);
    }
    let roles: Arc<[Role]> = roles.into();
    let array = ArrayFacts {
        uuid: *Uuid::new_v4().as_bytes(),
        name: wanted.name.clone(),
        creation_time: Timestamp { seconds: now_seconds(), microseconds: 0 },
        level: wanted.level,
        layout: wanted.layout,
        chunk_sectors: wanted.chunk_sectors,
        member_size_sectors: plan.member_size_sectors,
        raid_slots: u32::from(slots),
        preferred_minor: None,
    };
    let mut spare_number = u32::from(slots);
    let mut superblocks = Vec::new();
    for seat in &plan.seats {
        let device_number = seat.slot.map(u32::from).unwrap_or_else(|| {
            spare_number += 1;
            spare_number - 1
        });
        let new = NewSuperblock {
            array: array.clone(),
            placement: seat.placement,
            device_number,
            device_uuid: *Uuid::new_v4().as_bytes(),
            device_flags: DeviceFlags::default(),
            roles: Arc::clone(&roles),
            events: 0,
            resync_offset: plan.sync.resync_offset(),
        };
        superblocks.push(Superblock::new_v1(&new).map_err(|error| {
            let what = format!("no superblock can be made for {}", seat.label);
            CliError::new(Code::MemberCount, what).about(seat.label.clone()).caused_by(&error)
        })?);
    }
    Ok(superblocks)
}

/// Reads back what was written: every member must be a part of the one array.
fn check(plan: &Plan, devices: &[&dyn Member], uuid: [u8; 16]) -> Result<(), CliError> {
    let mut probed: Vec<ProbedMember> = Vec::new();
    for (device, seat) in devices.iter().zip(&plan.seats) {
        probed.push(probe_member(*device, &seat.label)?);
    }
    let choice = Choice { uuid: Some(uuid), name: None };
    let assembly = assemble(&probed, &Options { choice, ..Options::default() });
    let labels: Vec<String> = plan.seats.iter().map(|seat| seat.label.clone()).collect();
    let mut failed =
        CliError::new(Code::VerifyFailed, "the new array does not read back as written");
    let mut is_right = true;
    for (verdict, seat) in assembly.verdicts.iter().zip(&plan.seats) {
        let fits = match (verdict.verdict, seat.slot) {
            (Verdict::Fresh { slot }, Some(planned)) => slot == planned,
            (Verdict::Spare, None) => true,
            _ => false,
        };
        if !fits {
            is_right = false;
            failed = failed.because(format!("{}: {}", verdict.label, verdict.reason));
        }
    }
    if let Err(refused) = &assembly.array {
        is_right = false;
        failed = failed.caused_by(&refusal::cli_error(refused, &assembly.verdicts, &labels));
    }
    if is_right {
        return Ok(());
    }
    let examine = format!("braid examine {}", refusal::words(&labels, &[]));
    Err(failed.remedy(Risk::Look, "See what is there", examine))
}
