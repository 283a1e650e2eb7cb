//! Reads the ARRAY lines of `mdadm.conf`.
//!
//! The format follows mdadm.conf(5): white space separates words, a line that begins with white
//! space continues the line before, and `#` begins a comment. A word may be quoted. Keywords may be
//! shortened to three letters, in any case. Other lines (DEVICE, AUTO, MAILADDR and so on) do not
//! concern braid.

use braid_assembly::bare_name;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ArrayLine {
    /// The array's name: the last part of the device's path, or of `name=`.
    pub(crate) name: Option<String>,
    /// The array's UUID, as hexadecimal digits alone.
    pub(crate) uuid: Option<String>,
    /// The name in the array's superblocks, with the host.
    pub(crate) superblock_name: Option<String>,
    /// mdadm ignores the array.
    pub(crate) is_ignored: bool,
}

/// Usual paths of `mdadm.conf`: each distribution uses one of them.
pub(crate) const PATHS: [&str; 2] = ["/etc/mdadm/mdadm.conf", "/etc/mdadm.conf"];

/// The arrays of an mdadm.conf. Unknown words are skipped: newer versions of mdadm may have more.
pub(crate) fn arrays(text: &str) -> Vec<ArrayLine> {
    let mut lines: Vec<Vec<String>> = Vec::new();
    for line in text.lines() {
        let goes_on = line.starts_with([' ', '\t']);
        let words = words(line);
        match lines.last_mut().filter(|_| goes_on) {
            Some(before) => before.extend(words),
            None => lines.push(words),
        }
    }
    let is_array = |words: &Vec<String>| {
        words
            .first()
            .is_some_and(|word| word.len() >= 3 && "array".starts_with(&word.to_lowercase()))
    };
    lines.iter().filter(|words| is_array(words)).map(|words| array(&words[1..])).collect()
}

fn array(words: &[String]) -> ArrayLine {
    let mut line = ArrayLine::default();
    for word in words {
        match word.split_once('=') {
            None if word.eq_ignore_ascii_case("<ignore>") => line.is_ignored = true,
            None => line.name = word.rsplit('/').next().map(str::to_owned),
            Some((key, value)) => match &*key.to_lowercase() {
                "uuid" => line.uuid = Some(digits(value)),
                "name" => line.superblock_name = Some(value.to_owned()),
                _ => {}
            },
        }
    }
    line
}

impl ArrayLine {
    /// Whether the ARRAY line selects the array with this UUID and name.
    pub(crate) fn means(&self, uuid: &str, superblock_name: &str) -> bool {
        match (&self.uuid, &self.superblock_name) {
            (Some(one), _) => *one == digits(uuid),
            (None, Some(name)) => name == superblock_name,
            (None, None) => false,
        }
    }

    /// The array's name: the line's own name, else the superblocks' name without the host.
    pub(crate) fn called(&self) -> Option<&str> {
        let of_superblock = || self.superblock_name.as_deref().map(bare_name);
        self.name.as_deref().or_else(of_superblock).filter(|name| !name.is_empty())
    }
}

fn digits(uuid: &str) -> String {
    uuid.chars().filter(char::is_ascii_hexdigit).map(|one| one.to_ascii_lowercase()).collect()
}

fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in line.chars() {
        match (letter, quote) {
            (_, Some(end)) if letter == end => quote = None,
            (_, Some(_)) => word.get_or_insert_default().push(letter),
            ('"' | '\'', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            ('#', None) if word.is_none() => break,
            (_, None) if letter.is_whitespace() => words.extend(word.take()),
            (_, None) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_named_and_everything_else_is_left_alone() {
        let text = "# how\nDEVICE partitions\nARRAY /dev/md/tank metadata=1.2 UUID=0E9D:a1:2:3 name=box:tank\n   spares=1 \
                    devices=/dev/sda1,/dev/sdb*\n\nMAILADDR root\narray <ignore> UUID=11:22 # not us\nARR /dev/md0 \"name=a b\"\n";
        let found = arrays(text);
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(found[0].called(), Some("tank"));
        assert_eq!(found[0].uuid.as_deref(), Some("0e9da123"));
        assert!(found[1].is_ignored && found[1].means("11-22", ""));
        assert_eq!(
            (found[2].called(), found[2].superblock_name.as_deref()),
            (Some("md0"), Some("a b"))
        );
        assert!(found[2].means("any", "a b") && !found[2].means("any", "a"));
        assert!(arrays("").is_empty() && arrays("AR x\nARRAYS y\n").is_empty());
    }
}
