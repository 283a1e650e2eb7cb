//! Arrays of the kernel's md with ext4 and files on them, broken by a mishap (`oracle/broken`).
//! Every file is read back with the checksum that it had under md, and no member is written.
//!
//! `cargo xtask scenarios` makes larger arrays of each kind, and has mdadm try to read them too.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::kit::{Array, ServerProcess, needs, ok};
use crate::members::text;
use crate::rescue::{accepting, contents, story};
use crate::reshape::fixture::Fixture;

struct Broken {
    fixture: Fixture,
    array: Array,
    before: Vec<Vec<u8>>,
}

impl Broken {
    fn of(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle/broken");
        let fixture = Fixture::load(&folder, name).expect("a fixture");
        let images: Vec<Vec<u8>> =
            (0..fixture.members.len()).map(|member| fixture.image(member)).collect();
        let array = Array::of_images(&images);
        Self { fixture, array, before: images }
    }

    fn members(&self) -> &[PathBuf] {
        &self.array.members
    }

    /// Checks the files of the served array by their checksums, and that no member was written.
    #[track_caller]
    fn is_read_by(&self, words: &[&str]) {
        let served = ServerProcess::rescued(&self.array, words, self.members());
        let copy = self.array.path("copy.img");
        let uri = format!("nbd+unix:///?socket={}", served.socket.display());
        ok("nbdcopy", [&*uri, text(&copy)]);
        served.stop();
        // Replays the journal of ext4, as a mount would. The exit status only reports the replay,
        // so it is ignored.
        Command::new("e2fsck").args(["-E", "journal_only"]).arg(&copy).output().expect("e2fsck");
        let tree = self.array.path("tree");
        fs::create_dir_all(&tree).expect("a folder");
        let command = format!("rdump / {}", text(&tree));
        Command::new("debugfs").args(["-R", &command]).arg(&copy).output().expect("debugfs");
        let files = self.fixture.facts.iter().filter(|(word, _)| word.starts_with("file."));
        let files: Vec<&str> = files.map(|(_, line)| &**line).collect();
        assert!(files.len() >= 36, "{} files", files.len());
        let list = self.array.path("files");
        fs::write(&list, files.join("\n") + "\n").expect("a list");
        let sums = Command::new("sha256sum")
            .args(["-c", "--quiet"])
            .arg(&list)
            .current_dir(&tree)
            .output();
        let sums = sums.expect("sha256sum");
        assert!(sums.status.success(), "{words:?}: {sums:?}");
        assert!(self.before == contents(self.members()), "a member was written");
    }

    /// The first report has the accepted risk with which the array can be read.
    fn is_read_at_once(&self) -> Value {
        let found = story(&self.array, &[], self.members());
        assert_eq!(found["readable"], true, "{found:#}");
        self.is_read_by(&["--accept-risk", &accepting(&found)]);
        found
    }
}

#[test]
fn members_of_md_that_dropped_at_once_are_read() {
    needs!("nbdcopy", "debugfs", "e2fsck");
    let broken = Broken::of("dropped");
    let found = broken.is_read_at_once();
    assert_eq!(found["as_it_stands"], "too-few-members", "{found:#}");
}

/// Here `mdadm --assemble --force` also uses the member that dropped first, and files are wrong.
#[test]
fn members_of_md_that_dropped_one_after_the_other_are_believed_in_that_order() {
    needs!("nbdcopy", "debugfs", "e2fsck");
    let broken = Broken::of("dropped-order");
    let found = broken.is_read_at_once();
    let stands = found["members"].as_array().expect("members").iter().map(|it| &it["stand"]);
    assert_eq!(stands.collect::<Vec<_>>(), ["used", "used", "believed", "left-out"], "{found:#}");
}

#[test]
fn a_faulty_member_of_md_is_left_out() {
    needs!("nbdcopy", "debugfs", "e2fsck");
    let broken = Broken::of("faulty");
    let found = broken.is_read_at_once();
    assert_eq!(found["members"][3]["stand"], "left-out", "{found:#}");
}

#[test]
fn an_array_of_md_that_was_written_without_a_member_is_read() {
    needs!("nbdcopy", "debugfs", "e2fsck");
    let broken = Broken::of("dirty");
    broken.is_read_at_once();
}

#[test]
fn an_array_of_md_without_its_journal_is_read() {
    needs!("nbdcopy", "debugfs", "e2fsck");
    let broken = Broken::of("journal");
    broken.is_read_at_once();
}

/// The superblocks of the new array are sound, but nothing recognisable lies on the array that they
/// describe.
#[test]
fn who_created_an_array_again_is_told_of_solve() {
    let broken = Broken::of("resynced");
    let words = ["rescue".to_owned()];
    let members = broken.members().iter().map(|path| text(path).to_owned());
    let said = broken.array.run_braid(words.into_iter().chain(members).collect());
    let next = said.stdout.split_once("\nNext\n").expect("what comes next").1;
    assert!(next.starts_with("  If it was created over another array"), "{said:?}");
    assert!(next.contains("braid rescue --solve"), "{said:?}");
}

/// The first guess for each array reads every file, and an answer marked certain is right.
#[test]
fn arrays_of_md_whose_superblocks_are_gone_or_wrong_are_solved() {
    needs!("nbdcopy", "debugfs", "e2fsck");
    for name in ["zeroed", "gpt", "resynced"] {
        let broken = Broken::of(name);
        broken.is_read_by(&["--solve", "--guess", "1"]);
    }
}
