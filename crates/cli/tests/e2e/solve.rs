//! `braid rescue --solve`: without superblocks, the members' content shows how they fit together.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::kit::{Array, RAID_1, RAID_5, RAID_6, ServerProcess, assert_same, needs, ok};
use crate::members::text;

/// Puts a file system full of this repository's files on the array; returns its bytes.
fn with_files(array: &Array) -> Vec<u8> {
    let served = array.serve();
    let image = array.path("files.img");
    let file = fs::File::create(&image).expect("a file");
    file.set_len(served.size_bytes).expect("room");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    ok("mkfs.ext4", ["-q", "-d", text(&sources), text(&image)]);
    let bytes = fs::read(&image).expect("the image");
    served.write_all(array, &bytes);
    served.stop();
    bytes
}

/// Overwrites all sectors before the data, as a stray `dd` or a firmware does.
fn lose_superblocks(array: &Array) {
    for path in &array.members {
        let file = fs::OpenOptions::new().write(true).open(path).expect("a member");
        file.write_all_at(&vec![0; 64 << 10], 0).expect("zeroes");
    }
}

fn said(array: &Array, words: &[&str], members: &[PathBuf]) -> Value {
    let ran = array.braid(&[&["rescue", "--solve"], words].concat(), members);
    assert!(matches!(ran.status.code(), Some(0 | 3)), "{ran:?}");
    serde_json::from_str(ran.stdout.trim()).expect("one object")
}

#[test]
fn an_image_that_is_not_raw_is_made_raw_before_anything_is_solved() {
    needs!("qemu-img", "gzip");
    let array = Array::create(RAID_1);
    let (sound, raw) = (&array.members[0], text(&array.members[1]));
    for (name, make) in [
        ("a.qcow2", format!("qemu-img convert -O qcow2 {raw} a.qcow2")),
        ("a.gz", format!("gzip -1c {raw} > a.gz")),
    ] {
        let image = array.path(name);
        let folder = image.parent().expect("a folder");
        let make = format!("cd {} && {make}", text(folder));
        ok("sh", ["-c", &make]);
        let refused = array.refused(&["rescue", "--serve"], std::slice::from_ref(&image));
        refused.is("B020", 10);
        let (kind, what) =
            if name == "a.gz" { ("gzip", "unpack it") } else { ("qcow2", "make it raw") };
        array.follow(&refused.json, &format!("{} is {kind}: {what}", text(&image)));
        array.follow(&refused.json, "Then look at what is within");
        let within = array.path("a.raw");
        assert!(
            fs::read(&within).expect("it was made") == fs::read(raw).expect("a member"),
            "{name}"
        );
        fs::remove_file(&within).expect("ours");
        // If the foreign image is named together with a sound member, the image is reported as
        // well.
        let told =
            array.run_braid(["rescue", text(sound), text(&image)].map(str::to_owned).to_vec());
        assert!(told.stdout.contains(&format!("is {kind}: {what}")), "{}", told.stdout);
    }
}

#[test]
fn lost_superblocks_are_solved_and_the_array_is_read() {
    needs!("nbdcopy", "mkfs.ext4");
    for (shape, lost) in [(RAID_5, None), (RAID_5, Some(1)), (RAID_6, Some(0))] {
        let array = Array::create_sized(shape, "24M");
        let content = with_files(&array);
        lose_superblocks(&array);
        // Names the members in reverse order, with all members or without one.
        let mut members = array.without(lost.as_slice());
        members.reverse();
        let before: Vec<_> = members.iter().map(|path| fs::read(path).expect("a member")).collect();
        let unserved = array.refused(&["rescue", "--serve"], &members);
        assert_eq!(unserved.exit, 10, "{}", unserved.json);
        array.follow(
            &unserved.json,
            "If they were members, find out how they were put together; nothing is written",
        );
        let found = said(&array, &[], &members);
        assert_eq!(found["solved"]["is_certain"], true, "{found:#}");
        assert_eq!(found["arrays"][0]["readable"], true, "{found:#}");
        let person = array.run_braid(
            [
                vec!["rescue".to_owned(), "--solve".to_owned()],
                members.iter().map(|it| text(it).to_owned()).collect(),
            ]
            .concat(),
        );
        assert!(person.stdout.contains("the first is certain"), "{person:?}");
        // The solution is the same each time, so the overlay is found again.
        let served = ServerProcess::rescued(&array, &["--solve"], &members);
        assert_same(&served.read_all(&array), &content, "over the overlay");
        served.stop();
        let again = said(&array, &[], &members);
        assert_eq!(again["arrays"][0]["uuid"], found["arrays"][0]["uuid"]);
        assert!(again["arrays"][0]["overlay"]["members"].as_u64() > Some(0), "{again:#}");
        let after: Vec<_> = members.iter().map(|path| fs::read(path).expect("a member")).collect();
        assert!(before == after, "a member was written");
    }
}

