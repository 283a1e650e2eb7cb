//! Answered writes that only the cache has: which of them a copy is kept of, outside the process,
//! until the members have them.
//!
//! A driver may keep a file that outlives the process ([`CacheRecord`]). Then every write that
//! carries answered bytes is put there before its answer leaves, and erased when the members have
//! it. A later process writes what it finds there, in order, before it lets clients in.
//!
//! ```text
//!   joins its stripe ── carries answered bytes? ──▶ Put ──▶ answered ──▶ batch ──▶ on the members ──▶ Erase ──▶ later answers
//!                                                    │
//!                                                    └──▶ Erase of the older writes that it covers
//! ```
//!
//! - A write is erased before any write that follows it in its band is answered: what is found
//!   never undoes an answer.
//! - A write that covers an answered one is put even if it is not answered itself: its copy takes
//!   the older one's place.
//! - The file has room for so many blocks; a write that finds none is answered when the members
//!   have it.
//!
//! [check: an_unanswered_write_is_put_in_place_of_the_answered_one_it_covers, a_write_that_finds_no_room_waits_for_the_members]

use braid_geometry::StripeGeometry;
use braid_sim_hooks::{Bug, spoiled};

use super::band::{Attachment, Band, Run, Want};
use crate::context::Common;
use crate::effect::{CacheRecord, CachedContent, CachedRun, cached_blocks};
use crate::ids::CachedWriteId;

/// One write of which there is a copy.
#[derive(Clone, Copy, Debug, Default)]
struct CachedWrite {
    blocks: u32,
    /// Parts of it that are queued.
    parts: u32,
}

/// Which writes of one shard there are copies of.
#[derive(Debug, Default)]
pub(super) struct CachedWrites {
    /// Blocks that the file has room for; none if there is no file.
    blocks_max: Option<u32>,
    /// Blocks that are taken.
    blocks: u32,
    /// Writes that have joined a stripe.
    joined: u64,
    /// By name.
    writes: Vec<CachedWrite>,
    /// Names that nothing has.
    free: Vec<u32>,
    /// Writes that the one that joins has covered; kept for its memory.
    covered: Vec<CachedWriteId>,
}

impl CachedWrites {
    pub(super) fn new(blocks_max: Option<u32>) -> Self {
        Self { blocks_max, ..Self::default() }
    }

    /// The next write's place in the order in which writes joined their stripes.
    pub(super) fn next_order(&mut self) -> u64 {
        self.joined += 1;
        self.joined
    }

    /// Whether a copy of `run` would find room, where copies are kept.
    pub(super) fn has_room(&self, band: &Band, work: &Attachment) -> bool {
        let Some(blocks_max) = self.blocks_max else { return true };
        let blocks = blocks_of(band, &work.run, work.want);
        self.blocks + blocks <= blocks_max
    }

    /// Whether copies take more than half of the room: the next writes may find none.
    pub(super) fn is_half_full(&self) -> bool {
        self.blocks_max.is_some_and(|blocks_max| self.blocks > blocks_max / 2)
    }

    /// A write of which there may be a copy is covered by the one that joins, which is put before
    /// this one is erased.
    pub(super) fn cover(&mut self, older: &Attachment) {
        self.covered.extend(older.cached);
    }

    /// The write that joins has covered what it covers, and is answered early or not: it is put, if
    /// it carries answered bytes, and what it covers is erased.
    pub(super) fn put(
        &mut self,
        common: &mut Common,
        (geometry, band): (&StripeGeometry, &Band),
        work: &mut Attachment,
    ) {
        let carries = work.dirty_epoch.is_some();
        let carries = spoiled(Bug::CoverNotCached, carries, work.is_answered);
        if self.blocks_max.is_some() && carries && work.cached.is_none() {
            let blocks = blocks_of(band, &work.run, work.want);
            let id = self.name(CachedWrite { blocks, parts: 1 });
            work.cached = Some(id);
            self.blocks += blocks;
            for index in band.columns(&work.run) {
                let Some(segment) = band.segment(&work.run, index) else { continue };
                common.cache_records.push_back(CacheRecord::Put(CachedRun {
                    id,
                    order: work.order,
                    start: band.logical(geometry, index, segment.offset),
                    sectors: segment.sectors,
                    content: match work.want {
                        Want::Write { .. } => CachedContent::Payload {
                            request: work.request,
                            offset_sectors: segment.payload_offset,
                        },
                        Want::Zero { may_punch, .. } => CachedContent::Zeroes { may_punch },
                    },
                }));
            }
        }
        let mut covered = std::mem::take(&mut self.covered);
        covered.drain(..).for_each(|id| self.part_over(common, id));
        self.covered = covered;
    }

    /// A queued write becomes two parts of one.
    pub(super) fn split(&mut self, work: &Attachment) {
        if let Some(CachedWriteId(name)) = work.cached {
            self.writes[name as usize].parts += 1;
        }
    }

    /// Queued work is on the members, or lost. Erased, if that was the last part of its write.
    pub(super) fn over(&mut self, common: &mut Common, work: &Attachment) {
        work.cached.into_iter().for_each(|id| self.part_over(common, id));
    }

    fn part_over(&mut self, common: &mut Common, id: CachedWriteId) {
        let write = &mut self.writes[id.0 as usize];
        assert!(write.parts > 0, "a cached write is erased once");
        write.parts -= 1;
        if write.parts == 0 {
            self.blocks -= write.blocks;
            self.free.push(id.0);
            common.cache_records.push_back(CacheRecord::Erase(id));
        }
    }

    fn name(&mut self, write: CachedWrite) -> CachedWriteId {
        if let Some(name) = self.free.pop() {
            self.writes[name as usize] = write;
            return CachedWriteId(name);
        }
        self.writes.push(write);
        CachedWriteId(u32::try_from(self.writes.len() - 1).expect("fewer than blocks"))
    }
}

/// Blocks of the file that a copy of a write takes: each of its runs has blocks of its own.
fn blocks_of(band: &Band, run: &Run, want: Want) -> u32 {
    let has_bytes = matches!(want, Want::Write { .. });
    let segments = band.columns(run).filter_map(|index| band.segment(run, index));
    segments.map(|segment| cached_blocks(segment.sectors, has_bytes)).sum()
}
