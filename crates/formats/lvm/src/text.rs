//! The text that LVM keeps: sections of keys and values.
//!
//! ```text
//!   section  = name "{" entry* "}"
//!   entry    = section | key "=" value
//!   value    = number | "text" | "[" value "," ... "]"
//!   # begins a comment, up to the end of its line
//! ```
//!
//! The text is read once, from front to back; nesting depth and number of entries are limited.

use crate::fault::Fault;
use crate::limits::{DEPTH_MAX, ENTRIES_MAX, NAME_BYTES_MAX};

/// A number or a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A whole number; decimals are cut off.
    Number(u64),
    /// Text between quotes.
    Text(String),
}

/// The value or section after a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A value.
    Value(Value),
    /// A list of values.
    List(Vec<Value>),
    /// A section.
    Section(Section),
}

/// The entries of a section, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Section {
    /// Names and their values. If a name repeats, the first entry counts.
    pub entries: Vec<(String, Entry)>,
}

impl Section {
    fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|(key, _)| key == name).map(|(_, entry)| entry)
    }

    /// The section with this name.
    #[must_use]
    pub fn section(&self, name: &str) -> Option<&Self> {
        match self.get(name)? {
            Entry::Section(section) => Some(section),
            Entry::Value(_) | Entry::List(_) => None,
        }
    }

    /// The number with this name.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.get(name)? {
            Entry::Value(Value::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// The text with this name.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Entry::Value(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The list with this name; a single value is a list of one.
    #[must_use]
    pub fn list(&self, name: &str) -> Option<&[Value]> {
        match self.get(name)? {
            Entry::List(values) => Some(values),
            Entry::Value(value) => Some(std::slice::from_ref(value)),
            Entry::Section(_) => None,
        }
    }

    /// The subsections of this section, with their names.
    pub fn sections(&self) -> impl Iterator<Item = (&str, &Self)> {
        self.entries.iter().filter_map(|(name, entry)| match entry {
            Entry::Section(section) => Some((name.as_str(), section)),
            Entry::Value(_) | Entry::List(_) => None,
        })
    }
}

/// Reads a text.
///
/// # Errors
/// If the text has a syntax error, or exceeds a limit.
pub fn parse(text: &[u8]) -> Result<Section, Fault> {
    let mut reader = TextReader { rest: text, line: 1, entries: 0 };
    let section = reader.section(0)?;
    Ok(section)
}

struct TextReader<'a> {
    rest: &'a [u8],
    line: usize,
    entries: usize,
}

impl<'a> TextReader<'a> {
    fn fault<T>(&self) -> Result<T, Fault> {
        Err(Fault::Text { line: self.line })
    }

    fn skip(&mut self) {
        while let Some((first, rest)) = self.rest.split_first() {
            match first {
                b'\n' => self.line = self.line.saturating_add(1),
                // LVM ends a text with a zero byte.
                b' ' | b'\t' | b'\r' | 0 => {}
                b'#' => {
                    let end = self.rest.iter().position(|byte| *byte == b'\n');
                    self.rest = end.and_then(|end| self.rest.get(end..)).unwrap_or_default();
                    continue;
                }
                _ => return,
            }
            self.rest = rest;
        }
    }

    fn is_next(&mut self, byte: u8) -> bool {
        self.skip();
        match self.rest.split_first() {
            Some((first, rest)) if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn count(&mut self) -> Result<(), Fault> {
        self.entries = self.entries.saturating_add(1);
        if self.entries > ENTRIES_MAX {
            return Err(Fault::TooLarge("its metadata"));
        }
        Ok(())
    }

    /// Reads the bytes up to the end of a word.
    fn word(&mut self) -> &'a [u8] {
        let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-+.@/".contains(byte);
        let end = self.rest.iter().position(|byte| !is_of_word(byte)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, &[]));
        self.rest = rest;
        word
    }

    /// Reads the entries up to the end of their section, or of the text.
    fn section(&mut self, depth: usize) -> Result<Section, Fault> {
        let mut section = Section::default();
        loop {
            self.skip();
            let is_end = match depth {
                0 => self.rest.is_empty(),
                _ => self.is_next(b'}'),
            };
            if is_end {
                return Ok(section);
            }
            self.count()?;
            let name = String::from_utf8_lossy(self.word()).into_owned();
            if name.is_empty() || name.len() > NAME_BYTES_MAX {
                return self.fault();
            }
            let entry = if self.is_next(b'{') {
                let deeper = depth.saturating_add(1);
                if deeper > DEPTH_MAX {
                    return Err(Fault::TooLarge("how its metadata nests"));
                }
                Entry::Section(self.section(deeper)?)
            } else if self.is_next(b'=') {
                self.entry()?
            } else {
                return self.fault();
            };
            section.entries.push((name, entry));
        }
    }

