//! Rules on the sentences of comments and documents: columns, banned words, subjects, and the share
//! of words that name nothing.
//!
//! A paragraph is a run of comment lines, or of lines of a document, without a blank line, list
//! mark, heading, table or fence between them. Sentences end at a full stop, colon, semicolon,
//! exclamation or question mark before a space. Code between backticks is one word.

use super::source::Source;
use super::tree::Document;
use super::{Finding, Rule};

const COLUMNS_MAX: usize = 100;
/// Documents with their own limits of columns: the changelog has a line for each entry, and
/// `braid-lab report` writes the benchmarks.
const OTHER_COLUMNS: [(&str, usize); 2] = [("CHANGELOG.md", 112), ("docs/benchmarks.md", 400)];
/// Pronouns that hide who does what.
const BANNED: [&str; 6] = ["whoever", "whomever", "nobody", "somebody", "anybody", "everybody"];
/// Words with which no sentence begins, unless it is a question.
const SUBJECTS: [&str; 7] =
    ["What ", "That which ", "One that ", "Those that ", "Those who ", "Whatever ", "Who "];
/// The shortest sentence, in words, whose share of function words counts.
const WORDS_MIN: usize = 12;
/// The longest sentence, in words.
const WORDS_MAX: usize = 30;
/// Pronouns, auxiliaries, articles, prepositions and conjunctions.
const FUNCTION_WORDS: [&str; 65] = [
    "what", "that", "which", "who", "whom", "whose", "it", "its", "one", "ones", "is", "are", "be",
    "been", "being", "was", "were", "to", "has", "have", "had", "do", "does", "did", "done", "can",
    "could", "may", "might", "must", "shall", "should", "will", "would", "this", "these", "those",
    "they", "them", "their", "there", "where", "when", "how", "not", "no", "than", "so", "if",
    "as", "by", "and", "or", "of", "for", "in", "on", "at", "with", "from", "a", "an", "the",
    "all", "any",
];

/// Rules on the comments of one Rust file.
pub(super) fn check_source(source: &Source, findings: &mut Vec<Finding>) {
    let mut prose = Prose::new(source.name(), COLUMNS_MAX, false);
    let mut marker = "";
    for (index, (line, comment)) in source.text.lines().zip(source.comments.lines()).enumerate() {
        let text = line.trim_start();
        let own = ["///", "//!", "//"].into_iter().find(|marker| text.starts_with(marker));
        let Some(own) = own.filter(|_| !comment.trim().is_empty()) else {
            prose.end_block(findings);
            continue;
        };
        if own != marker {
            prose.end_block(findings);
            marker = own;
        }
        prose.line(index + 1, &text[own.len()..], line, findings);
    }
    prose.end_block(findings);
}

/// Rules on one document.
pub(super) fn check_document(document: &Document, findings: &mut Vec<Finding>) {
    if !document.path.ends_with(".md") {
        return;
    }
    let other = OTHER_COLUMNS.iter().find(|(path, _)| *path == document.path);
    let mut prose = Prose::new(document.path.clone(), other.map_or(COLUMNS_MAX, |it| it.1), true);
    for (index, line) in document.text.lines().enumerate() {
        prose.line(index + 1, line, line, findings);
    }
    prose.end_block(findings);
}

/// The state of the reader of a file, up to some line.
struct Prose {
    path: String,
    columns_max: usize,
    /// Whether lines in fences and tables may be wider, as in documents.
    may_be_wide: bool,
    is_fenced: bool,
    /// The open paragraph and its first line.
    paragraph: String,
    start: usize,
}

impl Prose {
    const fn new(path: String, columns_max: usize, may_be_wide: bool) -> Self {
        Self {
            path,
            columns_max,
            may_be_wide,
            is_fenced: false,
            paragraph: String::new(),
            start: 0,
        }
    }

