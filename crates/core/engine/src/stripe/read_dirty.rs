//! Reads of answered writes that are not on the members yet, from the writers' payloads.
//!
//! ```text
//!   read            |---------------------|
//!   queue   older       |-------|
//!           newer             |-----|
//!   served          |m  |o    |n    |m    |      m from the member, o and n copied
//! ```
//!
//! Of several writes the newest counts, as it will on the member. Sectors that no queued write
//! covers are read from the member. A batch in flight may rewrite these sectors, but with the same
//! bytes.
//!
//! While a copy is in flight, a stripe that has begun stands still ([`mod@super::batch`]), so no
//! payload is released under the copy [check: a_read_sees_what_was_answered]. Readers of a busy
//! block must not hold up its stripe forever. So a read waits for the end of the batch if its
//! stripe has begun and has copies in flight. Only if the stripe is stuck on a member that sits
//! out, the read begins at once [check: a_hot_dirty_block_is_written_while_it_is_read].

use braid_sim_hooks::{Mark, reached};

use super::band::{Attachment, Bands, Run, Segment, WriteKind};
use super::batch::Stripe;
use super::in_flight::CopyOut;
use super::machine::Stripes;
use super::reconstruct::ClientRead;
use crate::buffer::Buffer;
use crate::computation::{Computation, ComputationId, Step};
use crate::context::{Common, PieceKey};
use crate::request::Piece;
use crate::sectors::SectorSet;

/// A run of a column's sectors, and the place of its newest bytes.
struct RunSource {
    /// First sector after the run, in the stripe unit.
    to: u32,
    /// The step that copies the run; `None` if the run must come from the member.
    step: Option<Step>,
}

impl Stripes {
    /// Reads a range inside one chunk: dirty sectors from memory, the other sectors from the
    /// member.
    pub(super) fn read_over_dirt(
        &mut self,
        common: &mut Common,
        key: PieceKey,
        piece: &Piece,
        (range, data_index): ((u32, u32), u16),
    ) {
        let geometry = self.geometry;
        // Start of the clean sectors that must still be read from the member.
        let mut clean_from = range.0;
        let mut from = range.0;
        for (band, run) in Bands::new(&geometry, self.unit_sectors, piece, range) {
            let segment = band.segment(&run, data_index).expect("a band of this chunk");
            let next = from + segment.sectors;
            common.counters.cache.lookups += 1;
            let set = SectorSet::run(segment.offset, segment.sectors);
            let found = self.pool.find(band.key);
            let stripe =
                found.filter(|number| self.pool.stripe(*number).has_queued(data_index, set));
            if let Some(stripe) = stripe {
                if clean_from < from {
                    self.read_past_stripes(common, key, piece, (clean_from, from));
                }
                let own = self.pool.stripe(stripe);
                let is_begun = own.has_batch() && own.has_copies();
                if is_begun && !own.is_stuck(&common.clocks) {
                    reached(Mark::DirtyReadWaits);
                    common.add_part(key);
                    let want =
                        ClientRead { piece: key, request: piece.request, run, insists: false };
                    self.reads.wait_for_batch(band, want);
                    (clean_from, from) = (next, next);
                    continue;
                }
                self.read_dirty(common, (key, piece), (from, &run), (stripe, data_index));
                clean_from = next;
            }
            from = next;
        }
        if clean_from < from {
            self.read_past_stripes(common, key, piece, (clean_from, from));
        }
    }

    /// Reads `run` in one column of a stripe that holds newer bytes for at least a part of the run.
    /// `from` is the offset in the piece at which the run begins in this column.
    fn read_dirty(
        &mut self,
        common: &mut Common,
        (key, piece): (PieceKey, &Piece),
        (from, run): (u32, &Run),
        (index, data_index): (u32, u16),
    ) {
        reached(Mark::ReadsDirt);
        common.counters.cache.dirty_reads += 1;
        let stripe = self.pool.stripe(index);
        let segment = stripe.band().segment(run, data_index).expect("it was found there");
        let name = self.copies.insert(CopyOut { key, stripe: index });
        let mut computation: Computation = common.blank_computation(ComputationId(name));
        let (mut place, end) = (segment.offset, segment.offset + segment.sectors);
        while place < end {
            let into = place - segment.offset;
            let offset_sectors = segment.payload_offset + into;
            let to = Buffer::Payload { request: piece.request, offset_sectors };
            let source = find(self.pool.stripe(index), data_index, (place, end), to);
            match source.step {
                Some(step) => {
                    common.counters.cache.copied_sectors += u64::from(source.to - place);
                    computation.steps.push(step);
                }
                None => {
                    let range = (from + into, from + source.to - segment.offset);
                    self.read_past_stripes(common, key, piece, range);
                }
            }
            place = source.to;
        }
        assert!(!computation.steps.is_empty(), "something is dirty here");
        common.add_part(key);
        self.pool.stripe_mut(index).begin_copy();
        common.submit_computation(computation);
    }

    pub(super) fn copy_out_done(&mut self, common: &mut Common, computation: ComputationId) {
        let CopyOut { key, stripe } =
            self.copies.remove(computation.0).expect("a copy that is out");
        self.pool.stripe_mut(stripe).end_copy();
        common.part_done(key, Ok(()));
        self.scheduler.look_at(stripe);
    }
}

/// The newest queued data at `place`, up to the sector where a newer or the next queued write
/// begins.
fn find(stripe: &Stripe, data_index: u16, range: (u32, u32), to: Buffer) -> RunSource {
    let segment_of = |work: &Attachment| stripe.band().segment(&work.run, data_index);
    find_first(stripe.queue().rev(), segment_of, range, to)
}

fn find_first<'a>(
    works: impl Iterator<Item = &'a Attachment>,
    segment_of: impl Fn(&Attachment) -> Option<Segment>,
    (place, end): (u32, u32),
    to: Buffer,
) -> RunSource {
    let mut end = end;
    for work in works {
        let Some(segment) = segment_of(work) else { continue };
        if segment.offset > place {
            end = end.min(segment.offset);
        } else if place < segment.offset + segment.sectors {
            end = end.min(segment.offset + segment.sectors);
            let sectors = end - place;
            let offset_sectors = segment.payload_offset.wrapping_add(place - segment.offset);
            let from = Buffer::Payload { request: work.request, offset_sectors };
            let step = match work.kind {
                WriteKind::Zero { .. } => Step::Zero { to, sectors },
                WriteKind::Write { .. } => Step::Copy { from, to, sectors },
            };
            return RunSource { to: end, step: Some(step) };
        }
    }
    RunSource { to: end, step: None }
}
