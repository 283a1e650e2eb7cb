//! Whole arrays copied in and out: by nbdcopy with several connections, and by qemu-img.

use crate::kit::{
    Array, RAID_0, RAID_1, RAID_5, RAID_6, RAID_10, Shape, assert_same, needs, ok, random_bytes,
    run,
};

/// Copies data into an array and out again: healthy, after each loss, written again while degraded,
/// and after a restart without the lost members.
fn copy_through_losses(shape: Shape) {
    let array = Array::create(shape);
    let mut served = array.serve();
    let served_bytes = served.size_bytes;
    let size = usize::try_from(served_bytes).expect("small");
    let first = random_bytes(1, size);
    served.write_all(&array, &first);
    assert_same(&served.read_all(&array), &first, "healthy");
    for slot in 0..shape.lost_max {
        served.lose(&array, slot);
        assert_same(&served.read_all(&array), &first, "after a loss");
    }
    let second = random_bytes(2, size);
    served.write_all(&array, &second);
    assert_same(&served.read_all(&array), &second, "written after the losses");
    let stopped = served.stop();
    assert_eq!(stopped["member_errors"], 0, "{stopped}");
    let bytes = |count: &str| stopped[count].as_u64().expect("a count");
    assert!(bytes("bytes_read") >= 2 * served_bytes && bytes("bytes_written") > 0, "{stopped}");
    assert_eq!(bytes("bytes_copied"), 0, "nbdcopy reads and writes whole blocks: {stopped}");

    let mut served = array.serve();
    let assembled = served.wait_for("assembled");
    assert_eq!(assembled["degraded_slots"], shape.lost_max, "{assembled}");
    assert_eq!(assembled["dirty"], false, "{assembled}");
    assert_same(&served.read_all(&array), &second, "after the restart");
    served.stop();
    for slot in shape.lost_max..shape.members {
        assert!(array.checksum_is_right(slot), "slot {slot}");
    }
}

#[test]
fn nbdcopy_raid_0() {
    needs!("nbdcopy");
    copy_through_losses(RAID_0);
}

#[test]
fn nbdcopy_raid_1() {
    needs!("nbdcopy");
    copy_through_losses(RAID_1);
}

#[test]
fn nbdcopy_raid_5() {
    needs!("nbdcopy");
    copy_through_losses(RAID_5);
}

#[test]
fn nbdcopy_raid_6() {
    needs!("nbdcopy");
    copy_through_losses(RAID_6);
}

#[test]
fn nbdcopy_raid_10() {
    needs!("nbdcopy");
    copy_through_losses(RAID_10);
}

/// Without io_uring, threads serve the same copies.
#[test]
fn nbdcopy_over_threads() {
    needs!("nbdcopy");
    let array = Array::create(RAID_5);
    let served = array.serve_with(&["--io", "threads"], &array.members);
    let bytes = random_bytes(5, usize::try_from(served.size_bytes).expect("small"));
    served.write_all(&array, &bytes);
    assert_same(&served.read_all(&array), &bytes, "over threads");
    assert_eq!(served.stop()["bytes_copied"], 0);
}

/// A member that was absent while the other members were written is stale and never read again.
#[test]
fn a_member_that_comes_back_is_stale() {
    needs!("nbdcopy");
    let array = Array::create(RAID_5);
    let served = array.serve_with(&[], &array.without(&[2]));
    let bytes = random_bytes(3, usize::try_from(served.size_bytes).expect("small"));
    served.write_all(&array, &bytes);
    served.stop();
    let stale = std::fs::read(&array.members[2]).expect("a member");
    let mut served = array.serve();
    let assembled = served.wait_for("assembled");
    let verdict = &assembled["members"][2];
    assert!(verdict["verdict"] == "stale" || verdict["verdict"] == "faulty", "{assembled}");
    assert_eq!(assembled["degraded_slots"], 1, "{assembled}");
    assert_same(&served.read_all(&array), &bytes, "beside a stale member");
    served.write_all(&array, &bytes);
    served.stop();
    assert!(std::fs::read(&array.members[2]).expect("it") == stale, "a stale member was written");
}

/// qemu-img copies an image in and compares, then out and compares; healthy and after a loss.
fn convert(shape: Shape) {
    let array = Array::create(shape);
    let mut served = array.serve();
    let size = usize::try_from(served.size_bytes).expect("small");
    let mut bytes = random_bytes(4, size);
    // The image has zeroes in the middle, so that qemu-img uses its zeroing request as well.
    bytes[size / 4..size / 2].fill(0);
    let (source, back) = (array.path("source.img"), array.path("back.img"));
    std::fs::write(&source, &bytes).expect("an image");
    let (source, target) = (source.display().to_string(), back.display().to_string());
    let uri = served.uri.clone();
    let compare = |image: &str| {
        let said = ok("qemu-img", ["compare", "-f", "raw", "-F", "raw", image, &uri]);
        assert!(said.contains("Images are identical"), "{said}");
    };
    ok("qemu-img", ["convert", "-n", "-W", "-f", "raw", "-O", "raw", &source, &uri]);
    compare(&source);
    for slot in 0..shape.lost_max {
        served.lose(&array, slot);
    }
    compare(&source);
    ok("qemu-img", ["convert", "-f", "raw", "-O", "raw", &uri, &target]);
    assert_same(&std::fs::read(&back).expect("an image"), &bytes, "converted back");
    // Copies the image in once more, degraded, over other data.
    ok("qemu-io", ["-f", "raw", "-c", "write -P 0xee 0 8M", "-c", "flush", uri.as_str()]);
    let differs = run("qemu-img", ["compare", "-f", "raw", "-F", "raw", &source, &uri]);
    assert_eq!(differs.status.code(), Some(1), "{differs:?}");
    ok("qemu-img", ["convert", "-n", "-f", "raw", "-O", "raw", &source, &uri]);
    compare(&source);
    served.stop();
}

#[test]
fn qemu_img_raid_5() {
    needs!("qemu-img", "qemu-io");
    convert(RAID_5);
}

#[test]
fn qemu_img_raid_6() {
    needs!("qemu-img", "qemu-io");
    convert(RAID_6);
}

#[test]
fn qemu_img_raid_10() {
    needs!("qemu-img", "qemu-io");
    convert(RAID_10);
}
