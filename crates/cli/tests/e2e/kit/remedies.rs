//! Tries remedies: for each refusal in a test, its harmless commands run and must work.
//!
//! ```text
//!   it looks       unchanged; `serve` with `--run true`, so that it ends
//!   it changes     with `-n`, where its verb knows that
//!   a pattern      (a word in capitals, an ellipsis) is for the operator to fill in, and not run
//! ```
//!
//! A test [follows](Array::follow) a remedy that changes, destroys, or has a blank to fill in.
//!
//! `cargo xtask test` compares the labels of tried remedies with those in the source
//! (`xtask/src/remedies.rs`).

use std::ffi::OsString;
use std::io::Write;
use std::process::Command;

use serde_json::Value;

use super::array::Array;
use super::process::{Background, Ran, shell};

/// The environment variable with the file to which labels of commands that ran are written.
const NOTES: &str = "BRAID_REMEDIES_RUN";

/// Verbs that support `-n` as a dry run.
const DRY: [&str; 14] = [
    "create", "set", "tune", "add", "spare", "fail", "remove", "replace", "rebuild", "pause",
    "resume", "stop", "undo", "replay",
];

/// The folder and the environment in which a braid command ran: its remedies run in the same ones.
#[derive(Debug)]
pub(super) struct CommandEnv {
    runtime: Option<OsString>,
    state: Option<OsString>,
    folder: Option<OsString>,
}

impl CommandEnv {
    /// The folders of a command, if the command is braid's.
    pub(super) fn of(command: &Command) -> Option<Self> {
        let words: Vec<_> = command.get_args().collect();
        let is_braid = command.get_program() == env!("CARGO_BIN_EXE_braid");
        let state = words.iter().position(|word| *word == "--state-dir");
        let state = state.and_then(|at| words.get(at + 1)).map(|word| (*word).to_owned());
        let mut set = command.get_envs();
        let runtime = set.find(|(key, _)| *key == "BRAID_RUNTIME_DIR").and_then(|(_, value)| value);
        let runtime = runtime.map(ToOwned::to_owned);
        let folder = command.get_current_dir().map(|folder| folder.as_os_str().to_owned());
        is_braid.then_some(Self { runtime, state, folder })
    }

    /// Tries the remedies of a refusal, if the output is one.
    pub(super) fn try_each(&self, output: &str) {
        let last = output.lines().last().unwrap_or_default();
        let Ok(error) = serde_json::from_str::<Value>(last) else { return };
        for remedy in error["remedies"].as_array().into_iter().flatten() {
            let text = |key: &str| remedy[key].as_str().unwrap_or_default();
            let (risk, label, command) = (text("risk"), text("label"), text("command"));
            let Some(line) = harmless(risk, command) else { continue };
            self.run(&line, &error);
            note(label);
        }
    }

    fn run(&self, line: &str, error: &Value) {
        let mut shell = shell(&format!("exec 2>&1; {line}"));
        shell.envs(self.runtime.as_ref().map(|runtime| ("BRAID_RUNTIME_DIR", runtime)));
        shell.envs(self.state.as_ref().map(|state| ("BRAID_STATE_DIR", state)));
        if let Some(folder) = &self.folder {
            shell.current_dir(folder);
        }
        let ran = shell.output().expect("a shell");
        let said = String::from_utf8_lossy(&ran.stdout);
        let works = match (line.starts_with("braid "), ran.status.code()) {
            // braid reported a usage error, or could not be executed.
            (true, Some(2 | 126 | 127) | None) => false,
            (true, Some(_)) => !said.contains("error[B001]"),
            // Another program is not installed on this machine, or finds nothing.
            (false, Some(code)) => code == 127 || code <= 1,
            (false, None) => false,
        };
        assert!(works, "what is offered does not work: {line}\n{}\n{said}\n{error:#}", ran.status);
    }
}

