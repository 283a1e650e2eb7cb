//! RAID-0 arrays that get more members or fewer, and levels that become RAID-0 or were RAID-0: over
//! kills, back again, and refused changes.
//!
//! Each test compares every byte whose write was acknowledged, before and after the next start.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::control::status;
use crate::grow::{
    SLOW, assert_content, fast, moved, of_md, reshape, slots, slow, wait_for_progress,
    wait_for_the_end, write_some,
};
use crate::jobs::{done, refused};
use crate::kit::{
    Array, RAID_0, RAID_5, RAID_10, ServerProcess, Shape, assert_same, needs, wait_until,
};
use crate::members::{MEMBER_BYTES, blank, filled, text, wait_for_rebuild};
use crate::remedies::refusal;
use crate::reshape::stamped;

const PARITY_LAST: [&str; 2] = ["--layout", "parity-last"];

fn level(array: &Array) -> Value {
    status(array, "tank")["level"].take()
}

/// Whether the file holds a superblock of version 1.2.
fn is_member(path: &Path) -> bool {
    std::fs::read(path).expect("a file")[4096..].starts_with(&0xa92b_4efc_u32.to_le_bytes())
}

/// Stops the array, serves only its members, and compares all content.
fn assert_striped(array: &Array, served: ServerProcess, content: &[u8]) {
    assert_eq!(level(array), "raid0");
    assert_content(array, &served, content, "as a RAID-0");
    let all = served.read_all(array);
    served.stop();
    let again = array.serve();
    let one = status(array, "tank");
    assert_eq!((&one["level"], &one["state"]), (&"raid0".into(), &"ok".into()), "{one}");
    assert_eq!(slots(array), array.members.len(), "{one}");
    assert_same(&again.read_all(array), &all, "after a restart");
    again.stop();
}

#[test]
fn a_raid0_that_grows_survives_kills_at_any_point() {
    needs!("nbdcopy");
    let mut array = Array::create(RAID_0);
    let mut random = fastrand::Rng::with_seed(61);
    let mut served = array.serve_with(&SLOW, &array.members);
    let mut content = filled(&array, &served, 61);
    let new = ["n0", "n1"].map(|name| blank(&array, name, MEMBER_BYTES));
    let grow = ["grow", "tank", text(&new[0]), text(&new[1])];
    let dry = done(&array, &[&grow[..], &["-n"]].concat());
    assert_eq!((&dry["kind"], &dry["dry_run"]), (&"reshape".into(), &true.into()), "{dry}");
    assert!(!is_member(&new[0]) && level(&array) == "raid0", "a dry run writes nothing");
    let answer = done(&array, &grow);
    let after = &answer["after"];
    assert_eq!((&after["level"], &after["members"]), (&"raid0".into(), &5.into()), "{answer}");
    array.members.extend(new);
    let one = status(&array, "tank");
    let seen = (&one["level"], &one["state"], &one["can_lose"], &one["reshape"]["after"]["level"]);
    assert_eq!(seen, (&"raid0".into(), &"ok".into(), &0.into(), &"raid0".into()), "{one}");
    assert_eq!(slots(&array), 5, "no slot for parity: {one}");
    for kill in 0..6 {
        std::thread::sleep(Duration::from_millis(random.u64(0..400)));
        write_some(&served, &mut content, &mut random);
        served.kill();
        served = array.serve_with(&SLOW, &array.members);
        assert_content(&array, &served, &content, &format!("after kill {kill}"));
    }
    assert_ne!(reshape(&array), Value::Null, "all kills were on the way");
    fast(&array);
    wait_for_the_end(&array);
    assert!(status(&array, "tank")["size_bytes"].as_u64() > Some(content.len() as u64));
    assert_striped(&array, served, &content);
}

/// The server is killed while the reshape begins and while it ends: the next start continues,
/// whichever superblocks are written.
#[test]
fn a_raid0_that_is_killed_as_it_begins_or_ends_goes_on() {
    needs!("nbdcopy");
    for delay_ms in [0, 2, 5, 10, 20, 40, 80] {
        let mut array = Array::create_sized(RAID_0, "4M");
        let served = array.serve();
        let content = filled(&array, &served, delay_ms);
        let new = blank(&array, "n0", 4 << 20);
        std::thread::scope(|scope| {
            scope.spawn(|| array.braid(&["grow", "tank", text(&new)], &[]));
            std::thread::sleep(Duration::from_millis(delay_ms));
            served.kill();
        });
        let joined = is_member(&new);
        if joined {
            array.members.push(new);
        }
        let served = array.serve();
        assert_content(&array, &served, &content, &format!("killed after {delay_ms} ms"));
        wait_for_the_end(&array);
        let last = array.members.len();
        if joined && slots(&array) < last {
            // The added device was only a spare, which a RAID-0 releases.
            let spare = array.members.pop().expect("it was added");
            assert!(!is_member(&spare), "its superblock is gone");
        }
        assert_striped(&array, served, &content);
    }
}

