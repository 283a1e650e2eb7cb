//! Reports outside of standard output: history, hooks, metrics, service manager. Also the sockets
//! that the service manager passes on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::kit::{Array, Client, RAID_5, RAID_6, ServerProcess, needs, run, wait_until};

const PATIENCE: Duration = Duration::from_secs(30);

fn told(array: &Array, words: &[&str]) -> Vec<Value> {
    let ran = array.braid(words, &[]);
    assert!(ran.status.success(), "{ran:?}");
    ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["kind"].as_str().expect("a kind")).collect()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn what_happens_is_kept_over_a_kill_and_told_to_hooks() {
    let array = Array::create(RAID_6);
    let hook = array.path("hook");
    let sendmail = array.path("sendmail");
    let script = format!("#!/bin/sh\ncat >> '{}'\n", array.path("mail").display());
    std::fs::write(&sendmail, script).expect("a file");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&sendmail, mode).expect("a mode");
    // The hook writes three lines for each event: the name, the arguments, the JSON.
    let command = format!("{{ echo \"$BRAID_EVENT\"; echo \"$@\"; cat; }} >> '{}'", hook.display());
    let sendmail = sendmail.display().to_string();
    let options = ["--on-event", &command, "--mail", "root", "--sendmail", &sendmail];
    let mut served = array.serve_with(&options, &array.members);
    served.lose(&array, 1);
    wait_until("the hook to hear of it", PATIENCE, || read(&hook).contains("Fail tank "));
    wait_until("the mail to be sent", PATIENCE, || {
        read(&array.path("mail")).contains("Subject: [braid] Fail of tank on ")
    });
    served.kill();
    let before = told(&array, &["events", "tank"]);
    assert_eq!(kinds(&before), ["NewArray", "ArrayStarted", "Fail"]);
    let failed = &before[2];
    let member = array.members[1].display().to_string();
    assert_eq!(
        (&failed["subject"]["member"], &failed["subject"]["slot"]),
        (&member.as_str().into(), &1.into())
    );
    assert_eq!(
        (&failed["cause"]["operation"], &failed["cause"]["answer"]),
        (&"look".into(), &"vanished".into())
    );
    // The hook got the same events as the history.
    let heard = read(&hook);
    let json = heard.lines().filter(|line| line.starts_with('{'));
    let json: Vec<Value> = json.map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(json, before);
    // Appends a torn line to the history, as a crash may leave one.
    let folder = std::fs::read_dir(array.path("state/arrays")).expect("a folder");
    let folder = folder.map(|entry| entry.expect("an entry").path());
    let folder = folder.filter(|path| path.extension().is_some_and(|one| one == "events"));
    let file = folder.last().expect("a history").join("current.jsonl");
    std::fs::write(&file, read(&file) + "{\"schema\":1,\"id\":4,\"ti").expect("a file");
    array.serve().stop();
    let after = told(&array, &["history", "tank"]);
    let expected = ["ArrayStarted", "DegradedArray", "ArrayStopped"];
    assert_eq!((&after[..3], &kinds(&after)[3..]), (&before[..], &expected[..]));
    assert_eq!(after[3]["details"]["after_crash"], true);
    let ids: Vec<u64> = after.iter().map(|event| event["id"].as_u64().expect("a number")).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5, 6]);
    let critical =
        told(&array, &["history", "--kind", "Fail", "--kind", "DegradedArray", "--since", "1h"]);
    assert_eq!(kinds(&critical), ["Fail", "DegradedArray"]);
    array.refused(&["events", "pool"], &[]).is("B084", 10);
    array.refused(&["history", "--kind", "Failure"], &[]).is("B001", 2);
    for (options, code) in [
        (["--webhook", "ftp://host/"], "B085"),
        (["--mail", "a@b\nBcc: c"], "B085"),
        (["--metrics", "0.0.0.0:0"], "B072"),
        (["--metrics", "here"], "B001"),
    ] {
        assert_eq!(array.serve_refused(&options, &array.present()).code, code, "{options:?}");
    }
}

/// A program running beside the test, and the lines of JSON that it has printed so far.
struct Beside {
    child: std::process::Child,
    output: std::path::PathBuf,
}

impl Beside {
    fn start(array: &Array, name: &str, program: &str, words: &[&str]) -> Self {
        let output = array.path(name);
        let file = std::fs::File::create(&output).expect("a file");
        let mut command = std::process::Command::new(program);
        command.args(words).env("BRAID_RUNTIME_DIR", array.path("run")).stdout(file);
        Self { child: command.spawn().expect("it starts"), output }
    }

