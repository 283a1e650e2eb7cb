//! `braid set`, `get` and `tune`: settings of a running array, changed under load.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::control::{json, status};
use crate::elevators::load;
use crate::jobs::done;
use crate::kit::{Array, RAID_5, needs};

fn drip(path: &Path) -> std::thread::JoinHandle<()> {
    let mut stream = UnixStream::connect(path).expect("a control socket");
    std::thread::spawn(move || {
        while stream.write_all(b" ").is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
    })
}

#[test]
fn a_cache_is_tuned_under_load_and_every_block_is_right() {
    needs!("fio");
    let array = Array::create_sized(RAID_5, "32M");
    let options = ["--cache", "writethrough", "--stripe-unit", "4K"];
    let (served, control) = array.serve_controlled(&options);
    let load = load(&served.uri, &[]);
    let tuned = |settings: &[&str]| done(&array, &[&["tune", &control], settings].concat());
    let status = || status(&array, &control);
    let first = tuned(&[]);
    assert_eq!(first["settings"]["cache"], array.default_cache());
    assert_eq!(first["settings"]["stripe-unit"], 4096);
    assert_eq!(status()["dirty_bytes"], 0);
    for round in 0..12 {
        let (mode, size, bypass) = match round % 3 {
            0 => ("cache=writeback", "cache-size=1M", "bypass-threshold=0"),
            1 => ("cache=writethrough", "cache-size=64M", "bypass-threshold=1"),
            _ => ("cache=writeback", "cache-size=256M", "bypass-threshold=5"),
        };
        let answer = tuned(&[mode, size, bypass, "dirty-age=20", "dirty-limit=2M"]);
        assert_eq!(answer["settings"]["dirty-age"], 20);
        assert!(status()["dirty_bytes"].as_u64().expect("a number") <= 2 << 20);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let said = load.wait_ok();
    assert!(said.contains("err= 0"), "{said}");
    assert!(status()["counters"]["early_answers"].as_u64().expect("a number") > 0);
    served.stop();
    assert!(!Path::new(&control).exists(), "the control socket is left behind");
}

#[test]
fn what_cannot_be_set_is_refused_and_changes_nothing() {
    let array = Array::create(RAID_5);
    let (served, control) = array.serve_controlled(&[]);
    for (words, code, why) in [
        (["tune", &control, "cache=none"], "B001", "writeback"),
        (["tune", &control, "stripe-unit=4K"], "B001", "running array"),
        (["tune", &control, "cache-size"], "B001", "KEY=VALUE"),
        (["tune", "/nowhere/at.all", "dirty-age=1"], "B075", "No such file"),
    ] {
        let refusal = array.braid(&words, &[]);
        assert!(!refusal.status.success(), "{refusal:?}");
        assert!(refusal.stdout.contains(code) && refusal.stdout.contains(why), "{refusal:?}");
    }
    let ran = array.braid(&["tune", &control], &[]);
    assert!(ran.stdout.contains("\"dirty-age\":500"), "{ran:?}");
    served.stop();
    let refusal = array.braid(&["serve", "--cache-size", "17"], &array.members);
    assert!(refusal.stdout.contains("B001"), "{refusal:?}");
}

#[test]
fn what_clients_may_take_is_shown_and_set() {
    let array = Array::create(RAID_5);
    let options = ["--connections", "9", "--idle-limit", "300"];
    let (served, control) = array.serve_controlled(&options);
    let tuned =
        |settings: &[&str]| json(&array.braid(&[&["tune", &control], settings].concat(), &[]));
    let first = tuned(&[]);
    assert_eq!(first["settings"]["connections"], 9);
    assert_eq!(first["settings"]["idle-limit"], 300);
    assert_eq!(first["settings"]["progress-limit"], 30);
    let memory = first["settings"]["payload-memory"].as_u64().expect("a number");
    assert!((4 << 20..=192 << 20).contains(&memory), "{memory}");
    let clients = || status(&array, &control)["clients"].take();
    assert_eq!(clients()["connections"], 0);
    let second = tuned(&["connections=1000", "payload-memory=24M", "idle-limit=0"]);
    assert_eq!(second["settings"]["connections"], 1000);
    assert_eq!(second["settings"]["payload-memory"], 24 << 20);
    assert_eq!(second["settings"]["idle-limit"], 0);
    assert_eq!(clients()["request_bytes_max"], 8 << 20);
    for wrong in ["payload-memory=100T", "payload-memory=1K", "connections=0", "progress-limit=1"] {
        assert!(tuned(&[wrong])["code"] == "B001", "{wrong}");
    }
    assert_eq!(tuned(&[])["settings"], second["settings"], "what is refused changes nothing");
    served.stop();
}

#[test]
fn the_control_socket_is_for_its_owner_and_takes_no_place_that_is_taken() {
    use std::os::unix::fs::PermissionsExt;
    let array = Array::create(RAID_5);
    let control = array.path("control.sock");
    let options = ["--control", control.to_str().expect("a plain path")];
    std::fs::write(&control, "an operator's notes").expect("a file");
    let refusal = array.braid(&["serve", options[0], options[1], "--run", "true"], &array.members);
    assert!(refusal.stdout.contains("B070"), "{refusal:?}");
    assert_eq!(std::fs::read(&control).expect("it is there"), b"an operator's notes");
    std::fs::remove_file(&control).expect("it is there");
    // The path has the socket of a process that has ended: the server replaces this socket.
    drop(std::os::unix::net::UnixListener::bind(&control).expect("a socket"));
    let served = array.serve_with(&options, &array.members);
    let mode = std::fs::metadata(&control).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    served.stop();
    assert!(!control.exists(), "the control socket is left behind");
}

#[test]
fn a_slow_control_client_does_not_hold_up_a_stop() {
    let array = Array::create(RAID_5);
    let (served, control) = array.serve_controlled(&[]);
    let silent = UnixStream::connect(&control).expect("a control socket");
    let drips: Vec<_> = (0..3).map(|_| drip(Path::new(&control))).collect();
    std::thread::sleep(Duration::from_millis(500));
    let begun = Instant::now();
    served.stop();
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    drips.into_iter().for_each(|drip| drip.join().expect("no panic"));
    drop(silent);
}

#[test]
fn twenty_silent_control_clients_do_not_delay_tune() {
    let array = Array::create(RAID_5);
    let (served, control) = array.serve_controlled(&[]);
    let connect = |_| UnixStream::connect(&control).expect("a control socket");
    // Silent clients connect, also more than the server accepts at a time.
    for count in [20, 200] {
        let silent: Vec<UnixStream> = (0..count).map(connect).collect();
        // One silent client after another would take five seconds each.
        let begun = Instant::now();
        let tuned = array.braid(&["tune", &control, "dirty-age=20"], &[]);
        assert!(tuned.status.success(), "{tuned:?}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{count}: {:?}", begun.elapsed());
        drop(silent);
    }
    served.stop();
}

#[test]
fn bytes_that_are_no_request_are_answered_and_the_next_client_is_served() {
    let array = Array::create(RAID_5);
    let (served, control) = array.serve_controlled(&[]);
    let long = vec![b'{'; 1 << 20];
    let deep = vec![b'['; 4000];
    let patch =
        [&b"PATCH /v1/settings HTTP/1.1\r\nHost: braid\r\nContent-Type: application/json\r\nContent-Length: 4000\r\n\r\n"[..], &deep];
    let patch = patch.concat();
    for bytes in [&b"\xff\xfe\x80\r\n\r\n"[..], b"\0\0\0\r\n\r\n", b"{}\n\r\n\r\n", &long, &patch] {
        let mut stream = UnixStream::connect(&control).expect("a control socket");
        // The server may answer before it has read all bytes.
        let _ = stream.write_all(bytes);
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        let mut answer = Vec::new();
        // Unread bytes may have made the server reset the connection.
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.is_empty(), "no answer to {:?}", &bytes[..bytes.len().min(20)]);
        let tuned = array.braid(&["tune", &control], &[]);
        assert!(tuned.status.success(), "{tuned:?}");
    }
    served.stop();
}

