//! A confined server serves, takes devices as descriptors, and has its hooks run, no more.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::kit::{
    Array, RAID_5, RAID_6, SECCOMP, ServerProcess, Shape, needs, random_bytes, wait_until,
};
use crate::remedies::{error_of, words_of};
use crate::two_writers::Loops;

const PATIENCE: Duration = Duration::from_secs(60);

/// Serves the array with the strictest confinement.
fn served(array: &Array, more: &[&str]) -> ServerProcess {
    array.serve_with(&[&["--confine", "full"], more].concat(), &array.present())
}

fn ok(array: &Array, words: &[&str]) -> Value {
    let ran = array.braid(words, &[]);
    assert!(ran.status.success(), "{words:?}: {ran:?}");
    ran.stdout.lines().last().map_or(Value::Null, |line| serde_json::from_str(line).expect("JSON"))
}

fn status(array: &Array) -> Value {
    ok(array, &["status", "tank"])["arrays"][0].clone()
}

/// The value of a line in a thread's `/proc` status.
fn of_thread(folder: &Path, key: &str) -> String {
    let text = std::fs::read_to_string(folder.join("status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.unwrap_or_default().trim_start_matches(':').trim().to_owned()
}

#[test]
fn a_confined_server_serves_and_can_do_nothing_else() {
    needs!("nbdcopy");
    let array = Array::create(RAID_6);
    let server = served(&array, &[]);
    let confined = status(&array)["confined"].clone();
    assert_eq!(confined, json!(["files", "system-calls", "capabilities"]));
    let bytes = random_bytes(7, server.length());
    server.write_all(&array, &bytes);
    assert!(server.read_all(&array) == bytes);
    // Checks every thread of the server, from before the confinement and from after.
    let tasks = format!("/proc/{}/task", server.process_id());
    let tasks = std::fs::read_dir(tasks).expect("it runs").flatten();
    let threads: Vec<_> = tasks.map(|task| task.path()).collect();
    assert!(threads.len() > 5, "{threads:?}");
    for thread in &threads {
        let facts = ["Seccomp", "NoNewPrivs", "CapEff", "CapPrm", "CapBnd"]
            .map(|key| of_thread(thread, key));
        if facts[0].is_empty() {
            // The thread has ended since the folder was listed.
            continue;
        }
        let none = "0000000000000000";
        assert_eq!(facts, ["2", "1", none, none, none], "{}", of_thread(thread, "Name"));
    }
    server.stop();
}

#[test]
fn devices_are_handed_over_and_failed_ones_come_back() {
    needs!("nbdcopy");
    let array = Array::create(RAID_5);
    let server = served(&array, &[]);
    let bytes = random_bytes(8, server.length());
    server.write_all(&array, &bytes);
    // The new devices are in a folder that the server does not know.
    let elsewhere = tempfile::tempdir().expect("a folder");
    let new = |name: &str| {
        let path = elsewhere.path().join(name);
        std::fs::File::create(&path).and_then(|file| file.set_len(16 << 20)).expect("a file");
        path.display().to_string()
    };
    let (spare, other, third) = (new("spare"), new("other"), new("third"));
    let would = ok(&array, &["add", "tank", &spare, "-n"]);
    assert_eq!(would["members"][0]["effect"], "waits", "{would}");
    ok(&array, &["add", "tank", &spare]);
    ok(&array, &["fail", "tank", "1"]);
    ok(&array, &["wait", "tank", "--for", "rebuild"]);
    assert_eq!(status(&array)["slots"][1]["member"], spare.as_str());
    // The server may reopen devices that it had when it started.
    let first = array.members[1].display().to_string();
    ok(&array, &["add", "tank", &first]);
    ok(&array, &["remove", "tank", &first]);
    ok(&array, &["replace", "tank", "2", "--with", &other]);
    ok(&array, &["wait", "tank", "--for", "rebuild"]);
    assert_eq!(status(&array)["slots"][2]["member"], other.as_str());
    // The server still has the failed device open, so `add` is refused: the `braid` command can
    // open the device only after its removal.
    ok(&array, &["fail", "tank", &other]);
    let refused = array.braid(&["add", "tank", &other], &[]);
    let problem: Value = serde_json::from_str(refused.stdout.trim()).expect("JSON");
    assert_eq!((refused.status.code(), &problem["code"]), (Some(11), &"B061".into()), "{problem}");
    ok(&array, &["remove", "tank", &other]);
    ok(&array, &["add", "tank", &other, &third]);
    ok(&array, &["wait", "tank", "--for", "rebuild"]);
    assert!(server.read_all(&array) == bytes);
    // The lock on a device that was sent to the server keeps out a second writer.
    let second = array.braid(&["serve", &other], &[]);
    assert!(second.stdout.contains("B061"), "{second:?}");
    let missing = array.braid(&["add", "tank", "/nonexistent/disk"], &[]);
    assert!(missing.stdout.contains("B050"), "{missing:?}");
    let file = array.path("tank.bitmap").display().to_string();
    let refused = array.braid(&["set", "tank", &format!("bitmap-file={file}")], &[]);
    assert!(refused.stdout.contains("B098"), "{refused:?}");
    server.stop();
}

#[test]
fn hooks_run_and_the_service_manager_hears() {
    let array = Array::create(RAID_6);
    let hook = array.path("hook");
    let command =
        format!("umask >> '{0}'; cat /etc/passwd > /dev/null && cat >> '{0}'", hook.display());
    let socket = array.path("notify");
    let manager = UnixDatagram::bind(&socket).expect("a socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let setup = format!("export NOTIFY_SOCKET='{}' WATCHDOG_USEC=400000", socket.display());
    let options = ["--confine", "full", "--on-event", &command];
    let mut server = ServerProcess::start_under(&setup, &array, &options, &array.members);
    let hears = |wanted: &str| {
        let mut words = [0; 4096];
        loop {
            let length = manager.recv(&mut words).expect("the server says something");
            if String::from_utf8_lossy(&words[..length]).contains(wanted) {
                return;
            }
        }
    };
    hears("READY=1");
    for _ in 0..3 {
        hears("WATCHDOG=1");
    }
    server.lose(&array, 1);
    wait_until("the hook to hear of it", PATIENCE, || {
        std::fs::read_to_string(&hook).is_ok_and(|text| text.contains("\"Fail\""))
    });
    server.stop();
    let told = std::fs::read_to_string(&hook).expect("a file");
    assert!(told.contains("\"ArrayStopped\""), "the last event is delivered: {told}");
    assert!(told.starts_with("0022\n"), "the umask of its parent: {told}");
}

#[test]
fn what_cannot_be_confined_says_so() {
    let array = Array::create(RAID_5);
    let members = &array.members;
    for option in
        [&["--run", "true"][..], &["--spare-group", "a"], &["--fuse", "disk"], &["--ublk"]]
    {
        let words = [&["serve", "--confine", "full"], option].concat();
        let refused = array.refused(&words, members);
        refused.is("B097", 12);
        let cause = refused.json["cause"].as_str().expect("a cause");
        assert!(cause.contains(option[0]), "{cause}");
        let chosen = [("MEMBER...", &*words_of(members))];
        array.follow_with(&refused.json, "Confine it as far as possible", &chosen);
    }
    let server = array.serve_with(&["--confine", "auto", "--spare-group", "a"], members);
    assert_eq!(status(&array)["confined"], json!(["system-calls", "capabilities"]));
    server.stop();
    let server = array.serve_with(&["--confine", "off"], members);
    assert_eq!(status(&array)["confined"], json!([]));
    server.stop();
}

#[test]
fn what_the_system_refuses_is_said_with_how_to_serve_all_the_same() {
    let array = Array::create(RAID_5);
    let chosen = [("MEMBER...", &*words_of(&array.members))];
    // The `seccomp` system call fails with EPERM.
    let words = ["serve", "--confine", "full"];
    if let Some(ran) = array.braid_denied((SECCOMP, 1), &words) {
        let error = error_of(&ran);
        assert_eq!(error["code"], "B097", "{error}");
        array.follow_with(&error, "Serve without", &chosen);
    }
    // The state folder cannot be made: a file has its place.
    let words = ["--json", "--state-dir", "m0/state", "serve", "--confine", "full"];
    let error = error_of(&array.type_line(&format!("braid {} {}", words.join(" "), chosen[0].1)));
    assert_eq!(error["code"], "B080", "{error}");
    let chosen = [chosen[0], ("FOLDER", "elsewhere")];
    array.follow_with(&error, "Name another one", &chosen);
}

/// The command line sends the server the devices that it names; another client may not.
#[test]
fn a_device_that_was_not_handed_over_is_refused_with_who_uses_it() {
    needs!("curl", "fuser");
    let array = Array::create(RAID_5);
    let server = served(&array, &[]);
    let elsewhere = tempfile::NamedTempFile::new().expect("a file");
    let post = |descriptors: &[u16]| {
        let wanted =
            json!({ "request": "add", "members": [elsewhere.path()], "descriptors": descriptors })
                .to_string();
        let control = array.path("run/tank.control").display().to_string();
        let post = ["-sS", "--unix-socket", &control, "-H", "content-type: application/json"];
        let words = [&post[..], &["-d", &wanted, "http://braid/v1/members"]].concat();
        serde_json::from_str::<Value>(&crate::kit::ok("curl", words)).expect("JSON")
    };
    let error = post(&[]);
    assert_eq!(error["code"], "B098", "{error}");
    // The test process has the device open.
    let users = array.follow(&error, "See who uses it").stdout;
    assert!(users.contains(&std::process::id().to_string()), "{users}");
    let error = post(&[1]);
    assert_eq!(error["code"], "B001", "{error}");
    array.follow(&error, "Let braid send it");
    server.stop();
}

#[test]
fn members_of_another_user_cost_a_capability_and_that_is_told() {
    if !rustix::process::geteuid().is_root() {
        crate::kit::skip(crate::kit::Need::Other, "another user's file is opened by root");
        return;
    }
    let array = Array::create(Shape { level: "1", members: 2, lost_max: 1 });
    for member in &array.members {
        std::os::unix::fs::chown(member, Some(65534), Some(65534)).expect("root may");
    }
    array.refused(&["serve", "--confine", "full"], &array.members).is("B097", 12);
    let server = array.serve_with(&["--confine", "auto"], &array.members);
    assert_eq!(status(&array)["confined"], json!(["files", "system-calls"]));
    server.stop();
}

#[test]
fn block_devices_are_held_with_what_is_below_and_handed_over_so() {
    needs!("losetup", "nbdcopy");
    let array = Array::create(RAID_5);
    let Some(loops) = Loops::over(&array.members) else { return };
    let server = array.serve_with(&["--confine", "full"], &loops.0);
    let bytes = random_bytes(9, server.length());
    server.write_all(&array, &bytes);
    // Checks that `file` is locked, although the server got only the right to read it.
    let locked = |file: &Path| {
        let refused = array.braid(&["serve"], &[file.to_path_buf()]);
        assert!(refused.stdout.contains("B061"), "{refused:?}");
    };
    locked(&array.members[0]);
    let file = array.path("new");
    std::fs::File::create(&file).and_then(|file| file.set_len(16 << 20)).expect("a file");
    let Some(new) = Loops::over(std::slice::from_ref(&file)) else { return };
    let device = new.0[0].display().to_string();
    ok(&array, &["replace", "tank", "0", "--with", &device]);
    ok(&array, &["wait", "tank", "--for", "rebuild"]);
    locked(&file);
    let answer = ok(&array, &["status", "tank"]);
    assert_eq!(answer["arrays"][0]["slots"][0]["member"], device.as_str(), "{answer}");
    assert!(server.read_all(&array) == bytes);
    server.stop();
}
