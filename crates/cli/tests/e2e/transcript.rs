//! The session of `docs/transcript.md`, typed: what it prints is what is printed.
//!
//! With `BRAID_WRITE_TRANSCRIPT=1` the page is written anew. Times, numbers and UUIDs are not compared, nor how wide columns are.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::kit::{Mount, Need, needs, random_bytes, shell, skip, wait_until};

/// As long as the temporary folder's name, so that columns stay where they are.
const FOLDER: &str = "/home/ada/storage";

const LIMIT: Duration = Duration::from_secs(60);

fn page() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/transcript.md")
}

/// A person's terminal, without a terminal.
struct Session {
    folder: tempfile::TempDir,
    background: Vec<Child>,
}

impl Session {
    fn new() -> Self {
        let folder =
            tempfile::Builder::new().prefix("braid-").tempdir_in("/tmp").expect("a folder");
        assert_eq!(folder.path().as_os_str().len(), FOLDER.len());
        std::fs::write(folder.path().join("letter"), random_bytes(1, 200_000)).expect("a file");
        Self { folder, background: Vec::new() }
    }

    fn shell(&self, line: &str) -> Command {
        let mut shell = shell(line);
        shell.current_dir(self.folder.path());
        shell.env("BRAID_RUNTIME_DIR", self.folder.path().join("run"));
        shell.env("BRAID_STATE_DIR", self.folder.path().join("state"));
        shell.envs([("LC_ALL", "C.UTF-8"), ("TERM", "dumb"), ("NO_COLOR", "1")]);
        shell
    }

    /// Types a line; what is printed.
    fn types(&mut self, line: &str) -> String {
        if let Some(line) = line.strip_suffix('&') {
            let child = self
                .shell(&format!("exec {line}"))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            self.background.push(child.expect("a shell"));
            // A person looks whether it is there.
            let there =
                if line.starts_with("braid") { "braid status tank" } else { "test -s disk" };
            wait_until(line, LIMIT, || {
                self.shell(there).output().expect("a shell").status.success()
            });
            return String::new();
        }
        let ran = self.shell(&format!("{{ {line}\n}} 2>&1")).output().expect("a shell");
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(ran.status.success(), "{line}: {}\n{said}", ran.status);
        let here = self.folder.path().display().to_string();
        said.replace(&here, FOLDER)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for child in &mut self.background {
            // It has ended by itself if all went well.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The page with what is printed now.
fn typed(page: &str) -> String {
    let mut session = Session::new();
    let (mut is_console, mut now) = (false, String::new());
    for line in page.lines() {
        let is_fence = line.starts_with("```");
        if is_fence {
            is_console = line == "```console";
        }
        let command = line.strip_prefix("$ ").filter(|_| is_console);
        if is_console && !is_fence && command.is_none() {
            continue;
        }
        writeln!(now, "{line}").expect("memory");
        if let Some(command) = command {
            let said = session.types(command);
            now.push_str(&said);
            if !said.is_empty() && !said.ends_with('\n') {
                now.push('\n');
            }
        }
    }
    for mut child in session.background.drain(..) {
        let line = format!("{child:?} to end");
        wait_until(&line, LIMIT, || child.try_wait().expect("our own child").is_some());
    }
    now
}

/// Without what is another thing each time.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for line in text.lines() {
        let words = line.split_whitespace().map(|word| {
            let unit = word.strip_suffix("/s").unwrap_or(word);
            if ["B", "KiB", "MiB", "GiB"].contains(&unit) {
                return word.replace(unit, "B");
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

#[test]
fn the_session_of_the_page_is_what_a_person_sees() {
    needs!("qemu-storage-daemon", "mke2fs", "e2fsck", "debugfs");
    if !Mount::is_possible() {
        return skip(Need::Fuse, "no /dev/fuse");
    }
    let written = std::fs::read_to_string(page()).expect("the page");
    let now = typed(&written);
    if std::env::var_os("BRAID_WRITE_TRANSCRIPT").is_some() {
        return std::fs::write(page(), now).expect("the page");
    }
    let (written, now) = (plain(&written), plain(&now));
    for (was, is) in written.lines().zip(now.lines()) {
        assert_eq!(
            is, was,
            "docs/transcript.md is not what is printed (BRAID_WRITE_TRANSCRIPT=1 writes it)"
        );
    }
    assert_eq!(now.lines().count(), written.lines().count());
}
