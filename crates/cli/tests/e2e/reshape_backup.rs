//! `braid serve` continues a reshape that md left in a part which it overwrites: from mdadm's
//! backup file, from its copy on an added member, or without any copy, if the operator accepts the
//! risk.

use std::fs;
use std::path::PathBuf;

use braid_test_needs::needs;
use serde_json::Value;

use crate::control::status;
use crate::grow::{assert_content, fast, of_md, reshape, wait_for_the_end, write_some};
use crate::jobs::done;
use crate::kit::{Array, SUPERBLOCK_BYTES, ServerProcess, assert_same};
use crate::members::{assert_whole, text};

use crate::rescue::{accepting, story};
use crate::reshape::{
    Both, POSITION_AT, RAID_5_LONGER, RAID_5_OF_4, backup, chunk_that_changes, ext4,
    grown_with_its_backup, stamped,
};

const SLOW: [&str; 2] = ["--job-ceiling", "2M"];
const FILE: &str = "If mdadm made a backup file, go on from there";

/// Waits for the end of the reshape, then checks the content of the array, with a client's writes.
fn ends(array: &Array, served: ServerProcess, members: &[PathBuf], content: &[u8]) {
    fast(array);
    wait_for_the_end(array);
    match members.len() == array.members.len() {
        true => assert_whole(array, served, members, content),
        false => {
            assert_same(&served.read_all(array), content, "without a member");
            served.stop();
        }
    }
}

/// Ends the server by a kill, unless the array lacks a member: then parity may be wrong after a
/// kill.
fn end(served: ServerProcess, is_killed: bool) {
    match is_killed {
        true => served.kill(),
        false => drop(served.stop()),
    }
}

/// The number of stripes whose risk a refusal offers to accept.
fn offered_risk(array: &Array, words: &[&str], members: &[PathBuf]) -> String {
    let refused = array.serve_refused(words, members);
    refused.is("B108", 12);
    let remedies = refused.json["remedies"].to_string();
    let number = remedies.split("--accept-risk ").nth(1).expect("it is offered");
    number.split(' ').next().expect("a number").to_owned()
}

#[test]
fn md_left_a_chunk_half_changed_and_braid_goes_on_from_its_backup() {
    needs!("nbdcopy");
    for lost in [None, Some(2)] {
        let (both, array, position, uuid, seconds) = chunk_that_changes();
        let (piece, file) = (3 * 256, array.path("backup"));
        let members = array.without(lost.as_slice());
        let parts = [position - piece..position + piece, position + piece..position + 2 * piece];
        let refused = array.serve_refused(&[], &members);
        refused.is("B024", 12);
        fs::write(&file, backup(&uuid, seconds, parts.clone(), &both.content)).expect("a file");
        // Random content does not show how far md got.
        let words = ["--backup-file", text(&file)];
        let risk = offered_risk(&array, &words, &members);
        assert!(!array.path("state").join("reshape").exists(), "nothing was kept");
        let words = [&words[..], &["--accept-risk", &risk], &SLOW].concat();
        let served = array.serve_with(&words, &members);
        let mut content = both.content.clone();
        assert_content(&array, &served, &content, "in the middle");
        let mut random = fastrand::Rng::with_seed(91);
        write_some(&served, &mut content, &mut random);
        // braid's own copies of windows are in the state folder: the backup file is not needed
        // again, and does no harm.
        end(served, lost.is_none());
        let served = array.serve_with(&SLOW, &members);
        assert_content(&array, &served, &content, "after a kill");
        assert_ne!(reshape(&array), Value::Null, "it is slow");
        write_some(&served, &mut content, &mut random);
        end(served, lost.is_none());
        let served = array.serve_with(&words, &members);
        assert_content(&array, &served, &content, "with the old file");
        ends(&array, served, &members, &content);
        let served = array.serve_with(&words, &members);
        assert_eq!(status(&array, "tank")["chunk_bytes"], 256 * 512);
        assert_content(&array, &served, &content, "after the reshape");
        served.stop();
    }
}

#[test]
fn a_rescue_with_all_in_its_backup_shows_how_to_go_on() {
    needs!("nbdcopy");
    let (both, array, position, uuid, seconds) = chunk_that_changes();
    let file = array.path("backup");
    let parts = [position..position + 768, position + 768..both.size()];
    fs::write(&file, backup(&uuid, seconds, parts, &both.content)).expect("a file");
    // All sectors after the position are in the backup, so nothing is at risk, and `rescue` says
    // so.
    let found = story(&array, &["--backup-file", text(&file)], &array.members);
    let advice = found["next"].to_string();
    assert!(advice.contains("braid serve --backup-file"), "{found:#}");
    array.follow_with(
        &array.serve_refused(&[], &array.members).json,
        FILE,
        &[("FILE", text(&file))],
    );
    let served = array.serve();
    wait_for_the_end(&array);
    assert_whole(&array, served, &array.members, &both.content);
}

