//! The array as a block device: without ublk braid refuses, with the cause and remedies. Tests with
//! ublk run in a guest (`cargo xtask ublk`).
//!
//! Each case has its own `/dev`, so that the machine's drivers do not matter.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::kit::{Array, FILTER, IO_URING_SETUP, Need, RAID_5, Ran, needs, note, offered, skip};
use crate::members::text;
use crate::remedies::{error_of, words_of};

/// A shell command that does nothing, so that /dev/ublk-control does not exist.
const NOTHING: &str = "true";
/// /dev/ublk-control is a file: it answers no io_uring commands, like a driver that does not know
/// them.
const A_FILE: &str = "touch /dev/ublk-control";

/// An array, with the setup of its `/dev`.
struct ArrayWithDev<'a> {
    array: &'a Array,
    setup: &'a str,
}

impl ArrayWithDev<'_> {
    /// Types a line with this `/dev`; `None` if no folder can be mounted.
    fn type_line(&self, line: &str) -> Option<Ran> {
        let setup = self.setup;
        let script = format!(
            "mount -t tmpfs tmpfs /dev && mknod /dev/null c 1 3 && mknod /dev/urandom c 1 9 \
             && {setup} || exit 77; {line}"
        );
        let ran = self.array.type_line(&format!("unshare --mount sh -c '{script}'"));
        let is_possible = ran.status.code() != Some(77);
        if !is_possible {
            skip(Need::Other, "no folder of devices can be mounted here");
        }
        is_possible.then_some(ran)
    }

    /// Checks that serving as a block device is refused if braid runs under `through`, and changes
    /// nothing.
    fn refused(&self, through: &str, options: &[&str]) -> Option<Value> {
        let read = |path: &PathBuf| std::fs::read(path).expect("a member");
        let contents = || self.array.members.iter().map(read).collect::<Vec<_>>();
        let before = contents();
        let words = [&["serve", "--ublk"], options].concat();
        let line = self.array.command_line(&words, &self.array.members).join(" ");
        let braid = env!("CARGO_BIN_EXE_braid");
        let ran = self.type_line(&format!("{through} {braid} {line}"))?;
        let error = error_of(&ran);
        assert_eq!((ran.status.code(), &error["code"]), (Some(1), &"B100".into()), "{error}");
        assert!(before == contents(), "a refusal changed a member");
        assert!(!self.array.path("run/tank.sock").exists(), "a socket is left behind");
        Some(error)
    }

    /// Types the remedy with this label; the remedy must work.
    fn look(&self, error: &Value, label: &str) -> Option<Ran> {
        let line = offered(error, label);
        let ran = self.type_line(&line)?;
        assert!(ran.status.success(), "{line}: {ran:?}");
        note(label);
        Some(ran)
    }
}

fn cause(error: &Value) -> &str {
    error["cause"].as_str().expect("a cause")
}

#[test]
fn without_a_driver_it_is_refused_and_served_over_nbd() {
    needs!("unshare");
    let array = Array::create(RAID_5);
    let with_dev = ArrayWithDev { array: &array, setup: NOTHING };
    let Some(error) = with_dev.refused("", &[]) else { return };
    assert!(cause(&error).contains("no /dev/ublk-control"), "{error}");
    // The test does not type this remedy, since it loads a module.
    assert_eq!(offered(&error, "Load its module"), "sudo modprobe ublk_drv");
    let chosen = ("MEMBER...", &*words_of(&array.members));
    array.follow_with(&error, "Serve it over NBD alone", &[chosen]);
}

#[test]
fn a_driver_that_knows_no_commands_is_too_old() {
    needs!("unshare");
    let array = Array::create(RAID_5);
    let with_dev = ArrayWithDev { array: &array, setup: A_FILE };
    let Some(error) = with_dev.refused("", &[]) else { return };
    assert!(cause(&error).contains("Linux 6.6"), "{error}");
    let Some(ran) = with_dev.look(&error, "See its version") else { return };
    assert!(ran.stdout.starts_with(|first: char| first.is_ascii_digit()), "{ran:?}");
}

