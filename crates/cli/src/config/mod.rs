//! Configuration files of arrays: `/etc/braid/NAME.toml`, one file for each array.
//!
//! ```text
//!   text --toml--> keys with lines --known?--> Config { members, options: words of `braid serve` }
//! ```
//!
//! There is no second list of options: every key below `[doors]` and `[policy]` is a long option of
//! `braid serve`, and clap parses its value as from a command line. Keys at the top say which
//! devices hold the array.
//!
//! Not here: finding devices ([`members`]), judging values (clap, in `serve::config_file`).
//!
//! Invariants
//! - an unknown key is refused with its line and the nearest known key
//!   `[check: an_unknown_key_is_refused_with_its_line_and_a_likely_one]`.

pub(crate) mod mdadm;
pub(crate) mod members;

use std::fs::Permissions;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::shell_word;
use braid_console::private;
use braid_console::regular::{self, NotRead};
use braid_console::state::write_whole;

/// Longest configuration file that is read: a hundred members by their longest names need a tenth.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// Default time to wait for missing members: disks behind an expander spin up in turn.
const WAIT_SECONDS: u64 = 30;

const WAIT_SECONDS_MAX: u64 = 3600;

/// The keys at the top of a file.
const TOP: [&str; 6] = ["array", "members", "devices", "wait-seconds", "doors", "policy"];

const NOT_IN_A_FILE: [&str; 7] =
    ["help", "run", "array", "name", "config-dir", "detach", "detached"];

/// Options that name a place where clients reach the array. All other options say how it is served.
pub(crate) const DOORS: [&str; 8] =
    ["nbd", "tls", "tls-clients", "tls-optional", "fuse", "ublk", "vhost-user", "control"];

/// A parsed configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) path: PathBuf,
    /// The array's UUID or name; `None` if the members alone identify the array.
    pub(crate) array: Option<String>,
    pub(crate) members: Vec<PathBuf>,
    /// Patterns of devices to search for members; if empty, all block devices.
    pub(crate) devices: Vec<String>,
    /// The longest wait for missing members.
    pub(crate) wait_seconds: u64,
    /// Options of `serve`, in the order of the file.
    pub(crate) options: Vec<FileOption>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileOption {
    /// The option's long name.
    pub(crate) key: String,
    /// The option's values; none for a flag.
    pub(crate) values: Vec<String>,
    pub(crate) line: usize,
}

/// An option of `serve`, as clap knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServeOption {
    /// The option's long name.
    pub(crate) key: String,
    pub(crate) takes_value: bool,
}

/// An error in a configuration file, and its line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileError {
    line: usize,
    what: String,
    likely: Option<String>,
}

/// The folder of configuration files: `$BRAID_CONFIG_DIR`, or `/etc/braid`.
pub(crate) fn folder() -> PathBuf {
    let named = std::env::var_os("BRAID_CONFIG_DIR").filter(|folder| !folder.is_empty());
    named.map_or_else(|| PathBuf::from("/etc/braid"), PathBuf::from)
}

pub(crate) fn path_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.toml"))
}

/// The names of all arrays with a file, in order.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let name = |path: PathBuf| {
        let is_one = path.extension().is_some_and(|end| end == "toml");
        is_one.then(|| path.file_stem()?.to_str().map(str::to_owned)).flatten()
    };
    let mut names: Vec<String> = entries.filter_map(|entry| name(entry.path())).collect();
    names.sort();
    names
}

/// Writes the configuration file of an array, readable by all users. The server reads the file as
/// another user than its author, and it holds no secrets unless an operator puts one in.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(folder: &Path, name: &str, text: &str) -> std::io::Result<PathBuf> {
    let mode = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode));
    let is_new = !folder.is_dir();
    let path = path_of(folder, name);
    write_whole(&path, text)?;
    if is_new {
        mode(folder, 0o755)?;
    }
    mode(&path, 0o644)?;
    Ok(path)
}

/// Reads the configuration file of an array.
///
/// # Errors
/// The file does not exist, or has an error.
pub(crate) fn read(folder: &Path, name: &str, known: &[ServeOption]) -> Result<Config, CliError> {
    let path = path_of(folder, name);
    if name.is_empty() || name.starts_with('.') || name.contains('/') {
        return Err(missing(folder, name, "a name has no slash, and begins with no dot"));
    }
    let text = regular::read_text(&path, FILE_BYTES_MAX).map_err(|why| match why {
        NotRead::System(error) if error.kind() != ErrorKind::InvalidData => {
            missing(folder, name, &error.to_string())
        }
        why => {
            let command = format!("ls -lL {}", shell_word(&path.display().to_string()));
            cannot_be_used(&path).caused_by(&why).remedy(Risk::Look, "See it", command)
        }
    })?;
    parse(&path, &text, known).map_err(|wrong| unfit(&path, &wrong))
}

