//! Turns words of the `create` command line into numbers, or into an error with the valid words.

use braid_geometry::{
    Family, GeometryError, Level, SECTOR_BYTES, default_layout, layout_name, parse_layout,
};
use braid_ondisk::Version;

use super::Args;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::shell_word;
use braid_console::output::size::{SizeError, format_size_exact, parse_size};
use braid_discovery::policy::{BITMAP_CHUNK_WORDS, Policy, bitmap_chunk};

/// mdadm's default chunk.
const CHUNK_SECTORS_DEFAULT: u32 = 1024;
/// Sectors of a page; a chunk is a multiple of a page.
const CHUNK_SECTORS_UNIT: u64 = 8;
/// Bytes that md keeps for an array's name, less the zero at the end.
const NAME_BYTES_MAX: usize = 31;
const LEVEL_WORDS: [&str; 7] = ["linear", "0", "1", "4", "5", "6", "10"];
/// Layout numbers of raid0, 5 and 6 are below this number.
const LAYOUT_NUMBERS_END: u32 = 32;

/// The array that the command line describes.
#[derive(Debug, Clone)]
pub(super) struct ArraySpec {
    pub(super) name: String,
    pub(super) level: Level,
    pub(super) layout: u32,
    /// Sectors of a chunk; 0 if the level has no chunks.
    pub(super) chunk_sectors: u32,
    pub(super) version: Version,
    /// Size of member files that are to be made.
    pub(super) member_bytes: Option<u64>,
    /// The requested consistency policy; for a bitmap with the requested bytes per bit.
    pub(super) consistency: Option<Policy>,
    pub(super) bitmap_chunk_bytes: Option<u32>,
}

pub(super) fn read(args: &Args) -> Result<ArraySpec, CliError> {
    let name = name(&args.name)?;
    let level = level(args)?;
    let wanted = ArraySpec {
        name,
        level,
        layout: layout(args, level)?,
        chunk_sectors: chunk_sectors(args, level)?,
        version: version(args)?,
        member_bytes: args
            .member_size
            .as_deref()
            .map(|text| size("--member-size", text))
            .transpose()?,
        consistency: policy(args, level)?,
        bitmap_chunk_bytes: bitmap_chunk_bytes(args)?,
    };
    Ok(wanted)
}

fn name(name: &str) -> Result<String, CliError> {
    let refuse = |why: String| {
        let refused =
            CliError::new(Code::ArrayNameInvalid, format!("'{name}' cannot be an array's name"));
        Err(refused.about(name).because(why))
    };
    if name.is_empty() {
        return refuse("it is empty".to_string());
    }
    if name.len() > NAME_BYTES_MAX {
        return refuse(format!("it has {} bytes, and md keeps {NAME_BYTES_MAX}", name.len()));
    }
    if name.starts_with(['-', '.']) {
        return refuse("it begins with '-' or '.'".to_string());
    }
    let is_fine = |letter: char| letter.is_alphanumeric() || "-_.".contains(letter);
    match name.chars().find(|&letter| !is_fine(letter)) {
        Some(':') => {
            refuse("braid stores no host in front of a name, so it has no ':'".to_string())
        }
        Some(letter) => {
            refuse(format!("it has {letter:?} in it; letters, digits, '-', '_' and '.' are fine"))
        }
        None => Ok(name.to_string()),
    }
}

fn level(args: &Args) -> Result<Level, CliError> {
    let word = args.level.as_str();
    word.parse().map_err(|_| {
        let near = nearest_level(word);
        let mut better = args.clone();
        better.level = near.to_string();
        let levels = LEVEL_WORDS.join(" ");
        CliError::new(Code::UnknownLevel, format!("unknown level '{word}'. Levels: {levels}"))
            .about(word)
            .remedy(Risk::Change, "Did you mean", better.command_line())
    })
}

/// The level with the nearest number, or else the level word with the fewest changes.
fn nearest_level(word: &str) -> &'static str {
    let digits: String = word.chars().filter(char::is_ascii_digit).collect();
    let number = digits.parse::<i64>().ok();
    let distance = |candidate: &&str| match (number, candidate.parse::<i64>()) {
        (Some(number), Ok(known)) => usize::try_from(number.abs_diff(known)).unwrap_or(usize::MAX),
        (Some(_), Err(_)) => usize::MAX,
        (None, _) => edits(word, candidate),
    };
    LEVEL_WORDS.iter().min_by_key(|candidate| distance(candidate)).copied().unwrap_or("5")
}

/// The edit distance: letters to insert, remove or change.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (at, other) in to.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[at + 1];
            row[at + 1] = changed.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

