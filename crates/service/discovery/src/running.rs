//! Finds running arrays by name, by UUID, or by the path of a control socket.
//!
//! ```text
//!   <runtime folder>/NAME.control   the socket that `braid serve` makes
//!   <runtime folder>/NAME.command   the command that serves it again, while the socket exists
//!   a word with a slash             the path of a socket, wherever `serve --control` put it
//! ```
//!
//! If another array has `NAME.control`, the socket is `UUID.control`.
//!
//! Each socket in the folder is asked for its array: several arrays may share a name, and a killed
//! server leaves its socket behind. Requests have a short deadline, and a silent server is
//! distinguished from a server that is gone.
//!
//! `serve` makes the folder and the sockets.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use braid_control::model::Array;
use braid_control::{Client, ClientError};

use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::shell_word;
use braid_console::regular::read_text;

/// The host's PID namespace, by its fixed number (`PROC_PID_INIT_INO`, linux/proc_ns.h).
const FIRST_PROCESSES: &str = "pid:[4026531836]";

/// Files that Docker's and Podman's containers have, even with the host's PID namespace.
const CONTAINERS: [&str; 2] = ["/.dockerenv", "/run/.containerenv"];

const SUFFIX: &str = "control";

/// Most servers to ask at a time: each needs a thread and a descriptor.
const ASKED_AT_ONCE: usize = 32;

const NOTE_BYTES_MAX: u64 = 64 << 10;

/// Deadline for a server's answer.
pub const PATIENCE: Duration = Duration::from_secs(15);

fn chosen_folder() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("BRAID_RUNTIME_DIR")?);
    folder.is_absolute().then_some(folder)
}

/// The runtime folder: `$BRAID_RUNTIME_DIR`; else `/run/braid` for root, or a folder in the XDG
/// runtime folder for other users.
pub fn folder() -> PathBuf {
    if let Some(folder) = chosen_folder() {
        return folder;
    }
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/run/braid");
    }
    let fallback = || {
        let user = rustix::process::geteuid().as_raw();
        std::env::temp_dir().join(format!("braid-{user}"))
    };
    std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .map_or_else(fallback, |folder| folder.join("braid"))
}

/// Whether files in the runtime folder outlive the server in every case except a power cut. In a
/// container, which may end with its process, they do not, nor in the folder of a user's session.
pub fn outlives_server() -> bool {
    let is_of_host = || !CONTAINERS.iter().any(|sign| Path::new(sign).exists());
    // If the operator chose the folder, its files are assumed to outlive the server, except in the
    // folder of a user's session.
    let is_of_system = match chosen_folder() {
        Some(folder) => !folder.starts_with("/run/user"),
        None => rustix::process::geteuid().is_root() && is_of_host(),
    };
    let namespace = std::fs::read_link("/proc/self/ns/pid");
    is_of_system && namespace.is_ok_and(|it| it == Path::new(FIRST_PROCESSES))
}

/// The path of the control socket for an array of this name.
pub fn control_path(name: &str) -> PathBuf {
    folder().join(format!("{name}.{SUFFIX}"))
}

/// The path of the file with the command that serves the socket's array again.
pub fn note_path(control: &Path) -> PathBuf {
    control.with_extension("command")
}

/// The command that serves the socket's array again, if the server left its file behind.
pub fn command_again(control: &Path) -> Option<String> {
    let path = note_path(control);
    let text = read_text(&path, NOTE_BYTES_MAX).ok()?;
    text.strip_suffix('\n').filter(|line| line.starts_with("braid ")).map(str::to_owned)
}

/// A running array and its control socket.
#[derive(Clone, Debug)]
pub struct RunningArray {
    /// The path of the control socket.
    pub control: PathBuf,
    /// The array's answer.
    pub array: Array,
}

impl RunningArray {
    /// A client of the array's control socket with the usual deadline.
    pub fn client(&self) -> Client<'_> {
        Client::new(&self.control, Some(PATIENCE))
    }

    /// The array's shortest name that is unique among `others`, for use in a command.
    pub fn word(&self, others: &[Self]) -> String {
        let is_found = self.control.parent() == Some(&folder());
        let is_alone = |same: &dyn Fn(&Array) -> bool| {
            is_found && others.iter().filter(|other| same(&other.array)).count() <= 1
        };
        let word = if is_alone(&|array| array.name == self.array.name) {
            self.array.name.clone()
        } else if is_alone(&|array| array.uuid == self.array.uuid) {
            self.array.uuid.clone()
        } else {
            self.control.display().to_string()
        };
        shell_word(&word).into_owned()
    }
}

/// A control socket at which no array answered, and the reason.
#[derive(Debug)]
pub struct Silent {
    /// The path of the control socket.
    pub control: PathBuf,
    /// Why no array answered.
    pub error: CliError,
}

