//! Jobs of a running array: `check`, `pause`, `resume`, `rebuild`, `wait`, and their `status`.
//!
//! Each remedy of a refusal is typed unchanged, and must work.

use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::control::{check, json, said, status};
use crate::kit::{Array, RAID_0, RAID_1, RAID_5, RAID_6, Ran, Shape, wait_until};

const LIMIT: Duration = Duration::from_secs(60);

/// Types a command that braid printed.
pub(crate) fn typed(array: &Array, command: &str) -> String {
    let ran = array.type_line(command);
    assert!(ran.status.success(), "{command}: {ran:?}");
    ran.stdout
}

/// Checks that braid refuses with this code and status; returns the first remedy's command.
#[track_caller]
pub(crate) fn refused(array: &Array, words: &[&str], code: &str, exit: i32) -> String {
    let ran = array.braid(words, &[]);
    let error = json(&ran);
    assert_eq!((&error["code"], ran.status.code()), (&code.into(), Some(exit)), "{ran:?}");
    check("Problem", &error);
    assert!(error["cause"].as_str().is_some_and(|cause| !cause.is_empty()), "{error}");
    error["remedies"][0]["command"].as_str().expect("a command").to_owned()
}

#[track_caller]
pub(crate) fn done(array: &Array, words: &[&str]) -> Value {
    let ran = array.braid(words, &[]);
    assert!(ran.status.success(), "{words:?}: {ran:?}");
    json(&ran)
}

/// An array whose last member is a spare.
fn with_spare(shape: Shape) -> Array {
    let shape = Shape { members: shape.members + 1, ..shape };
    Array::create_with("tank", shape, "16M", &["--spare", "1"])
}

/// Changes eight sectors of a member's data area behind the server's back.
fn spoil(array: &Array, slot: usize, byte: u8) {
    let member = std::fs::OpenOptions::new().write(true).open(&array.members[slot]);
    member.and_then(|file| file.write_all_at(&[byte; 4096], 12 << 20)).expect("a member");
}

