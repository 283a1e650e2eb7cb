//! The superblock of a write-intent bitmap: which parts of the array may be out of step.
//!
//! 256 bytes, little endian, where the array's superblock says; the bits follow. This crate recognises it, so that
//! an array with a bitmap can be told apart and named; reading and setting bits comes with the engine's intent log.
//!
//! Four kinds share the magic: version 3 (bits in the byte order of the machine, obsolete), 4 (little endian),
//! 5 (one bitmap per node of a cluster; refused by name) and 6 (lockless: one *byte* per chunk, after 1024 bytes).
//! There is no checksum in it: only the UUID ties it to its array.

use std::mem::{offset_of, size_of};

use thiserror::Error;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::limits::{EVENTS_MAX, SECTOR_BYTES, SECTORS_MAX};

/// "bitm" in little endian.
const BITMAP_MAGIC: u32 = 0x6d74_6962;
/// md counts outstanding write-behind writes in 14 bits.
const WRITE_BEHIND_MAX: u32 = (1 << 14) - 1;
/// Seconds between sweeps beyond which md would refuse: no machine has a longer tick count.
const DAEMON_SLEEP_MAX_SECONDS: u32 = i32::MAX as u32;
/// Bytes before the bytes of a lockless bitmap.
const LOCKLESS_HEAD_BYTES: u64 = 1024;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: U32,
    version: U32,
    uuid: [u8; 16],
    events: U64,
    events_cleared: U64,
    sync_size: U64,
    state: U32,
    chunk_bytes: U32,
    daemon_sleep: U32,
    write_behind: U32,
    sectors_reserved: U32,
    nodes: U32,
    cluster_name: [u8; 64],
    pad: [u8; 120],
}

const _: () = assert!(size_of::<Raw>() == 256);
const _: () = assert!(offset_of!(Raw, magic) == 0);
const _: () = assert!(offset_of!(Raw, version) == 4);
const _: () = assert!(offset_of!(Raw, uuid) == 8);
const _: () = assert!(offset_of!(Raw, events) == 24);
const _: () = assert!(offset_of!(Raw, events_cleared) == 32);
const _: () = assert!(offset_of!(Raw, sync_size) == 40);
const _: () = assert!(offset_of!(Raw, state) == 48);
const _: () = assert!(offset_of!(Raw, chunk_bytes) == 52);
const _: () = assert!(offset_of!(Raw, daemon_sleep) == 56);
const _: () = assert!(offset_of!(Raw, write_behind) == 60);
const _: () = assert!(offset_of!(Raw, sectors_reserved) == 64);
const _: () = assert!(offset_of!(Raw, nodes) == 68);
const _: () = assert!(offset_of!(Raw, cluster_name) == 72);
const _: () = assert!(offset_of!(Raw, pad) == 136);

/// How a bitmap keeps its marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BitmapKind {
    /// Version 3: one bit per chunk, in the byte order of the machine that wrote it.
    HostEndian,
    /// Version 4: one bit per chunk, little endian.
    Classic,
    /// Version 6: one byte of state per chunk.
    Lockless,
}

/// A validated bitmap superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BitmapSuperblock {
    /// How marks are kept.
    pub kind: BitmapKind,
    /// Updated just before the array's event count: equal to it or one more.
    pub events: u64,
    /// The event count when marks were last cleared.
    pub events_cleared: u64,
    /// Sectors that the marks cover: of each member, or of the array for raid10.
    pub sync_size_sectors: u64,
    /// Bytes of the array per mark.
    pub chunk_bytes: u32,
    /// State flags as stored.
    pub state: u32,
    /// Seconds between sweeps.
    pub daemon_sleep_seconds: u32,
    /// Write-behind writes allowed; 0: none.
    pub write_behind: u32,
    /// Sectors reserved for the bitmap; 0: not said.
    pub sectors_reserved: u32,
}

