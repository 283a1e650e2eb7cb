//! The world's cache file: it takes copies of acknowledged writes, keeps them when the process
//! ends, and writes them back in the next process.

use braid_assembly::AssembledArray;
use braid_engine::effect::{CacheRecord, CachedContent, CachedRun};
use braid_engine::request::Operation;
use braid_engine::{CacheMode, Tuning};
use braid_geometry::Family;

use super::{CacheSnapshot, Copy};
use crate::chances::Purpose;
use crate::content::SECTOR;
use crate::memory::Payload;
use crate::open::Message;
use crate::world::World;

/// Percentage of process ends after which another server runs the array before the next process
/// finds the cache file.
const ELSEWHERE_PERCENT: u64 = 5;
/// Percentage of write-backs during which the process is killed.
const CUT_OFF_PERCENT: u64 = 20;

impl World {
    /// Whether this run has a cache file, so that acknowledged writes survive the process.
    fn has_cache_file(&self) -> bool {
        self.engine.machines.shards[0].cache.cached_blocks_max.is_some()
    }

    /// Takes a shard's new records into the cache file.
    pub(crate) fn take_cache_records(&mut self, shard: usize) {
        while let Some(record) = self.engine.machines.shards[shard].shard.poll_cache_record() {
            match record {
                CacheRecord::Put(run) => {
                    let data = match run.content {
                        CachedContent::Payload { request, offset_sectors } => {
                            let data = &self.engine.payloads[&request].data;
                            let start = offset_sectors as usize * SECTOR;
                            Some(data[start..start + run.sectors as usize * SECTOR].to_vec())
                        }
                        CachedContent::Zeroes { .. } => None,
                    };
                    let copies = self.cache_file.copies.entry((shard, run.id.0)).or_default();
                    copies.push(Copy { run, data });
                    self.tally.count("cached-write-put");
                }
                CacheRecord::Erase(id) => {
                    let erased = self.cache_file.copies.remove(&(shard, id.0));
                    assert!(erased.is_some(), "shard {shard} erases {id:?}, which the file lacks");
                }
            }
            let of_shard = self.cache_file.copies.range((shard, 0)..=(shard, u32::MAX));
            let copies = of_shard.flat_map(|(_, copies)| copies);
            let blocks: u32 = copies.map(|copy| copy.run.blocks()).sum();
            let blocks_max = self.engine.machines.shards[shard].cache.cached_blocks_max;
            assert!(blocks_max.is_some_and(|most| blocks <= most), "{blocks} of {blocks_max:?}");
        }
    }

    /// The process ended (`power`: by a power cut). Decides what happens to acknowledged writes
    /// that members lack.
    pub(crate) fn end_process(&mut self, power: bool) {
        let held: Vec<u64> = self.engine.held.writes().collect();
        let copies = std::mem::take(&mut self.cache_file.copies);
        let before = self.cache_file.found.take();
        if let Some(stale) = &mut self.cache_file.stale {
            stale.is_outdated |= self.engine.has_written;
        }
        let was_writing_back = before.is_some();
        let found = before.or_else(|| {
            let mut copies: Vec<((usize, u32), Copy)> = copies
                .into_iter()
                .flat_map(|(name, copies)| copies.into_iter().map(move |copy| (name, copy)))
                .collect();
            copies.sort_by_key(|((shard, _), copy)| (*shard, copy.run.order));
            let copies = copies.into_iter().map(|(_, copy)| copy).collect();
            Some(CacheSnapshot {
                copies,
                stamp: self.cache_file.stamp.clone(),
                writes: held.clone(),
                is_outdated: false,
            })
        });
        let mut found = found.filter(|_| self.has_cache_file() || was_writing_back);
        if power {
            let writes = found.take().map_or(held, |found| found.writes);
            self.cache_file.stale = None;
            return self
                .model
                .lose_process(self.clock.step, Some(&|write| writes.contains(&write)));
        }
        match found {
            Some(found) => {
                self.model.lose_process(self.clock.step, None);
                if found.copies.is_empty() {
                    return self.model.has_all();
                }
                self.cache_file.found = Some(found);
                if self.chances.of(Purpose::Cache, 7).chance(ELSEWHERE_PERCENT) {
                    self.leave_cache_file_behind();
                }
            }
            None => {
                self.model.lose_process(self.clock.step, Some(&|write| held.contains(&write)));
            }
        }
    }

