//! Arrays that md makes in the guest, and mishaps that break them: scripts, boots, and saved
//! results.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::super::drive::Member;
use super::super::guest::{Case, Ending, Job};
use super::super::report::Report;
use super::super::suite::Bench;
use super::stories::Story;

const WORDS: &str = include_str!("words.sh");
/// The agent's command for files: their number, and bytes of the largest.
pub(super) const FILES: &str = "files 400 1500000";
/// The agent's command for the files of fixtures; stamps keep the fixtures' text small.
pub(super) const STAMPED_FILES: &str = "stamped 48 2000000";
/// Sectors of a fixture's disk: 20 MiB.
pub(super) const FIXTURE_DISK: u64 = 40_960;
/// Time limit of a case: everything is slower without KVM.
const CASE_SECONDS: u32 = 400;

/// An array that md made and a mishap broke.
pub(super) struct BrokenArray {
    pub(super) story: Story,
    /// Present disks, in the order of the command line.
    pub(super) images: Vec<PathBuf>,
    /// The present disk that is no member and begins with a file.
    pub(super) file: Option<PathBuf>,
    /// Output of `sha256sum` for the files on the array.
    pub(super) files: String,
    /// The kernel that ran the story.
    pub(super) kernel: String,
}

/// A case's script: shell functions, number of disks, and the story.
pub(super) fn script(disks: usize, files: &str, story: &str, end: &str) -> String {
    format!("{WORDS}\nFILES=\"{files}\"\nmkdir -p /mnt/$D\nconnect {disks}\n{story}\n{end}\n")
}

/// Boots guests in which md makes the arrays and the mishaps break them.
pub(super) fn make(bench: &Bench, stories: &[Story], files: &str) -> Result<()> {
    let mut failures = Vec::new();
    for ending in [Ending::PowerOff, Ending::Cut] {
        let chosen = stories.iter().filter(|story| story.ending == ending);
        let cases = chosen.map(|story| Case {
            name: story.name.to_owned(),
            members: vec![Member::zeros(story.disks.1); story.disks.0],
            script: script(
                story.disks.0,
                files,
                story.made,
                if ending == Ending::PowerOff { "disconnect" } else { "" },
            ),
        });
        let cases: Vec<Case> = cases.collect();
        let place = bench.folder.join(format!("made-{ending:?}"));
        let names: Vec<String> = cases.iter().map(|case| case.name.clone()).collect();
        let report = boot(bench, cases, ending, &place)?;
        for name in names {
            let case = report.cases.get(&name).context("the guest does not speak of it")?;
            if let Err(error) = case.succeeded() {
                failures.push(format!("{name}: {error:#}"));
                continue;
            }
            let kept = bench.folder.join("broken").join(&name);
            std::fs::remove_dir_all(&kept).ok();
            std::fs::create_dir_all(kept.parent().context("a folder")?)?;
            std::fs::rename(place.join(&name), &kept)?;
            std::fs::write(kept.join("files"), case.text("files")?)?;
            std::fs::write(kept.join("kernel"), &report.kernel)?;
        }
    }
    ensure!(failures.is_empty(), "{} were not made:\n{}", failures.len(), failures.join("\n"));
    Ok(())
}

pub(super) fn boot(
    bench: &Bench,
    cases: Vec<Case>,
    ending: Ending,
    place: &Path,
) -> Result<Report> {
    bench.run_jobs(cases, place, |pile| {
        let boot_seconds = 120 + u64::from(CASE_SECONDS) * pile.len() as u64;
        Job { cases: pile, ending, case_seconds: CASE_SECONDS, boot_seconds }
    })
}

pub(super) fn load(folder: &Path, story: &Story) -> Result<BrokenArray> {
    let folder = folder.join("broken").join(story.name);
    let image = |number: &usize| folder.join(format!("{}.img", number - 1));
    let read = |name| std::fs::read_to_string(folder.join(name)).context("make it first");
    Ok(BrokenArray {
        story: *story,
        images: story.given.iter().map(image).collect(),
        file: story.file.as_ref().map(image),
        files: read("files")?,
        kernel: read("kernel")?,
    })
}
