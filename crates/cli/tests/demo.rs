//! The demo as a person runs it: to its end, with a member that returns wrong bytes, and
//! interrupted half-way.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Starts the demo with members of 8 MiB and its temporary folder within `folder`.
fn start(folder: &Path, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
    command.args(["demo", "--size", "8M"]).args(arguments).env("TMPDIR", folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Standard output, line by line.
fn lines(output: &Output) -> Vec<String> {
    String::from_utf8(output.stdout.clone()).unwrap().lines().map(str::to_string).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Waits until the copies of two members are made, under load; returns the demo's folder.
fn wait_for_load(folder: &Path) -> PathBuf {
    let start = Instant::now();
    loop {
        let demo = entries(folder).pop();
        if let Some(demo) = demo.filter(|demo| demo.join("kept/disk1").exists()) {
            return demo;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "the load never began");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Command lines of running processes that name a path in this folder.
fn processes_in(folder: &Path) -> Vec<String> {
    let name = folder.to_str().unwrap();
    let all = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).into_owned());
    lines.filter(|line| line.contains(name)).collect()
}

#[test]
fn it_ends_well_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let output = start(folder.path(), &[]).wait_with_output().unwrap();
    let lines = lines(&output);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for step in 1..=7 {
        let begin = format!("  {step}/7  ");
        assert_eq!(lines.iter().filter(|line| line.starts_with(&begin)).count(), 1, "{lines:#?}");
    }
    let good = lines.iter().position(|line| line.contains("Every byte as it was written"));
    let tail = &lines[good.unwrap()..];
    assert_eq!(tail[1..3], ["", "Try next:"]);
    for (line, verb) in tail[3..].iter().zip([" create ", " serve ", " examine "]) {
        assert!(line.contains(verb), "{line}");
    }
    assert_eq!(tail.len(), 6);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(entries(folder.path()), Vec::<PathBuf>::new());
    assert_eq!(processes_in(folder.path()), Vec::<String>::new());
}

#[test]
fn json_has_an_object_for_each_step_and_what_is_kept_can_be_examined() {
    let folder = tempfile::tempdir().unwrap();
    let output = start(folder.path(), &["--json", "--keep"]).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let objects: Vec<Value> =
        lines(&output).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), 8);
    for (number, object) in (1..).zip(&objects[..7]) {
        assert_eq!(object["event"], "step");
        assert_eq!(object["step"], number);
    }
    assert_eq!(objects[6]["stale_slots"], serde_json::json!([1, 4]));
    let summary = &objects[7];
    assert_eq!(summary["event"], "summary");
    for object in &objects[3..5] {
        assert!(object["requests"].as_u64() > Some(0) && object["bytes"].as_u64() > Some(0));
    }
    let examine = summary["next"][0]["command"].as_str().unwrap();
    let examined = Command::new("sh").args(["-c", examine]).output().unwrap();
    assert!(String::from_utf8_lossy(&examined.stdout).contains("demo"), "{examined:?}");
}

#[test]
fn a_member_that_lies_is_found_out_and_the_members_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let demo = start(folder.path(), &["--json"]);
    let kept = wait_for_load(folder.path());
    // Clients no longer write the image, of which a part is at this offset of the first member.
    let disk = File::options().write(true).open(kept.join("disk0")).unwrap();
    disk.write_all_at(&vec![0x3c; 2 << 20], 2 << 20).unwrap();
    let output = demo.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let error: Value = serde_json::from_str(lines(&output).last().unwrap()).unwrap();
    assert_eq!(error["code"], "B082", "{error}");
    assert!(error["title"].as_str().unwrap().contains("differs from the byte written"), "{error}");
    assert!(error["cause"].as_str().unwrap().contains("was written and 0x"), "{error}");
    assert!(kept.join("disk0").exists());
    assert_eq!(processes_in(folder.path()), Vec::<String>::new());
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let demo = start(folder.path(), &[]);
    wait_for_load(folder.path());
    let id = rustix::process::Pid::from_raw(i32::try_from(demo.id()).unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let output = demo.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("B090"), "{output:?}");
    assert_eq!(entries(folder.path()), Vec::<PathBuf>::new());
    assert_eq!(processes_in(folder.path()), Vec::<String>::new());
}

#[test]
fn what_the_surroundings_refuse_keeps_its_own_code_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let deep = folder.path().join("long".repeat(30));
    std::fs::create_dir(&deep).unwrap();
    let output = start(&deep, &["--json"]).wait_with_output().unwrap();
    let error: Value = serde_json::from_str(lines(&output).last().unwrap()).unwrap();
    assert_eq!(error["code"], "B071", "a path too long for a socket: {error}");
    assert_eq!(entries(&deep), Vec::<PathBuf>::new());
    let output = start(&folder.path().join("absent"), &[]).wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("B071"), "{output:?}");
}
