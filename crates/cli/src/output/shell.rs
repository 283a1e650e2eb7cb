//! Words for a command line that a person will copy.
//!
//! A remedy names the person's own files and arrays, and an array's name is whatever its superblock
//! says. Quoted here, it stays one word and runs nothing `[check: no_name_can_run_anything]`.

use std::borrow::Cow;

/// The text as one word of a POSIX shell; as it is where no quotes are needed.
pub(crate) fn shell_word(text: &str) -> Cow<'_, str> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_./:=@%+,-".contains(letter);
    // A word that begins with a dash would be read as an option, and quotes do not change that.
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let dashed = if text.starts_with('-') { "./" } else { "" };
    Cow::Owned(format!("'{dashed}{}'", text.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::shell_word;

    #[test]
    fn plain_words_stay_plain() {
        for word in ["/dev/sdb", "host:tank", "nbd://127.0.0.1:10809/", "a_b-c.img"] {
            assert_eq!(shell_word(word), word);
        }
    }

    #[test]
    fn no_name_can_run_anything() {
        for name in ["a b", "$(touch x)", "`id`", "a'; echo b; '", "", "*", "a\nb", "größe", "\\"]
        {
            let script = format!("printf %s {}", shell_word(name));
            let output = Command::new("sh").args(["-c", &script]).output().expect("a shell");
            assert_eq!(String::from_utf8_lossy(&output.stdout), name);
            assert!(output.stderr.is_empty(), "{name:?}");
        }
    }

    #[test]
    fn a_file_that_looks_like_an_option_stays_a_file() {
        assert_eq!(shell_word("-rf"), "'./-rf'");
    }
}