/// The superblocks are those of `mdadm --create` in another order, with all members, after its
/// resync. The parity of a row is the same in every order, so a RAID-5 loses only its superblocks.
#[test]
fn a_raid_5_that_was_created_again_in_another_order_and_resynced_is_read() {
    needs!("nbdcopy", "mkfs.ext4");
    let array = Array::create_sized(RAID_5, "24M");
    let content = with_files(&array);
    let members: Vec<PathBuf> = [2, 0, 3, 1].map(|slot| array.members[slot].clone()).to_vec();
    let words = ["create", "again", "--level", "5", "--chunk", "256K", "--destroy", "tank"];
    let ran = array.braid(&[&words[..], &["--consistency", "resync"]].concat(), &members);
    assert!(ran.status.success(), "{ran:?}");
    let served = array.serve_with(&[], &members);
    crate::jobs::done(&array, &["wait", "again", "--for", "idle", "--timeout", "60"]);
    let wrong = served.read_all(&array);
    assert!(wrong[..1 << 20] != content[..1 << 20], "it was created in the same order");
    served.stop();
    let found = said(&array, &[], &members);
    assert_eq!(found["solved"]["is_certain"], true, "{found:#}");
    let served = ServerProcess::rescued(&array, &["--solve", "--read-only"], &members);
    assert_same(&served.read_all(&array), &content, "what stood there before");
    served.stop();
}

#[test]
fn what_was_solved_is_committed_and_taken_back() {
    needs!("nbdcopy", "mkfs.ext4");
    let array = Array::create_sized(RAID_5, "24M");
    let mut content = with_files(&array);
    lose_superblocks(&array);
    let read = || -> Vec<Vec<u8>> {
        array.members.iter().map(|path| fs::read(path).expect("a member")).collect()
    };
    let before = read();
    let served = ServerProcess::rescued(&array, &["--solve"], &array.members);
    let piece = crate::kit::random_bytes(9, 64 << 10);
    let mut client =
        crate::kit::Client::connect(&served.socket, std::time::Duration::from_secs(20));
    client.write(8 << 20, &piece);
    client.flush();
    drop(client);
    served.stop();
    content[8 << 20..(8 << 20) + piece.len()].copy_from_slice(&piece);
    assert!(before == read(), "a member was written");
    let ran = array.braid(&["rescue", "--solve", "--commit"], &array.members);
    assert!(ran.status.success(), "{ran:?}");
    // After the commit the array is a normal one.
    let served = array.serve_with(&["--read-only"], &array.members);
    assert_same(&served.read_all(&array), &content, "after the commit");
    served.stop();
    crate::jobs::done(&array, &["undo"]);
    assert!(before == read(), "not taken back");
}

#[test]
fn what_is_not_certain_is_shown_and_not_gone_on_with() {
    needs!("nbdcopy", "mkfs.ext4");
    let array = Array::create_sized(RAID_5, "24M");
    with_files(&array);
    lose_superblocks(&array);
    // More members are missing than the array's level tolerates.
    let two = array.without(&[0, 2]);
    let found = said(&array, &[], &two);
    assert_eq!(found["solved"]["chosen"], Value::Null, "{found:#}");
    assert_eq!(found["arrays"], Value::Array(Vec::new()), "{found:#}");
    let refused = array.refused(&["rescue", "--solve", "--serve"], &two);
    refused.is("B105", 1);
    array.follow(&refused.json, "See what was found");
    let chosen = said(&array, &["--guess", "1"], &two);
    assert_eq!(chosen["solved"]["chosen"], 1, "{chosen:#}");
    let beyond = array.refused(&["rescue", "--solve", "--guess", "99"], &two);
    beyond.is("B001", 2);
    array.follow(&beyond.json, "See what was found");
}

