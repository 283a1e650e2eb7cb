//! Entries, which the caller inserts, and dispatches, which the member gets.

/// The caller's name for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub u64);

/// Priority: a higher class goes before a lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Goes before the other classes.
    RealTime,
    /// The default.
    BestEffort,
    /// Served when no other entry waits, or after [`crate::Settings::aging_ns`].
    Idle,
}

impl Class {
    /// All classes, in the order in which they are served.
    pub const ALL: [Self; 3] = [Self::RealTime, Self::BestEffort, Self::Idle];

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// Read, write or other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A read into the caller's memory.
    Read,
    /// A read that a write needs first. It serves the flusher, so it is ordered, allowed and tagged
    /// among the writes. Among the reads it would cost a write two of the multiplexer's slices
    /// instead of one.
    PreRead,
    /// A write from the caller's memory.
    Write {
        /// Whether the write is done only once it is on stable storage.
        durable: bool,
    },
    /// Any other change of sectors (zeroing, discarding): never merged, otherwise treated like a
    /// write.
    Other,
}

impl Operation {
    pub(crate) const fn direction(self) -> Direction {
        match self {
            Self::Read => Direction::Read,
            Self::PreRead | Self::Write { .. } | Self::Other => Direction::Write,
        }
    }

    /// Whether a flush must cover the operation.
    #[must_use]
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Write { .. } | Self::Other)
    }

    pub(crate) const fn merges(self) -> bool {
        !matches!(self, Self::Other)
    }
}

/// The two directions, whose entries wait in separate queues: reads, and everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

impl Direction {
    pub(crate) const BOTH: [Self; 2] = [Self::Read, Self::Write];
}

/// A set of the two kinds of entries, reads and writes: those that are allowed, or those that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directions {
    /// Reads.
    pub reads: bool,
    /// Everything else.
    pub writes: bool,
}

impl Directions {
    /// Both kinds.
    pub const ALL: Self = Self { reads: true, writes: true };

    pub(crate) const fn has(self, direction: Direction) -> bool {
        match direction {
            Direction::Read => self.reads,
            Direction::Write => self.writes,
        }
    }
}

/// An entry's position in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuePosition {
    /// Among the other entries of its class, by sector and by age.
    Sorted,
    /// Before all other entries of its class, but after earlier entries with this position.
    Head,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The entry's name, returned with the dispatch.
    pub id: EntryId,
    /// Read, write or other.
    pub operation: Operation,
    /// The entry's priority.
    pub class: Class,
    /// First sector on the member.
    pub start: u64,
    /// Sectors; at least 1.
    pub sectors: u32,
}

impl Entry {
    /// The sector after the entry's last one.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.start + self.sectors as u64
    }
}

/// Names a dispatch until it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag(pub(crate) u32);

/// One vector for the member: adjacent entries of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// Names the dispatch when the caller asks for its parts and reports its end.
    pub tag: Tag,
    /// Read, write or other.
    pub operation: Operation,
    /// First sector on the member.
    pub start: u64,
    /// Sectors of all entries together.
    pub sectors: u32,
    /// Number of entries.
    pub parts: u32,
}
