//! Decides whether a path is fit as a mount point.
//!
//! A fit path is an empty file, or does not exist yet; and no file system is mounted on it. The
//! stale mount of a killed braid server (ENOTCONN: "transport endpoint is not connected") is
//! removed.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::mount::{self, MountError};
use crate::table::{self, KIND, MountEntry};

/// Why a path is not fit as a mount point.
#[derive(Debug, thiserror::Error)]
pub enum MountPointError {
    /// The path is a folder.
    #[error("{} is a folder", .0.display())]
    Folder(PathBuf),
    /// The path is a device, a socket or the like.
    #[error("{} is neither a file nor free", .0.display())]
    NoFile(PathBuf),
    /// The file holds data, which the mount would hide.
    #[error("{} holds {bytes} bytes, which would be hidden", path.display())]
    HoldsData {
        /// The path.
        path: PathBuf,
        /// The file's length.
        bytes: u64,
    },
    /// Another file system is mounted at the path.
    #[error("{} is in use: a file system ({kind}) is mounted on it", path.display())]
    Taken {
        /// The path.
        path: PathBuf,
        /// The file system's kind.
        kind: String,
    },
    /// The stale mount of a killed server cannot be removed.
    #[error("the mount that a killed server left on {} cannot be unmounted", path.display())]
    Stale {
        /// The path.
        path: PathBuf,
        /// Why the mount cannot be removed.
        source: MountError,
    },
    /// A system call that inspects the path or makes the file has failed.
    #[error("{} cannot be used", path.display())]
    System {
        /// The path.
        path: PathBuf,
        /// Why the call failed.
        source: io::Error,
    },
}

/// A path that is fit as a mount point. Drop removes the file if it was made for the mount.
#[derive(Debug)]
pub struct MountPoint {
    path: PathBuf,
    is_made: bool,
    was_stale: bool,
}

impl MountPoint {
    /// Checks a path, makes an empty file if the path does not exist, and removes a dead server's
    /// stale mount.
    ///
    /// # Errors
    /// The path is not fit; nothing was changed.
    pub fn take(path: &Path) -> Result<Self, MountPointError> {
        let path = without_links(path).map_err(|source| failed(path, source))?;
        let was_stale = free(&path)?;
        match std::fs::symlink_metadata(&path) {
            Ok(metadata) => check(&path, &metadata)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make(&path).map_err(|source| failed(&path, source))?;
                return Ok(Self { path, is_made: true, was_stale });
            }
            Err(source) => return Err(failed(&path, source)),
        }
        Ok(Self { path, is_made: false, was_stale })
    }

    /// The mount point's path without links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a killed server had left its mount at the path.
    #[must_use]
    pub fn was_stale(&self) -> bool {
        self.was_stale
    }
}

impl Drop for MountPoint {
    /// Removes the file, if `take` made the file and it is still empty.
    fn drop(&mut self) {
        let is_empty = || std::fs::metadata(&self.path).is_ok_and(|file| file.len() == 0);
        if self.is_made && is_empty() {
            // Fails if another process has removed the file. An empty file that stays does no harm.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn failed(path: &Path, source: io::Error) -> MountPointError {
    MountPointError::System { path: path.to_path_buf(), source }
}

/// The path in the form of the kernel's list of mounts. Resolves the last part only if it is a
/// link: the last part need not exist, and no call works on a killed server's mount.
fn without_links(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let is_link = std::fs::symlink_metadata(&path).is_ok_and(|file| file.is_symlink());
    if is_link {
        return path.canonicalize();
    }
    match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) => Ok(folder.canonicalize()?.join(name)),
        _ => Ok(path),
    }
}

/// Removes stale mounts of braid at `path`; returns whether it removed any mount.
fn free(path: &Path) -> Result<bool, MountPointError> {
    let mut was_stale = false;
    loop {
        let mounted = table::at(path).map_err(|source| failed(path, source))?;
        let Some(MountEntry { kind, .. }) = mounted else { return Ok(was_stale) };
        let is_ours = kind == KIND;
        if !is_ours || !is_disconnected(path) {
            let kind = kind.to_string_lossy().into_owned();
            return Err(MountPointError::Taken { path: path.to_path_buf(), kind });
        }
        let freed = mount::unmount(path, mount::UnmountMode::Detached);
        freed.map_err(|source| MountPointError::Stale { path: path.to_path_buf(), source })?;
        was_stale = true;
    }
}

fn is_disconnected(path: &Path) -> bool {
    let code = Errno::NOTCONN.raw_os_error();
    std::fs::metadata(path).is_err_and(|error| error.raw_os_error() == Some(code))
}

fn check(path: &Path, metadata: &Metadata) -> Result<(), MountPointError> {
    let path = path.to_path_buf();
    match metadata {
        metadata if metadata.is_dir() => Err(MountPointError::Folder(path)),
        metadata if !metadata.is_file() => Err(MountPointError::NoFile(path)),
        metadata if metadata.len() > 0 => {
            Err(MountPointError::HoldsData { path, bytes: metadata.len() })
        }
        _ => Ok(()),
    }
}

fn make(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_fit_or_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let within = |name: &str| folder.path().join(name);
        let mount_point = MountPoint::take(&within("new")).expect("nothing is there");
        assert!(mount_point.is_made && !mount_point.was_stale());
        assert_eq!(std::fs::metadata(mount_point.path()).expect("it is made").len(), 0);
        drop(mount_point);
        assert!(!within("new").exists());

        std::fs::write(within("empty"), b"").expect("a file");
        let mount_point = MountPoint::take(&within("empty")).expect("it holds nothing");
        drop(mount_point);
        assert!(within("empty").exists(), "it is not ours");

        std::fs::write(within("full"), b"abc").expect("a file");
        let full = MountPoint::take(&within("full")).expect_err("it holds something");
        assert!(matches!(full, MountPointError::HoldsData { bytes: 3, .. }), "{full:?}");
        assert!(matches!(MountPoint::take(folder.path()), Err(MountPointError::Folder(_))));
        assert!(matches!(
            MountPoint::take(Path::new("/dev/null")),
            Err(MountPointError::NoFile(_))
        ));
        assert!(matches!(MountPoint::take(Path::new("/")), Err(MountPointError::Taken { .. })));
        let none = MountPoint::take(&within("no/folder"));
        assert!(matches!(none, Err(MountPointError::System { .. })), "{none:?}");

        std::os::unix::fs::symlink(within("empty"), within("link")).expect("a link");
        let mount_point = MountPoint::take(&within("link")).expect("it leads to one that is fit");
        assert_eq!(mount_point.path().file_name(), within("empty").file_name());
    }

    #[test]
    fn what_was_filled_meanwhile_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let mount_point = MountPoint::take(&folder.path().join("new")).expect("nothing is there");
        let path = mount_point.path().to_path_buf();
        std::fs::write(&path, b"abc").expect("a file");
        drop(mount_point);
        assert!(path.exists());
    }
}