#[test]
fn a_backup_on_an_added_member_is_gone_on_from_by_itself() {
    needs!("nbdcopy");
    let (both, array, _) = grown_with_its_backup();
    let served = array.serve_with(&SLOW, &array.members);
    done(&array, &["revert", "tank"]);
    fast(&array);
    wait_for_the_end(&array);
    assert_same(&served.read_all(&array), &both.content, "with four members again");
    served.stop();
    let (both, array, _) = grown_with_its_backup();
    let served = array.serve();
    wait_for_the_end(&array);
    assert_content(&array, &served, &both.content, "with five members");
    let found = served.read_all(&array);
    assert!(found.len() > both.content.len(), "it has grown");
    assert_whole(&array, served, &array.members, &found);
}

/// The backup file is lost. Files on the array show how far md got; the operator accepts the
/// remaining risk.
#[test]
fn without_a_backup_a_reshape_goes_on_where_the_content_says() {
    needs!("nbdcopy", "mke2fs");
    let made = std::cell::OnceCell::new();
    let content = |length| made.get_or_init(|| ext4(length)).clone();
    let both = Both::holding((RAID_5_OF_4, RAID_5_LONGER), "32M", content);
    let position = both.size() / 768 / 2 * 768;
    let array = both.at(position, 0);
    for slot in 0..4 {
        array.patch_superblock(slot, POSITION_AT, &0_u64.to_le_bytes(), true);
    }
    let too_few = array.serve_refused(&["--accept-risk", "1"], &array.members);
    too_few.is("B031", 12);
    let risk = too_few.json["remedies"].to_string();
    let risk = risk.split("--accept-risk ").nth(1).expect("it is offered");
    let risk = risk.split(' ').next().expect("a number");
    assert!(risk.parse::<u64>().expect("a number") < both.size() / 768, "not all is at risk");
    // In this case md was stopped at once, so the content at risk is right except around its
    // position.
    let served = array.serve_with(&["--accept-risk", risk], &array.members);
    wait_for_the_end(&array);
    let found = served.read_all(&array);
    let wrong = found.chunks(4096).zip(both.content.chunks(4096));
    let wrong = wrong.filter(|(found, wanted)| found != wanted).count() as u64 * 8;
    let risk: u64 = risk.parse().expect("a number");
    assert!(wrong <= risk * 768, "{wrong} sectors are wrong, {risk} stripes were accepted");
    assert_whole(&array, served, &array.members, &found);
}

/// Members as the kernel's md left them when the power failed, in parts that the reshape
/// overwrites.
#[test]
fn reshapes_that_md_left_half_moved_end_here() {
    needs!("nbdcopy");
    for (name, sectors) in [("raid5-reshaping-chunk-m0.90", 12288), ("raid5-reshaping-stuck", 6528)]
    {
        let array = of_md(name);
        let control = array.path("control");
        array.serve_refused(&[], &array.members).is("B024", 12);
        let risk = accepting(&story(&array, &[], &array.members));
        let options = ["--control", text(&control), "--accept-risk", &risk];
        let served = array.serve_with(&options, &array.members);
        done(&array, &["wait", text(&control), "--for", "idle", "--timeout", "60"]);
        assert_eq!(status(&array, text(&control))["reshape"], Value::Null, "{name}");
        assert_content(&array, &served, &stamped(sectors), name);
        let checked = done(&array, &["check", text(&control)]);
        assert_eq!(checked["check"]["differing_sectors"], 0, "{name}: {checked}");
        served.stop();
        let again = array.serve_with(&options, &array.members);
        assert_content(&array, &again, &stamped(sectors), "after a restart");
        again.stop();
    }
}

#[test]
fn a_backup_that_does_not_fit_is_not_gone_on_from() {
    let (both, array, position, uuid, seconds) = chunk_that_changes();
    let file = array.path("backup");
    let words = ["--backup-file", text(&file)];
    let before: Vec<Vec<u8>> = array.members.iter().map(|path| fs::read(path).unwrap()).collect();
    let refuse = |bytes: &[u8]| {
        fs::write(&file, bytes).expect("a file");
        array.serve_refused(&words, &array.members).is("B108", 12);
    };
    let parts = [position..position + 768, position + 768..both.size()];
    let good = backup(&uuid, seconds, parts.clone(), &both.content);
    refuse(&backup(&[9; 16], seconds, parts.clone(), &both.content));
    refuse(&backup(&uuid, seconds - 3 * 3600, parts, &both.content));
    refuse(&good[..4000]);
    let mut torn = good.clone();
    torn[40] = 16;
    refuse(&torn);
    refuse(b"");
    fs::remove_file(&file).expect("a file");
    let missing = array.serve_refused(&words, &array.members);
    assert!(missing.json["title"].to_string().contains("backup"), "{}", missing.json);
    // A read-only server does not continue a reshape.
    fs::write(&file, &good).expect("a file");
    let refused =
        array.serve_refused(&["--read-only", "--backup-file", text(&file)], &array.members);
    refused.is("B001", 2);
    assert!(!array.path("state").join("reshape").exists(), "nothing was kept");
    let after: Vec<Vec<u8>> = array.members.iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(before == after, "a member was written");
    assert!(before[0].len() as u64 > SUPERBLOCK_BYTES);
    // An array that is in no reshape is served, whatever the backup file is.
    let whole = Array::of_images(&both.before.1);
    whole.serve_with(&["--backup-file", "/nowhere"], &whole.members).stop();
}
