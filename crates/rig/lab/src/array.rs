//! Arrays of memory members under the shipped runtime, made and opened as the command line does it.

use std::sync::Arc;

use braid_assembly::{ProbedMember, assemble};
use braid_engine::array::{ParityLogRecord, parity_log_for};
use braid_geometry::{Level, default_layout};
use braid_member::{Member, MemoryMember};
use braid_ondisk::{
    ArrayFacts, Bitmap, BitmapSuperblock, Bits, DeviceFlags, LogPlace, NewSuperblock,
    PlacementRequest, PplLog, Role, Snippet, Superblock, Timestamp, UnvalidatedBitmap, Version,
    placement, probe, probe_ranges,
};
use braid_runtime::{Notice, OpenMember, Options, Volume};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) level: Level,
    pub(crate) slots: u16,
    pub(crate) chunk_sectors: u32,
    pub(crate) member_bytes: u64,
    pub(crate) policy: Policy,
}

/// The safeguard of an array's redundancy over a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Policy {
    #[default]
    Resync,
    /// A write-intent bitmap with a bit for this many bytes.
    Bitmap(u32),
    Ppl,
    /// braid's own log, and a bitmap with a bit for this many bytes.
    Log(u32),
    /// A write journal, on a further device.
    Journal,
}

pub(crate) fn open<M: Member + 'static>(
    plan: Plan,
    options: &Options,
    wrap: impl Fn(Arc<MemoryMember>) -> M,
) -> Volume {
    open_heard(plan, options, wrap, |_| ())
}

/// As `open`, and also returns a receiver of the notices.
pub(crate) fn open_heard<M: Member + 'static>(
    plan: Plan,
    options: &Options,
    wrap: impl Fn(Arc<MemoryMember>) -> M,
    hear: impl Fn(Notice) + Send + 'static,
) -> Volume {
    let devices = plan.slots + u16::from(plan.policy == Policy::Journal);
    let devices: Vec<Arc<MemoryMember>> =
        (0..devices).map(|_| Arc::new(MemoryMember::new(plan.member_bytes))).collect();
    let probed = format(plan, &devices);
    let members = devices.into_iter().map(|device| Box::new(wrap(device)) as Box<dyn Member>);
    run(&probed, members.collect(), options, hear)
}

/// Opens a clean array of these devices, which are as long as the plan says.
pub(crate) fn open_on(
    plan: Plan,
    options: &Options,
    devices: Vec<Box<dyn Member>>,
    hear: impl Fn(Notice) + Send + 'static,
) -> Volume {
    let probed = format(plan, &devices);
    run(&probed, devices, options, hear)
}

/// Formats devices as members, the last device as the journal if the plan has one, and probes them.
fn format(plan: Plan, devices: &[impl Member]) -> Vec<ProbedMember> {
    let made = (0..).zip(devices).map(|(slot, device)| {
        let mut superblock = superblock(plan, slot);
        for (offset, bytes) in kept(plan.policy, &mut superblock) {
            device.write_at(&bytes, offset, true).expect("it can be written");
        }
        device
            .write_at(&superblock.to_bytes(), superblock.offset_bytes(), true)
            .expect("it can be written");
        probed(usize::from(slot), device)
    });
    made.collect()
}

/// Enters the areas of bitmap and log into a superblock. Returns their offsets and first content.
fn kept(policy: Policy, superblock: &mut Superblock) -> Vec<(u64, Vec<u8>)> {
    let mut kept = Vec::new();
    let mut bitmap_sectors = 0;
    if let Policy::Bitmap(chunk_bytes) | Policy::Log(chunk_bytes) = policy {
        let place = superblock.bitmap_place().expect("there is room for a bitmap");
        superblock.set_bitmap(Some(place.offset_sectors));
        let sectors = superblock.array.member_size_sectors;
        let head = BitmapSuperblock::new(sectors, chunk_bytes, 0);
        let bits = Bits::none(sectors, head.sectors_each());
        bitmap_sectors = head.area_sectors();
        let offset = superblock.bitmap_offset_bytes().expect("it was just named");
        kept.push((offset, head.area(&superblock.uuid_as_stored(), &bits, None)));
    }
    let place = match policy {
        Policy::Resync | Policy::Bitmap(_) => return kept,
        Policy::Journal => {
            kept.extend(superblock.first_journal_block(1));
            return kept;
        }
        Policy::Ppl => {
            let place = superblock.ppl_place().expect("there is room for a log");
            superblock.set_ppl(place);
            LogPlace::Ppl(place)
        }
        Policy::Log(_) => {
            let place = superblock.own_log_place(bitmap_sectors);
            LogPlace::Own(place.expect("there is room for a log"))
        }
    };
    let record = ParityLogRecord {
        place,
        sector: 0,
        generation: Some(1),
        before: 0,
        entries: Vec::new(),
        is_whole: true,
        is_end: false,
    };
    kept.push(parity_log_for(superblock, &record));
    kept
}

