//! A file system made through NBD, and e2fsck's verdict after the loss of members.

use std::path::Path;

use crate::kit::{
    Array, Mount, Need, RAID_5, RAID_6, RAID_10, Shape, assert_same, needs, ok, random_bytes, skip,
};

/// Writes a file into the file system on `disk`, or copies a file out, with debugfs.
fn put(disk: &str, from: &Path, name: &str) {
    let request = format!("write {} {name}", from.display());
    ok("debugfs", ["-w", "-R", &request, disk]);
}

fn get(disk: &str, name: &str, to: &Path) -> Vec<u8> {
    let request = format!("dump {name} {}", to.display());
    ok("debugfs", ["-R", &request, disk]);
    std::fs::read(to).expect("what was dumped")
}

/// Uses a file system through NBD: mke2fs, files, a loss, e2fsck, the files again, more files.
fn live_in_it(shape: Shape) {
    if !Mount::is_possible() {
        return skip(Need::Fuse, "no /dev/fuse");
    }
    let array = Array::create(shape);
    let mut served = array.serve();
    let first = random_bytes(10, 3_000_001);
    let second = random_bytes(11, 2_000_003);
    let (first_path, second_path) = (array.path("first"), array.path("second"));
    std::fs::write(&first_path, &first).expect("a file");
    std::fs::write(&second_path, &second).expect("a file");

    let mount = Mount::new(&array, &served);
    let disk = mount.word();
    ok("mke2fs", ["-q", "-F", "-t", "ext4", &disk]);
    put(&disk, &first_path, "first");
    ok("e2fsck", ["-fn", &disk]);
    for slot in 0..shape.lost_max {
        served.lose(&array, slot);
    }
    mount.end();

    // A new QEMU storage daemon is mounted: nothing is cached.
    let mount = Mount::new(&array, &served);
    ok("e2fsck", ["-fn", &disk]);
    let out = array.path("dumped");
    assert_same(&get(&disk, "first", &out), &first, "after a loss");
    put(&disk, &second_path, "second");
    ok("e2fsck", ["-fn", &disk]);
    mount.end();
    served.stop();

    let served = array.serve();
    let mount = Mount::new(&array, &served);
    ok("e2fsck", ["-fn", &disk]);
    assert_same(&get(&disk, "first", &out), &first, "after a restart");
    assert_same(&get(&disk, "second", &out), &second, "after a restart");
    mount.end();
    served.stop();
}

#[test]
fn ext4_raid_5() {
    needs!("qemu-storage-daemon", "mke2fs", "e2fsck", "debugfs");
    live_in_it(RAID_5);
}

#[test]
fn ext4_raid_6() {
    needs!("qemu-storage-daemon", "mke2fs", "e2fsck", "debugfs");
    live_in_it(RAID_6);
}

#[test]
fn ext4_raid_10() {
    needs!("qemu-storage-daemon", "mke2fs", "e2fsck", "debugfs");
    live_in_it(RAID_10);
}

/// A file system without FUSE: an image is copied in, and out again after the loss.
#[test]
fn an_image_with_ext4_is_copied_in() {
    needs!("nbdcopy", "mke2fs", "e2fsck", "debugfs");
    let array = Array::create(RAID_5);
    let mut served = array.serve();
    let image = array.path("fs.img");
    let file = std::fs::File::create(&image).expect("an image");
    file.set_len(served.size_bytes).expect("its size");
    let disk = image.display().to_string();
    ok("mke2fs", ["-q", "-F", "-t", "ext4", &disk]);
    let bytes = random_bytes(12, 5_000_000);
    let path = array.path("file");
    std::fs::write(&path, &bytes).expect("a file");
    put(&disk, &path, "file");
    ok("nbdcopy", ["--connections=4", &disk, &served.uri]);
    served.lose(&array, 3);
    let copied = served.read_all(&array);
    assert_same(&copied, &std::fs::read(&image).expect("it"), "copied out");
    std::fs::write(&image, copied).expect("an image");
    ok("e2fsck", ["-fn", &disk]);
    assert_same(&get(&disk, "file", &array.path("dumped")), &bytes, "the file in it");
    served.stop();
}
