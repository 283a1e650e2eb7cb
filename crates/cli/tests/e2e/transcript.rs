//! The sessions of `docs/transcript.md`, `docs/transcript-reshape.md` and
//! `docs/transcript-hosts.md`, pasted in one go, with their output. Also README.md's first minute.
//!
//! With `BRAID_WRITE_TRANSCRIPT=1` the pages are written anew. Times, numbers, UUIDs and widths may
//! differ between page and output.

use std::fmt::Write as _;
use std::io::{Seek, Write as _};
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::kit::{Mount, Need, needs, shell, skip};

/// A replacement with the length of the temporary folder's name, so that columns stay aligned.
const FOLDER: &str = "/home/ada/storage";

/// Separates the outputs of two commands, with the exit status of the first.
const MARK: &str = "@@@";

fn page(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

/// The shell command in which a page's lines run.
const SHELL: &str = "exec sh 2>&1";

/// The shell of the page about hosts, which are network namespaces. The shell has its own network
/// and its own processes, so that none of them is left when it ends.
const SHELL_OF_HOSTS: &str = "mkdir -p /run/netns; exec unshare --net --mount --pid --fork \
    --kill-child --mount-proc sh -c 'mount -t tmpfs none /run/netns && exec sh 2>&1'";

/// A shell session without a terminal.
struct Session {
    folder: tempfile::TempDir,
    shell: &'static str,
}

impl Session {
    fn new(shell: &'static str) -> Self {
        let folder =
            tempfile::Builder::new().prefix("braid-").tempdir_in("/tmp").expect("a folder");
        assert_eq!(folder.path().as_os_str().len(), FOLDER.len());
        Self { folder, shell }
    }

    fn shell(&self, line: &str) -> Command {
        let mut shell = shell(line);
        shell.current_dir(self.folder.path());
        shell.env("BRAID_RUNTIME_DIR", self.folder.path().join("run"));
        shell.env("BRAID_STATE_DIR", self.folder.path().join("state"));
        shell.envs([("LC_ALL", "C.UTF-8"), ("TERM", "dumb"), ("NO_COLOR", "1")]);
        shell
    }

    fn runs(&self, text: &str) -> Output {
        let mut pasted = tempfile::tempfile().expect("a file");
        pasted.write_all(text.as_bytes()).expect("it is written");
        pasted.rewind().expect("a file");
        self.shell(self.shell).stdin(pasted).output().expect("a shell")
    }

    /// Pastes lines in one go; returns the output of each line. Each line must succeed.
    fn pastes(&self, lines: &[String]) -> Vec<String> {
        let lines_and_marks = lines.iter().map(|line| format!("{line}\necho \"{MARK}$?\"\n"));
        let ran = self.runs(&lines_and_marks.collect::<String>());
        let here = self.folder.path().display().to_string();
        let said = String::from_utf8_lossy(&ran.stdout).replace(&here, FOLDER);
        let mut rest = said.as_str();
        let after = |line: &String| {
            let (printed, more) = rest.split_once(MARK).expect("the shell goes on");
            let (status, more) = more.split_once('\n').expect("a status");
            assert_eq!(status, "0", "{line}\n{printed}");
            rest = more;
            printed.to_owned()
        };
        lines.iter().map(after).collect()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Ends the programs that are still running, and waits until the daemon's file has left the
        // folder.
        let ends = "P=$(cat daemon.pid) && for i in $(seq 200); do kill -0 $P || break; \
                    [ $i = 100 ] && kill $P; sleep 0.05; done; umount --lazy disk; braid stop tank";
        let _ = self.shell(ends).output();
    }
}

/// The page, with the output that braid prints now.
fn typed(page: &str, shell: &'static str) -> String {
    let mut is_console = false;
    let mut kept: Vec<&str> = Vec::new();
    for line in page.lines() {
        let is_fence = line.starts_with("```");
        if is_fence {
            is_console = line == "```console";
        }
        if !is_console || is_fence || line.starts_with("$ ") {
            kept.push(line);
        }
    }
    let command = |line: &&str| line.strip_prefix("$ ").map(str::to_owned);
    let commands: Vec<String> = kept.iter().filter_map(command).collect();
    let mut said = Session::new(shell).pastes(&commands).into_iter();
    let mut now = String::new();
    for line in kept {
        writeln!(now, "{line}").expect("memory");
        if line.starts_with("$ ") {
            let said = said.next().expect("each has printed something, or nothing");
            now.push_str(&said);
            if !said.is_empty() && !said.ends_with('\n') {
                now.push('\n');
            }
        }
    }
    now
}

/// Replaces values that differ from run to run.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for line in text.lines() {
        let words = line.split_whitespace().map(|word| {
            let unit = word.strip_suffix("/s").unwrap_or(word);
            if ["B", "KiB", "MiB", "GiB"].contains(&unit) {
                return word.replace(unit, "B");
            }
            // The word is a bar of progress.
            if word.contains('·') {
                return "·".to_owned();
            }
            // The page's disk may be rotational, or not.
            if word == "deadline" {
                return "none".to_owned();
            }
            let digits = word.trim_matches(['(', ')', ',', ':']);
            let is_uuid = digits.len() == 35 && digits.matches(':').count() == 3;
            if is_uuid {
                return "UUID".to_owned();
            }
            let mut digits = String::new();
            for c in word.chars() {
                let c = if c.is_ascii_digit() { '0' } else { c };
                let is_more = c == '0' && digits.ends_with(['0', '.']);
                let is_point = c == '.' && digits.ends_with('0');
                if !is_more && !is_point {
                    digits.push(c);
                }
            }
            digits
        });
        let words: Vec<String> = words.collect();
        plain.push_str(&words.join(" "));
        plain.push('\n');
    }
    plain
}

