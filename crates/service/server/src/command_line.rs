//! Rebuilds this process's command line, for advice and for the note next to the control socket.
//! The note holds the command to start the server again.

use std::ffi::OsString;
use std::path::PathBuf;

use braid_console::output::shell::shell_argument;

/// This process's command line. Member paths are absolute, so that the line works in any folder.
pub(super) fn command_again(members: &[PathBuf]) -> String {
    let absolute = |argument: OsString| {
        let path = PathBuf::from(&argument);
        let is_member = members.contains(&path);
        let path = if is_member { braid_member::absolute(&path) } else { path };
        path.into_os_string()
    };
    // Leaves this option out: the array has no journal now, and the option would accept the loss of
    // a later journal, too.
    let is_again = |argument: &OsString| argument != "--without-journal";
    line_again(std::env::args_os().skip(1).filter(is_again).map(absolute))
}

/// Command line that serves the same array with `option`. The command line names the array if this
/// process was started with a name; else it lists the members.
pub(super) fn with_option(option: &str) -> String {
    format!("braid serve {option} {}", whom(std::env::args_os()))
}

fn whom(mut words: impl Iterator<Item = OsString>) -> String {
    let is_name = |word: OsString| {
        let word = word.into_string().ok()?;
        word.strip_prefix("--name").map(str::to_owned)
    };
    let name = words.find_map(is_name);
    let name = name.and_then(|rest| match rest.strip_prefix('=') {
        Some(name) => Some(name.to_owned()),
        None => words.next()?.into_string().ok().filter(|_| rest.is_empty()),
    });
    name.map_or_else(|| "MEMBER...".to_owned(), |name| format!("--name {}", shell_argument(&name)))
}

pub(super) fn line_again(words: impl Iterator<Item = OsString>) -> String {
    let word = |word: OsString| match word.to_string_lossy() {
        // `--detach` started this process as a background server.
        word if word.starts_with("--detached=") => "--detach".to_owned(),
        word => shell_argument(&word).into_owned(),
    };
    std::iter::once("braid".to_owned()).chain(words.map(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: an array served by its name got advice with a list of members, although its unit
    /// names none.
    #[test]
    fn advice_keeps_the_name_that_was_given() {
        let said = |line: &str| whom(line.split(' ').map(OsString::from));
        for line in ["braid serve --name tank", "braid --json serve --read-only --name=tank"] {
            assert_eq!(said(line), "--name tank");
        }
        for line in ["braid serve a b", "braid serve --name"] {
            assert_eq!(said(line), "MEMBER...");
        }
    }
}