/// All arrays in the runtime folder, by name.
#[derive(Debug, Default)]
pub struct RunningArrays {
    /// Arrays that answered.
    pub running: Vec<RunningArray>,
    /// Control sockets at which no array answered.
    pub silent: Vec<Silent>,
}

/// Asks every control socket in the runtime folder for its array.
pub fn all() -> RunningArrays {
    all_in(&folder())
}

/// Every control socket in the runtime folder.
pub fn sockets() -> Vec<PathBuf> {
    sockets_in(&folder())
}

fn sockets_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == SUFFIX)).collect();
    paths.sort();
    paths
}

fn all_in(folder: &Path) -> RunningArrays {
    let mut all = RunningArrays::default();
    for (control, answer) in ask_all(sockets_in(folder)) {
        match answer {
            Ok(array) => all.running.push(RunningArray { control, array }),
            // The socket was removed after the folder was read.
            Err(ClientError::Connect(error)) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                let error = unanswered(&control, &error);
                all.silent.push(Silent { control, error });
            }
        }
    }
    all.running.sort_by(|a, b| {
        (&a.array.name, &a.array.uuid, &a.control).cmp(&(&b.array.name, &b.array.uuid, &b.control))
    });
    all
}

/// Asks several control sockets at a time, so that silent servers delay a whole batch by one
/// deadline only.
fn ask_all(paths: Vec<PathBuf>) -> Vec<(PathBuf, Result<Array, ClientError>)> {
    let mut answers = Vec::with_capacity(paths.len());
    for batch in paths.chunks(ASKED_AT_ONCE) {
        std::thread::scope(|scope| {
            let begin = |path: &'_ PathBuf| {
                let path = path.clone();
                let thread = std::thread::Builder::new();
                thread.spawn_scoped(scope, move || ask(&path)).ok()
            };
            let asked: Vec<_> = batch.iter().map(begin).collect();
            for (path, asked) in batch.iter().zip(asked) {
                // If no thread could start, asks on the current thread.
                let answer = asked.map_or_else(
                    || ask(path),
                    |asked| asked.join().expect("asking does not panic"),
                );
                answers.push((path.clone(), answer));
            }
        });
    }
    answers
}

fn ask(control: &Path) -> Result<Array, ClientError> {
    Client::new(control, Some(PATIENCE)).get("/v1/array")
}

/// The running array that a word names: by path, name or UUID.
///
/// # Errors
/// No array matches, several arrays match, or the array's server does not answer.
pub fn find(word: &str) -> Result<RunningArray, CliError> {
    if word.contains('/') {
        let control = PathBuf::from(word);
        let array = ask(&control).map_err(|error| unanswered(&control, &error))?;
        return Ok(RunningArray { control, array });
    }
    find_in(all(), word)
}

fn find_in(all: RunningArrays, word: &str) -> Result<RunningArray, CliError> {
    let digits = hexadecimal(word);
    let is_meant = |array: &Array| {
        array.name == word || digits.is_some() && hexadecimal(&array.uuid) == digits
    };
    let mut meant: Vec<&RunningArray> =
        all.running.iter().filter(|running| is_meant(&running.array)).collect();
    match (meant.pop(), meant.is_empty()) {
        (Some(one), true) => Ok(one.clone()),
        (Some(last), false) => {
            meant.push(last);
            Err(several(word, &meant, &all.running))
        }
        (None, _) => Err(none(word, all)),
    }
}

/// The number in a UUID's digits, in mdadm's and braid's form or in that of a file's name.
fn hexadecimal(text: &str) -> Option<u128> {
    let digits: String = text.chars().filter(|c| !matches!(c, ':' | '-')).collect();
    u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32)
}

fn several(word: &str, meant: &[&RunningArray], all: &[RunningArray]) -> CliError {
    let what = format!("{} served arrays are called {word}", meant.len());
    let error = CliError::new(Code::SeveralServed, what).about(word);
    meant.iter().fold(error, |error, one| {
        let array = &one.array;
        let line = format!("{}  {}  {}", array.uuid, array.level, one.control.display());
        let command = format!("braid status {}", one.word(all));
        error.because(line).remedy(Risk::Look, "Name one of them", command)
    })
}

/// Error if no array is served.
pub fn none_served() -> CliError {
    let error = CliError::new(Code::NotServed, "no array is being served");
    let error = error.because(format!("there is no control socket in {}", folder().display()));
    let error = error.because(
        "name an array with another control socket (serve --control) by the path of that socket",
    );
    error.remedy(Risk::Look, "See the served arrays", "braid list")
}

