//! braid without `/proc` and `/sys`: in a chroot, or in a container without these mounts.
//!
//! Needs root; without it each case reports that it is skipped.

use crate::kit::{Array, Need, RAID_5, Ran, needs, shell, skip};

/// Runs a shell line with empty `/proc` and `/sys`.
fn in_a_bare_root(array: &Array, line: &str) -> Option<Ran> {
    let script = array.path("bare.sh");
    let text = format!(
        "mount -t tmpfs none /proc || exit 99; mount -t tmpfs none /sys || exit 99\n{line}\n"
    );
    std::fs::write(&script, text).expect("a script");
    let mut shell = shell(&format!("exec unshare --mount sh '{}'", script.display()));
    shell.current_dir(array.path(""));
    shell.env("BRAID_RUNTIME_DIR", array.runtime()).env("BRAID_STATE_DIR", array.path("state"));
    let ran = crate::kit::Background::spawn_command(shell, "").wait();
    if ran.status.code() == Some(99) || ran.stderr.contains("unshare failed") {
        skip(Need::Other, "nothing can be mounted here");
        return None;
    }
    Some(ran)
}

/// Regression: braid reported that all descriptors were in use, and advised a lower limit.
#[test]
fn what_cannot_be_read_without_proc_is_not_none_left() {
    needs!("unshare", "nbdinfo");
    let array = Array::create(RAID_5);
    let members: Vec<String> =
        array.members.iter().map(|path| path.display().to_string()).collect();
    let members = members.join(" ");
    for limit in [256, 20_000] {
        for options in ["", "--read-only", "--confine auto"] {
            let line = format!(
                "ulimit -n {limit}; braid serve {options} --run 'nbdinfo --size \"$uri\"' {members}"
            );
            let Some(ran) = in_a_bare_root(&array, &line) else { return };
            assert!(ran.status.success(), "{line}: {ran:?}");
            assert!(
                ran.stdout.lines().any(|line| line.parse::<u64>().is_ok_and(|size| size > 0)),
                "{ran:?}"
            );
        }
    }
    for line in ["examine", "rescue", "rescue --serve --read-only --run true", "scan"] {
        let Some(ran) = in_a_bare_root(&array, &format!("braid {line} {members}")) else { return };
        assert!(ran.status.success(), "{line}: {ran:?}");
    }
    let Some(ran) = in_a_bare_root(&array, "braid scan; braid list") else { return };
    assert!(!format!("{ran:?}").contains("panicked"), "{ran:?}");
}
