//! The superblock of a write-intent bitmap, which marks the parts of the array whose members may
//! differ.
//!
//! 256 bytes, little endian, at the place that the array's superblock names. The bits follow, one
//! for each run of `chunk_bytes` of every member (of the array, for raid10). A set bit says that
//! members may differ there. Superblock and bits together are the *area*.
//!
//! Four kinds share the magic: version 3 (bits in the byte order of the machine, obsolete), 4
//! (little endian), 5 (one bitmap per node of a cluster; refused by name) and 6 (lockless: one
//! *byte* per chunk, after 1024 bytes). The superblock has no checksum: only the UUID ties it to
//! its array.
//!
//! # The lockless kind
//! Facts from Linux 6.18 (`drivers/md/md-llbitmap.c`, `md-bitmap.h`) and from the patch that taught
//! mdadm to make one. Its superblock is the same 256 bytes, but counts the chunk in *sectors*, and
//! `state` has more flags. The bitmap's bytes begin 1024 bytes after the start of the superblock;
//! [`crate::marks`] has their meaning. The array's superblock says only that a bitmap exists. No
//! feature names the kind, and a kernel that does not know version 6 refuses the array.
//!
//! mdadm leaves the bytes to the first kernel and sets the flag *first use*. The chunk is then the
//! smallest one from 64 KiB up whose marks fit into the reserved sectors. All marks start as
//! unwritten, or, with a second flag, as clean.

use std::mem::{offset_of, size_of};

use thiserror::Error;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::bits::{Bits, sectors_for};
use crate::limits::{EVENTS_MAX, SECTOR_BYTES, SECTORS_MAX};
use crate::marks::{LocklessMarks, MarkCounts, read_marks};

const CLASSIC_VERSION: u32 = 4;
const LOCKLESS_VERSION: u32 = 6;
/// "bitm" in little endian.
const BITMAP_MAGIC: u32 = 0x6d74_6962;
/// md counts outstanding write-behind writes in 14 bits.
const WRITE_BEHIND_MAX: u32 = (1 << 14) - 1;
/// The longest time between sweeps that md accepts: no machine has a longer tick count.
const DAEMON_SLEEP_MAX_SECONDS: u32 = i32::MAX as u32;
const LOCKLESS_HEAD_BYTES: u64 = 1024;
/// Bit in `state`: the bits may be incomplete.
const STATE_STALE: u32 = 1 << 1;
/// Bit in `state`: a bit could not be written.
const STATE_WRITE_ERROR: u32 = 1 << 2;
/// Bit in `state` of a lockless bitmap: no kernel has written its bytes yet.
const STATE_FIRST_USE: u32 = 1 << 3;
/// Bit in `state` of a lockless bitmap on first use: its bytes start as clean.
const STATE_CLEAN: u32 = 1 << 4;
/// mdadm's default for the seconds between sweeps.
pub const DAEMON_SLEEP_SECONDS: u32 = 5;
const LOCKLESS_SLEEP_SECONDS: u32 = 30;
/// The smallest chunk that Linux chooses for a lockless bitmap unless the operator asks for less.
const LOCKLESS_CHUNK_BYTES_MIN: u32 = 64 << 10;
/// The largest chunk supported: a power of two of bytes.
const CHUNK_BYTES_MAX: u32 = 1 << 31;
/// The largest area: md makes no area as large, since md keeps two bytes in memory for each bit.
pub(crate) const AREA_BYTES_MAX: u64 = 16 << 20;

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

/// The format of a bitmap's marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BitmapKind {
    /// Version 3: one bit per chunk, in the byte order of the machine that wrote it.
    HostEndian,
    /// Version 4: one bit per chunk, little endian.
    Classic,
    /// Version 6: one byte of state per chunk.
    Lockless,
}

impl BitmapKind {
    /// The kind in one word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::HostEndian => "host-endian",
            Self::Classic => "classic",
            Self::Lockless => "lockless",
        }
    }
}

/// A validated bitmap superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BitmapSuperblock {
    /// The format of the marks.
    pub kind: BitmapKind,
    /// The bitmap's event count. It is updated just before the array's event count, so it is equal
    /// or one more.
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
    /// The most write-behind writes; 0 allows none.
    pub write_behind: u32,
    /// Sectors reserved for the bitmap; 0: not recorded.
    pub sectors_reserved: u32,
}

