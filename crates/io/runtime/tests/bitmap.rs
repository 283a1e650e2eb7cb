//! A write-intent bitmap on real threads: created, resized, and removed, while clients write.

use crate::kit::Array;
use crate::meanwhile::while_it_is_written;
use braid_geometry::Level;
use braid_member::Member;
use braid_ondisk::BitmapSuperblock;
use braid_runtime::{
    BitmapError, BitmapHome, BitmapRefusal, MemberId, MemberRefusal, WantedBitmap,
};

const LEVELS: [(Level, u16, u32); 4] =
    [(Level::Raid1, 2, 0), (Level::Raid5, 4, 128), (Level::Raid6, 5, 64), (Level::Raid10, 4, 128)];

fn on_members(planned: BitmapSuperblock) -> WantedBitmap {
    WantedBitmap { chunk_bytes: planned.chunk_bytes, home: BitmapHome::Members }
}

#[test]
fn a_bitmap_comes_and_goes_on_a_volume_that_is_written() {
    for (level, slots, chunk) in LEVELS {
        let array = Array::with_spares(level, (slots, 1), chunk);
        while_it_is_written(array.open(|_| {}), |volume| {
            assert_eq!(volume.bitmap(), None);
            for chunk_bytes in [Some(4096), None, Some(16_384), Some(8192), None, None] {
                let planned = chunk_bytes.map(|bytes| volume.plan_bitmap(Some(bytes)));
                let planned = planned.transpose().expect("there is room");
                let had_one = volume.bitmap().is_some();
                let changed = volume.change_bitmap(planned.map(on_members));
                if planned.is_none() && !had_one {
                    assert_eq!(changed, Err(BitmapRefusal::HasNone.into()), "{level}");
                    continue;
                }
                changed.expect("nothing is in doubt");
                let bit_bytes = volume.bitmap().map(|look| look.bit_bytes);
                assert_eq!(bit_bytes, chunk_bytes.map(u64::from), "{level}");
                let (probed, _) = array.assemble();
                for probed in probed {
                    let newest = probed.probe.newest().expect("a member");
                    let names = newest.intent.bitmap_offset_sectors;
                    assert_eq!(names.is_some(), planned.is_some(), "{level}: spares too");
                    let Some(at) = newest.bitmap_offset_bytes() else { continue };
                    let device = &array.devices[newest.device.number as usize];
                    let mut magic = [0; 4];
                    device.read_at(&mut magic, at).expect("memory reads");
                    let is_spare = newest.device.number == u32::from(slots);
                    assert!(is_spare || magic == *b"bitm", "{level}: {magic:?}");
                }
            }
        });
    }
}

#[test]
fn a_bitmap_that_is_needed_or_has_no_room_is_refused() {
    // On RAID-10 a bit covers the array's sectors, not each member's.
    let array = Array::new(Level::Raid10, 10, 128);
    let volume = array.open(|_| {});
    let too_fine = volume.plan_bitmap(Some(512)).expect_err("so many bits have no room");
    let BitmapError::NoRoom { fitting_bytes, .. } = too_fine else { panic!("{too_fine}") };
    let planned = volume.plan_bitmap(None).expect("one of the usual size fits");
    assert_eq!(fitting_bytes, Some(planned.chunk_bytes));
    volume.change_bitmap(Some(on_members(planned))).expect("nothing is in doubt");
    volume.fail_member(MemberId(1)).expect("it can do without it");
    let refused = Err(BitmapRefusal::Degraded.into());
    assert_eq!(volume.change_bitmap(None), refused);
    assert_eq!(volume.may_change_bitmap(true), refused);
    assert!(volume.stop().clean);
    let array = Array::new(Level::Raid0, 2, 128);
    let none = BitmapRefusal::Array(MemberRefusal::NoRedundancy).into();
    assert_eq!(array.open(|_| {}).may_change_bitmap(true), Err(none));
}
