//! Sizes in words: parsed with their unit, written in IEC units.
//!
//! Units are powers of 1024 and mandatory, because a number without a unit means sectors, kibibytes
//! or bytes in tools that people use side by side. `K` and `KiB` are the same; `KB` is refused,
//! since half the world reads `KB` as 1000.
//!
//! ```text
//! size = digits [ "." digits ] [ " " ] unit
//! unit = "B" | "s" (sectors of 512 bytes) | ("K" | "M" | "G" | "T" | "P" | "E") [ "iB" ]
//! ```
//!
//! Invariants:
//! - `parse_size` reads back the text of `format_size_exact` `[check: exact_text_reads_back]`;
//! - `format_size` never rounds up `[check: sizes_are_cut_never_rounded_up]`.

use thiserror::Error;

/// Names of the powers of 1024, from the first power on.
const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const SECTOR_BYTES: u64 = 512;
/// Most digits after the point of a size; no size needs more.
const FRACTION_DIGITS_MAX: usize = 12;

/// Why a text is no size.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SizeError {
    /// The text is a number without a unit.
    #[error("{number} has no unit: write {number}K, {number}M or {number}G (or {number}B)")]
    NoUnit {
        /// The number as written.
        number: String,
    },
    /// The text has a unit that means 1000 to some and 1024 to others.
    #[error("{unit} means 1000 to some and 1024 to others: write {letter} or {letter}iB")]
    Ambiguous {
        /// The unit as written.
        unit: String,
        /// The unit's first letter.
        letter: char,
    },
    /// The text has a unit that does not exist.
    #[error("unknown unit '{unit}'; units: B s K M G T P E, and KiB MiB GiB TiB PiB EiB")]
    UnknownUnit {
        /// The unit as written.
        unit: String,
    },
    /// The text does not begin with a valid number.
    #[error("'{text}' is not a size; sizes look like 64K, 1.5GiB or 4096B")]
    NotANumber {
        /// The text as written.
        text: String,
    },
    /// The size is not a whole number of bytes.
    #[error("{text} is not a whole number of bytes")]
    Fraction {
        /// The text as written.
        text: String,
    },
    /// The size is more than 2^64 - 1 bytes.
    #[error("{text} does not fit into a 64-bit number of bytes")]
    TooLarge {
        /// The text as written.
        text: String,
    },
}

/// Parses a size; returns it in bytes.
///
/// # Errors
/// Each way in which a text is no size has its own variant, with what to write instead.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let text = text.trim();
    let not_a_number = || SizeError::NotANumber { text: text.to_string() };
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || number.ends_with('.') {
        return Err(not_a_number());
    }
    if fraction.len() > FRACTION_DIGITS_MAX {
        return Err(SizeError::Fraction { text: text.to_string() });
    }
    let unit_bytes = unit_bytes(number, unit.trim_start())?;
    let too_large = || SizeError::TooLarge { text: text.to_string() };
    let digits: u128 = format!("{whole}{fraction}").parse().map_err(|_| too_large())?;
    let scale = fraction.bytes().fold(1_u128, |scale, _| scale * 10);
    let product = digits.checked_mul(u128::from(unit_bytes)).ok_or_else(too_large)?;
    if product % scale != 0 {
        return Err(SizeError::Fraction { text: text.to_string() });
    }
    u64::try_from(product / scale).map_err(|_| too_large())
}

fn unit_bytes(number: &str, unit: &str) -> Result<u64, SizeError> {
    match unit {
        "" => return Err(SizeError::NoUnit { number: number.to_string() }),
        "B" => return Ok(1),
        "s" => return Ok(SECTOR_BYTES),
        _ => {}
    }
    let unknown = || SizeError::UnknownUnit { unit: unit.to_string() };
    let letter = unit.chars().next().map(|letter| letter.to_ascii_uppercase());
    let letter = letter.ok_or_else(unknown)?;
    let power = UNITS.iter().position(|name| name.starts_with(letter)).ok_or_else(unknown)?;
    let bytes = (0..=power).fold(1_u64, |bytes, _| bytes * 1024);
    match unit.get(letter.len_utf8()..).map(str::to_ascii_lowercase).as_deref() {
        Some("" | "ib") => Ok(bytes),
        Some("b") => Err(SizeError::Ambiguous { unit: unit.to_string(), letter }),
        _ => Err(unknown()),
    }
}