/// Why a bitmap superblock is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BitmapError {
    /// Fewer bytes than a bitmap superblock has.
    #[error("cut off: {present_bytes} bytes are there, 256 are needed")]
    CutOff {
        /// Bytes at hand.
        present_bytes: u64,
    },
    /// One bitmap per node of a cluster: not supported.
    #[error("the bitmap is a cluster's (version 5), which is not served")]
    Clustered,
    /// A version that md does not have.
    #[error("bitmap version {version} is unknown")]
    VersionUnknown {
        /// The stored version.
        version: u32,
    },
    /// The bitmap belongs to another array.
    #[error("the bitmap belongs to another array")]
    OtherArray,
    /// Bytes per mark that md refuses.
    #[error("a bitmap chunk of {bytes} bytes is not a power of two from 512 up")]
    Chunk {
        /// Bytes per mark.
        bytes: u32,
    },
    /// Sectors per mark that md refuses, or beyond the largest chunk supported.
    #[error("a bitmap chunk of {sectors} sectors is not a power of two, or more than 2 GiB")]
    ChunkSectors {
        /// Sectors per mark.
        sectors: u32,
    },
    /// A lockless bitmap on first use whose marks do not fit.
    #[error("{sectors} reserved sectors are too few for a lockless bitmap")]
    NoRoom {
        /// Sectors reserved for the bitmap.
        sectors: u32,
    },
    /// A time between sweeps that md refuses.
    #[error("{seconds} seconds between sweeps are out of range")]
    DaemonSleep {
        /// Seconds between sweeps, as stored.
        seconds: u32,
    },
    /// More write-behind writes than md can count.
    #[error("{writes} write-behind writes are more than {WRITE_BEHIND_MAX}")]
    WriteBehind {
        /// The stored number of write-behind writes.
        writes: u32,
    },
    /// A count of sectors that no device has.
    #[error("the bitmap claims to cover {sectors} sectors")]
    SectorCount {
        /// The stored number of sectors.
        sectors: u64,
    },
    /// More bits than md could hold in memory.
    #[error("the bitmap would take {bytes} bytes; md makes none beyond {AREA_BYTES_MAX}")]
    TooLarge {
        /// Bytes of the bitmap.
        bytes: u64,
    },
    /// An event count that no array can have reached.
    #[error("the bitmap counts {events} events, more than any array can have had")]
    EventCount {
        /// The stored event count.
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

    /// The stored UUID; `None` if it is cut off.
    #[must_use]
    pub fn array_uuid(&self) -> Option<[u8; 16]> {
        let (raw, _) = Raw::ref_from_prefix(self.bytes).ok()?;
        Some(raw.uuid)
    }

    /// Validates the bitmap superblock. `array_uuid` is [`crate::Superblock::uuid_as_stored`].
    ///
    /// # Errors
    /// The first fault found.
    pub fn validate(self, array_uuid: &[u8; 16]) -> Result<BitmapSuperblock, BitmapError> {
        let cut_off = BitmapError::CutOff { present_bytes: self.bytes.len() as u64 };
        let (raw, _) = Raw::ref_from_prefix(self.bytes).map_err(|_| cut_off)?;
        let kind = match raw.version.get() {
            3 => BitmapKind::HostEndian,
            CLASSIC_VERSION => BitmapKind::Classic,
            5 => return Err(BitmapError::Clustered),
            LOCKLESS_VERSION => BitmapKind::Lockless,
            version => return Err(BitmapError::VersionUnknown { version }),
        };
        if raw.uuid != *array_uuid {
            return Err(BitmapError::OtherArray);
        }
        let bytes = match kind {
            BitmapKind::Lockless => lockless_chunk_bytes(raw)?,
            BitmapKind::HostEndian | BitmapKind::Classic => raw.chunk_bytes.get(),
        };
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
        let bitmap = BitmapSuperblock {
            kind,
            events,
            events_cleared: raw.events_cleared.get(),
            sync_size_sectors: sectors,
            chunk_bytes: bytes,
            state: raw.state.get(),
            daemon_sleep_seconds: seconds,
            write_behind: writes,
            sectors_reserved: raw.sectors_reserved.get(),
        };
        let bytes = bitmap.total_bytes();
        if bytes > AREA_BYTES_MAX {
            return Err(BitmapError::TooLarge { bytes });
        }
        Ok(bitmap)
    }
}

