//! The place of a member's partial parity log, md's ([`crate::ppl_log`]) or our own
//! ([`crate::own_log`]), and its usable size.
//!
//! The modules of the two kinds of log find the logs' places on a device.

use crate::limits::SECTOR_BYTES;
use crate::ppl::{PPL_HEADER_BYTES, PplPlace};

/// Sectors of a header.
pub const PPL_HEADER_SECTORS: u64 = PPL_HEADER_BYTES as u64 / SECTOR_BYTES;
/// The smallest log that braid makes, md's kind or its own: a header and 128 KiB.
pub const LOG_SECTORS_MIN: u16 = 8 + 256;
const _: () = assert!(LOG_SECTORS_MIN as u64 == PPL_HEADER_SECTORS + 256);
/// The size from which md uses an area as a ring: two headers with 128 KiB each.
const RING_SECTORS_MIN: u64 = 2 * (PPL_HEADER_SECTORS + 256);

impl PplPlace {
    /// Sectors for records: md gives partial parity whole pages.
    #[must_use]
    pub fn used_sectors(&self) -> u64 {
        let sectors = u64::from(self.size_sectors);
        sectors - sectors % PPL_HEADER_SECTORS
    }

    /// Bytes for records.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.used_sectors() * SECTOR_BYTES
    }

    /// Whether records follow each other; otherwise the area holds a single record.
    #[must_use]
    pub fn is_ring(&self) -> bool {
        self.multiple || self.used_sectors() >= RING_SECTORS_MIN
    }
}

/// The place of a member's own log: right before its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnLogPlace {
    /// Sectors of the ring, in whole blocks of 4 KiB. The log's head follows the ring.
    pub size_sectors: u32,
    /// Whether several records of the log can count. In logs of older versions only the newest
    /// counts.
    pub is_many: bool,
}

impl OwnLogPlace {
    /// A ring of this size in the current format.
    #[must_use]
    pub const fn of(size_sectors: u32) -> Self {
        Self { size_sectors, is_many: true }
    }
}

/// The place of a partial parity log of either kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LogPlace {
    /// The place of md's log, which the superblock names.
    Ppl(PplPlace),
    /// The place of our own log.
    Own(OwnLogPlace),
}

impl From<PplPlace> for LogPlace {
    fn from(place: PplPlace) -> Self {
        Self::Ppl(place)
    }
}

impl From<OwnLogPlace> for LogPlace {
    fn from(place: OwnLogPlace) -> Self {
        Self::Own(place)
    }
}

impl LogPlace {
    /// The place of md's log; `None` for our own log.
    #[must_use]
    pub fn ppl(&self) -> Option<PplPlace> {
        match self {
            Self::Ppl(place) => Some(*place),
            Self::Own(_) => None,
        }
    }

    /// The same place for a new log, in the current format.
    #[must_use]
    pub fn made_anew(self) -> Self {
        match self {
            Self::Ppl(_) => self,
            Self::Own(place) => Self::Own(OwnLogPlace::of(place.size_sectors)),
        }
    }

    /// Whether several records can count.
    #[must_use]
    pub fn is_many(&self) -> bool {
        matches!(self, Self::Own(place) if place.is_many)
    }

    /// Sectors for records.
    #[must_use]
    pub fn used_sectors(&self) -> u64 {
        match self {
            Self::Ppl(place) => place.used_sectors(),
            Self::Own(place) => u64::from(place.size_sectors),
        }
    }

    /// Bytes for records.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.used_sectors() * SECTOR_BYTES
    }

    /// Whether records follow each other; otherwise the area holds a single record.
    #[must_use]
    pub fn is_ring(&self) -> bool {
        match self {
            Self::Ppl(place) => place.is_ring(),
            Self::Own(_) => true,
        }
    }
}