/// The command with this label in a refusal. A caller that runs the command also [notes](note) its
/// label.
#[track_caller]
pub(crate) fn offered(error: &Value, label: &str) -> String {
    let mut remedies = error["remedies"].as_array().into_iter().flatten();
    let command =
        remedies.find(|one| one["label"] == label).and_then(|one| one["command"].as_str());
    let command = command.unwrap_or_else(|| panic!("not offered: {label}: {error:#}"));
    command.to_owned()
}

impl Array {
    /// Types the command with this label in a refusal; the command must work. A server ends by
    /// itself.
    #[track_caller]
    pub(crate) fn follow(&self, error: &Value, label: &str) -> Ran {
        self.follow_with(error, label, &[])
    }

    /// Types the command with this label, with these words in place of the operator's choices; the
    /// command must work.
    #[track_caller]
    pub(crate) fn follow_with(&self, error: &Value, label: &str, chosen: &[(&str, &str)]) -> Ran {
        let mut line = offered(error, label);
        for (word, by) in chosen {
            assert!(line.contains(word), "no {word} in {line}");
            line = line.replace(word, by);
        }
        let is_to_serve =
            line.starts_with("braid ") && (line.contains(" serve ") || line.contains(" --serve "));
        if is_to_serve {
            line.push_str(" --run true");
        }
        let ran = self.type_line(&line);
        // The examined members may need attention, so exit status 3 is allowed.
        let is_look = ["braid examine ", "braid rescue "].iter().any(|look| line.starts_with(look));
        let is_looked_at = is_look && ran.status.code() == Some(3);
        assert!(
            ran.status.success() || is_looked_at,
            "what is offered does not work: {line}\n{ran:?}\n{error:#}"
        );
        let is_served = format!("{}{}", ran.stdout, ran.stderr).contains("serving");
        assert!(is_served || !is_to_serve, "it is not served: {line}\n{ran:?}");
        note(label);
        ran
    }

    /// Types a line in a shell in the array's folder, with the array's runtime folder.
    pub(crate) fn type_line(&self, line: &str) -> Ran {
        let mut shell = shell(line);
        shell.current_dir(self.path(""));
        shell.env("BRAID_RUNTIME_DIR", self.runtime());
        shell.env("BRAID_STATE_DIR", self.path("state"));
        Background::spawn_command(shell, "").wait()
    }
}

/// A remedy's command or its harmless form; `None` if the command would change something.
fn harmless(risk: &str, command: &str) -> Option<String> {
    let mut words = command.split_whitespace();
    let is_pattern = |word: &str| {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        let is_capital = |c: char| c.is_ascii_uppercase() || c == '_';
        word.len() > 3 && word.chars().all(is_capital) || word.contains('…')
    };
    let is_compound = command.contains("&&") || command.contains(';');
    if words.clone().any(is_pattern) || command.contains('…') || is_compound {
        return None;
    }
    let is_braid = words.next() == Some("braid");
    let verb = words.find(|word| !word.starts_with('-')).unwrap_or_default();
    // Options before the verb may have a value.
    let verb = if command.contains(" serve ") { "serve" } else { verb };
    let follows = ["--watch", " -f", "--follow"].iter().any(|word| command.contains(word));
    match (is_braid, verb, risk) {
        (true, "serve", "look") => Some(format!("{command} --run true")),
        (true, "rescue", "look") if command.contains(" --serve ") => {
            Some(format!("{command} --run true"))
        }
        (true, "wait" | "top" | "demo" | "check", _) => None,
        (true, _, "look") => (!follows).then(|| command.to_owned()),
        (true, verb, _) => DRY.contains(&verb).then(|| format!("{command} -n")),
        (false, _, "look") => Some(command.to_owned()),
        (false, ..) => None,
    }
}

/// Notes that a remedy's command with this label ran and did what the label says.
pub(crate) fn note(label: &str) {
    let Some(path) = std::env::var_os(NOTES) else { return };
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    // With O_APPEND, lines of several processes stay whole.
    file.and_then(|mut file| file.write_all(format!("{label}\n").as_bytes())).expect("notes");
}
