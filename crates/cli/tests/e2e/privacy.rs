//! braid's files are private whatever the umask is; files of the `--run` command follow the user's
//! umask.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::kit::{Array, RAID_1};

fn mode(path: &Path) -> u32 {
    let metadata = std::fs::symlink_metadata(path);
    metadata.unwrap_or_else(|error| panic!("{}: {error}", path.display())).mode() & 0o7777
}

fn all_in(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_path_buf()];
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        found.extend(all_in(&entry.path()));
    }
    found
}

#[test]
fn the_folder_of_the_sockets_is_private_whatever_the_umask_is() {
    for umask in ["0000", "0022", "0777"] {
        let array = Array::create(RAID_1);
        let control = array.path("control");
        let command =
            "socket=${uri##*socket=}; stat -c 'mode %a' \"$socket\" \"${socket%/*}\"; umask";
        let words = [
            "serve",
            "--control",
            control.to_str().expect("plain"),
            "--run",
            &format!("{command}; stat -c 'mode %a' {}", control.display()),
        ];
        let ran = array.braid_after(&format!("umask {umask}"), &words, &array.members);
        assert!(ran.status.success(), "{umask}: {ran:?}");
        let said: Vec<&str> = ran.stdout.lines().filter(|line| !line.starts_with('{')).collect();
        assert_eq!(said, ["mode 600", "mode 700", umask, "mode 600"], "{umask}: {ran:?}");
    }
}

#[test]
fn members_and_saved_superblocks_are_private_whatever_the_umask_is() {
    for umask in ["0000", "0777"] {
        let array = Array::create(RAID_1);
        let members = [array.path("x"), array.path("y")];
        let create = ["create", "x", "--level", "1", "--member-size", "16M"];
        let after = format!("umask {umask}");
        let ran = array.braid_after(&after, &create, &members);
        assert!(ran.status.success(), "{umask}: {ran:?}");
        let again = ["create", "y", "--level", "1", "--destroy", "x"];
        let ran = array.braid_after(&after, &again, &members);
        assert!(ran.status.success(), "{umask}: {ran:?}");
        assert_eq!(members.each_ref().map(|member| mode(member)), [0o600; 2], "{umask}");
        let saved = all_in(&array.path("state"));
        assert!(saved.len() > 2, "nothing was saved: {saved:?}");
        for path in saved {
            let expected = if path.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(mode(&path), expected, "{umask}: {}", path.display());
        }
    }
}

#[test]
fn a_temporary_folder_that_others_can_rename_in_is_no_place_for_the_socket() {
    let array = Array::create(RAID_1);
    let open = array.path("open");
    std::fs::create_dir(&open).expect("a folder");
    let set = |mode| {
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(mode)).expect("a mode");
    };
    let serve = || {
        let limits = format!("export TMPDIR={}", open.display());
        array.braid_after(&limits, &["serve", "--run", "true"], &array.members)
    };
    set(0o777);
    let ran = serve();
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    assert!(ran.stdout.contains("\"B071\"") && ran.stdout.contains("rename"), "{ran:?}");
    assert_eq!(std::fs::read_dir(&open).expect("it").count(), 0, "something is left behind");
    set(0o1777);
    assert!(serve().status.success());
}
