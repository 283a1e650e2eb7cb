//! File systems made by other tools: braid reports the sizes and labels that these tools report.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use braid_signatures::Signature;
use braid_test_needs::needs;

use crate::kit::contents;

const SIZE_BYTES: u64 = 64 << 20;

fn image(folder: &tempfile::TempDir) -> PathBuf {
    let path = folder.path().join("image");
    fs::write(&path, b"").expect("a file");
    fs::File::options()
        .write(true)
        .open(&path)
        .and_then(|file| file.set_len(SIZE_BYTES))
        .expect("a file");
    path
}

fn run(program: &str, words: &[&str], path: &Path) {
    let path_variable = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let ran = Command::new(program).args(words).arg(path).env("PATH", path_variable).output();
    let ran = ran.expect("it is installed");
    assert!(ran.status.success(), "{program}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// The single content recognised in an image.
fn only(path: &Path) -> Signature {
    let found = contents(&fs::read(path).expect("readable"));
    assert_eq!(found.table, None);
    assert_eq!(found.volumes.len(), 1);
    assert_eq!(found.volumes[0].signatures.len(), 1, "{:?}", found.volumes[0].signatures);
    found.volumes[0].signatures[0].clone()
}

#[test]
fn ext_says_its_version_size_and_label() {
    needs!("mke2fs", "debugfs");
    let folder = tempfile::tempdir().expect("a folder");
    let path = image(&folder);
    for version in ["ext2", "ext3", "ext4"] {
        run("mke2fs", &["-F", "-q", "-t", version, "-L", "home", "-b", "1024"], &path);
        let signature = only(&path);
        assert_eq!((signature.name, signature.label.as_deref()), (version, Some("home")));
        assert_eq!(signature.facts.size_bytes, Some(SIZE_BYTES));
        assert!(!signature.facts.was_in_use && !signature.facts.has_errors, "{signature:?}");
        assert!(signature.uuid.is_some_and(|uuid| uuid.len() == 36));
    }
    run("debugfs", &["-w", "-R", "feature needs_recovery"], &path);
    assert!(only(&path).facts.was_in_use);
    run("debugfs", &["-w", "-R", "ssv state 3"], &path);
    assert!(only(&path).facts.has_errors);
}

#[test]
fn xfs_says_its_size() {
    needs!("mkfs.xfs");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("image");
    // A little more than the smallest size that mkfs.xfs accepts today.
    fs::File::create(&path).and_then(|file| file.set_len(320 << 20)).expect("a file");
    run("mkfs.xfs", &["-q", "-L", "tank"], &path);
    let signature = only(&path);
    assert_eq!((signature.name, signature.label.as_deref()), ("xfs", Some("tank")));
    assert_eq!(signature.facts.size_bytes, Some(320 << 20));
}

#[test]
fn btrfs_says_its_size() {
    needs!("mkfs.btrfs");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("image");
    fs::File::create(&path).and_then(|file| file.set_len(128 << 20)).expect("a file");
    run("mkfs.btrfs", &["-q", "-L", "tank"], &path);
    let signature = only(&path);
    assert_eq!((signature.name, signature.label.as_deref()), ("btrfs", Some("tank")));
    assert_eq!((signature.facts.size_bytes, signature.facts.devices), (Some(128 << 20), None));
}

/// Headers as LVM's and cryptsetup's documents describe them.
#[test]
fn lvm_and_luks_are_recognised_by_their_headers() {
    let mut bytes = vec![0; 4 << 20];
    bytes[512..520].copy_from_slice(b"LABELONE");
    bytes[532..536].copy_from_slice(&32_u32.to_le_bytes());
    bytes[536..544].copy_from_slice(b"LVM2 001");
    bytes[544..576].copy_from_slice(b"abcdefABCDEFabcdefABCDEFabcdefAB");
    bytes[576..584].copy_from_slice(&(4_u64 << 20).to_le_bytes());
    let found = &contents(&bytes).volumes[0].signatures[0];
    assert_eq!((found.name, found.facts.size_bytes), ("lvm2", Some(4 << 20)));
    assert!(found.facts.is_volume_manager);
    // A header may be outside the bytes that were read; that must not fail.
    bytes[532..536].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(contents(&bytes).volumes[0].signatures[0].facts.size_bytes, None);
    for (version, name) in [(1, "luks1"), (2, "luks2")] {
        let mut bytes = vec![0; 4 << 20];
        bytes[..6].copy_from_slice(b"LUKS\xba\xbe");
        bytes[7] = version;
        bytes[168..204].copy_from_slice(b"6dd0ae44-0000-4000-8000-0123456789ab");
        let found = &contents(&bytes).volumes[0].signatures[0];
        assert_eq!(found.name, name);
        assert!(found.facts.is_encrypted);
        assert_eq!(found.facts.size_bytes, None);
        assert_eq!(found.uuid.as_deref(), Some("6dd0ae44-0000-4000-8000-0123456789ab"));
    }
}

/// JSON as cryptsetup writes it; most volumes end with their device, and say `dynamic`.
#[test]
fn luks2_says_its_end_if_it_has_one() {
    let end = |segments: &str| {
        let json = format!(
            r#"{{"keyslots":{{"0":{{"area":{{"offset":"32768","size":"258048"}}}}}},"tokens":{{}},"segments":{{{segments}}},"digests":{{"0":{{"size":"1"}}}}}}"#
        );
        let mut bytes = vec![0; 4 << 20];
        bytes[..8].copy_from_slice(b"LUKS\xba\xbe\0\x02");
        bytes[8..16].copy_from_slice(&16384_u64.to_be_bytes());
        bytes[4096..4096 + json.len()].copy_from_slice(json.as_bytes());
        contents(&bytes).volumes[0].signatures[0].facts.size_bytes
    };
    let crypt = |offset: &str, size: &str| {
        format!(
            r#"{{"type":"crypt","offset":"{offset}","size":"{size}","integrity":{{"type":"none"}}}}"#
        )
    };
    let one = |offset: &str, size: &str| format!(r#""0":{}"#, crypt(offset, size));
    assert_eq!(end(&one("16777216", "1048576")), Some(17_825_792));
    assert_eq!(end(&one("16777216", "dynamic")), None);
    assert_eq!(end(&one("16777216", &u64::MAX.to_string())), None, "no end is that far");
    let two = format!(r#"{},"1":{}"#, one("4096", "512"), crypt("16777216", "dynamic"));
    assert_eq!(end(&two), None, "one of two reaches to the end");
    assert_eq!(end(r#""0":{"type":"crypt","offset":"16777216"}"#), None);
    assert_eq!(end(""), None, "it has no segments");
}
