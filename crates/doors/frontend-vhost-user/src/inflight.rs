//! The table of requests in flight, in memory that the client preserves when this process dies.
//!
//! Each store to the table is atomic and ordered before the next store, so that the memory is a
//! valid table whenever the server dies. The next server still checks the table's content: the
//! client could change it.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use braid_virtio_proto::inflight::{
    AnswerNotes, Entry, FormatError, RecoveredRequests, VERSION, at, place_of, queue_bytes,
    recover, table_bytes,
};
use rustix::fs::{MemfdFlags, memfd_create};
use vm_memory::{AtomicAccess, Bytes, FileOffset, MmapRegion, VolatileMemory};

#[derive(Debug, thiserror::Error)]
pub(crate) enum TableError {
    #[error(transparent)]
    NotATable(#[from] FormatError),
    #[error("the file is shorter than a table of {queues} queues of {entries} entries")]
    Short { queues: u16, entries: u16 },
    #[error("a table of what is in flight cannot be mapped")]
    System(#[source] io::Error),
}

/// Makes a file of zeroes for a table; returns the file and its length.
pub(crate) fn file_for(queues: u16, entries: u16) -> Result<(File, u64), TableError> {
    let bytes = table_bytes(queues, entries)?;
    let made = memfd_create("braid-in-flight", MemfdFlags::CLOEXEC);
    let file = File::from(made.map_err(|errno| TableError::System(errno.into()))?);
    file.set_len(bytes).map_err(TableError::System)?;
    Ok((file, bytes))
}

#[derive(Debug)]
pub(crate) struct Table {
    map: MmapRegion,
    queues: u16,
    entries: u16,
}

impl Table {
    /// Maps a table for `queues` queues, at `offset` in a file.
    pub(crate) fn map(
        file: File,
        offset: u64,
        (queues, entries): (u16, u16),
    ) -> Result<Arc<Self>, TableError> {
        let bytes = table_bytes(queues, entries)?;
        let length = file.metadata().map_err(TableError::System)?.len();
        if offset.checked_add(bytes).is_none_or(|end| length < end) {
            return Err(TableError::Short { queues, entries });
        }
        let size = usize::try_from(bytes).expect("a table is small");
        let map = MmapRegion::from_file(FileOffset::new(file, offset), size)
            .map_err(|error| TableError::System(io::Error::other(error)))?;
        Ok(Arc::new(Self { map, queues, entries }))
    }

    pub(crate) fn part(self: &Arc<Self>, queue: u16, ring_entries: u16) -> Option<Part> {
        let has_it = queue < self.queues && ring_entries <= self.entries;
        let start = u64::from(queue) * queue_bytes(self.entries);
        has_it.then(|| Part { table: Arc::clone(self), start, counter: 0 })
    }
}

#[derive(Debug)]
pub(crate) struct Part {
    table: Arc<Table>,
    start: u64,
    counter: u64,
}

impl Part {
    fn place(&self, within: u64) -> usize {
        usize::try_from(self.start + within).expect("a table is small")
    }

    fn store<T: AtomicAccess>(&self, within: u64, value: T) {
        let stored =
            self.table.map.as_volatile_slice().store(value, self.place(within), Ordering::SeqCst);
        stored.expect("a part lies within its table, at multiples of what is stored");
    }

    fn load<T: AtomicAccess>(&self, within: u64) -> T {
        let loaded = self.table.map.as_volatile_slice().load(self.place(within), Ordering::SeqCst);
        loaded.expect("a part lies within its table, at multiples of what is stored")
    }

    /// Takes over a dead server's part of the table, with its requests in flight. `ring_index` is
    /// the ring's used index.
    pub(crate) fn recover(&mut self, ring_index: u16) -> Result<RecoveredRequests, FormatError> {
        let left = if self.load::<u16>(at::VERSION) == VERSION {
            let entries: Vec<Entry> = (0..self.table.entries).map(|one| self.entry(one)).collect();
            let noted = AnswerNotes {
                last_head: self.load(at::LAST_HEAD),
                used_index: self.load(at::USED_INDEX),
            };
            recover(&entries, noted, ring_index)?
        } else {
            RecoveredRequests::default()
        };
        for head in &left.answered {
            self.store(place_of(*head) + at::IN_FLIGHT, 0_u8);
        }
        self.store(at::USED_INDEX, ring_index);
        self.store(at::ENTRIES, self.table.entries);
        self.store(at::VERSION, VERSION);
        self.counter = left.counter;
        Ok(left)
    }

    fn entry(&self, head: u16) -> Entry {
        let place = place_of(head);
        Entry {
            is_in_flight: self.load::<u8>(place + at::IN_FLIGHT) != 0,
            next: self.load(place + at::NEXT),
            counter: self.load(place + at::COUNTER),
        }
    }

    pub(crate) fn take(&mut self, head: u16) {
        let place = place_of(head);
        self.store(place + at::COUNTER, self.counter);
        self.store(place + at::IN_FLIGHT, 1_u8);
        self.counter = self.counter.wrapping_add(1);
    }

    /// Notes the request that is answered next.
    pub(crate) fn begin_answer(&self, head: u16) {
        self.store(at::LAST_HEAD, head);
    }

    pub(crate) fn end_answer(&self, head: u16, ring_index: u16) {
        self.store(place_of(head) + at::IN_FLIGHT, 0_u8);
        self.store(at::USED_INDEX, ring_index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(file: &File, shape: (u16, u16)) -> Arc<Table> {
        Table::map(file.try_clone().expect("a descriptor"), 0, shape).expect("a table")
    }

    #[test]
    fn the_next_server_finds_what_was_left_in_its_order() {
        let (file, _) = file_for(2, 128).expect("memory");
        let mut part = table(&file, (2, 128)).part(1, 128).expect("a part");
        // The ring was used before the table was made, so the table holds no request.
        assert_eq!(part.recover(900), Ok(RecoveredRequests::default()));
        for head in [7, 3, 127, 0] {
            part.take(head);
        }
        part.begin_answer(3);
        part.end_answer(3, 901);
        part.begin_answer(127);
        let mut next = table(&file, (2, 128)).part(1, 128).expect("a part");
        let left = next.recover(901).expect("ours");
        assert_eq!((left.in_flight, left.counter), (vec![7, 127, 0], 4));
        // The server dies when the ring records the answer to request 7, but the table does not.
        next.begin_answer(7);
        let mut last = table(&file, (2, 128)).part(1, 128).expect("a part");
        let left = last.recover(902).expect("ours");
        assert_eq!((left.answered, left.in_flight), (vec![7], vec![127, 0]));
        let mut other = table(&file, (2, 128)).part(0, 128).expect("a part");
        assert_eq!(other.recover(0), Ok(RecoveredRequests::default()));
    }

    #[test]
    fn a_table_that_is_none_is_refused() {
        let (file, bytes) = file_for(1, 128).expect("memory");
        assert_eq!(bytes, 2112);
        let short = Table::map(file.try_clone().expect("a descriptor"), 0, (2, 128));
        assert!(matches!(short, Err(TableError::Short { .. })));
        let none = Table::map(file.try_clone().expect("a descriptor"), 0, (0, 128));
        assert!(matches!(none, Err(TableError::NotATable(_))));
        let table = table(&file, (1, 128));
        assert!(table.part(1, 128).is_none() && table.part(0, 256).is_none());
    }
}
