//! The on-disk formats of Linux md: parse, validate, write.
//!
//! A pure crate above `braid-geometry` and below every crate that touches members. The caller reads
//! and writes; this crate turns bytes into validated values and values into bytes. The crate opens
//! no device, reads no clock, draws no random numbers.
//!
//! The crate does not compare members with each other (`braid-assembly` decides which member is
//! stale), nor decide *when* a superblock is written (the engine does).
//!
//! ```text
//! bytes ──recognise──> Unvalidated* ──validate──> value ──to_bytes──> bytes
//!                                        │
//!                                        └──> a typed error naming what is wrong
//! ```
//!
//! Invariants, and their tests:
//! - No byte sequence makes a parser panic or allocate by an unverified number:
//!   `tests/never_panics.rs`, `fuzz/`.
//! - Every single-bit error in a checksummed structure is refused: `tests/bit_flips.rs`.
//! - Unknown bytes are kept: `superblock::tests::apply_keeps_every_unknown_byte`.
//! - `mdadm` reads our output the same way: `tests/mdadm_examine.rs`.
//!
//! `docs/on-disk.md` draws the formats field by field; every offset there is asserted at compile
//! time here.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod bad_blocks;
pub mod bitmap;
pub mod bitmap_file;
mod bits;
pub mod checksum;
pub mod damaged_superblock;
pub mod foreign_signatures;
pub mod journal;
pub mod journal_log;
pub mod journal_record;
pub mod limits;
pub mod log_place;
pub mod marks;
pub mod own_log;
pub mod placement;
pub mod ppl;
pub mod ppl_log;
pub mod probe;
pub mod reshape_backup;
pub mod sample;
mod snippet;
pub mod superblock;
pub mod window_copy;

pub use bad_blocks::{BadBlockLog, BadBlockLogError, BadBlockLogPlace, BadRange, BadRecord};
pub use bitmap::{Bitmap, BitmapError, BitmapKind, BitmapSuperblock, UnvalidatedBitmap};
pub use bitmap_file::{BITMAP_FILE_BYTES_MIN, BitmapFile, BitmapFileError};
pub use bits::Bits;
pub use checksum::{checksum_v0, checksum_v1};
pub use damaged_superblock::{
    DamagedSuperblock, Flaw, may_be_damaged, recognise_damaged, recognise_damaged_v0,
};
pub use foreign_signatures::{ForeignKind, ForeignSignature};
pub use journal::{
    JOURNAL_BLOCK_SECTORS, JOURNAL_META_BYTES, JournalError, JournalMeta, JournalPayload,
    JournalPlace, UnvalidatedJournalMeta, journal_block_checksum,
};
pub use journal_log::{
    JOURNAL_SEQUENCE_GAP, JournalArea, JournalEnd, JournalEntry, JournalLog, JournalLogError,
};
pub use journal_record::{JournalPiece, JournalRecord, JournalRow};
pub use log_place::{LOG_SECTORS_MIN, LogPlace, OwnLogPlace, PPL_HEADER_SECTORS};
pub use marks::{LocklessMarks, MarkAction, MarkCounts, MarkState};
pub use own_log::{OWN_LOG_HEAD_BYTES, OWN_LOG_HEAD_SECTORS, OwnLog, OwnLogHead, OwnLogHeadError};
pub use placement::{Placement, PlacementError, PlacementRequest, placement};
pub use ppl::{
    PPL_ENTRIES_MAX, PPL_HEADER_BYTES, PplEntry, PplError, PplHeader, PplPlace,
    UnvalidatedPplHeader,
};
pub use ppl_log::{LoggedEntry, PplLog, PplLogError, PplRecord};
pub use probe::{Probe, probe, probe_ranges};
pub use reshape_backup::{
    BackupPart, RESHAPE_BACKUP_BEFORE_END_SECTORS, RESHAPE_BACKUP_BYTES, ReshapeBackup,
    ReshapeBackupError, reshape_backup,
};
pub use snippet::Snippet;
pub use superblock::{
    ArrayFacts, BitmapPlace, ByteOrder, Claim, DeviceFacts, DeviceFlags, Features, IntentFacts,
    JoinError, LogHome, NewSuperblock, NewSuperblockError, NewV0, Reshape, ReshapeSide, Role,
    StateFacts, Superblock, SuperblockError, SuperblockFault, SuperblockShape, SuperblockUpdate,
    Timestamp, UnvalidatedV0, UnvalidatedV1, Version, format_uuid,
};
pub use window_copy::{
    COPIED_SECTORS_MAX, CopiedWindow, ReshapePoint, WINDOW_HEADER_BYTES, WindowHeader,
};
