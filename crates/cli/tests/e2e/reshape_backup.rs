//! `braid serve` goes on with a reshape that md left in a part which it overwrites: from mdadm's
//! backup file, from its copy on an added member, or without any copy, by the operator's word.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use braid_test_needs::needs;
use serde_json::Value;

use crate::control::status;
use crate::grow::{assert_content, fast, of_md, reshape, wait_for_the_end, write_some};
use crate::jobs::done;
use crate::kit::{
    Array, Client, SUPERBLOCK_BYTES, ServerProcess, assert_same, random_bytes, wait_until,
};
use crate::members::{assert_whole, text};

use crate::rescue::story;
use crate::reshape::{
    Both, POSITION_AT, RAID_5_LONGER, RAID_5_OF_4, RAID_5_OF_5, backup, chunk_that_changes, ext4,
    grown_with_its_backup, identity, stamped,
};

/// Offset of the resync offset in a superblock 1.2.
const RESYNC_AT: usize = 208;
const SLOW: [&str; 2] = ["--job-ceiling", "2M"];
const ACCEPT: &str = "Go on with the reshape, although these rows may be wrong";
const FILE: &str = "If mdadm made a backup file, go on from there";

/// The content of the array, with what a client wrote, after the end of its reshape.
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

/// A kill, unless the array lacks a member: then parity may be wrong after it.
fn end(served: ServerProcess, is_killed: bool) {
    match is_killed {
        true => served.kill(),
        false => drop(served.stop()),
    }
}

/// The number of rows that a refusal with this code offers to accept.
fn offered_rows(array: &Array, (code, words): (&str, &[&str]), members: &[PathBuf]) -> String {
    let refused = array.serve_refused(words, members);
    refused.is(code, 12);
    let remedies = refused.json["remedies"].to_string();
    let number = remedies.split("--accept-half-moved ").nth(1).expect("it is offered");
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
        let rows = offered_rows(&array, ("B108", &words), &members);
        assert!(!array.path("state").join("reshape").exists(), "nothing was kept");
        let words = [&words[..], &["--accept-half-moved", &rows], &SLOW].concat();
        let served = array.serve_with(&words, &members);
        let mut content = both.content.clone();
        assert_content(&array, &served, &content, "in the middle");
        let mut random = fastrand::Rng::with_seed(91);
        write_some(&served, &mut content, &mut random);
        // braid's own copies are in the state folder: the file is not needed again, and does no
        // harm.
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
    // All that is ahead is in the backup, so nothing is at risk, and `rescue` says so.
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

/// The backup file is lost. Files on the array tell how far md got; the operator accepts the rest.
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
    // Stripes whose parity is in doubt are another matter.
    let words = ["--accept-half-moved", "1", "--accept-risk", "100000"];
    let rows = offered_rows(&array, ("B024", &words), &array.members);
    let rows: u64 = rows.parse().expect("a number");
    assert!(rows < both.size() / 768, "not all is at risk");
    let too_few = array.serve_refused(&words, &array.members);
    // Here md was stopped at once, so the content at risk is right but around its position.
    array.follow(&too_few.json, ACCEPT);
    let served = array.serve();
    wait_for_the_end(&array);
    let found = served.read_all(&array);
    let wrong = found.chunks(4096).zip(both.content.chunks(4096));
    let wrong = wrong.filter(|(found, wanted)| found != wanted).count() as u64 * 8;
    assert!(wrong <= rows * 768, "{wrong} sectors are wrong, {rows} rows were accepted");
    assert_whole(&array, served, &array.members, &found);
}

