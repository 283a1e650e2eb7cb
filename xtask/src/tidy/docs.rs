//! Rules about documents: links resolve, the map is complete, absences and invariants are checked.
//!
//! "This never happens" is worth something only if a program would notice. So each line under `##
//! Absences` in ARCHITECTURE.md ends in `[tidy: rule]` or `[test: name]`, and a doc comment may end
//! an invariant in `[check: name]`; the names must exist.

use std::path::Path;

use super::crates::Package;
use super::tree::{Document, Tree};
use super::{Finding, Rule};

const MAP: &str = "ARCHITECTURE.md";

/// Finds relative links to missing files.
pub(super) fn links(document: &Document, root: &Path, findings: &mut Vec<Finding>) {
    if !document.path.ends_with(".md") {
        return;
    }
    let folder = root.join(Path::new(&document.path).parent().unwrap_or(Path::new("")));
    let mut is_code = false;
    for (index, line) in document.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        for target in targets(line) {
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = if path.is_empty() { root.join(&document.path) } else { folder.join(path) };
            let problem = if !file.exists() {
                "leads nowhere"
            } else if !anchor.is_empty() && !has_heading(&file, anchor) {
                "names no heading there"
            } else {
                continue;
            };
            let text = format!("the link to {target} {problem}");
            findings.push(Finding::new(Rule::Links, &document.path, index + 1, text));
        }
    }
}

/// The relative targets of inline links in a line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next()).filter(|target| {
        !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:")
    })
}

fn has_heading(file: &Path, anchor: &str) -> bool {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().filter(|line| line.starts_with('#')).any(|line| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let slug: String = heading
            .chars()
            .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter))
            .map(|letter| if letter == ' ' { '-' } else { letter })
            .collect();
        slug == anchor
    })
}

/// Finds crates that the map in ARCHITECTURE.md lacks, and absences without a check.
pub(super) fn architecture(tree: &Tree, packages: &[Package], findings: &mut Vec<Finding>) {
    let Some(map) = tree.document(MAP) else {
        findings.push(Finding::new(Rule::CratesMapped, MAP, 1, "the map is missing"));
        return;
    };
    for package in packages {
        if !map.text.contains(&format!("{}/", package.folder)) {
            let text = format!("{}/ is not on the map", package.folder);
            findings.push(Finding::new(Rule::CratesMapped, MAP, 1, text));
        }
    }
    absences(map, &test_names(tree), findings);
}

fn absences(map: &Document, tests: &[String], findings: &mut Vec<Finding>) {
    let mut is_inside = false;
    let mut entries: Vec<(usize, String)> = Vec::new();
    for (index, line) in map.text.lines().enumerate() {
        if line.starts_with('#') {
            is_inside = line.trim_start_matches('#').trim() == "Absences";
        } else if is_inside && line.starts_with("- ") {
            entries.push((index + 1, line.to_string()));
        } else if is_inside
            && line.starts_with("  ")
            && let Some(last) = entries.last_mut()
        {
            last.1.push_str(line);
        }
    }
    if entries.is_empty() {
        findings.push(Finding::new(Rule::Absences, MAP, 1, "no list under ## Absences"));
    }
    for (line, entry) in entries {
        let rules = marks(&entry, "tidy");
        let named = marks(&entry, "test");
        if rules.is_empty() && named.is_empty() {
            let text = "an absence that names no check: end it in [tidy: …] or [test: …]";
            findings.push(Finding::new(Rule::Absences, MAP, line, text));
        }
        let unknown = rules.iter().filter(|rule| !Rule::ALL.iter().any(|one| one.name() == **rule));
        for name in unknown.chain(named.iter().filter(|name| !has(tests, name))) {
            let text = format!("names the check {name}, which does not exist");
            findings.push(Finding::new(Rule::Absences, MAP, line, text));
        }
    }
}

/// Finds invariants whose named check does not exist.
pub(super) fn named_checks(tree: &Tree, findings: &mut Vec<Finding>) {
    let tests = test_names(tree);
    for source in &tree.sources {
        for (index, line) in source.comments.lines().enumerate() {
            let trimmed = line.trim_start();
            if !(trimmed.starts_with("///") || trimmed.starts_with("//!")) {
                continue;
            }
            for name in marks(line, "check").into_iter().filter(|name| !has(&tests, name)) {
                let text = format!("names the check {name}, which is no test function");
                findings.push(Finding::new(Rule::NamedChecks, &source.name(), index + 1, text));
            }
        }
    }
}

