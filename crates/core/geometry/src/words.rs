//! md's layout numbers, and mdadm's words for them and for levels.
//!
//! The numbers are on-disk format; the words are those that operators type and that `mdadm
//! --examine` prints (checked against mdadm 4.2 on made-up superblocks). Linear, raid1 and raid4
//! have no layout: md ignores the number. `Geometry::new` judges whether a layout fits a slot
//! count, not this file. Guarded by `tests/words.rs`.
//!
//! ```text
//!   raid5, raid6   0 left-asymmetric   1 right-asymmetric   2 left-symmetric   3 right-symmetric
//!                  4 parity-first      5 parity-last
//!   raid6 only     8 ddf-zero-restart  9 ddf-N-restart     10 ddf-N-continue
//!                 16..20 as 0..4 on all slots but the last, which is Q's
//!   raid10         bits 0-7 near copies, bits 8-15 far copies, bit 16 far copies are offset copies
//!   raid0          1 original, 2 alternate (they differ for members of unequal size), 0 not given
//! ```

use alloc::format;
use alloc::string::{String, ToString};
use core::str::FromStr;

use crate::{GeometryError, Level};

pub(crate) const RAID0_UNSPECIFIED: u32 = 0;
pub(crate) const RAID0_ORIGINAL: u32 = 1;
pub(crate) const RAID0_ALTERNATE: u32 = 2;

pub(crate) const LEFT_ASYMMETRIC: u32 = 0;
pub(crate) const RIGHT_ASYMMETRIC: u32 = 1;
pub(crate) const LEFT_SYMMETRIC: u32 = 2;
pub(crate) const RIGHT_SYMMETRIC: u32 = 3;
pub(crate) const PARITY_FIRST: u32 = 4;
pub(crate) const PARITY_LAST: u32 = 5;
pub(crate) const DDF_ZERO_RESTART: u32 = 8;
pub(crate) const DDF_N_RESTART: u32 = 9;
pub(crate) const DDF_N_CONTINUE: u32 = 10;
pub(crate) const LEFT_ASYMMETRIC_6: u32 = 16;
pub(crate) const RIGHT_ASYMMETRIC_6: u32 = 17;
pub(crate) const LEFT_SYMMETRIC_6: u32 = 18;
pub(crate) const RIGHT_SYMMETRIC_6: u32 = 19;
pub(crate) const PARITY_FIRST_6: u32 = 20;

/// raid10: the far copies follow in the next chunk row instead of in the next part of the member.
pub(crate) const RAID10_OFFSET: u32 = 1 << 16;
/// raid10: bits for two newer ways to choose the slots of far copies. dm-raid uses them, mdadm does
/// not.
pub(crate) const RAID10_FAR_SETS: u32 = 0b11 << 17;
/// The most copies that mdadm accepts in a raid10 layout word.
const RAID10_COPIES_MAX: u32 = 200;

/// The layout words that raid5 and raid6 share.
const PARITY_WORDS: [(&str, u32); 6] = [
    ("left-asymmetric", LEFT_ASYMMETRIC),
    ("right-asymmetric", RIGHT_ASYMMETRIC),
    ("left-symmetric", LEFT_SYMMETRIC),
    ("right-symmetric", RIGHT_SYMMETRIC),
    ("parity-first", PARITY_FIRST),
    ("parity-last", PARITY_LAST),
];

const RAID6_WORDS: [(&str, u32); 8] = [
    ("ddf-zero-restart", DDF_ZERO_RESTART),
    ("ddf-N-restart", DDF_N_RESTART),
    ("ddf-N-continue", DDF_N_CONTINUE),
    ("left-asymmetric-6", LEFT_ASYMMETRIC_6),
    ("right-asymmetric-6", RIGHT_ASYMMETRIC_6),
    ("left-symmetric-6", LEFT_SYMMETRIC_6),
    ("right-symmetric-6", RIGHT_SYMMETRIC_6),
    ("parity-first-6", PARITY_FIRST_6),
];

