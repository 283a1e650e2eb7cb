//! For tests: a folder, the built command in it, and a comparison of all bytes before and after a
//! command.

#![allow(dead_code, clippy::unwrap_used)] // each test file uses its own part of the kit

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

use braid_test_needs::{Need, skip};
use serde_json::Value;
use tempfile::TempDir;

/// Size of most members.
pub(crate) const MEMBER: &str = "8M";
pub(crate) const MEMBER_BYTES: u64 = 8 << 20;

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) exit: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Outcome {
    /// Checks that the command succeeded, with nothing printed on standard error.
    #[track_caller]
    pub(crate) fn done(self) -> Self {
        assert_eq!((self.exit, self.err.as_str()), (0, ""), "{self:?}");
        self
    }

    /// Checks that the command was refused with this error code and exit status, and with a remedy.
    #[track_caller]
    pub(crate) fn refused(self, code: &str, exit: i32) -> Self {
        assert!(self.err.starts_with(&format!("error[{code}]: ")), "{self:?}");
        assert_eq!(self.exit, exit, "{self:?}");
        assert!(self.err.lines().count() > 1, "no way out: {self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn says(self, words: &str) -> Self {
        assert!(self.out.contains(words) || self.err.contains(words), "{words}: {self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

pub(crate) struct Folder {
    folder: TempDir,
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `braid` in the folder; the command line is split at spaces.
    pub(crate) fn braid(&self, command: &str) -> Outcome {
        let output = Command::new(env!("CARGO_BIN_EXE_braid"))
            .args(command.split_whitespace())
            .current_dir(self.folder.path())
            .env("BRAID_STATE_DIR", self.path("state"))
            .env_remove("CLICOLOR_FORCE")
            .output()
            .unwrap();
        Outcome {
            exit: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub(crate) fn file(&self, name: &str, bytes: u64) {
        File::create(self.path(name)).unwrap().set_len(bytes).unwrap();
    }

    pub(crate) fn files(&self, names: &[&str]) {
        names.iter().for_each(|name| self.file(name, MEMBER_BYTES));
    }

    pub(crate) fn write(&self, name: &str, offset: u64, bytes: &[u8]) {
        let file = File::options().write(true).open(self.path(name)).unwrap();
        file.write_all_at(bytes, offset).unwrap();
    }

    pub(crate) fn read(&self, name: &str, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        File::open(self.path(name)).unwrap().read_exact_at(&mut bytes, offset).unwrap();
        bytes
    }

    /// Every file below the folder with its bytes.
    pub(crate) fn everything(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.folder.path().to_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_symlink() {
                    found.insert(
                        path.clone(),
                        fs::read_link(path).unwrap().into_os_string().into_encoded_bytes(),
                    );
                } else if path.is_dir() {
                    found.insert(path.clone(), Vec::new());
                    folders.push(path);
                } else {
                    found.insert(path.clone(), fs::read(path).unwrap());
                }
            }
        }
        found
    }

    /// Runs a command that must change no file in the folder.
    #[track_caller]
    pub(crate) fn braid_changing_nothing(&self, command: &str) -> Outcome {
        let before = self.everything();
        let outcome = self.braid(command);
        assert!(self.everything() == before, "{command} changed something: {outcome:?}");
        outcome
    }

    /// Fields of `mdadm --examine`; `None` without mdadm.
    pub(crate) fn mdadm(&self, name: &str) -> Option<BTreeMap<String, String>> {
        let output = ["mdadm", "/sbin/mdadm", "/usr/sbin/mdadm"].into_iter().find_map(|program| {
            let mut command = Command::new(program);
            command.arg("--examine").arg(self.path(name)).env("LC_ALL", "C").output().ok()
        });
        let Some(output) = output else {
            skip(Need::Program, "no mdadm");
            return None;
        };
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        let fields = text.lines().filter_map(|line| line.split_once(" : "));
        Some(
            fields.map(|(key, value)| (key.trim().to_string(), value.trim().to_string())).collect(),
        )
    }
}

/// Writes an ext file system's signature to a file, with a label if it is not empty.
pub(crate) fn write_ext(folder: &Folder, name: &str, label: &str) {
    folder.write(name, 1024 + 56, &[0x53, 0xef]);
    folder.write(name, 1024 + 120, label.as_bytes());
}