fn run(
    probed: &[ProbedMember],
    devices: Vec<Box<dyn Member>>,
    options: &Options,
    hear: impl Fn(Notice) + Send + 'static,
) -> Volume {
    let assembly = assemble(probed, &braid_assembly::Options::default());
    let array = assembly.array.expect("an array that was just made can be run");
    let members = devices.into_iter().zip(probed).map(|(device, probed)| {
        let superblock = probed.probe.newest().expect("it was just written").clone();
        Some(OpenMember { device, superblock })
    });
    Volume::open(&array, members.collect(), options, hear).expect("a clean array opens")
}

fn superblock(plan: Plan, slot: u16) -> Superblock {
    let request = PlacementRequest {
        version: Version::V1_2,
        device_bytes: plan.member_bytes,
        level: plan.level,
        chunk_sectors: plan.chunk_sectors,
        member_size_sectors: None,
        data_offset_sectors: None,
    };
    let place = placement(&request).expect("the members are large enough");
    let journal = (plan.policy == Policy::Journal).then_some(Role::Journal);
    let mut device_uuid = [7; 16];
    device_uuid[..2].copy_from_slice(&slot.to_be_bytes());
    Superblock::new_v1(&NewSuperblock {
        array: ArrayFacts {
            uuid: [3; 16],
            name: "lab".into(),
            creation_time: Timestamp { seconds: 1_700_000_000, microseconds: 0 },
            level: plan.level,
            layout: default_layout(plan.level),
            chunk_sectors: plan.chunk_sectors,
            member_size_sectors: place.member_size_sectors,
            raid_slots: u32::from(plan.slots),
            preferred_minor: None,
            logical_block_bytes: None,
        },
        placement: place,
        device_number: u32::from(slot),
        device_uuid,
        device_flags: DeviceFlags::default(),
        roles: (0..plan.slots).map(Role::Active).chain(journal).collect(),
        events: 0,
        resync_offset: u64::MAX,
    })
    .expect("a valid superblock")
}

fn probed(index: usize, device: &impl Member) -> ProbedMember {
    let size_bytes = device.size_bytes();
    let snippets: Vec<Snippet> = probe_ranges(size_bytes)
        .into_iter()
        .map(|range| {
            let mut bytes = vec![0; usize::try_from(range.end - range.start).expect("short")];
            device.read_at(&mut bytes, range.start).expect("it can be read");
            Snippet { offset: range.start, bytes }
        })
        .collect();
    let found = probe(size_bytes, &snippets);
    let superblock = found.newest().expect("it was just written");
    let read = |start: u64, length_bytes: u64| {
        let mut bytes = vec![0; usize::try_from(length_bytes).expect("a log is small")];
        device.read_at(&mut bytes, start).map(|()| bytes)
    };
    let uuid = superblock.uuid_as_stored();
    let bitmap = superblock.bitmap_offset_bytes().map(|offset| {
        let head = read(offset, 256).expect("it can be read");
        let head = UnvalidatedBitmap::recognise(&head).expect("it was just written");
        let head = head.validate(&uuid)?;
        let area = read(offset, head.total_bytes()).expect("it can be read");
        Bitmap::read(head, &area)
    });
    let ppl = superblock.ppl_area().map(|(start, place)| {
        let bytes = read(start, place.used_bytes()).expect("it can be read");
        PplLog::read(&bytes, place, &uuid)
    });
    let own_log = superblock.read_own_log(read).expect("it can be read");
    let journal = superblock.read_journal(&mut |start, bytes| device.read_at(bytes, start).is_ok());
    ProbedMember {
        label: format!("m{index}"),
        size_bytes,
        identity: format!("m{index}"),
        bad_blocks: Ok(Vec::new()),
        bitmap,
        ppl,
        own_log,
        journal,
        probe: found,
    }
}
