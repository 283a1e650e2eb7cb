//! Changes of members while clients are served: `add`, `spare`, `fail` and `remove`.
//!
//! After each change clients' data must be there; a refused change must change no byte.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::control::{check, json, said, status};
use crate::jobs::{done, refused, typed};
use crate::kit::{
    Array, Client, RAID_0, RAID_1, RAID_5, RAID_6, RAID_10, ServerProcess, assert_same, needs,
    random_bytes, wait_until,
};

pub(crate) const MEMBER_BYTES: u64 = 16 << 20;

pub(crate) fn blank(array: &Array, name: &str, bytes: u64) -> PathBuf {
    let path = array.path(name);
    File::create(&path).and_then(|file| file.set_len(bytes)).expect("a file");
    path
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

pub(crate) fn wait_for_rebuild(array: &Array) {
    let whole = done(array, &["wait", "tank", "--for", "rebuild", "--timeout", "60"]);
    assert_eq!(whole["state"], "ok", "{whole}");
}

/// Writes the whole array with random bytes, which are returned.
pub(crate) fn filled(array: &Array, served: &ServerProcess, seed: u64) -> Vec<u8> {
    let bytes = random_bytes(seed, usize::try_from(served.size_bytes).expect("small"));
    served.write_all(array, &bytes);
    bytes
}

/// Stops the array, serves only these members, checks redundancy, and compares all content.
pub(crate) fn assert_whole(
    array: &Array,
    served: ServerProcess,
    members: &[PathBuf],
    wanted: &[u8],
) {
    assert_same(&served.read_all(array), wanted, "while it is served");
    served.stop();
    let again = array.serve_with(&[], members);
    assert_eq!(done(array, &["check", "tank"])["check"]["differing_sectors"], 0);
    assert_same(&again.read_all(array), wanted, "after a restart");
    let one = status(array, "tank");
    assert_eq!((&one["state"], &one["dirty"]), (&"ok".into(), &false.into()), "{one}");
    again.stop();
}

/// The kinds of the events so far, with their members' file names.
fn told(array: &Array) -> Vec<(String, String)> {
    let lines = array.braid(&["history", "tank"], &[]).stdout;
    let events = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let name = |event: &Value| {
        let path = event["subject"]["member"].as_str().unwrap_or_default().to_owned();
        Path::new(&path).file_name().unwrap_or_default().to_string_lossy().into_owned()
    };
    events.map(|event| (event["kind"].as_str().expect("a kind").to_owned(), name(&event))).collect()
}

#[test]
fn a_member_is_failed_removed_and_another_one_is_rebuilt() {
    needs!("nbdcopy");
    for shape in [RAID_1, RAID_5, RAID_6, RAID_10] {
        let array = Array::create(shape);
        let served = array.serve();
        let wanted = filled(&array, &served, 1);
        let old = array.members[1].clone();
        let dry = done(&array, &["fail", "tank", "1", "-n"]);
        check("MembersAnswer", &dry);
        assert_eq!(status(&array, "tank")["state"], "ok", "a dry run changes nothing");
        let failed = done(&array, &["fail", "tank", "1"]);
        check("MembersAnswer", &failed);
        assert_eq!(
            (&failed["members"][0]["effect"], &failed["members"][0]["member"]),
            (&"fails".into(), &text(&old).into())
        );
        assert_eq!(failed["can_lose"], dry["can_lose"]);
        let row = || status(&array, "tank")["slots"][1].clone();
        assert_eq!((&row()["state"], &row()["member"]), (&"failed".into(), &text(&old).into()));
        assert!(row()["cause"].as_str().is_some_and(|cause| !cause.is_empty()), "{}", row());
        // `remove` removes the member at once, without a wait.
        let removed = done(&array, &["remove", "tank", "1"]);
        assert_eq!(removed["members"][0]["effect"], "goes");
        assert_eq!((&row()["state"], &row()["member"]), (&"missing".into(), &Value::Null));
        let words = said(&array, &["status", "tank"]).stdout;
        assert!(words.contains("was taken away at"), "{words}");
        // The removed member's device is free.
        std::fs::remove_file(&old).expect("no process has it");
        let new = blank(&array, "new", MEMBER_BYTES);
        let dry = done(&array, &["add", "tank", "-n", text(&new)]);
        assert_eq!(
            (&dry["members"][0]["effect"], &dry["dry_run"]),
            (&"rebuilds".into(), &true.into())
        );
        let added = said(&array, &["add", "tank", text(&new)]).stdout;
        assert!(
            added.contains("takes a free slot") && added.contains("braid wait tank"),
            "{added}"
        );
        wait_for_rebuild(&array);
        assert_eq!((&row()["state"], &row()["member"]), (&"ok".into(), &text(&new).into()));
        let kinds = told(&array);
        let kinds: Vec<(&str, &str)> =
            kinds.iter().map(|(kind, member)| (kind.as_str(), member.as_str())).collect();
        let order = [
            ("Fail", "m1"),
            ("DiskRemoved", "m1"),
            ("DiskAdded", "new"),
            ("SpareTaken", "new"),
            ("RebuildStarted", ""),
            ("SpareActive", "new"),
        ];
        let mut rest = kinds.iter();
        for event in order {
            assert!(rest.any(|one| *one == event), "{event:?} in its place: {kinds:?}");
        }
        let members = [array.without(&[1]), vec![new]].concat();
        assert_whole(&array, served, &members, &wanted);
    }
}

#[test]
fn a_member_that_comes_back_is_rebuilt_in_full_and_gets_its_own_slot() {
    needs!("nbdcopy");
    let array = Array::create(RAID_6);
    let served = array.serve();
    filled(&array, &served, 1);
    let (one, three) = (text(&array.members[1]), text(&array.members[3]));
    done(&array, &["fail", "tank", one]);
    done(&array, &["fail", "tank", three]);
    done(&array, &["remove", "tank", "failed"]);
    assert_eq!(done(&array, &["remove", "tank", "failed"])["members"], Value::Array(Vec::new()));
    // The member misses all these writes.
    let wanted = filled(&array, &served, 2);
    let added = done(&array, &["add", "tank", three]);
    let member = &added["members"][0];
    assert_eq!(
        (&member["effect"], &member["returns"], &member["slot"]),
        (&"rebuilds".into(), &true.into(), &3.into())
    );
    assert_eq!(added["free_slots"], 1);
    let words = said(&array, &["add", "tank", one]).stdout;
    assert!(words.contains("it was a member before"), "{words}");
    wait_for_rebuild(&array);
    let slots = status(&array, "tank")["slots"].clone();
    assert_eq!((&slots[1]["member"], &slots[3]["member"]), (&one.into(), &three.into()));
    let members = array.members.clone();
    assert_whole(&array, served, &members, &wanted);
}

fn bitmap_of(array: &Array) -> Value {
    let ran = array.braid(&["examine"], &array.members[..1]);
    let looked: Value = serde_json::from_str(ran.stdout.trim()).expect("JSON");
    looked["members"][0]["bitmap"].clone()
}

/// A member was absent for a few writes: it is not rebuilt, but catches up at once.
#[test]
fn a_member_that_was_away_catches_up_with_what_the_bitmap_names() {
    needs!("nbdcopy");
    for shape in [RAID_1, RAID_5, RAID_6, RAID_10] {
        let array = Array::create_with("tank", shape, "32M", &["--bitmap-chunk", "1M"]);
        let served = array.serve();
        let mut wanted = filled(&array, &served, 1);
        let bits = || bitmap_of(&array)["bits_set"].as_u64().expect("a count");
        wait_until("bits to be cleared", Duration::from_secs(60), || bits() == 0);
        let member = text(&array.members[1]);
        done(&array, &["fail", "tank", member]);
        done(&array, &["remove", "tank", member]);
        let news = random_bytes(2, 64 << 10);
        let at = 5 << 20;
        wanted[at..at + news.len()].copy_from_slice(&news);
        let mut client = Client::connect(&served.socket, Duration::from_secs(10));
        client.write(at as u64, &news);
        drop(client);
        let would = done(&array, &["add", "tank", "-n", member]);
        let added = done(&array, &["add", "tank", member]);
        let one = &added["members"][0];
        assert_eq!((&one["effect"], &one["slot"]), (&"catches-up".into(), &1.into()), "{added}");
        assert_eq!(one["kept_sectors"], would["members"][0]["kept_sectors"]);
        assert!(one["kept_sectors"].as_u64() > Some(28 * 2048), "{added}");
        wait_for_rebuild(&array);
        let job = status(&array, "tank")["last_jobs"][0].clone();
        assert!(job["written_sectors"].as_u64() <= Some(2 * 2048), "{job}");
        let members = array.members.clone();
        assert_whole(&array, served, &members, &wanted);
    }
}

/// Clients have not written most of the array: recovery skips the unwritten regions. No written
/// data is lost, from the first write on, after a kill, and with any member missing.
#[test]
fn what_no_client_has_written_is_not_rebuilt_under_a_lockless_bitmap() {
    needs!("nbdcopy");
    for shape in [RAID_1, RAID_5, RAID_6, RAID_10] {
        let array = Array::create_with("tank", shape, "32M", &["--consistency", "llbitmap"]);
        let marks = || bitmap_of(&array)["marks"].clone();
        assert_eq!(marks()["clean"], 0);
        let served = array.serve();
        let news = random_bytes(2, 64 << 10);
        let at = 5 << 20;
        let mut client = Client::connect(&served.socket, Duration::from_secs(10));
        client.write(at, &news);
        client.flush();
        drop(client);
        assert!(marks()["need_sync"].as_u64() > Some(0), "{}", marks());
        served.kill();
        let served = array.serve();
        let mut client = Client::connect(&served.socket, Duration::from_secs(10));
        assert_eq!(client.read(at, news.len()).as_ref(), Some(&news));
        wait_until("the resync to end", Duration::from_secs(60), || {
            status(&array, "tank")["jobs"].as_array().is_some_and(Vec::is_empty)
        });
        done(&array, &["fail", "tank", text(&array.members[1])]);
        assert_eq!(client.read(at, news.len()).as_ref(), Some(&news));
        client.write(at + (1 << 20), &news);
        let new = array.path("new.img");
        std::fs::File::create(&new).and_then(|file| file.set_len(32 << 20)).expect("a file");
        done(&array, &["add", "tank", text(&new)]);
        wait_for_rebuild(&array);
        let job = status(&array, "tank")["last_jobs"][0].clone();
        assert!(job["written_sectors"].as_u64() <= Some(2 * 2048), "{job}");
        done(&array, &["fail", "tank", text(&array.members[0])]);
        assert_eq!(client.read(at, news.len()).as_ref(), Some(&news));
        assert_eq!(client.read(at + (1 << 20), news.len()).as_ref(), Some(&news));
        drop(client);
        served.stop();
    }
}

/// Clients write much, and trim nearly all of it. After a stop the trimmed regions count as
/// unwritten, are not rebuilt, and can be written again.
#[test]
fn what_a_client_trims_is_unwritten_under_a_lockless_bitmap() {
    needs!("qemu-io");
    for shape in [RAID_1, RAID_5, RAID_6, RAID_10] {
        let array = Array::create_with("tank", shape, "32M", &["--consistency", "llbitmap"]);
        let unwritten = || bitmap_of(&array)["marks"]["unwritten"].as_u64().expect("a count");
        let before = unwritten();
        let served = array.serve();
        let qemu = |command: &str| {
            crate::kit::ok("qemu-io", ["-f", "raw", "-d", "unmap", "-c", command, &served.uri]);
        };
        qemu("write -P 7 0 16M");
        assert!(status(&array, "tank")["bitmap"]["unwritten"].as_u64() < Some(before));
        // Discards the array in parts with arbitrary ends.
        qemu("discard 0 5000192");
        qemu("discard 5000192 11776k");
        qemu("write -P 9 3M 64k");
        served.stop();
        let written = before - unwritten();
        assert!((1..=2).contains(&written), "{shape:?}: {written} marks of {before}");
        let served = array.serve();
        done(&array, &["fail", "tank", text(&array.members[1])]);
        let new = array.path("new.img");
        std::fs::File::create(&new).and_then(|file| file.set_len(32 << 20)).expect("a file");
        done(&array, &["add", "tank", text(&new)]);
        wait_for_rebuild(&array);
        let job = status(&array, "tank")["last_jobs"][0].clone();
        assert!(job["written_sectors"].as_u64() <= Some(2 * 2048), "{job}");
        let qemu = |command: &str| {
            crate::kit::ok("qemu-io", ["-f", "raw", "-c", command, &served.uri]);
        };
        qemu("write -P 8 6M 64k");
        done(&array, &["fail", "tank", text(&array.members[0])]);
        qemu("read -P 9 3M 64k");
        qemu("read -P 8 6M 64k");
        served.stop();
    }
}

/// The device was used in another array meanwhile: the first array keeps its own writes.
#[test]
fn a_member_that_ran_apart_keeps_nothing() {
    needs!("nbdcopy");
    let array = Array::create_with("tank", RAID_1, "16M", &["--bitmap-chunk", "1M"]);
    let served = array.serve();
    let wanted = filled(&array, &served, 1);
    let member = array.members[1].clone();
    done(&array, &["fail", "tank", text(&member)]);
    done(&array, &["remove", "tank", text(&member)]);
    let apart = Array::create(RAID_1);
    let alone = apart.serve_with(&["--accept-older"], std::slice::from_ref(&member));
    let mut client = Client::connect(&alone.socket, Duration::from_secs(10));
    client.write(0, &[9; 4096]);
    drop(client);
    alone.stop();
    refused(&array, &["add", "tank", text(&member)], "B012", 12);
    let added = done(&array, &["add", "tank", "--destroy", "tank", text(&member)]);
    assert_eq!(
        (&added["members"][0]["effect"], &added["members"][0]["kept_sectors"]),
        (&"rebuilds".into(), &0.into())
    );
    wait_for_rebuild(&array);
    let members = array.members.clone();
    assert_whole(&array, served, &members, &wanted);
}

#[test]
fn one_that_failed_and_was_not_removed_may_be_added_again() {
    needs!("nbdcopy");
    let array = Array::create(RAID_5);
    let served = array.serve();
    let wanted = filled(&array, &served, 1);
    let member = text(&array.members[2]);
    done(&array, &["fail", "tank", member]);
    assert_eq!(done(&array, &["fail", "tank", member])["members"][0]["effect"], "nothing");
    let added = done(&array, &["add", "tank", member]);
    assert_eq!(added["members"][0]["returns"], true, "{added}");
    wait_for_rebuild(&array);
    assert_eq!(status(&array, "tank")["replaced"], Value::Array(Vec::new()));
    let members = array.members.clone();
    assert_whole(&array, served, &members, &wanted);
}

#[test]
fn a_spare_waits_takes_over_by_itself_and_can_be_failed_and_removed() {
    needs!("nbdcopy");
    let array = Array::create(RAID_5);
    let served = array.serve();
    let wanted = filled(&array, &served, 1);
    let (one, two) = (blank(&array, "s1", MEMBER_BYTES), blank(&array, "s2", MEMBER_BYTES));
    // No slot is free, so both `add` and `spare` add a spare.
    let added = done(&array, &["add", "tank", text(&one)]);
    assert_eq!((&added["members"][0]["effect"], &added["spares"]), (&"waits".into(), &1.into()));
    let words = said(&array, &["spare", "tank", text(&two)]).stdout;
    assert!(words.contains("waits as a spare: no slot is free"), "{words}");
    let waiting = || {
        let slots = status(&array, "tank")["slots"].clone();
        let rows = slots.as_array().expect("rows").clone();
        rows.iter().filter(|row| row["state"] == "waiting").count()
    };
    assert_eq!(waiting(), 2);
    // A waiting spare can fail, and be removed.
    let failed = done(&array, &["fail", "tank", text(&two)]);
    assert_eq!((&failed["members"][0]["slot"], waiting()), (&Value::Null, 1));
    let words = said(&array, &["status", "tank"]).stdout;
    assert!(words.contains(&format!("{}  FAILED", text(&two))), "{words}");
    done(&array, &["remove", "tank", text(&two)]);
    assert!(!said(&array, &["status", "tank"]).stdout.contains(text(&two)));
    // The spare that is left takes the slot of the failed member.
    done(&array, &["fail", "tank", "0"]);
    wait_for_rebuild(&array);
    assert_eq!(
        (status(&array, "tank")["slots"][0]["member"].as_str(), waiting()),
        (Some(text(&one)), 0)
    );
    let replaced = status(&array, "tank")["replaced"].clone();
    assert_eq!(replaced[0]["member"], text(&array.members[0]));
    // The slot has another member by now; the failed member is named by its path.
    let command = refused(&array, &["remove", "tank", "0"], "B040", 12);
    assert_eq!(command, format!("braid remove tank {}", text(&array.members[0])));
    typed(&array, &command);
    assert_eq!(status(&array, "tank")["replaced"], Value::Array(Vec::new()));
    let told = told(&array);
    assert!(told.contains(&("FailSpare".into(), "s2".into())), "{told:?}");
    let members = [array.without(&[0]), vec![one]].concat();
    assert_whole(&array, served, &members, &wanted);
}

#[test]
fn a_spare_that_waits_is_taken_away_and_becomes_another_arrays_member_only_by_name() {
    let array = Array::create(RAID_1);
    let served = array.serve();
    let spare = blank(&array, "s", MEMBER_BYTES);
    done(&array, &["spare", "tank", text(&spare)]);
    done(&array, &["remove", "tank", text(&spare)]);
    served.stop();
    let again = array.serve();
    let one = status(&array, "tank");
    assert_eq!((&one["state"], one["slots"].as_array().map(Vec::len)), (&"ok".into(), Some(2)));
    again.stop();
}

#[test]
fn several_devices_come_at_once_or_none_does() {
    needs!("nbdcopy");
    let array = Array::create(RAID_6);
    let served = array.serve();
    let wanted = filled(&array, &served, 1);
    for slot in ["0", "4"] {
        done(&array, &["fail", "tank", slot]);
        done(&array, &["remove", "tank", slot]);
    }
    let names = ["n1", "n2", "n3"];
    let new: Vec<PathBuf> = names.iter().map(|name| blank(&array, name, MEMBER_BYTES)).collect();
    let small = blank(&array, "small", MEMBER_BYTES / 2);
    let with_small = ["add", "tank", text(&new[0]), text(&small)];
    refused(&array, &with_small, "B052", 12);
    let one = status(&array, "tank");
    assert_eq!(one["slots"].as_array().map(Vec::len), Some(5), "none came: {one}");
    let added = done(&array, &["add", "tank", text(&new[0]), text(&new[1]), text(&new[2])]);
    let effects: Vec<&str> =
        (0..3).filter_map(|index| added["members"][index]["effect"].as_str()).collect();
    assert_eq!(effects, ["rebuilds", "rebuilds", "waits"]);
    wait_for_rebuild(&array);
    let members = [array.without(&[0, 4]), new].concat();
    assert_whole(&array, served, &members, &wanted);
}

fn contents(paths: &[PathBuf]) -> Vec<Option<Vec<u8>>> {
    paths.iter().map(|path| std::fs::read(path).ok()).collect()
}

#[test]
fn what_members_cannot_do_is_refused_and_changes_nothing() {
    let array = Array::create(RAID_5);
    let other = Array::create_named("other", RAID_1, "16M");
    let served = array.serve();
    let new = blank(&array, "new", MEMBER_BYTES);
    let small = blank(&array, "small", MEMBER_BYTES - (1 << 20));
    let tiny = blank(&array, "tiny", 512);
    let data = blank(&array, "data", MEMBER_BYTES);
    let noted = OpenOptions::new().write(true).open(&data);
    noted.and_then(|file| file.write_all_at(b"a letter", 100)).expect("a file");
    let (link, loose) = (array.path("link"), array.path("loose"));
    symlink(&array.members[1], &link).expect("a link");
    symlink(array.path("nowhere"), &loose).expect("a link");
    let hard = array.path("hard");
    std::fs::hard_link(&new, &hard).expect("a link");
    let held = blank(&array, "held", MEMBER_BYTES);
    let lock = File::open(&held).expect("a file");
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("it is ours");
    // The new device is a clone of a member in use.
    let clone = array.path("clone");
    std::fs::copy(&array.members[2], &clone).expect("a copy");
    let devices =
        [&new, &small, &tiny, &data, &held, &clone, &other.members[0]].map(PathBuf::clone);
    let before = contents(&devices);
    let folder = array.path("").display().to_string();
    let (member, nowhere) = (text(&array.members[1]), array.path("nowhere"));
    for (words, code, exit) in [
        (&["add", "tank", text(&nowhere)][..], "B050", 1),
        (&["add", "tank", text(&loose)], "B050", 1),
        (&["add", "tank", &folder], "B051", 1),
        (&["add", "tank", "/dev/null"], "B051", 1),
        (&["add", "tank", text(&tiny)], "B052", 12),
        (&["add", "tank", text(&small)], "B052", 12),
        (&["spare", "tank", text(&small)], "B052", 12),
        (&["add", "tank", text(&data)], "B012", 12),
        (&["add", "tank", text(&other.members[0])], "B012", 12),
        (&["add", "tank", text(&clone)], "B012", 12),
        (&["add", "tank", text(&new), "--destroy", "photos"], "B013", 12),
        (&["add", "tank", text(&new), text(&hard)], "B011", 12),
        (&["add", "tank", text(&new), text(&new)], "B011", 12),
        (&["add", "tank", member], "B057", 12),
        (&["add", "tank", text(&link)], "B057", 12),
        (&["add", "tank", text(&held)], "B061", 11),
        (&["remove", "tank", "1"], "B040", 12),
        (&["remove", "tank", member], "B040", 12),
        (&["remove", "tank", "4"], "B049", 1),
        (&["remove", "tank", "99999"], "B049", 1),
        (&["remove", "tank", text(&nowhere)], "B049", 1),
        (&["fail", "tank", text(&new)], "B049", 1),
        (&["fail", "tank", "failed"], "B049", 1),
        (&["add", "nothing", text(&new)], "B075", 10),
        (&["add", "tank"], "B001", 2),
    ] {
        let command = refused(&array, words, code, exit);
        assert!(!command.contains("--destroy"), "the safe way comes first: {command}");
        assert!(before == contents(&devices), "{words:?} changed a device");
    }
    let one = status(&array, "tank");
    assert_eq!(
        (&one["state"], one["slots"].as_array().map(Vec::len)),
        (&"ok".into(), Some(4)),
        "{one}"
    );
    // The refusals name the shortage, the member, or the contents.
    for (words, parts) in [
        (["add", "tank", text(&small)], &["too small", "short by 1 MiB"][..]),
        (["add", "tank", text(&link)], &["it is ", "slot 1"]),
        (["add", "tank", text(&other.members[0])], &["md array \"other\"", "--destroy other"]),
        (["add", "tank", text(&clone)], &["a copy of", "which is in use"]),
        (["remove", "tank", "1"], &["in use (slot 1)", "could not lose", "braid fail tank"]),
        (["remove", "tank", "7"], &["no slot 7: its slots are 0 to 3", "slot 0  "]),
    ] {
        let ran = said(&array, &words);
        for part in parts {
            assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
        }
    }
    // A device cannot be added twice.
    done(&array, &["add", "tank", text(&new)]);
    refused(&array, &["add", "tank", text(&new)], "B057", 12);
    refused(&array, &["add", "tank", text(&hard)], "B057", 12);
    served.stop();
}

#[test]
fn what_the_array_cannot_do_without_does_not_fail() {
    let array = Array::create(RAID_5);
    let mut served = array.serve_with(&["--jobs", "paused"], &array.members);
    let new = blank(&array, "new", MEMBER_BYTES);
    done(&array, &["fail", "tank", "3"]);
    let command = refused(&array, &["fail", "tank", "0"], "B041", 13);
    assert_eq!(command, "braid status tank");
    let words = said(&array, &["fail", "tank", "0"]).stderr;
    assert!(words.contains("slot 3 has no member already"), "{words}");
    refused(&array, &["fail", "tank", "0", "-n"], "B041", 13);
    refused(&array, &["remove", "tank", "0"], "B040", 12);
    let words = said(&array, &["add", "tank", text(&new)]).stdout;
    assert!(
        words.contains("once jobs are resumed") && words.contains("braid resume tank"),
        "{words}"
    );
    typed(&array, "braid resume tank");
    wait_for_rebuild(&array);
    done(&array, &["fail", "tank", "0"]);
    // An array that has failed takes no members.
    std::fs::remove_file(&array.members[1]).expect("a member to lose");
    served.wait_for("Broken");
    refused(&array, &["fail", "tank", "2"], "B081", 13);
    refused(&array, &["add", "tank", text(&array.members[3])], "B081", 13);
    drop(served);

    let array = Array::create(RAID_0);
    let served = array.serve();
    refused(&array, &["fail", "tank", "0"], "B042", 12);
    let new = blank(&array, "new", MEMBER_BYTES);
    refused(&array, &["add", "tank", text(&new)], "B042", 12);
    served.stop();
    let array = Array::create(RAID_1);
    let mut served = array.serve_with(&["--read-only"], &array.members);
    let command = refused(&array, &["fail", "tank", "0"], "B048", 12);
    typed(&array, &command);
    assert!(served.wait().success());
}

#[test]
fn what_is_on_a_device_is_named_to_be_destroyed_and_saved_before() {
    needs!("mke2fs");
    let array = Array::create(RAID_5);
    let other = Array::create_named("other", RAID_1, "16M");
    let served = array.serve();
    done(&array, &["fail", "tank", "0"]);
    done(&array, &["remove", "tank", "0"]);
    let disk = blank(&array, "disk", MEMBER_BYTES);
    let made = Command::new("mke2fs").args(["-q", "-L", "photos", text(&disk)]).status();
    assert!(made.expect("it is installed").success());
    let words = ["add", "tank", text(&disk), text(&other.members[0])];
    let ran = array.braid(&words, &[]);
    let error = json(&ran);
    assert_eq!(error["code"], "B012", "{error}");
    let remedies = error["remedies"].as_array().expect("remedies").clone();
    let last = remedies.last().expect("a way");
    assert_eq!(last["risk"], "destroy");
    let command = last["command"].as_str().expect("a command");
    assert!(
        command.contains("--destroy photos") && command.contains("--destroy other"),
        "{command}"
    );
    let old = std::fs::read(&disk).expect("a file");
    let words = typed(&array, command);
    assert!(words.contains("was destroyed") && words.contains("saved in "), "{words}");
    let record = words.split("saved in ").nth(1).and_then(|rest| rest.lines().next());
    let saved = std::fs::read(record.expect("a file")).expect("what was there");
    assert!(saved.starts_with(b"braid-undo "));
    assert!(saved.windows(4096).any(|page| page == &old[..4096]), "the first page is in it");
    wait_for_rebuild(&array);
    // The file system that was on the device is no longer recognised.
    let kinds = array.braid(&["examine"], std::slice::from_ref(&disk)).stdout;
    assert!(!kinds.contains("photos"), "{kinds}");
    served.stop();
}

#[test]
fn an_array_of_this_uuid_that_was_used_apart_is_not_written_over() {
    // The halves of a mirror were used separately: each half lacks writes of the other.
    let array = Array::create(RAID_1);
    let halves = [vec![array.members[0].clone()], vec![array.members[1].clone()]];
    for half in &halves {
        let served = array.serve_with(&["--accept-older"], half);
        array.braid(&["status", "tank"], &[]);
        let path = array.path("some");
        std::fs::write(&path, random_bytes(7, 1 << 20)).expect("a file");
        crate::kit::ok("nbdcopy", ["--flush", text(&path), &served.uri]);
        served.stop();
    }
    let before = std::fs::read(&array.members[1]).expect("a member");
    let served = array.serve_with(&["--accept-older"], &halves[0]);
    let command = refused(&array, &["add", "tank", text(&array.members[1])], "B012", 12);
    assert!(command.starts_with("braid examine"), "{command}");
    assert!(before == std::fs::read(&array.members[1]).expect("a member"));
    // If the operator names the content for destruction, the device is added.
    let words = ["add", "tank", text(&array.members[1]), "--destroy", "tank"];
    done(&array, &words);
    wait_for_rebuild(&array);
    served.stop();
}

#[test]
fn a_server_that_is_killed_leaves_the_command_with_the_members_that_it_had() {
    let array = Array::create(RAID_1);
    let served = array.serve();
    let new = blank(&array, "new", MEMBER_BYTES);
    done(&array, &["fail", "tank", "0"]);
    done(&array, &["remove", "tank", "0"]);
    done(&array, &["add", "tank", text(&new)]);
    wait_for_rebuild(&array);
    served.kill();
    let error = json(&array.braid(&["status", "tank"], &[]));
    let again = error["remedies"][1]["command"].as_str().expect("a command");
    assert!(again.ends_with(&format!(" {} {}", text(&array.members[1]), text(&new))), "{again}");
}

#[test]
fn metrics_and_events_follow_members() {
    needs!("curl");
    let array = Array::create(RAID_1);
    let served = array.serve();
    let control = array.path("run/tank.control").display().to_string();
    let metrics =
        || crate::kit::ok("curl", ["-sS", "--unix-socket", &control, "http://braid/metrics"]);
    let has = |line: &str| {
        wait_until(line, std::time::Duration::from_secs(20), || metrics().contains(line))
    };
    let new = blank(&array, "new", MEMBER_BYTES);
    done(&array, &["spare", "tank", text(&new)]);
    let count = |role: &str| {
        let text = metrics();
        let prefix = "braid_array_disks{";
        let line = text
            .lines()
            .find(|line| line.starts_with(prefix) && line.contains(&format!("role=\"{role}\"")));
        let line = line.unwrap_or_else(|| panic!("{role}: {text}"));
        line.rsplit(' ').next().and_then(|number| number.parse::<f64>().ok()).expect("a number")
    };
    assert_eq!((count("spare"), count("active")), (1.0, 2.0));
    done(&array, &["fail", "tank", text(&new)]);
    assert_eq!((count("spare"), count("failed")), (0.0, 1.0));
    done(&array, &["remove", "tank", "failed"]);
    assert_eq!((count("spare"), count("failed")), (0.0, 0.0));
    has("DiskRemoved");
    served.stop();
}
