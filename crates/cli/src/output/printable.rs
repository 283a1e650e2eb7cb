//! Text from disks and wires, made safe to print.
//!
//! An array name is 32 bytes that anybody may have written. Control characters in it could move
//! the cursor, clear the screen or hide a line; direction marks could reorder one. They are shown
//! as escapes instead `[check: control_characters_are_shown_not_obeyed]`.

use std::borrow::Cow;

/// The same text, with control and direction characters escaped.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
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

fn is_harmful(letter: char) -> bool {
    let turns_direction = matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}')
        || matches!(letter, '\u{2066}'..='\u{2069}');
    letter.is_control() || turns_direction
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn control_characters_are_shown_not_obeyed() {
        assert_eq!(printable("tank\u{1b}[2J\n"), "tank\\u{1b}[2J\\n");
        assert_eq!(printable("\u{202e}knat"), "\\u{202e}knat");
    }

    #[test]
    fn ordinary_names_are_left_alone() {
        for name in ["tank", "host:photos", "größe", "数据"] {
            assert_eq!(printable(name), name);
        }
    }
}
