//! Block devices, through a loop device. Each test needs root and a kernel with loop devices;
//! otherwise it prints that it was skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use braid_member::{Access, Holder, MemberKind, OpenError, Reach, open};
use braid_test_needs::{Need, skip};

const SIZE_BYTES: u64 = 1 << 20;

struct Loop {
    _folder: tempfile::TempDir,
    file: PathBuf,
    device: PathBuf,
}

impl Loop {
    /// Makes a loop device over a new file; `None` if that is not possible.
    fn attach() -> Option<Self> {
        let (folder, file) = backing();
        let device = losetup(&file, &[])?;
        Some(Self { _folder: folder, file, device })
    }

    fn name(&self) -> String {
        name(&self.device)
    }

    /// Makes another loop device over the same file, or over a part of it.
    fn twin(&self, options: &[&str]) -> Option<Twin> {
        losetup(&self.file, options).map(Twin)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        detach(&self.device);
    }
}

struct Twin(PathBuf);

impl Drop for Twin {
    fn drop(&mut self) {
        detach(&self.0);
    }
}

/// A new file without a loop device over it, and its folder.
fn backing() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("tempdir");
    let file = folder.path().join("backing");
    fs::write(&file, vec![0xAA; usize::try_from(SIZE_BYTES).expect("small")]).expect("write");
    (folder, file)
}

/// The first partition of a device.
struct Partition(PathBuf);

impl Drop for Partition {
    fn drop(&mut self) {
        let status = Command::new("delpart").arg(&self.0).arg("1").status();
        assert!(status.is_ok_and(|status| status.success()), "delpart");
    }
}

fn losetup(file: &Path, options: &[&str]) -> Option<PathBuf> {
    let output =
        Command::new("losetup").args(["--find", "--show"]).args(options).arg(file).output();
    let Some(output) = output.ok().filter(|output| output.status.success()) else {
        skip(Need::LoopDevices, "no loop device can be attached here");
        return None;
    };
    Some(PathBuf::from(String::from_utf8(output.stdout).expect("UTF-8").trim()))
}

fn detach(device: &Path) {
    let status = Command::new("losetup").arg("--detach").arg(device).status();
    assert!(status.is_ok_and(|status| status.success()), "losetup --detach");
}

fn name(device: &Path) -> String {
    device.file_name().expect("a name").to_string_lossy().into_owned()
}