    fn lines(&self) -> Vec<Value> {
        let text = read(&self.output);
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // The child may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Events over the control socket, and by `events -f` with and without a history: each event once.
#[test]
fn what_happens_is_followed_over_the_control_socket() {
    needs!("curl");
    let array = Array::create(RAID_6);
    let braid = env!("CARGO_BIN_EXE_braid");
    let (state, none) = (array.path("state"), array.path("none"));
    let [state, none] = [&state, &none].map(|path| path.display().to_string());
    let follow = |name, state: &str| {
        let words = ["--json", "--state-dir", state, "events", "tank", "-f"];
        Beside::start(&array, name, braid, &words)
    };
    // This follower waits for an array that was never served.
    let early = follow("early", &state);
    let mut served = array.serve();
    let control = array.path("run/tank.control").display().to_string();
    let url = "http://braid/v1/events";
    let curl = ["-sSN", "--unix-socket", &control, url];
    let mut stream = Beside::start(&array, "stream", "curl", &curl);
    let heard = follow("heard", &none);
    let told_of = |slot: usize, events: &[Value]| {
        let member = array.members[slot].display().to_string();
        let is_it = |event: &&Value| event["subject"]["member"] == member.as_str();
        events.iter().filter(is_it).filter(|event| event["kind"] == "Fail").count()
    };
    // Followers need time to connect. Earlier events come from the history.
    served.lose(&array, 1);
    std::thread::sleep(Duration::from_secs(2));
    served.lose(&array, 3);
    wait_until("all to hear of it", PATIENCE, || {
        [&early, &stream, &heard].iter().all(|one| told_of(3, &one.lines()) == 1)
    });
    let scraped = run("curl", ["-sS", "--unix-socket", &control, "http://braid/metrics"]);
    let line = "braid_array_degraded_disks{array=\"tank\"} 2.0\n";
    assert!(scraped.stdout.contains(line) && scraped.stdout.ends_with("# EOF\n"), "{scraped:?}");
    served.stop();
    wait_until("the stream to end", PATIENCE, || {
        stream.child.try_wait().expect("our own child").is_some()
    });
    assert!(stream.child.wait().expect("our own child").success());
    wait_until("the end to be heard", PATIENCE, || {
        [&early, &heard]
            .iter()
            .all(|one| one.lines().last().is_some_and(|last| last["kind"] == "ArrayStopped"))
    });
    let kept = told(&array, &["history", "tank"]);
    assert_eq!(early.lines(), kept, "each once, in order");
    for lines in [stream.lines(), heard.lines()] {
        assert_eq!(lines[..], kept[kept.len() - lines.len()..], "a part, without gaps");
    }
}

/// The resync after a kill is reported once, with its result.
#[test]
fn jobs_are_told_once_with_their_result() {
    let array = Array::with_bitmap(RAID_5);
    let served = array.serve();
    let mut client = Client::connect(&served.socket, PATIENCE);
    client.write(0, &[7; 1 << 20]);
    client.flush();
    client.write(1 << 20, &[8; 1 << 20]);
    served.kill();
    drop(client);
    let served = array.serve();
    let count = |kind: &str| {
        let events = told(&array, &["history", "tank"]);
        events.into_iter().filter(|event| event["kind"] == kind).collect::<Vec<_>>()
    };
    wait_until("the resync to be over", PATIENCE, || !count("ResyncFinished").is_empty());
    served.stop();
    let (began, ended) = (count("ResyncStarted"), count("ResyncFinished"));
    assert_eq!((began.len(), ended.len()), (1, 1), "{began:?} {ended:?}");
    let (result, total) = (&ended[0]["result"], &began[0]["details"]["total_sectors"]);
    assert_eq!(result["outcome"], "completed", "{result}");
    assert_eq!((&result["counts"]["done_sectors"], total.as_u64() > Some(0)), (total, true));
    array.serve().stop();
    assert_eq!(count("ResyncStarted").len(), 1, "it is clean");
}

/// A hook's command that never ends delays neither clients nor the stop, and ends with braid.
#[test]
fn a_hook_that_hangs_holds_nothing_up() {
    let array = Array::create(RAID_5);
    let pid = array.path("pid");
    let command = format!("echo $$ > '{}'; exec sleep 1000", pid.display());
    let served = array.serve_with(&["--on-event", &command], &array.members);
    wait_until("the command to run", PATIENCE, || read(&pid).ends_with('\n'));
    let mut client = Client::connect(&served.socket, PATIENCE);
    client.write(0, &[7; 4096]);
    client.flush();
    drop(client);
    served.stop();
    let stat = format!("/proc/{}/stat", read(&pid).trim());
    wait_until("the command to end", PATIENCE, || {
        let state = read(Path::new(&stat));
        state.is_empty() || state.contains(") Z ")
    });
}

fn scrape(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a server");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("a server");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn metrics_follow_the_array() {
    let array = Array::create(RAID_6);
    // The operating system chooses a port that is free for a moment.
    let address = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("bound").to_string()
    };
    let mut served = array.serve_with(&["--metrics", &address, "--node-md"], &array.members);
    let has = |line: &str| scrape(&address, "/metrics").lines().any(|one| one == line);
    for line in [
        "braid_array_state{array=\"tank\",state=\"ok\"} 1.0",
        "braid_array_can_lose_disks{array=\"tank\"} 2.0",
        "braid_array_disks{array=\"tank\",role=\"active\"} 5.0",
        "node_md_disks{device=\"tank\",state=\"active\"} 5.0",
    ] {
        assert!(has(line), "{line}: {}", scrape(&address, "/metrics"));
    }
    let mut client = Client::connect(&served.socket, PATIENCE);
    client.write(0, &[7; 4096]);
    client.flush();
    assert!(has("braid_io_bytes_total{array=\"tank\",frontend=\"nbd\",op=\"write\"} 4096.0"));
    served.lose(&array, 2);
    wait_until("the loss to be counted", PATIENCE, || {
        has("braid_events_total{array=\"tank\",kind=\"Fail\"} 1.0")
    });
    for line in [
        "braid_array_state{array=\"tank\",state=\"degraded\"} 1.0",
        "braid_array_state{array=\"tank\",state=\"ok\"} 0.0",
        "braid_array_can_lose_disks{array=\"tank\"} 1.0",
        "braid_array_disks{array=\"tank\",role=\"missing\"} 1.0",
        "node_md_disks{device=\"tank\",state=\"failed\"} 1.0",
    ] {
        assert!(has(line), "{line}: {}", scrape(&address, "/metrics"));
    }
    assert!(!scrape(&address, "/metrics?node_md=0").contains("node_md_"));
    drop(client);
    served.stop();
}

#[test]
fn the_service_manager_is_told_and_its_watchdog_fed() {
    for io in ["ring", "threads"] {
        let array = Array::create(RAID_5);
        let path = array.path("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket has timeouts");
        let setup = format!("export NOTIFY_SOCKET='{}' WATCHDOG_USEC=100000", path.display());
        let env = array.path("env");
        let command = format!("env > '{}'", env.display());
        let options = ["--io", io, "--on-event", &command];
        let served = ServerProcess::start_under(&setup, &array, &options, &array.members);
        let hear = || {
            let mut bytes = [0; 4096];
            let length = socket.recv(&mut bytes).expect("it is told");
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        };
        let first = hear();
        assert!(first.starts_with("READY=1\nSTATUS=serving tank at nbd+unix://"), "{first}");
        for _ in 0..3 {
            assert_eq!(hear(), "WATCHDOG=1\n");
        }
        wait_until("the command to run", PATIENCE, || read(&env).contains("BRAID_EVENT="));
        assert!(!read(&env).contains("NOTIFY_SOCKET"), "it is ours alone");
        let told = std::thread::spawn(move || served.stop());
        while hear() != "STOPPING=1\n" {}
        told.join().expect("it stops");
    }
}

/// A Python script that passes a listening socket as descriptor 3, as systemd does.
const PASS_ON: &str = r"
import os, socket, sys
names, kind, place = sys.argv[1:4]
if kind == 'unix':
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place)
else:
    listener = socket.socket()
    listener.bind((kind, int(place)))
