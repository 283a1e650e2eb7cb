//! The copy itself: what the plan asks for is read and written, and now and then made durable and noted down.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use braid_imaging::{Map, PIECE_BYTES, Plan};
use braid_member::{Member, MemberError};
use braid_ring::Payload;

use super::progress::Progress;
use crate::cmd::Globals;
use crate::error::CliError;
use crate::maps;
use crate::probe::io_error;

/// How long what was read may be lost again, if everything ends.
const NOTED_EVERY: Duration = Duration::from_secs(10);
/// Zeroes of so many bytes are left out of the copy, and take no space there.
const HOLE_BYTES: usize = 4096;

/// How a copy came to its end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// Everything has been asked for.
    Over,
    /// By a signal.
    Interrupted,
}

/// From where, to where.
pub(super) struct Copying<'a> {
    pub(super) source: &'a dyn Member,
    pub(super) image: &'a dyn Member,
    pub(super) map_path: &'a Path,
    /// What the map begins with.
    pub(super) remark: &'a str,
    pub(super) ends: &'a AtomicBool,
}

impl Copying<'_> {
    pub(super) fn run(&self, mut plan: Plan, globals: &Globals) -> Result<(Map, Ended), CliError> {
        let mut memory = Payload::zeroed(usize::try_from(PIECE_BYTES).expect("small"));
        let mut progress = Progress::new(plan.map(), globals);
        let mut noted = Instant::now();
        // Where nothing can be kept, nothing need be read.
        self.note(&plan)?;
        let ended = loop {
            if self.ends.load(Ordering::Relaxed) {
                break Ended::Interrupted;
            }
            let Some(ask) = plan.next_ask() else { break Ended::Over };
            let length =
                usize::try_from(ask.range.end - ask.range.start).expect("a piece is small");
            let bytes = &mut memory[..length];
            let is_read = match self.source.read_at(bytes, ask.range.start) {
                Ok(()) => true,
                Err(MemberError::Media { .. }) if !self.source.has_vanished() => false,
                // It is the disk as a whole that is gone.
                Err(error) => {
                    self.note(&plan)?;
                    return Err(io_error(
                        &self.source.identity().path.display().to_string(),
                        "reading",
                        &error,
                    ));
                }
            };
            if is_read && let Err(error) = self.write(bytes, ask.range.start) {
                // What was noted before is durable, and what came after is read once more.
                return Err(io_error(
                    &self.image.identity().path.display().to_string(),
                    "writing",
                    &error,
                ));
            }
            plan.answered(&ask, is_read);
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

    /// Writes what is not zero; the rest has to read as zeroes, which in a file that was just made it does.
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

    /// Makes durable what the image has, then says so.
    fn note(&self, plan: &Plan) -> Result<(), CliError> {
        let flushed = self.image.flush();
        flushed.map_err(|error| {
            io_error(&self.image.identity().path.display().to_string(), "writing", &error)
        })?;
        let at = (plan.position(), plan.step().sign());
        maps::write(self.map_path, &plan.map().to_text(&[self.remark], at, plan.step().pass()))
    }
}
