//! `braid serve --detach`: a server in the background, and the moment when the command returns.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::control::{said, status};
use crate::jobs::{done, refused};
use crate::kit::{Array, RAID_1, RAID_5, needs, ok};

#[test]
fn it_returns_when_clients_may_connect_and_its_log_is_where_status_says() {
    needs!("nbdinfo");
    let array = Array::create(RAID_5);
    let members: Vec<String> =
        array.members.iter().map(|path| path.display().to_string()).collect();
    let mut words = vec!["serve", "--detach"];
    words.extend(members.iter().map(String::as_str));
    let ran = array.braid(&words, &[]);
    assert!(ran.status.success() && ran.stdout.contains("\"event\":\"serving\""), "{ran:?}");
    // The array is served as soon as the command returns.
    let now = status(&array, "tank");
    ok("nbdinfo", ["--size", now["uris"][0].as_str().expect("it is served")]);
    let log = now["server"]["log"].as_str().expect("a log").to_owned();
    assert!(said(&array, &["status", "tank"]).stdout.contains(&log));
    assert!(std::fs::read_to_string(&log).expect("it is there").contains("\"event\":\"serving\""));
    // The server leads its own session, and its command line can be typed again unchanged.
    let process = now["server"]["pid"].as_u64().expect("a number");
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    let session = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(3));
    assert_eq!(session, Some(process.to_string().as_str()), "{stat}");
    let again = std::fs::read_to_string(array.runtime().join("tank.command")).expect("a command");
    assert!(again.contains(" --detach ") && !again.contains("detached"), "{again}");
    done(&array, &["stop", "tank"]);
    assert!(std::fs::read_to_string(&log).expect("it stays").contains("\"event\":\"stopped\""));
}

#[test]
fn it_says_why_clients_cannot_connect_with_the_status_of_a_server_in_the_foreground() {
    let array = Array::create(RAID_1);
    for words in [&["serve", "--nbd", "nbd://192.0.2.1/"][..], &["serve", "--array", "other"]] {
        let alone = array.braid(words, &array.members);
        let detached = array.braid(&[&["serve", "--detach"], &words[1..]].concat(), &array.members);
        assert_eq!(detached.status.code(), alone.status.code(), "{detached:?}");
        let code = |said: &str| {
            let error: Value =
                serde_json::from_str(said.lines().last().unwrap_or_default()).expect("JSON");
            error["code"].as_str().expect("a code").to_owned()
        };
        assert_eq!(code(&detached.stdout), code(&alone.stdout));
    }
    // Without `--json` the error is printed on standard error.
    let mut line = array.command_line(&["serve", "--detach", "--array", "other"], &array.members);
    line.remove(0);
    let ran = array.run_braid(line);
    assert!(ran.stdout.is_empty() && ran.stderr.starts_with("error[B"), "{ran:?}");
    let left = std::fs::read_dir(array.runtime()).expect("a folder").count();
    assert_eq!(left, 0, "a log of nothing is left behind");
}

#[test]
fn who_waits_for_it_to_be_served_need_not_come_after_it() {
    let array = Array::create(RAID_1);
    refused(&array, &["wait", "tank", "--for", "served", "--timeout", "0"], "B086", 1);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let began = Instant::now();
            (said(&array, &["wait", "tank", "--for", "served", "--timeout", "60"]), began.elapsed())
        });
        let served = array.serve();
        let (ran, time) = waiting.join().expect("it returns");
        assert!(ran.status.success() && ran.stdout.starts_with("tank is served at nbd"), "{ran:?}");
        assert!(time < Duration::from_secs(30), "{time:?}");
        served.stop();
    });
}
