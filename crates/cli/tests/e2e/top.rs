//! `braid top` in a terminal.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::control::{check, json, said};
use crate::kit::{Array, Background, Client, RAID_1, RAID_5, is_heard, needs, wait_until};
use crate::members::MEMBER_BYTES;

const LIMIT: Duration = Duration::from_secs(60);

/// `braid top` in its own terminal, with the terminal's initial settings.
struct TopTerminal {
    terminal: Child,
    shown: PathBuf,
    before: PathBuf,
    after: PathBuf,
}

impl TopTerminal {
    fn start(array: &Array, words: &[&str]) -> Self {
        let [shown, before, after] =
            ["shown", "before", "after"].map(|name| array.path(&format!("top-{name}")));
        let line = array.command_line(words, &[])[1..].join(" ");
        let script = format!(
            "stty rows 40 cols 150; stty -a > {}; {} {line}; code=$?; stty -a > {}; exit $code",
            before.display(),
            env!("CARGO_BIN_EXE_braid"),
            after.display(),
        );
        let output = std::fs::File::create(&shown).expect("a file");
        let terminal = Command::new("script")
            .args(["-qefc", &script, "/dev/null"])
            .env("BRAID_RUNTIME_DIR", array.path("run"))
            .envs([("TERM", "xterm"), ("LC_ALL", "C"), ("SHELL", "/bin/sh")])
            .stdin(Stdio::piped())
            .stdout(output)
            .spawn()
            .expect("script starts");
        Self { terminal, shown, before, after }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.shown).expect("a file")).into_owned()
    }

    #[track_caller]
    fn wait_for(&self, part: &str) {
        wait_until(part, LIMIT, || self.text().contains(part));
    }

    fn press(&mut self, keys: &[u8]) {
        let keyboard = self.terminal.stdin.as_mut().expect("piped");
        keyboard.write_all(keys).and_then(|()| keyboard.flush()).expect("it listens");
    }

    /// Waits for the exit status of `top`; the terminal must have its initial settings again.
    #[track_caller]
    fn ended(mut self) -> (Option<i32>, String) {
        let mut status = None;
        wait_until("top to end", LIMIT, || {
            status = self.terminal.try_wait().expect("our own child");
            status.is_some()
        });
        let read = |path: &PathBuf| std::fs::read_to_string(path).expect("it was written");
        assert_eq!(read(&self.before), read(&self.after), "the terminal is as it was");
        let text = self.text();
        let (taken, given_back) = (text.matches("\u{1b}[?1049h"), text.matches("\u{1b}[?1049l"));
        assert_eq!((taken.count(), given_back.count()), (1, 1), "{text:?}");
        let last = text.rsplit("\u{1b}[?1049l").next().expect("a part").to_owned();
        (status.and_then(|status| status.code()), last)
    }
}

impl Drop for TopTerminal {
    fn drop(&mut self) {
        // `top` has usually ended by itself.
        let _ = self.terminal.kill();
        let _ = self.terminal.wait();
    }
}

#[test]
fn q_ends_it_and_the_terminal_is_as_it_was() {
    needs!("script");
    let array = Array::create(RAID_5);
    let served = array.serve();
    let mut top = TopTerminal::start(&array, &["top"]);
    // Single words, because `top` skips over unchanged spaces.
    for word in ["RAID-5", "requests/s", "elevator", "quit"] {
        top.wait_for(word);
    }
    top.press(b"q");
    let (code, last) = top.ended();
    assert_eq!(code, Some(0), "{last:?}");
    assert!(!last.contains("error"), "{last:?}");
    served.stop();
}

#[test]
fn a_server_that_stops_ends_it_with_an_error() {
    needs!("script");
    let array = Array::create(RAID_1);
    let served = array.serve();
    let top = TopTerminal::start(&array, &["top", "tank"]);
    top.wait_for("quit");
    served.stop();
    let (code, last) = top.ended();
    assert_eq!(code, Some(10), "{last:?}");
    assert!(last.contains("error[B075]") && last.contains("tank"), "{last:?}");
    assert!(!last.contains("panicked"), "{last:?}");
}

/// Regression: `top` read from a closed terminal for ever, and no signal ended it.
#[test]
fn a_terminal_that_goes_away_ends_it() {
    needs!("script");
    let array = Array::create(RAID_1);
    let served = array.serve();
    let mut top = TopTerminal::start(&array, &["top", "tank"]);
    top.wait_for("quit");
    let state = array.path("state").display().to_string();
    let is_shown = || {
        let processes = std::fs::read_dir("/proc").expect("processes").flatten();
        let lines = processes.filter_map(|one| std::fs::read(one.path().join("cmdline")).ok());
        let mut lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
        lines.any(|line| line.contains(&state) && line.contains(" top ") && !line.contains("stty"))
    };
    assert!(is_shown(), "its process is found by its words");
    top.terminal.kill().expect("our own child");
    wait_until("top to end", LIMIT, || !is_shown());
    served.stop();
}