    /// Reads a line of the file: `text` is its prose, `whole` the line as it stands in the file.
    fn line(&mut self, number: usize, text: &str, whole: &str, findings: &mut Vec<Finding>) {
        let is_indented = self.paragraph.is_empty() && text.starts_with("    ");
        let text = text.trim();
        let is_fence = text.starts_with("```") || text.starts_with("~~~");
        let is_table = text.starts_with('|');
        if is_fence || is_table || text.is_empty() || text.starts_with('#') || self.is_fenced {
            self.end_paragraph(findings);
        }
        if is_fence {
            self.is_fenced = !self.is_fenced;
            return;
        }
        let columns = whole.chars().count();
        let is_exempt = self.may_be_wide && (self.is_fenced || is_table);
        let may_be_long = is_exempt || whole.contains("://");
        if columns > self.columns_max && !may_be_long {
            let text = format!("{columns} columns of at most {}", self.columns_max);
            findings.push(Finding::new(Rule::Columns, &self.path, number, text));
        }
        if self.is_fenced {
            return;
        }
        if is_table || is_indented || text.starts_with('#') {
            self.banned(number, &without_names(text), findings);
            return;
        }
        if text.is_empty() {
            return;
        }
        let item = text.strip_prefix("- ").or_else(|| text.strip_prefix("* ")).or_else(|| {
            let (digits, rest) = text.split_once(". ")?;
            digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(rest)
        });
        if item.is_some() {
            self.end_paragraph(findings);
        }
        if self.paragraph.is_empty() {
            self.start = number;
        }
        self.paragraph.push_str(item.unwrap_or(text));
        self.paragraph.push(' ');
    }

    fn end_block(&mut self, findings: &mut Vec<Finding>) {
        self.end_paragraph(findings);
        self.is_fenced = false;
    }

    fn end_paragraph(&mut self, findings: &mut Vec<Finding>) {
        let paragraph = std::mem::take(&mut self.paragraph);
        let paragraph = without_names(&paragraph);
        self.banned(self.start, &paragraph, findings);
        for sentence in sentences(&paragraph) {
            if let Some(text) = fault(sentence) {
                findings.push(Finding::new(Rule::PlainWords, &self.path, self.start, text));
            }
        }
    }

    fn banned(&self, line: usize, text: &str, findings: &mut Vec<Finding>) {
        let text = text.to_lowercase();
        for word in text.split(|letter: char| !letter.is_alphanumeric()) {
            if BANNED.contains(&word) {
                let text = format!("{word}: name the client, member, caller or operator");
                findings.push(Finding::new(Rule::PlainWords, &self.path, line, text));
            }
        }
    }
}

/// The paragraph with `CODE` for each span between backticks, and without the names of tests.
fn without_names(paragraph: &str) -> String {
    let spans = paragraph.split('`').enumerate();
    let text: String =
        spans.map(|(index, part)| if index % 2 == 1 { "CODE" } else { part }).collect();
    let words = text.split_inclusive(' ').filter(|word| !word.contains('_'));
    words.collect()
}

fn sentences(paragraph: &str) -> impl Iterator<Item = &str> {
    let mut rest = paragraph.trim();
    std::iter::from_fn(move || {
        let is_end = |at: usize| rest[at + 1..].starts_with(' ');
        let end =
            rest.match_indices(['.', '!', '?', ':', ';']).map(|(at, _)| at).find(|at| is_end(*at));
        let (sentence, later) = rest.split_at(end.map_or(rest.len(), |at| at + 1));
        rest = later.trim_start();
        (!sentence.is_empty()).then_some(sentence)
    })
}