fn layout(args: &Args, level: Level) -> Result<u32, CliError> {
    let Some(word) = args.layout.as_deref() else { return Ok(default_layout(level)) };
    parse_layout(level, word).map_err(|_| {
        let words = layout_words(level);
        let mut better = args.clone();
        if words.is_empty() {
            better.layout = None;
            return CliError::new(Code::UnknownLayout, format!("{level} has no layouts"))
                .about(word)
                .remedy(Risk::Change, "Leave --layout out", better.command_line());
        }
        better.layout = words.iter().min_by_key(|known| edits(word, known)).cloned();
        let list = words.join(" ");
        CliError::new(Code::UnknownLayout, format!("unknown layout '{word}' for {level}"))
            .about(word)
            .because(format!("layouts of {level}: {list}"))
            .remedy(Risk::Change, "Did you mean", better.command_line())
    })
}

fn layout_words(level: Level) -> Vec<String> {
    if level == Level::Raid10 {
        return ["n2", "n3", "f2", "f3", "o2", "o3"].map(String::from).to_vec();
    }
    (0..LAYOUT_NUMBERS_END).filter_map(|number| layout_name(level, number)).collect()
}

fn chunk_sectors(args: &Args, level: Level) -> Result<u32, CliError> {
    let Some(text) = args.chunk.as_deref() else {
        let has_chunks = !matches!(level, Level::Linear | Level::Raid1);
        return Ok(if has_chunks { CHUNK_SECTORS_DEFAULT } else { 0 });
    };
    let bytes = size("--chunk", text)?;
    let refuse = |why: String, instead: Option<&str>| {
        let mut better = args.clone();
        better.chunk = instead.map(String::from);
        Err(CliError::new(Code::SizeInvalid, format!("{level} cannot have a chunk of {text}"))
            .about(text)
            .because(why)
            .remedy(Risk::Change, "Instead", better.command_line()))
    };
    if level == Level::Raid1 {
        return refuse("every member of raid1 holds all data, without chunks".to_string(), None);
    }
    if bytes == 0
        || !(bytes / SECTOR_BYTES).is_multiple_of(CHUNK_SECTORS_UNIT)
        || bytes % SECTOR_BYTES != 0
    {
        return refuse("a chunk is a multiple of 4K".to_string(), Some("512K"));
    }
    if !matches!(level, Level::Linear | Level::Raid0) && !bytes.is_power_of_two() {
        let below = format_size_exact(1_u64 << bytes.ilog2());
        return refuse("here a chunk is a power of two".to_string(), Some(&below));
    }
    match u32::try_from(bytes / SECTOR_BYTES) {
        Ok(sectors) if sectors <= i32::MAX.unsigned_abs() => Ok(sectors),
        _ => refuse("md cannot store so large a chunk".to_string(), Some("512K")),
    }
}

fn policy(args: &Args, level: Level) -> Result<Option<Policy>, CliError> {
    let journal = args.write_journal.as_ref().map(|_| "journal");
    let Some(word) = args.consistency.as_deref().or(journal) else { return Ok(None) };
    let Some(policy) = Policy::parse(word) else {
        let mut better = args.clone();
        better.consistency = Some("bitmap".to_owned());
        let what =
            format!("unknown policy '{word}'. Policies: resync bitmap llbitmap ppl log journal");
        let error = CliError::new(Code::Usage, what).about(word);
        return Err(error.remedy(Risk::Change, "Instead", better.command_line()));
    };
    if policy == Policy::Lockless && args.metadata != "1.2" {
        let mut better = args.clone();
        better.metadata = "1.2".to_owned();
        let what = format!("metadata {} cannot have a lockless bitmap", args.metadata);
        let error = CliError::new(Code::UnknownMetadata, what).about(word);
        let error = error.because("mdadm makes them only with 1.2");
        return Err(error.remedy(Risk::Change, "Instead", better.command_line()));
    }
    if policy == Policy::Ppl && level != Level::Raid5 && level.family() != Family::Direct {
        let mut better = args.clone();
        better.consistency = Some("bitmap".to_owned());
        let what = format!("{level} cannot have partial parity logs");
        let error = CliError::new(Code::NoRedundancy, what).about(word);
        let error = error.because("md's format has them only for raid5");
        return Err(error.remedy(Risk::Change, "Instead", better.command_line()));
    }
    if (policy == Policy::Journal) != args.write_journal.is_some() {
        let mut better = args.clone();
        let what = match policy {
            Policy::Journal => {
                better.consistency = Some("log".to_owned());
                "a write journal needs a device of its own, which --write-journal names".to_owned()
            }
            _ => {
                better.write_journal = None;
                format!("policy '{word}' does not use a write journal")
            }
        };
        let error = CliError::new(Code::Usage, what).about(word);
        let error = error.because("--write-journal and --consistency journal need each other");
        return Err(error.remedy(Risk::Change, "Instead", better.command_line()));
    }
    let needs_parity = matches!(policy, Policy::Log | Policy::Journal);
    if needs_parity && level.family() == Family::Mirror {
        let mut better = args.clone();
        better.write_journal = None;
        better.consistency = Some("bitmap".to_owned());
        let what = format!("{level} has no parity to log");
        let error = CliError::new(Code::NoRedundancy, what).about(word);
        return Err(error.remedy(Risk::Change, "Instead", better.command_line()));
    }
    if policy != Policy::Resync && level.family() == Family::Direct {
        let mut better = args.clone();
        (better.consistency, better.bitmap_chunk, better.write_journal) = (None, None, None);
        let what = format!("{level} has no redundancy to keep in sync");
        let error = CliError::new(Code::NoRedundancy, what).about(word);
        return Err(error.remedy(Risk::Change, "Leave --consistency out", better.command_line()));
    }
    Ok(Some(policy))
}

