//! Members are replaced while clients are served: by a device or a spare, and with failures in
//! between.
//!
//! The old member serves until its replacement is complete, so redundancy stays whole. Clients'
//! data survive any failure.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::control::{check, said, status};
use crate::failure_causes::Failing;
use crate::jobs::{done, refused, typed};
use crate::kit::{
    Array, Client, Fail, FileOp, RAID_0, RAID_1, RAID_5, RAID_6, RAID_10, ServerProcess, Shape,
    assert_same, needs, ok, random_bytes, wait_until,
};
use crate::members::{MEMBER_BYTES, assert_whole, blank, filled, text, wait_for_rebuild};

/// A full array, and a spare device.
fn full(shape: Shape, seed: u64) -> (Array, ServerProcess, Vec<u8>, PathBuf) {
    let array = Array::create(shape);
    let served = array.serve();
    let wanted = filled(&array, &served, seed);
    let new = blank(&array, "new", MEMBER_BYTES);
    (array, served, wanted, new)
}

/// Begins a replacement of the member in slot 1, with jobs stopped by a ceiling of zero.
fn stands_still(array: &Array, new: &Path) {
    done(array, &["set", "tank", "job-ceiling=0B"]);
    done(array, &["replace", "tank", "1", "--with", text(new)]);
    let is_filling = || {
        let one = status(array, "tank");
        let slots = one["slots"].as_array().expect("rows").clone();
        slots.iter().any(|row| row["state"] == "filling" && row["replaces"] == 1)
    };
    wait_until("a replacement", Duration::from_secs(30), is_filling);
}

fn goes_on(array: &Array) {
    done(array, &["set", "tank", "job-ceiling=none"]);
    wait_for_rebuild(array);
}

#[test]
fn a_member_is_replaced_while_clients_write() {
    needs!("nbdcopy");
    for shape in [RAID_1, RAID_5, RAID_6, RAID_10] {
        let (array, served, _, new) = full(shape, 1);
        let old = array.members[1].clone();
        let dry = done(&array, &["replace", "tank", "1", "--with", text(&new), "-n"]);
        check("MembersAnswer", &dry);
        assert!(std::fs::read(&new).expect("it is there").iter().all(|byte| *byte == 0), "dry");
        stands_still(&array, &new);
        let one = status(&array, "tank");
        check("Array", &one);
        assert_eq!((&one["state"], &one["slots"][1]["state"]), (&"ok".into(), &"ok".into()));
        let words = said(&array, &["status", "tank"]).stdout;
        assert!(words.contains("(slot 1) is being replaced") && words.contains("for 1"), "{words}");
        // Rewrites the whole array, before and beyond the copied part.
        let wanted = random_bytes(2, usize::try_from(served.size_bytes).expect("small"));
        served.write_all(&array, &wanted);
        goes_on(&array);
        let one = status(&array, "tank");
        assert_eq!(one["slots"][1]["member"], text(&new));
        assert_eq!(
            (&one["replaced"][0]["state"], &one["replaced"][0]["member"]),
            (&"replaced".into(), &text(&old).into())
        );
        done(&array, &["remove", "tank", text(&old)]);
        std::fs::remove_file(&old).expect("no process has it");
        let members = [array.without(&[1]), vec![new]].concat();
        assert_whole(&array, served, &members, &wanted);
    }
}

#[test]
fn a_spare_that_waits_replaces_a_member() {
    needs!("nbdcopy");
    let (array, served, wanted, new) = full(RAID_6, 3);
    let command = refused(&array, &["replace", "tank", "1"], "B046", 12);
    assert!(command.ends_with("--with DEVICE"), "{command}");
    done(&array, &["spare", "tank", text(&new)]);
    let words = said(&array, &["replace", "tank", "1"]).stdout;
    assert!(words.contains("takes slot 1 of tank after the copy"), "{words}");
    wait_for_rebuild(&array);
    assert_eq!(status(&array, "tank")["slots"][1]["member"], text(&new));
    let members = [array.without(&[1]), vec![new]].concat();
    assert_whole(&array, served, &members, &wanted);
}

#[test]
fn a_replacement_goes_on_after_its_server_was_killed() {
    needs!("nbdcopy");
    for shape in [RAID_1, RAID_5, RAID_10] {
        let (array, served, wanted, new) = full(shape, 4);
        stands_still(&array, &new);
        served.kill();
        let members = [array.members.clone(), vec![new.clone()]].concat();
        let served = array.serve_with(&[], &members);
        wait_for_rebuild(&array);
        assert_eq!(status(&array, "tank")["slots"][1]["member"], text(&new));
        let members = [array.without(&[1]), vec![new]].concat();
        assert_whole(&array, served, &members, &wanted);
    }
}

/// The old disk dies during the copy: recovery of the new disk continues from the copied part.
#[test]
fn a_member_that_fails_while_it_is_replaced_leaves_its_place_to_the_other() {
    needs!("nbdcopy");
    for shape in [RAID_1, RAID_5, RAID_6, RAID_10] {
        let (array, served, wanted, new) = full(shape, 5);
        stands_still(&array, &new);
        done(&array, &["fail", "tank", "1"]);
        let row = || status(&array, "tank")["slots"][1].clone();
        assert_eq!((&row()["state"], &row()["member"]), (&"recovering".into(), &text(&new).into()));
        assert_same(&served.read_all(&array), &wanted, "while it is degraded");
        goes_on(&array);
        let members = [array.without(&[1]), vec![new]].concat();
        assert_whole(&array, served, &members, &wanted);
    }
}

