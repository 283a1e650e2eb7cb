//! A RAID-10 that changes its shape while clients write, over kills; and refused changes.
//!
//! Each test compares every byte whose write was acknowledged, before and after the next start, and
//! ends with a check of all copies.

use std::time::Duration;

use serde_json::Value;

use crate::control::status;
use crate::grow::{
    SLOW, assert_content, fast, of_md, reshape, slots, slow, wait_for_progress, wait_for_the_end,
    write_some,
};
use crate::jobs::done;
use crate::kit::{Array, RAID_10, Shape, needs, wait_until};
use crate::members::{MEMBER_BYTES, assert_whole, blank, filled, text};
use crate::remedies::refusal;
use crate::reshape::stamped;
use crate::shrink::end_earlier;

const RAID_10_OF_SIX: Shape = Shape::new("10", 6, 1);

/// Changes the array's shape over some kills of the server. `words` are the command for the change.
fn survives_kills(mut array: Array, seed: u64, new: usize, words: &[&str]) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut served = array.serve_with(&SLOW, &array.members);
    let mut content = filled(&array, &served, seed);
    let new: Vec<_> = (0..new).map(|n| blank(&array, &format!("n{n}"), MEMBER_BYTES)).collect();
    let all: Vec<&str> = [&["grow", "tank"], words].concat();
    let all: Vec<&str> = all.into_iter().chain(new.iter().map(|path| text(path))).collect();
    let answer = done(&array, &all);
    assert_eq!(answer["kind"], "reshape", "{answer}");
    assert!(answer["gap_bytes"].as_u64().is_some_and(|gap| gap > 0), "{answer}");
    array.members.extend(new);
    for kill in 0..4 {
        std::thread::sleep(Duration::from_millis(random.u64(0..400)));
        write_some(&served, &mut content, &mut random);
        served.kill();
        served = array.serve_with(&SLOW, &array.members);
        assert_content(&array, &served, &content, &format!("{words:?} after kill {kill}"));
    }
    assert_ne!(reshape(&array), Value::Null, "all kills were on the way");
    fast(&array);
    wait_for_the_end(&array);
    let one = status(&array, "tank");
    assert_eq!((&one["state"], &one["dirty"]), (&"ok".into(), &false.into()), "{one}");
    assert!(one["bitmap"].is_object(), "the bitmap is back: {one}");
    served.stop();
    served = array.serve();
    assert_content(&array, &served, &content, "in the new shape");
    let whole = served.read_all(&array);
    assert_whole(&array, served, &array.members, &whole);
}

#[test]
fn a_raid10_gets_more_members_over_kills() {
    needs!("nbdcopy");
    survives_kills(Array::create(RAID_10), 71, 1, &[]);
    let odd = Array::create_with("tank", RAID_10, "16M", &["--chunk", "128K", "--layout", "o2"]);
    survives_kills(odd, 72, 2, &[]);
}

#[test]
fn copies_get_another_chunk_and_other_places_over_kills() {
    needs!("nbdcopy");
    survives_kills(Array::create(RAID_10), 73, 0, &["--chunk", "128K"]);
    survives_kills(Array::create(RAID_10), 74, 0, &["--layout", "o2"]);
}

/// Copies of a RAID-10 move only into free space, which members have after their smaller data.
#[test]
fn a_raid10_loses_members_where_there_is_room_behind_its_data() {
    needs!("nbdcopy");
    let array = Array::create(RAID_10_OF_SIX);
    let mut served = array.serve();
    let mut content = filled(&array, &served, 75);
    end_earlier(&array, &["--members", "5"]);
    let error = refusal(&array, &["grow", "tank", "--members", "5"], &[]);
    assert!(error.to_string().contains("behind each member's data"), "{error}");
    array.follow(&error, "Use less of each member first");
    wait_for_the_end(&array);
    content.truncate(end_earlier(&array, &["--members", "5"]));
    slow(&array);
    done(&array, &["grow", "tank", "--members", "5"]);
    wait_for_progress(&array, 0);
    write_some(&served, &mut content, &mut fastrand::Rng::with_seed(75));
    served.kill();
    served = array.serve_with(&SLOW, &array.members);
    assert_content(&array, &served, &content, "after a kill");
    assert_eq!(reshape(&array)["backwards"], true);
    fast(&array);
    wait_for_the_end(&array);
    assert_eq!(slots(&array), 5);
    assert_whole(&array, served, &array.members, &content);
}