/// Compares a page with what its commands print, or writes it anew.
fn compare(name: &str, shell: &'static str) {
    let written = std::fs::read_to_string(page(name)).expect("the page");
    let now = typed(&written, shell);
    if std::env::var_os("BRAID_WRITE_TRANSCRIPT").is_some() {
        return std::fs::write(page(name), now).expect("the page");
    }
    let (written, now) = (plain(&written), plain(&now));
    for (was, is) in written.lines().zip(now.lines()) {
        assert_eq!(
            is, was,
            "docs/{name} is not what is printed (BRAID_WRITE_TRANSCRIPT=1 writes it)"
        );
    }
    assert_eq!(now.lines().count(), written.lines().count());
}

/// Like [`compare`], with the tools for pages whose arrays have a file system.
fn compare_mounted(name: &str) {
    needs!("qemu-storage-daemon", "mke2fs", "e2fsck", "debugfs", "resize2fs", "fusermount3");
    if !Mount::is_possible() {
        return skip(Need::Fuse, "no /dev/fuse");
    }
    compare(name, SHELL);
}

#[test]
fn the_session_of_the_page_is_what_a_person_sees() {
    compare_mounted("transcript.md");
}

#[test]
fn the_session_of_an_array_that_grows_is_what_a_person_sees() {
    compare_mounted("transcript-reshape.md");
}

#[test]
fn the_session_of_three_hosts_is_what_a_person_sees() {
    needs!("ip", "openssl", "etcd", "unshare", "curl", "qemu-img");
    let tries = "ip netns add h1 && ip netns exec h1 unshare --uts true && \
                 ip link add hub type bridge\n";
    if !Session::new(SHELL_OF_HOSTS).runs(tries).status.success() {
        return skip(Need::Other, "no namespaces of networks, processes, mounts and names");
    }
    compare("transcript-hosts.md", SHELL_OF_HOSTS);
}

#[test]
fn the_first_minute_of_the_readme_can_be_pasted_in_one_go() {
    needs!("nbdinfo", "nbdcopy", "qemu-img");
    let readme = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(readme).expect("it is there");
    let (_, minute) = readme.split_once("## The first minute").expect("a chapter");
    let block = minute.split("```").nth(1).expect("a block");
    let session = Session::new(SHELL);
    // Makes the members smaller, and puts the socket into the session's folder.
    let socket = session.folder.path().join("tank.sock").display().to_string();
    let small = |line: &str| line.replace("256M", "16M").replace("/tmp/tank.sock", &socket);
    let commands = block.lines().filter_map(|line| line.strip_prefix("$ "));
    let commands: Vec<String> =
        commands.filter(|line| !line.starts_with("cargo ")).map(small).collect();
    assert!(commands.len() > 10, "{commands:?}");
    let said = session.pastes(&commands);
    let last = said.last().expect("several");
    assert!(last.contains("virtual size"), "{last}");
}