/// Why a sentence breaks a rule; `None` if it breaks none.
fn fault(sentence: &str) -> Option<String> {
    let begins = SUBJECTS.into_iter().find(|subject| sentence.starts_with(subject));
    if let Some(subject) = begins.filter(|_| !sentence.ends_with('?')) {
        return Some(format!("a sentence begins with {:?}: name its subject", subject.trim()));
    }
    let is_letter = |letter: char| letter.is_ascii_alphabetic() || letter == '\'';
    let words: Vec<String> = sentence
        .split(|letter| !is_letter(letter))
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let count = words.len();
    let start = || sentence.chars().take(40).collect::<String>();
    if count > WORDS_MAX {
        return Some(format!("a sentence of {count} words: {:?}", start()));
    }
    let empty = words.iter().filter(|word| FUNCTION_WORDS.contains(&word.as_str())).count();
    (count >= WORDS_MIN && empty * 3 >= count * 2)
        .then(|| format!("{empty} of {count} words name nothing: {:?}", start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_source(text: &str) -> Vec<Rule> {
        let mut findings = Vec::new();
        check_source(&Source::new("a.rs", text), &mut findings);
        findings.iter().map(|finding| finding.rule).collect()
    }

    fn of_document(path: &str, text: &str) -> Vec<Rule> {
        let mut findings = Vec::new();
        let document = Document { path: path.to_string(), text: text.to_string() };
        check_document(&document, &mut findings);
        findings.iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn wide_lines_are_found_but_for_links_and_drawings_in_documents() {
        let wide = "member ".repeat(20);
        assert_eq!(of_source(&format!("// {wide}\n")), [Rule::Columns]);
        assert_eq!(of_source(&format!("    //! {}\n", "x".repeat(93))), [Rule::Columns]);
        for text in [format!("let a = {wide};\n"), format!("// https://example.org/{wide}\n")] {
            assert_eq!(of_source(&text), [], "{text}");
        }
        assert_eq!(of_source(&format!("//! ```text\n//! {wide}\n//! ```\n")), [Rule::Columns]);
        assert_eq!(of_source(&format!("/// | {wide} |\n")), [Rule::Columns]);
        assert_eq!(of_document("a.md", &format!("```\n{wide}\n```\n| {wide} |\n")), []);
        assert_eq!(of_document("a.md", &format!("{wide}\n")), [Rule::Columns]);
        assert_eq!(of_document("a.toml", &format!("{wide}\n")), []);
        let entry = format!("- {}\n", "x".repeat(105));
        assert_eq!(of_document("CHANGELOG.md", &entry), []);
        assert_eq!(of_document("a.md", &entry), [Rule::Columns]);
    }

    #[test]
    fn banned_words_are_found_outside_code() {
        for word in BANNED {
            assert_eq!(
                of_source(&format!("/// A member that {word} reads.\n")),
                [Rule::PlainWords]
            );
            assert_eq!(of_source(&format!("fn {word}() {{ \"{word}\"; }}\n")), []);
            assert_eq!(of_document("a.md", &format!("| {word} |\n")), [Rule::PlainWords]);
        }
    }

    #[test]
    fn a_sentence_without_a_subject_is_found_and_a_question_is_not() {
        for subject in SUBJECTS {
            let text = format!("// It ends: {}came before goes.\n", subject.to_lowercase());
            assert_eq!(of_source(&text), [], "an explanation after a colon begins small");
            let text = format!("// A member came.\n// {subject}came before goes.\n");
            assert_eq!(of_source(&text), [Rule::PlainWords], "{subject}");
            assert_eq!(of_source(&format!("// {subject}came before?\n")), []);
        }
    }

    #[test]
    fn sentences_of_pronouns_and_long_ones_are_found_across_lines() {
        let riddle = "// Where what is to be had is not what there was, it is that which is\n\
                      // not to be done by the one.\n";
        assert_eq!(of_source(riddle), [Rule::PlainWords]);
        let long = format!("// {}\n// {}.\n", "member ".repeat(12), "stripe ".repeat(20));
        assert!(of_source(&long).contains(&Rule::PlainWords));
        let plain = "// The shard writes a stripe. The member acknowledges it.\n";
        assert_eq!(of_source(&plain.repeat(20)), []);
        assert_eq!(of_source("// A list:\n// - of one\n// - of two\n"), []);
    }
}
