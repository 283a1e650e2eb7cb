//! Remedies of a running array, typed unchanged: members, jobs, clients of the control socket.
//!
//! `remedies` covers refusals before an array is running.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::control::{json as json_of, status};
use crate::jobs::done;
use crate::kit::{
    Array, Background, Client, Fail, FaultFs, FileOp, Hang, Mount, Need, RAID_1, RAID_5, RAID_6,
    ServerProcess, Shape, needs, note, offered, ok, skip, wait_until,
};
use crate::members::{MEMBER_BYTES, blank, text, wait_for_rebuild};
use crate::remedies::{error_of, refusal};

const PATIENCE: Duration = Duration::from_secs(30);

/// Offset in a superblock 1.x of the bad-block log's shift, length and place.
const LOG_AT: usize = 185;
/// Bytes of the log's fields at `LOG_AT`: shift, length and place.
const LOG_LENGTH: usize = 7;

/// A served array, and spare devices.
fn beside(shape: Shape) -> (Array, ServerProcess, PathBuf, PathBuf) {
    let array = Array::create(shape);
    let served = array.serve();
    let [new, other] = ["new", "other"].map(|name| blank(&array, name, MEMBER_BYTES));
    (array, served, new, other)
}

fn slots(array: &Array) -> Vec<Value> {
    status(array, "tank")["slots"].as_array().expect("rows").clone()
}

fn has(array: &Array, member: &Path, state: &str) -> bool {
    slots(array).iter().any(|row| row["member"] == text(member) && row["state"] == state)
}

/// Stops the progress of jobs, by a ceiling of zero.
fn stand_still(array: &Array) {
    done(array, &["set", "tank", "job-ceiling=0B"]);
}

fn go_on(array: &Array) {
    done(array, &["set", "tank", "job-ceiling=none"]);
}

fn files(array: &Array) -> Option<FaultFs> {
    let files = Mount::is_possible().then(|| FaultFs::over(&array.members)).flatten();
    if files.is_none() {
        skip(Need::Fuse, "no FUSE can be mounted here");
    }
    files
}

#[test]
fn a_member_in_use_is_taken_away_by_the_command_that_is_offered() {
    let (array, served, new, _) = beside(RAID_6);
    done(&array, &["fail", "tank", "1"]);
    let error = refusal(&array, &["remove", "tank", "0"], &[]);
    array.follow(&error, "Remove the one that failed");
    assert_eq!(slots(&array)[1]["state"], "missing");
    let error = refusal(&array, &["remove", "tank", "0"], &[]);
    array.follow(&error, "Let it fail first; the array loses its protection");
    assert_eq!(slots(&array)[0]["state"], "missing");
    // The array is degraded, and has no spare.
    let error = refusal(&array, &["rebuild", "tank"], &[]);
    let chosen = [("DEVICE", text(&new))];
    array.follow_with(&error, "Put a device in its place", &chosen);
    wait_until("the device to be rebuilt", PATIENCE, || has(&array, &new, "ok"));
    served.stop();
}

#[test]
fn a_replacement_that_is_under_way_is_ended_or_waited_for_by_the_commands_that_are_offered() {
    let (array, served, new, other) = beside(RAID_5);
    let error = refusal(&array, &["replace", "tank", "1"], &[]);
    stand_still(&array);
    array.follow_with(&error, "Name a device", &[("DEVICE", text(&new))]);
    wait_until("a replacement", PATIENCE, || has(&array, &new, "filling"));
    let again = ["replace", "tank", "1", "--with", text(&other)];
    let error = refusal(&array, &again, &[]);
    array.follow(&error, "To use another one, end that first");
    done(&array, &["remove", "tank", text(&new)]);
    done(&array, &again);
    wait_until("another one", PATIENCE, || has(&array, &other, "filling"));
    let error = refusal(&array, &["remove", "tank", text(&other)], &[]);
    array.follow(&error, "End that, and remove it");
    assert!(!slots(&array).iter().any(|row| row["member"] == text(&other)));
    done(&array, &["replace", "tank", "1", "--with", text(&new)]);
    wait_until("a replacement", PATIENCE, || has(&array, &new, "filling"));
    let error = refusal(&array, &again, &[]);
    go_on(&array);
    array.follow(&error, "Wait for its end");
    assert_eq!(slots(&array)[1]["member"], text(&new));
    served.stop();
}

