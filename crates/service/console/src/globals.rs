//! Options common to all commands of braid and to the service: output format, colour and state
//! folder.

use std::path::PathBuf;

use rustix::fs::Mode;

use crate::output::colour::{ColourWhen, Paint};

/// Options common to all commands of braid.
#[derive(Clone, Debug)]
pub struct Globals {
    /// Whether to print JSON on standard output.
    pub json: bool,
    /// Whether to colour text on standard output.
    pub paint_out: Paint,
    /// Whether to colour text on standard error.
    pub paint_err: Paint,
    /// The state folder, which has saved superblocks among others.
    pub state_dir: PathBuf,
    /// The umask with which braid was started; braid sets a stricter umask for itself.
    pub umask: Mode,
}

impl Globals {
    /// Makes the options from the command line and the environment.
    #[must_use]
    pub fn new(json: bool, colour: ColourWhen, state_folder: Option<PathBuf>, umask: Mode) -> Self {
        Self {
            json,
            paint_out: Paint::for_stream(colour, &std::io::stdout()),
            paint_err: Paint::for_stream(colour, &std::io::stderr()),
            state_dir: state_folder.unwrap_or_else(state_dir),
            umask,
        }
    }
}

/// The state folder: `$BRAID_STATE_DIR`; else `/var/lib/braid` for root, or the XDG state folder
/// for other users.
pub fn state_dir() -> PathBuf {
    if let Some(folder) = std::env::var_os("BRAID_STATE_DIR").filter(|folder| !folder.is_empty()) {
        return PathBuf::from(folder);
    }
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/braid");
    }
    let xdg = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    state_dir_of(xdg, std::env::home_dir())
}

/// The state folder of a user other than root: below `$XDG_STATE_HOME`, or else below the home
/// folder, which `$HOME` or the user database names. If neither exists, root's state folder is
/// used: a record in the current folder would not be found again.
fn state_dir_of(xdg: Option<PathBuf>, home: Option<PathBuf>) -> PathBuf {
    let absolute = |folder: &PathBuf| folder.is_absolute();
    let of_home = home.filter(absolute).map(|home| home.join(".local/state"));
    let folder = xdg.filter(absolute).or(of_home);
    folder.unwrap_or_else(|| PathBuf::from("/var/lib")).join("braid")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn without_a_home_nothing_is_kept_in_the_current_folder() {
        let path = |text: &str| Some(PathBuf::from(text));
        for (xdg, home, expected) in [
            (path("/x"), path("/h"), "/x/braid"),
            (None, path("/h"), "/h/.local/state/braid"),
            (path("x"), path("/h"), "/h/.local/state/braid"),
            (None, None, "/var/lib/braid"),
            (path(""), path(""), "/var/lib/braid"),
            (None, path("."), "/var/lib/braid"),
        ] {
            assert_eq!(
                state_dir_of(xdg.clone(), home.clone()),
                Path::new(expected),
                "{xdg:?} {home:?}"
            );
        }
    }
}