#[test]
fn without_a_terminal_it_is_refused_and_looks_once() {
    let array = Array::create(RAID_5);
    let served = array.serve();
    let error = json(&array.braid(&["top", "tank"], &[]));
    assert_eq!(error["code"], "B087");
    check("Problem", &error);
    let refused = said(&array, &["top", "tank"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    for command in ["braid top tank --once", "braid status tank --watch"] {
        assert!(refused.stderr.contains(command), "{refused:?}");
    }
    let text = said(&array, &["top", "tank", "--once"]).stdout;
    let cache = array.default_cache();
    for part in ["tank  RAID-5", "requests/s", cache, "job      none", "slot  member"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // A client writes between the two samples: the rates show it, of the array and of its members.
    let socket = served.socket.clone();
    let writing = std::thread::spawn(move || {
        let mut client = Client::connect(&socket, LIMIT);
        for round in 0..40 {
            client.write(round % 8 * (1 << 20), &[7; 1 << 20]);
            client.flush();
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let top = json(&array.braid(&["top", "--once", "--interval", "2"], &[]));
    writing.join().expect("writing does not panic");
    check("Top", &top);
    let one = &top["arrays"][0];
    let rates = &one["rates"];
    assert!(rates["written_bytes_per_second"].as_u64() > Some(0), "{rates}");
    let members = rates["members"].as_array().expect("rows");
    let written = members.iter().map(|row| row["written_bytes_per_second"].as_u64());
    assert!(members.len() == 4 && written.clone().all(|rate| rate > Some(0)), "{rates}");
    assert_eq!(one["elevators"]["elevators"][0]["errors"], 0);
    served.stop();
    let none = json(&array.braid(&["top", "--once"], &[]));
    assert_eq!(none["code"], "B075");
}

/// A mirror of a local file and of a server's export: only the export has a connection to show.
#[test]
fn a_member_on_another_host_has_its_latency_and_its_losses() {
    needs!("script", "nbdkit");
    let blank = vec![0; usize::try_from(MEMBER_BYTES).expect("small")];
    let array = Array::of_images(&vec![blank; 2]);
    let socket = array.path("s1");
    let file = array.members[1].display().to_string();
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    let start = || {
        let _gone = std::fs::remove_file(&socket);
        let words = ["-f", "-U", &socket.display().to_string(), "file", &file];
        let server = Background::spawn("nbdkit", words);
        wait_until("nbdkit to listen", LIMIT, || is_heard(&socket));
        server
    };
    let server = start();
    let members = [array.members[0].clone(), uri.into()];
    let ran = array.braid(&["create", "tank", "--level", "1", "--zero"], &members);
    assert!(ran.status.success(), "{ran:?}");
    let served = array.serve_with(&["--away-after-ms", "1000"], &members);
    let row = |slot: usize| {
        let text = said(&array, &["top", "tank", "--once"]).stdout;
        assert!(text.contains("latency  anew"), "{text}");
        let row = text.lines().find(|line| line.starts_with(&format!("  {slot}  ")));
        row.unwrap_or_else(|| panic!("no slot {slot}: {text}")).to_owned()
    };
    // A file of this host has no connection.
    let cells = |row: &str| row.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(cells(&row(0))[3..5], ["-", "-"]);
    let remote = cells(&row(1));
    assert_eq!((remote[2].as_str(), &remote[4..6]), ("ok", &["ms".into(), "0".into()][..]));
    let top = json(&array.braid(&["top", "--once"], &[]));
    check("Top", &top);
    let links = [0, 1].map(|slot| top["arrays"][0]["array"]["slots"][slot]["link"].clone());
    assert_eq!((links[0].is_null(), &links[1]["is_up"]), (true, &true.into()), "{top}");
    let mut terminal = TopTerminal::start(&array, &["top", "tank"]);
    terminal.wait_for("latency");
    drop(server);
    let mut client = Client::connect(&served.socket, LIMIT);
    client.write(0, &[7; 4096]);
    client.flush();
    terminal.wait_for("AWAY, not connected");
    assert!(row(1).contains("AWAY, not connected"), "{}", row(1));
    let _server = start();
    wait_until("the member to return", LIMIT, || cells(&row(1))[2] == "ok");
    assert_eq!(cells(&row(1))[5], "1", "one loss: {}", row(1));
    terminal.press(b"q");
    assert_eq!(terminal.ended().0, Some(0));
    // The loss and its end are events, with the numbers that `top` shows.
    // Connections are looked at once a second, so the event may still be to come.
    let told = || array.braid(&["events", "tank"], &[]).stdout;
    wait_until("the event", LIMIT, || told().contains("LinkBack"));
    let events = told();
    let events: Vec<serde_json::Value> = events.lines().map(event_of).collect();
    let of = |kind: &str| {
        let mut found = events.iter().filter(|event| event["kind"] == kind);
        let one = found.next().unwrap_or_else(|| panic!("no {kind}: {events:?}"));
        assert_eq!((found.next(), &one["subject"]["slot"]), (None, &1.into()), "{events:?}");
        one
    };
    let (lost, back) = (of("LinkLost"), &of("LinkBack")["details"]);
    assert_eq!((&lost["severity"], &lost["details"]["reconnects"]), (&"warning".into(), &0.into()));
    assert_eq!(back["reconnects"], 1);
    assert!(back["after_ms"].as_u64() > Some(0) && back["latency_us"].is_u64(), "{back}");
    served.stop();
}

fn event_of(line: &str) -> serde_json::Value {
    serde_json::from_str(line).expect("an event in each line")
}
