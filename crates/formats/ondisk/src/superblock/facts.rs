//! The facts of a superblock, in one vocabulary for both formats.
//!
//! Facts are plain values without behaviour beyond naming. `v0_90` and `v1` handle the bytes.

use std::fmt;
use std::str::FromStr;

use braid_geometry::Level;

use crate::bad_blocks::BadBlockLogPlace;
use crate::journal::JournalPlace;
use crate::limits::{V0_RESERVED_SECTORS, V1_DEVICE_SECTORS_MIN};
use crate::ppl::PplPlace;

/// A superblock version, which also determines its place on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// 4096 bytes in the last 128 KiB of the device, aligned to 64 KiB.
    V0_90,
    /// Between 8 and 12 KiB from the end of the device, aligned to 4 KiB.
    V1_0,
    /// At the start of the device.
    V1_1,
    /// 4 KiB from the start of the device.
    V1_2,
}

/// The byte order of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first, as on PCs; always so in superblocks 1.x.
    Little,
    /// Most significant byte first: superblocks 0.90 of PowerPC, of many MIPS, and of some ARM.
    Big,
}

impl Version {
    /// All versions, oldest first.
    pub const ALL: [Self; 4] = [Self::V0_90, Self::V1_0, Self::V1_1, Self::V1_2];

    /// The sector of this version's superblock; `None` if the device is too small.
    #[must_use]
    pub fn super_offset_sectors(self, device_sectors: u64) -> Option<u64> {
        if self == Self::V0_90 {
            let aligned = device_sectors & !(V0_RESERVED_SECTORS - 1);
            // Sector 0 is no place for a 0.90 superblock: no data would fit before it, and a 1.1
            // superblock is at sector 0.
            return aligned.checked_sub(V0_RESERVED_SECTORS).filter(|offset| *offset > 0);
        }
        if device_sectors < V1_DEVICE_SECTORS_MIN {
            return None;
        }
        match self {
            Self::V0_90 | Self::V1_1 => Some(0),
            // Up to sector 8, no data would fit before the superblock, and a 1.2 superblock is at
            // sector 8.
            Self::V1_0 => Some((device_sectors - 16) & !7).filter(|offset| *offset > 8),
            Self::V1_2 => Some(8),
        }
    }

    /// Whether this is a version 1 format; version 1 formats differ only in the superblock's place.
    #[must_use]
    pub fn is_v1(self) -> bool {
        self != Self::V0_90
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V0_90 => "0.90",
            Self::V1_0 => "1.0",
            Self::V1_1 => "1.1",
            Self::V1_2 => "1.2",
        })
    }
}

/// A metadata version that md does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a metadata version: use 0.90, 1.0, 1.1 or 1.2")]
pub struct UnknownVersion;

impl FromStr for Version {
    type Err = UnknownVersion;

    fn from_str(text: &str) -> Result<Self, UnknownVersion> {
        Self::ALL.into_iter().find(|version| version.to_string() == text).ok_or(UnknownVersion)
    }
}

/// The role of one device in the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The device occupies this slot. It may still be recovering: see
    /// [`DeviceFacts::recovery_offset_sectors`].
    Active(u16),
    /// The device is a spare. md also writes this role for unused device numbers.
    Spare,
    /// The device failed.
    Faulty,
    /// The device is the write journal.
    Journal,
}

impl Role {
    /// The role as 1.x stores it.
    #[must_use]
    pub fn to_v1(self) -> u16 {
        match self {
            Self::Active(slot) => slot,
            Self::Spare => 0xffff,
            Self::Faulty => 0xfffe,
            Self::Journal => 0xfffd,
        }
    }

    /// The role that 1.x stores as `value`; `None` for values md reserves.
    #[must_use]
    pub fn from_v1(value: u16) -> Option<Self> {
        match value {
            0xffff => Some(Self::Spare),
            0xfffe => Some(Self::Faulty),
            0xfffd => Some(Self::Journal),
            reserved if reserved >= crate::limits::ROLE_RESERVED_FROM => None,
            slot => Some(Self::Active(slot)),
        }
    }
}

/// The feature map of a 1.x superblock. Unknown bits are kept; a 0.90 superblock has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Features(pub u32);

impl Features {
    /// The superblock's bitmap offset is valid.
    pub const BITMAP: Self = Self(1);
    /// This member is recovered only up to its recovery offset.
    pub const RECOVERY_OFFSET: Self = Self(2);
    /// A reshape is under way.
    pub const RESHAPE: Self = Self(4);
    /// The bad-block log is not empty.
    pub const BAD_BLOCKS: Self = Self(8);
    /// This member will replace the member with the same role.
    pub const REPLACEMENT: Self = Self(16);
    /// The reshape runs from the end to the start although the number of members stays.
    pub const RESHAPE_BACKWARDS: Self = Self(32);
    /// The reshape also moves the data offset.
    pub const NEW_OFFSET: Self = Self(64);
    /// The bitmap guides the recovery.
    pub const RECOVERY_BITMAP: Self = Self(128);
    /// Clustered md manages the array.
    pub const CLUSTERED: Self = Self(256);
    /// The array has a journal device.
    pub const JOURNAL: Self = Self(512);
    /// Each member has a PPL area.
    pub const PPL: Self = Self(1024);
    /// The PPL area holds several headers.
    pub const MULTIPLE_PPLS: Self = Self(2048);
    /// The layout field is valid at level 0.
    pub const RAID0_LAYOUT: Self = Self(4096);

