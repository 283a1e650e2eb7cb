//! Arrays of memory members under the shipped runtime, made and opened as the command line does it.

use std::sync::Arc;

use braid_assembly::{ProbedMember, assemble};
use braid_engine::array::{ParityLogRecord, parity_log_for};
use braid_geometry::Level;
use braid_member::{Member, MemoryMember};
use braid_ondisk::{
    BitmapSuperblock, Bits, LogPlace, NewSuperblock, Role, Superblock, Version, sample,
};
use braid_runtime::{Notice, OpenMember, Options, Volume};

use crate::look::{Device, look};

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

/// Opens an array as `open` does, and passes each notice to `hear`.
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
    let Plan { level, slots, chunk_sectors, member_bytes, policy } = plan;
    let place = sample::place(Version::V1_2, level, chunk_sectors, member_bytes);
    let place = place.expect("the members are large enough");
    let journal = (policy == Policy::Journal).then_some(Role::Journal);
    let mut device_uuid = [7; 16];
    device_uuid[..2].copy_from_slice(&slot.to_be_bytes());
    Superblock::new_v1(&NewSuperblock {
        device_number: u32::from(slot),
        device_uuid,
        roles: (0..slots).map(Role::Active).chain(journal).collect(),
        events: 0,
        ..sample::member(level, chunk_sectors, slots, place)
    })
    .expect("a valid superblock")
}

fn probed(index: usize, device: &impl Member) -> ProbedMember {
    let read = |start: u64, length_bytes: usize| {
        let mut bytes = vec![0; length_bytes];
        device.read_at(&mut bytes, start).expect("it can be read");
        bytes
    };
    look(&Device { label: &format!("m{index}"), bytes: device.size_bytes(), read: &read })
}