/// Refuses a file that another user could have written, because it names commands to run.
///
/// # Errors
/// Other users may write the file, or put another file in its place.
pub(crate) fn check_own(config: &Config) -> Result<(), CliError> {
    let why = match private::check_file(&config.path) {
        Ok(()) => return Ok(()),
        Err(why) => why,
    };
    let label = config.path.display().to_string();
    let word = |path: &Path| shell_word(&path.display().to_string()).into_owned();
    let folder = config.path.parent().unwrap_or(Path::new("/"));
    let (file, folder) = (word(&config.path), word(folder));
    let what = format!("{label} can be changed by users other than {}", whose());
    let error = CliError::new(Code::ConfigOfOthers, what).about(label).because(why);
    let error = error.because("it names commands that braid runs for events, as that user");
    let own = format!("chown {} {folder} {file} && chmod go-w {folder} {file}", geteuid().as_raw());
    let look = format!("ls -ldL {folder} {file}");
    let error = error.remedy(Risk::Look, "See their owners", look);
    Err(error.remedy(Risk::Change, "If its content is right, make it your own", own))
}

fn whose() -> String {
    let own = geteuid();
    if own.is_root() { "root".to_owned() } else { format!("user {} and root", own.as_raw()) }
}

fn cannot_be_used(path: &Path) -> CliError {
    let label = path.display().to_string();
    CliError::new(Code::ConfigUnfit, format!("{label} cannot be used")).about(label)
}

fn missing(folder: &Path, name: &str, why: &str) -> CliError {
    let path = path_of(folder, name);
    let what = format!("'{name}' has no configuration");
    let error = CliError::new(Code::ConfigMissing, what).about(name);
    let error = error.because(format!("{}: {why}", path.display()));
    let names = names(folder);
    let error = match likely(name, names.iter().map(String::as_str)) {
        Some(other) => error.because(format!("is '{other}' meant?")),
        None => error,
    };
    error.remedy(Risk::Look, "See which arrays exist, and a file for each", "braid scan")
}

/// The error for a configuration file that cannot be used.
fn unfit(path: &Path, wrong: &FileError) -> CliError {
    let label = path.display().to_string();
    let error = cannot_be_used(path).because(format!("line {}: {}", wrong.line, wrong.what));
    let error = match &wrong.likely {
        Some(likely) => error.because(format!("is '{likely}' meant?")),
        None => error,
    };
    let command = format!("sed -n {}p {}", wrong.line, shell_word(&label));
    error.remedy(Risk::Look, "See the line", command).remedy(
        Risk::Look,
        "See the options",
        "braid serve --help",
    )
}

impl Config {
    /// The error for a rejected option of the configuration file.
    pub(crate) fn not_taken(&self, given: &FileOption, why: &str) -> CliError {
        unfit(&self.path, &FileError { line: given.line, what: why.to_owned(), likely: None })
    }
}

fn parse(path: &Path, text: &str, known: &[ServeOption]) -> Result<Config, FileError> {
    let file = File { text, known };
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().unwrap_or(0..0);
        FileError { line: file.line(&at), what: error.message().to_owned(), likely: None }
    })?;
    let mut config = Config {
        path: path.to_path_buf(),
        array: None,
        members: Vec::new(),
        devices: Vec::new(),
        wait_seconds: WAIT_SECONDS,
        options: Vec::new(),
    };
    let mut entries: Vec<_> = table.get_ref().iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in entries {
        file.top(key, value, &mut config)?;
    }
    if config.array.is_none() && config.members.is_empty() {
        let what = "it has neither `array = \"UUID\"` nor `members = [\"PATH\", ...]`".to_owned();
        return Err(FileError { line: 1, what, likely: None });
    }
    if !config.members.is_empty() && !config.devices.is_empty() {
        let what = "`members` lists all members, so `devices` is not searched";
        return Err(FileError { line: 1, what: what.to_owned(), likely: None });
    }
    Ok(config)
}

struct File<'a> {
    text: &'a str,
    known: &'a [ServeOption],
}

type Key<'a> = Spanned<std::borrow::Cow<'a, str>>;
type Value<'a> = Spanned<DeValue<'a>>;

