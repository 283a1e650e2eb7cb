//! Where a member keeps a log of partial parity: md's ([`crate::ppl_log`]) or our own ([`crate::own_log`]), and how much of it is used.
//!
//! What it does not do: find places on a device; the modules of the two kinds do.

use crate::limits::SECTOR_BYTES;
use crate::ppl::{PPL_HEADER_BYTES, PplPlace};

/// Sectors of a header.
pub const PPL_HEADER_SECTORS: u64 = PPL_HEADER_BYTES as u64 / SECTOR_BYTES;
/// Sectors that a log of either kind is made with at least: a header and 128 KiB.
pub const LOG_SECTORS_MIN: u16 = 8 + 256;
const _: () = assert!(LOG_SECTORS_MIN as u64 == PPL_HEADER_SECTORS + 256);
/// Sectors from which on md uses an area as a ring: two headers with 128 KiB each.
const RING_SECTORS_MIN: u64 = 2 * (PPL_HEADER_SECTORS + 256);

impl PplPlace {
    /// Sectors that records may use: md gives partial parity whole pages.
    #[must_use]
    pub fn used_sectors(&self) -> u64 {
        let sectors = u64::from(self.size_sectors);
        sectors - sectors % PPL_HEADER_SECTORS
    }

    /// Bytes of them.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.used_sectors() * SECTOR_BYTES
    }

    /// Whether records follow each other, or there is only ever one.
    #[must_use]
    pub fn is_ring(&self) -> bool {
        self.multiple || self.used_sectors() >= RING_SECTORS_MIN
    }
}

/// Where a member keeps our own log: right before its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnLogPlace {
    /// Sectors of the ring; whole blocks of 4 KiB. The head is behind it.
    pub size_sectors: u32,
    /// Several records of it may count. In logs of older versions the newest counts alone, until they are made anew.
    pub is_many: bool,
}

impl OwnLogPlace {
    /// A ring of so many sectors, as they are made.
    #[must_use]
    pub const fn of(size_sectors: u32) -> Self {
        Self { size_sectors, is_many: true }
    }
}

/// Where a member keeps a log of partial parity, of one kind or the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LogPlace {
    /// md's, which its superblock names.
    Ppl(PplPlace),
    /// Ours.
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
    /// md's, if it is that.
    #[must_use]
    pub fn ppl(&self) -> Option<PplPlace> {
        match self {
            Self::Ppl(place) => Some(*place),
            Self::Own(_) => None,
        }
    }

    /// The same place in the form in which logs are made.
    #[must_use]
    pub fn made_anew(self) -> Self {
        match self {
            Self::Ppl(_) => self,
            Self::Own(place) => Self::Own(OwnLogPlace::of(place.size_sectors)),
        }
    }

    /// Whether several records of it may count.
    #[must_use]
    pub fn is_many(&self) -> bool {
        matches!(self, Self::Own(place) if place.is_many)
    }

    /// Sectors that records may use.
    #[must_use]
    pub fn used_sectors(&self) -> u64 {
        match self {
            Self::Ppl(place) => place.used_sectors(),
            Self::Own(place) => u64::from(place.size_sectors),
        }
    }

    /// Bytes of them.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.used_sectors() * SECTOR_BYTES
    }

    /// Whether records follow each other, or there is only ever one.
    #[must_use]
    pub fn is_ring(&self) -> bool {
        match self {
            Self::Ppl(place) => place.is_ring(),
            Self::Own(_) => true,
        }
    }
}
