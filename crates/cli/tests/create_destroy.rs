//! Nothing recognisable is overwritten unless it was named; what is named is saved, and wiped so
//! that nothing is ambiguous afterwards.

mod create_kit;

use std::fs;

use create_kit::{Folder, write_ext};
use serde_json::Value;

#[test]
fn whatever_is_recognised_stops_creation_until_it_is_named() {
    for (offset, bytes, name) in [
        (1080, [0x53, 0xef].as_slice(), "ext4"),
        (0, b"XFSB", "xfs"),
        (65_536 + 64, b"_BHRfS_M", "btrfs"),
        (0, b"LUKS\xba\xbe\x00\x01", "luks"),
        (512, b"EFI PART", "gpt"),
        (4086, b"SWAPSPACE2", "swap"),
        (1 << 17, &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0], "zfs"),
    ] {
        let folder = Folder::new();
        folder.files(&["a", "b"]);
        folder.write("b", offset, bytes);
        folder
            .braid_changing_nothing("create t --level 1 a b")
            .refused("B012", 12)
            .says("braid examine a b");
        folder
            .braid_changing_nothing("create t --level 1 --destroy tank a b")
            .refused("B013", 12)
            .says("there is no \"tank\"");
        folder.braid(&format!("create t --level 1 --destroy {name} a b")).done().says("saved");
        let seen = folder.braid("examine --json a b").json();
        assert_eq!(seen["members"][1]["foreign"], Value::Array(Vec::new()), "{name} is wiped");
        assert_eq!(seen["members"][1]["superblocks"][0]["array"]["name"], "t");
    }
}

#[test]
fn a_label_is_the_name_where_there_is_one() {
    let folder = Folder::new();
    folder.files(&["a", "b"]);
    write_ext(&folder, "a", "backup");
    folder
        .braid_changing_nothing("create t --level 1 a b")
        .refused("B012", 12)
        .says("a  ext \"backup\"")
        .says("braid create t --level 1 --destroy backup a b");
    folder.braid_changing_nothing("create t --level 1 --destroy ext4 a b").refused("B013", 12);
    folder.braid("create t --level 1 --destroy backup a b").done();
}

#[test]
fn every_thing_must_be_named_and_nothing_else() {
    let folder = Folder::new();
    folder.braid("create old --level 1 --member-size 8M a b").done();
    folder.files(&["c"]);
    write_ext(&folder, "c", "");
    let both = "create new --level 5 a b c";
    folder
        .braid_changing_nothing(both)
        .refused("B012", 12)
        .says("a  md array \"old\" raid1, member 0 of 2")
        .says("c  ext")
        .says("braid serve a b")
        .says("--destroy old --destroy ext");
    folder.braid_changing_nothing(&format!("{both} --destroy old")).refused("B012", 12);
    folder.braid_changing_nothing(&format!("{both} --destroy ext")).refused("B012", 12);
    let more = format!("{both} --destroy old --destroy ext --destroy other");
    folder.braid_changing_nothing(&more).refused("B013", 12);
    folder.braid_changing_nothing(&format!("{both} -n --destroy old --destroy ext")).done();
    folder.braid(&format!("{both} --destroy old --destroy ext")).done();
}

#[test]
fn a_damaged_superblock_counts_too() {
    let folder = Folder::new();
    folder.braid("create old --level 1 --member-size 8M a b").done();
    folder.write("a", 4096 + 100, &[0xff]);
    folder.write("b", 4096 + 100, &[0xff]);
    folder
        .braid_changing_nothing("create new --level 1 a b")
        .refused("B012", 12)
        .says("md, damaged");
    folder.braid_changing_nothing("create new --level 1 --destroy old a b").refused("B013", 12);
    folder.braid("create new --level 1 --destroy md a b").done();
    assert_eq!(folder.braid("examine a b").exit, 3, "redundancy is pending, nothing else");
}

#[test]
fn no_old_superblock_is_left_wherever_it_was() {
    for (old, new) in [("1.0", "1.1"), ("1.1", "1.2"), ("1.2", "1.0"), ("1.0", "1.2")] {
        let folder = Folder::new();
        let make = |name: &str, version: &str, more: &str| {
            folder
                .braid(&format!(
                    "create {name} -l 1 --metadata {version} --member-size 8M {more} a b"
                ))
                .done()
        };
        make("old", old, "");
        make("new", new, "--destroy old --assume-clean");
        let seen = folder.braid("examine --json a b");
        assert_eq!(seen.exit, 0, "{old} to {new}: {seen:?}");
        let superblocks = seen.json()["members"][0]["superblocks"].clone();
        assert_eq!(superblocks.as_array().map(Vec::len), Some(1), "{old} to {new}");
        assert_eq!(superblocks[0]["version"], new);
    }
}

#[test]
fn what_was_saved_brings_the_old_array_back() {
    let folder = Folder::new();
    folder.braid("create old --level 5 --member-size 8M a b c").done();
    let before = folder.braid("examine --json a b c").json();
    let made = folder.braid("create new --level 1 --destroy old --json a b c").done().json();
    let saved = std::path::PathBuf::from(made["saved_in"].as_str().expect("a folder"));
    assert!(saved.starts_with(folder.path("state/undo")), "{saved:?}");
    let manifest = fs::read_to_string(saved.join("manifest.json")).expect("a manifest");
    let manifest: Value = serde_json::from_str(&manifest).expect("JSON");
    assert_eq!(manifest["replaced_by"], "new");
    for member in manifest["members"].as_array().expect("a list") {
        let path = member["path"].as_str().expect("a text");
        for range in member["ranges"].as_array().expect("a list") {
            let bytes =
                fs::read(saved.join(range["file"].as_str().expect("a text"))).expect("a file");
            assert_eq!(range["length_bytes"], bytes.len());
            folder.write(path, range["offset_bytes"].as_u64().expect("a number"), &bytes);
        }
    }
    assert_eq!(folder.braid("examine --json a b c").json(), before);
}

#[test]
fn an_array_made_again_over_its_contents_keeps_them() {
    // A raid1 with its superblock at the end: the file system on it begins where the member does.
    let folder = Folder::new();
    folder.braid("create old --level 1 --metadata 1.0 --member-size 8M a b").done();
    for name in ["a", "b"] {
        write_ext(&folder, name, "photos");
    }
    let again = "create new --level 1 --metadata 1.0 --destroy old --destroy photos a b";
    folder.braid(&format!("{again} --assume-clean")).done();
    assert_eq!(folder.read("a", 1080, 2), [0x53, 0xef]);
    folder.braid(&again.replace("old", "new")).done();
    assert_eq!(folder.read("a", 1080, 2), [0, 0]);
}
