//! One writer for the same bytes under any name: files, loop devices over them, partitions.
//!
//! Needs root and loop devices; without them each case reports that it is skipped.

use std::path::{Path, PathBuf};

use crate::kit::{Array, Need, RAID_1, RAID_5, Refusal, needs, run, skip};

/// Loop devices over files, detached on drop.
pub(crate) struct Loops(pub(crate) Vec<PathBuf>);

impl Loops {
    pub(crate) fn over(files: &[PathBuf]) -> Option<Self> {
        let mut loops = Self(Vec::new());
        for file in files {
            let ran = run("losetup", ["--find".as_ref(), "--show".as_ref(), file.as_os_str()]);
            if !ran.status.success() {
                skip(Need::LoopDevices, "no loop device can be attached here");
                return None;
            }
            loops.0.push(PathBuf::from(ran.stdout.trim()));
        }
        Some(loops)
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for device in &self.0 {
            run("losetup", ["--detach".as_ref(), device.as_os_str()]);
        }
    }
}

fn cause(refusal: &Refusal) -> String {
    refusal.json["cause"].as_str().expect("a text").to_owned()
}

fn name(device: &Path) -> &str {
    device.file_name().and_then(|name| name.to_str()).expect("a name")
}

#[test]
fn files_are_served_and_loop_devices_over_them_are_refused_with_the_server() {
    needs!("losetup");
    let array = Array::create(RAID_5);
    let served = array.serve();
    let Some(loops) = Loops::over(&array.members) else { return };
    for options in [&[][..], &["--read-only"]] {
        let refusal = array.serve_refused(options, &loops.0);
        refusal.is("B061", 11);
        let cause = cause(&refusal);
        let step = format!("{} is a loop device over ", name(&loops.0[0]));
        assert!(cause.starts_with(&step) && cause.contains("(braid "), "{cause}");
    }
    drop(loops);
    served.stop();
}

#[test]
fn two_sets_of_loop_devices_over_the_same_files_are_not_two_arrays() {
    needs!("losetup");
    let array = Array::create(RAID_5);
    // Detaching one set leaves lower numbers for the second set; the error must still name the set
    // in use.
    let Some(lower) = Loops::over(&array.members) else { return };
    let Some(first) = Loops::over(&array.members) else { return };
    drop(lower);
    let served = array.serve_with(&[], &first.0);
    let Some(second) = Loops::over(&array.members) else { return };
    for options in [&[][..], &["--read-only"]] {
        let refusal = array.serve_refused(options, &second.0);
        refusal.is("B061", 11);
        let cause = cause(&refusal);
        assert!(cause.contains(&format!("it is the contents of {}", name(&first.0[0]))), "{cause}");
        assert!(cause.contains("(braid "), "{cause}");
    }
    // The files under the loop devices are refused as well.
    array.serve_refused(&[], &array.members).is("B061", 11);
    served.stop();
    // No server uses either set of loop devices, but the files could be written through both sets.
    let refusal = array.serve_refused(&[], &second.0);
    refusal.is("B060", 11);
    let remedies = refusal.json["remedies"].to_string();
    assert!(remedies.contains(&format!("losetup --detach {}", first.0[0].display())), "{remedies}");
    drop(first);
    array.serve_with(&[], &second.0).stop();
}

#[test]
fn a_file_and_the_loop_device_over_it_are_one_member() {
    needs!("losetup");
    let array = Array::create(RAID_1);
    let Some(loops) = Loops::over(&array.members[..1]) else { return };
    let Some(twins) = Loops::over(&array.members[..1]) else { return };
    let file = || array.members[0].clone();
    for both in [
        [file(), loops.0[0].clone()],
        [loops.0[0].clone(), file()],
        [loops.0[0].clone(), twins.0[0].clone()],
    ] {
        let refusal = array.serve_refused(&[], &both);
        refusal.is("B011", 12);
        assert!(cause(&refusal).contains("is a loop device over"), "{refusal:?}");
        let words = ["create", "other", "--level", "1", "--destroy", "tank"];
        array.refused(&words, &both).is("B011", 12);
        let examined = array.braid(&["examine"], &both);
        assert!(examined.stdout.contains("\"duplicate\""), "{examined:?}");
    }
}
