//! Write-protected disks: by a card's switch, a write blocker, `blockdev --setro`. The kernel still
//! opens such a disk for writing, and only a write fails.
//!
//! Needs root and loop devices; without them each case reports that it is skipped.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::control::status;
use crate::jobs::refused;
use crate::kit::{Array, Client, RAID_1, RAID_5, needs, ok, random_bytes, run, wait_until};
use crate::two_writers::Loops;

fn may_be_written(device: &Path, may: bool) {
    let flag = if may { "--setrw" } else { "--setro" };
    ok("blockdev", [flag.as_ref(), device.as_os_str()]);
}

/// Clears the read-only flag on drop: the kernel would keep the flag for the loop device's next
/// user.
struct Unlocked(Loops);

impl Drop for Unlocked {
    fn drop(&mut self) {
        self.0.0.iter().for_each(|device| {
            run("blockdev", ["--setrw".as_ref(), device.as_os_str()]);
        });
    }
}

fn over(files: &[PathBuf]) -> Option<Unlocked> {
    Loops::over(files).map(Unlocked)
}

/// Regression: the first write failed the write-protected disk, and a sound array had no
/// redundancy.
#[test]
fn a_read_only_disk_is_not_put_out_of_the_array() {
    needs!("losetup", "blockdev", "nbdcopy");
    let array = Array::create(RAID_5);
    let Some(loops) = over(&array.members) else { return };
    let loops = &loops.0;
    let served = array.serve_with(&[], &loops.0);
    let bytes = random_bytes(1, served.length());
    served.write_all(&array, &bytes);
    served.stop();
    let disk = &loops.0[2];
    may_be_written(disk, false);
    // `serve` refuses the write-protected disk by name, before any write.
    let refusal = array.refused(&["serve"], &loops.0);
    refusal.is("B054", 1);
    array.follow(&refusal.json, "Serve the array for reading only");
    let served = array.serve_with(&["--read-only"], &loops.0);
    assert!(served.read_all(&array) == bytes);
    served.stop();
    array.follow(&refusal.json, "If only the kernel's flag is set");
    // A disk becomes write-protected while its array is served.
    let mut served = array.serve_with(&[], &loops.0);
    may_be_written(disk, false);
    let mut client = Client::connect(&served.socket, Duration::from_secs(20));
    assert_ne!(client.try_write(0, &random_bytes(2, 1 << 20)), 0, "the write is refused");
    let told = served.wait_for("WriteProtected");
    assert!(
        told["subject"]["member"].as_str().is_some_and(|member| Path::new(member) == disk),
        "{told}"
    );
    let now = status(&array, "tank");
    assert_eq!(
        (&now["state"], &now["failure"]["write_protected"]),
        (&"failed".into(), &true.into())
    );
    let rows = now["slots"].as_array().expect("rows");
    assert!(rows.iter().all(|row| row["state"] == "ok"), "{now}");
    assert!(served.events("Fail").is_empty());
    served.last_words();
    // No superblock records the disk as failed: once writable, the disk is a member again.
    may_be_written(disk, true);
    let mut served = array.serve_with(&[], &loops.0);
    assert_eq!(served.wait_for("assembled")["degraded_slots"], 0);
    assert!(served.read_all(&array)[1 << 20..] == bytes[1 << 20..]);
    served.stop();
}

/// Regression: `add` said "added", and the disk was in no slot and in no line of `status`.
#[test]
fn a_read_only_disk_is_not_taken_in() {
    needs!("losetup", "blockdev");
    let array = Array::create(RAID_1);
    let file = array.path("new");
    std::fs::File::create(&file).and_then(|file| file.set_len(16 << 20)).expect("a file");
    let Some(loops) = over(&[file]) else { return };
    let loops = &loops.0;
    let word = loops.0[0].display().to_string();
    let served = array.serve();
    for verb in [
        &["add", "tank", &word][..],
        &["spare", "tank", &word],
        &["replace", "tank", "1", "--with", &word],
    ] {
        may_be_written(&loops.0[0], false);
        refused(&array, verb, "B054", 1);
    }
    refused(&array, &["create", "other", "--level", "1", &word, "missing"], "B054", 1);
    // A spare that becomes write-protected fails, and write protection is reported as the cause.
    may_be_written(&loops.0[0], true);
    assert!(array.braid(&["spare", "tank", &word], &[]).status.success());
    may_be_written(&loops.0[0], false);
    let mut served = served;
    assert!(array.braid(&["set", "tank", "consistency=resync"], &[]).status.success());
    let told = served.wait_for("FailSpare");
    assert!(told["subject"]["member"].as_str().is_some_and(|member| member == word), "{told}");
    wait_until("status to say so", Duration::from_secs(10), || {
        status(&array, "tank")["replaced"].as_array().is_some_and(|rows| !rows.is_empty())
    });
    let history = array.braid(&["events", "tank"], &[]).stdout;
    assert!(history.contains("FailSpare"), "{history}");
    served.stop();
}