/// Error for a word that matches no array. A killed server's control socket may match.
fn none(word: &str, all: RunningArrays) -> CliError {
    let stem = |silent: &Silent| {
        silent.control.file_stem().map(|stem| stem.to_string_lossy().into_owned())
    };
    let is_left = |silent: &Silent| {
        stem(silent).is_some_and(|stem| {
            stem == word || hexadecimal(word).is_some() && hexadecimal(&stem) == hexadecimal(word)
        })
    };
    if let Some(silent) = all.silent.into_iter().find(is_left) {
        return silent.error;
    }
    let names: Vec<&str> = all.running.iter().map(|one| one.array.name.as_str()).collect();
    let place = folder();
    let served = if names.is_empty() {
        format!("no array is served in {}", place.display())
    } else {
        format!("served in {} are: {}", place.display(), names.join(", "))
    };
    let error = CliError::new(Code::NotServed, format!("no array called {word} is being served"));
    let error = error.about(word).because(served).because(
        "name an array with another control socket (serve --control) by the path of that socket",
    );
    // The word may be a socket in the current folder, named without a slash.
    if Path::new(word).exists() {
        let command = format!("braid status {}", shell_word(&format!("./{word}")));
        return error.remedy(Risk::Look, "Ask the socket of that name", command);
    }
    error.remedy(Risk::Look, "See the served arrays", "braid list")
}

/// Error for a control socket at which no array answered.
pub fn unanswered(control: &Path, error: &ClientError) -> CliError {
    let place = control.display();
    let socket = shell_word(&control.to_string_lossy()).into_owned();
    let list = |error: CliError| error.remedy(Risk::Look, "See the served arrays", "braid list");
    let new = |code: Code, what: String| {
        CliError::new(code, what).about(control.display().to_string()).because(error.to_string())
    };
    match error {
        ClientError::Refused(problem) => CliError::from_problem(problem),
        ClientError::System(source) => {
            braid_console::error::system::system("the server cannot be reached", source)
        }
        ClientError::Connect(source) => match source.kind() {
            ErrorKind::NotFound => {
                list(new(Code::NotServed, format!("there is no control socket at {place}")))
            }
            ErrorKind::ConnectionRefused if is_socket(control) => {
                let what = format!("no process listens at {place} any more");
                let gone = new(Code::ServerGone, what).because(
                    "its server was killed, or the machine went down; the array is as after a \
                     crash",
                );
                let command = command_again(control);
                let command = command.unwrap_or_else(|| "braid serve MEMBER...".to_owned());
                list(gone.remedy(Risk::Change, "Serve it again", command))
            }
            ErrorKind::ConnectionRefused => {
                list(new(Code::NotServed, format!("{place} is no socket")))
            }
            ErrorKind::PermissionDenied => new(
                Code::ControlDenied,
                format!("this user may not use the control socket {place}"),
            )
            .remedy(Risk::Look, "Whose it is", format!("ls -l {socket}")),
            _ => list(new(Code::NotServed, format!("{place} cannot be connected to"))),
        },
        ClientError::Late(_) => {
            let what = format!("the server behind {place} does not answer");
            list(new(Code::ServerSilent, what))
        }
        ClientError::Ended(_) | ClientError::Answer(_) => {
            let what = format!("the process at {place} is no braid server, or has just ended");
            let error = new(Code::ServerSilent, what);
            let beside = control.with_extension(SUFFIX);
            if beside == control || !is_socket(&beside) {
                return list(error);
            }
            let command = format!("braid status {}", shell_word(&beside.to_string_lossy()));
            error.remedy(Risk::Look, "Ask the control socket beside it", command)
        }
    }
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn text(error: &CliError) -> String {
        error.to_text(braid_console::output::colour::Paint::plain())
    }

    #[test]
    fn a_uuid_is_read_as_mdadm_and_braid_write_it() {
        let number = Some(0xa1b2_c3d4_0506_0708_090a_0b0c_0d0e_0f10);
        for word in ["a1b2c3d4:05060708:090a0b0c:0d0e0f10", "A1B2C3D405060708090A0B0C0D0E0F10"] {
            assert_eq!(hexadecimal(word), number);
        }
        assert_eq!(hexadecimal("tank"), None);
        assert_eq!(hexadecimal("a1b2"), None);
    }

    #[test]
    fn a_server_that_is_gone_is_told_apart_from_one_that_is_silent_and_from_none() {
        let folder = tempfile::tempdir().unwrap();
        drop(UnixListener::bind(folder.path().join("gone.control")).unwrap());
        std::fs::write(folder.path().join("gone.command"), "braid serve '/a b' /c\n").unwrap();
        std::fs::write(folder.path().join("file.control"), "").unwrap();
        std::fs::write(folder.path().join("other.sock"), "").unwrap();
        let all = || all_in(folder.path());
        assert_eq!((all().running.len(), all().silent.len()), (0, 2));
        let gone = find_in(all(), "gone").unwrap_err();
        assert_eq!(gone.code(), Code::ServerGone);
        assert!(text(&gone).contains("  braid serve '/a b' /c\n"), "{}", text(&gone));
        assert_eq!(find_in(all(), "file").unwrap_err().code(), Code::NotServed);
        let none = find_in(all(), "tank").unwrap_err();
        assert_eq!(none.code(), Code::NotServed);
        assert!(text(&none).contains("braid list"), "{}", text(&none));
    }
}
