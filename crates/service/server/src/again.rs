//! The command line of this process once more: in advice, and in the note for those who start the
//! server again.

use std::ffi::OsString;
use std::path::PathBuf;

use braid_console::output::shell::shell_argument;

/// The command line of this process, with members named so that it works in any folder.
pub(super) fn command_again(members: &[PathBuf]) -> String {
    let absolute = |argument: OsString| {
        let path = PathBuf::from(&argument);
        let is_member = members.contains(&path);
        let path = if is_member { std::path::absolute(&path).unwrap_or(path) } else { path };
        path.into_os_string()
    };
    // Given up once, a journal that is there the next time is another.
    let is_again = |argument: &OsString| argument != "--without-journal";
    line_again(std::env::args_os().skip(1).filter(is_again).map(absolute))
}

/// How the same is served with an option: by the name that was given, or by its members.
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

/// A command line of braid with these words behind it.
pub(super) fn line_again(words: impl Iterator<Item = OsString>) -> String {
    let word = |word: OsString| match word.to_string_lossy() {
        // A server in the background was started by this.
        word if word.starts_with("--detached=") => "--detach".to_owned(),
        word => shell_argument(&word).into_owned(),
    };
    std::iter::once("braid".to_owned()).chain(words.map(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The advice of one that was served by its name was for members, which its unit does not have.
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