#[test]
fn a_user_who_may_not_is_told_who_may() {
    needs!("unshare", "setpriv");
    let array = Array::create(RAID_5);
    let setup = format!("{A_FILE} && chmod 0 /dev/ublk-control");
    let with_dev = ArrayWithDev { array: &array, setup: &setup };
    let who = "setpriv --inh-caps=-all --bounding-set=-all";
    let Some(error) = with_dev.refused(who, &[]) else { return };
    assert!(cause(&error).contains("by this user"), "{error}");
    let Some(ran) = with_dev.look(&error, "See who may") else { return };
    assert!(ran.stdout.starts_with("----------"), "{ran:?}");
}

#[test]
fn a_process_without_rings_is_told_so() {
    needs!("unshare", "python3");
    let array = Array::create(RAID_5);
    let filter = array.path("filter.py");
    std::fs::write(&filter, FILTER).expect("a file");
    let with_dev = ArrayWithDev { array: &array, setup: A_FILE };
    // io_uring fails with EPERM, as in containers and under kernels with io_uring switched off.
    let through = format!("python3 {} {IO_URING_SETUP} 1", text(&filter));
    let Some(error) = with_dev.refused(&through, &[]) else { return };
    assert!(cause(&error).contains("io_uring"), "{error}");
    if Path::new("/proc/sys/kernel/io_uring_disabled").exists() {
        with_dev.look(&error, "See whether io_uring is switched off");
    }
}

#[test]
fn neither_a_command_is_run_nor_a_file_left_where_it_is_refused() {
    needs!("unshare");
    let array = Array::create(RAID_5);
    let with_dev = ArrayWithDev { array: &array, setup: NOTHING };
    let (ran, disk) = (array.path("ran"), array.path("disk"));
    let run = format!("\"touch {}\"", text(&ran));
    for options in [&["--run", &*run][..], &["--confine", "auto"], &["--fuse", text(&disk)]] {
        if with_dev.refused("", options).is_none() {
            return;
        }
    }
    assert!(!ran.exists(), "a command was run");
    assert!(!disk.exists(), "a file was left");
}

#[test]
fn a_file_of_an_array_may_ask_for_it_and_says_which_line_is_wrong() {
    needs!("unshare");
    let array = Array::create(RAID_5);
    let with_dev = ArrayWithDev { array: &array, setup: NOTHING };
    let etc = array.path("etc");
    std::fs::create_dir(&etc).expect("a folder");
    let serve = |doors: &str| {
        let file =
            format!("array = \"tank\"\ndevices = [\"{}\"]\n{doors}", text(&array.path("m*")));
        std::fs::write(etc.join("tank.toml"), file).expect("a file");
        let words = ["serve", "--name", "tank", "--config-dir", text(&etc)];
        let line = array.command_line(&words, &[]).join(" ");
        with_dev.type_line(&format!("{} {line}", env!("CARGO_BIN_EXE_braid")))
    };
    for (doors, code, said) in [
        ("[doors]\nublk = \"any\"\n", "B100", "no /dev/ublk-control"),
        ("[doors]\nublk = 3\n", "B100", "no /dev/ublk-control"),
        ("[doors]\nublk = \"sda\"\n", "B096", "line 4"),
        ("[doors]\nublk = 1048576\n", "B096", "line 4"),
        ("[doors]\nublk = true\n", "B096", "line 4"),
        ("[policy]\nublk = 3\n", "B096", "below [doors]"),
        ("[doors]\nubkl = 3\n", "B096", "is 'ublk' meant?"),
    ] {
        let Some(ran) = serve(doors) else { return };
        let error = error_of(&ran);
        assert_eq!(error["code"], code, "{doors}: {error}");
        assert!(cause(&error).contains(said), "{doors}: {error}");
    }
}
