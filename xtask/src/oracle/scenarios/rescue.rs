//! Rescue of broken images with braid, as an operator would do it: `braid rescue`, a copy of
//! everything, then the files in the copy.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::super::host::sha256;
use super::super::initramfs::output;
use super::broken_arrays::BrokenArray;
use super::stories::Story;

const SECTOR: u64 = 512;

/// The program, and the folder for its copies.
pub(super) struct Braid {
    pub(super) path: PathBuf,
    pub(super) folder: PathBuf,
}

/// Number of braid's guesses that an operator would try.
const GUESSES_MAX: usize = 3;

/// The result of a rescue.
pub(super) struct Answer {
    /// Time to the first answer.
    pub(super) seconds: f64,
    /// Time to the end of the copy.
    pub(super) copied_seconds: f64,
    /// Whether braid is sure how to read the array; otherwise its guesses are tried in turn.
    pub(super) is_sure: bool,
    /// The number of the answer with the most right files.
    pub(super) tries: usize,
    /// Stripes that braid reported as possibly wrong.
    pub(super) at_risk: u64,
    /// Files with their original sum in the last copy.
    pub(super) right: usize,
    /// Files with their original sum after `braid serve` has ended the reshape on copies of the
    /// members; `None` if the array is in none.
    pub(super) right_after_reshape: Option<usize>,
}

impl Braid {
    pub(super) fn rescue(&self, broken: &BrokenArray) -> Result<Answer> {
        let story = &broken.story;
        let home = self.folder.join(story.name);
        fs::remove_dir_all(&home).ok();
        fs::create_dir_all(&home)?;
        let images = images(broken, &home)?;
        let before = sums(&images)?;
        if let Some(file) = &broken.file {
            std::os::unix::fs::symlink(file, home.join("file"))?;
        }
        let mut answer = self.first(&home, story, &images)?;
        let files = broken.files.lines().count();
        // If files are lost for good, no guess is complete: the guess with the most right files
        // counts as the answer.
        for number in 1..=GUESSES_MAX {
            let begun = Instant::now();
            let guess = number.to_string();
            let guess = if answer.is_sure { vec![] } else { vec!["--guess", &*guess] };
            if !self.copy(&home, story, &guess, answer.at_risk, &images)? {
                continue;
            }
            let right = right(&home, &broken.files)?;
            if right > answer.right {
                answer.right = right;
                answer.tries = number;
                answer.copied_seconds = answer.seconds + begun.elapsed().as_secs_f64();
            }
            if answer.is_sure || right == files {
                break;
            }
        }
        ensure!(before == sums(&images)?, "a member was written");
        if let Some(right_after) = &mut answer.right_after_reshape {
            self.end_reshape(&home, broken.file.is_some(), answer.at_risk, &images)?;
            *right_after = right(&home, &broken.files)?;
        }
        Ok(answer)
    }

    /// Ends the reshape with `braid serve` on copies of the members, and copies everything.
    fn end_reshape(
        &self,
        home: &Path,
        has_file: bool,
        at_risk: u64,
        images: &[PathBuf],
    ) -> Result<()> {
        fs::remove_file(home.join("copy.img")).ok();
        let own = home.join("own");
        fs::create_dir_all(&own)?;
        let (braid, control) = (self.path.display(), own.join("control"));
        let run = format!(
            "'{braid}' wait '{control}' --for idle --timeout 600 && nbdcopy \"$uri\" '{}'",
            home.join("copy.img").display(),
            control = control.display(),
        );
        let mut command = Command::new(&self.path);
        command.arg("--state-dir").arg(own.join("state")).args(["serve", "--run", &run]);
        command.arg("--control").arg(&control);
        if has_file {
            command.arg("--backup-file").arg(home.join("file"));
        }
        if at_risk > 0 {
            command.args(["--accept-half-moved", &at_risk.to_string()]);
        }
        for image in images {
            let copy = own.join(image.file_name().context("a name")?);
            output(Command::new("cp").args(["--sparse=always", "-L"]).arg(image).arg(&copy))?;
            command.arg(copy);
        }
        let served = command.output().context("braid")?;
        fs::write(home.join("gone-on"), [&*served.stdout, &*served.stderr].concat())?;
        // A failure shows in the files.
        Ok(fs::remove_dir_all(&own)?)
    }

    fn first(&self, home: &Path, story: &Story, images: &[PathBuf]) -> Result<Answer> {
        let begun = Instant::now();
        let said = self.ask(home, story, &["--json"], &[], images)?;
        let seconds = begun.elapsed().as_secs_f64();
        let text = self.ask(home, story, &[], &[], images)?;
        fs::write(home.join("said"), [text.stdout, text.stderr].concat())?;
        fs::write(home.join("said.json"), &said.stdout)?;
        let found: Value = serde_json::from_slice(&said.stdout).unwrap_or_default();
        let arrays = || found["arrays"].as_array().into_iter().flatten();
        Ok(Answer {
            seconds,
            copied_seconds: seconds,
            is_sure: arrays().any(|one| one["readable"] == true),
            tries: 1,
            at_risk: arrays().filter_map(|one| one["stripes_at_risk"].as_u64()).sum(),
            right: 0,
            right_after_reshape: arrays().any(|one| one["reshape"].is_object()).then_some(0),
        })
    }

