//! Compares mdadm's and braid's output about one superblock, field by field. For braid's own
//! arrays, also compares mdadm's output with mdadm's output about md's arrays of the same shape.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::super::host;
use super::super::suite::{Bench, MadeArray};
use super::Turn;
use super::program::Program;
use super::tally::Tally;
use crate::each::each;

/// mdadm's output about one superblock, by field.
type Fields = BTreeMap<String, String>;

/// Fields that may differ between two arrays of one shape.
const OF_ONE_ARRAY: [&str; 9] = [
    "Array UUID",
    "Device UUID",
    "Name",
    "Creation Time",
    "Update Time",
    "Checksum",
    "Events",
    "UUID",
    "Preferred Minor",
];

/// Fields that mdadm prints and `braid examine` does not, and why.
const NOT_SAID: [&str; 10] = [
    "Magic",           // the file has a superblock
    "Unused Space",    // the difference of fields that are compared
    "Total Devices",   // 0.90: counted again from the list of roles
    "Active Devices",  // 0.90: counted again from the list of roles
    "Working Devices", // 0.90: counted again from the list of roles
    "Failed Devices",  // 0.90: counted again from the list of roles
    "Spare Devices",   // 0.90: counted again from the list of roles
    "Persistence",
    "Number   Major   Minor   RaidDevice State",
    "this",
];

pub(super) fn compare(
    bench: &Bench,
    program: &Program,
    made: &[MadeArray],
    turns: &[Turn],
    tally: &Tally,
) {
    each(bench.boots, made, |_, array| {
        let compared = both(program, &array.images);
        let fields = tally.take(&array.spec.name, compared).map_or(0, |(count, _)| count);
        tally.count("fields of --examine compared", fields);
    });
    let twins: BTreeMap<&str, &MadeArray> =
        made.iter().map(|array| (array.spec.name.as_str(), array)).collect();
    each(bench.boots, turns, |_, turn| {
        let given = &turn.given;
        let images: Vec<PathBuf> = given.images.iter().flatten().cloned().collect();
        let compared = both(program, &images).and_then(|(count, fields)| {
            let twin = twins.get(given.spec.name.as_str());
            let whole =
                given.stale.is_empty() && !given.crashed && images.len() == given.images.len();
            match twin.filter(|_| whole) {
                Some(twin) => Ok(count + like(&fields, &twin.images)?),
                None => Ok(count),
            }
        });
        let fields = tally.take(&given.name(), compared).unwrap_or(0);
        tally.count("fields of --examine compared", fields);
    });
}

/// Runs mdadm and braid on the same images; returns how many fields agree, and mdadm's output.
fn both(program: &Program, images: &[PathBuf]) -> Result<(usize, Vec<Fields>)> {
    let said = program.examine(images)?;
    let members = said["members"].as_array().context("braid examine names no members")?;
    ensure!(members.len() == images.len(), "braid examine names {} members", members.len());
    let mut count = 0;
    let mut all = Vec::new();
    for (image, member) in images.iter().zip(members) {
        let fields = examine(image)?;
        let [superblock] = member["superblocks"].as_array().map_or(&[][..], Vec::as_slice) else {
            bail!("{}: braid finds not one superblock", image.display());
        };
        count += agree(&fields, superblock).with_context(|| image.display().to_string())?;
        all.push(fields);
    }
    Ok((count, all))
}

/// Checks that `ours` has the same fields and values as md's array.
fn like(ours: &[Fields], theirs: &[PathBuf]) -> Result<usize> {
    let mut count = 0;
    for (slot, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        let theirs = examine(theirs)?;
        // md rounds the size of a raid10 to whole stripes of its layout once the array runs.
        let rounds = ours.get("Raid Level").is_some_and(|level| level == "raid10");
        // mdadm writes the layout of a raid0 only on request; braid always writes it.
        let more = ours.get("Raid Level").is_some_and(|level| level == "raid0")
            && !theirs.contains_key("Layout");
        // braid creates a bitmap by default, and md's arrays in this comparison have none.
        let has_bitmap = ours.contains_key("Internal Bitmap");
        let is_free = |word: &str| match word {
            "Internal Bitmap" => has_bitmap,
            "Feature Map" => more || has_bitmap,
            "Layout" => more,
            "Used Dev Size" | "Array Size" => rounds,
            "Unused Space" => rounds || has_bitmap,
            _ => OF_ONE_ARRAY.contains(&word),
        };
        let fixed = |fields: &Fields| -> Fields {
            let kept = fields.iter().filter(|(word, _)| !is_free(word));
            kept.map(|(word, value)| (word.clone(), value.clone())).collect()
        };
        let (ours, theirs) = (fixed(ours), fixed(&theirs));
        let words = |fields: &Fields| fields.keys().cloned().collect::<BTreeSet<String>>();
        let odd: Vec<String> =
            words(&ours).symmetric_difference(&words(&theirs)).cloned().collect();
        ensure!(odd.is_empty(), "slot {slot}: only one of the two arrays has {}", odd.join(", "));
        for (word, value) in &ours {
            let theirs = &theirs[word];
            ensure!(value == theirs, "slot {slot}: {word} is {value}, in md's array {theirs}");
            count += 1;
        }
    }
    Ok(count)
}

