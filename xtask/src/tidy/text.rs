//! Rules about words: banned marks, module headers, forbidden words of pure crates, licences,
//! examples.
//!
//! The rules read a source's views of code and comments, so that a banned word in a string (as in
//! this file) is no finding. They know no grammar beyond "a word".

use super::source::{Source, words};
use super::tree::Document;
use super::{Finding, Rule};

/// Marks of unfinished work in comments, code and documents. (clippy finds the macros.)
const BANNED: [&str; 4] = ["TODO", "FIXME", "XXX", "HACK"];
/// Crates that compute without the outside world. The rules apply to their `src`, without tests.
const PURE: [&str; 17] = [
    "external-metadata",
    "signatures",
    "prefetch",
    "sim-hooks",
    "imaging",
    "geometry",
    "parity",
    "nbd-proto",
    "virtio-proto",
    "lvm",
    "ondisk",
    "solver",
    "assembly",
    "elevator",
    "pace",
    "engine",
    "sim",
];
/// Words that a pure crate must not contain: clocks, threads, files, sockets, chance.
const WORLD: [&str; 11] = [
    "Instant::now",
    "SystemTime",
    "std::thread",
    "thread::spawn",
    "std::fs",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "UnixStream",
    "rand::",
    "RandomState",
];
/// Containers whose order differs from run to run: forbidden in the engine and in the sessions.
const UNORDERED: [&str; 2] = ["HashMap", "HashSet"];
/// Crates whose decisions must repeat exactly from run to run.
const ORDERED: [&str; 9] = [
    "external-metadata",
    "sim-hooks",
    "elevator",
    "pace",
    "engine",
    "nbd-proto",
    "assembly",
    "solver",
    "sim",
];

/// Words after a fence for which rustdoc takes the block for Rust code; without a word it does too.
const EXAMPLES: [&str; 8] = [
    "rust",
    "no_run",
    "ignore",
    "should_panic",
    "compile_fail",
    "edition",
    "test_harness",
    "standalone_crate",
];

/// Rules on one Rust file.
pub(super) fn check_source(source: &Source, findings: &mut Vec<Finding>) {
    banned(source, findings);
    header(source, findings);
    deterministic(source, findings);
    examples(source, findings);
    gpl(&source.name(), &source.text, findings);
}

/// Rules on one document that is not Rust.
pub(super) fn check_document(document: &Document, findings: &mut Vec<Finding>) {
    for (index, line) in document.text.lines().enumerate() {
        for (_, word) in words(line).filter(|(_, word)| BANNED.contains(word)) {
            let text = format!("{word}: finish it, or write down what is absent");
            findings.push(Finding::new(Rule::BannedWords, &document.path, index + 1, text));
        }
    }
    gpl(&document.path, &document.text, findings);
}

fn banned(source: &Source, findings: &mut Vec<Finding>) {
    for view in [&source.code, &source.comments] {
        for (at, word) in words(view).filter(|(_, word)| BANNED.contains(word)) {
            let text = format!("{word}: finish it, or write down what is absent");
            let line = source.line_of(at);
            findings.push(Finding::new(Rule::BannedWords, &source.name(), line, text));
        }
    }
}

fn header(source: &Source, findings: &mut Vec<Finding>) {
    let first = source
        .text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with("#!["))
        .unwrap_or("");
    if first.strip_prefix("//!").is_none_or(|sentence| sentence.trim().is_empty()) {
        let text = "begins without a //! header that says what it is";
        findings.push(Finding::new(Rule::ModuleHeader, &source.name(), 1, text));
    }
}

fn deterministic(source: &Source, findings: &mut Vec<Finding>) {
    let name = source.name();
    let Some(room) = room_of(&name) else { return };
    if !PURE.contains(&room) || source.is_test_file() {
        return;
    }
    let code = source.production_code();
    let unordered = if ORDERED.contains(&room) { &UNORDERED[..] } else { &[] };
    for word in WORLD.iter().chain(unordered) {
        for (at, _) in code.match_indices(word).filter(|&(at, _)| starts_word(&code, at)) {
            let text = format!("{room} is deterministic and asks nothing of the world: {word}");
            findings.push(Finding::new(Rule::Deterministic, &name, source.line_of(at), text));
        }
    }
}