    fn ask(
        &self,
        home: &Path,
        story: &Story,
        first: &[&str],
        more: &[&str],
        images: &[PathBuf],
    ) -> Result<Output> {
        let mut command = Command::new(&self.path);
        command.args(first).arg("--state-dir").arg(home.join("state"));
        command.arg("rescue").args(more);
        for word in story.request.words {
            let mut word = word.replace("{file}", &home.join("file").display().to_string());
            for (number, image) in story.given.iter().zip(images) {
                word = word.replace(&format!("{{{number}}}"), &image.display().to_string());
            }
            command.arg(word);
        }
        command.args(images).output().context("braid")
    }

    /// Copies the whole export into one image.
    fn copy(
        &self,
        home: &Path,
        story: &Story,
        guess: &[&str],
        at_risk: u64,
        images: &[PathBuf],
    ) -> Result<bool> {
        // Each guess describes another array, which needs an overlay of its own.
        fs::remove_dir_all(home.join("overlay")).ok();
        let name = story.request.export.map_or_else(String::new, |name| {
            format!("uri=$(echo \"$uri\" | sed 's#///[^?]*#///{name}#'); ")
        });
        let run = format!("{name}nbdcopy \"$uri\" '{}'", home.join("copy.img").display());
        let (overlay, risk) = (home.join("overlay").display().to_string(), at_risk.to_string());
        let mut words = vec!["--serve", "--overlay", &overlay, "--run", &run];
        if at_risk > 0 {
            words.extend(["--accept-risk", &risk]);
        }
        words.extend(guess);
        let served = self.ask(home, story, &[], &words, images)?;
        fs::write(home.join("served"), [&*served.stdout, &*served.stderr].concat())?;
        Ok(served.status.success())
    }
}

/// Makes the images available under names of disks. Damaged disks become incomplete copies, with
/// maps of the holes.
fn images(broken: &BrokenArray, home: &Path) -> Result<Vec<PathBuf>> {
    let mut images = Vec::new();
    for (number, source) in broken.story.given.iter().zip(&broken.images) {
        let path = home.join(format!("disk{number}"));
        let bad = broken.story.unreadable.iter().filter(|(disk, ..)| disk == number);
        let mut bad: Vec<(u64, u64)> = bad.map(|(_, start, length)| (*start, *length)).collect();
        bad.sort_unstable();
        if bad.is_empty() {
            std::os::unix::fs::symlink(source, &path)?;
        } else {
            output(Command::new("cp").arg("--sparse=always").arg(source).arg(&path))?;
            fs::write(home.join(format!("disk{number}.map")), holes(&path, &bad)?)?;
        }
        images.push(path);
    }
    Ok(images)
}

/// Removes stretches from a copy; returns its map in ddrescue's format.
fn holes(path: &Path, bad: &[(u64, u64)]) -> Result<String> {
    let file = fs::OpenOptions::new().write(true).open(path)?;
    let bytes = file.metadata()?.len();
    let mut map = String::from("# Mapfile.\n0x0 + 1\n");
    let mut at = 0;
    let mut line = |start: u64, length: u64, state: char| {
        if length > 0 {
            map += &format!("{start:#x} {length:#x} {state}\n");
        }
    };
    for (start, length) in bad.iter().map(|(start, length)| (start * SECTOR, length * SECTOR)) {
        file.write_all_at(&vec![0; usize::try_from(length)?], start)?;
        line(at, start - at, '+');
        line(start, length, '-');
        at = start + length;
    }
    line(at, bytes - at, '+');
    Ok(map)
}

fn sums(images: &[PathBuf]) -> Result<Vec<String>> {
    images.iter().map(|path| sha256(path)).collect()
}

/// Counts files of the copy with their original sums. Before the count, it replays the file
/// system's journal, as a mount would.
fn right(home: &Path, files: &str) -> Result<usize> {
    let (copy, tree) = (home.join("copy.img"), home.join("tree"));
    fs::remove_dir_all(&tree).ok();
    fs::create_dir_all(&tree)?;
    // The exit status of e2fsck does not count: failures show in the files.
    let replayed = Command::new("e2fsck").args(["-E", "journal_only"]).arg(&copy).output();
    replayed.context("e2fsck")?;
    let command = format!("rdump / {}", tree.display());
    Command::new("debugfs").args(["-R", &command]).arg(&copy).output().context("debugfs")?;
    fs::write(home.join("files"), files)?;
    let mut sums = Command::new("sha256sum");
    let checked = sums.arg("-c").arg(home.join("files")).current_dir(&tree).output();
    let checked = checked.context("sha256sum")?;
    Ok(String::from_utf8_lossy(&checked.stdout)
        .lines()
        .filter(|line| line.ends_with(": OK"))
        .count())
}
