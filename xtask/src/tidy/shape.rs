//! Rules about size: lines per file and function, fields per struct, parameters per function.
//!
//! Stands on the scanner in `source`; knows braces and commas, no grammar. Does not decide which
//! excess is forgiven: that is `exceptions`.
//!
//! Limits are the house rules of STYLE.md, sections 1. Each has a planted violation below.

use super::source::{Source, word_after, words};
use super::{Finding, Rule};

/// Longest Rust file, tests included, in lines.
const FILE_LINES_MAX: usize = 600;
/// Longest function, from the line of `fn` to its closing brace, in lines.
const FUNCTION_LINES_MAX: usize = 70;
/// Most fields in a struct.
const STRUCT_FIELDS_MAX: usize = 15;
/// Most parameters of a function, `self` included, as clippy counts them.
const PARAMETERS_MAX: usize = 5;

/// All four rules on one file.
pub(super) fn check(source: &Source, findings: &mut Vec<Finding>) {
    file_lines(source, findings);
    functions(source, findings);
    structs(source, findings);
}

fn file_lines(source: &Source, findings: &mut Vec<Finding>) {
    let lines = source.text.lines().count();
    if lines > FILE_LINES_MAX {
        let text = format!("{lines} lines, at most {FILE_LINES_MAX}");
        findings.push(Finding::new(Rule::FileLength, &source.name(), 1, text).measured("", lines));
    }
}

fn functions(source: &Source, findings: &mut Vec<Finding>) {
    let code = &source.code;
    for (at, _) in words(code).filter(|&(_, word)| word == "fn") {
        let name = word_after(code, at + 2);
        if name.is_empty() {
            continue;
        }
        let after_name = at + 2 + code[at + 2..].find(name).unwrap_or(0) + name.len();
        let Some(open) = parameters_open(code, after_name) else { continue };
        let Some((parameters, close)) = items(code, open) else { continue };
        let line = source.line_of(at);
        // proptest writes its inputs as `name in strategy`; those are no parameters.
        let is_property = words(&code[open..close]).any(|(_, word)| word == "in");
        if parameters > PARAMETERS_MAX && !is_property {
            let text = format!("fn {name} has {parameters} parameters, at most {PARAMETERS_MAX}");
            findings.push(
                Finding::new(Rule::Parameters, &source.name(), line, text)
                    .measured(name, parameters),
            );
        }
        let Some(end) = super::source::block_end(code, close) else { continue };
        let lines = source.line_of(end - 1) - line + 1;
        if lines > FUNCTION_LINES_MAX {
            let text = format!("fn {name} has {lines} lines, at most {FUNCTION_LINES_MAX}");
            findings.push(
                Finding::new(Rule::FunctionLength, &source.name(), line, text)
                    .measured(name, lines),
            );
        }
    }
}

fn structs(source: &Source, findings: &mut Vec<Finding>) {
    let code = &source.code;
    for (at, _) in words(code).filter(|&(_, word)| word == "struct") {
        let name = word_after(code, at + 6);
        let Some(stop) = code[at..].find(['{', ';', '(']).map(|length| at + length) else {
            continue;
        };
        if name.is_empty() || code.as_bytes()[stop] == b';' {
            continue;
        }
        let Some((fields, _)) = items(code, stop) else { continue };
        if fields > STRUCT_FIELDS_MAX {
            let text = format!("struct {name} has {fields} fields, at most {STRUCT_FIELDS_MAX}");
            findings.push(
                Finding::new(Rule::StructFields, &source.name(), source.line_of(at), text)
                    .measured(name, fields),
            );
        }
    }
}

/// The offset of the `(` of a parameter list, past any generics.
fn parameters_open(code: &str, from: usize) -> Option<usize> {
    let bytes = code.as_bytes();
    let mut angle = 0_usize;
    for at in from..bytes.len() {
        match bytes[at] {
            b'<' => angle += 1,
            b'>' if bytes[at - 1] != b'-' => angle = angle.checked_sub(1)?,
            b'(' if angle == 0 => return Some(at),
            b'{' | b';' => return None,
            _ => {}
        }
    }
    None
}

/// How many comma-separated items the bracket at `open` holds, and one past its end.
fn items(code: &str, open: usize) -> Option<(usize, usize)> {
    let bytes = code.as_bytes();
    let mut depth = 0_usize;
    let mut angle = 0_usize;
    let mut count = 0;
    let mut pending = false;
    for at in open..bytes.len() {
        match bytes[at] {
            b'(' | b'[' | b'{' => {
                pending |= depth > 0;
                depth += 1;
            }
            b')' | b']' | b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some((count + usize::from(pending), at + 1));
                }
            }
            b'<' => angle += 1,
            b'>' if bytes[at - 1] != b'-' => angle = angle.saturating_sub(1),
            b',' if depth == 1 && angle == 0 => {
                count += usize::from(pending);
                pending = false;
            }
            byte if !byte.is_ascii_whitespace() => pending = true,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        check(&Source::new("a.rs", text), &mut findings);
        findings
    }

    fn rules(text: &str) -> Vec<Rule> {
        findings(text).iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn a_file_may_have_600_lines_and_no_more() {
        assert_eq!(rules(&"\n".repeat(600)), []);
        assert_eq!(rules(&"\n".repeat(601)), [Rule::FileLength]);
    }

    #[test]
    fn a_function_may_have_70_lines_and_no_more() {
        let body = |lines: usize| format!("fn a() {{\n{}}}\n", "// }\n".repeat(lines - 2));
        assert_eq!(rules(&body(70)), []);
        let long = findings(&body(71));
        assert_eq!(long[0].rule, Rule::FunctionLength);
        assert_eq!(long[0].measure, 71);
        assert_eq!(long[0].item, "a");
    }

    #[test]
    fn a_where_clause_does_not_hide_the_body() {
        let body = format!(
            "fn a<F>(f: F) -> [u8; 2]\nwhere F: Fn(u8) -> u8,\n{{\n{}}}\n",
            "\n".repeat(70)
        );
        assert_eq!(rules(&body), [Rule::FunctionLength]);
    }

    #[test]
    fn five_parameters_pass_and_six_fail() {
        assert_eq!(rules("fn a(&self, b: B<C, D>, e: (F, G), h: [I; 2], j: fn(K, L) -> M) {}"), []);
        assert_eq!(
            rules("fn a<T: Fn(u8) -> u8>(b: u8, c: u8, d: u8, e: u8, f: u8, g: u8,) {}"),
            [Rule::Parameters]
        );
    }

    #[test]
    fn fifteen_fields_pass_and_sixteen_fail() {
        let fields = |count: usize| {
            let list: String =
                (0..count).map(|n| format!("/// a, b\nf{n}: Map<A, B>,\n")).collect();
            format!("struct A<T> where T: Copy {{\n{list}}}\n")
        };
        assert_eq!(rules(&fields(15)), []);
        assert_eq!(rules(&fields(16)), [Rule::StructFields]);
        assert_eq!(rules(&format!("struct A({});", "u8, ".repeat(16))), [Rule::StructFields]);
        assert_eq!(rules("struct A;"), []);
    }
}