/// Finds code in documentation that rustdoc would run as an example. To run examples, cargo builds
/// all libraries once more with other features, which takes minutes; tests show the same behaviour.
fn examples(source: &Source, findings: &mut Vec<Finding>) {
    let mut is_inside = false;
    for (index, line) in source.text.lines().enumerate() {
        let line = line.trim_start();
        let Some(text) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            is_inside = false;
            continue;
        };
        let text = text.trim_start();
        let Some(word) = text.strip_prefix("```").or_else(|| text.strip_prefix("~~~")) else {
            continue;
        };
        let word = word.trim_start_matches(['`', '~', ' ', '{', '.']);
        is_inside = !is_inside;
        if is_inside && (word.is_empty() || EXAMPLES.iter().any(|own| word.starts_with(own))) {
            let text = "an example that nothing runs: call the block `text`, and show it in a test";
            findings.push(Finding::new(Rule::Examples, &source.name(), index + 1, text));
        }
    }
}

/// The folder of the crate whose `src` contains the file.
fn room_of(path: &str) -> Option<&str> {
    let (folder, _) = path.strip_prefix("crates/")?.split_once("/src/")?;
    folder.rsplit('/').next()
}

fn starts_word(code: &str, at: usize) -> bool {
    !code[..at].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_')
}

fn gpl(path: &str, text: &str, findings: &mut Vec<Finding>) {
    // Each text is cut in two, so that the rule does not find this file.
    let signs = [concat!("gnu general public", " license"), concat!("identifier: ", "gpl")];
    for (index, line) in text.lines().enumerate() {
        let line = line.to_lowercase();
        if signs.iter().any(|sign| line.contains(sign)) {
            let text = "text under the GPL does not belong here";
            findings.push(Finding::new(Rule::GplText, path, index + 1, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<Rule> {
        let mut findings = Vec::new();
        check_source(&Source::new(path, text), &mut findings);
        findings.iter().map(|finding| finding.rule).collect()
    }

    fn document(text: &str) -> Vec<Rule> {
        let mut findings = Vec::new();
        let document = Document { path: "a.md".to_string(), text: text.to_string() };
        check_document(&document, &mut findings);
        findings.iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn marks_of_unfinished_work_are_found_outside_strings() {
        for mark in BANNED {
            assert_eq!(rules("a.rs", &format!("//! A.\n// {mark}: later\n")), [Rule::BannedWords]);
            assert_eq!(document(&format!("We will {mark} it\n")), [Rule::BannedWords]);
        }
        assert_eq!(rules("a.rs", "//! A.\nconst A: &str = \"TODO\"; fn todo() {}\n"), []);
    }

    #[test]
    fn a_file_without_header_is_found() {
        assert_eq!(rules("a.rs", "fn a() {}\n"), [Rule::ModuleHeader]);
        assert_eq!(rules("a.rs", "//!\nfn a() {}\n"), [Rule::ModuleHeader]);
        assert_eq!(rules("a.rs", "#![forbid(unsafe_code)]\n//! A.\nfn a() {}\n"), []);
    }

    #[test]
    fn a_clock_a_thread_a_file_in_the_engine_is_found() {
        for word in WORLD.iter().chain(&UNORDERED) {
            let text = format!("//! A.\nfn a() {{ let b = {word}x; }}\n");
            assert_eq!(
                rules("crates/core/engine/src/a.rs", &text),
                [Rule::Deterministic],
                "{word}"
            );
            assert_eq!(rules("crates/io/runtime/src/a.rs", &text), []);
            let text = format!("//! A.\n#[cfg(test)]\nmod tests {{ use {word}x; }}\n");
            assert_eq!(rules("crates/core/engine/src/a.rs", &text), []);
        }
        assert_eq!(rules("crates/core/engine/src/a.rs", "//! A.\nfn a() { operand::b() }\n"), []);
    }

    #[test]
    fn an_example_in_documentation_is_found_and_a_drawing_is_not() {
        for word in std::iter::once(&"").chain(&EXAMPLES) {
            let text = format!("//! A.\n/// ```{word}\n/// let a = 1;\n/// ```\nfn a() {{}}\n");
            assert_eq!(rules("a.rs", &text), [Rule::Examples], "{word}");
            let text =
                format!("//! A.\n/// ```text\nfn a() {{}}\n/// ~~~ {word}\n/// ~~~\nfn b() {{}}\n");
            assert_eq!(rules("a.rs", &text), [Rule::Examples], "{word}");
        }
        let text = "//! A.\n//!\n//! ```text\n//! a --> b\n//! ```\n/// ```sh\n/// ls\n/// ```\nfn a() {}\n";
        assert_eq!(rules("a.rs", text), []);
    }

    #[test]
    fn text_under_the_gpl_is_found() {
        let text = concat!("//! SPDX-License-Identifier: ", "GPL-2.0\n");
        assert_eq!(rules("a.rs", text), [Rule::GplText]);
        assert_eq!(document("md is GPL: facts only.\n"), []);
    }
}