impl File<'_> {
    fn line(&self, at: &Range<usize>) -> usize {
        1 + self.text.as_bytes()[..at.start.min(self.text.len())]
            .iter()
            .filter(|one| **one == b'\n')
            .count()
    }

    fn wrong(&self, at: &Range<usize>, what: impl Into<String>) -> FileError {
        FileError { line: self.line(at), what: what.into(), likely: None }
    }

    fn top(&self, key: &Key<'_>, value: &Value<'_>, config: &mut Config) -> Result<(), FileError> {
        let name: &str = key.get_ref();
        match name {
            "array" => {
                let DeValue::String(word) = value.get_ref() else {
                    return Err(
                        self.wrong(&value.span(), "`array` is the UUID of an array, or its name")
                    );
                };
                config.array = Some(word.to_string());
            }
            "members" | "devices" => {
                let paths = self.paths(name, value)?;
                match name {
                    "members" => config.members = paths.into_iter().map(PathBuf::from).collect(),
                    _ => config.devices = paths,
                }
            }
            "wait-seconds" => {
                let number = match value.get_ref() {
                    DeValue::Integer(number) => number.as_str().parse::<u64>().ok(),
                    _ => None,
                };
                let number =
                    number.filter(|number| *number <= WAIT_SECONDS_MAX).ok_or_else(|| {
                        let what =
                            format!("`wait-seconds` is a number from 0 to {WAIT_SECONDS_MAX}");
                        self.wrong(&value.span(), what)
                    })?;
                config.wait_seconds = number;
            }
            "doors" | "policy" => {
                let DeValue::Table(table) = value.get_ref() else {
                    return Err(self.wrong(&key.span(), format!("[{name}] is a table of options")));
                };
                let mut entries: Vec<_> = table.iter().collect();
                entries.sort_by_key(|(key, _)| key.span().start);
                for (key, value) in entries {
                    config.options.extend(self.option(name, key, value)?);
                }
            }
            _ => {
                let mut wrong = self.wrong(&key.span(), format!("'{name}' is not known"));
                let options = self.options().filter_map(|one| self.table_of(one));
                wrong.likely = likely(name, TOP.into_iter());
                if let Some(table) = options.into_iter().find(|(key, _)| *key == name) {
                    wrong.what = format!("'{name}' stands below [{}]", table.1);
                }
                return Err(wrong);
            }
        }
        Ok(())
    }

    /// Options that are allowed in a configuration file.
    fn options(&self) -> impl Iterator<Item = &str> {
        self.known.iter().map(|one| &*one.key).filter(|key| !NOT_IN_A_FILE.contains(key))
    }

    fn table_of<'a>(&self, key: &'a str) -> Option<(&'a str, &'static str)> {
        Some((
            key,
            if DOORS.contains(&key) || key.starts_with("metrics") { "doors" } else { "policy" },
        ))
    }

    /// One option of the file; `None` for a flag that is off.
    fn option(
        &self,
        table: &str,
        key: &Key<'_>,
        value: &Value<'_>,
    ) -> Result<Option<FileOption>, FileError> {
        let name: &str = key.get_ref();
        let known = self.known.iter().find(|one| one.key == name);
        let Some(known) = known.filter(|_| !NOT_IN_A_FILE.contains(&name)) else {
            let mut wrong =
                self.wrong(&key.span(), format!("'{name}' is not known below [{table}]"));
            wrong.likely = likely(name, self.options());
            return Err(wrong);
        };
        if let Some((_, right)) = self.table_of(name)
            && right != table
        {
            return Err(self.wrong(&key.span(), format!("'{name}' stands below [{right}]")));
        }
        let given = |values| {
            Some(FileOption { key: name.to_owned(), values, line: self.line(&key.span()) })
        };
        if !known.takes_value {
            return match value.get_ref() {
                DeValue::Boolean(true) => Ok(given(Vec::new())),
                DeValue::Boolean(false) => Ok(None),
                _ => Err(self.wrong(&value.span(), format!("`{name}` is true or false"))),
            };
        }
        match value.get_ref() {
            DeValue::Array(values) => {
                let words = values.iter().map(|value| self.word(name, value));
                Ok(given(words.collect::<Result<_, _>>()?))
            }
            _ => Ok(given(vec![self.word(name, value)?])),
        }
    }

    /// The option's value as a command line would spell it.
    fn word(&self, name: &str, value: &Value<'_>) -> Result<String, FileError> {
        match value.get_ref() {
            DeValue::String(word) => Ok(word.to_string()),
            DeValue::Integer(number) => Ok(number.to_string()),
            DeValue::Float(number) => Ok(number.to_string()),
            _ => Err(self
                .wrong(&value.span(), format!("`{name}` is a word, a number or a list of them"))),
        }
    }

    /// A list of absolute paths; others are refused, as a service has no folder of its own.
    fn paths(&self, name: &str, value: &Value<'_>) -> Result<Vec<String>, FileError> {
        let DeValue::Array(values) = value.get_ref() else {
            return Err(self.wrong(&value.span(), format!("`{name}` is a list of paths")));
        };
        let path =
            |value: &Value<'_>| match value.get_ref() {
                DeValue::String(path) if path.starts_with('/') => Ok(path.to_string()),
                _ => Err(self
                    .wrong(&value.span(), format!("`{name}` has paths that begin with a slash"))),
            };
        values.iter().map(path).collect()
    }
}

