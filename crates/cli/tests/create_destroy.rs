//! `braid create` overwrites recognised contents only if the operator names them. It saves the
//! contents, and wipes them so that no later probe is ambiguous.

use std::fs;

use crate::create_kit::{Folder, write_ext};
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
    let saved = std::path::PathBuf::from(made["saved_in"].as_str().expect("a file"));
    assert!(saved.starts_with(folder.path("state/undo")), "{saved:?}");
    assert_eq!(made["undo"], 1);
    let undone = folder.braid("undo 1 --json").done().json();
    let real = fs::canonicalize(folder.path("a")).expect("it is there");
    assert_eq!(
        (undone["members"][0]["member"].as_str(), &undone["undo"]),
        (real.to_str(), &2.into())
    );
    assert_eq!(folder.braid("examine --json a b c").json(), before);
}

#[test]
fn an_array_made_again_over_its_contents_keeps_them() {
    // A raid1 with its superblock at the end: a file system on it begins where the member does.
    let folder = Folder::new();
    folder.braid("create old --level 1 --metadata 1.0 --member-size 8M a b").done();
    for name in ["a", "b"] {
        write_ext(&folder, name, "photos");
    }
    let again = "create new --level 1 --metadata 1.0 --destroy old --destroy photos a b";
    let made = folder.braid(&format!("{again} --assume-clean")).done();
    let made = made.says("keep      photos: ext on a, b").says("destroy   old: md array");
    assert!(!made.out.contains("destroy   photos"), "{made:?}");
    assert_eq!(folder.read("a", 1080, 2), [0x53, 0xef]);
    folder.braid(&again.replace("old", "new")).done();
    assert_eq!(folder.read("a", 1080, 2), [0, 0]);
}

#[test]
fn a_partition_table_before_the_data_area_goes_even_with_assume_clean() {
    let folder = Folder::new();
    folder.files(&["a", "b"]);
    folder.write("a", 512, b"EFI PART");
    let made = folder.braid("create t -l 1 --assume-clean --destroy gpt a b").done();
    made.says("destroy   gpt: gpt on a");
    assert_eq!(folder.read("a", 512, 8), [0; 8]);
    let seen = folder.braid("examine --json a b").json();
    assert_eq!(seen["members"][0]["foreign"], Value::Array(Vec::new()));
}

#[test]
fn bytes_that_nobody_recognises_are_not_overwritten_unless_named() {
    let at_the_end = 8 * 1024 * 1024 - 1;
    for offset in [0, 100, 262_143, at_the_end] {
        let folder = Folder::new();
        folder.files(&["a", "b", "c"]);
        folder.write("b", offset, b"!");
        folder
            .braid_changing_nothing("create t -l 5 a b c")
            .refused("B012", 12)
            .says("b  data of a kind that braid does not know")
            .says("braid create t --level 5 --destroy data a b c");
        let made = folder.braid("create t -l 5 --destroy data --json a b c").done().json();
        assert_eq!(made["undo"], 1);
        folder.braid("undo").done();
        assert_eq!(folder.read("b", offset, 1), b"!");
    }
}

#[test]
fn an_image_named_by_a_typo_survives() {
    let folder = Folder::new();
    folder.files(&["a", "vm.qcow2"]);
    folder.write("vm.qcow2", 0, b"QFI\xfb\0\0\0\x03");
    folder
        .braid_changing_nothing("create t -l 1 a vm.qcow2")
        .refused("B012", 12)
        .says("vm.qcow2  qcow2");
}

#[test]
fn one_name_for_two_different_things_is_refused() {
    let folder = Folder::new();
    folder.braid("create tank -l 1 --member-size 8M a b").done();
    folder.braid("create tank -l 1 --member-size 8M c d").done();
    let uuid = |name: &str| {
        let seen = folder.braid(&format!("examine --json {name}")).json();
        seen["members"][0]["superblocks"][0]["array"]["uuid"].as_str().expect("a text").to_string()
    };
    let (first, second) = (uuid("a"), uuid("c"));
    let all = format!("--destroy {first} --destroy {second}");
    folder
        .braid_changing_nothing("create new -l 5 a b c d --destroy tank")
        .refused("B013", 12)
        .says("several different things")
        .says(&all);
    // If the command names nothing to destroy, unambiguous names are suggested.
    folder.braid_changing_nothing("create new -l 5 a b c d").refused("B012", 12).says(&all);
    folder
        .braid_changing_nothing(&format!("create new -l 5 a b c d --destroy {first}"))
        .refused("B012", 12);
    folder
        .braid(&format!("create new -l 5 a b c d {all}"))
        .done()
        .says(&format!("destroy   {first}: md array on a, b"))
        .says(&format!("destroy   {second}: md array on c, d"));
}

#[test]
fn one_kind_for_file_systems_with_different_uuids_is_refused() {
    let folder = Folder::new();
    folder.files(&["a", "b"]);
    for (name, byte) in [("a", 1), ("b", 2)] {
        write_ext(&folder, name, "");
        folder.write(name, 1024 + 104, &[byte; 16]);
    }
    folder
        .braid_changing_nothing("create t -l 1 --destroy ext4 a b")
        .refused("B013", 12)
        .says("--destroy 01010101-0101-0101-0101-010101010101 --destroy 02020202-0202-0202");
    // `--destroy data` means unknown data, and an array called "data" is another thing.
    folder.braid("create data -l 1 --member-size 8M c d").done();
    folder.files(&["e"]);
    folder.write("e", 0, b"!");
    folder
        .braid_changing_nothing("create t -l 5 --destroy data c d e")
        .refused("B013", 12)
        .says("--destroy data@e");
}
