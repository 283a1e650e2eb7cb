//! `braid rescue` in the middle of a reshape: moved data is read in the new shape, other data in
//! the old shape.
//!
//! Most arrays are put together by these tests, from an array of the old shape and one of the new
//! shape with the same content: their members are joined as a reshape leaves them at a position.
//! Only the still needed part of the old shape is kept, and its other bytes are overwritten: a byte
//! read from the wrong side is wrong. The arrays of `a_reshape_of_md_is_read_where_it_stopped` were
//! made by the kernel's md, which was reshaping them when the power failed.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use braid_test_needs::needs;
use serde_json::Value;

use crate::kit::{
    Array, Client, SUPERBLOCK_BYTES, ServerProcess, Shape, assert_same, ok, random_bytes,
};
use crate::members::text;
use crate::rescue::{accepting, contents, right_or_at_risk, story};

#[allow(dead_code, unreachable_pub, reason = "shared by path; each user needs a part")]
#[path = "../../../../oracle/fixture.rs"]
pub(crate) mod fixture;
#[allow(dead_code, unreachable_pub, reason = "shared by path; each user needs a part")]
#[path = "../../../../oracle/pattern.rs"]
pub(crate) mod pattern;

const SECTOR: usize = 512;
/// Offset of the features in a superblock 1.2; the constants below are offsets of other fields.
const FEATURES_AT: usize = 8;
const LAYOUT_AT: usize = 76;
const CHUNK_AT: usize = 88;
const SLOTS_AT: usize = 92;
const NEW_LEVEL_AT: usize = 100;
pub(crate) const POSITION_AT: usize = 104;
const DELTA_AT: usize = 112;
const NEW_LAYOUT_AT: usize = 116;
const NEW_CHUNK_AT: usize = 120;
const NEW_OFFSET_AT: usize = 124;
const DATA_OFFSET_AT: usize = 128;
const RECOVERY_AT: usize = 152;
const UPDATED_AT: usize = 192;
const UUID_AT: usize = 16;

/// A shape of the array, before or after the reshape.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    shape: Shape,
    layout: &'static str,
    /// md's number of the layout.
    number: u32,
    chunk_sectors: u64,
}

impl Side {
    const fn new(shape: Shape, layout: (&'static str, u32), chunk_sectors: u64) -> Self {
        Self { shape, layout: layout.0, number: layout.1, chunk_sectors }
    }

    fn slots(&self) -> u64 {
        self.shape.members as u64
    }

    /// The ratio of the array's sectors to a member's.
    fn members_fraction(&self) -> (u64, u64) {
        match self.shape.level {
            "5" => (self.slots() - 1, 1),
            "6" => (self.slots() - 2, 1),
            "10" => (self.slots(), 2),
            other => panic!("no reshape of level {other}"),
        }
    }

    /// Sectors on each member for this many sectors of the array; whole rows.
    fn rows_sectors(&self, array_sectors: u64) -> u64 {
        let (data, of) = self.members_fraction();
        assert_eq!(array_sectors * of % (data * self.chunk_sectors), 0, "not whole rows");
        array_sectors * of / data
    }

    /// Sectors on each member that hold the array's sectors below this one.
    fn rows_end(&self, array_sector: u64) -> u64 {
        let (data, of) = self.members_fraction();
        (array_sector * of).div_ceil(data * self.chunk_sectors) * self.chunk_sectors
    }

    fn create(&self, size: &str) -> Array {
        let chunk = format!("{}K", self.chunk_sectors / 2);
        let more = ["--consistency", "resync", "--layout", self.layout, "--chunk", &chunk];
        Array::create_with("tank", self.shape, size, &more)
    }
}

const LEFT_SYMMETRIC: (&str, u32) = ("left-symmetric", 2);
const LEFT_SYMMETRIC_6: (&str, u32) = ("left-symmetric-6", 18);
const NEAR: (&str, u32) = ("n2", 0x102);
pub(crate) const RAID_5_OF_4: Side = Side::new(Shape::new("5", 4, 1), LEFT_SYMMETRIC, 128);
pub(crate) const RAID_5_OF_5: Side = Side::new(Shape::new("5", 5, 1), LEFT_SYMMETRIC, 128);
pub(crate) const RAID_5_LONGER: Side = Side::new(Shape::new("5", 4, 1), LEFT_SYMMETRIC, 256);
const RAID_6_OF_5: Side = Side::new(Shape::new("6", 5, 2), LEFT_SYMMETRIC, 128);
const RAID_6_Q_LAST: Side = Side::new(Shape::new("6", 5, 2), LEFT_SYMMETRIC_6, 128);
const RAID_10_OF_4: Side = Side::new(Shape::new("10", 4, 1), NEAR, 128);
const RAID_10_OF_5: Side = Side::new(Shape::new("10", 5, 1), NEAR, 128);

/// An array with the same content in both shapes, with the members' images in each shape.
pub(crate) struct Both {
    pub(crate) before: (Side, Vec<Vec<u8>>),
    after: (Side, Vec<Vec<u8>>),
    pub(crate) content: Vec<u8>,
    pub(crate) data_offset: u64,
    member_sectors: u64,
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn superblock(image: &[u8]) -> &[u8] {
    &image[usize::try_from(SUPERBLOCK_BYTES).expect("small")..]
}

impl Both {
    pub(crate) fn new(before: Side, after: Side) -> Self {
        Self::holding((before, after), "4M", |length| random_bytes(90, length))
    }

