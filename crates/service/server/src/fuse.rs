//! The FUSE door of `braid serve`: the array as a file, in addition to NBD.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use braid_frontend_fuse::{Disk, Door, MountError, MountPoint, MountPointError, OpenError};
use serde_json::json;

use super::report::Reporter;
use braid_console::error::code::Code;
use braid_console::error::system::system;
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::shell_word;

/// Reserves the mount point of the array's file before the array is touched.
pub(super) fn place(path: &Path, reporter: &Reporter) -> Result<MountPoint, CliError> {
    let place = MountPoint::take(path).map_err(|error| place_error(&error))?;
    if place.was_stale() {
        let path = place.path().display().to_string();
        let text = format!("a killed server left {path} mounted; it is unmounted");
        reporter.aside("stale-file", &json!({ "file": path }), &text);
    }
    Ok(place)
}

pub(super) fn open(
    place: MountPoint,
    disk: Arc<dyn Disk>,
    reporter: &Arc<Reporter>,
) -> Result<Door, CliError> {
    let (told, path) = (Arc::clone(reporter), place.path().display().to_string());
    let gone = move || {
        let text =
            format!("{path} was unmounted, and no longer shows the array; NBD clients go on");
        told.aside("file-gone", &json!({ "file": path }), &text);
    };
    Door::open(place, disk, gone).map_err(|error| open_error(&error))
}

pub(super) fn close(door: Door, deadline: Duration, reporter: &Reporter) {
    let path = door.path().display().to_string();
    let closed = door.close(deadline);
    if closed.was_in_use {
        let text = format!(
            "{path} was in use when the array was stopped: programs that have it open get \
                     errors"
        );
        let facts = json!({ "file": path, "unanswered": closed.unanswered });
        reporter.aside("file-in-use", &facts, &text);
    }
}

fn place_error(error: &MountPointError) -> CliError {
    let another = "braid serve --fuse OTHER-PATH MEMBER...";
    let new = |code, path: &Path| {
        let what = format!("the array cannot be mounted at the file {}", path.display());
        CliError::new(code, what).about(path.display().to_string()).caused_by(error)
    };
    let (error, path) = match error {
        MountPointError::Folder(path) | MountPointError::NoFile(path) => {
            (new(Code::FileUnfit, path), path)
        }
        MountPointError::HoldsData { path, .. } => {
            let look = format!("ls -l {}", word(path));
            (new(Code::FileUnfit, path).remedy(Risk::Look, "See what it is", look), path)
        }
        MountPointError::Taken { path, .. } => {
            let look = format!("findmnt {}", word(path));
            (new(Code::FileTaken, path).remedy(Risk::Look, "See what is mounted", look), path)
        }
        MountPointError::Stale { path, .. } => (new(Code::FileTaken, path), path),
        MountPointError::System { path, source } => {
            let what = format!("the array cannot be mounted at the file {}", path.display());
            (system(what, source), path)
        }
    };
    error.about(path.display().to_string()).remedy(Risk::Look, "Name another place", another)
}

fn word(path: &Path) -> String {
    shell_word(&path.to_string_lossy()).into_owned()
}

fn open_error(error: &OpenError) -> CliError {
    let what = "the array cannot be mounted as a file";
    let without = "braid serve MEMBER...";
    let lacks = || CliError::new(Code::NoFuse, what).caused_by(error);
    let error = match error {
        OpenError::Mount { source, .. } => match source {
            MountError::NoDevice => {
                lacks().remedy(Risk::Change, "Load its module", "sudo modprobe fuse")
            }
            MountError::Denied => lacks().remedy(Risk::Look, "See who may", "ls -l /dev/fuse"),
            MountError::NoHelper => {
                lacks().remedy(Risk::Change, "Install it", "sudo apt install fuse3")
            }
            MountError::Helper(_) => {
                lacks().remedy(Risk::Look, "See its settings", "cat /etc/fuse.conf")
            }
            MountError::Busy => CliError::new(Code::FileTaken, what).caused_by(error),
            MountError::System { source, .. } => system(what, source).because(error.to_string()),
        },
        OpenError::NotBegun => lacks().remedy(Risk::Look, "See its version", "uname -r"),
        OpenError::System { source, .. } => system(what, source).because(error.to_string()),
    };
    error.remedy(Risk::Look, "Serve it over NBD alone", without)
}