/// The layout number for a layout word of `mdadm --layout`: `left-symmetric`, `ls`, `n2`, `f2`,
/// `o3`, ...
///
/// Every level accepts `default`. For raid5 the ddf words name the equal plain layouts, as in
/// mdadm.
///
/// # Errors
/// [`GeometryError::LayoutWordUnknown`] if the level has no such layout. A level without layouts
/// accepts only `default`.
pub fn parse_layout(level: Level, word: &str) -> Result<u32, GeometryError> {
    if word == "default" {
        return Ok(default_layout(level));
    }
    let number = match level {
        Level::Linear | Level::Raid1 | Level::Raid4 => None,
        Level::Raid0 => match word {
            "original" | "1" => Some(RAID0_ORIGINAL),
            "alternate" | "2" => Some(RAID0_ALTERNATE),
            "dangerous" => Some(RAID0_UNSPECIFIED),
            _ => None,
        },
        Level::Raid5 => parse_parity(word).or(match word {
            "ddf-zero-restart" => Some(RIGHT_ASYMMETRIC),
            "ddf-N-restart" => Some(LEFT_ASYMMETRIC),
            "ddf-N-continue" => Some(LEFT_SYMMETRIC),
            _ => None,
        }),
        Level::Raid6 => parse_parity(word).or_else(|| find_word(&RAID6_WORDS, word)),
        Level::Raid10 => parse_raid10(word),
    };
    number.ok_or(GeometryError::LayoutWordUnknown { level })
}

/// The layout as `mdadm --examine` prints it. `None` if mdadm prints no layout for the level, or
/// does not know the number.
#[must_use]
pub fn layout_name(level: Level, layout: u32) -> Option<String> {
    match level {
        Level::Linear | Level::Raid1 | Level::Raid4 => None,
        Level::Raid0 => match layout {
            RAID0_UNSPECIFIED => Some("dangerous".to_string()),
            RAID0_ORIGINAL => Some("original".to_string()),
            RAID0_ALTERNATE => Some("alternate".to_string()),
            _ => None,
        },
        Level::Raid5 => find_name(&PARITY_WORDS, layout),
        Level::Raid6 => {
            find_name(&PARITY_WORDS, layout).or_else(|| find_name(&RAID6_WORDS, layout))
        }
        Level::Raid10 => Some(raid10_name(layout)),
    }
}

/// mdadm's layout number for a new array of this level: raid5 and raid6 left-symmetric, raid10 two
/// near copies, raid0 original.
#[must_use]
pub const fn default_layout(level: Level) -> u32 {
    match level {
        Level::Linear | Level::Raid1 | Level::Raid4 => 0,
        Level::Raid0 => RAID0_ORIGINAL,
        Level::Raid5 | Level::Raid6 => LEFT_SYMMETRIC,
        Level::Raid10 => 0x102,
    }
}

fn parse_parity(word: &str) -> Option<u32> {
    match word {
        "la" => Some(LEFT_ASYMMETRIC),
        "ra" => Some(RIGHT_ASYMMETRIC),
        "ls" => Some(LEFT_SYMMETRIC),
        "rs" => Some(RIGHT_SYMMETRIC),
        _ => find_word(&PARITY_WORDS, word),
    }
}

fn parse_raid10(word: &str) -> Option<u32> {
    let (kind, digits) = word.split_at_checked(1)?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let copies: u32 = digits.parse().ok()?;
    if copies == 0 || copies > RAID10_COPIES_MAX {
        return None;
    }
    match kind {
        "n" => Some(0x100 | copies),
        "f" => Some(copies << 8 | 1),
        "o" => Some(RAID10_OFFSET | copies << 8 | 1),
        _ => None,
    }
}

fn raid10_name(layout: u32) -> String {
    let (near, far) = (layout & 0xff, layout >> 8 & 0xff);
    let kind = if layout & RAID10_OFFSET != 0 { "offset" } else { "far" };
    match (near, far) {
        (1, 1) => "NO REDUNDANCY".to_string(),
        (_, 1) => format!("near={near}"),
        (1, _) => format!("{kind}={far}"),
        _ => format!("near={near}, {kind}={far}"),
    }
}

fn find_word(words: &[(&str, u32)], word: &str) -> Option<u32> {
    words.iter().find(|entry| entry.0 == word).map(|entry| entry.1)
}

fn find_name(words: &[(&str, u32)], layout: u32) -> Option<String> {
    words.iter().find(|entry| entry.1 == layout).map(|entry| entry.0.to_string())
}

impl FromStr for Level {
    type Err = GeometryError;

    /// Accepts the words of `mdadm --level` for braid's levels.
    fn from_str(word: &str) -> Result<Level, GeometryError> {
        Ok(match word {
            "linear" => Level::Linear,
            "0" | "raid0" | "stripe" => Level::Raid0,
            "1" | "raid1" | "mirror" => Level::Raid1,
            "4" | "raid4" => Level::Raid4,
            "5" | "raid5" => Level::Raid5,
            "6" | "raid6" => Level::Raid6,
            "10" | "raid10" => Level::Raid10,
            _ => return Err(GeometryError::LevelWordUnknown),
        })
    }
}