    /// Another server runs the array now, and does not know the cache file.
    pub(crate) fn leave_cache_file_behind(&mut self) {
        if let Some(found) = self.cache_file.found.take() {
            self.tally.count("cache-file-left-behind");
            let is_lost = |write| found.writes.contains(&write);
            self.model.lose_process(self.clock.step, Some(&is_lost));
            self.cache_file.stale = Some(found);
        }
    }

    /// Power is cut during a start: the copies in the cache file are gone.
    pub(crate) fn lose_cache_file(&mut self) {
        if let Some(found) = self.cache_file.found.take() {
            let is_lost = |write| found.writes.contains(&write);
            self.model.lose_process(self.clock.step, Some(&is_lost));
        }
    }

    /// Writes to the array the copies that an earlier process left in the cache file. False if the
    /// process was killed meanwhile.
    pub(crate) fn write_back_found(&mut self, array: &AssembledArray) -> bool {
        if let (Some(stale), None) = (&self.cache_file.stale, &self.cache_file.found) {
            let newest = &array.newest.state;
            let is_of = stale.stamp.is_of(newest.events, newest.update_time);
            assert!(!is_of || !stale.is_outdated, "a cache file is trusted after others wrote");
        }
        let Some(found) = &self.cache_file.found else { return true };
        let newest = &array.newest.state;
        assert!(
            found.stamp.is_of(newest.events, newest.update_time),
            "{:?} does not match {} {:?}, although only braid wrote",
            found.stamp,
            newest.events,
            newest.update_time
        );
        let copies = found.copies.clone();
        let is_cut_off = self.chances.openings.chance(CUT_OFF_PERCENT);
        if is_cut_off {
            self.tally.count("cache-file-cut-off");
        }
        let count = copies.len();
        let until =
            if is_cut_off { self.chances.openings.below(count as u64 + 1) } else { count as u64 };
        self.answer_late(true);
        let mut is_written = true;
        for copy in copies.into_iter().take(until as usize) {
            let CachedRun { start, sectors, content, .. } = copy.run;
            let operation = match content {
                CachedContent::Payload { .. } => Operation::Write { durable: false },
                CachedContent::Zeroes { may_punch } => {
                    Operation::WriteZeroes { may_punch, durable: false }
                }
            };
            let payload = copy.data.map(|data| Payload::new(data, false));
            self.tally.count("cached-write-written-back");
            let range = (start.0, u64::from(sectors));
            let id = self.start_flight(operation, range, payload, None);
            self.engine.clients.flights.get_mut(&id).expect("just begun").writes_back = true;
            self.settle();
            is_written &=
                self.engine.clients.answers.remove(&id).is_some_and(|answer| answer.is_ok());
        }
        self.answer_late(false);
        if is_cut_off {
            self.crash(false);
            return false;
        }
        let found = self.cache_file.found.take().expect("it was just there");
        if is_written {
            self.model.has_all();
        } else {
            self.tally.count("cached-write-lost");
            let is_lost = |write| found.writes.contains(&write);
            self.model.lose_process(self.clock.step, Some(&is_lost));
        }
        true
    }

    /// Sets shards to write-through (`is_late`), or back to the mode that they started with.
    fn answer_late(&mut self, is_late: bool) {
        if self.geometry.level().family() != Family::Stripe {
            return;
        }
        for side in &mut self.engine.machines.shards {
            let tuning = side.cache.tuning;
            let mode = if is_late { CacheMode::WriteThrough } else { side.mode_at_start };
            side.inbox.push_back(Message::Tuning(Tuning { mode, ..tuning }));
        }
        self.settle();
    }
}