fn examine(image: &Path) -> Result<Fields> {
    let text = host::examine(image)?;
    Ok(text
        .lines()
        .filter_map(|line| line.split_once(" : "))
        .map(|(word, value)| (word.trim().to_owned(), value.trim().to_owned()))
        .collect())
}

/// Checks that braid prints all of mdadm's fields, with the same values.
fn agree(fields: &Fields, superblock: &Value) -> Result<usize> {
    let expected = words_of(superblock)?;
    let mut count = 0;
    for (word, value) in fields {
        let is_quotient = word == "Array Size" && fields["Raid Level"] == "raid10";
        if NOT_SAID.contains(&word.as_str()) || is_quotient {
            continue;
        }
        let Some(said) = expected.get(word.as_str()) else {
            bail!("mdadm says {word} : {value}, and braid has no word for it");
        };
        ensure!(cut(word, value) == *said, "{word}: mdadm says {value}, braid {said}");
        count += 1;
    }
    let missing: Vec<&str> =
        expected.keys().copied().filter(|word| !fields.contains_key(*word)).collect();
    ensure!(missing.is_empty(), "mdadm does not say what braid says: {}", missing.join(", "));
    Ok(count)
}

/// The significant part of the value that mdadm prints for a field.
fn cut<'a>(word: &str, value: &'a str) -> &'a str {
    match word {
        // The value is like "4096 sectors (2.00 MiB 2.10 MB)", "3264 (3.19 MiB 3.34 MB)".
        "Avail Dev Size" | "Used Dev Size" | "Array Size" => {
            value.split_once(" (").map_or(value, |(number, _)| number)
        }
        // The value is like "oracle:x  (local to host oracle)".
        "Name" => value.split_once("  (").map_or(value, |(name, _)| name),
        // The value is like "512 entries available at offset 16 sectors".
        "Bad Block Log" => value.split_once(" entries").map_or(value, |_| "there"),
        // The value is like "AAAA. ('A' == active, ...)".
        "Array State" => value.split_once(" (").map_or(value, |(letters, _)| letters),
        // The value is like "18e79b2 - correct".
        "Checksum" => value.rsplit_once(" - ").map_or(value, |(_, judgement)| judgement),
        _ => value,
    }
}

fn number(value: &Value, what: &str) -> Result<u64> {
    value.as_u64().with_context(|| format!("braid examine gives no {what}"))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Fields that braid prints, under mdadm's names.
fn words_of(superblock: &Value) -> Result<BTreeMap<&'static str, String>> {
    let (array, state) = (&superblock["array"], &superblock["state"]);
    let version = text(&superblock["version"]);
    let is_old = version == "0.90";
    let mut words = if is_old { words_of_v0(array)? } else { words_of_v1(superblock)? };
    words.insert("Version", if is_old { "0.90.00".to_owned() } else { version });
    words.insert("Raid Level", text(&array["level"]));
    words.insert("Raid Devices", number(&array["slots"], "slots")?.to_string());
    words.insert("Creation Time", date(number(&array["creation_time_seconds"], "creation")?));
    words.insert("Update Time", date(number(&state["update_time_seconds"], "update time")?));
    words.insert("Checksum", "correct".to_owned());
    words.insert("Events", number(&state["events"], "events")?.to_string());
    let clean = state["clean"].as_bool().context("braid examine gives no state")?;
    words.insert("State", if clean { "clean" } else { "active" }.to_owned());
    // mdadm calls a raid0 without a layout in the superblock "dangerous", and prints no layout.
    if let Some(layout) = array["layout"].as_str().filter(|word| *word != "dangerous") {
        words.insert("Layout", layout.to_owned());
    }
    let chunk = number(&array["chunk_bytes"], "chunk")?;
    if chunk > 0 {
        let word = if array["level"] == "linear" { "Rounding" } else { "Chunk Size" };
        words.insert(word, format!("{}K", chunk >> 10));
    }
    Ok(words)
}