#[test]
fn a_lost_member_is_rebuilt_onto_the_spare_when_jobs_may_go_on() {
    for shape in [RAID_1, RAID_6] {
        let array = with_spare(shape);
        let mut served = array.serve_with(&["--jobs", "paused"], &array.members);
        served.lose(&array, 1);
        let one = status(&array, "tank");
        check("Array", &one);
        assert_eq!((&one["jobs_paused"], &one["jobs"]), (&true.into(), &Value::Array(Vec::new())));
        let text = said(&array, &["status", "tank"]).stdout;
        let lost = array.members[1].display().to_string();
        for part in [
            &*format!("{lost} (slot 1) failed"),
            "a spare waits, because jobs are paused",
            "braid resume tank",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // `wait` refuses to wait for a paused job; its remedy resumes it.
        let dry = done(&array, &["resume", "tank", "-n"]);
        assert_eq!((&dry["effect"], &dry["dry_run"]), (&"resumes".into(), &true.into()));
        let command = refused(&array, &["wait", "tank", "--for", "rebuild"], "B044", 12);
        assert_eq!(typed(&array, &command), "rebuilding tank goes on\n");
        let whole = done(&array, &["wait", "tank", "--for", "rebuild", "--timeout", "60"]);
        check("Array", &whole);
        assert_eq!((&whole["state"], &whole["slots"][1]["state"]), (&"ok".into(), &"ok".into()));
        assert!(!served.events("SpareTaken").is_empty());
        done(&array, &["wait", "tank"]);
        let one = status(&array, "tank");
        let spare = array.members.last().expect("a spare").display().to_string();
        assert_eq!(one["slots"][1]["member"], spare);
        assert_eq!(one["slots"].as_array().map(Vec::len), Some(shape.members), "it waits no more");
        let last = &one["last_jobs"][0];
        assert_eq!(
            (&last["kind"], &last["result"]),
            (&"recovery".into(), &"completed".into()),
            "{one}"
        );
        assert!(
            last["written_sectors"].as_u64() > Some(0) && last["done_bytes"] == last["total_bytes"],
            "{last}"
        );
        assert_eq!(
            (&one["replaced"][0]["member"], &one["replaced"][0]["slot"]),
            (&lost.as_str().into(), &1.into())
        );
        let text = said(&array, &["status", "tank"]).stdout;
        assert!(text.contains(&format!("{lost}  REPLACED")), "{text}");
        assert_eq!(said(&array, &["status", "-x"]).stdout, "tank is healthy\n");
        let words = said(&array, &["rebuild", "tank"]).stdout;
        assert_eq!(words, "tank is whole: there is nothing to rebuild\n");
        assert_eq!(said(&array, &["check", "tank"]).status.code(), Some(0));
        served.stop();
    }
}

#[test]
fn a_dirty_array_is_resynced_and_is_clean_behind_it() {
    let array = Array::create_with("tank", RAID_5, "16M", &["--consistency", "resync"]);
    for slot in 0..RAID_5.members {
        array.patch_superblock(slot, 208, &0_u64.to_le_bytes(), true);
    }
    spoil(&array, 1, 0xa5);
    let mut served = array.serve_with(&["--jobs", "paused"], &array.members);
    let text = said(&array, &["status"]).stdout;
    assert!(text.contains("resyncing does not begin, because jobs are paused"), "{text}");
    assert_eq!(refused(&array, &["check", "tank"], "B044", 12), "braid resume tank");
    let command = refused(&array, &["wait", "tank", "--for", "idle"], "B044", 12);
    typed(&array, &command);
    let idle = done(&array, &["wait", "tank", "--for", "idle"]);
    assert_eq!(
        (&idle["dirty"], &idle["last_jobs"][0]["kind"]),
        (&false.into(), &"resync".into()),
        "{idle}"
    );
    assert_eq!(done(&array, &["check", "tank"])["check"]["differing_sectors"], 0);
    let stopped = done(&array, &["stop", "tank"]);
    assert_eq!(stopped["clean"], true, "{stopped}");
    served.wait();
}

#[test]
fn a_check_that_finds_something_says_so_until_another_finds_nothing() {
    let array = Array::create(RAID_5);
    let served = array.serve();
    let checked = done(&array, &["check", "tank"]);
    check("Checked", &checked);
    assert_eq!(checked["check"]["differing_sectors"], 0);
    let text = said(&array, &["check", "tank"]);
    assert!(
        text.stdout.starts_with("checked tank: ") && text.stdout.ends_with("all of it agrees\n"),
        "{text:?}"
    );
    assert_eq!(text.stderr, "", "no progress where there is no terminal");
    spoil(&array, 2, 0xa5);
    let ran = array.braid(&["check", "tank"], &[]);
    let found = json(&ran);
    check("Checked", &found);
    assert_eq!(
        (ran.status.code(), &found["check"]["differing_sectors"]),
        (Some(3), &8.into()),
        "{ran:?}"
    );
    let text = said(&array, &["status", "-x"]).stdout;
    for part in
        ["8 sectors (4 KiB) of redundancy did not agree", "nothing was written", "braid check tank"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Starts a check without waiting for its end, then waits with `wait`.
    let asked = done(&array, &["check", "tank", "--detach"]);
    check("JobsAnswer", &asked);
    assert_eq!(asked["effect"], "begins");
    let waited = array.braid(&["wait", "tank", "--for", "check"], &[]);
    // The check may already have ended when `wait` begins.
    assert!(matches!(waited.status.code(), Some(0 | 3)), "{waited:?}");
    // Zeroes the spoiled sectors, as they were: the members are new files of zeroes.
    spoil(&array, 2, 0);
    typed(&array, "braid check tank");
    assert_eq!(said(&array, &["status", "-x"]).stdout, "tank is healthy\n");
    served.stop();
}

/// While the array is served, chunks of 64 KiB become wrong, each in another row and on another
/// member.
#[test]
fn a_check_names_the_member_that_is_rotten_and_a_repair_mends_it() {
    const CHUNK: u64 = 64 * 1024;
    const CHUNK_LENGTH: usize = 64 * 1024;
    let shape = Shape { members: 6, ..RAID_6 };
    let array = Array::create(shape);
    let examined = json(&array.braid(&["examine"], &array.members[..1]));
    let offset = data_offset_bytes(&examined).unwrap_or_else(|| panic!("{examined}"));
    let bytes = |seed: u64| -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[0]
        };
        (0..CHUNK).map(|_| next()).collect()
    };
    let open = |slot: usize| {
        let member = std::fs::OpenOptions::new().read(true).write(true).open(&array.members[slot]);
        member.expect("a member")
    };
    let read = |slot: usize| {
        let mut held = vec![0; 40 * CHUNK_LENGTH];
        open(slot).read_exact_at(&mut held, offset).expect("its data");
        held
    };
    let right: Vec<Vec<u8>> = (0..6).map(read).collect();
    let spoil = |slot: usize, row: u64| {
        let garbage = bytes(row * 7 + slot as u64);
        open(slot).write_all_at(&garbage, offset + row * CHUNK).expect("a member");
    };
    let served = array.serve();
    // Each slot's member is wrong in one row: as P, Q, data, data, P, Q.
    let rotten: Vec<(usize, u64)> = (0..6).zip([5, 11, 13, 18, 19, 25]).collect();
    rotten.iter().for_each(|&(slot, row)| spoil(slot, row));
    let ran = array.braid(&["check", "tank"], &[]);
    let checked = json(&ran);
    check("Checked", &checked);
    assert_eq!(ran.status.code(), Some(3), "{ran:?}");
    let found = &checked["check"]["found"];
    assert_eq!((&found["located_sectors"], &found["repaired_sectors"]), (&768.into(), &0.into()));
    let runs = found["runs"].as_array().expect("a list");
    let places: Vec<(u64, u64, u64)> = runs
        .iter()
        .map(|run| {
            let number = |name: &str| run[name].as_u64().unwrap_or_else(|| panic!("{name}: {run}"));
            assert_eq!(run["array_offset_bytes"].is_u64(), run["kind"] == "data", "{run}");
            (number("slot"), number("member_offset_bytes"), number("length_bytes"))
        })
        .collect();
    let expected: Vec<(u64, u64, u64)> =
        rotten.iter().map(|&(slot, row)| (slot as u64, row * CHUNK, CHUNK)).collect();
    assert_eq!(places, expected);
    let text = said(&array, &["status", "-x"]).stdout;
    assert!(text.contains("braid check tank --repair"), "{text}");
    let repaired = said(&array, &["check", "tank", "--repair"]);
    assert_eq!(repaired.status.code(), Some(3), "what was found was found: {repaired:?}");
    for part in ["768 sectors (384 KiB) were wrong, and are repaired", "of P at", ": repaired"] {
        assert!(repaired.stdout.contains(part), "{part}: {repaired:?}");
    }
    assert_eq!(said(&array, &["check", "tank"]).status.code(), Some(0));
    assert_eq!(said(&array, &["status", "-x"]).stdout, "tank is healthy\n");
    for (slot, right) in right.iter().enumerate() {
        assert!(read(slot) == *right, "slot {slot} holds what it held");
    }
    let kinds = array.braid(&["history", "tank"], &[]).stdout;
    assert!(kinds.contains("CorruptionLocated") && kinds.contains("CorruptionRepaired"), "{kinds}");
    // Two slots are wrong in one row: the check cannot tell which.
    [1, 4].into_iter().for_each(|slot| spoil(slot, 9));
    let ran = array.braid(&["check", "tank", "--repair"], &[]);
    let found = &json(&ran)["check"]["found"];
    assert_eq!((ran.status.code(), &found["ambiguous_sectors"]), (Some(3), &128.into()), "{ran:?}");
    assert_eq!((&found["located_sectors"], &found["runs"][0]["slot"]), (&0.into(), &Value::Null));
    assert_eq!(found["runs"][0]["candidate_slots"].as_array().map(Vec::len), Some(6));
    assert!(read(1)[9 * CHUNK_LENGTH..][..CHUNK_LENGTH] == bytes(9 * 7 + 1), "left as it is");
    served.stop();
}