listener.listen(8)
if listener.fileno() != 3:
    os.dup2(listener.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()), LISTEN_FDNAMES=names)
os.execvp(sys.argv[4], sys.argv[4:])
";

#[test]
fn sockets_that_were_passed_on_are_served() {
    needs!("python3", "nbdinfo", "curl");
    let array = Array::create(RAID_5);
    let socket = array.path("passed.sock").display().to_string();
    let braid = |names: &str, place: [&str; 2], command: &str| {
        let mut line: Vec<String> =
            ["-c", PASS_ON, names, place[0], place[1]].map(str::to_owned).into();
        line.push(env!("CARGO_BIN_EXE_braid").to_owned());
        let words = ["serve", "--run", command];
        line.extend(array.command_line(&words, &array.members));
        run("python3", line)
    };
    let size = |uri: &str| format!("test \"$(nbdinfo --size '{uri}')\" -gt 0");
    let uri = format!("nbd+unix:///tank?socket={socket}");
    let ran = braid("nbd", ["unix", &socket], &size(&uri));
    assert!(ran.status.success() && ran.stdout.contains(&socket), "{ran:?}");
    assert!(Path::new(&socket).exists(), "the socket's file is not ours to remove");
    let ran = braid("nbd", ["127.0.0.1", "0"], "nbdinfo --size \"$uri\"");
    assert!(ran.status.success() && ran.stdout.contains("nbd://127.0.0.1:"), "{ran:?}");
    // systemd also passes the control socket, which would otherwise be off with `--run`.
    let control = array.path("passed.control").display().to_string();
    let url = "http://braid/v1/array";
    let command = format!("curl -sS --fail --unix-socket '{control}' {url} | grep -q '\"tank\"'");
    let ran = braid("control", ["unix", &control], &command);
    assert!(ran.status.success() && Path::new(&control).exists(), "{ran:?}");
    let ran = braid("control", ["127.0.0.1", "0"], "true");
    assert!(ran.stdout.contains("B009") && !ran.status.success(), "{ran:?}");
    for (names, place, code) in
        [("metrics", ["127.0.0.1", "0"], "B009"), ("nbd", ["0.0.0.0", "0"], "B072")]
    {
        let ran = braid(names, place, "true");
        assert!(ran.stdout.contains(code) && !ran.status.success(), "{ran:?}");
    }
}