/// What can be wrong with a bitmap superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BitmapError {
    /// Fewer bytes than a bitmap superblock has.
    #[error("cut off: {present_bytes} bytes are there, 256 are needed")]
    CutOff {
        /// Bytes at hand.
        present_bytes: u64,
    },
    /// One bitmap per node of a cluster: not served.
    #[error("the bitmap is a cluster's (version 5), which is not served")]
    Clustered,
    /// A version that md does not have.
    #[error("bitmap version {version} is unknown")]
    VersionUnknown {
        /// The version.
        version: u32,
    },
    /// It belongs to another array.
    #[error("the bitmap belongs to another array")]
    OtherArray,
    /// Bytes per mark that md refuses.
    #[error("a bitmap chunk of {bytes} bytes is not a power of two from 512 up")]
    Chunk {
        /// Bytes per mark.
        bytes: u32,
    },
    /// A time between sweeps that md refuses.
    #[error("{seconds} seconds between sweeps are out of range")]
    DaemonSleep {
        /// Seconds.
        seconds: u32,
    },
    /// More write-behind writes than md can count.
    #[error("{writes} write-behind writes are more than {WRITE_BEHIND_MAX}")]
    WriteBehind {
        /// Writes.
        writes: u32,
    },
    /// A count of sectors that no device has.
    #[error("the bitmap claims to cover {sectors} sectors")]
    SectorCount {
        /// Sectors.
        sectors: u64,
    },
    /// An event count that no array can have reached.
    #[error("the bitmap counts {events} events, more than any array can have had")]
    EventCount {
        /// The count.
        events: u64,
    },
}

/// Bytes with the bitmap magic; worth nothing until validated.
#[derive(Debug, Clone, Copy)]
pub struct UnvalidatedBitmap<'a> {
    bytes: &'a [u8],
}

impl<'a> UnvalidatedBitmap<'a> {
    /// Recognises the magic at the start of `bytes`.
    #[must_use]
    pub fn recognise(bytes: &'a [u8]) -> Option<Self> {
        let magic = bytes.first_chunk::<4>()?;
        (u32::from_le_bytes(*magic) == BITMAP_MAGIC).then_some(Self { bytes })
    }

    /// Checks everything. `array_uuid` is [`crate::Superblock::uuid_as_stored`].
    ///
    /// # Errors
    /// Whatever is wrong first.
    pub fn validate(self, array_uuid: &[u8; 16]) -> Result<BitmapSuperblock, BitmapError> {
        let cut_off = BitmapError::CutOff { present_bytes: self.bytes.len() as u64 };
        let (raw, _) = Raw::ref_from_prefix(self.bytes).map_err(|_| cut_off)?;
        let kind = match raw.version.get() {
            3 => BitmapKind::HostEndian,
            4 => BitmapKind::Classic,
            5 => return Err(BitmapError::Clustered),
            6 => BitmapKind::Lockless,
            version => return Err(BitmapError::VersionUnknown { version }),
        };
        if raw.uuid != *array_uuid {
            return Err(BitmapError::OtherArray);
        }
        let bytes = raw.chunk_bytes.get();
        if !bytes.is_power_of_two() || u64::from(bytes) < SECTOR_BYTES {
            return Err(BitmapError::Chunk { bytes });
        }
        let seconds = raw.daemon_sleep.get();
        if !(1..=DAEMON_SLEEP_MAX_SECONDS).contains(&seconds) {
            return Err(BitmapError::DaemonSleep { seconds });
        }
        let writes = raw.write_behind.get();
        if writes > WRITE_BEHIND_MAX {
            return Err(BitmapError::WriteBehind { writes });
        }
        let sectors = raw.sync_size.get();
        if sectors > SECTORS_MAX {
            return Err(BitmapError::SectorCount { sectors });
        }
        let events = raw.events.get();
        if events > EVENTS_MAX {
            return Err(BitmapError::EventCount { events });
        }
        Ok(BitmapSuperblock {
            kind,
            events,
            events_cleared: raw.events_cleared.get(),
            sync_size_sectors: sectors,
            chunk_bytes: bytes,
            state: raw.state.get(),
            daemon_sleep_seconds: seconds,
            write_behind: writes,
            sectors_reserved: raw.sectors_reserved.get(),
        })
    }
}

impl BitmapSuperblock {
    /// Marks in the bitmap: one per `chunk_bytes`, the last one partial.
    #[must_use]
    pub fn marks(&self) -> u64 {
        self.sync_size_sectors.div_ceil(u64::from(self.chunk_bytes) / SECTOR_BYTES)
    }

