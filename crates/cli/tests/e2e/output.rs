//! Output of a command is complete or the command fails, and controls no terminal.

use std::fs::{File, OpenOptions};
use std::process::{Command, ExitStatus, Stdio};

use crate::kit::{Array, RAID_1, RAID_5};

/// Offset of the array's name in a superblock 1.x.
const NAME_AT: usize = 32;

fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").expect("/dev/full").into()
}

fn braid(words: &[String], stdout: Stdio, stderr: Stdio) -> (ExitStatus, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
    let child = command.args(words).stdin(Stdio::null()).stdout(stdout).stderr(stderr).spawn();
    let ran = child.and_then(std::process::Child::wait_with_output).expect("braid starts");
    (ran.status, String::from_utf8_lossy(&ran.stderr).into_owned())
}

/// Every braid command with output, in its forms for a program and for a person.
fn commands(array: &Array) -> Vec<Vec<String>> {
    let fresh = [array.path("fresh-0"), array.path("fresh-1")];
    let mut lines = Vec::new();
    for (words, members) in [
        (&["examine"][..], &array.members[..]),
        (&["serve", "--run", "true"], &array.members),
        (&["create", "-n", "x", "--level", "1", "--member-size", "16M"], &fresh),
        (&["list"], &[]),
        (&["status"], &[]),
        (&["help", "B031"], &[]),
        (&["help", "exit"], &[]),
        (&["help", "mdadm"], &[]),
        (&["help"], &[]),
        (&["--help"], &[]),
        (&["serve", "--help"], &[]),
        (&["--version"], &[]),
    ] {
        let line = array.command_line(words, members);
        lines.push(line.clone());
        // `serve` writes its messages for people to standard error, so this form is left out.
        if words[0] != "serve" {
            lines.push(line[1..].to_vec());
        }
    }
    lines
}

/// The commands that a plan offers contain the members' paths as well.
#[test]
fn a_path_with_an_escape_in_it_steers_no_terminal() {
    let array = Array::create(RAID_1);
    let evil = array.path("e\u{1b}[31mvil");
    let map = array.path("e\u{1b}[32mvil.map");
    let fresh = [evil.clone(), array.path("fresh")];
    let create = ["create", "evil", "--level", "1", "--member-size", "16M"];
    let plan: Vec<&str> = create.iter().copied().chain(["-n"]).collect();
    let image = array.path("e\u{1b}[33mvil.img");
    for (words, members) in [
        (&plan[..], &fresh[..]),
        (&create[..], &fresh),
        (&["scan"], &fresh),
        (&["image", "--map", &map.display().to_string()], &[evil.clone(), image]),
        (&["rescue", "--solve"], &fresh),
        (&["rescue"], &fresh),
    ] {
        let mut line = array.command_line(words, members);
        line.remove(0);
        let ran = array.run_braid(line);
        let (stdout, stderr) = (&ran.stdout, &ran.stderr);
        assert!(stdout.contains("\\u{1b}") || stderr.contains("\\u{1b}"), "{words:?}: {ran:?}");
        assert!(!stdout.contains('\u{1b}') && !stderr.contains('\u{1b}'), "{words:?}: {ran:?}");
    }
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let array = Array::create(RAID_5);
    for line in commands(&array) {
        let (status, _) = braid(&line, Stdio::null(), Stdio::null());
        assert!(status.success(), "{line:?}: {status}");
        let (status, stderr) = braid(&line, full(), Stdio::piped());
        assert_eq!(status.code(), Some(1), "{line:?}: {stderr}");
        assert!(stderr.contains("B074") && stderr.contains("No space left"), "{line:?}: {stderr}");
        let (status, _) = braid(&line, full(), full());
        assert_eq!(status.code(), Some(1), "{line:?}");
        // If the reader closed the pipe there is no message, but the command still fails.
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let (status, stderr) = braid(&line, writer.into(), Stdio::piped());
        assert_eq!(status.code(), Some(1), "{line:?}: {stderr}");
        assert!(!stderr.contains("B074"), "{line:?}: {stderr}");
    }
}

#[test]
fn an_error_keeps_its_status_where_it_cannot_be_told() {
    let array = Array::create(RAID_1);
    let missing = [array.path("nothing")];
    for (words, status) in [(&["examine"][..], 1), (&["nonsense"], 2), (&[], 2)] {
        let line = array.command_line(words, &missing);
        for line in [&line[..], &line[1..]] {
            let (found, _) = braid(line, full(), full());
            assert_eq!(found.code(), Some(status), "{line:?}");
        }
    }
}

/// Serving continues; the exit status shows that events could not be written.
#[test]
fn an_array_is_served_on_when_its_events_cannot_be_written() {
    let array = Array::create(RAID_1);
    let words = ["serve", "--run", "true"];
    let (status, stderr) =
        braid(&array.command_line(&words, &array.members), full(), Stdio::piped());
    assert_eq!(status.code(), Some(1), "{stderr}");
    let examined = array.braid(&["examine"], &array.members);
    assert!(examined.status.success(), "{examined:?}");
}

#[test]
fn a_name_with_separators_and_invisible_letters_is_shown_not_obeyed() {
    let array = Array::create(RAID_1);
    let name = "a\u{2028}b\u{2029}c\u{202e}\u{9b}2J\u{3164}\u{feff}";
    let mut field = [0; 32];
    field[..name.len()].copy_from_slice(name.as_bytes());
    for slot in 0..array.members.len() {
        array.patch_superblock(slot, NAME_AT, &field, true);
    }
    let harmful = |text: &str| {
        text.chars().any(|letter| name.contains(letter) && !letter.is_ascii())
            || text.contains('\u{9b}')
    };
    for words in [&["examine"][..], &["serve", "--run", "true"], &["serve", "--array", "other"]] {
        let line = array.command_line(words, &array.members);
        for line in [&line[..], &line[1..]] {
            let ran = crate::kit::run(env!("CARGO_BIN_EXE_braid"), line);
            let text = format!("{}{}", ran.stdout, ran.stderr);
            assert!(!harmful(&text), "{line:?}: {text:?}");
        }
    }
    // JSON has the array's name unchanged.
    let examined = array.braid(&["examine"], &array.members);
    let found: serde_json::Value = serde_json::from_str(examined.stdout.trim()).expect("JSON");
    assert!(found.to_string().contains(name), "{found}");
    // A file name with control characters is also printed safely.
    let member = array.path(name);
    File::create(&member).and_then(|file| file.set_len(1 << 20)).expect("a file");
    let ran = array.braid(&["examine"], std::slice::from_ref(&member));
    assert!(!harmful(&ran.stdout), "{ran:?}");
}
