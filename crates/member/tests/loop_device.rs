//! Block devices, by way of a loop device. Needs root and a kernel that has them; else each test says
//! that it was skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use braid_member::{Access, Holder, MemberKind, OpenError, open};

const SIZE_BYTES: u64 = 1 << 20;

struct Loop {
    _folder: tempfile::TempDir,
    file: PathBuf,
    device: PathBuf,
}

impl Loop {
    /// A loop device over a new file, or none where that cannot be done.
    fn attach() -> Option<Self> {
        let folder = tempfile::tempdir().expect("tempdir");
        let file = folder.path().join("backing");
        fs::write(&file, vec![0xAA; usize::try_from(SIZE_BYTES).expect("small")]).expect("write");
        let output = Command::new("losetup").args(["--find", "--show"]).arg(&file).output();
        let Some(output) = output.ok().filter(|output| output.status.success()) else {
            eprintln!("skipped: no loop device can be attached here");
            return None;
        };
        let device = PathBuf::from(String::from_utf8(output.stdout).expect("UTF-8").trim());
        Some(Self { _folder: folder, file, device })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let status = Command::new("losetup").arg("--detach").arg(&self.device).status();
        assert!(status.is_ok_and(|status| status.success()), "losetup --detach");
    }
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
        // A ragged head and tail around whole blocks, and a range inside one block.
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
    let name = attached.device.file_name().expect("a name").to_string_lossy().into_owned();
    let backing = Some(Holder::LoopDevice { name });
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
        eprintln!("skipped: no file system can be made and mounted here");
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
