//! Parity logs, md's and braid's own: added and dropped while clients write, and the refusals where
//! a log is impossible.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::bitmaps::{
    PATIENCE, assert_there, block, kept, set, waits_for_a_member, waits_for_a_rebuild,
    without_bitmap, writes, zeroed_blocks,
};
use crate::control::status;
use crate::jobs::done;
use crate::kit::{Array, Client, RAID_1, RAID_5, RAID_6, Shape};
use crate::remedies::refusal;

/// Changes between all consistency policies of the level, while a client writes. Then the server is
/// killed, and started without as many members as the level tolerates: flushed data must be
/// readable.
fn comes_and_goes(shape: Shape, words: &[(&str, Option<u64>)], withheld: usize) {
    let array = without_bitmap(shape);
    let blocks = zeroed_blocks();
    let served = array.serve();
    let is_over = Arc::new(AtomicBool::new(false));
    let writer = writes(&served, &blocks, &is_over);
    let mut had = ("resync".to_owned(), None);
    for (word, chunk) in words {
        let asked = format!("consistency={word}");
        let would = set(&array, &["-n", &asked]);
        assert_eq!((&would["dry_run"], kept(&array)), (&true.into(), had.clone()));
        let changed = set(&array, &[&asked]);
        assert_eq!(would["changed"], changed["changed"]);
        had = ((*word).to_owned(), *chunk);
        assert_eq!(kept(&array), had);
        let one = status(&array, "tank");
        assert_eq!(one["bitmap"].is_null(), chunk.is_none(), "{one}");
        let has_logs = ["ppl", "log"].contains(word);
        assert_eq!(one["parity_logs"].is_null(), !has_logs, "{one}");
        assert_eq!(set(&array, &[&asked])["changed"], json!({}), "it is so already");
        std::thread::sleep(Duration::from_millis(100));
    }
    served.kill();
    is_over.store(true, Ordering::Release);
    let _cut = writer.join();
    let left = &array.members[withheld..];
    let served = array.serve_with(&[], left);
    assert_eq!(kept(&array), had);
    assert_there(&served, &blocks);
    served.stop();
}

const BITMAP: Option<u64> = Some(64 << 20);

#[test]
fn a_partial_parity_log_that_was_made_while_it_was_served_survives_a_kill_without_a_member() {
    let words = [
        ("ppl", None),
        ("log", BITMAP),
        ("resync", None),
        ("log", BITMAP),
        ("bitmap", BITMAP),
        ("ppl", None),
        ("bitmap", BITMAP),
        ("log", BITMAP),
        ("ppl", None),
    ];
    comes_and_goes(RAID_5, &words, 1);
}

#[test]
fn a_log_of_braids_own_that_was_made_while_it_was_served_survives_a_kill_without_two_members() {
    let words = [("log", BITMAP), ("bitmap", BITMAP), ("log", BITMAP), ("resync", None)];
    comes_and_goes(RAID_6, &[&words[..], &[("log", BITMAP)]].concat(), 2);
}

/// An array whose log was dropped, and which was killed while written, needs all members.
#[test]
fn a_log_that_was_given_up_is_not_believed() {
    for word in ["ppl", "log"] {
        let array = Array::create_with("tank", RAID_5, "16M", &["--consistency", word]);
        let served = array.serve();
        let mut client = Client::connect(&served.socket, PATIENCE);
        client.write(0, &block(0, 1));
        client.flush();
        set(&array, &["consistency=resync"]);
        client.write(0, &block(0, 2));
        client.flush();
        served.kill();
        let served = array.serve();
        assert_eq!(kept(&array), ("resync".to_owned(), None));
        done(&array, &["wait", "tank", "--timeout", "60"]);
        assert_eq!(done(&array, &["check", "tank"])["check"]["differing_sectors"], 0);
        served.stop();
    }
}

/// With braid's own log as well, the bitmap can change the size of its bits.
#[test]
fn bits_beside_a_log_are_made_anew() {
    let array = Array::create_with("tank", RAID_6, "16M", &["--consistency", "log"]);
    let served = array.serve();
    set(&array, &["bitmap-chunk=128K"]);
    assert_eq!(kept(&array), ("log".to_owned(), Some(128 << 10)));
    set(&array, &["consistency=bitmap"]);
    assert_eq!(kept(&array), ("bitmap".to_owned(), Some(128 << 10)), "it has it already");
    served.stop();
}

#[test]
fn a_log_is_refused_with_what_to_do_and_nothing_is_changed() {
    // The array's level allows no log.
    let array = without_bitmap(RAID_1);
    let served = array.serve();
    for word in ["consistency=ppl", "consistency=log"] {
        let error = refusal(&array, &["set", "tank", word], &[]);
        assert_eq!(error["code"], "B018", "{error}");
    }
    assert_eq!(kept(&array), ("resync".to_owned(), None));
    served.stop();
    let array = without_bitmap(RAID_6);
    let served = array.serve();
    let error = refusal(&array, &["set", "tank", "consistency=ppl"], &[]);
    assert_eq!(error["code"], "B018", "{error}");
    assert_eq!(kept(&array), ("resync".to_owned(), None));
    array.follow(&error, "Use braid's own log, which does the same here");
    assert_eq!(kept(&array).0, "log");
    served.stop();
    // Members have no room for a log: the data begin at the member's start.
    let words = ["--metadata", "1.0", "--consistency", "resync"];
    let array = Array::create_with("tank", RAID_5, "16M", &words);
    let served = array.serve();
    let error = refusal(&array, &["set", "tank", "consistency=log"], &[]);
    assert_eq!(error["code"], "B005", "{error}");
    assert_eq!(kept(&array), ("resync".to_owned(), None));
    array.follow(&error, "Keep a bitmap instead");
    assert_eq!(kept(&array).0, "bitmap");
    served.stop();
    // A member is out, and then recovers.
    let array = Array::create_with("tank", RAID_5, "16M", &["--consistency", "ppl"]);
    let served = array.serve();
    let words = ["set", "tank", "consistency=log"];
    waits_for_a_rebuild(&array, &words, &words);
    assert_eq!(kept(&array), ("ppl".to_owned(), None), "nothing was changed");
    done(&array, &words);
    assert_eq!(kept(&array), ("log".to_owned(), BITMAP));
    served.stop();
}

#[test]
fn a_log_waits_for_a_member_that_does_not_answer() {
    waits_for_a_member("ppl", "parity_logs");
}