#[test]
fn a_member_that_cannot_be_replaced_is_dealt_with_by_the_command_that_is_offered() {
    let (array, served, new, other) = beside(RAID_5);
    // The member has failed.
    stand_still(&array);
    done(&array, &["fail", "tank", "1"]);
    let error = refusal(&array, &["replace", "tank", "1", "--with", text(&new)], &[]);
    array.follow(&error, "Add another in its place, which is rebuilt");
    wait_until("a rebuild", PATIENCE, || has(&array, &new, "recovering"));
    // The member is recovering.
    let error = refusal(&array, &["replace", "tank", text(&new), "--with", text(&other)], &[]);
    go_on(&array);
    array.follow(&error, "Wait until it is rebuilt");
    assert!(has(&array, &new, "ok"));
    // The device is a spare.
    done(&array, &["spare", "tank", text(&other)]);
    let error = refusal(&array, &["replace", "tank", text(&other)], &[]);
    array.follow(&error, "Remove it");
    assert!(!has(&array, &other, "waiting"));
    served.stop();
}

#[test]
fn a_path_that_is_not_text_is_named_by_the_link_that_is_offered() {
    let (array, served, ..) = beside(RAID_1);
    let odd = array.path("").join(OsStr::from_bytes(b"odd\xff"));
    std::fs::rename(array.path("new"), &odd).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
    command.args(array.command_line(&["spare", "tank"], &[])).arg(&odd);
    command.env("BRAID_RUNTIME_DIR", array.runtime());
    let error = error_of(&Background::spawn_command(command, "").wait());
    let chosen = [("PATH", "odd*"), ("NAME", "link")];
    array.follow_with(&error, "Name it by a link in UTF-8; first make the link", &chosen);
    done(&array, &["spare", "tank", text(&array.path("link"))]);
    assert!(has(&array, &array.path("link"), "waiting"));
    served.stop();
}

/// DNS rebinding: the name of a foreign page resolves to this machine, at a port forwarded to the
/// socket.
#[test]
fn a_web_page_elsewhere_is_told_the_way_that_there_is() {
    needs!("curl");
    let array = Array::create(RAID_1);
    let served = array.serve();
    let control = array.path("run/tank.control");
    let json = "content-type: application/json";
    for header in ["host: evil.example", "origin: http://evil.example"] {
        let post = ["-sS", "--unix-socket", text(&control), "-H", json, "-H", header];
        let words = [&post[..], &["-X", "POST", "http://braid/v1/stop"]].concat();
        let error: Value = serde_json::from_str(&ok("curl", words)).expect("JSON");
        assert_eq!(error["code"], "B118", "{error}");
        array.follow(&error, "Ask at the socket");
    }
    served.stop();
}

/// The command line sends absolute paths of devices; other clients may send relative paths.
#[test]
fn a_path_that_does_not_say_where_it_is_is_found_by_the_command_that_is_offered() {
    needs!("curl");
    let (array, served, new, _) = beside(RAID_1);
    let control = array.path("run/tank.control");
    let wanted = json!({ "request": "add", "members": ["new"] }).to_string();
    let post = ["-sS", "--unix-socket", text(&control), "-H", "content-type: application/json"];
    let words = [&post[..], &["-d", &wanted, "http://braid/v1/members"]].concat();
    let error: Value = serde_json::from_str(&ok("curl", words)).expect("JSON");
    let found = array.follow(&error, "Where it is").stdout;
    assert_eq!(Path::new(found.trim()), new.canonicalize().expect("it is there"));
    served.stop();
}

#[test]
fn a_member_that_did_not_answer_is_taken_away_when_it_has() {
    let mut array = Array::create(RAID_5);
    let Some(files) = files(&array) else { return };
    array.members = files.files();
    let served = array.serve_with(&["--io", "threads"], &array.members);
    let let_go = files.let_go_at_end();
    let mut client = Client::connect(&served.socket, PATIENCE);
    // This write makes the superblocks say active.
    client.write(0, &[7; 4096]);
    client.flush();
    files.hang(1, Hang::Both);
    (0..64).for_each(|index| client.ask_write(index, index << 16, &[7; 4096]));
    wait_until("something to hang", PATIENCE, || files.held() > 0);
    done(&array, &["fail", "tank", "1"]);
    let error = refusal(&array, &["remove", "tank", "1"], &[]);
    assert_eq!(error["code"], "B056", "{error}");
    drop(let_go);
    (0..64).for_each(|_| assert!(client.hear().is_some()));
    let is_silent = || refusal_or_none(&array, &["remove", "tank", "1", "-n"]).is_some();
    wait_until("it to answer", PATIENCE, || !is_silent());
    array.follow(&error, "Try again when it has answered");
    assert_eq!(slots(&array)[1]["state"], "missing");
    drop(client);
    served.stop();
}

fn refusal_or_none(array: &Array, words: &[&str]) -> Option<Value> {
    let ran = array.braid(words, &[]);
    (!ran.status.success()).then(|| error_of(&ran))
}