/// The names in marks of a text, of the form `[kind: name]` or `[kind: name, name]`.
fn marks<'a>(text: &'a str, kind: &str) -> Vec<&'a str> {
    let open = format!("[{kind}: ");
    let inside = text.split(open.as_str()).skip(1).filter_map(|rest| rest.split_once(']'));
    // A placeholder in a description of the mark's form is no name.
    let names = inside.flat_map(|(names, _)| names.split(',').map(str::trim));
    names.filter(|name| !matches!(*name, "name" | "…")).collect()
}

fn has(tests: &[String], name: &str) -> bool {
    let last = name.rsplit("::").next().unwrap_or(name);
    tests.iter().any(|test| test == last)
}

fn test_names(tree: &Tree) -> Vec<String> {
    tree.sources.iter().flat_map(super::source::Source::test_names).collect()
}

#[cfg(test)]
mod tests {
    use super::super::source::Source;
    use super::*;

    fn document(path: &str, text: &str) -> Document {
        Document { path: path.to_string(), text: text.to_string() }
    }

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let root = crate::tidy::repository_root().expect("a root");
        let text = "[a](Cargo.toml) [b](https://x.invalid/) [c](gone.md)\n```\n[d](gone.md)\n```\n";
        let mut findings = Vec::new();
        links(&document("README.md", text), &root, &mut findings);
        let lines: Vec<usize> = findings.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1], "{findings:?}");

        let mut findings = Vec::new();
        links(&document("xtask/a.md", "[a](../Cargo.toml) [b](Cargo.lock)"), &root, &mut findings);
        assert_eq!(findings.len(), 1, "{findings:?}");
    }

    #[test]
    fn an_anchor_without_heading_is_found() {
        let root = crate::tidy::repository_root().expect("a root");
        let mut findings = Vec::new();
        let text = "[a](STYLE.md#no-such-heading) [b](STYLE.md#house-rules)";
        links(&document("README.md", text), &root, &mut findings);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].text.contains("no-such-heading names no heading"), "{findings:?}");
    }

    #[test]
    fn an_absence_without_check_is_found() {
        let text = "## Absences\n- No clock. [tidy: deterministic]\n- No\n  luck. [test: one]\n\
                    - Nothing.\n- Bad. [tidy: nothing-such]\n- Worse. [test: two]\n## Next\n- x\n";
        let mut findings = Vec::new();
        absences(&document(MAP, text), &["one".to_string()], &mut findings);
        let lines: Vec<usize> = findings.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [5, 6, 7]);
        let mut findings = Vec::new();
        absences(&document(MAP, "# Empty\n"), &[], &mut findings);
        assert_eq!(findings.len(), 1);
    }

    #[test]
    fn a_crate_that_is_not_on_the_map_is_found() {
        let root = crate::tidy::repository_root().expect("a root");
        let metadata = serde_json::json!({ "packages": [
            { "name": "a", "source": null, "manifest_path": root.join("crates/a/Cargo.toml") },
            { "name": "b", "source": null, "manifest_path": root.join("crates/b/Cargo.toml") },
        ]});
        let packages = crate::tidy::crates::packages(&metadata, &root).expect("packages");
        let map = document(MAP, "crates/a/  one\n## Absences\n- No. [tidy: links]\n");
        let mut findings = Vec::new();
        architecture(&Tree { sources: vec![], documents: vec![map] }, &packages, &mut findings);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].text.contains("crates/b/"));
    }

    #[test]
    fn an_invariant_that_names_no_test_is_found() {
        let text = "//! A. [check: real]\n/// B. [check: unreal]\n// [check: not_a_doc]\n\
                    #[test]\nfn real() {}\n";
        let tree = Tree { sources: vec![Source::new("a.rs", text)], documents: vec![] };
        let mut findings = Vec::new();
        named_checks(&tree, &mut findings);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].text.contains("unreal"));
    }
}