fn bitmap_chunk_bytes(args: &Args) -> Result<Option<u32>, CliError> {
    let Some(text) = args.bitmap_chunk.as_deref() else { return Ok(None) };
    let bytes = size("--bitmap-chunk", text)?;
    if let Some(bytes) = bitmap_chunk(bytes) {
        return Ok(Some(bytes));
    }
    let mut better = args.clone();
    better.bitmap_chunk = Some("64M".to_owned());
    let what = format!("a bit of a bitmap cannot cover {text}");
    let error = CliError::new(Code::SizeInvalid, what).about(text);
    let error = error.because(BITMAP_CHUNK_WORDS);
    Err(error.remedy(Risk::Change, "Instead", better.command_line()))
}

fn version(args: &Args) -> Result<Version, CliError> {
    match args.metadata.parse() {
        Ok(Version::V0_90) | Err(_) => {
            let mut better = args.clone();
            better.metadata = "1.2".to_string();
            let what = format!("cannot create metadata '{}'. Versions: 1.0 1.1 1.2", args.metadata);
            Err(CliError::new(Code::UnknownMetadata, what).about(args.metadata.clone()).remedy(
                Risk::Change,
                "Instead",
                better.command_line(),
            ))
        }
        Ok(version) => Ok(version),
    }
}

fn size(option: &str, text: &str) -> Result<u64, CliError> {
    parse_size(text).map_err(|error| {
        let code = match error {
            SizeError::NoUnit { .. } => Code::SizeNeedsUnit,
            _ => Code::SizeInvalid,
        };
        let refused = CliError::new(code, format!("{option} {text}: {error}")).about(text);
        match error {
            SizeError::NoUnit { number } => refused.remedy(
                Risk::Change,
                "Write",
                format!("{option} {}", shell_word(&format!("{number}K"))),
            ),
            _ => refused,
        }
    })
}

/// A geometry error as an error of the command line.
pub(super) fn geometry_error(error: GeometryError, args: &Args) -> CliError {
    let code = match error {
        GeometryError::SlotsOutOfRange { .. } | GeometryError::Raid10Copies { .. } => {
            Code::MemberCount
        }
        GeometryError::MemberTooSmall { .. } => Code::MemberTooSmall,
        GeometryError::ChunkInvalid { .. }
        | GeometryError::MemberTooLarge { .. }
        | GeometryError::CapacityTooLarge => Code::SizeInvalid,
        _ => Code::UnknownLayout,
    };
    let refused = CliError::new(code, error.to_string()).about(args.name.clone());
    match error {
        GeometryError::SlotsOutOfRange { slots, min, .. } if slots < min => {
            refused.because("'missing' counts as a member, a spare does not")
        }
        _ => refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_level_is_suggested() {
        for (word, near) in
            [("7", "6"), ("raid7", "6"), ("50", "10"), ("3", "4"), ("lineal", "linear")]
        {
            assert_eq!(nearest_level(word), near, "{word}");
        }
    }

    #[test]
    fn edits_are_counted() {
        assert_eq!(edits("left-symetric", "left-symmetric"), 1);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("abc", "abc"), 0);
    }

    #[test]
    fn every_word_that_is_offered_is_taken() {
        for level in Level::ALL {
            for word in layout_words(level) {
                assert!(parse_layout(level, &word).is_ok(), "{level} {word}");
            }
        }
        assert!(LEVEL_WORDS.iter().all(|word| word.parse::<Level>().is_ok()));
        assert!(layout_words(Level::Raid6).len() > 10 && layout_words(Level::Raid1).is_empty());
    }
}
