//! Checks the members' files while no server has them open.
//!
//! - `mdadm --examine`: every member's superblock is sound, of this array and slot, and all agree.
//! - Parity and copies, by arithmetic on the files alone. The members' data areas of RAID-4 and 5
//!   add up to zero in every layout; those of RAID-1 are equal; those of RAID-10 near-2 are equal
//!   by pairs.
//!
//! This file does not compute Q: `round` reads an array of RAID-6 without two members instead.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::programs::output;

const PIECE_BYTES: u64 = 1 << 20;
const SECTOR_BYTES: u64 = 512;

/// The fields that `mdadm --examine` prints about one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExamineOutput {
    words: BTreeMap<String, String>,
}

impl ExamineOutput {
    fn parse(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.split_once(" : "));
        let words = pairs.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()));
        Self { words: words.collect() }
    }

    fn word(&self, key: &str) -> Result<&str> {
        self.words.get(key).map(String::as_str).with_context(|| format!("mdadm says no {key}"))
    }

    fn sectors(&self, key: &str) -> Result<u64> {
        let word = self.word(key)?.split(' ').next().unwrap_or_default();
        word.parse().with_context(|| format!("{key} : {word}"))
    }

    fn is_clean(&self) -> bool {
        self.words.get("State").is_some_and(|state| state == "clean")
    }
}

/// Examines members, whose superblocks must be sound. `members` is in the order of slots, some of
/// which may be missing: a member's file name ends with its slot.
pub(super) fn examine(members: &[PathBuf]) -> Result<Vec<ExamineOutput>> {
    let mut all = Vec::new();
    for member in members {
        let name = member.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let slot = name.trim_start_matches(|letter: char| !letter.is_ascii_digit());
        let text = output(Command::new("mdadm").arg("--examine").arg(member))?;
        let examined = ExamineOutput::parse(&text);
        let role = examined.word("Device Role")?.to_owned();
        ensure!(role == format!("Active device {slot}"), "slot {slot} says it is {role}");
        let checksum = examined.word("Checksum")?;
        ensure!(checksum.ends_with("- correct"), "checksum of slot {slot}: {checksum}");
        all.push(examined);
    }
    Ok(all)
}

/// Whether mdadm finds a superblock in the file; `false` if the file does not exist.
pub(super) fn has_superblock(path: &Path) -> bool {
    output(Command::new("mdadm").arg("--examine").arg(path)).is_ok()
}

/// Checks that the members of an array stopped in order agree in all common fields.
pub(super) fn assert_agree(all: &[ExamineOutput]) -> Result<()> {
    for key in ["Array UUID", "Events", "Raid Level", "Raid Devices", "Array State", "State"] {
        for examined in all {
            let (first, this) = (all[0].word(key)?, examined.word(key)?);
            ensure!(first == this, "{key}: {first} and {this}");
        }
    }
    Ok(())
}

/// Whether every superblock is clean, and all have the same event count.
pub(super) fn is_clean(all: &[ExamineOutput]) -> bool {
    let events = |examined: &ExamineOutput| examined.words.get("Events").cloned();
    all.iter().all(|examined| examined.is_clean() && events(examined) == events(&all[0]))
}

/// Checks parity and copies of a clean array, as far as the files allow. Returns the number of
/// compared sectors.
pub(super) fn assert_redundant(
    level: &str,
    members: &[PathBuf],
    all: &[ExamineOutput],
) -> Result<u64> {
    assert_redundant_below(u64::MAX, level, members, all)
}

/// Checks parity and copies below the saved offset of an interrupted job. Skips a dirty array, and
/// an array whose spare has no slot yet. Returns the number of compared sectors.
pub(super) fn assert_prefix(level: &str, members: &[PathBuf]) -> Result<u64> {
    let mut all = Vec::new();
    for member in members {
        all.push(ExamineOutput::parse(&output(
            Command::new("mdadm").arg("--examine").arg(member),
        )?));
    }
    let mut below = u64::MAX;
    for examined in &all {
        if examined.word("Device Role")? == "spare" {
            return Ok(0);
        }
        if examined.words.contains_key("Recovery Offset") {
            below = below.min(examined.sectors("Recovery Offset")?);
        }
        if examined.words.contains_key("Resync Offset") {
            // With two near copies on four members, each member holds half as many sectors as the
            // array.
            let share = if level == "10" { members.len() as u64 / 2 } else { 1 };
            below = below.min(examined.sectors("Resync Offset")? / share);
        } else if !examined.is_clean() {
            return Ok(0);
        }
    }
    assert_redundant_below(below, level, members, &all)
}