/// Regression: the first reshape took all free space, and each later one was refused.
#[test]
fn a_raid10_changes_its_chunk_again_and_again() {
    let array = Array::create(RAID_10);
    let served = array.serve();
    let content = filled(&array, &served, 76);
    for chunk in ["128K", "32K", "128K", "64K", "256K", "32K"] {
        let answer = done(&array, &["grow", "tank", "--chunk", chunk]);
        assert!(answer["notes"].to_string().contains("no backup file"), "{answer}");
        wait_for_the_end(&array);
    }
    assert_content(&array, &served, &content, "after six reshapes");
    assert_whole(&array, served, &array.members, &content);
}

/// Regression: a kill between a reshape's end and its bitmap left the array without a bitmap.
#[test]
fn a_bitmap_that_still_rests_comes_back_at_the_next_start() {
    let array = Array::create(RAID_10);
    let served = array.serve();
    done(&array, &["set", "tank", "consistency=resync"]);
    let one = status(&array, "tank");
    assert_eq!(one["bitmap"], Value::Null);
    let uuid = one["uuid"].as_str().expect("a UUID").to_owned();
    served.stop();
    let folder = array.path("state").join("reshape");
    let note = folder.join(uuid);
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(&note, "bitmap 1048576").expect("a note");
    let served = array.serve();
    let bitmap = || status(&array, "tank")["bitmap"]["bit_bytes"].as_u64();
    wait_until("the bitmap", Duration::from_secs(20), || bitmap() == Some(1 << 20));
    wait_until("no note", Duration::from_secs(20), || !note.exists());
    // The operator chooses to have no bitmap, and this choice holds.
    std::fs::write(&note, "bitmap 1048576").expect("a note");
    done(&array, &["set", "tank", "consistency=resync"]);
    assert!(!note.exists());
    served.stop();
}

#[test]
fn a_raid10_that_md_was_growing_ends_here() {
    needs!("nbdcopy");
    let array = of_md("raid10-reshaping");
    let control = array.path("control");
    let options = ["--control", text(&control)];
    let served = array.serve_with(&options, &array.members);
    done(&array, &["wait", text(&control), "--for", "idle", "--timeout", "20"]);
    assert_eq!(status(&array, text(&control))["reshape"], Value::Null);
    let sectors = 4352;
    assert_content(&array, &served, &stamped(sectors), "it was ended here");
    let checked = done(&array, &["check", text(&control)]);
    assert_eq!(checked["check"]["differing_sectors"], 0, "{checked}");
    served.stop();
    let again = array.serve_with(&options, &array.members);
    assert_content(&array, &again, &stamped(sectors), "after a restart");
    again.stop();
}

#[test]
fn shapes_that_a_raid10_cannot_have_are_refused_and_change_nothing() {
    let array = Array::create(RAID_10);
    let served = array.serve();
    let new = blank(&array, "n0", MEMBER_BYTES);
    let before: Vec<_> = array.members.iter().map(|path| std::fs::read(path).unwrap()).collect();
    let cases: [(&[&str], &str); 4] = [
        (&["--layout", "f2"], "other places"),
        (&["--layout", "n3"], "2 copies of each chunk, and the new layout would have 3"),
        (&["--members", "1"], ""),
        (&["--level", "5", text(&new)], "raid10 does not become raid5"),
    ];
    for (words, cause) in cases {
        let error = refusal(&array, &[&["grow", "tank"], words].concat(), &[]);
        assert!(error.to_string().contains(cause), "{words:?}: {error}");
    }
    served.stop();
    for (path, wanted) in array.members.iter().zip(&before) {
        assert!(std::fs::read(path).unwrap() == *wanted, "{} was changed", path.display());
    }
}
