//! Decides whether a file of acknowledged writes belongs to an array's current state.
//!
//! Every server of an array, md too, writes superblocks before data, with a new event count and its
//! own time. So a file may be written back only if its process wrote the newest superblock, or was
//! about to write it. The file names the process's last two superblocks.

use braid_ondisk::Timestamp;
use braid_sim_hooks::{Bug, spoiled};

/// The last two updates of superblocks that a process made, or found at its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheStamp {
    /// The event count and the time of each update. The newest update is last.
    pub updates: [Option<(u64, Timestamp)>; 2],
}

impl CacheStamp {
    /// Notes the superblocks' new event count and time, before the process writes the first of the
    /// superblocks.
    pub fn note(&mut self, events: u64, time: Timestamp) {
        let update = Some((events, time));
        if self.updates[1] != update {
            self.updates = [self.updates[1], update];
        }
    }

    /// Whether no other server has written the array since this stamp. `events` and `time` are
    /// those of the array's newest superblock.
    #[must_use]
    pub fn is_of(&self, events: u64, time: Timestamp) -> bool {
        // Superblocks of version 0.90 store whole seconds: their time has no microseconds to
        // compare.
        let is_time = |of: Timestamp| {
            of.seconds == time.seconds
                && (of.microseconds == time.microseconds || time.microseconds == 0)
        };
        let mut updates = self.updates.iter().flatten();
        let is_of = updates.any(|(count, of)| *count == events && is_time(*of));
        let is_of = spoiled(Bug::StaleCacheFile, is_of, true);
        is_of && self.updates[1].is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_before_anybody_else_wrote_is_told() {
        let at = |seconds| Timestamp { seconds, microseconds: 0 };
        let mut stamp = CacheStamp::default();
        assert!(!stamp.is_of(0, at(0)), "of no array");
        stamp.note(4, at(10));
        stamp.note(5, at(11));
        stamp.note(5, at(11));
        assert!(stamp.is_of(5, at(11)) && stamp.is_of(4, at(10)), "an update may be under way");
        assert!(!stamp.is_of(5, at(12)), "another host made the same count of events");
        stamp.note(6, at(12));
        assert!(!stamp.is_of(4, at(10)));
    }
}