    fn entry(&mut self) -> Result<Entry, Fault> {
        if !self.is_next(b'[') {
            return self.value().map(Entry::Value);
        }
        let mut values = Vec::new();
        while !self.is_next(b']') {
            self.count()?;
            values.push(self.value()?);
            if !self.is_next(b',') {
                if self.is_next(b']') {
                    break;
                }
                return self.fault();
            }
        }
        Ok(Entry::List(values))
    }

    fn value(&mut self) -> Result<Value, Fault> {
        self.skip();
        if self.rest.first() == Some(&b'"') {
            return self.quoted().map(Value::Text);
        }
        let word = self.word();
        let digits = word.split(|byte| *byte == b'.').next().unwrap_or_default();
        // A read-ahead value may be negative; braid does not use it.
        let digits = digits.strip_prefix(b"-").unwrap_or(digits);
        let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        number.map_or_else(|| self.fault(), |number| Ok(Value::Number(number)))
    }

    fn quoted(&mut self) -> Result<String, Fault> {
        let mut text = Vec::new();
        let mut bytes = self.rest.iter().skip(1);
        let mut used = 1_usize;
        loop {
            used = used.saturating_add(1);
            match bytes.next() {
                Some(b'"') => break,
                Some(b'\\') => {
                    used = used.saturating_add(1);
                    text.extend(bytes.next());
                }
                Some(b'\n') | None => return self.fault(),
                Some(byte) => text.push(*byte),
            }
        }
        self.rest = self.rest.get(used..).unwrap_or_default();
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_as_lvm_writes_it() {
        let text = b"# Generated\nvg1 {\nid = \"a-b\"\nextent_size = 8192\t\t# 4 Megabytes\nstatus = [\"READ\", \"WRITE\"]\nflags = []\n\
            logical_volumes {\nlv {\nsegment1 {\nstripes = [\n\"pv0\", 5,\n\"pv1\", 0\n]\n}\n}\n}\n}\ndescription = \"a \\\"b\\\" \\\\ c\"\nread_ahead = -1\n\0";
        let found = parse(text).expect("sound");
        let group = found.section("vg1").expect("a group");
        assert_eq!((group.text("id"), group.number("extent_size")), (Some("a-b"), Some(8192)));
        assert_eq!(group.list("status").map(<[Value]>::len), Some(2));
        assert_eq!(group.list("flags"), Some(&[][..]));
        let volumes = group.section("logical_volumes").expect("volumes");
        let segment = volumes.section("lv").and_then(|lv| lv.section("segment1")).expect("one");
        let text = |text: &str| Value::Text(text.to_owned());
        let expected = [text("pv0"), Value::Number(5), text("pv1"), Value::Number(0)];
        assert_eq!(segment.list("stripes"), Some(&expected[..]));
        assert_eq!(found.text("description"), Some("a \"b\" \\ c"));
        assert_eq!(found.number("read_ahead"), Some(1));
        assert_eq!(volumes.sections().map(|(name, _)| name).collect::<Vec<_>>(), ["lv"]);
    }

    #[test]
    fn text_is_bounded() {
        let nested = |deep: usize| [b"a {".repeat(deep), b"}".repeat(deep)].concat();
        assert!(parse(&nested(DEPTH_MAX)).is_ok());
        assert_eq!(parse(&nested(DEPTH_MAX + 1)), Err(Fault::TooLarge("how its metadata nests")));
        assert_eq!(parse(&nested(1 << 20)), Err(Fault::TooLarge("how its metadata nests")));
        let many = b"a=1\n".repeat(ENTRIES_MAX + 1);
        assert_eq!(parse(&many), Err(Fault::TooLarge("its metadata")));
        let list = [b"a=[", &b"1,".repeat(ENTRIES_MAX)[..]].concat();
        assert_eq!(parse(&list), Err(Fault::TooLarge("its metadata")));
        for (cut, line) in [
            ("a {\nb = 1\n", 3),
            ("a = \"b", 1),
            ("a = \"b\nc\"", 1),
            ("a = [1, 2", 1),
            ("a = [1 2]", 1),
            ("\n\na", 3),
            ("a b", 1),
            ("= 1", 1),
            ("a = x", 1),
            ("a = 99999999999999999999", 1),
            ("}", 1),
            ("\"a\" = 1", 1),
            (&*"a".repeat(NAME_BYTES_MAX + 1), 1),
        ] {
            assert_eq!(parse(cut.as_bytes()), Err(Fault::Text { line }), "{cut}");
        }
    }
}
