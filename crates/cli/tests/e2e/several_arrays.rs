//! Two arrays in one server: separate names, separate states.

use rustix::process::Signal;
use serde_json::Value;

use crate::kit::{Array, RAID_1, RAID_5, ServerProcess, needs, note, offered, ok, run, wait_until};
use crate::remedies::words_of;

use std::path::PathBuf;
use std::time::Duration;

/// Two arrays with a common runtime folder, and all their members.
fn two() -> (Array, Array, Vec<PathBuf>) {
    let tank = Array::create_named("tank", RAID_5, "16M");
    let pool = Array::create_named("pool", RAID_1, "24M").found_with(&tank);
    // Members are mixed, as the disks of /dev/sd* are.
    let members = [&tank.members[..2], &pool.members[..], &tank.members[2..]].concat();
    (tank, pool, members)
}

fn at(served: &ServerProcess, name: &str) -> String {
    format!("nbd+unix:///{name}?socket={}", served.socket.display())
}

fn serving(served: &ServerProcess) -> usize {
    served.events("serving").len()
}

fn wait_for_both(served: &ServerProcess) {
    wait_until("both to be served", Duration::from_secs(30), || serving(served) == 2);
}

fn size(served: &ServerProcess, name: &str) -> u64 {
    ok("nbdinfo", ["--size", &at(served, name)]).trim().parse().expect("a size")
}

fn status(array: &Array, name: &str) -> Value {
    let json = array.braid(&["status", name], &[]).stdout;
    let status: Value =
        serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}"));
    status["arrays"][0].clone()
}

#[test]
fn both_are_listed_and_hold_their_own_bytes() {
    needs!("nbdinfo", "qemu-io", "nbdcopy");
    let (tank, _pool, members) = two();
    let served = tank.serve_with(&[], &members);
    wait_for_both(&served);
    let list: Value = serde_json::from_str(&ok("nbdinfo", ["--list", "--json", &served.uri]))
        .expect("nbdinfo prints JSON");
    let exports = list["exports"].as_array().expect("exports");
    let told = |index: usize, key: &str| exports[index][key].as_str().expect("text").to_owned();
    assert_eq!((told(0, "export-name"), told(1, "export-name")), ("tank".into(), "pool".into()));
    assert!(told(0, "description").starts_with("RAID-5 of 4 members, "), "{list}");
    assert!(told(1, "description").starts_with("RAID-1 of 2 members, "), "{list}");
    assert!(size(&served, "tank") != size(&served, "pool"));
    assert_eq!(size(&served, ""), size(&served, "tank"), "the first is the default");
    for (name, byte) in [("tank", 1), ("pool", 2)] {
        let write = format!("write -P {byte} 1M 3M");
        ok("qemu-io", ["-f", "raw", "-c", &write, "-c", "flush", &at(&served, name)]);
    }
    for (name, byte) in [("tank", 1), ("pool", 2)] {
        let read = format!("read -P {byte} 1M 3M");
        let said = ok("qemu-io", ["-f", "raw", "-c", &read, &at(&served, name)]);
        assert!(!said.contains("failed"), "{said}");
        assert_eq!(status(&tank, name)["name"], name);
    }
    assert!(!run("nbdinfo", [at(&served, "other")]).status.success());
    served.stop();
    // Served alone, each array has the data written before.
    let served = tank.serve();
    let said = ok("qemu-io", ["-f", "raw", "-c", "read -P 1 1M 3M", &served.uri]);
    assert!(!said.contains("failed"), "{said}");
    served.stop();
}

#[test]
fn one_fails_and_is_stopped_and_the_other_goes_on() {
    needs!("nbdinfo", "qemu-io");
    let (tank, pool, members) = two();
    let mut served = tank.serve_with(&[], &members);
    wait_for_both(&served);
    let (tank_uri, pool_uri) = (at(&served, "tank"), at(&served, "pool"));
    ok("qemu-io", ["-f", "raw", "-c", "write -P 3 0 1M", &tank_uri]);
    // The mirror loses too many members: its writes fail, and nothing else does.
    for member in &pool.members {
        std::fs::remove_file(member).expect("a member");
    }
    wait_until("the mirror to be lost", Duration::from_secs(30), || {
        run("qemu-io", ["-f", "raw", "-c", "write -P 4 0 1M", &pool_uri]);
        status(&tank, "pool")["state"] == "failed"
    });
    assert!(ok("nbdinfo", ["--list", &served.uri]).contains("failed"));
    ok("qemu-io", ["-f", "raw", "-c", "write -P 5 0 1M", "-c", "flush", &tank_uri]);
    assert_eq!(status(&tank, "tank")["state"], "ok");
    // The mirror alone is stopped, and its export is gone.
    tank.braid(&["stop", "pool"], &[]);
    wait_until("it to be gone", Duration::from_secs(30), || {
        !run("nbdinfo", ["--size", &pool_uri]).status.success()
    });
    assert!(!ok("nbdinfo", ["--list", &served.uri]).contains("pool"));
    let said = ok("qemu-io", ["-f", "raw", "-c", "read -P 5 0 1M", &tank_uri]);
    assert!(!said.contains("failed"), "{said}");
    served.signal(Signal::TERM);
    let status = served.wait();
    assert_eq!(status.code(), Some(3), "one of them did not end in order");
    let stopped = served.events("stopped");
    assert!(stopped.iter().any(|stopped| stopped["in_order"] == true), "{stopped:?}");
}

#[test]
fn the_last_that_is_stopped_ends_the_server() {
    let (tank, _pool, members) = two();
    let mut served = tank.serve_with(&[], &members);
    wait_for_both(&served);
    assert!(tank.braid(&["stop", "tank"], &[]).status.success());
    assert!(tank.braid(&["stop", "pool"], &[]).status.success());
    assert!(served.wait().success());
    assert_eq!(served.events("stopped").len(), 2);
}

#[test]
fn without_a_member_it_has_to_be_meant() {
    needs!("nbdinfo");
    let (tank, pool, members) = two();
    let lacking: Vec<PathBuf> =
        members.iter().filter(|path| **path != pool.members[1]).cloned().collect();
    let to_mean_it = tank.serve_refused(&[], &lacking);
    to_mean_it.is("B033", 12);
    let for_one = tank.serve_refused(&["--fuse", "disk"], &members);
    for_one.is("B033", 12);
    let chosen = [("NAME", "tank"), ("MEMBER...", &*words_of(&members))];
    tank.follow_with(&for_one.json, "Choose one of them", &chosen);
    tank.serve_refused(&["--ublk"], &members).is("B033", 12);
    tank.serve_refused(&["--vhost-user", "machine.sock"], &members).is("B033", 12);
    tank.serve_refused(&["--accept-older"], &members).is("B033", 12);
    let label = "Serve each array as it is";
    let offered = offered(&to_mean_it.json, label);
    assert_eq!(offered, format!("braid serve --all {}", words_of(&lacking)));
    let served = tank.serve_with(&["--all"], &lacking);
    wait_for_both(&served);
    note(label);
    assert!(ok("nbdinfo", ["--list", &served.uri]).contains("degraded"));
    served.stop();
    // If one of the arrays cannot be served, the server reports it, and serves the other array.
    let lacking: Vec<PathBuf> =
        members.iter().filter(|path| !tank.members[..2].contains(path)).cloned().collect();
    let mut served = tank.serve_with(&["--all"], &lacking);
    assert_eq!(serving(&served), 1);
    assert!(served.error().is_some(), "the other is said");
    assert_eq!(size(&served, ""), size(&served, "pool"));
    served.signal(Signal::TERM);
    assert_eq!(served.wait().code(), Some(3));
}
