//! Tests of tidy: the repository is clean, and properties of all rules.

use super::*;

#[test]
fn the_repository_is_tidy() {
    let root = repository_root().expect("a root");
    let (findings, files) = check(&root).expect("tidy runs");
    assert!(files > 30, "only {files} files were read");
    let text: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "\n{}", text.join("\n"));
}

#[test]
fn rule_names_are_unique() {
    let mut names: Vec<&str> = Rule::ALL.iter().map(|rule| rule.name()).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn a_finding_prints_where_and_what() {
    let finding = Finding::new(Rule::Links, "a.md", 7, "the link to b leads nowhere");
    assert_eq!(finding.to_string(), "a.md:7: [links] the link to b leads nowhere");
}