#[test]
fn a_stop_that_was_given_up_says_how_to_see_whether_the_member_answers_again() {
    let mut array = Array::create(RAID_5);
    let Some(files) = files(&array) else { return };
    array.members = files.files();
    let options = ["--io", "threads", "--stop-patience", "1", "--away-after-ms", "never"];
    let mut served = array.serve_with(&options, &array.members);
    let let_go = files.let_go_at_end();
    let mut client = Client::connect(&served.socket, PATIENCE);
    files.hang(1, Hang::Both);
    (0..64).for_each(|index| client.ask_write(index, index << 16, &[7; 4096]));
    wait_until("something to hang", PATIENCE, || files.held() > 0);
    served.signal(Signal::TERM);
    wait_until("the stop to be given up", PATIENCE, || served.error().is_some());
    let error = served.error().expect("just seen");
    drop(let_go);
    served.wait();
    let looked = array.follow(&error, "See whether it answers again");
    assert!(looked.stdout.contains("tank"), "{looked:?}");
    array.serve().stop();
}

/// Recovery notes uncomputable sectors in the target's bad-block log; this target has no such log.
#[test]
fn a_rebuild_that_could_not_be_finished_is_tried_again_by_the_command_that_is_offered() {
    let shape = Shape { members: RAID_5.members + 1, ..RAID_5 };
    let mut array = Array::create_with("tank", shape, "16M", &["--spare", "1"]);
    array.patch_superblock(RAID_5.members, LOG_AT, &[0; LOG_LENGTH], true);
    let Some(files) = files(&array) else { return };
    array.members = files.files();
    let served = array.serve();
    let bytes = 8 << 20..9 << 20;
    files.fail(2, Fail { file_op: FileOp::Read, bytes, errno: 5 });
    done(&array, &["fail", "tank", "0"]);
    let mut error = None;
    wait_until("the rebuild to be given up", PATIENCE, || {
        error = refusal_or_none(&array, &["wait", "tank", "--for", "rebuild", "--timeout", "20"]);
        error.is_some()
    });
    let error = error.expect("just seen");
    let checked = refusal(&array, &["check", "tank"], &[]);
    assert_eq!((&error["code"], &checked["code"]), (&"B045".into(), &"B045".into()));
    files.let_go();
    array.follow(&checked, "Try it again");
    wait_for_rebuild(&array);
    served.stop();
}

#[test]
fn a_word_that_means_no_array_is_answered_with_one_that_does() {
    let array = Array::create(RAID_1);
    let control = array.path("nbd.control");
    let served = array.serve_with(&["--control", text(&control)], &array.members);
    // The path given to `status` is that of the NBD socket.
    let error = refusal(&array, &["status", text(&served.socket)], &[]);
    let there = array.follow(&error, "Ask the control socket beside it");
    assert!(there.stdout.contains("tank"), "{there:?}");
    // The name given to `status` is that of a file in this folder.
    let error = error_of(&array.type_line("braid --json status nbd.control"));
    let there = array.follow(&error, "Ask the socket of that name");
    assert!(there.stdout.contains("tank"), "{there:?}");
    served.stop();
    let served = array.serve();
    for (words, label) in [
        (&["get", "tank", "nothing"][..], "See all settings"),
        (&["help", "nothing"], "See the verbs"),
        (&["history", "--since", "yesterday"], "See the last day"),
    ] {
        array.follow(&refusal(&array, words, &[]), label);
    }
    served.kill();
    let error = refusal(&array, &["status", "tank"], &[]);
    let again = array.follow(&error, "Serve it again");
    assert!(again.stdout.contains("\"clean\":true"), "{again:?}");
}

#[test]
fn top_without_a_terminal_is_looked_at_by_the_commands_that_are_offered() {
    needs!("script", "setsid", "timeout");
    let array = Array::create(RAID_1);
    let served = array.serve();
    let error = refusal(&array, &["top", "tank"], &[]);
    let twice = array.follow(&error, "Sample twice, and end");
    assert_eq!(json_of(&twice)["arrays"].as_array().map(Vec::len), Some(1), "{twice:?}");
    // The offered command runs until it is interrupted.
    let label = "Print the state repeatedly";
    let command = offered(&error, label);
    let ran = array.type_line(&format!("timeout -s INT 3 {command}"));
    assert!(ran.stdout.contains("\"tank\"") && ran.stderr.is_empty(), "{ran:?}");
    note(label);
    // The standard input is no terminal, and the process has no controlling terminal.
    let shown =
        array.type_line("NO_COLOR=1 script -qec 'setsid -w braid top tank < /dev/null' /dev/null");
    let label = "See the same as text";
    let mut lines = shown.stdout.lines().map(str::trim);
    let command = lines.find_map(|line| line.strip_prefix(label)?.strip_prefix(":  "));
    let command = command.unwrap_or_else(|| panic!("{shown:?}"));
    let error = json!({ "remedies": [{ "label": label, "command": command }] });
    let text = array.follow(&error, label);
    assert!(text.stdout.contains("tank"), "{text:?}");
    served.stop();
}