#[test]
fn members_that_say_nothing_are_not_guessed_about() {
    needs!("nbdcopy");
    let array = Array::create(RAID_5);
    let served = array.serve();
    crate::members::filled(&array, &served, 5);
    served.stop();
    lose_superblocks(&array);
    let found = said(&array, &[], &array.members);
    assert_eq!((&found["solved"]["signs"], &found["solved"]["chosen"]), (&0.into(), &Value::Null));
    let refused = array.refused(&["rescue", "--solve", "--serve"], &array.members);
    refused.is("B105", 1);
    array.follow(&refused.json, "See what was found");
}

/// Three members of unequal size without a recorded layout beyond the smallest: Linux before 3.14,
/// and mdadm before 4.2, recorded no layout.
fn without_layout(layout: &str) -> (Array, Vec<u8>) {
    const FEATURES_AT: usize = 8;
    const LAYOUT_AT: usize = 76;
    // The first zone has an odd number of chunks: if it were even, both layouts would be equal.
    let sizes = [(3 << 20) + (64 << 10), 20 << 20, 24 << 20_usize].map(|bytes| vec![0; bytes]);
    let array = Array::of_images(&sizes);
    let words = ["create", "tank", "--level", "0", "--chunk", "64K", "--layout", layout];
    let ran = array.braid(&words, &array.members);
    assert!(ran.status.success(), "{ran:?}");
    let served = array.serve();
    let image = array.path("files.img");
    fs::File::create(&image).expect("a file").set_len(served.size_bytes).expect("room");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    ok("mke2fs", ["-q", "-t", "ext2", "-b", "1024", "-d", text(&sources), text(&image)]);
    let content = fs::read(&image).expect("the image");
    served.write_all(&array, &content);
    served.stop();
    for slot in 0..sizes.len() {
        array.patch_superblock(slot, LAYOUT_AT, &[0; 4], true);
        array.patch_superblock(slot, FEATURES_AT, &[0; 4], true);
    }
    (array, content)
}

#[test]
fn a_raid_0_that_does_not_say_its_layout_is_solved_and_served_by_the_one_that_is_chosen() {
    needs!("nbdcopy", "mke2fs");
    for (layout, number, other) in [("original", 1, "alternate"), ("alternate", 2, "original")] {
        let (array, content) = without_layout(layout);
        let unserved = array.refused(&["serve"], &array.members);
        assert_eq!(unserved.code, "B023", "{}", unserved.json);
        let ways = [
            "Find the layout from the contents of the array",
            "Read it with the first layout",
            "Read it with the second layout",
            "Read it with the right layout",
        ];
        for way in ways.iter().filter(|_| number == 1) {
            array.follow(&unserved.json, way);
        }
        let found = said(&array, &[], &array.members);
        let first = &found["solved"]["guesses"][0];
        assert_eq!(
            (&first["level"], &first["layout"]),
            (&"raid0".into(), &number.into()),
            "{found:#}"
        );
        let read = |served: ServerProcess| {
            let bytes = served.read_all(&array);
            served.stop();
            bytes
        };
        for (chosen, is_right) in [(layout, true), (other, false)] {
            let words = ["--layout", chosen, "--read-only"];
            let rescued = read(ServerProcess::rescued(&array, &words, &array.members));
            assert_eq!(rescued == content, is_right, "{layout} read as {chosen}");
        }
        // Serving for writing does not record the layout either: the operator's choice can be
        // changed.
        assert_same(
            &read(array.serve_with(&["--layout", layout], &array.members)),
            &content,
            layout,
        );
        let unserved = array.refused(&["serve"], &array.members);
        assert_eq!(unserved.code, "B023", "{}", unserved.json);
    }
}
