//! The copy loop: reads and writes as the plan says; now and then makes image and map durable.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use braid_imaging::{Map, PIECE_BYTES, Plan, State};
use braid_member::{Member, MemberError, MemberKind};
use braid_ring::Payload;

use super::progress::Progress;
use braid_console::Globals;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_discovery::maps;
use braid_discovery::probe::io_error;

/// The map is written at this interval: a crash loses no more reads than those of one interval.
const NOTED_EVERY: Duration = Duration::from_secs(10);
/// After this many failing reads in a row, the command checks whether the whole disk has failed.
const FAILING_MAX: usize = 16;
const SECTOR_BYTES: usize = 512;
/// Runs of this many zero bytes become holes of the image.
const HOLE_BYTES: usize = 4096;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyEnd {
    /// The plan has no more reads.
    Over,
    /// A signal ended the copy.
    Interrupted,
}

/// Source and target.
pub(super) struct CopyRun<'a> {
    pub(super) source: &'a dyn Member,
    pub(super) image: &'a dyn Member,
    pub(super) map_path: &'a Path,
    /// The map's first line.
    pub(super) remark: &'a str,
    pub(super) ends: &'a AtomicBool,
}

impl CopyRun<'_> {
    pub(super) fn run(
        &self,
        mut plan: Plan,
        globals: &Globals,
    ) -> Result<(Map, CopyEnd), CliError> {
        let mut memory = Payload::zeroed(usize::try_from(PIECE_BYTES).expect("small"));
        let mut progress = Progress::new(plan.map(), globals);
        let mut noted = Instant::now();
        // Failing ranges since the last good read.
        let mut failing = Vec::new();
        // If the map cannot be written, reading the disk is pointless, so the map is written first.
        self.note(&plan)?;
        let ended = loop {
            if self.ends.load(Ordering::Relaxed) {
                break CopyEnd::Interrupted;
            }
            let Some(request) = plan.next_request() else { break CopyEnd::Over };
            let length =
                usize::try_from(request.range.end - request.range.start).expect("a piece is small");
            let bytes = &mut memory[..length];
            let is_read = match self.source.read_at(bytes, request.range.start) {
                Ok(()) => true,
                Err(MemberError::Media { .. }) if !self.source.has_vanished() => false,
                // The whole disk is gone, not only a sector.
                Err(error) => {
                    self.note(&plan)?;
                    return Err(io_error(
                        &self.source.identity().path.display().to_string(),
                        "reading",
                        &error,
                    ));
                }
            };
            if is_read && let Err(error) = self.write(bytes, request.range.start) {
                // The last written map is durable; ranges read since then are read again next time.
                return Err(io_error(
                    &self.image.identity().path.display().to_string(),
                    "writing",
                    &error,
                ));
            }
            plan.answered(&request, is_read);
            match is_read {
                true => failing.clear(),
                false => failing.push(request.range),
            }
            if failing.len() >= FAILING_MAX {
                if self.is_gone(&plan) {
                    plan.take_back(&failing);
                    self.note(&plan)?;
                    return Err(self.gone());
                }
                failing.clear();
            }
            progress.show(&plan);
            if noted.elapsed() > NOTED_EVERY {
                self.note(&plan)?;
                noted = Instant::now();
            }
        };
        progress.end();
        self.note(&plan)?;
        Ok((plan.map().clone(), ended))
    }

    /// Whether reads fail at places that were read before: then cable, bus or whole disk failed.
    fn is_gone(&self, plan: &Plan) -> bool {
        let identity = self.source.identity();
        let number = identity.device.filter(|_| identity.kind == MemberKind::BlockDevice);
        let is_offline = number.is_some_and(|number| {
            let of = format!("/sys/dev/block/{}:{}", number.major, number.minor);
            // The second path is for a partition: a partition has its disk's state.
            let states = ["device/state", "../device/state"].map(|state| format!("{of}/{state}"));
            let mut said = states.iter().filter_map(|state| std::fs::read_to_string(state).ok());
            said.any(|state| !["running", "live"].contains(&state.trim()))
        });
        let done: Vec<_> = plan.map().of(State::Done).collect();
        let mut sector = Payload::zeroed(SECTOR_BYTES);
        // The tried places were read long ago, because the page cache may still hold recent ones.
        let mut places = [0, done.len() / 2].into_iter().filter_map(|index| done.get(index));
        let fails =
            |range: &std::ops::Range<u64>| self.source.read_at(&mut sector, range.start).is_err();
        is_offline || (!done.is_empty() && places.all(fails))
    }

    fn gone(&self) -> CliError {
        let name = self.source.identity().path.display().to_string();
        CliError::new(Code::MemberIo, format!("reading {name} failed"))
            .about(name)
            .because(
                "sectors that it returned before fail too: it is switched off, or has \
                      dropped off its bus",
            )
            .because(
                "the latest reads count as untried; run the command again when the disk is \
                      back",
            )
            .remedy(Risk::Look, "See what the kernel says", "dmesg | tail")
    }

    /// Writes the bytes that are not zero. All other bytes must read as zeroes, as in a new file.
    fn write(&self, bytes: &[u8], at: u64) -> Result<(), MemberError> {
        let is_zero = |piece: &[u8]| piece.iter().all(|byte| *byte == 0);
        let mut start = 0;
        while start < bytes.len() {
            let first = &bytes[start..bytes.len().min(start + HOLE_BYTES)];
            let is_hole = is_zero(first);
            let same =
                bytes[start..].chunks(HOLE_BYTES).take_while(|piece| is_zero(piece) == is_hole);
            let length: usize = same.map(<[u8]>::len).sum();
            let offset = at + start as u64;
            match is_hole {
                true => self.image.zero(offset, length as u64, true)?,
                false => self.image.write_at(&bytes[start..start + length], offset, false)?,
            }
            start += length;
        }
        Ok(())
    }

    /// Makes the image durable, then writes the plan's map.
    fn note(&self, plan: &Plan) -> Result<(), CliError> {
        let flushed = self.image.flush();
        flushed.map_err(|error| {
            io_error(&self.image.identity().path.display().to_string(), "writing", &error)
        })?;
        let at = (plan.position(), plan.step().sign());
        maps::write(self.map_path, &plan.map().to_text(&[self.remark], at, plan.step().pass()))
    }
}