/// Bytes per mark of a lockless bitmap: as stored, or as Linux chooses on first use.
fn lockless_chunk_bytes(raw: &Raw) -> Result<u32, BitmapError> {
    let (sync_sectors, sectors) = (raw.sync_size.get(), raw.sectors_reserved.get());
    if raw.state.get() & STATE_FIRST_USE != 0 {
        let fits = BitmapSuperblock::new_lockless(sync_sectors.min(SECTORS_MAX), sectors);
        return fits.map(|made| made.chunk_bytes).ok_or(BitmapError::NoRoom { sectors });
    }
    let sectors = raw.chunk_bytes.get();
    let bytes = u32::try_from(u64::from(sectors) * SECTOR_BYTES).ok();
    bytes.filter(|_| sectors.is_power_of_two()).ok_or(BitmapError::ChunkSectors { sectors })
}

/// A bitmap that was read from a member: superblock and bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bitmap {
    /// The validated superblock.
    pub superblock: BitmapSuperblock,
    /// Parts that may differ between members; not read for [`BitmapKind::HostEndian`].
    pub bits: Bits,
    /// The further states of a lockless bitmap, and the number of marks in each state.
    pub marks: Option<(LocklessMarks, MarkCounts)>,
}

impl Bitmap {
    /// Reads the area of a bitmap whose superblock is known.
    ///
    /// # Errors
    /// The area is cut off.
    pub fn read(superblock: BitmapSuperblock, area: &[u8]) -> Result<Self, BitmapError> {
        let present_bytes = area.len() as u64;
        if present_bytes < superblock.total_bytes() {
            return Err(BitmapError::CutOff { present_bytes });
        }
        let head_bytes = usize::try_from(superblock.head_bytes()).unwrap_or(usize::MAX);
        let bytes = area.get(head_bytes..).unwrap_or_default();
        let (sectors, each) = (superblock.sync_size_sectors, superblock.sectors_each());
        let plain = |bytes: &[u8]| (Bits::from_bytes(bytes, sectors, each), None);
        let (bits, marks) = match superblock.kind {
            BitmapKind::HostEndian => plain(&[]),
            BitmapKind::Classic => plain(bytes),
            BitmapKind::Lockless => {
                let byte = superblock.first_byte();
                let made: Vec<u8> = byte.map(|byte| vec![byte; bytes.len()]).unwrap_or_default();
                let bytes = if byte.is_some() { &made } else { bytes };
                let (bits, marks, counts) = read_marks(bytes, sectors, each);
                (bits, Some((marks, counts)))
            }
        };
        Ok(Self { superblock, bits, marks })
    }

    /// Whether the bits are complete at this event count; md sets all bits if they are not.
    #[must_use]
    pub fn is_current(&self, events: u64) -> bool {
        let is_whole = self.superblock.state & (STATE_STALE | STATE_WRITE_ERROR) == 0;
        // An interrupted update leaves the bitmap one event ahead. A larger lead means that
        // superblocks are old.
        let is_near = (events..=events.saturating_add(1)).contains(&self.superblock.events);
        self.superblock.kind != BitmapKind::HostEndian && is_whole && is_near
    }
}

impl BitmapSuperblock {
    /// A new classic bitmap with mdadm's defaults.
    #[must_use]
    pub fn new(sync_size_sectors: u64, chunk_bytes: u32, sectors_reserved: u32) -> Self {
        Self {
            kind: BitmapKind::Classic,
            events: 0,
            events_cleared: 0,
            sync_size_sectors,
            chunk_bytes,
            state: 0,
            daemon_sleep_seconds: DAEMON_SLEEP_SECONDS,
            write_behind: 0,
            sectors_reserved,
        }
    }

