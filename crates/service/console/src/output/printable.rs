//! Text from disks and wires, made safe to print.
//!
//! An array name is 32 bytes that any program may have written. Control characters in it could move
//! the cursor, clear the screen or hide a line. Direction marks could reorder a line, separators
//! could split it, and invisible characters make two names look alike. Such characters are printed
//! as escapes `[check: control_characters_are_shown_not_obeyed, what_cannot_be_seen_is_shown]`.
//!
//! Programs read JSON, and want names unchanged; but JSON, too, may end on a terminal, and a
//! program may take U+2028 for the end of a line. So in JSON these characters are written as JSON's
//! own escapes `[check: json_means_the_same_and_has_nothing_harmful_in_it]`.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde_json::Value;
use unicode_general_category::{GeneralCategory, get_general_category};

/// The text with control and direction characters escaped.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        if is_harmful(letter) {
            safe.extend(letter.escape_default());
        } else {
            safe.push(letter);
        }
    }
    Cow::Owned(safe)
}

/// A JSON value in one line without harmful characters.
pub fn json_line(value: &Value) -> String {
    let text = value.to_string();
    if !text.chars().any(is_harmful) {
        return text;
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        // JSON escapes ASCII control characters itself, so a harmful character that is left is
        // inside a string.
        if is_harmful(letter) {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                write!(safe, "\\u{unit:04x}").expect("writing to a string does not fail");
            }
        } else {
            safe.push(letter);
        }
    }
    safe
}

/// Whether a character must be escaped, by the general categories of Unicode. Includes invisible
/// letters and marks (`Default_Ignorable_Code_Point`, and the blank pattern of Braille).
fn is_harmful(letter: char) -> bool {
    if matches!(letter, ' '..='~') {
        return false;
    }
    let shows_nothing = matches!(
        letter,
        '\u{034f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{2800}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}'
    );
    let category = get_general_category(letter);
    shows_nothing
        || matches!(
            category,
            GeneralCategory::Control
                | GeneralCategory::Format
                | GeneralCategory::LineSeparator
                | GeneralCategory::ParagraphSeparator
                | GeneralCategory::SpaceSeparator
                | GeneralCategory::PrivateUse
                | GeneralCategory::Surrogate
                | GeneralCategory::Unassigned
        )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn control_characters_are_shown_not_obeyed() {
        assert_eq!(printable("tank\u{1b}[2J\n"), "tank\\u{1b}[2J\\n");
        assert_eq!(printable("\u{202e}knat"), "\\u{202e}knat");
    }

    #[test]
    fn what_cannot_be_seen_is_shown() {
        for code in [
            0x7f, 0x80, 0x9b, 0xa0, 0xad, 0x34f, 0x61c, 0x115f, 0x180e, 0x2003, 0x200b, 0x200d,
            0x200e, 0x2028, 0x2029, 0x202e, 0x2060, 0x2066, 0x206f, 0x2800, 0x3000, 0x3164, 0xe000,
            0xfe0f, 0xfeff, 0xfff9, 0xffff, 0x1_d173, 0xe_0001, 0xe_0041, 0xe_0100, 0xf_0000,
            0x10_ffff,
        ] {
            let letter = char::from_u32(code).expect("a character");
            assert_eq!(printable(&letter.to_string()), format!("\\u{{{code:x}}}"));
        }
    }

    #[test]
    fn json_means_the_same_and_has_nothing_harmful_in_it() {
        let name = "a\u{9b}2J\u{2028}\u{202e}b\u{e0041}\u{7f}\n\"größe";
        let value = json!({ name: [name, 7] });
        let line = json_line(&value);
        assert!(!line.chars().any(is_harmful) && line.lines().count() == 1, "{line}");
        assert_eq!(serde_json::from_str::<Value>(&line).expect("JSON"), value);
        assert!(
            line.contains("größe") && line.contains("\\u009b2J") && line.contains("\\udb40\\udc41")
        );
    }

    #[test]
    fn ordinary_names_are_left_alone() {
        for name in ["tank", "host:photos", "größe", "数据", "ελ ω+-_.", "日本語", "हिन्दी", "😀"]
        {
            assert_eq!(printable(name), name);
        }
    }
}