/// The word of `words` most like `word`, if it is alike enough.
pub(crate) fn likely<'a>(word: &str, words: impl Iterator<Item = &'a str>) -> Option<String> {
    let word = word.replace('_', "-");
    let near = |other: &str| strsim::damerau_levenshtein(&word, other);
    // A typing error changes at most a third of a word.
    let nearest = words.map(|other| (near(other), other)).min()?;
    (nearest.0 <= 1 + word.len() / 3).then(|| nearest.1.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Vec<ServeOption> {
        let one = |(key, takes_value): (&str, bool)| ServeOption { key: key.into(), takes_value };
        let all = [("nbd", true), ("read-only", false), ("job-floor", true), ("run", true)];
        all.into_iter().map(one).collect()
    }

    fn parsed(text: &str) -> Result<Config, FileError> {
        parse(Path::new("/etc/braid/tank.toml"), text, &options())
    }

    fn wrong(text: &str) -> (usize, String, Option<String>) {
        let wrong = parsed(text).expect_err("it is not understood");
        (wrong.line, wrong.what, wrong.likely)
    }

    #[test]
    fn a_file_is_members_doors_and_policy() {
        let text = "array = \"tank\"\nwait-seconds = 5\ndevices = [\"/dev/sd*\"]\n[doors]\nnbd = [\"nbd://a\", \"nbd://b\"]\n\
                    [policy]\nread-only = true\njob-floor = \"8M\"\n";
        let config = parsed(text).expect("it is understood");
        assert_eq!((config.array.as_deref(), config.wait_seconds), (Some("tank"), 5));
        assert_eq!(config.devices, ["/dev/sd*"]);
        let words: Vec<(&str, usize, usize)> =
            config.options.iter().map(|one| (&*one.key, one.values.len(), one.line)).collect();
        assert_eq!(words, [("nbd", 2, 5), ("read-only", 0, 7), ("job-floor", 1, 8)]);
        let off = parsed("members = [\"/a\"]\n[policy]\nread-only = false\n").expect("understood");
        assert_eq!((off.options.len(), off.wait_seconds), (0, WAIT_SECONDS));
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line_and_a_likely_one() {
        let (line, what, likely) = wrong("array = \"a\"\n\n[policy]\nread_only = true\n");
        assert_eq!((line, likely.as_deref()), (4, Some("read-only")));
        assert!(what.contains("'read_only'"), "{what}");
        let (line, _, likely) = wrong("aray = \"a\"\n");
        assert_eq!((line, likely.as_deref()), (1, Some("array")));
        let (_, what, _) = wrong("array = \"a\"\nnbd = [\"nbd://\"]\n");
        assert!(what.contains("below [doors]"), "{what}");
        let (_, what, _) = wrong("array = \"a\"\n[policy]\nnbd = [\"nbd://\"]\n");
        assert!(what.contains("below [doors]"), "{what}");
        let (_, _, likely) = wrong("array = \"a\"\n[policy]\nzzzzzz = 1\n");
        assert_eq!(likely, None);
        assert!(wrong("array = \"a\"\n[policy]\nrun = \"x\"\n").1.contains("not known"));
    }

    #[test]
    fn what_is_no_file_of_an_array_is_refused_with_its_line() {
        assert_eq!(wrong("array = \"a\"\nmembers = [\n").0, 2);
        assert!(wrong("").1.contains("neither"));
        assert_eq!(wrong("members = [\"a\"]\n").1, "`members` has paths that begin with a slash");
        assert!(wrong("array = \"a\"\nwait-seconds = 1e3\n").1.contains("from 0 to"));
        assert!(wrong("members = [\"/a\"]\ndevices = [\"/b\"]\n").1.contains("is not searched"));
        assert!(
            wrong("array = \"a\"\n[policy]\nread-only = \"yes\"\n").1.contains("true or false")
        );
        assert!(wrong("array = \"a\"\narray = \"b\"\n").0 == 2);
    }

    #[test]
    fn names_with_slashes_lead_nowhere() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("tank.toml"), "members = [\"/a\"]\n").expect("a file");
        let code = |name| read(folder.path(), name, &options()).map_err(|error| error.code());
        assert!(code("tank").is_ok());
        for name in ["", "../tank", ".tank", "tan"] {
            assert_eq!(code(name), Err(Code::ConfigMissing), "{name}");
        }
        assert_eq!(names(folder.path()), ["tank"]);
    }
}