    /// A new lockless bitmap with Linux's defaults, whose superblock and marks fit into
    /// `sectors_reserved`; `None` if they never do.
    #[must_use]
    pub fn new_lockless(sync_size_sectors: u64, sectors_reserved: u32) -> Option<Self> {
        let of = |chunk_bytes: u32| Self {
            kind: BitmapKind::Lockless,
            daemon_sleep_seconds: LOCKLESS_SLEEP_SECONDS,
            ..Self::new(sync_size_sectors, chunk_bytes, sectors_reserved)
        };
        let sizes = std::iter::successors(Some(LOCKLESS_CHUNK_BYTES_MIN), |b| b.checked_mul(2));
        let mut sizes = sizes.take_while(|bytes| *bytes <= CHUNK_BYTES_MAX).map(of);
        sizes.find(|one| one.area_sectors() <= u64::from(sectors_reserved))
    }

    /// The byte of every mark of a lockless bitmap on first use.
    fn first_byte(&self) -> Option<u8> {
        let clean = u8::from(self.state & STATE_CLEAN != 0);
        (self.state & STATE_FIRST_USE != 0).then_some(clean)
    }

    fn head_bytes(&self) -> u64 {
        match self.kind {
            BitmapKind::HostEndian | BitmapKind::Classic => size_of::<Raw>() as u64,
            BitmapKind::Lockless => LOCKLESS_HEAD_BYTES,
        }
    }

    /// Sectors per bit.
    #[must_use]
    pub fn sectors_each(&self) -> u64 {
        u64::from(self.chunk_bytes) / SECTOR_BYTES
    }

    /// The area to write to a member, in whole sectors: the superblock, not marked stale, then bits
    /// or marks.
    ///
    /// # Panics
    /// When bits or marks do not fit this superblock, or it is [`BitmapKind::HostEndian`].
    #[must_use]
    pub fn area(
        &self,
        array_uuid: &[u8; 16],
        bits: &Bits,
        marks: Option<&LocklessMarks>,
    ) -> Vec<u8> {
        self.area_with(array_uuid, (bits, marks), 0)
    }

    /// The area for the first write, which overwrites other data. Its superblock is marked *stale*,
    /// so that no reader believes a partly written area.
    ///
    /// # Panics
    /// As [`Self::area`].
    #[must_use]
    pub fn area_in_the_making(
        &self,
        array_uuid: &[u8; 16],
        bits: &Bits,
        marks: Option<&LocklessMarks>,
    ) -> Vec<u8> {
        self.area_with(array_uuid, (bits, marks), STATE_STALE)
    }

    fn area_with(
        &self,
        array_uuid: &[u8; 16],
        (bits, marks): (&Bits, Option<&LocklessMarks>),
        says: u32,
    ) -> Vec<u8> {
        let is_own =
            (bits.sectors(), bits.sectors_each()) == (self.sync_size_sectors, self.sectors_each());
        assert!(is_own && self.kind != BitmapKind::HostEndian, "the bits are of this bitmap");
        let is_lockless = self.kind == BitmapKind::Lockless;
        assert_eq!(marks.is_some(), is_lockless, "a lockless bitmap has marks, and no other");
        let (version, chunk, flags) = match self.kind {
            BitmapKind::Lockless => (LOCKLESS_VERSION, self.sectors_each(), u32::MAX),
            _ => (CLASSIC_VERSION, u64::from(self.chunk_bytes), STATE_STALE | STATE_WRITE_ERROR),
        };
        let mut raw = Raw::new_zeroed();
        (raw.magic, raw.version) = (U32::new(BITMAP_MAGIC), U32::new(version));
        raw.uuid = *array_uuid;
        raw.events = U64::new(self.events);
        raw.events_cleared = U64::new(self.events_cleared);
        raw.sync_size = U64::new(self.sync_size_sectors);
        raw.state = U32::new(self.state & !flags | says);
        raw.chunk_bytes = U32::new(u32::try_from(chunk).expect("as it was read"));
        raw.daemon_sleep = U32::new(self.daemon_sleep_seconds);
        raw.write_behind = U32::new(self.write_behind);
        raw.sectors_reserved = U32::new(self.sectors_reserved);
        let mut area = raw.as_bytes().to_vec();
        area.resize(usize::try_from(self.head_bytes()).expect("it is short"), 0);
        match marks {
            Some(marks) => area.extend(marks.to_bytes(bits)),
            None => area.extend(bits.to_bytes()),
        }
        let whole = sectors_for(area.len() as u64) * SECTOR_BYTES;
        area.resize(usize::try_from(whole).expect("it is in memory"), 0);
        area
    }