    /// Makes both shapes from members of this size, with this content.
    pub(crate) fn holding(
        (before, after): (Side, Side),
        size: &str,
        content: impl Fn(usize) -> Vec<u8>,
    ) -> Self {
        let filled = |side: &Side| {
            let array = side.create(size);
            let served = array.serve();
            let bytes = content(served.length());
            served.write_all(&array, &bytes);
            served.stop();
            (contents(&array.members), bytes)
        };
        let (old, content) = filled(&before);
        let (new, other) = filled(&after);
        let length = content.len().min(other.len());
        assert_same(&content[..length], &other[..length], "the same bytes in both");
        let data_offset = number(superblock(&old[0]), DATA_OFFSET_AT);
        assert_eq!(data_offset, number(superblock(&new[0]), DATA_OFFSET_AT));
        let member_sectors = number(superblock(&old[0]), 80);
        let content = content[..length].to_vec();
        Self { before: (before, old), after: (after, new), content, data_offset, member_sectors }
    }

    pub(crate) fn size(&self) -> u64 {
        (self.content.len() / SECTOR) as u64
    }

    /// The members as a reshape leaves them at `position`, with data offsets shifted by `moved`
    /// sectors.
    pub(crate) fn at(&self, position: u64, moved: i64) -> Array {
        let ((before, old), (after, new)) = (&self.before, &self.after);
        let delta = i32::try_from(after.shape.members as i64 - before.shape.members as i64);
        let delta = delta.expect("small");
        let backwards = delta < 0;
        let widest = if backwards { old } else { new };
        let bytes = |sectors: u64| usize::try_from(sectors).expect("small") * SECTOR;
        let row = |side: &Side| side.rows_sectors(position);
        let mut images = Vec::new();
        for (slot, whole) in widest.iter().enumerate() {
            let mut image = whole.clone();
            let start = bytes(self.data_offset);
            // Sectors without data of the array are filled with noise.
            let noise = random_bytes(91 + slot as u64, image.len() - start);
            image[start..].copy_from_slice(&noise);
            if let Some(old) = old.get(slot) {
                // The rows of the old shape that the reshape still needs.
                let sectors = if backwards {
                    0..before.rows_end(position)
                } else {
                    self.row_below(before, position)..self.member_sectors
                };
                let range =
                    bytes(self.data_offset + sectors.start)..bytes(self.data_offset + sectors.end);
                image[range.clone()].copy_from_slice(&old[range]);
            }
            if let Some(new) = new.get(slot) {
                let sectors =
                    if backwards { row(after)..self.member_sectors } else { 0..row(after) };
                let from =
                    bytes(self.data_offset + sectors.start)..bytes(self.data_offset + sectors.end);
                let to = self.data_offset.checked_add_signed(moved).expect("it fits");
                let to = bytes(to + sectors.start)..bytes(to + sectors.end);
                image[to].copy_from_slice(&new[from]);
            }
            images.push(image);
        }
        let array = Array::of_images(&images);
        let level =
            i32::try_from(after.shape.level.parse::<u32>().expect("a level")).expect("small");
        for (slot, image) in images.iter().enumerate() {
            let own = number(superblock(image), FEATURES_AT);
            let features = u32::try_from(own & 0xffff_ffff).expect("four bytes")
                | 4
                | if moved == 0 { 0 } else { 64 };
            let put = |at: usize, bytes: &[u8]| array.patch_superblock(slot, at, bytes, true);
            put(FEATURES_AT, &features.to_le_bytes());
            put(LAYOUT_AT, &before.number.to_le_bytes());
            put(CHUNK_AT, &u32::try_from(before.chunk_sectors).expect("small").to_le_bytes());
            put(SLOTS_AT, &u32::try_from(after.slots()).expect("small").to_le_bytes());
            put(NEW_LEVEL_AT, &level.to_le_bytes());
            put(POSITION_AT, &position.to_le_bytes());
            put(DELTA_AT, &delta.to_le_bytes());
            put(NEW_LAYOUT_AT, &after.number.to_le_bytes());
            put(NEW_CHUNK_AT, &u32::try_from(after.chunk_sectors).expect("small").to_le_bytes());
            put(NEW_OFFSET_AT, &i32::try_from(moved).expect("small").to_le_bytes());
        }
        array
    }

