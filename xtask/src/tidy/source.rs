//! A Rust file split into code, comments and strings, byte for byte.
//!
//! This file stands below every tidy rule that reads Rust. Tokens come from `proc-macro2`, the base
//! of procedural macros; the text between tokens is comments, which no parser keeps. No grammar is
//! known.
//!
//! Two views of the same length as the file, so that an offset in one is an offset in all:
//!
//! ```text
//! text      let a = "x{"; // y
//! code      let a =     ;            strings and comments blanked, newlines kept
//! comments                // y       only comments kept
//! ```
//!
//! Invariants:
//! - views have the length of the text and its newlines `[check: views_keep_length_and_lines]`;
//! - a brace in a string, a comment or a character literal is not code
//!   `[check: braces_in_literals_and_comments_are_not_code]`.

use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};

/// One Rust file and its two views.
pub(super) struct Source {
    /// Path relative to the repository root, with `/` between parts.
    pub(super) path: PathBuf,
    /// The file as read.
    pub(super) text: String,
    /// The text with strings, character literals and comments blanked.
    pub(super) code: String,
    /// The text with everything but comments blanked.
    pub(super) comments: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

impl Source {
    /// Splits `text`; `path` is kept for messages.
    pub(super) fn new(path: impl AsRef<Path>, text: &str) -> Self {
        let kinds = classify(text);
        Self {
            path: path.as_ref().to_path_buf(),
            text: text.to_string(),
            code: view(text, &kinds, Kind::Code),
            comments: view(text, &kinds, Kind::Comment),
        }
    }

    /// The line number, from 1, of a byte offset.
    pub(super) fn line_of(&self, offset: usize) -> usize {
        self.text.as_bytes().iter().take(offset).filter(|&&byte| byte == b'\n').count() + 1
    }

    /// The path for messages and tables.
    pub(super) fn name(&self) -> String {
        self.path.to_string_lossy().replace('\\', "/")
    }

    /// Whether the whole file is test code, by its folder or name.
    pub(super) fn is_test_file(&self) -> bool {
        let name = self.name();
        name.contains("/tests/") || name.ends_with("/tests.rs") || name.ends_with("_tests.rs")
    }

    /// The code view without items of tests: `#[cfg(test)] mod … { … }`, `#[cfg(all(test, …))] mod
    /// …;`.
    pub(super) fn production_code(&self) -> String {
        let mut code = self.code.clone().into_bytes();
        let mut from = 0;
        let next = |from: usize| {
            let marks = ["#[cfg(test)]", "#[cfg(all(test"];
            marks.iter().filter_map(|mark| self.code[from..].find(mark)).min()
        };
        while let Some(found) = next(from) {
            let start = from + found;
            let end = block_end(&self.code, start).unwrap_or(start + 1);
            for byte in &mut code[start..end] {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
            from = end;
        }
        String::from_utf8_lossy(&code).into_owned()
    }

    /// The names of functions under a `#[test]` attribute.
    pub(super) fn test_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        // The second attribute marks a test that other builds call as a function.
        for mark in ["#[test]", "#[cfg_attr(test, test)]"] {
            for (at, mark) in self.code.match_indices(mark) {
                let rest = &self.code[at + mark.len()..];
                if let Some(name) = words(rest).find(|&(offset, word)| {
                    word == "fn" && !word_after(rest, offset + 2).is_empty()
                }) {
                    names.push(word_after(rest, name.0 + 2).to_string());
                }
            }
        }
        names
    }
}

/// The offset after the item that starts at `start`: after its closing brace or semicolon.
pub(super) fn block_end(code: &str, start: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let mut square = 0_usize;
    for (offset, byte) in code.bytes().enumerate().skip(start) {
        match byte {
            b'[' | b'(' => square += 1,
            b']' | b')' => square = square.saturating_sub(1),
            b'{' => depth += 1,
            b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(offset + 1);
                }
            }
            b';' if depth == 0 && square == 0 => return Some(offset + 1),
            _ => {}
        }
    }
    None
}