/// Fields of version 0.90 only, and fields that only 0.90 gives in KiB.
fn words_of_v0(array: &Value) -> Result<BTreeMap<&'static str, String>> {
    let mut words = BTreeMap::new();
    words.insert("UUID", text(&array["uuid"]));
    words.insert("Preferred Minor", number(&array["preferred_minor"], "minor")?.to_string());
    let size = number(&array["member_size_bytes"], "member size")?;
    if size > 0 && array["level"] != "raid0" {
        words.insert("Used Dev Size", (size >> 10).to_string());
    }
    if let Some(capacity) = array["capacity_bytes"].as_u64() {
        words.insert("Array Size", (capacity >> 10).to_string());
    }
    Ok(words)
}

/// Fields of version 1 only, and fields that only version 1 gives in sectors.
fn words_of_v1(superblock: &Value) -> Result<BTreeMap<&'static str, String>> {
    let (array, device) = (&superblock["array"], &superblock["device"]);
    let state = &superblock["state"];
    let mut words = BTreeMap::new();
    let features = state["features"].as_array().map_or(&[][..], Vec::as_slice);
    words.insert("Feature Map", format!("{:#x}", feature_bits(features)?));
    words.insert("Array UUID", text(&array["uuid"]));
    words.insert("Device UUID", text(&device["uuid"]));
    words.insert("Name", text(&array["name"]));
    let sectors = |bytes: u64| format!("{} sectors", bytes >> 9);
    let available = number(&device["data_size_bytes"], "data size")?;
    words.insert("Avail Dev Size", sectors(available));
    // mdadm does not print the data offset for 1.0, where it is 0.
    let offset = number(&device["data_offset_bytes"], "data offset")?;
    if offset > 0 {
        words.insert("Data Offset", sectors(offset));
    }
    words.insert("Super Offset", sectors(number(&superblock["offset_bytes"], "offset")?));
    // mdadm ignores that md leaves the last chunks of a raid10 unused; the kernel does not.
    if let Some(capacity) = array["capacity_bytes"].as_u64().filter(|_| array["level"] != "raid10")
    {
        words.insert("Array Size", format!("{} KiB", capacity >> 10));
    }
    // mdadm omits the member size for raid0, and if it equals the whole data area.
    let size = number(&array["member_size_bytes"], "member size")?;
    if size != available && array["level"] != "raid0" {
        words.insert("Used Dev Size", sectors(size));
    }
    if device["has_bad_block_log"] == true {
        words.insert("Bad Block Log", "there".to_owned());
    }
    if let Some(offset) = superblock["bitmap_offset_sectors"].as_i64() {
        words.insert("Internal Bitmap", format!("{offset} sectors from superblock"));
    }
    let role = match device["role"].as_u64() {
        Some(slot) => format!("Active device {slot}"),
        None => text(&device["role"]),
    };
    words.insert("Device Role", role);
    let roles = state["roles"].as_array().context("braid examine gives no roles")?;
    let letter = |slot: u64| if roles.iter().any(|role| *role == slot) { 'A' } else { '.' };
    words.insert("Array State", (0..number(&array["slots"], "slots")?).map(letter).collect());
    Ok(words)
}

fn feature_bits(names: &[Value]) -> Result<u32> {
    let mut bits = 0;
    for name in names {
        let name = name.as_str().unwrap_or_default();
        let known = braid_ondisk::Features::NAMED.iter().find(|(known, _)| *known == name);
        bits |= known.with_context(|| format!("no feature is called {name}"))?.1.0;
    }
    Ok(bits)
}

/// Seconds since 1970 as `asctime` prints them, in UTC (`host::examine` asks mdadm for UTC).
fn date(seconds: u64) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    const WEEK: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let days = seconds / 86_400;
    let (mut year, mut day) = (1970, days);
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 0;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let weekday = WEEK[usize::try_from(days % 7).expect("below 7")];
    let day = day + 1;
    format!("{weekday} {} {day:2} {hour:02}:{minute:02}:{second:02} {year}", MONTHS[month])
}

#[cfg(test)]
mod tests {
    use super::{cut, date};

    #[test]
    fn dates_are_those_of_asctime() {
        assert_eq!(date(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(date(951_868_799), "Tue Feb 29 23:59:59 2000");
        assert_eq!(date(1_767_225_613), "Thu Jan  1 00:00:13 2026");
        assert_eq!(date(1_735_603_200), "Tue Dec 31 00:00:00 2024");
    }

    #[test]
    fn the_fact_is_cut_out_of_the_value() {
        assert_eq!(cut("Avail Dev Size", "2192 sectors (1096.00 KiB 1122.30 KB)"), "2192 sectors");
        assert_eq!(cut("Name", "oracle:x  (local to host oracle)"), "oracle:x");
        assert_eq!(cut("Checksum", "18e79b2 - expected 18e79b3"), "expected 18e79b3");
    }
}