#[test]
fn a_raid0_that_grows_goes_back_from_the_middle_also_after_a_kill() {
    needs!("nbdcopy");
    let array = Array::create(RAID_0);
    let mut random = fastrand::Rng::with_seed(62);
    let served = array.serve();
    let mut content = filled(&array, &served, 62);
    let new = blank(&array, "n0", MEMBER_BYTES);
    slow(&array);
    done(&array, &["grow", "tank", text(&new)]);
    wait_for_progress(&array, 0);
    write_some(&served, &mut content, &mut random);
    served.kill();
    let four = [array.members.as_slice(), std::slice::from_ref(&new)].concat();
    let served = array.serve_with(&SLOW, &four);
    done(&array, &["revert", "tank"]);
    write_some(&served, &mut content, &mut random);
    served.kill();
    let served = array.serve_with(&SLOW, &four);
    assert_content(&array, &served, &content, "killed on the way back");
    assert!(moved(&array).is_some(), "the kill was on the way");
    fast(&array);
    wait_for_the_end(&array);
    wait_until("the new member to go", Duration::from_secs(10), || !is_member(&new));
    assert_striped(&array, served, &content);
}

#[test]
fn a_raid0_gets_fewer_members_and_another_chunk() {
    needs!("nbdcopy");
    let mut array = Array::create(RAID_0);
    let served = array.serve_with(&SLOW, &array.members);
    let content = filled(&array, &served, 63);
    let fewer = ["grow", "tank", "--members", "2"];
    let error = refusal(&array, &fewer, &[]);
    array.follow(&error, "Let it end there for clients first, which can be taken back");
    let mut content = content[..usize::try_from(served_size(&array)).expect("small")].to_vec();
    done(&array, &fewer);
    wait_for_progress(&array, 0);
    write_some(&served, &mut content, &mut fastrand::Rng::with_seed(63));
    served.kill();
    let served = array.serve_with(&SLOW, &array.members);
    assert_content(&array, &served, &content, "after a kill");
    fast(&array);
    wait_for_the_end(&array);
    let gone = array.members.pop().expect("three");
    wait_until("the last member to go", Duration::from_secs(10), || !is_member(&gone));
    slow(&array);
    done(&array, &["grow", "tank", "--chunk", "128K"]);
    wait_for_progress(&array, 0);
    served.kill();
    let served = array.serve();
    wait_for_the_end(&array);
    assert_eq!(status(&array, "tank")["chunk_bytes"], 128 << 10);
    // The released member is a device with data of an unknown kind.
    let error = refusal(&array, &["grow", "tank", text(&gone)], &[]);
    array.follow(&error, "To destroy it, name it");
    wait_for_the_end(&array);
    array.members.push(gone);
    assert_striped(&array, served, &content);
}

fn served_size(array: &Array) -> u64 {
    status(array, "tank")["size_bytes"].as_u64().expect("a size")
}

#[test]
fn redundancy_comes_to_a_raid0_and_goes_again() {
    needs!("nbdcopy");
    for (to, more) in [("4", 1), ("5", 1), ("10", 3)] {
        let array = Array::create(RAID_0);
        let served = array.serve();
        let content = filled(&array, &served, 64);
        let new: Vec<PathBuf> =
            (0..more).map(|one| blank(&array, &format!("n{one}"), MEMBER_BYTES)).collect();
        let devices: Vec<&str> = new.iter().map(|path| text(path)).collect();
        done(&array, &[&["grow", "tank", "--level", to], &devices[..]].concat());
        wait_for_rebuild(&array);
        assert_eq!(level(&array), format!("raid{to}"));
        assert_content(&array, &served, &content, "with redundancy");
        assert_eq!(done(&array, &["check", "tank"])["check"]["differing_sectors"], 0, "{to}");
        served.stop();
        let four = [&array.members[..], &new].concat();
        let served = array.serve_with(&[], &four);
        // The array's redundancy tolerates the loss of a member.
        done(&array, &["fail", "tank", "1"]);
        assert_content(&array, &served, &content, "without a member");
        done(&array, &["remove", "tank", "failed"]);
        if to == "10" {
            done(&array, &["grow", "tank", "--level", "0"]);
            let let_go = new.iter().filter(|path| !is_member(path)).count();
            assert_eq!(let_go, 2, "the second copies, and not the failed member");
        } else {
            refused(&array, &["grow", "tank", "--level", "0"], "B123", 12);
            done(&array, &["add", "tank", text(&four[1])]);
            wait_for_rebuild(&array);
            done(&array, &["grow", "tank", "--level", "0"]);
            assert!(!is_member(&new[0]), "the member with parity is let go");
        }
        assert_striped(&array, served, &content);
    }
}

/// The array is as mdadm leaves it if mdadm is killed: a RAID-4 that lacks its parity.
#[test]
fn a_raid4_that_lacks_its_parity_becomes_a_raid0() {
    needs!("nbdcopy");
    let array = Array::create(RAID_0);
    let served = array.serve();
    let content = filled(&array, &served, 65);
    let dry = done(&array, &["grow", "tank", "--level", "4", "-n"]);
    assert!(dry.to_string().contains("it lacks 1 member until"), "{dry}");
    done(&array, &["grow", "tank", "--level", "4"]);
    assert_eq!(level(&array), "raid4");
    served.kill();
    let served = array.serve();
    assert_content(&array, &served, &content, "as a RAID-4 without parity");
    let dry = done(&array, &["grow", "tank", "--level", "0", "-n"]);
    assert!(dry.to_string().contains("its redundancy is lost"), "{dry}");
    done(&array, &["grow", "tank", "--level", "0"]);
    assert_striped(&array, served, &content);
}

