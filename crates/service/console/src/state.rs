//! Files and folders of the state folder: private, and durable when a function returns.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

type Failed = (PathBuf, io::Error);

/// Creates a folder and its parents, each durably within its parent.
pub fn make_folders(folder: &Path) -> Result<(), Failed> {
    let missing: Vec<&Path> = folder.ancestors().take_while(|path| !path.is_dir()).collect();
    for path in missing.into_iter().rev().filter(|path| !path.as_os_str().is_empty()) {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err((path.into(), error));
            }
            _ => {}
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync_folder(parent.unwrap_or(Path::new(".")))?;
    }
    Ok(())
}

fn sync_folder(folder: &Path) -> Result<(), Failed> {
    File::open(folder).and_then(|file| file.sync_all()).map_err(|error| (folder.into(), error))
}

/// Writes a file durably, and creates the file's folder if necessary. A crash leaves the old or the
/// new content.
///
/// # Errors
/// The file cannot be written.
pub fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().expect("it lies in a folder");
    make_folders(folder).map_err(|(_, error)| error)?;
    let mut name = path.file_name().expect("it is a file").to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(folder)?.sync_all()
}

/// Removes files of an array whose creation failed.
pub fn remove_files(paths: &[PathBuf]) {
    for path in paths {
        // The caller reports the error of the creation; an error of the removal would only hide it.
        let _ = fs::remove_file(path);
    }
}
