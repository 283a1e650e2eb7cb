//! The disks of a history: each has a superblock's bytes, which can tear, and its last write.

use braid_assembly::ProbedMember;
use braid_geometry::Level;
use braid_ondisk::{
    ArrayFacts, NewSuperblock, Probe, Role, Superblock, Timestamp, UnvalidatedV1, Version, sample,
};

use crate::content::{SECTOR, bytes};
use crate::random::Random;

/// The UUID of a history's own array.
pub(super) const UUID: [u8; 16] = [0xB7; 16];
/// The UUID of another array, whose disks are presented as well.
pub(super) const STRANGER: [u8; 16] = [0x57; 16];
const DEVICE_BYTES: u64 = 8 << 20;

#[derive(Clone, Copy, Debug)]
pub(super) struct ArrayKind {
    level: Level,
    pub(super) slots: u16,
    pub(super) spares: u16,
    /// The first disk's device number. From 128 on the superblock's table of roles needs a second
    /// sector.
    first_number: u16,
    version: Version,
}

impl ArrayKind {
    pub(super) fn any(random: &mut Random) -> Self {
        let (level, slots) = *random.pick(&[
            (Level::Raid1, 2),
            (Level::Raid1, 3),
            (Level::Raid5, 3),
            (Level::Raid5, 4),
            (Level::Raid6, 4),
            (Level::Raid10, 4),
        ]);
        Self {
            level,
            slots,
            spares: *random.pick(&[0, 0, 1, 2]),
            first_number: *random.pick(&[0, 0, 0, 126, 300]),
            version: *random.pick(&[Version::V1_0, Version::V1_1, Version::V1_2]),
        }
    }

    pub(super) fn disks_count(self) -> usize {
        usize::from(self.slots + self.spares)
    }

    /// Device numbers of the disks in slots.
    pub(super) fn numbers(self) -> impl Iterator<Item = u16> {
        self.first_number..self.first_number + self.slots
    }

    /// The disks of a new array of this kind, with this UUID.
    pub(super) fn disks(self, uuid: [u8; 16]) -> Vec<Device> {
        let chunk_sectors = if self.level == Level::Raid1 { 0 } else { 8 };
        let place = sample::place(self.version, self.level, chunk_sectors, DEVICE_BYTES);
        let place = place.expect("there is room for data and metadata");
        let member = sample::member(self.level, chunk_sectors, self.slots, place);
        let mut roles = vec![Role::Spare; usize::from(self.first_number)];
        roles.extend((0..self.slots).map(Role::Active));
        roles.resize(roles.len() + usize::from(self.spares), Role::Spare);
        let member = NewSuperblock {
            array: ArrayFacts {
                uuid,
                name: "sim:history".to_owned(),
                creation_time: Timestamp {
                    seconds: crate::create::MADE_AT_SECONDS,
                    microseconds: 0,
                },
                ..member.array
            },
            roles: roles.into(),
            events: 10,
            ..member
        };
        let disk = |index: u16| {
            let number = self.first_number + index;
            let superblock = Superblock::new_v1(&NewSuperblock {
                device_number: u32::from(number),
                // A device's UUID must not be zeroes.
                device_uuid: [number as u8 | 0x80; 16],
                ..member.clone()
            });
            let superblock = superblock.expect("a kind makes a valid superblock");
            Device {
                uuid,
                number,
                version: self.version,
                offset_bytes: superblock.offset_bytes(),
                stored: superblock.to_bytes(),
                write: 0,
                is_clone: false,
                updates: 0,
                is_ahead: false,
                taken_at: None,
                is_spare: index >= self.slots,
            }
        };
        (0..self.slots + self.spares).map(disk).collect()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Device {
    pub(super) uuid: [u8; 16],
    pub(super) number: u16,
    version: Version,
    offset_bytes: u64,
    /// The bytes of the disk's superblock.
    stored: Vec<u8>,
    /// Index of the last write that the disk holds.
    pub(super) write: usize,
    pub(super) is_clone: bool,
    /// Updates of the superblock that reached this disk and all others.
    pub(super) updates: u64,
    /// An interrupted update reached this disk, so that it has one event more than the other disks.
    pub(super) is_ahead: bool,
    /// How many interruptions and losses the history had when the disk was cloned.
    pub(super) taken_at: Option<u64>,
    pub(super) is_spare: bool,
}

impl Device {
    /// The disk's superblock, if its checksum fits.
    pub(super) fn superblock(&self) -> Option<Superblock> {
        self.probed(0).probe.newest().cloned()
    }

    pub(super) fn is_twin_of(&self, other: &Self) -> bool {
        self.uuid == other.uuid && self.number == other.number
    }

    pub(super) fn probed(&self, index: usize) -> ProbedMember {
        let found = UnvalidatedV1::recognise(&self.stored, self.version);
        let found = found.map(|found| found.validate(DEVICE_BYTES, self.offset_bytes));
        ProbedMember {
            label: format!("disk{index}"),
            size_bytes: DEVICE_BYTES,
            identity: format!("disk{index}"),
            probe: Probe { superblocks: found.into_iter().collect(), foreign: Vec::new() },
            bad_blocks: Ok(Vec::new()),
            bitmap: None,
            ppl: None,
            own_log: None,
            journal: None,
        }
    }

    pub(super) fn store(&mut self, superblock: &Superblock) {
        self.is_ahead = true;
        self.stored = superblock.to_bytes();
    }

    pub(super) fn tear(&mut self, superblock: &Superblock, random: &mut Random) {
        self.is_ahead = true;
        let wanted = superblock.to_bytes();
        self.stored.resize(wanted.len().max(self.stored.len()), 0xff);
        for sector in 0..(wanted.len() / SECTOR) as u64 {
            if random.chance(50) {
                self.stored[bytes(sector, 1)].copy_from_slice(&wanted[bytes(sector, 1)]);
            }
        }
    }
}