/// Members as the kernel's md left them when the power failed, in parts that it overwrites.
#[test]
fn reshapes_that_md_left_half_moved_end_here() {
    needs!("nbdcopy");
    for (name, sectors) in [("raid5-reshaping-chunk-m0.90", 12288), ("raid5-reshaping-stuck", 6528)]
    {
        let array = of_md(name);
        let control = array.path("control");
        let rows = offered_rows(&array, ("B024", &[]), &array.members);
        let options = ["--control", text(&control), "--accept-half-moved", &rows];
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

/// A file of before the way back, and of before what clients wrote since.
#[test]
fn an_old_backup_file_does_not_replace_a_newer_copy() {
    needs!("nbdcopy");
    let (both, array, position, uuid, seconds) = chunk_that_changes();
    let file = array.path("backup");
    let parts = [position..position + 768, position + 768..position + 1536];
    fs::write(&file, backup(&uuid, seconds, parts, &both.content)).expect("a file");
    let words = ["--backup-file", text(&file)];
    let rows = offered_rows(&array, ("B108", &words), &array.members);
    let words = [&words[..], &["--accept-half-moved", &rows], &["--job-ceiling", "1M"]].concat();
    let words = [&words[..], &["--jobs", "paused"]].concat();
    let mut served = array.serve_with(&words, &array.members);
    let mut content = both.content.clone();
    let mut random = fastrand::Rng::with_seed(93);
    done(&array, &["resume", "tank"]);
    wait_until("a window", Duration::from_secs(60), || {
        reshape(&array)["moved_bytes"].as_u64() > Some(position * 512)
    });
    // The way back begins behind the file's sectors, which have other content by now.
    done(&array, &["pause", "tank"]);
    let at = usize::try_from(position * 512).expect("small");
    let bytes = random_bytes(94, 768 * 512);
    let mut client = Client::connect(&served.socket, Duration::from_secs(60));
    client.write(at as u64, &bytes);
    client.flush();
    content[at..at + bytes.len()].copy_from_slice(&bytes);
    done(&array, &["revert", "tank"]);
    std::thread::sleep(Duration::from_millis(500));
    for turn in 0..8 {
        if turn > 0 {
            done(&array, &["resume", "tank"]);
            write_some(&served, &mut content, &mut random);
            std::thread::sleep(Duration::from_millis(random.u64(0..700)));
        }
        served.kill();
        served = array.serve_with(&words, &array.members);
        assert_content(&array, &served, &content, "with an old file");
    }
    done(&array, &["resume", "tank"]);
    fast(&array);
    wait_for_the_end(&array);
    assert_eq!(status(&array, "tank")["chunk_bytes"], 128 * 512, "the old chunk is back");
    assert_whole(&array, served, &array.members, &content);
}

/// Regression: a copy that could not be kept left a file which said that nothing was under way.
#[test]
fn a_copy_that_cannot_be_kept_is_not_believed_later() {
    needs!("nbdcopy");
    let (both, array, position, uuid, seconds) = chunk_that_changes();
    let file = array.path("backup");
    let parts = [position..position + 768, position + 768..both.size()];
    fs::write(&file, backup(&uuid, seconds, parts, &both.content)).expect("a file");
    let words = ["serve", "--run", "true", "--backup-file", text(&file)];
    let line = array.command_line(&words, &array.members);
    let braid = env!("CARGO_BIN_EXE_braid");
    let full = format!("ulimit -f 1000; exec {braid} \"$@\"");
    let ran = crate::kit::run("sh", ["-c", &full, "sh"].map(str::to_owned).into_iter().chain(line));
    assert!(!ran.status.success() && ran.stdout.contains("state folder"), "{ran:?}");
    array.serve_refused(&[], &array.members).is("B024", 12);
    let served = array.serve_with(&words[3..], &array.members);
    ends(&array, served, &array.members, &both.content);
}

#[test]
fn an_array_in_doubt_asks_for_its_backup_first() {
    let (both, array, position, uuid, seconds) = chunk_that_changes();
    for slot in 0..4 {
        array.patch_superblock(slot, RESYNC_AT, &0_u64.to_le_bytes(), true);
    }
    let members = array.without(&[2]);
    let refused = array.serve_refused(&["--accept-risk", "100000"], &members);
    refused.is("B024", 12);
    let file = array.path("backup");
    let parts = [position..position + 768, position + 768..both.size()];
    fs::write(&file, backup(&uuid, seconds, parts, &both.content)).expect("a file");
    let words = ["--backup-file", text(&file)];
    let refused = array.serve_refused(&words, &members);
    refused.is("B031", 12);
    assert!(refused.json["cause"].to_string().contains("backup file"), "{}", refused.json);
    assert!(!array.path("state").join("reshape").exists(), "nothing was kept");
    let words = ["--accept-risk", "100000", "--backup-file", text(&file)];
    array.serve_with(&words, &members).stop();
}

#[test]
fn fewer_members_are_gone_on_to_from_a_backup() {
    needs!("nbdcopy");
    let both = Both::new(RAID_5_OF_5, RAID_5_OF_4);
    let position = 6 * 128;
    let array = both.at(position, 0);
    let image = fs::read(&array.members[0]).expect("a member");
    let (uuid, seconds) = identity(&image);
    // md was at work in the last rows, at the start of the array.
    for path in &array.members[..4] {
        let file = fs::File::options().write(true).open(path).expect("a member");
        let noise = random_bytes(95, 2 * 128 * 512);
        let at = both.data_offset * 512;
        std::os::unix::fs::FileExt::write_all_at(&file, &noise, at).expect("a member");
    }
    array.serve_refused(&[], &array.members).is("B024", 12);
    let file = array.path("backup");
    fs::write(&file, backup(&uuid, seconds, [0..position, 0..0], &both.content)).expect("a file");
    let served = array.serve_with(&["--backup-file", text(&file)], &array.members);
    wait_for_the_end(&array);
    assert_whole(&array, served, &array.members[..4], &both.content);
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
    // A read-only server does not go on with anything.
    fs::write(&file, &good).expect("a file");
    let refused =
        array.serve_refused(&["--read-only", "--backup-file", text(&file)], &array.members);
    refused.is("B001", 2);
    assert!(!array.path("state").join("reshape").exists(), "nothing was kept");
    let after: Vec<Vec<u8>> = array.members.iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(before == after, "a member was written");
    assert!(before[0].len() as u64 > SUPERBLOCK_BYTES);
    // An array in no reshape is served, whatever the file is.
    let whole = Array::of_images(&both.before.1);
    whole.serve_with(&["--backup-file", "/nowhere"], &whole.members).stop();
}