    /// Number of the sector within the area that holds a bit or a mark.
    #[must_use]
    pub fn sector_of(&self, bit: u64) -> u64 {
        let bytes = if self.kind == BitmapKind::Lockless { bit } else { bit / 8 };
        (self.head_bytes() + bytes) / SECTOR_BYTES
    }

    /// Sectors of the area.
    #[must_use]
    pub fn area_sectors(&self) -> u64 {
        sectors_for(self.total_bytes())
    }

    /// Number of marks: one per `chunk_bytes`, the last one partial.
    #[must_use]
    pub fn marks(&self) -> u64 {
        self.sync_size_sectors.div_ceil(u64::from(self.chunk_bytes) / SECTOR_BYTES)
    }

    /// Bytes of the superblock and the marks.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        match self.kind {
            BitmapKind::HostEndian | BitmapKind::Classic => {
                size_of::<Raw>() as u64 + self.marks().div_ceil(8)
            }
            // A [`Bits`] has at least one bit, even for an array of no sectors.
            BitmapKind::Lockless => LOCKLESS_HEAD_BYTES + self.marks().max(1),
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
        // The chunk of a lockless bitmap is counted in sectors: these marks cover 64 MiB too.
        let mut lockless = bytes(6);
        lockless[52..56].copy_from_slice(&(128_u32 << 10).to_le_bytes());
        let lockless = validate(&lockless).unwrap();
        assert_eq!((lockless.chunk_bytes, lockless.total_bytes()), (64 << 20, 1024 + 16));
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

    #[test]
    fn what_is_written_is_read_again() {
        let head = BitmapSuperblock {
            events: 9,
            events_cleared: 7,
            ..BitmapSuperblock::new(1 << 21, 4096, 8)
        };
        let mut bits = Bits::none(1 << 21, 8);
        [0, 77, 2047, 2048, 262_143].into_iter().for_each(|bit| bits.set(bit));
        let area = head.area(&UUID, &bits, None);
        assert_eq!((area.len() as u64, area.len() % 512), (head.area_sectors() * 512, 0));
        let read = Bitmap::read(validate(&area).unwrap(), &area).unwrap();
        assert_eq!((&read.superblock, &read.bits), (&head, &bits));
        for bit in bits.iter() {
            let mut other = bits.clone();
            other.clear(bit);
            let sector = usize::try_from(head.sector_of(bit)).expect("few") * 512;
            let other = head.area(&UUID, &other, None);
            assert_ne!(area[sector..sector + 512], other[sector..sector + 512], "{bit}");
        }
        assert!(Bitmap::read(head, &area[..300]).is_err(), "cut off");
        assert!(read.is_current(9) && read.is_current(8));
        assert!(!read.is_current(10), "fewer events than the array has");
        assert!(!read.is_current(7), "the superblocks are older");
        let stale = BitmapSuperblock { state: STATE_STALE, ..head };
        assert!(!Bitmap { superblock: stale, ..read }.is_current(9));
        let making = head.area_in_the_making(&UUID, &bits, None);
        assert!(!Bitmap::read(validate(&making).unwrap(), &making).unwrap().is_current(9));
        assert_eq!(making[512..], area[512..]);
    }

    fn lockless(sync_sectors: u64, chunk_bytes: u32) -> BitmapSuperblock {
        let head = BitmapSuperblock::new_lockless(sync_sectors, 256).expect("there is room");
        BitmapSuperblock { events: 9, events_cleared: 7, chunk_bytes, ..head }
    }