    /// Name and bit of every feature that md has, lowest first.
    pub const NAMED: [(&'static str, Self); 13] = [
        ("bitmap", Self::BITMAP),
        ("recovery-offset", Self::RECOVERY_OFFSET),
        ("reshape", Self::RESHAPE),
        ("bad-blocks", Self::BAD_BLOCKS),
        ("replacement", Self::REPLACEMENT),
        ("reshape-backwards", Self::RESHAPE_BACKWARDS),
        ("new-offset", Self::NEW_OFFSET),
        ("recovery-bitmap", Self::RECOVERY_BITMAP),
        ("clustered", Self::CLUSTERED),
        ("journal", Self::JOURNAL),
        ("ppl", Self::PPL),
        ("multiple-ppls", Self::MULTIPLE_PPLS),
        ("raid0-layout", Self::RAID0_LAYOUT),
    ];

    /// Whether every bit of `other` is set in this feature map.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any bit of `other` is set in this feature map.
    #[must_use]
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The union of this feature map and `other`.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This feature map without the bits of `other`.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The set bits of no known feature. md refuses an array that has such bits.
    #[must_use]
    pub fn unknown(self) -> u32 {
        Self::NAMED.iter().fold(self, |rest, (_, feature)| rest.without(*feature)).0
    }

    /// The names of the features that are set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMED
            .into_iter()
            .filter(move |(_, feature)| self.contains(*feature))
            .map(|(name, _)| name)
    }
}

/// A point in time as md writes it: seconds since 1970 in 40 bits, microseconds in 24.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 UTC.
    pub seconds: u64,
    /// Microseconds; md writes 0, and ignores them.
    pub microseconds: u32,
}

impl Timestamp {
    const SECONDS_BITS: u32 = 40;
    const MICROSECONDS: u32 = 1_000_000;

    /// The next moment that the format can express.
    #[must_use]
    pub fn next(self) -> Self {
        match self.microseconds + 1 {
            microseconds if microseconds < Self::MICROSECONDS => Self { microseconds, ..self },
            _ => Self { seconds: self.seconds.saturating_add(1), microseconds: 0 },
        }
    }

    pub(crate) fn from_v1(value: u64) -> Self {
        let microseconds = u32::try_from(value >> Self::SECONDS_BITS).unwrap_or(u32::MAX);
        Self { seconds: value & ((1 << Self::SECONDS_BITS) - 1), microseconds }
    }

    /// The time, and the home of our own parity log if the time is stamped to say that the log
    /// counts ([`crate::own_log`]).
    pub(crate) fn from_v1_stamped(value: u64) -> (Self, Option<LogHome>) {
        let time = Self::from_v1(value);
        let with_stamp = LogHome::ALL.into_iter().find_map(|home| {
            let part = time.microseconds.checked_sub(Self::stamp(home))?;
            (part < Self::MICROSECONDS).then_some((Self { microseconds: part, ..time }, home))
        });
        with_stamp.map_or((time, None), |(time, home)| (time, Some(home)))
    }

    pub(crate) fn to_v1_stamped(self, home: LogHome) -> u64 {
        let part = self.microseconds.min(Self::MICROSECONDS - 1);
        Self { microseconds: Self::stamp(home) + part, ..self }.to_v1()
    }

    /// The number added to the microseconds if the update's parity log counts. Microseconds need
    /// only 20 of 24 bits.
    const fn stamp(home: LogHome) -> u32 {
        (match home {
            LogHome::Members => 0xb,
            LogHome::File => 0xc,
        }) << 20
    }

    pub(crate) fn to_v1(self) -> u64 {
        let seconds = self.seconds.min((1 << Self::SECONDS_BITS) - 1);
        seconds | (u64::from(self.microseconds & 0x00ff_ffff) << Self::SECONDS_BITS)
    }
}

/// Facts about the whole array, the same on every member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayFacts {
    /// The array's identity, in mdadm's print order.
    pub uuid: [u8; 16],
    /// The name, often `host:name`; empty for 0.90.
    pub name: String,
    /// When the array was made.
    pub creation_time: Timestamp,
    /// The level.
    pub level: Level,
    /// The layout number of this level. At level 0 it needs [`Features::RAID0_LAYOUT`].
    pub layout: u32,
    /// Sectors per chunk; 0 is legal for raid1 and linear only.
    pub chunk_sectors: u32,
    /// Sectors of each member that the array uses; 0 for linear and raid0, which use the whole
    /// member.
    pub member_size_sectors: u64,
    /// The number of slots; during a reshape the new number. Members to be removed have slots
    /// beyond it.
    pub raid_slots: u32,
    /// The last minor number of the array's device; 0.90 only.
    pub preferred_minor: Option<u32>,
    /// The smallest block that the array lets its users write, in bytes; `None` if not recorded.
    /// 1.x only, since Linux 6.19; older kernels refuse an array that records it.
    pub logical_block_bytes: Option<u32>,
}

