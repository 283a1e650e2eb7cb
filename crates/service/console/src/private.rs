//! Access rights: braid's files are private, and braid obeys only files of trusted users.
//!
//! The process sets its umask once, at the start. So files, folders and sockets that any crate
//! makes are private, also those of programs that the process runs later. A umask that denies the
//! user's own rights is ignored. The command of `--run` gets the umask with which braid was
//! started.
//!
//! [`check_above`] and [`check_file`] check that no other user can replace a folder or a file.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::Mode;
use rustix::process::geteuid;

/// Sets the private umask; returns the previous umask.
pub fn umask() -> Mode {
    rustix::process::umask(Mode::RWXG | Mode::RWXO)
}

/// Checks that only this user can enter the folder. In a folder open to other users, these could
/// replace braid's socket by their own, and read and change the traffic. The error says why.
pub fn check_own(folder: &Path) -> Result<(), String> {
    let metadata = std::fs::symlink_metadata(folder).map_err(|error| error.to_string())?;
    match &metadata {
        metadata if !metadata.is_dir() => Err("it is not a folder".to_owned()),
        metadata if metadata.uid() != geteuid().as_raw() => {
            Err("it belongs to another user".to_owned())
        }
        metadata if metadata.mode() & 0o077 != 0 => Err("other users may enter it".to_owned()),
        _ => Ok(()),
    }
}

/// Checks that no other user can replace the folder. Every folder above belongs to this user or to
/// root, and where others may write, only owners may rename. The error says why.
pub fn check_above(folder: &Path) -> Result<(), String> {
    let folder = std::fs::canonicalize(folder).map_err(|error| error.to_string())?;
    folder.ancestors().skip(1).try_for_each(check_entries)
}

/// Checks that no other user can write or replace the file. The error says why.
pub fn check_file(path: &Path) -> Result<(), String> {
    let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
    match metadata.uid() {
        user if !is_trusted(user) => return Err(format!("it belongs to user {user}")),
        _ if metadata.mode() & 0o022 != 0 => {
            return Err(format!(
                "other users may write to it (mode {:03o})",
                metadata.mode() & 0o777
            ));
        }
        _ => {}
    }
    check_above(path)?;
    // The path may be a link: check the link's folder as well.
    let folder = path.parent().unwrap_or(Path::new("/"));
    let folder = std::fs::canonicalize(folder).map_err(|error| error.to_string())?;
    folder.ancestors().try_for_each(check_entries)
}

/// Checks that no other user can rename the folder's entries.
fn check_entries(folder: &Path) -> Result<(), String> {
    let metadata = std::fs::metadata(folder).map_err(|error| error.to_string())?;
    let is_shared = metadata.mode() & 0o022 != 0 && metadata.mode() & 0o1000 == 0;
    if !is_trusted(metadata.uid()) || is_shared {
        return Err(format!("other users may rename the files in {}", folder.display()));
    }
    Ok(())
}

/// Whether files of this user are trusted, which holds for the process's own user and for root.
fn is_trusted(user: u32) -> bool {
    [0, geteuid().as_raw()].contains(&user) || is_unmapped(user)
}

/// Whether this user namespace has no number for the owner. In a sandbox, it is the outer root.
fn is_unmapped(user: u32) -> bool {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let has_all = text("/proc/self/uid_map").split_whitespace().eq(["0", "0", "4294967295"]);
    !has_all && text("/proc/sys/kernel/overflowuid").trim().parse() == Ok(user)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_that_others_may_write_or_replace_is_known() {
        let place = tempfile::tempdir().unwrap();
        let (folder, file) = (place.path().join("etc"), place.path().join("etc/tank.toml"));
        let link = place.path().join("link.toml");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        for (folder_mode, file_mode, is_safe) in [
            (0o755, 0o644, true),
            (0o700, 0o600, true),
            (0o755, 0o664, false),
            (0o755, 0o646, false),
            (0o775, 0o644, false),
            (0o757, 0o644, false),
        ] {
            mode(&folder, folder_mode);
            mode(&file, file_mode);
            for path in [&file, &link] {
                assert_eq!(check_file(path).is_ok(), is_safe, "{folder_mode:o} {file_mode:o}");
            }
        }
        mode(&folder, 0o755);
        mode(&file, 0o644);
        mode(place.path(), 0o777);
        assert!(check_file(&link).is_err(), "another link may be put in its place");
        mode(place.path(), 0o700);
        if geteuid().is_root() {
            std::os::unix::fs::chown(&file, Some(65_534), None).unwrap();
            assert_eq!(check_file(&file).unwrap_err(), "it belongs to user 65534");
        }
    }

    #[test]
    fn a_folder_that_others_can_enter_or_move_is_known() {
        let place = tempfile::tempdir().unwrap();
        let (above, folder) = (place.path().join("above"), place.path().join("above/own"));
        std::fs::create_dir_all(&folder).unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        for (above_mode, own_mode, is_own, is_safe) in [
            (0o755, 0o700, true, true),
            (0o1777, 0o700, true, true),
            (0o777, 0o700, true, false),
            (0o775, 0o700, true, false),
            (0o700, 0o710, false, true),
            (0o700, 0o777, false, true),
        ] {
            mode(&folder, own_mode);
            mode(&above, above_mode);
            assert_eq!(check_own(&folder).is_ok(), is_own, "{above_mode:o} {own_mode:o}");
            assert_eq!(check_above(&folder).is_ok(), is_safe, "{above_mode:o} {own_mode:o}");
        }
        assert!(check_own(&folder.join("nothing")).is_err());
        std::fs::write(above.join("file"), "").unwrap();
        assert!(check_own(&above.join("file")).is_err());
    }
}