fn holder(path: &Path, access: Access) -> Option<Holder> {
    match open(path, access).map(|_| ()) {
        Ok(()) => None,
        Err(OpenError::Busy { holder, .. }) => Some(holder),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_block_device_is_read_written_and_zeroed() {
    let Some(attached) = Loop::attach() else { return };
    let member = open(&attached.device, Access::ReadWrite).expect("open");
    assert_eq!(member.size_bytes(), SIZE_BYTES);
    let identity = member.identity();
    assert_eq!(identity.kind, MemberKind::BlockDevice);
    assert_eq!(identity.device.map(|device| device.major), Some(7));
    assert!(identity.logical_block_bytes >= 512 && identity.rotational.is_some());
    member.write_at(b"hello", 5000, true).expect("write");
    for may_punch in [true, false] {
        // An unaligned head and tail around whole blocks, and a range inside one block.
        for (offset_bytes, length_bytes) in [(1001, 9000), (20_001, 5), (40_960, 8192)] {
            member.write_at(&[0xBB; 60_000], 0, false).expect("write");
            member.zero(offset_bytes, length_bytes, may_punch).expect("zero");
            let mut model = [0xBB; 60_000];
            let start = usize::try_from(offset_bytes).expect("small");
            model[start..start + usize::try_from(length_bytes).expect("small")].fill(0);
            let mut back = [0; 60_000];
            member.read_at(&mut back, 0).expect("read");
            assert!(back == model, "{offset_bytes}+{length_bytes} punch {may_punch}");
        }
    }
    member.flush().expect("flush");
    member.zero(SIZE_BYTES - 4096, 4097, true).expect_err("outside");
}

#[test]
fn a_block_device_has_one_writer_and_the_file_behind_it_none() {
    let Some(attached) = Loop::attach() else { return };
    let backing = Some(Holder::LoopDevice { name: attached.name(), user: None });
    for access in [Access::ReadWrite, Access::ReadOnly] {
        assert_eq!(holder(&attached.file, access), backing);
    }
    open(&attached.file, Access::Examine).expect("a look is always allowed");
    let writer = open(&attached.device, Access::ReadWrite).expect("open");
    assert_eq!(holder(&attached.device, Access::ReadWrite), Some(Holder::Unknown));
    assert!(matches!(holder(&attached.device, Access::ReadOnly), Some(Holder::Lock { .. })));
    drop(writer);
    let reader = open(&attached.device, Access::ReadOnly).expect("open");
    let second = open(&attached.device, Access::ReadOnly).expect("readers share");
    assert!(reader.identity().is_same_device(second.identity()));
    assert!(matches!(holder(&attached.device, Access::ReadWrite), Some(Holder::Lock { .. })));
}

#[test]
fn a_mounted_block_device_is_refused_with_its_mount() {
    let Some(attached) = Loop::attach() else { return };
    let made = Command::new("mke2fs").arg("-q").arg(&attached.device).status();
    let folder = tempfile::tempdir().expect("tempdir");
    let mount = Command::new("mount").arg(&attached.device).arg(folder.path()).status();
    let is_mounted = [made, mount].into_iter().all(|status| status.is_ok_and(|it| it.success()));
    if !is_mounted {
        skip(Need::LoopDevices, "no file system can be made and mounted here");
        return;
    }
    let found =
        [Access::ReadWrite, Access::ReadOnly].map(|access| holder(&attached.device, access));
    let status = Command::new("umount").arg(folder.path()).status().expect("umount");
    assert!(status.success());
    let held = attached.device.file_name().expect("a name").to_string_lossy().into_owned();
    let mounted_at = folder.path().canonicalize().expect("canonicalize");
    let expected = Some(Holder::Mount { held, mounted_at });
    assert_eq!(found, [expected.clone(), expected]);
    assert_eq!(holder(&attached.device, Access::ReadWrite), None, "it is not mounted any more");
}

fn below(upper: &Path, file: &Path, holder: Holder) -> Option<Holder> {
    let file = file.canonicalize().expect("canonicalize");
    let step = format!("{} is a loop device over {}", name(upper), file.display());
    Some(Holder::Below { step, holder: Box::new(holder) })
}

#[test]
fn a_file_that_is_a_member_is_none_through_a_loop_device() {
    let (_folder, file) = backing();
    let writer = open(&file, Access::ReadWrite).expect("a file of its own");
    // The loop device is attached after the file was opened, since the kernel does not check locks.
    let Some(device) = losetup(&file, &[]).map(Twin) else { return };
    let own = Holder::Lock { process_id: Some(std::process::id()), command: None };
    for access in [Access::ReadWrite, Access::ReadOnly] {
        assert_eq!(holder(&device.0, access), below(&device.0, &file, own.clone()));
    }
    drop(writer);
    open(&device.0, Access::ReadWrite).expect("the file is free again");
}

#[test]
fn two_loop_devices_over_one_file_are_two_names_of_one_member() {
    let Some(attached) = Loop::attach() else { return };
    let Some(twin) = attached.twin(&[]) else { return };
    let other = |device: &Path| Holder::LoopDevice { name: name(device), user: None };
    for access in [Access::ReadWrite, Access::ReadOnly] {
        let expected = below(&twin.0, &attached.file, other(&attached.device));
        assert_eq!(holder(&twin.0, access), expected);
        let expected = below(&attached.device, &attached.file, other(&twin.0));
        assert_eq!(holder(&attached.device, access), expected);
    }
    let reach = [&attached.device, &twin.0, &attached.file].map(|path| Reach::of(path));
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        assert!(reach[one].shared_with(&reach[other]).is_some(), "{one} {other}");
    }
    drop(twin);
    let writer = open(&attached.device, Access::ReadWrite).expect("alone");
    // A later opener is refused while the first has the device open, and the first is not
    // disturbed.
    let Some(twin) = attached.twin(&[]) else { return };
    assert!(matches!(holder(&twin.0, Access::ReadWrite), Some(Holder::Below { .. })));
    writer.write_at(b"x", 0, true).expect("it is ours");
}

#[test]
fn parts_of_one_file_are_members_beside_each_other() {
    let (_folder, file) = backing();
    let half = (SIZE_BYTES / 2).to_string();
    let Some(front) = losetup(&file, &["--sizelimit", &half]).map(Twin) else { return };
    let Some(back) = losetup(&file, &["--offset", &half]).map(Twin) else { return };
    let parts = [&front.0, &back.0].map(|part| open(part, Access::ReadWrite).expect("a part"));
    assert!(matches!(holder(&file, Access::ReadWrite), Some(Holder::LoopDevice { .. })));
    let Some(whole) = losetup(&file, &[]).map(Twin) else { return };
    assert!(matches!(holder(&whole.0, Access::ReadWrite), Some(Holder::Below { .. })));
    drop(parts);
    assert!(matches!(holder(&front.0, Access::ReadWrite), Some(Holder::Below { .. })));
}

#[test]
fn a_loop_device_over_a_file_that_was_renamed_or_deleted_is_known_by_its_inode() {
    let Some(attached) = Loop::attach() else { return };
    let Some(twin) = attached.twin(&[]) else { return };
    let elsewhere = attached.file.with_file_name("elsewhere");
    fs::hard_link(&attached.file, &elsewhere).expect("hard_link");
    fs::remove_file(&attached.file).expect("remove_file");
    fs::write(&attached.file, vec![0; 1 << 20]).expect("another file of that name");
    assert!(matches!(holder(&elsewhere, Access::ReadWrite), Some(Holder::LoopDevice { .. })));
    assert_eq!(holder(&attached.file, Access::ReadWrite), None, "a stranger of the same name");
    assert!(matches!(holder(&twin.0, Access::ReadWrite), Some(Holder::Below { .. })));
}

#[test]
fn a_disk_and_its_partition_are_not_members_at_once() {
    let Some(attached) = Loop::attach() else { return };
    let Some(disk) = losetup(&attached.device, &["--partscan"]).map(Twin) else { return };
    // Partition 1, of 1024 sectors from sector 64 on.
    let added = Command::new("addpart").arg(&disk.0).args(["1", "64", "1024"]).status();
    let partition = PathBuf::from(format!("{}p1", disk.0.display()));
    let _partition = added.is_ok_and(|it| it.success()).then(|| Partition(disk.0.clone()));
    if !partition.exists() {
        skip(Need::Other, "no node is made for a partition here");
        return;
    }
    let opened = open(&partition, Access::ReadWrite).expect("a partition");
    for access in [Access::ReadWrite, Access::ReadOnly] {
        assert!(holder(&disk.0, access).is_some(), "its disk");
        assert!(holder(&attached.device, access).is_some(), "the disk's disk");
    }
    drop(opened);
    let opened = open(&disk.0, Access::ReadWrite).expect("the disk");
    assert!(holder(&partition, Access::ReadWrite).is_some());
    assert!(matches!(holder(&partition, Access::ReadOnly), Some(Holder::Below { .. })));
    drop(opened);
}
