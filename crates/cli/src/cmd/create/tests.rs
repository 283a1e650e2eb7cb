//! A failed `create` leaves members as they were, unless zeroing had begun, and removes new files.

use std::path::{Path, PathBuf};

use braid_member::layer::{Fault, Faulty, Operation};
use clap::Parser;
use tempfile::TempDir;

use super::candidates::Source;
use super::plan::{Plan, plan};
use super::{Args, apply};
use braid_console::Globals;
use braid_console::error::CliError;
use braid_console::error::code::Code;
use braid_console::output::colour::Paint;

/// The words of an error after which all old bytes are back.
const BACK: &str = "old superblocks put back";

/// `Args` of `create` as a command line of its own.
#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn args(words: &str) -> Args {
    Line::parse_from(std::iter::once("create").chain(words.split_whitespace())).args
}

fn globals(folder: &Path) -> Globals {
    let paint = Paint::plain();
    let (state_dir, umask) = (folder.join("state"), rustix::fs::Mode::empty());
    Globals { json: true, paint_out: paint, paint_err: paint, state_dir, umask }
}

/// A folder with members `a` and `b` of one old array, the members' paths, and their content.
fn old_array() -> (TempDir, Vec<PathBuf>, Vec<Vec<u8>>) {
    let folder = TempDir::new().expect("a folder");
    let paths = ["a", "b"].map(|name| folder.path().join(name)).to_vec();
    let words = format!("old -l 1 --member-size 8M {} {}", paths[0].display(), paths[1].display());
    let planned = plan(&args(&words)).expect("nothing stands in the way");
    apply::apply(&planned, &globals(folder.path())).expect("nothing fails");
    drop(planned);
    let bytes = paths.iter().map(|path| std::fs::read(path).expect("readable")).collect();
    (folder, paths, bytes)
}

/// Plans `words` with a third member that is a new file, and breaks the second member as `fault`
/// says. Returns the error and the new file's path.
#[track_caller]
fn fails(folder: &TempDir, paths: &[PathBuf], words: &str, fault: Fault) -> (CliError, PathBuf) {
    let new_file = folder.path().join("c");
    let members = [&paths[0], &paths[1], &new_file].map(|path| path.display().to_string());
    let words = format!("new --destroy old --member-size 8M {words} {}", members.join(" "));
    let mut planned: Plan = plan(&args(&words)).expect("nothing stands in the way");
    let Source::Existing(existing) = &mut planned.members[1].source else { panic!("b is there") };
    let device =
        std::mem::replace(&mut existing.device, Box::new(braid_member::MemoryMember::new(8 << 20)));
    let faulty = Faulty::new(device);
    faulty.faults().insert(fault);
    let faults = faulty.faults();
    existing.device = Box::new(faulty);
    let error = apply::apply(&planned, &globals(folder.path())).err().expect("it must fail");
    assert_eq!(error.code(), Code::MemberIo, "{error}");
    assert!(faults.struck_count() > 0);
    (error, new_file)
}

/// Checks that a failure leaves every byte as it was; the error says so and where the copy is.
#[track_caller]
fn failure_is_undone(words: &str, fault: Fault, outcome: &str) {
    let (folder, paths, before) = old_array();
    let (error, new_file) = fails(&folder, &paths, words, fault);
    assert!(!new_file.exists(), "the new file is removed");
    for (path, bytes) in paths.iter().zip(&before) {
        assert!(std::fs::read(path).expect("readable") == *bytes, "{} changed", path.display());
    }
    let text = error.to_json().to_string();
    assert!(text.contains(outcome), "{text}");
    assert!(text.contains(&folder.path().join("state/undo").display().to_string()), "{text}");
}

#[test]
fn a_superblock_that_cannot_be_written_undoes_the_others() {
    // The old superblock is at 4 KiB, so the first write to byte 0 is the new superblock.
    failure_is_undone("-l 5 --metadata 1.1", Fault::on(Operation::Write, 0..512).times(1), BACK);
}

#[test]
fn a_signature_that_cannot_be_wiped_undoes_the_others() {
    failure_is_undone("-l 5", Fault::on(Operation::Write, 4096..4608).times(1), BACK);
}

#[test]
fn a_failed_flush_undoes_everything() {
    // The old bytes are back, but may not be on stable storage.
    let words = "the old bytes may not be back on: ";
    failure_is_undone("-l 5", Fault::everywhere(Operation::Flush).times(1), words);
}

/// Old superblocks over zeroes would look like a healthy array.
#[test]
fn a_failure_after_zeroing_began_puts_no_old_superblock_back() {
    let (folder, paths, _) = old_array();
    let (error, new_file) =
        fails(&folder, &paths, "-l 5 --zero", Fault::everywhere(Operation::Zero).times(1));
    assert!(!new_file.exists(), "the new file is removed");
    for path in &paths {
        let bytes = std::fs::read(path).expect("readable");
        assert!(bytes[4096..8192].iter().all(|byte| *byte == 0), "{} is back", path.display());
    }
    let text = error.to_json().to_string();
    let [a, b] = [&paths[0], &paths[1]].map(|path| path.display().to_string());
    assert!(text.contains(&format!("zeroes were written so far over: {a}, {b}")), "{text}");
    assert!(text.contains("must not be put back"), "{text}");
    assert!(text.contains(&folder.path().join("state/undo").display().to_string()), "{text}");
}
