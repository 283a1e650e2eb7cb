//! A client's operations on a range of sectors, and their faults.

use braid_geometry::LogicalSector;

use crate::ids::RequestId;

/// A client's operation on a range of sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Fill the payload.
    Read,
    /// Write the payload.
    Write {
        /// Whether the payload must be on stable storage before the answer (NBD's FUA).
        durable: bool,
    },
    /// Make the range read as zeroes.
    WriteZeroes {
        /// Whether the members may deallocate the space.
        may_punch: bool,
        /// Whether the zeroes must be on stable storage before the answer.
        durable: bool,
    },
    /// The client no longer needs the content: reads may return any bytes, but always the same.
    Trim,
}

impl Operation {
    /// Whether the operation may change the array's content.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !matches!(self, Self::Read)
    }

    /// The fault that the client gets if no member can serve the operation.
    pub(crate) fn fault(&self) -> Fault {
        if self.is_write() { Fault::Unwritable } else { Fault::Unreadable }
    }
}

/// A request on a range of sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The request's name.
    pub id: RequestId,
    /// The operation.
    pub operation: Operation,
    /// First sector.
    pub start: LogicalSector,
    /// Number of sectors: at least one, all inside the array.
    pub sectors: u64,
}

/// The reason why a request failed. Ordered from mild to grave; if a request's pieces fail
/// differently, the gravest fault counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{}", self.words())]
pub enum Fault {
    /// The array does not allow writes, because of its state or because it was opened read-only.
    ReadOnly,
    /// More members cannot be read in the request's range than the level tolerates.
    Unreadable,
    /// An acknowledged write to these sectors could not be carried out. The members hold older data
    /// there, so reads fail until a client writes the sectors again.
    Lost,
    /// The file system below a member is full.
    NoSpace,
    /// More members missed the write than the level tolerates; the array takes no more writes.
    Unwritable,
}

impl Fault {
    /// The fault in words, for the operator.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::ReadOnly => "the array is read-only",
            Self::Unreadable => "the data cannot be read or reconstructed",
            Self::Lost => {
                "what was written here was answered, and then lost; it can be read once it is written again"
            }
            Self::NoSpace => "no space is left below a member",
            Self::Unwritable => "the data could not be written",
        }
    }
}

/// Folds the replies to a request's pieces into one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    outstanding: u32,
    issued_all: bool,
    worst: Option<Fault>,
}

impl Progress {
    /// Notes that a shard has got a piece.
    pub fn issue(&mut self) {
        assert!(!self.issued_all, "no piece comes after the last");
        self.outstanding += 1;
    }

    /// Notes that no further piece follows; returns the answer, if all replies are in already.
    #[must_use]
    pub fn issued_all(&mut self) -> Option<Result<(), Fault>> {
        self.issued_all = true;
        self.answer()
    }

    /// Notes a reply; returns the request's answer after the last reply.
    ///
    /// # Panics
    /// If more replies come than pieces were issued: a shard answered twice.
    #[must_use]
    pub fn reply(&mut self, result: Result<(), Fault>) -> Option<Result<(), Fault>> {
        assert!(self.outstanding > 0, "a piece was answered twice");
        self.outstanding -= 1;
        if let Err(fault) = result {
            self.worst = self.worst.max(Some(fault));
        }
        self.answer()
    }

    /// The number of pieces that shards have not answered yet.
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Whether a piece has failed, so that further pieces are pointless.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.worst.is_some()
    }

    fn answer(&self) -> Option<Result<(), Fault>> {
        (self.issued_all && self.outstanding == 0).then(|| self.worst.map_or(Ok(()), Err))
    }
}