/// Flags of one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceFlags {
    /// Reads go to this member only if no other member can serve them.
    pub write_mostly: bool,
    /// Requests to this member fail fast rather than retry.
    pub failfast: bool,
}

/// Facts about this member only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFacts {
    /// The member's permanent number, which is its index in [`StateFacts::roles`]; not its slot.
    pub number: u32,
    /// The member's identity; zero for 0.90, which stores none.
    pub uuid: [u8; 16],
    /// Sector of the superblock.
    pub super_offset_sectors: u64,
    /// First sector of the data area.
    pub data_offset_sectors: u64,
    /// Sectors of the data area.
    pub data_size_sectors: u64,
    /// Only data before this sector of the data area is recovered; `None` if all data is.
    pub recovery_offset_sectors: Option<u64>,
    /// The place of the bad-block log, if the device has room for one.
    pub bad_block_log: Option<BadBlockLogPlace>,
    /// Read errors corrected by writing the sector again.
    pub corrected_read_errors: u32,
    /// Flags of this member.
    pub flags: DeviceFlags,
}

/// The home of our own parity log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LogHome {
    /// One log on each member, before its data.
    Members,
    /// One log for all members, in the bitmap file ([`crate::bitmap_file`]).
    File,
}

impl LogHome {
    pub(crate) const ALL: [Self; 2] = [Self::Members, Self::File];
}

/// Facts that change while the array runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateFacts {
    /// The number of superblock updates; the member with the highest number is freshest.
    pub events: u64,
    /// The time of this superblock's update.
    pub update_time: Timestamp,
    /// If the writer's own parity log covers all doubtful stripes ([`crate::own_log`]), the log's
    /// home. md's next update clears the stamp that records this home.
    pub log_counts: Option<LogHome>,
    /// Redundancy is right before this sector; `u64::MAX` means everywhere (the array is clean).
    pub resync_offset: u64,
    /// The feature map.
    pub features: Features,
    /// This member's role.
    pub role: Role,
    /// Every device's role according to this superblock, by device number.
    pub roles: Vec<Role>,
    /// Whether bytes that md writes as zero are not zero: the format is newer, and md would refuse
    /// it too.
    pub reserved_bytes_in_use: bool,
}

impl StateFacts {
    /// Whether the array stopped (or went idle) with all redundancy right.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.resync_offset == u64::MAX
    }
}

/// The places of the bitmap, the PPL and the journal. At most one of bitmap and PPL is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IntentFacts {
    /// Sectors from the superblock to the bitmap; negative if the bitmap is before it.
    pub bitmap_offset_sectors: Option<i32>,
    /// The PPL area of this member.
    pub ppl: Option<PplPlace>,
    /// The journal, if the array has one; only the journal device records its place.
    pub journal: Option<JournalPlace>,
}

/// A reshape under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reshape {
    /// Next array sector to move.
    pub position_sectors: u64,
    /// New number of slots minus old.
    pub delta_disks: i32,
    /// Level after the reshape.
    pub new_level: Level,
    /// Layout after the reshape.
    pub new_layout: u32,
    /// Sectors per chunk after the reshape.
    pub new_chunk_sectors: u32,
    /// First sector of the data area after the reshape, if the data area moves.
    pub new_data_offset_sectors: Option<u64>,
    /// Whether the reshape runs from the end of the array to its start.
    pub backwards: bool,
}

/// The shape of an array according to one member's superblock. Sectors have 512 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SuperblockShape {
    /// Level; during a reshape the old one.
    pub level: Level,
    /// md's number of the layout; during a reshape the old one.
    pub layout: u32,
    /// Sectors per chunk; during a reshape the old number.
    pub chunk_sectors: u32,
    /// Sectors that the array uses of each member.
    pub member_size_sectors: u64,
    /// Slots; during a reshape the new number.
    pub raid_slots: u32,
    /// First sector of this member's data; during a reshape the old one.
    pub data_offset_sectors: u64,
    /// Sectors of this member's data area, from that first sector on.
    pub data_size_sectors: u64,
    /// The reshape under way.
    pub reshape: Option<Reshape>,
}

/// One of the two shapes of an array during a reshape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReshapeSide {
    /// The old shape.
    Before,
    /// The new shape.
    After,
}

impl ReshapeSide {
    /// Both sides of a reshape.
    pub const ALL: [Self; 2] = [Self::Before, Self::After];
}

/// A UUID in mdadm's form: four groups of eight hexadecimal digits.
#[must_use]
pub fn format_uuid(uuid: &[u8; 16]) -> String {
    let groups: Vec<String> = uuid
        .chunks(4)
        .map(|group| group.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    groups.join(":")
}