    /// A member's first sector at or after the row of this array sector.
    fn row_below(&self, side: &Side, position: u64) -> u64 {
        let (data, of) = side.members_fraction();
        position * of / (data * side.chunk_sectors) * side.chunk_sectors
    }

    /// Examines and reads the array, with all members and without each in `lost`; returns the first
    /// report.
    #[track_caller]
    fn check(&self, array: &Array, expected: (bool, Option<Range<u64>>), lost: &[usize]) -> Value {
        let (is_all, at_risk) = expected;
        let mut first = None;
        let before = contents(&array.members);
        for lost in std::iter::once(None).chain(lost.iter().copied().map(Some)) {
            let members = array.without(lost.as_slice());
            let found = story(array, &[], &members);
            assert_eq!(found["readable"], true, "{lost:?}: {found:#}");
            assert_eq!(found["size_bytes"], self.content.len(), "{found:#}");
            let risk = at_risk.clone().map(|range| {
                serde_json::json!({
                    "offset_bytes": range.start * 512, "length_bytes": (range.end - range.start) * 512,
                })
            });
            assert_eq!(found["at_risk"], Value::from_iter(risk), "{lost:?}: {found:#}");
            let served = ServerProcess::rescued(array, &["--read-only"], &members);
            assert_eq!(served.length(), self.content.len());
            let (right, failed) = right_or_at_risk(&served, &self.content, &found);
            assert_eq!(failed == 0, at_risk.is_none(), "{right} right, {failed} failed");
            served.stop();
            if is_all && at_risk.is_some() {
                let risk = accepting(&found);
                let served = ServerProcess::rescued(array, &["--accept-risk", &risk], &members);
                assert_same(&served.read_all(array), &self.content, "what is at risk is there");
                served.stop();
                let ran = array.braid(&["rescue", "--discard"], &members);
                assert!(ran.status.success(), "{ran:?}");
            }
            first.get_or_insert(found);
        }
        assert!(contents(&array.members) == before, "a member was written");
        first.expect("with all members")
    }
}

/// An array grows by a member: its start is at risk until the write position has passed it; then
/// nothing is.
#[test]
fn a_grown_array_is_read_in_both_shapes_wherever_it_stopped() {
    needs!("nbdcopy");
    let both = Both::new(RAID_5_OF_4, RAID_5_OF_5);
    let critical = 12 * 128;
    let whole = 4 * 128;
    for position in [0, whole, 2 * whole, critical, 7 * whole, both.size() / whole / 2 * whole] {
        let array = both.at(position, 0);
        let at_risk = (position < critical).then_some(position..critical);
        let found = both.check(&array, (true, at_risk), &[0, 4]);
        assert_eq!(found["reshape"]["position_bytes"], position * 512);
        assert_eq!(
            (&found["reshape"]["before"]["slots"], &found["reshape"]["after"]["slots"]),
            (&4.into(), &5.into())
        );
    }
    // If the reshape is at its very end, or if the data moved into free space, nothing is at risk.
    let end = both.size() / whole * whole;
    both.check(&both.at(end, 0), (true, None), &[2]);
    both.check(&both.at(0, -1024), (true, None), &[4]);
    both.check(&both.at(5 * whole, -1024), (true, None), &[1]);
}

/// An array shrinks by a member: the reshape runs from the end to the start, and its risk is at the
/// start.
#[test]
fn a_shrunk_array_is_read_in_both_shapes() {
    needs!("nbdcopy");
    let both = Both::new(RAID_5_OF_5, RAID_5_OF_4);
    let critical = 12 * 128;
    // The common content is smaller than the old shape.
    for position in [both.size(), 7 * critical, 2 * critical, critical] {
        both.check(&both.at(position, 0), (true, None), &[0, 4]);
    }
    let array = both.at(0, 0);
    both.check(&array, (true, None), &[3]);
}

/// RAID-5 becomes RAID-6: md first puts Q on a new last member, and then moves everything.
#[test]
fn a_raid_5_that_becomes_a_raid_6_is_read_while_its_new_member_fills() {
    needs!("nbdcopy");
    let both = Both::new(RAID_6_Q_LAST, RAID_6_OF_5);
    let position = 3 * 128 * 5;
    let array = both.at(position, -1024);
    let filled = RAID_6_OF_5.rows_sectors(position);
    // Superblocks record how far the new member is filled: in the old shape it is empty.
    let file = fs::File::open(&array.members[4]).expect("a member");
    let mut features = [0; 4];
    std::os::unix::fs::FileExt::read_exact_at(
        &file,
        &mut features,
        SUPERBLOCK_BYTES + FEATURES_AT as u64,
    )
    .expect("a superblock");
    let features = u32::from_le_bytes(features) | 2;
    array.patch_superblock(4, FEATURES_AT, &features.to_le_bytes(), true);
    array.patch_superblock(4, RECOVERY_AT, &filled.to_le_bytes(), true);
    both.check(&array, (true, None), &[0, 4]);
    // The reshape back from RAID-6 to RAID-5 is read as well.
    let back = Both::new(RAID_6_OF_5, RAID_6_Q_LAST);
    back.check(&back.at(position, -1024), (true, None), &[0, 4]);
}

#[test]
fn a_raid_10_that_grows_is_read_in_both_shapes() {
    needs!("nbdcopy");
    let both = Both::new(RAID_10_OF_4, RAID_10_OF_5);
    for position in [0, 5 * 128, 20 * 128] {
        both.check(&both.at(position, -1024), (true, None), &[0, 4]);
    }
}

/// A backup in mdadm's format: two parts of the array, with their content.
pub(crate) fn backup(uuid: &[u8], seconds: u64, parts: [Range<u64>; 2], content: &[u8]) -> Vec<u8> {
    let bytes = |range: &Range<u64>| {
        let at = |sector: u64| usize::try_from(sector).expect("small") * SECTOR;
        content[at(range.start)..at(range.end)].to_vec()
    };
    let mut head = vec![0; SECTOR];
    head[..16].copy_from_slice(b"md_backup_data-2");
    head[16..32].copy_from_slice(uuid);
    let [first, second] = &parts;
    let length = |range: &Range<u64>| range.end - range.start;
    let words = [
        (32, seconds),
        (40, 8),
        (48, first.start),
        (56, length(first)),
        (72, length(first)),
        (80, second.start),
        (88, length(second)),
    ];
    for (at, word) in words {
        head[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    let sum = (0..64).fold(0_u32, |sum, _| (sum << 3).wrapping_add(u32::from(b'm')));
    head[64..68].copy_from_slice(&sum.to_le_bytes());
    head[96..100].copy_from_slice(&sum.to_le_bytes());
    head.resize(8 * SECTOR, 0);
    head.extend(bytes(first));
    head.extend(bytes(second));
    head
}

/// The array's UUID and the time of the superblock in a member's image, as a backup has them.
pub(crate) fn identity(image: &[u8]) -> (Vec<u8>, u64) {
    let uuid = superblock(image)[UUID_AT..UUID_AT + 16].to_vec();
    (uuid, number(superblock(image), UPDATED_AT) & ((1 << 40) - 1))
}

/// A chunk size that changes in place, with mdadm's copies of the overwritten regions.
pub(crate) fn chunk_that_changes() -> (Both, Array, u64, Vec<u8>, u64) {
    let both = Both::new(RAID_5_OF_4, RAID_5_LONGER);
    let position = 4 * 3 * 256;
    let array = both.at(position, 0);
    // md was at work after the checkpoint: the content after it fits neither shape.
    let piece = 3 * 256;
    let ahead = both.data_offset + RAID_5_LONGER.rows_sectors(position);
    for path in &array.members {
        let file = fs::File::options().write(true).open(path).expect("a member");
        let noise = random_bytes(95, usize::try_from(piece / 3).expect("small") * SECTOR);
        std::os::unix::fs::FileExt::write_all_at(&file, &noise, ahead * 512).expect("a member");
    }
    let (uuid, seconds) = identity(&fs::read(&array.members[0]).expect("a member"));
    (both, array, position, uuid, seconds)
}

#[test]
fn a_chunk_that_changes_is_read_with_its_backup() {
    needs!("nbdcopy");
    let (both, array, position, uuid, seconds) = chunk_that_changes();
    let piece = 3 * 256;
    let found = story(&array, &[], &array.members);
    let risk = &found["at_risk"][0];
    assert_eq!(risk["offset_bytes"], position * 512, "{found:#}");
    // md continues a reshape unless stopped, and records its position only every ten seconds.
    let rest = both.content.len() as u64 - position * 512;
    assert_eq!(risk["length_bytes"], rest, "{found:#}");
    // Without its backup, data after the checkpoint is not returned, and data before it is right.
    let served = ServerProcess::rescued(&array, &["--read-only"], &array.members);
    let (right, failed) = right_or_at_risk(&served, &both.content, &found);
    assert!(right > 0 && failed > 0, "{right} right, {failed} failed");
    served.stop();
    let refused = array.refused(&["rescue", "--serve"], &array.members);
    refused.is("B031", 12);
    // With the backup, the data of its parts is returned; the first part begins before the
    // checkpoint.
    let parts = [position - piece..position + piece, position + piece..position + 2 * piece];
    let file = array.path("backup");
    fs::write(&file, backup(&uuid, seconds, parts.clone(), &both.content)).expect("a file");
    for lost in [None, Some(2)] {
        let members = array.without(lost.as_slice());
        let words = ["--backup-file", text(&file)];
        let found = story(&array, &words, &members);
        assert_eq!(found["at_risk"][0]["offset_bytes"], (position + 2 * piece) * 512, "{found:#}");
        let served =
            ServerProcess::rescued(&array, &[&words[..], &["--read-only"]].concat(), &members);
        let (right, failed) = right_or_at_risk(&served, &both.content, &found);
        assert!(right > 0 && failed > 0, "{right} right, {failed} failed");
        served.stop();
        // In this case md was stopped at once, so the data at risk is right.
        let risk = accepting(&found);
        let options = [&words[..], &["--accept-risk", &risk]].concat();
        let served = ServerProcess::rescued(&array, &options, &members);
        assert_same(&served.read_all(&array), &both.content, "with its backup");
        served.stop();
        let ran = array.braid(&["rescue", "--discard"], &members);
        assert!(ran.status.success(), "{ran:?}");
    }
    // If the backup holds only one part, only this part is read from the backup.
    let half = [position..position + piece, 0..0];
    fs::write(&file, backup(&uuid, seconds, half, &both.content)).expect("a file");
    let words = ["--backup-file", text(&file)];
    let found = story(&array, &words, &array.members);
    assert_eq!(found["at_risk"][0]["offset_bytes"], (position + piece) * 512, "{found:#}");
}

pub(crate) fn ext4(length: usize) -> Vec<u8> {
    let home = tempfile::tempdir().expect("a folder");
    let (files, image) = (home.path().join("files"), home.path().join("image"));
    fs::create_dir(&files).expect("a folder");
    // Makes as many files as nearly fill the file system.
    for number in 0..length as u64 * 3 / 4 / (64 << 10) {
        let bytes =
            random_bytes(number, 40_000 + usize::try_from(number * 977 % 50_000).expect("small"));
        fs::write(files.join(number.to_string()), bytes).expect("a file");
    }
    fs::File::create(&image).and_then(|it| it.set_len(length as u64)).expect("a file");
    ok("mke2fs", ["-q", "-F", "-t", "ext4", "-d", text(&files), text(&image)]);
    fs::read(&image).expect("an image")
}

/// The backup file is lost, and md's recorded position is that of the start. Files on the array
/// show how far md got: only the region in flight is given up.
#[test]
fn a_chunk_that_changed_on_is_read_by_what_stands_on_it() {
    needs!("nbdcopy", "mke2fs");
    let made = std::cell::OnceCell::new();
    let content = |length| made.get_or_init(|| ext4(length)).clone();
    let both = Both::holding((RAID_5_OF_4, RAID_5_LONGER), "32M", content);
    let position = both.size() / 768 / 2 * 768;
    let array = both.at(position, 0);
    for slot in 0..4 {
        array.patch_superblock(slot, POSITION_AT, &0_u64.to_le_bytes(), true);
    }
    let before = contents(&array.members);
    for lost in [None, Some(1)] {
        let members = array.without(lost.as_slice());
        let found = story(&array, &["--as-recorded"], &members);
        assert_eq!(found["at_risk"][0]["length_bytes"], both.content.len(), "{found:#}");
        assert!(found["reshape"]["got_to"].is_null(), "{found:#}");

        let found = story(&array, &[], &members);
        let of = |value: &Value| value.as_u64().expect("a number");
        let covers = |range: &Value| {
            let start = of(&range["offset_bytes"]);
            (start..=start + of(&range["length_bytes"])).contains(&(position * 512))
        };
        assert!(covers(&found["reshape"]["got_to"]["between"]), "{position}: {found:#}");
        assert!(covers(&found["at_risk"][0]), "{position}: {found:#}");
        assert_eq!(found["reshape"]["position_bytes"], 0, "{found:#}");
        let served = ServerProcess::rescued(&array, &["--read-only"], &members);
        let (right, failed) = right_or_at_risk(&served, &both.content, &found);
        assert!(right > 2 * failed && failed > 0, "{right} right, {failed} failed");
        served.stop();

        // A backup of md's real position is used.
        let file = array.path("backup");
        let words = ["--backup-file", text(&file)];
        let uuid = &superblock(&before[0])[UUID_AT..UUID_AT + 16];
        let seconds = number(superblock(&before[0]), UPDATED_AT) & ((1 << 40) - 1);
        let parts = [position - 768..position, position..position + 768];
        fs::write(&file, backup(uuid, seconds, parts, &both.content)).expect("a file");
        let found = story(&array, &words, &members);
        let read = found["reshape"]["backups"][0]["read"].as_array().map(Vec::len);
        assert_eq!(
            (read, found["at_risk"].as_array().map(Vec::len)),
            (Some(2), Some(2)),
            "{found:#}"
        );
        let options = [&words[..], &["--read-only"]].concat();
        let served = ServerProcess::rescued(&array, &options, &members);
        let (more, _) = right_or_at_risk(&served, &both.content, &found);
        assert!(more > right, "{more} of {right}");
        served.stop();

        // A backup of a position that md passed long before has other content.
        let noise = random_bytes(97, both.content.len());
        fs::write(&file, backup(uuid, seconds, [0..768, 768..1536], &noise)).expect("a file");
        let found = story(&array, &words, &members);
        let aside = found["reshape"]["backups_left_aside"].as_array().map(Vec::len);
        assert_eq!(aside, Some(1), "{found:#}");
        let served = ServerProcess::rescued(&array, &options, &members);
        right_or_at_risk(&served, &both.content, &found);
        served.stop();
    }
    assert!(contents(&array.members) == before, "a member was written");
}

/// Writes mdadm's copy of the first sectors to the end of the added member. The copy is
/// `older_seconds` older than the superblocks.
fn put_on_new_member(both: &Both, array: &Array, critical: u64, older_seconds: u64) {
    let (uuid, seconds) = identity(&fs::read(&array.members[4]).expect("a member"));
    let end = both.data_offset + both.member_sectors;
    let start = end - 8 - critical;
    let parts = [0..critical, 0..0];
    let mut copy = backup(&uuid, seconds - older_seconds, parts, &both.content);
    copy[40..48].copy_from_slice(&start.to_le_bytes());
    put(array, 4, start - 8, &copy);
    put(array, 4, end - 8, &copy[..SECTOR]);
}

fn put(array: &Array, slot: usize, sector: u64, bytes: &[u8]) {
    let file = fs::File::options().write(true).open(&array.members[slot]).expect("a member");
    std::os::unix::fs::FileExt::write_all_at(&file, bytes, sector * 512).expect("a member");
}

/// A RAID-5 that gets a fifth member, with mdadm's copy. md was at work in the first rows.
pub(crate) fn grown_with_its_backup() -> (Both, Array, u64) {
    let both = Both::new(RAID_5_OF_4, RAID_5_OF_5);
    let array = both.at(0, 0);
    for slot in 0..5 {
        put(&array, slot, both.data_offset, &random_bytes(98, 3 * 128 * SECTOR));
    }
    let critical = 12 * 128;
    put_on_new_member(&both, &array, critical, 0);
    (both, array, critical)
}

/// Without a backup file mdadm puts its copy at the end of the added member, which is still unused.
#[test]
fn a_backup_on_the_member_that_is_added_is_found() {
    needs!("nbdcopy");
    let (both, array, critical) = grown_with_its_backup();
    let found = both.check(&array, (true, None), &[0, 3]);
    assert_eq!(
        found["reshape"]["backups"][0]["read"][0]["length_bytes"],
        critical * 512,
        "{found:#}"
    );
    // A backup that is too old is not used, and reported.
    put_on_new_member(&both, &array, critical, 3 * 3600);
    let found = story(&array, &[], &array.members);
    assert_eq!(found["at_risk"][0]["length_bytes"], critical * 512, "{found:#}");
    assert_eq!(
        found["reshape"]["backups_left_aside"].as_array().map(Vec::len),
        Some(1),
        "{found:#}"
    );
}

#[test]
fn a_backup_of_another_array_or_time_is_refused() {
    needs!("nbdcopy");
    let (both, array, position, uuid, seconds) = chunk_that_changes();
    let parts = [position..position + 768, position + 768..position + 1536];
    let file = array.path("backup");
    let words = ["rescue", "--backup-file", text(&file)];
    let put = |bytes: Vec<u8>| fs::write(&file, bytes).expect("a file");
    put(backup(&[9; 16], seconds, parts.clone(), &both.content));
    let refused = array.refused(&words, &array.members);
    refused.is("B108", 12);
    array.follow(&refused.json, "Look at the array without it");
    put(backup(&uuid, seconds - 3 * 3600, parts.clone(), &both.content));
    let refused = array.refused(&words, &array.members);
    refused.is("B108", 12);
    array.follow(&refused.json, "Look at it with the file's data, which may be wrong");
    let with = [&words[1..], &["--accept-older"]].concat();
    let risk = accepting(&story(&array, &with, &array.members));
    let older = [&with[..], &["--accept-risk", &risk]].concat();
    let served = ServerProcess::rescued(&array, &older, &array.members);
    assert_same(&served.read_all(&array), &both.content, "it was right all the same");
    served.stop();
    let ran = array.braid(&["rescue", "--discard"], &array.members);
    assert!(ran.status.success(), "{ran:?}");
    // The backup was torn while written: the head before the data differs from the head after the
    // data.
    let mut torn = backup(&uuid, seconds, parts, &both.content);
    torn[40] = 16;
    put(torn);
    array.refused(&words, &array.members).is("B108", 12);
    put(vec![0; 4096]);
    array.refused(&words, &array.members).is("B108", 12);
    // Files that are not plain files may be endless, or block on a pipe.
    let pipe = array.path("pipe");
    ok("mkfifo", [text(&pipe)]);
    for no_file in [text(&pipe), "/dev/zero"] {
        let refused = array.refused(&["rescue", "--backup-file", no_file], &array.members);
        refused.is("B108", 12);
        assert!(refused.json.to_string().contains("not a regular file"), "{}", refused.json);
    }
    // An array that is not in a reshape needs no backup.
    let whole = Array::of_images(&both.before.1);
    let words = ["rescue", "--backup-file", text(&file)];
    let refused = whole.refused(&words, &whole.members);
    refused.is("B001", 2);
    whole.follow(&refused.json, "Look without the file");
}

/// An overlay over the whole array takes the writes, so they cannot be committed to members.
#[test]
fn what_is_written_to_an_array_in_a_reshape_stays_in_its_overlay() {
    needs!("nbdcopy");
    let both = Both::new(RAID_5_OF_4, RAID_5_OF_5);
    let array = both.at(24 * 128, 0);
    let before = contents(&array.members);
    let served = ServerProcess::rescued(&array, &[], &array.members);
    let piece = random_bytes(97, 3 << 20);
    let mut content = both.content.clone();
    let mut client = Client::connect(&served.socket, std::time::Duration::from_secs(20));
    client.write(1 << 20, &piece);
    client.flush();
    drop(client);
    content[1 << 20..4 << 20].copy_from_slice(&piece);
    assert_same(&served.read_all(&array), &content, "over the overlay");
    served.stop();
    let served = ServerProcess::rescued(&array, &[], &array.members);
    assert_same(&served.read_all(&array), &content, "after a restart");
    // A concurrent `rescue` is refused, with the process that holds the members.
    array.refused(&["rescue"], &array.members).is("B102", 11);
    served.stop();
    let refused = array.refused(&["rescue", "--commit"], &array.members);
    refused.is("B024", 12);
    array.follow(&refused.json, "Look at it");
    for words in [&["rescue", "--check"][..], &["rescue", "--lost"]] {
        let refused = array.refused(words, &array.members);
        refused.is("B024", 12);
        array.follow(&refused.json, "Look at it");
    }
    // With a member missing, the overlay does not fit the array.
    array.refused(&["rescue"], &array.without(&[1])).is("B101", 12);
    let ran = array.braid(&["rescue", "--discard"], &array.members);
    assert!(ran.status.success(), "{ran:?}");
    let served = ServerProcess::rescued(&array, &[], &array.members);
    assert_same(&served.read_all(&array), &both.content, "as it was");
    served.stop();
    assert!(contents(&array.members) == before, "a member was written");
}

/// The report in words, and the export as seen by a client that knows file systems.
#[test]
fn a_reshape_is_told_in_words_and_its_file_system_is_named() {
    needs!("nbdcopy", "mkfs.ext4");
    let image = |length: u64| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("image");
        fs::File::create(&path).expect("a file").set_len(length).expect("room");
        ok("mkfs.ext4", ["-q", "-L", "home", text(&path)]);
        fs::read(&path).expect("an image")
    };
    let mut both = Both::new(RAID_5_OF_4, RAID_5_OF_5);
    let bytes = image(both.content.len() as u64);
    for (side, images) in [&mut both.before, &mut both.after] {
        let array = Array::of_images(images);
        let served = array.serve();
        let _ = side;
        served.write_all(&array, &bytes);
        served.stop();
        *images = contents(&array.members);
    }
    let array = both.at(24 * 128, 0);
    let line = [
        &["rescue".to_owned()][..],
        &array.members.iter().map(|path| text(path).to_owned()).collect::<Vec<_>>(),
    ]
    .concat();
    let ran = array.run_braid(line);
    assert_eq!(ran.status.code(), Some(3), "{ran:?}");
    for words in [
        "RAID-5 of 4 members becoming RAID-5 of 5 members",
        "members from 4 to 5",
        "is at sector 3072 of",
        "ext4 \"home\"",
        "--serve --read-only",
        "go on with the reshape",
    ] {
        assert!(ran.stdout.contains(words), "{words}: {}", ran.stdout);
    }
    // The first rows are overwritten while they move. At this position a remedy of `serve` is
    // `rescue`.
    let array = both.at(0, 0);
    let refused = array.serve_refused(&[], &array.members);
    refused.is("B024", 12);
    array.follow(&refused.json, "See its progress, and the readable part");
}

/// The content of an array that md made: every sector contains its number.
pub(crate) fn stamped(sectors: u64) -> Vec<u8> {
    let mut content = vec![0; usize::try_from(sectors).expect("small") * SECTOR];
    for (sector, bytes) in (0..sectors).zip(content.chunks_mut(SECTOR)) {
        pattern::repeat(pattern::stamp(1, sector), bytes);
    }
    content
}

pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle/fixtures")
}

/// Arrays that the kernel's md was reshaping when the power failed: every sector is read, with all
/// members and without each member. Sectors at risk are intact, because md had stopped there.
#[test]
fn a_reshape_of_md_is_read_where_it_stopped() {
    needs!("nbdcopy");
    // Name, sectors of the array, sectors at risk, and whether it tolerates a loss.
    type State = (&'static str, u64, Option<(u64, u64)>, bool);
    let states: [State; 10] = [
        ("raid5-reshaping", 6528, None, true),
        ("raid5-reshaping-stuck", 6528, Some((0, 768)), true),
        ("raid5-reshaping-end", 6528, None, true),
        ("raid5-reshaping-degraded", 6528, None, false),
        ("raid5-reshaping-chunk-m0.90", 12288, Some((6144, 12288)), true),
        ("raid5-reshaping-moved", 6528, None, true),
        ("raid6-reshaping-from-raid5", 6528, None, true),
        ("raid10-reshaping", 4352, None, true),
        ("raid5-reshaping-shrunk", 6528, None, true),
        ("raid0-reshaping", 6528, None, false),
    ];
    for (name, sectors, at_risk, bears) in states {
        let fixture = fixture::Fixture::load(&fixtures(), &format!("state-{name}"));
        let fixture = fixture.expect("a fixture");
        let count = fixture.members.len();
        let images: Vec<Vec<u8>> = (0..count).map(|member| fixture.image(member)).collect();
        let array = Array::of_images(&images);
        let content = stamped(sectors);
        let lost = (0..count).filter(|_| bears).map(Some);
        for lost in std::iter::once(None).chain(lost) {
            let about = format!("{name} without {lost:?}");
            let members = array.without(lost.as_slice());
            let found = story(&array, &[], &members);
            assert_eq!(found["readable"], true, "{about}: {found:#}");
            // md treats a growing RAID-0 as a RAID-4 without parity; the report still says RAID-0.
            let told = array.run_braid(
                ["rescue".to_owned()]
                    .into_iter()
                    .chain(members.iter().map(|path| text(path).to_owned()))
                    .collect(),
            );
            let is_striping =
                told.stdout.contains("RAID-0 of 3 members becoming RAID-0 of 4 members");
            assert_eq!(is_striping, name.starts_with("raid0"), "{about}: {}", told.stdout);
            let risk = at_risk.map(|(start, end)| {
                serde_json::json!({ "offset_bytes": start * 512, "length_bytes": (end - start) * 512 })
            });
            assert_eq!(found["at_risk"], Value::from_iter(risk), "{about}: {found:#}");
            assert_eq!(found["size_bytes"], sectors * 512, "{about}: {found:#}");
            let risk = accepting(&found);
            let served = match at_risk {
                None => ServerProcess::rescued(&array, &["--read-only"], &members),
                Some(_) => ServerProcess::rescued(&array, &["--accept-risk", &risk], &members),
            };
            assert_same(&served.read_all(&array), &content, &about);
            served.stop();
            if at_risk.is_some() {
                let ran = array.braid(&["rescue", "--discard"], &members);
                assert!(ran.status.success(), "{ran:?}");
            }
        }
    }
}