    #[test]
    fn a_lockless_bitmap_is_read_as_it_was_written() {
        let head = lockless(1000, 4096);
        let mut bits = Bits::none(1000, 8);
        let mut marks = LocklessMarks::unwritten(1000, 8);
        for mark in [0, 1, 77, 124] {
            marks.unwritten.clear(mark);
        }
        [1, 77, 124].into_iter().for_each(|mark| bits.set(mark));
        marks.unsynced.set(124);
        let area = head.area(&UUID, &bits, Some(&marks));
        // Facts about the format: the marks begin at byte 1024, and the chunk is counted in
        // sectors.
        assert_eq!((area[4], area[52], area[1024], area[1025]), (6, 8, 1, 2));
        assert_eq!((area[1024 + 77], area[1024 + 124], area[1024 + 2]), (2, 3, 0));
        assert_eq!(area[256..1024], [0; 768]);
        let read = Bitmap::read(validate(&area).unwrap(), &area).unwrap();
        assert_eq!((&read.superblock, &read.bits), (&head, &bits));
        let (read_marks, counts) = read.marks.clone().expect("it is lockless");
        assert_eq!((&read_marks, counts.of(crate::MarkState::Unwritten)), (&marks, 121));
        assert!(read.is_current(9) && !read.is_current(10));
        for mark in [2, 77, 124] {
            let mut other = marks.clone();
            (other.unwritten, other.unsynced) = (other.unwritten.clone(), marks.unsynced.clone());
            match marks.unwritten.is_set(mark) {
                true => other.unwritten.clear(mark),
                false => other.unwritten.set(mark),
            }
            let sector = usize::try_from(head.sector_of(mark)).expect("few") * 512;
            let other = head.area(&UUID, &bits, Some(&other));
            assert_ne!(area[sector..sector + 512], other[sector..sector + 512], "{mark}");
        }
    }

    #[test]
    fn what_mdadm_leaves_to_the_first_kernel_is_made() {
        let mut first = bytes(6);
        first[48..52].copy_from_slice(&(1_u32 << 3).to_le_bytes());
        first[52..56].copy_from_slice(&0_u32.to_le_bytes());
        assert_eq!(validate(&first), Err(BitmapError::NoRoom { sectors: 0 }));
        first[64..68].copy_from_slice(&256_u32.to_le_bytes());
        let head = validate(&first).unwrap();
        assert_eq!((head.chunk_bytes, head.marks()), (64 << 10, 16384));
        let area = vec![0xA5; usize::try_from(head.total_bytes()).unwrap()];
        let read = Bitmap::read(head, &area).unwrap();
        let (marks, _) = read.marks.expect("it is lockless");
        assert_eq!((read.bits.set_count(), marks.unwritten.set_count()), (0, 16384));
        let clean = BitmapSuperblock { state: STATE_FIRST_USE | STATE_CLEAN, ..head };
        let (marks, counts) = Bitmap::read(clean, &area).unwrap().marks.expect("it is lockless");
        assert!(marks.unwritten.is_empty() && marks.unsynced.is_empty());
        assert_eq!(counts.of(crate::MarkState::Clean), 16384);
        // 32 TiB need marks of 512 MiB, since at most 131072 - 1024 bytes are for marks.
        let large = BitmapSuperblock::new_lockless(1 << 36, 256).expect("it fits");
        assert_eq!((large.chunk_bytes, large.marks()), (512 << 20, 65536));
        assert_eq!(BitmapSuperblock::new_lockless(1 << 40, 2), None);
    }

    #[test]
    fn chunks_of_a_lockless_bitmap_are_powers_of_two_of_sectors() {
        let with = |sectors: u32| {
            let mut bytes = bytes(6);
            bytes[52..56].copy_from_slice(&sectors.to_le_bytes());
            validate(&bytes).map(|head| head.chunk_bytes)
        };
        assert_eq!(with(1 << 22), Ok(1 << 31));
        for sectors in [0, 3, 1 << 23, u32::MAX] {
            assert_eq!(with(sectors), Err(BitmapError::ChunkSectors { sectors }));
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

        #[test]
        fn any_marks_are_read(marks in prop::collection::vec(any::<u8>(), 16..40), is_first: bool) {
            let head = lockless(16 * 8, 4096);
            let head = if is_first { BitmapSuperblock { state: STATE_FIRST_USE, ..head } } else { head };
            let area = [&[0; 1024][..], &marks].concat();
            let read = Bitmap::read(head, &area).unwrap();
            let (sets, _) = read.marks.unwrap();
            for mark in 0..16 {
                let (unwritten, unsynced) = (sets.unwritten.is_set(mark), sets.unsynced.is_set(mark));
                prop_assert!(!(unwritten && (unsynced || read.bits.is_set(mark))));
                prop_assert!(!unsynced || read.bits.is_set(mark));
            }
        }
    }
}