/// Compares a replacement with the replaced member, as far as superblocks count it as copied. Skips
/// a dirty array, and a job that has not begun or is over. Returns the number of compared sectors.
pub(super) fn assert_copied(old: &Path, new: &Path) -> Result<u64> {
    let of = |path: &Path| Command::new("mdadm").arg("--examine").arg(path).output();
    let text = |path: &Path| Ok::<_, anyhow::Error>(String::from_utf8(of(path)?.stdout)?);
    let (old_says, new_says) =
        (ExamineOutput::parse(&text(old)?), ExamineOutput::parse(&text(new)?));
    if !new_says.words.contains_key("Recovery Offset") || !new_says.is_clean() {
        return Ok(0);
    }
    let below = new_says.sectors("Recovery Offset")?;
    let (old_file, new_file) = (File::open(old)?, File::open(new)?);
    let starts = (old_says.sectors("Data Offset")?, new_says.sectors("Data Offset")?);
    let mut done = 0;
    while done < below * SECTOR_BYTES {
        let length = PIECE_BYTES.min(below * SECTOR_BYTES - done);
        let mut sum = vec![0; usize::try_from(length)?];
        add(&mut sum, &old_file, starts.0 * SECTOR_BYTES + done)?;
        add(&mut sum, &new_file, starts.1 * SECTOR_BYTES + done)?;
        if let Some(at) = sum.iter().position(|byte| *byte != 0) {
            let sector = (done + at as u64) / SECTOR_BYTES;
            anyhow::bail!(
                "{below} sectors count as copied, and sector {sector} of the data is not"
            );
        }
        done += length;
    }
    Ok(2 * below)
}

fn assert_redundant_below(
    below: u64,
    level: &str,
    members: &[PathBuf],
    all: &[ExamineOutput],
) -> Result<u64> {
    let is_paired = || all[0].word("Layout").is_ok_and(|word| word == "near=2");
    let groups: Vec<Vec<usize>> = match level {
        "10" if !is_paired() || !members.len().is_multiple_of(2) => return Ok(0),
        "1" => (1..members.len()).map(|slot| vec![0, slot]).collect(),
        "4" | "5" => vec![(0..members.len()).collect()],
        "10" => (0..members.len() / 2).map(|pair| vec![2 * pair, 2 * pair + 1]).collect(),
        _ => return Ok(0),
    };
    let files: Vec<File> = members.iter().map(File::open).collect::<Result<_, _>>()?;
    // Metadata 1.0 records no data offset: its data begins at the device's start.
    let start = |slot: usize| all[slot].sectors("Data Offset").unwrap_or(0) * SECTOR_BYTES;
    let used = all[0].sectors("Used Dev Size").or_else(|_| all[0].sectors("Avail Dev Size"))?;
    let used = used.min(below);
    let mut compared = 0;
    for group in groups {
        let mut done = 0;
        while done < used * SECTOR_BYTES {
            let length = PIECE_BYTES.min(used * SECTOR_BYTES - done);
            let mut sum = vec![0; usize::try_from(length)?];
            for slot in &group {
                add(&mut sum, &files[*slot], start(*slot) + done)?;
            }
            if let Some(at) = sum.iter().position(|byte| *byte != 0) {
                let sector = (done + at as u64) / SECTOR_BYTES;
                anyhow::bail!(
                    "clean, but members {group:?} do not fit at sector {sector} of the data"
                );
            }
            done += length;
            compared += length / SECTOR_BYTES * group.len() as u64;
        }
    }
    Ok(compared)
}

fn add(sum: &mut [u8], file: &File, offset: u64) -> Result<()> {
    let mut bytes = vec![0; sum.len()];
    file.read_exact_at(&mut bytes, offset)?;
    sum.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum ^= byte);
    Ok(())
}

/// Keeps only members that exist and are not empty.
pub(super) fn present(members: &[PathBuf]) -> Vec<PathBuf> {
    let is_there =
        |path: &&PathBuf| Path::new(path).metadata().is_ok_and(|metadata| metadata.len() > 0);
    members.iter().filter(is_there).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examined(extra: &str) -> ExamineOutput {
        ExamineOutput::parse(&format!(
            "/tmp/x:\n   Data Offset : 8 sectors\n   Used Dev Size : 16 sectors (8.00 KiB 8.19 KB)\n{extra}"
        ))
    }

    #[test]
    fn what_mdadm_says_is_read() {
        let all = [
            examined("  State : clean\n  Events : 4\n"),
            examined("  State : active\n  Events : 4\n"),
        ];
        assert_eq!(all[0].sectors("Used Dev Size").expect("a size"), 16);
        assert!(is_clean(&all[..1]) && !is_clean(&all));
    }

    #[test]
    fn parity_that_does_not_fit_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let members: Vec<PathBuf> =
            (0..3).map(|slot| folder.path().join(slot.to_string())).collect();
        for (member, fill) in members.iter().zip([3, 5, 6]) {
            std::fs::write(member, vec![fill; 24 * 512]).expect("a member");
        }
        let all = [examined(""), examined(""), examined("")];
        assert_eq!(assert_redundant("5", &members, &all).expect("it fits"), 48);
        assert!(assert_redundant("1", &members, &all).is_err());
        let mut bytes = vec![6; 24 * 512];
        bytes[12 * 512 + 7] = 2;
        std::fs::write(&members[2], bytes).expect("a member");
        let error = assert_redundant("5", &members, &all).expect_err("a bit is wrong");
        assert!(error.to_string().contains("sector 4 "), "{error}");
    }
}
