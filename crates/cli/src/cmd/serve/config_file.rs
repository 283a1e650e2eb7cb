//! `braid serve --name NAME`: serves with the options of a file and of the command line.
//!
//! ```text
//!   braid serve --name tank --read-only
//!     └─▶ /etc/braid/tank.toml ─▶ --nbd ... --cache-memory ... MEMBER ...
//!           ─clap─▶ the same Args as from a command line
//! ```
//!
//! An option of the command line replaces the same option of the file. Members of the command line
//! are added to the file's members.
//!
//! This module knows no option by itself. clap knows all options and their valid values.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser};

use super::Args;
use crate::cmd::{Cli, Command};
use crate::config::{self, Config, FileOption, ServeOption};
use braid_console::Globals;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::shell_word;
use braid_discovery::running;

/// Options that choose an array's configuration file.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ConfigFileArgs {
    /// Serve the array of this file: NAME.toml in the folder of --config-dir. Options given here go
    /// before the file's.
    #[arg(long, value_name = "NAME")]
    pub(super) name: Option<String>,
    /// The folder of these files; without it $BRAID_CONFIG_DIR, or /etc/braid.
    #[arg(long, value_name = "FOLDER", requires = "name")]
    config_dir: Option<PathBuf>,
}

impl ConfigFileArgs {
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

/// The options of `braid serve`.
pub(crate) fn serve_options() -> Vec<ServeOption> {
    let command = Cli::command();
    let serve = command.find_subcommand("serve").expect("it is a verb");
    let option = |one: &clap::Arg| {
        let key = one.get_long()?.to_owned();
        Some(ServeOption { key, takes_value: one.get_action().takes_values() })
    };
    serve.get_arguments().filter_map(option).collect()
}

/// The arguments of `serve`, merged with the options of the chosen configuration file.
pub(super) fn resolved(args: Args, globals: &Globals) -> Result<Args, CliError> {
    let Some(name) = &args.config_file.name else { return Ok(args) };
    let folder = args.config_file.config_dir.clone().unwrap_or_else(config::folder);
    let config = config::read(&folder, name, &serve_options())?;
    config::check_own(&config)?;
    let given: Vec<OsString> = std::env::args_os().collect();
    let line = with_options(&given, &config, args.array.is_some());
    // Errors in options are reported before the wait for members.
    let mut args = parsed(&line, &config)?;
    args.members.extend(config::members::members(&config, &globals.state_dir)?);
    Ok(args)
}

/// Refuses an array's name among the members.
pub(super) fn check_words(members: &[PathBuf]) -> Result<(), CliError> {
    let is_missing = |path: &Path| {
        let there = std::fs::symlink_metadata(path);
        there.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    };
    let words = members.iter().filter_map(|path| path.to_str());
    let words = words.filter(|word| !word.contains('/') && is_missing(Path::new(word)));
    let folder = config::folder();
    for word in words {
        let what = format!("{word} does not exist");
        let error = CliError::new(Code::MemberMissing, what).about(word).because(
            "`serve` takes the members of an array, files or devices; --name takes a name",
        );
        let name = shell_word(word);
        let path = config::path_of(&folder, word);
        if path.exists() {
            let what = format!("Serve the array as {} says", path.display());
            let serve = format!("braid serve --name {name}");
            return Err(error.remedy(Risk::Change, what, serve));
        }
        if members.len() == 1 {
            let error = match running::find(word) {
                Ok(_) => error.remedy(
                    Risk::Look,
                    "An array of this name is served; see its state",
                    format!("braid status {name}"),
                ),
                Err(_) => error,
            };
            let error =
                error.remedy(Risk::Look, "See which arrays exist, and their members", "braid scan");
            return Err(error.remedy(Risk::Look, "See the files in this folder", "ls -l"));
        }
    }
    Ok(())
}

/// The command line, plus the file's options that the command line does not give itself. The file's
/// options come right after the verb, before any member.
fn with_options(given: &[OsString], config: &Config, has_array: bool) -> Vec<OsString> {
    let is_given = |key: &str| {
        let (whole, begin) = (format!("--{key}"), format!("--{key}="));
        given
            .iter()
            .filter_map(|word| word.to_str())
            .any(|word| word == whole || word.starts_with(&begin))
    };
    let mut options: Vec<OsString> = Vec::new();
    if let Some(array) = config.array.as_ref().filter(|_| !has_array) {
        options.push(format!("--array={array}").into());
    }
    for FileOption { key, values, .. } in config.options.iter().filter(|one| !is_given(&one.key)) {
        match values.as_slice() {
            [] => options.push(format!("--{key}").into()),
            values => options.extend(values.iter().map(|value| format!("--{key}={value}").into())),
        }
    }
    let at = given.iter().position(|word| word == "serve").map_or(given.len(), |at| at + 1);
    let mut line = given.to_vec();
    line.splice(at..at, options);
    line
}

fn parsed(line: &[OsString], config: &Config) -> Result<Args, CliError> {
    let error = match Cli::try_parse_from(line) {
        Ok(Cli { command: Command::Serve(args), .. }) => return Ok(*args),
        Ok(_) => unreachable!("the verb is the same"),
        Err(error) => error.to_string(),
    };
    let first = error.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    let is_about = |one: &&FileOption| {
        let rest = first.split_once(&format!("--{}", one.key)).map(|(_, rest)| rest);
        rest.is_some_and(|rest| {
            !rest.starts_with(|sign: char| sign == '-' || sign.is_alphanumeric())
        })
    };
    let whole = FileOption { key: String::new(), values: Vec::new(), line: 1 };
    let given = config.options.iter().find(is_about).unwrap_or(&whole);
    Err(config.not_taken(given, first))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(options: &[(&str, &[&str])]) -> Config {
        let given = |(line, (key, values)): (usize, &(&str, &[&str]))| FileOption {
            key: (*key).into(),
            values: values.iter().map(|value| (*value).into()).collect(),
            line,
        };
        Config {
            path: "/etc/braid/tank.toml".into(),
            array: Some("tank".into()),
            members: Vec::new(),
            devices: Vec::new(),
            wait_seconds: 0,
            options: (2..).zip(options).map(given).collect(),
        }
    }

    fn line(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn a_command_line_goes_before_its_file() {
        let config =
            config(&[("nbd", &["nbd://a", "nbd://b"]), ("read-only", &[]), ("workers", &["2"])]);
        let given = line(&["braid", "--json", "serve", "--name", "tank", "--workers=1", "/x"]);
        let expected = [
            "braid",
            "--json",
            "serve",
            "--array=tank",
            "--nbd=nbd://a",
            "--nbd=nbd://b",
            "--read-only",
            "--name",
            "tank",
            "--workers=1",
            "/x",
        ];
        assert_eq!(with_options(&given, &config, false), line(&expected));
        assert_eq!(with_options(&given, &config, true).len(), expected.len() - 1);
    }

    #[test]
    fn a_value_that_is_not_taken_is_told_with_its_line() {
        let config = config(&[("read-only", &[]), ("workers", &["many"])]);
        let line = with_options(&line(&["braid", "serve", "--name", "tank"]), &config, false);
        let error = parsed(&line, &config).expect_err("many is no number");
        let text = error.to_text(braid_console::output::colour::Paint::plain());
        assert!(text.contains("line 3") && text.contains("--workers"), "{text}");
    }

    #[test]
    fn every_door_is_an_option() {
        let options = serve_options();
        for door in config::DOORS {
            assert!(options.iter().any(|one| one.key == door), "{door}");
        }
        let kinds =
            |key: &str| options.iter().find(|one| one.key == key).map(|one| one.takes_value);
        assert_eq!((kinds("read-only"), kinds("nbd")), (Some(false), Some(true)));
    }
}