    /// Bytes of the bitmap with its superblock.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        match self.kind {
            BitmapKind::HostEndian | BitmapKind::Classic => {
                size_of::<Raw>() as u64 + self.marks().div_ceil(8)
            }
            BitmapKind::Lockless => LOCKLESS_HEAD_BYTES + self.marks(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UUID: [u8; 16] = *b"uuid-of-an-array";

    fn bytes(version: u32) -> Vec<u8> {
        let mut bytes = vec![0; 256];
        bytes[0..4].copy_from_slice(b"bitm");
        bytes[4..8].copy_from_slice(&version.to_le_bytes());
        bytes[8..24].copy_from_slice(&UUID);
        bytes[24..32].copy_from_slice(&7_u64.to_le_bytes());
        bytes[32..40].copy_from_slice(&6_u64.to_le_bytes());
        bytes[40..48].copy_from_slice(&(1_u64 << 21).to_le_bytes());
        bytes[52..56].copy_from_slice(&(64_u32 << 20).to_le_bytes());
        bytes[56..60].copy_from_slice(&5_u32.to_le_bytes());
        bytes
    }

    fn validate(bytes: &[u8]) -> Result<BitmapSuperblock, BitmapError> {
        UnvalidatedBitmap::recognise(bytes).unwrap().validate(&UUID)
    }

    #[test]
    fn each_version_is_told_apart() {
        let classic = validate(&bytes(4)).unwrap();
        assert_eq!(
            (classic.kind, classic.events, classic.events_cleared),
            (BitmapKind::Classic, 7, 6)
        );
        // 1 GiB in marks of 64 MiB.
        assert_eq!((classic.marks(), classic.total_bytes()), (16, 258));
        assert_eq!(validate(&bytes(3)).unwrap().kind, BitmapKind::HostEndian);
        assert_eq!(validate(&bytes(6)).unwrap().total_bytes(), 1024 + 16);
        assert_eq!(validate(&bytes(5)), Err(BitmapError::Clustered));
        assert_eq!(validate(&bytes(7)), Err(BitmapError::VersionUnknown { version: 7 }));
    }

    #[test]
    fn what_md_refuses_is_refused() {
        let with = |at: usize, value: u32| {
            let mut bytes = bytes(4);
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            validate(&bytes)
        };
        assert_eq!(with(8, 0), Err(BitmapError::OtherArray));
        assert_eq!(with(52, 0), Err(BitmapError::Chunk { bytes: 0 }));
        assert_eq!(with(52, 256), Err(BitmapError::Chunk { bytes: 256 }));
        assert_eq!(with(52, 4097), Err(BitmapError::Chunk { bytes: 4097 }));
        assert_eq!(with(56, 0), Err(BitmapError::DaemonSleep { seconds: 0 }));
        assert_eq!(with(60, 1 << 14), Err(BitmapError::WriteBehind { writes: 1 << 14 }));
        assert_eq!(
            with(44, 1 << 31),
            Err(BitmapError::SectorCount { sectors: (1 << 63) + (1 << 21) })
        );
        assert_eq!(validate(&bytes(4)[..255]), Err(BitmapError::CutOff { present_bytes: 255 }));
        assert!(UnvalidatedBitmap::recognise(&[0; 256]).is_none());
    }

    #[test]
    fn events_near_the_end_of_their_range_are_refused() {
        let with = |events: u64| {
            let mut bytes = bytes(4);
            bytes[24..32].copy_from_slice(&events.to_le_bytes());
            validate(&bytes).map(|bitmap| bitmap.events)
        };
        assert_eq!(with(1 << 63), Ok(1 << 63));
        for events in [(1 << 63) + 1, u64::MAX] {
            assert_eq!(with(events), Err(BitmapError::EventCount { events }));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 4..300)) {
            bytes[..4].copy_from_slice(b"bitm");
            if let Ok(bitmap) = validate(&bytes) {
                prop_assert!(bitmap.total_bytes() > bitmap.marks() / 8);
            }
        }
    }
}
