//! Words for a command line that a person will copy.
//!
//! A remedy names the person's own files and arrays, and an array's name may be any text in its
//! superblock. A name that this module has quoted stays one word and runs nothing
//! `[check: no_name_can_run_anything]`.

use std::borrow::Cow;

use shlex::Quoter;

/// The text as one word of a POSIX shell or of fish; unchanged if it needs no quotes.
pub fn shell_word(text: &str) -> Cow<'_, str> {
    // A word that begins with a dash would be read as an option, even in quotes.
    if text.starts_with('-') {
        return Cow::Owned(quote(&format!("./{text}")).into_owned());
    }
    quote(text)
}

/// A text that was a command-line argument, quoted as by `shell_word`; an option stays an option.
pub fn shell_argument(text: &str) -> Cow<'_, str> {
    quote(text)
}

fn quote(text: &str) -> Cow<'_, str> {
    // In arguments such as `--option=a,b`, the signs `=` and `,` need no quotes either.
    let is_plain = |sign: char| sign.is_ascii_alphanumeric() || "_./:,=%+@-".contains(sign);
    if !text.is_empty() && text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    Quoter::new().allow_nul(true).quote(text).expect("only a zero byte could be refused")
}

/// An option and its value. A value that begins with a dash is joined by `=`: after a space, such a
/// value would be read as an option.
pub fn option_words(name: &str, value: &str) -> String {
    if value.starts_with('-') {
        return format!("{name}{}", shell_word(&format!("={value}")));
    }
    format!("{name} {}", shell_word(value))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{shell_argument, shell_word};

    #[test]
    fn plain_words_stay_plain() {
        for word in ["/dev/sdb", "host:tank", "nbd://127.0.0.1:10809/", "a_b-c.img", "a=b,c", "5%"]
        {
            assert_eq!(shell_word(word), word);
        }
    }

    #[test]
    fn no_name_can_run_anything() {
        for name in
            ["a b", "$(touch x)", "`id`", "a'; echo b; '", "", "*", "a\nb", "größe", "\\", "!x^y"]
        {
            let script = format!("printf %s {}", shell_word(name));
            let output = Command::new("sh").args(["-c", &script]).output().expect("a shell");
            assert_eq!(String::from_utf8_lossy(&output.stdout), name);
            assert!(output.stderr.is_empty(), "{name:?}");
        }
    }

    #[test]
    fn a_file_that_looks_like_an_option_stays_a_file() {
        assert_eq!(shell_argument("--run=a b"), "'--run=a b'");
        assert_eq!(shell_argument("--json"), "--json");
        assert_eq!(shell_word("-rf"), "./-rf");
        assert_eq!(shell_word("-r f"), "'./-r f'");
    }
}