/// A size for people, in the largest unit that is not larger than the size: whole or with two
/// digits, never rounded up.
pub fn format_size(bytes: u64) -> String {
    let Some((unit_bytes, name)) = largest_unit(bytes) else {
        return format!("{bytes} B");
    };
    let whole = bytes / unit_bytes;
    if bytes.is_multiple_of(unit_bytes) {
        return format!("{whole} {name}");
    }
    let hundredths = u128::from(bytes % unit_bytes) * 100 / u128::from(unit_bytes);
    format!("{whole}.{hundredths:02} {name}")
}

/// A size for a command line: in the largest unit in which the size is a whole number, as `512K`.
pub fn format_size_exact(bytes: u64) -> String {
    let (mut number, mut unit) = (bytes, "B");
    for name in UNITS {
        if number == 0 || !number.is_multiple_of(1024) {
            break;
        }
        number /= 1024;
        unit = name;
    }
    let letter = unit.get(..1).unwrap_or(unit);
    format!("{number}{letter}")
}

fn largest_unit(bytes: u64) -> Option<(u64, &'static str)> {
    let mut found = None;
    let mut unit_bytes = 1_u64;
    for name in UNITS {
        unit_bytes *= 1024;
        if bytes < unit_bytes {
            break;
        }
        found = Some((unit_bytes, name));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_with_units_are_read() {
        for (text, bytes) in [
            ("0B", 0),
            ("64K", 65_536),
            ("64KiB", 65_536),
            ("64k", 65_536),
            ("64 kib", 65_536),
            ("1.5G", 1_610_612_736),
            ("2s", 1024),
            (" 3T ", 3_298_534_883_328),
            ("0.5K", 512),
            ("15E", 17_293_822_569_102_704_640),
            ("18446744073709551615B", u64::MAX),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn sizes_without_units_are_refused_with_what_to_write() {
        let error = parse_size("512").expect_err("no unit");
        assert!(error.to_string().contains("write 512K"), "{error}");
        assert!(matches!(parse_size("64KB"), Err(SizeError::Ambiguous { letter: 'K', .. })));
        assert!(matches!(parse_size("64X"), Err(SizeError::UnknownUnit { .. })));
        assert!(matches!(parse_size("1,5K"), Err(SizeError::UnknownUnit { .. })));
        assert!(matches!(parse_size("64KiBs"), Err(SizeError::UnknownUnit { .. })));
        assert!(matches!(parse_size("64é"), Err(SizeError::UnknownUnit { .. })));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "K", "-1K", "1.K", ".5K", "1.2.3K", "+1K"] {
            assert!(matches!(parse_size(text), Err(SizeError::NotANumber { .. })), "{text}");
        }
        for text in ["16E", "18446744073709551616B", "99999999999999999999999999999999999999999B"] {
            assert!(matches!(parse_size(text), Err(SizeError::TooLarge { .. })), "{text}");
        }
        for text in ["0.5B", "0.3K", "1.0000000000001K"] {
            assert!(matches!(parse_size(text), Err(SizeError::Fraction { .. })), "{text}");
        }
    }

    #[test]
    fn exact_text_reads_back() {
        let sizes = (0..64).flat_map(|shift| [1_u64 << shift, (1 << shift) - 1, 3 << (shift / 2)]);
        for bytes in sizes.chain([u64::MAX]) {
            assert_eq!(parse_size(&format_size_exact(bytes)), Ok(bytes));
        }
        assert_eq!(format_size_exact(524_288), "512K");
        assert_eq!(format_size_exact(1_536), "1536B");
    }

    #[test]
    fn sizes_are_cut_never_rounded_up() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1_048_575, "1023.99 KiB"),
            (1_610_612_736, "1.50 GiB"),
            (u64::MAX, "15.99 EiB"),
        ] {
            assert_eq!(format_size(bytes), text);
        }
    }
}