#[test]
fn a_replacement_that_fails_changes_nothing() {
    needs!("nbdcopy");
    let (array, served, _, new) = full(RAID_5, 6);
    stands_still(&array, &new);
    let wanted = filled(&array, &served, 7);
    let command = refused(&array, &["remove", "tank", text(&new)], "B040", 12);
    typed(&array, &command);
    let one = status(&array, "tank");
    assert_eq!(
        (&one["state"], &one["slots"][1]["member"]),
        (&"ok".into(), &text(&array.members[1]).into())
    );
    done(&array, &["set", "tank", "job-ceiling=none"]);
    // The device of the ended replacement can be used again.
    done(&array, &["replace", "tank", "2", "--with", text(&new)]);
    wait_for_rebuild(&array);
    let members = [array.without(&[2]), vec![new]].concat();
    assert_whole(&array, served, &members, &wanted);
}

#[test]
fn what_cannot_be_replaced_is_refused_and_says_what_to_do() {
    needs!("nbdcopy");
    let (array, served, wanted, new) = full(RAID_5, 8);
    let other = blank(&array, "other", MEMBER_BYTES);
    let small = blank(&array, "small", MEMBER_BYTES / 2);
    refused(&array, &["replace", "tank", "9", "--with", text(&new)], "B049", 1);
    refused(&array, &["replace", "tank", text(&other), "--with", text(&new)], "B049", 1);
    refused(&array, &["replace", "tank", "1", "--with", text(&small)], "B052", 12);
    let one = text(&array.members[0]);
    refused(&array, &["replace", "tank", "1", "--with", one], "B057", 12);
    refused(&array, &["replace", "tank", "1", "--with", "/nowhere/at/all"], "B050", 1);
    ok("mkfs.ext4", ["-q", text(&other)]);
    let command = refused(&array, &["replace", "tank", "1", "--with", text(&other)], "B012", 12);
    assert!(command.starts_with("braid examine"), "{command}");
    stands_still(&array, &new);
    let wait = refused(&array, &["replace", "tank", "1", "--with", text(&other)], "B089", 12);
    assert_eq!(wait, "braid wait tank --for rebuild");
    refused(&array, &["replace", "tank", text(&new)], "B049", 1);
    goes_on(&array);
    let old = text(&array.members[1]);
    refused(&array, &["replace", "tank", old, "--with", text(&other)], "B049", 1);
    let members = [array.without(&[1]), vec![new]].concat();
    assert_whole(&array, served, &members, &wanted);

    let array = Array::create(RAID_0);
    let served = array.serve();
    let new = blank(&array, "new", MEMBER_BYTES);
    refused(&array, &["replace", "tank", "0", "--with", text(&new)], "B042", 12);
    served.stop();
}

/// Regression: hundreds of a member's read errors were corrected, and no warning came before the
/// member died.
#[test]
fn a_member_that_errs_again_and_again_is_warned_of_and_copied_to_a_spare() {
    needs!("nbdcopy");
    let Some(failing) = Failing::create(RAID_5) else { return };
    let array = &failing.array;
    // Fills the array without the failing files: writes through these would stay in the page cache.
    let served = array.serve();
    let wanted = filled(array, &served, 11);
    served.stop();
    let served = failing.serve(&["--read-errors-max", "2"]);
    let bytes = failing.data_offset()..failing.data_offset() + (256 << 10);
    failing.files.fail(1, Fail { file_op: FileOp::Read, bytes, errno: 5 });
    let mut client = Client::connect(&served.socket, Duration::from_secs(30));
    for block in 0..64_usize {
        let at = block * 4096;
        let read = client.read(at as u64, 4096).expect("the others have it");
        assert_eq!(read, wanted[at..at + 4096]);
    }
    let one = status(array, "tank");
    check("Array", &one);
    let errors = &one["slots"][1]["read_errors"];
    assert!(errors["corrected"].as_u64() > Some(2), "{one}");
    assert_eq!((&one["state"], &errors["over_limit"]), (&"ok".into(), &true.into()), "{one}");
    assert_eq!(one["slots"][0]["read_errors"]["corrected"], 0);
    let words = said(array, &["status", "tank"]).stdout;
    let says = ["(slot 1) errs repeatedly", "braid spare tank DEVICE", "read errors corrected"];
    assert!(says.iter().all(|part| words.contains(part)), "{words}");
    let told = || said(array, &["history", "tank", "--kind", "ReadErrors"]).stdout;
    wait_until("an event", Duration::from_secs(30), || told().contains("errs repeatedly"));
    // A new spare is used without further commands.
    let new = blank(array, "new", MEMBER_BYTES);
    done(array, &["spare", "tank", text(&new)]);
    let is_replaced = || status(array, "tank")["slots"][1]["member"] == text(&new);
    wait_until("a replacement", Duration::from_secs(60), is_replaced);
    assert!(told().contains("is to replace it"), "{}", told());
    assert_same(&served.read_all(array), &wanted, "what was written");
    assert_eq!(status(array, "tank")["slots"][1]["read_errors"]["corrected"], 0);
    served.stop();
    let examined = said(array, &["examine", text(&array.members[1])]).stdout;
    assert!(examined.contains("read errors corrected"), "{examined}");
}