/// Each number takes effect as `get` shows it, or is refused with a valid number and changes
/// nothing.
#[test]
fn absurd_settings_are_refused_by_name_at_the_start_and_later() {
    let array = Array::create(RAID_5);
    let (served, control) = array.serve_controlled(&[]);
    let settings = || json(&array.braid(&["tune", &control], &[]))["settings"].take();
    let before = settings();
    let sizes =
        ["100T", "15E", "16E", "1e30", "-1M", "18446744073709551615B", "1.0000000001K", "", "M"];
    let counts = ["-1", "1e30", "18446744073709551616", "0x10", "many", "", "4294967296", "1.5"];
    let absurd: Vec<(&str, &[&str])> = vec![
        ("cache-size", &sizes),
        ("cache-size", &["0B", "1B"]),
        ("dirty-limit", &sizes),
        ("bypass-threshold", &counts),
        ("dirty-age", &counts),
        ("sit-out-factor", &counts),
        ("sit-out-min-ms", &counts),
        ("read-errors-max", &counts),
        ("job-latency-factor", &["-1", "0.9", "1001", "1e30", "many", "", "2.0001"]),
        ("job-floor", &sizes),
        ("job-ceiling", &sizes),
        ("multiplexer-period", &counts),
        ("read-expiry", &counts),
        ("write-expiry", &counts),
        ("writes-starved", &counts),
        ("batch", &counts),
        ("depth", &counts),
        ("multiplexer-share", &["-1--2", "1e30-2", "0-18446744073709551616", "-", "50", "60-50"]),
    ];
    let all =
        || absurd.iter().flat_map(|(key, values)| values.iter().map(move |value| (key, value)));
    for (key, value) in all() {
        let setting = format!("{key}={value}");
        let tuned = array.braid(&["tune", &control, "dirty-age=77", &setting], &[]);
        assert_eq!(tuned.status.code(), Some(2), "{setting}: {tuned:?}");
        assert!(tuned.stdout.contains(key), "{setting}: {tuned:?}");
    }
    assert_eq!(settings(), before, "what is refused changes nothing");
    served.stop();
    let options = all().map(|(key, value)| format!("--{key}={value}"));
    let workers = ["0", "-1", "65", "1e30"].map(|value| format!("--workers={value}"));
    for option in options.chain(workers) {
        let started = array.braid(&["serve", &option, "--run", "true"], &array.members);
        assert_eq!(started.status.code(), Some(2), "{option}: {started:?}");
    }
    // `get` shows the effective value: whole stripes, in all shards.
    let (served, _) = array.serve_controlled(&["--cache-size", "100M"]);
    let shown = settings();
    let bytes = shown["cache-size"].as_u64().expect("a number");
    assert!((90 << 20..=100 << 20).contains(&bytes), "{shown}");
    done(&array, &["tune", &control, &format!("cache-size={bytes}B")]);
    assert_eq!(settings(), shown, "what is shown can be set");
    served.stop();
}
