//! Rules about planted bugs: each bug is a statement of its own, so that readers can skip it.
//!
//! The rules use the scanner's view of code. Two statements are permitted, and no others:
//!
//! ```text
//! if planted(Bug::X) { .. }                   no else; more conditions may follow with &&
//! let name = spoiled(Bug::X, name, wrong);    or without let: what was right before keeps its name
//! ```
//!
//! The rules find statements by boundaries only: a brace or semicolon before, the text after.

use super::source::{Source, block_end, words};
use super::{Finding, Rule};

/// The crate that defines the calls, and uses them in its own tests.
const HOOKS: &str = "crates/core/sim-hooks/";

pub(super) fn check(source: &Source, findings: &mut Vec<Finding>) {
    if source.name().starts_with(HOOKS) {
        return;
    }
    let code = &source.code;
    for (at, word) in words(code) {
        let end = at + word.len();
        if !code[end..].starts_with('(') {
            continue;
        }
        let (is_alone, form) = match word {
            "planted" => (is_branch(code, at, end), "if planted(Bug::X) { .. }, no else"),
            "spoiled" => (is_value(code, at, end), "let name = spoiled(Bug::X, name, wrong);"),
            _ => continue,
        };
        if !is_alone {
            let text = format!("a planted bug is a statement of its own: {form}");
            findings.push(Finding::new(
                Rule::PlantedBugs,
                &source.name(),
                source.line_of(at),
                text,
            ));
        }
    }
}

/// Whether the call `at..end(` is the first condition of an `if` statement without `else`.
fn is_branch(code: &str, at: usize, end: usize) -> bool {
    let Some(before) = code[..at].trim_end().strip_suffix("if") else { return false };
    let Some((bug, close)) = arguments(code, end) else { return false };
    let Some(brace) = opening_brace(code, close) else { return false };
    let more = code[close..brace].trim();
    let Some(after) = block_end(code, brace) else { return false };
    before.trim_end().ends_with(['{', '}', ';'])
        && is_bug(&bug)
        && (more.is_empty() || more.starts_with("&&") && !more.contains("=>"))
        && !code[after..].trim_start().starts_with("else")
}

/// Whether the call `at..end(` assigns to a name either the name's own value or a wrong value.
fn is_value(code: &str, at: usize, end: usize) -> bool {
    let start = code[..at].rfind(['{', '}', ';']).map_or(0, |boundary| boundary + 1);
    let Some(place) = code[start..at].trim().strip_suffix('=') else { return false };
    let place = place.trim().trim_start_matches("let ").trim_start_matches("mut ");
    let Some((all, close)) = arguments(code, end) else { return false };
    let Some((bug, values)) = all.split_once(',') else { return false };
    let kept = format!("{},", without_space(place));
    is_bug(bug) && values.starts_with(&kept) && code[close..].trim_start().starts_with(';')
}

/// The text in the parentheses at `open`, without white space, and the offset after the
/// parentheses.
fn arguments(code: &str, open: usize) -> Option<(String, usize)> {
    let mut depth = 0_usize;
    for (offset, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some((without_space(&code[open + 1..offset]), offset + 1));
        }
    }
    None
}

/// The first brace after `from` that opens outside of parentheses.
fn opening_brace(code: &str, from: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (offset, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.checked_sub(1)?,
            b'{' if depth == 0 => return Some(offset),
            b';' | b'}' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

fn is_bug(argument: &str) -> bool {
    argument.strip_prefix("Bug::").is_some_and(|name| words(name).any(|(_, word)| word == name))
}

fn without_space(text: &str) -> String {
    text.split_whitespace().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_taken(path: &str, statements: &str) -> bool {
        let text = format!("//! A.\nfn a() {{\n    b();\n{statements}\n}}\n");
        let mut findings = Vec::new();
        check(&Source::new(path, &text), &mut findings);
        assert!(findings.iter().all(|finding| finding.rule == Rule::PlantedBugs));
        findings.is_empty()
    }

    #[test]
    fn a_planted_bug_is_a_statement_of_its_own() {
        let taken = [
            "if planted(Bug::X) {\n    return;\n}\nc();",
            "// A comment.\nif planted(Bug::X) && c == d {\n    e = f;\n}",
            "if planted(Bug::X)\n    && let Some(c) = d\n{\n    return c;\n}",
            "if planted(Bug::X) && matches!(c, D { .. }) {\n    e += 1;\n}",
            "let c = spoiled(Bug::X, c, true);",
            "let mut c = spoiled(Bug::X, c, d(e, f));",
            "let c =\n    spoiled(\n        Bug::X,\n        c,\n        d,\n    );",
            "let (c, d) = spoiled(Bug::X, (c, d), (d, c));",
            "self.c = spoiled(Bug::X, self.c, 0);",
            "// if !planted(Bug::X) in a comment\nlet c = \"planted(Bug::X)\";",
        ];
        for statements in taken {
            assert!(is_taken("crates/core/engine/src/a.rs", statements), "{statements}");
        }
    }

    #[test]
    fn a_planted_bug_inside_something_else_is_found() {
        let refused = [
            "if !planted(Bug::X) {\n    c();\n}",
            "if c && planted(Bug::X) {\n    d();\n}",
            "if planted(Bug::X) || c {\n    d();\n}",
            "if planted(Bug::X) {\n    c();\n} else {\n    d();\n}",
            "if c {\n    d();\n} else if planted(Bug::X) {\n    e();\n}",
            "let c = if planted(Bug::X) { d } else { e };",
            "let c = c || planted(Bug::X);",
            "let c = planted(Bug::X);",
            "match c {\n    D { .. } if planted(Bug::X) => {}\n    _ => {}\n}",
            "match c {\n    D { .. } if planted(Bug::X) && e => {}\n    _ => {}\n}",
            "match c {\n    D => if planted(Bug::X) {},\n}",
            "assert!(c || planted(Bug::X));",
            "if planted(bug) {\n    c();\n}",
            "let c = spoiled(Bug::X, d, true);",
            "let c = spoiled(Bug::X, c.e, true);",
            "let c = spoiled(Bug::X, c, true).max(d);",
            "let c = d + spoiled(Bug::X, c, 0);",
            "c += spoiled(Bug::X, c, 0);",
            "c(spoiled(Bug::X, d, 0));",
            "if spoiled(Bug::X, c, true) {\n    d();\n}",
            "spoiled(Bug::X, c, true)",
        ];
        for statements in refused {
            assert!(!is_taken("crates/core/engine/src/a.rs", statements), "{statements}");
            assert!(is_taken("crates/core/sim-hooks/src/on.rs", statements), "{statements}");
        }
    }
}
