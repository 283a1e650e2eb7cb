//! `braid top` in a terminal.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::control::{check, json, said};
use crate::kit::{Array, Client, RAID_1, RAID_5, needs, wait_until};

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