/// Finds the field `data_offset_bytes` at any depth of `examine`'s JSON.
fn data_offset_bytes(value: &Value) -> Option<u64> {
    match value {
        Value::Object(fields) => {
            let here = fields.get("data_offset_bytes").and_then(Value::as_u64);
            here.or_else(|| fields.values().find_map(data_offset_bytes))
        }
        Value::Array(items) => items.iter().find_map(data_offset_bytes),
        _ => None,
    }
}

fn spawn_check(array: &Array) -> Child {
    let words = array.command_line(&["check", "tank"], &[])[1..].to_vec();
    let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
    command.args(words).env("BRAID_RUNTIME_DIR", array.path("run"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("braid starts")
}

fn ended(child: Child) -> Ran {
    let output = child.wait_with_output().expect("our own child");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Ran { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[test]
fn a_check_goes_on_without_the_one_who_asked_and_ends_when_told_to() {
    let array = Array::create_sized(RAID_5, "4G");
    let served = array.serve();
    let (one, other) = (spawn_check(&array), spawn_check(&array));
    let job = || status(&array, "tank")["jobs"][0].clone();
    wait_until("a check", LIMIT, || job()["kind"] == "check");
    let paused = said(&array, &["pause", "tank"]);
    assert_eq!(paused.stdout, "checking tank is paused; resume it with  braid resume tank\n");
    assert_eq!(said(&array, &["pause", "tank"]).stdout, "jobs of tank are paused already\n");
    assert_eq!(job()["state"], "paused");
    let text = said(&array, &["status", "tank"]).stdout;
    assert!(text.contains("paused, go on with  braid resume tank"), "{text}");
    let id = i32::try_from(one.id()).ok().and_then(Pid::from_raw).expect("a process");
    // Both check requests have arrived by now: the check runs, and both commands wait for its end.
    std::thread::sleep(Duration::from_secs(1));
    kill_process(id, Signal::INT).expect("our own child");
    let one = ended(one);
    assert_eq!(one.status.code(), Some(130), "{one:?}");
    assert!(one.stderr.contains("the check of tank goes on"), "{one:?}");
    assert_eq!(job()["kind"], "check", "it is there still");
    let command = one.stderr.trim().rsplit("  ").next().expect("a command").to_owned();
    assert_eq!(command, "braid check tank --end");
    let dry = done(&array, &["check", "tank", "--end", "-n"]);
    assert_eq!((&dry["effect"], job()["kind"].as_str()), (&"ends".into(), Some("check")));
    assert_eq!(typed(&array, &command), "the check of tank ends\n");
    let other = ended(other);
    assert_eq!(other.status.code(), Some(1), "{other:?}");
    assert!(other.stderr.contains("error[B047]"), "{other:?}");
    assert_eq!(said(&array, &["check", "tank", "--end"]).stdout, "tank is not being checked\n");
    let last = status(&array, "tank")["last_jobs"][0].clone();
    assert_eq!((&last["kind"], &last["result"]), (&"check".into(), &"interrupted".into()));
    assert_eq!(said(&array, &["resume", "tank"]).status.code(), Some(0));
    assert_eq!(said(&array, &["resume", "tank"]).stdout, "jobs of tank were not paused\n");
    served.stop();
}

#[test]
fn what_jobs_cannot_do_is_refused_with_what_to_type() {
    let array = Array::create(RAID_0);
    let served = array.serve();
    for words in [["check", "tank"], ["pause", "tank"], ["resume", "tank"], ["rebuild", "tank"]] {
        let command = refused(&array, &words, "B042", 12);
        typed(&array, &command);
    }
    let text = said(&array, &["status", "tank"]).stdout;
    assert!(!text.contains("check"), "there is none: {text}");
    served.stop();

    let array = Array::create(RAID_5);
    let mut served = array.serve();
    assert_eq!(
        refused(&array, &["wait", "tank", "--for", "degraded", "--timeout", "1"], "B086", 1),
        "braid status tank"
    );
    served.lose(&array, 3);
    done(&array, &["wait", "tank", "--for", "degraded", "--timeout", "20"]);
    for (words, code) in [
        (&["check", "tank"][..], "B043"),
        (&["rebuild", "tank"], "B046"),
        (&["wait", "tank", "--for", "rebuild"], "B046"),
    ] {
        let command = refused(&array, words, code, 12);
        typed(&array, &command);
    }
    served.stop();
    let mut served = array.serve_with(&["--read-only"], &array.present());
    let command = refused(&array, &["check", "tank"], "B048", 12);
    assert_eq!(command, "braid stop tank");
    typed(&array, &command);
    assert!(served.wait().success());
}

#[test]
fn jobs_are_paused_by_a_setting_as_well_and_only_looked_at() {
    let array = Array::create(RAID_1);
    let served = array.serve();
    let setting = || said(&array, &["get", "tank", "jobs"]).stdout;
    assert_eq!(setting(), "on\n");
    assert_eq!(done(&array, &["pause", "tank", "-n"])["effect"], "pauses");
    assert_eq!(setting(), "on\n", "a dry run changes nothing");
    done(&array, &["set", "tank", "jobs=paused"]);
    assert_eq!(
        (setting().as_str(), &status(&array, "tank")["jobs_paused"]),
        ("paused\n", &true.into())
    );
    done(&array, &["rebuild", "tank"]);
    assert_eq!(setting(), "on\n");
    done(&array, &["pause", "tank"]);
    assert_eq!(setting(), "paused\n");
    assert_eq!(said(&array, &["set", "tank", "jobs=maybe"]).status.code(), Some(2));
    served.stop();
}
