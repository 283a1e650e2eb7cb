//! Members restored from an earlier copy: one member, or all members.

use std::path::PathBuf;

use serde_json::Value;

use crate::jobs::done;
use crate::kit::{Array, RAID_1, RAID_5, ServerProcess, Shape, assert_same, needs, random_bytes};

fn bytes(served: &ServerProcess, seed: u64) -> Vec<u8> {
    random_bytes(seed, usize::try_from(served.size_bytes).expect("small"))
}

/// Starts the server, writes the whole array, and stops the server.
fn fill(array: &Array, seed: u64) -> Vec<u8> {
    let served = array.serve();
    let bytes = bytes(&served, seed);
    served.write_all(array, &bytes);
    served.stop();
    bytes
}

fn keep(array: &Array, slot: usize) -> PathBuf {
    let kept = array.path(&format!("kept{slot}"));
    std::fs::copy(&array.members[slot], &kept).expect("a copy");
    kept
}

/// Restores a member in place: a new file would be another device of the same name.
fn put_back(array: &Array, slot: usize) {
    let kept = std::fs::read(array.path(&format!("kept{slot}"))).expect("a copy");
    std::fs::write(&array.members[slot], kept).expect("a member");
}

fn verdict(assembled: &Value, slot: usize) -> &Value {
    &assembled["members"][slot]["verdict"]
}

/// Removes braid's record of the array, so that only superblocks show which members are old.
fn forget(array: &Array) {
    std::fs::remove_dir_all(array.path("state/arrays")).expect("a record");
}

/// Regression: a clean run with writes ended with the event count that it began with. So a member
/// restored from before the run silently passed for fresh, and old data was read from it.
fn put_back_after_a_clean_run(shape: Shape) {
    for has_record in [true, false] {
        for slot in [0, shape.members - 1] {
            let array = Array::create(shape);
            fill(&array, 31);
            keep(&array, slot);
            let second = fill(&array, 32);
            put_back(&array, slot);
            if !has_record {
                forget(&array);
            }
            let mut served = array.serve();
            let assembled = served.wait_for("assembled");
            assert_eq!(verdict(&assembled, slot), "stale", "{assembled}");
            assert_eq!(assembled["degraded_slots"], 1, "{assembled}");
            assert_same(&served.read_all(&array), &second, "from the others");
            served.stop();
        }
    }
}

#[test]
fn an_old_copy_put_back_after_a_clean_run_is_not_read_raid_1() {
    needs!("nbdcopy");
    put_back_after_a_clean_run(RAID_1);
}

#[test]
fn an_old_copy_put_back_after_a_clean_run_is_not_read_raid_5() {
    needs!("nbdcopy");
    put_back_after_a_clean_run(RAID_5);
}

/// Regression: an old copy of a member, restored after a kill, was read; the verdict was "one
/// behind the newest: no write was missed".
#[test]
fn an_old_copy_put_back_after_a_kill_is_not_read() {
    needs!("nbdcopy");
    for shape in [RAID_1, RAID_5] {
        let array = Array::with_bitmap(shape);
        fill(&array, 33);
        keep(&array, 0);
        let served = array.serve();
        let second = bytes(&served, 34);
        served.write_all(&array, &second);
        served.kill();
        put_back(&array, 0);
        forget(&array);
        if shape.level == "5" {
            let refusal = array.serve_refused(&[], &array.members);
            refusal.is("B031", 12);
            let cause = refusal.json["cause"].as_str().expect("a cause");
            assert!(cause.contains("it has missed writes"), "{cause}");
            continue;
        }
        let mut served = array.serve();
        let assembled = served.wait_for("assembled");
        assert_eq!(verdict(&assembled, 0), "stale", "{assembled}");
        assert_same(&served.read_all(&array), &second, "from the other");
        served.stop();
    }
}

/// Members from a backup look like a part of the array; the operator confirms that they are all
/// members.
#[test]
fn an_array_put_back_whole_is_served_once_a_person_says_so() {
    needs!("nbdcopy");
    let array = Array::create(RAID_5);
    let first = fill(&array, 35);
    (0..RAID_5.members).for_each(|slot| drop(keep(&array, slot)));
    fill(&array, 36);
    (0..RAID_5.members).for_each(|slot| put_back(&array, slot));
    let refusal = array.serve_refused(&[], &array.members);
    refusal.is("B038", 12);
    let remedies = refusal.json["remedies"].to_string();
    assert!(remedies.contains("braid serve --accept-older "), "{remedies}");
    array.refused(&["serve", "--read-only", "--run", "true"], &array.members).is("B038", 12);
    let served = array.serve_with(&["--accept-older"], &array.members);
    assert_same(&served.read_all(&array), &first, "what was put back");
    served.stop();
    let served = array.serve();
    assert_same(&served.read_all(&array), &first, "it need not be said again");
    served.stop();
}

/// Regression: braid's record of the array lagged by a second. After a kill the failed half of a
/// mirror was served alone, and its old bytes passed for current.
#[test]
fn a_half_that_failed_is_not_served_alone_after_a_kill() {
    needs!("nbdcopy");
    let array = Array::create(RAID_1);
    let served = array.serve();
    done(&array, &["fail", "tank", "0"]);
    let bytes = bytes(&served, 38);
    served.write_all(&array, &bytes);
    served.kill();
    array.serve_refused(&[], &array.members[..1]).is("B038", 12);
    let served = array.serve_with(&[], &array.members[1..]);
    assert_same(&served.read_all(&array), &bytes, "from the other");
    served.stop();
}

/// A state folder that cannot be written is reported, and delays nothing.
#[test]
fn a_record_that_cannot_be_kept_is_said_and_the_array_is_served() {
    needs!("nbdcopy");
    let array = Array::create(RAID_1);
    // Root may write anywhere, but not below a file.
    std::fs::create_dir_all(array.path("state")).expect("a folder");
    std::fs::write(array.path("state/arrays"), "").expect("a file");
    let mut served = array.serve();
    served.wait_for("not-kept");
    let bytes = bytes(&served, 37);
    served.write_all(&array, &bytes);
    assert_same(&served.read_all(&array), &bytes, "served all the same");
    done(&array, &["fail", "tank", "0"]);
    served.wait_for("Fail");
    served.stop();
}
