//! Builds the workspace's programs, in as few configurations as possible.
//!
//! Cargo unifies the features of packages that are built together. `cargo build --package braid`
//! after `cargo test --workspace` builds half of the tree again, because another crate's tests want
//! more of libc. So every step that runs a program gets the program from this module, and every
//! build names the whole workspace. Development programs are those that the step `test` has built.
//! That step builds only the simulator in release, which is a third of the tree.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::tidy;

/// A command of the cargo that runs this program.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let root = tidy::repository_root().unwrap_or_else(|_| ".".into());
    command.args(args).current_dir(root);
    command
}

pub(crate) fn folder() -> Result<PathBuf> {
    let set = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    set.map_or_else(|| tidy::repository_root().map(|root| root.join("target")), Ok)
}

/// Cargo's build profiles other than development.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    Release,
    Dist,
}

impl Profile {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Dist => "dist",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Braid,
    Lab,
    Sim,
}

impl Program {
    const fn name(self) -> &'static str {
        match self {
            Self::Braid => "braid",
            Self::Lab => "braid-lab",
            Self::Sim => "braid-sim",
        }
    }

    /// The name of an integration test of the program's package: cargo builds a package's programs
    /// for its integration tests.
    const fn test(self) -> &'static str {
        match self {
            Self::Braid => "commands",
            Self::Lab => "allocations",
            Self::Sim => "dependencies",
        }
    }

    /// Makes the development build (quick if it is built already), and returns the program's path.
    pub(crate) fn dev(self) -> Result<PathBuf> {
        self.build(&["test", "--no-run", "--test", self.test()])
    }

    /// Makes the release build (quick if it is built already), and returns the program's path.
    pub(crate) fn release(self) -> Result<PathBuf> {
        self.built(Profile::Release)
    }

    pub(crate) fn built(self, profile: Profile) -> Result<PathBuf> {
        self.build(&["build", "--profile", profile.name(), "--bin", self.name()])
    }

    fn build(self, words: &[&str]) -> Result<PathBuf> {
        let mut command = command(words);
        command.args(["--quiet", "--workspace", "--message-format=json-render-diagnostics"]);
        let output = command.stderr(Stdio::inherit()).output().context("cargo")?;
        ensure!(output.status.success(), "{command:?}: {}", output.status);
        let messages = String::from_utf8_lossy(&output.stdout);
        executable(&messages, self.name())
            .with_context(|| format!("cargo builds no {}", self.name()))
    }
}

/// A test program that cargo built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TestProgram {
    /// The package's folder, in which `cargo test` would run the program.
    pub(crate) folder: PathBuf,
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// Builds all tests of the workspace; returns their programs in the order in which cargo built
/// them.
pub(crate) fn test_programs() -> Result<Vec<TestProgram>> {
    let mut command = command(&["test", "--no-run", "--workspace"]);
    command.arg("--message-format=json-render-diagnostics");
    let output = command.stderr(Stdio::inherit()).output().context("cargo")?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    Ok(programs_of_tests(&String::from_utf8_lossy(&output.stdout)))
}

fn programs_of_tests(messages: &str) -> Vec<TestProgram> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let made = messages.filter(|message| message["profile"]["test"] == true);
    made.filter_map(|message| {
        let manifest = PathBuf::from(message["manifest_path"].as_str()?);
        Some(TestProgram {
            folder: manifest.parent()?.to_owned(),
            name: message["target"]["name"].as_str()?.to_owned(),
            path: message["executable"].as_str()?.into(),
        })
    })
    .collect()
}

/// The path of the named program in cargo's messages, not of the program's test harness.
fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = messages.filter(|message| {
        let is_program = message["target"]["kind"] == serde_json::json!(["bin"]);
        message["target"]["name"] == name && is_program && message["profile"]["test"] == false
    });
    programs.find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_told_from_its_tests_and_from_others() {
        let message = |name: &str, kind: &str, test: bool, path: &str| {
            serde_json::json!({
                "target": { "name": name, "kind": [kind] }, "profile": { "test": test },
                "executable": path, "manifest_path": "/work/crates/one/Cargo.toml",
            })
            .to_string()
        };
        let messages = [
            message("braid", "bin", true, "/harness"),
            message("braid", "test", false, "/test"),
            message("braid-sim", "bin", false, "/sim"),
            message("braid", "bin", false, "/braid"),
            "{}".to_owned(),
            "words".to_owned(),
        ];
        let found = |name| executable(&messages.join("\n"), name);
        assert_eq!(found("braid"), Some("/braid".into()));
        assert_eq!(found("braid-sim"), Some("/sim".into()));
        assert_eq!(found("braid-lab"), None);
        let tests = programs_of_tests(&messages.join("\n"));
        let folder = PathBuf::from("/work/crates/one");
        let harness = TestProgram { folder, name: "braid".into(), path: "/harness".into() };
        assert_eq!(tests, [harness]);
    }
}