#[test]
fn a_raid0_that_md_was_growing_ends_here() {
    needs!("nbdcopy");
    let array = of_md("raid0-reshaping");
    let control = array.path("control");
    let options = ["--control", text(&control)];
    let served = array.serve_with(&options, &array.members);
    done(&array, &["wait", text(&control), "--for", "idle", "--timeout", "20"]);
    assert_eq!(status(&array, text(&control))["reshape"], Value::Null);
    assert_content(&array, &served, &stamped(6528), "in the new shape");
    served.stop();
    let again = array.serve_with(&options, &array.members);
    assert_content(&array, &again, &stamped(6528), "after a restart");
    assert_eq!(status(&array, text(&control))["level"], "raid0");
    again.stop();
}

#[test]
fn shapes_that_a_raid0_cannot_have_are_refused_and_change_nothing() {
    for (name, cause) in [
        ("raid0-alternate-4-m1.2-unequal", "striped by itself"),
        ("raid0-3-m0.90", "superblocks of version 0.90"),
    ] {
        let array = of_md_state(name);
        let control = array.path("control");
        let served = array.serve_with(&["--control", text(&control)], &array.members);
        let new = blank(&array, "n0", MEMBER_BYTES);
        for words in
            [&["grow", text(&control), text(&new)][..], &["grow", text(&control), "--level", "4"]]
        {
            let error = refusal(&array, words, &[]);
            assert_eq!(error["code"], "B123", "{error}");
            assert!(error.to_string().contains(cause), "{name} {words:?}: {error}");
        }
        assert!(!is_member(&new), "{name}");
        served.stop();
    }
    let array = Array::create(RAID_0);
    let served = array.serve();
    let new = ["n0", "small"].map(|name| blank(&array, name, MEMBER_BYTES / 2));
    for words in [
        &["grow", "tank", text(&new[0])][..],
        &["grow", "tank", "--level", "6"],
        &["grow", "tank", "--level", "1"],
        &["grow", "tank", "--size", "max"],
        &["grow", "tank", "--members", "4"],
        &["add", "tank", text(&new[0])],
    ] {
        let error = refusal(&array, words, &[]);
        assert!(error["remedies"][0].is_object(), "{words:?} has no way out: {error}");
    }
    assert!(new.iter().all(|path| !is_member(path)));
    slow(&array);
    let new = blank(&array, "n1", MEMBER_BYTES);
    done(&array, &["grow", "tank", text(&new)]);
    wait_for_progress(&array, 0);
    // The growing RAID-0 lacks its parity on purpose, and takes no member for the parity's slot.
    let spare = blank(&array, "n2", MEMBER_BYTES);
    refusal(&array, &["add", "tank", text(&spare)], &[]);
    assert!(!is_member(&spare));
    served.stop();
}

/// Regression: the refusal offered a spare first, which a RAID-0 does not take.
#[test]
fn a_confined_raid0_offers_nothing_that_it_refuses() {
    let array = Array::create(RAID_0);
    let new = blank(&array, "n0", MEMBER_BYTES);
    let served = array.serve_with(&["--confine", "full"], &array.members);
    for words in [&["grow", "tank", text(&new)][..], &["grow", "tank", "--members", "4"]] {
        let error = refusal(&array, words, &[]);
        let told = error.to_string();
        assert!(told.contains("without --confine") && !told.contains("braid spare"), "{error}");
    }
    served.stop();
}

fn of_md_state(name: &str) -> Array {
    let fixtures = crate::reshape::fixtures();
    let fixture = crate::reshape::fixture::Fixture::load(&fixtures, name).expect("a fixture");
    let images: Vec<Vec<u8>> =
        (0..fixture.members.len()).map(|member| fixture.image(member)).collect();
    Array::of_images(&images)
}

#[test]
fn a_bitmap_goes_before_an_array_becomes_a_raid0() {
    needs!("nbdcopy");
    let with = |shape: Shape, more: &[&str]| {
        let words = [&["--consistency", "bitmap"], more].concat();
        Array::create_with("tank", shape, "16M", &words)
    };
    for (shape, more, left) in [(RAID_5, &PARITY_LAST[..], 3), (RAID_10, &[], 2)] {
        let mut array = with(shape, more);
        let served = array.serve();
        let content = filled(&array, &served, 66);
        let words = ["grow", "tank", "--level", "0"];
        array.follow(&refusal(&array, &words, &[]), "Drop the bitmap first");
        done(&array, &words);
        let is_left: Vec<PathBuf> =
            array.members.iter().filter(|path| is_member(path)).cloned().collect();
        assert_eq!(is_left.len(), left, "the rest is let go");
        array.members = is_left;
        assert_striped(&array, served, &content);
    }
}
