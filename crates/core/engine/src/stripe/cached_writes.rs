//! Answered writes that only the cache holds, and the copies of them that outlive the process.
//!
//! A driver may keep a file that outlives the process ([`CacheRecord`]). Every write that carries
//! answered bytes is put into the file before its answer leaves, and erased once the members have
//! it. A later process replays the writes that it finds in the file, in order, before it admits
//! clients.
//!
//! ```text
//!   joins its stripe ── has answered bytes? ──▶ Put ──▶ answered ──▶ batch ──▶ on the members ─┐
//!                                                │                                             ▼
//!                                                │                         later answers ◀── Erase
//!                                                └──▶ Erase of the older writes that it covers
//! ```
//!
//! - A write is erased before any later write of its band is answered: a replay never undoes an
//!   answer.
//! - A write that covers an answered one is put even if it is not answered itself: its copy
//!   replaces the older one.
//! - The file has room for a fixed number of blocks. A write that finds no room is answered once
//!   the members have it.
//!
//! [check: an_unanswered_write_is_put_in_place_of_the_answered_one_it_covers]
//! [check: a_write_that_finds_no_room_waits_for_the_members]

use braid_geometry::StripeGeometry;
use braid_sim_hooks::{Bug, spoiled};

use super::band::{Attachment, Band, Run, WriteKind};
use crate::context::Common;
use crate::effect::{CacheRecord, CachedContent, CachedRun, cached_blocks};
use crate::ids::CachedWriteId;

#[derive(Clone, Copy, Debug, Default)]
struct CachedWrite {
    blocks: u32,
    parts: u32,
}

#[derive(Debug, Default)]
pub(super) struct CachedWrites {
    /// Number of blocks in the file; `None` without a file.
    blocks_max: Option<u32>,
    blocks: u32,
    /// Number of writes that have joined a stripe.
    joined: u64,
    writes: Vec<CachedWrite>,
    free: Vec<u32>,
    /// Older writes that the joining write covers. The allocation is reused.
    covered: Vec<CachedWriteId>,
}

impl CachedWrites {
    pub(super) fn new(blocks_max: Option<u32>) -> Self {
        Self { blocks_max, ..Self::default() }
    }

    pub(super) fn next_order(&mut self) -> u64 {
        self.joined += 1;
        self.joined
    }

    /// Whether the file has room for a copy of this write. True if no copies are kept.
    pub(super) fn has_room(&self, band: &Band, work: &Attachment) -> bool {
        let Some(blocks_max) = self.blocks_max else { return true };
        let blocks = blocks_of(band, &work.run, work.kind);
        self.blocks + blocks <= blocks_max
    }

    /// Whether copies take more than half of the room, so that the next writes may find none.
    pub(super) fn is_half_full(&self) -> bool {
        self.blocks_max.is_some_and(|blocks_max| self.blocks > blocks_max / 2)
    }

    /// Notes that the joining write covers `older`, which is erased after the joining write was
    /// put.
    pub(super) fn cover(&mut self, older: &Attachment) {
        self.covered.extend(older.cached);
    }

    /// Puts the joining write into the file if it carries answered bytes, then erases the writes
    /// that it covers.
    pub(super) fn put(
        &mut self,
        common: &mut Common,
        (geometry, band): (&StripeGeometry, &Band),
        work: &mut Attachment,
    ) {
        let carries = work.dirty_epoch.is_some();
        let carries = spoiled(Bug::CoverNotCached, carries, work.is_answered);
        if self.blocks_max.is_some() && carries && work.cached.is_none() {
            let blocks = blocks_of(band, &work.run, work.kind);
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
                    content: match work.kind {
                        WriteKind::Write { .. } => CachedContent::Payload {
                            request: work.request,
                            offset_sectors: segment.payload_offset,
                        },
                        WriteKind::Zero { may_punch, .. } => CachedContent::Zeroes { may_punch },
                    },
                }));
            }
        }
        let mut covered = std::mem::take(&mut self.covered);
        covered.drain(..).for_each(|id| self.part_over(common, id));
        self.covered = covered;
    }

    /// Notes that a queued write was split in two.
    pub(super) fn split(&mut self, work: &Attachment) {
        if let Some(CachedWriteId(name)) = work.cached {
            self.writes[name as usize].parts += 1;
        }
    }

    /// Notes that queued work reached the members, or is lost. The last part of a write erases the
    /// write's copy.
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

/// Number of blocks of the file that a copy of a write takes. Runs do not share blocks.
fn blocks_of(band: &Band, run: &Run, kind: WriteKind) -> u32 {
    let has_bytes = matches!(kind, WriteKind::Write { .. });
    let segments = band.columns(run).filter_map(|index| band.segment(run, index));
    segments.map(|segment| cached_blocks(segment.sectors, has_bytes)).sum()
}