/// Every identifier-like word with its offset.
pub(super) fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut offset = 0;
    code.split(|letter: char| !is_word(letter)).filter_map(move |word| {
        let at = word.as_ptr() as usize - code.as_ptr() as usize;
        debug_assert!(at >= offset);
        offset = at;
        (!word.is_empty()).then_some((at, word))
    })
}

/// The word that follows `offset` after white space, or the empty string.
pub(super) fn word_after(code: &str, offset: usize) -> &str {
    let rest = code[offset..].trim_start();
    let end = rest.find(|letter: char| !is_word(letter)).unwrap_or(rest.len());
    &rest[..end]
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn view(text: &str, kinds: &[Kind], wanted: Kind) -> String {
    let bytes = text
        .bytes()
        .zip(kinds)
        .map(|(byte, &kind)| if kind == wanted || byte == b'\n' { byte } else { b' ' })
        .collect();
    // A multi-byte letter has one kind, so cutting by kind never cuts a letter.
    String::from_utf8(bytes).expect("kinds change at letter boundaries")
}

/// The kind of each byte. Bytes outside of tokens are comments or white space. A file that the
/// tokenizer refuses counts as code.
fn classify(text: &str) -> Vec<Kind> {
    let mut kinds = vec![Kind::Comment; text.len()];
    match text.parse::<TokenStream>() {
        Ok(stream) => mark(stream, text, &mut kinds),
        Err(_) => kinds.fill(Kind::Code),
    }
    kinds
}

fn mark(stream: TokenStream, text: &str, kinds: &mut [Kind]) {
    for tree in stream {
        let all = tree.span().byte_range();
        // A documentation comment's tokens have the comment's place.
        if text[all.clone()].starts_with("//") || text[all.clone()].starts_with("/*") {
            continue;
        }
        match tree {
            TokenTree::Literal(literal) if literal.to_string().contains(['"', '\'']) => {
                kinds[all].fill(Kind::Literal);
            }
            TokenTree::Group(group) => {
                kinds[group.span_open().byte_range()].fill(Kind::Code);
                kinds[group.span_close().byte_range()].fill(Kind::Code);
                mark(group.stream(), text, kinds);
            }
            _ => kinds[all].fill(Kind::Code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIXED: &str = concat!(
        "fn a<'x>(b: &'x str) { // brace }\n",
        "  let c = \"}\\\"{\"; let d = '{'; let e = '\\''; /* { /* { */ */\n",
        "  let f = r#\"}\"}\"#; let g = b'}'; let h = br\"{\"; let i = 'é'; let r = 1;\n",
        "}\n",
    );

    #[test]
    fn views_keep_length_and_lines() {
        let source = Source::new("a.rs", MIXED);
        for view in [&source.code, &source.comments] {
            assert_eq!(view.len(), MIXED.len());
            assert_eq!(view.matches('\n').count(), MIXED.matches('\n').count());
        }
        assert_eq!(source.line_of(MIXED.len() - 2), 4);
    }

    #[test]
    fn braces_in_literals_and_comments_are_not_code() {
        let source = Source::new("a.rs", MIXED);
        assert_eq!(source.code.matches('{').count(), 1);
        assert_eq!(source.code.matches('}').count(), 1);
        assert!(source.code.contains("fn a<'x>(b: &'x str)"));
        assert!(source.code.contains("let r = 1"));
        assert!(source.comments.contains("// brace }"));
        assert!(!source.comments.contains("let"));
    }

    #[test]
    fn test_modules_are_not_production_code() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { c(); }\n}\nfn d() {}\n";
        let code = Source::new("a.rs", text).production_code();
        assert!(code.contains("fn a") && code.contains("fn d") && !code.contains("fn b"));
    }

    #[test]
    fn test_names_are_found_behind_other_attributes() {
        let text = "#[test]\n#[should_panic(expected = \"fn x\")]\nfn one() {}\nfn two() {}\n\
                    #[cfg_attr(test, test)]\nfn three() {}\n";
        assert_eq!(Source::new("a.rs", text).test_names(), ["one", "three"]);
    }
}
