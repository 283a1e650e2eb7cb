//! Rule about test programs: each file of tests belongs to a program.
//!
//! A crate that names its test programs (`autotests = false`) has one program for many files,
//! because each program is linked separately. A file that belongs to no program never runs.

use super::source::Source;
use super::tree::{Document, Tree};
use super::{Finding, Rule};

/// Finds test files outside of all programs.
pub(super) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for manifest in &tree.documents {
        let Some(folder) = manifest.path.strip_suffix("Cargo.toml") else { continue };
        if manifest.text.lines().any(|line| line == "autotests = false") {
            check_crate(tree, manifest, &format!("{folder}tests/"), findings);
        }
    }
}

fn check_crate(tree: &Tree, manifest: &Document, folder: &str, findings: &mut Vec<Finding>) {
    let is_direct = |source: &&Source| {
        source.name().strip_prefix(folder).is_some_and(|name| !name.contains('/'))
    };
    let files: Vec<&Source> = tree.sources.iter().filter(is_direct).collect();
    let is_program = |source: &Source| {
        let name = source.name();
        let path = &name[name.len().min(folder.len() - "tests/".len())..];
        manifest.text.contains(&format!("path = \"{path}\""))
    };
    let programs: Vec<&Source> =
        files.iter().copied().filter(|source| is_program(source)).collect();
    for file in files.iter().filter(|file| !is_program(file)) {
        let name = file.name();
        let stem = name[folder.len()..].trim_end_matches(".rs");
        let is_part =
            |program: &&Source| program.code.lines().any(|line| line == format!("mod {stem};"));
        if !programs.iter().any(is_part) {
            let text = "no test program has this file: name it in the one that has the others";
            findings.push(Finding::new(Rule::TestPrograms, &name, 1, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_tests_that_is_in_no_program_is_found() {
        let manifest = "autotests = false\n[[test]]\npath = \"tests/all.rs\"\n";
        let tree = |more: &str| Tree {
            sources: vec![
                Source::new("crates/a/tests/all.rs", "mod one;\n"),
                Source::new("crates/a/tests/kit/mod.rs", ""),
                Source::new("crates/a/tests/one.rs", ""),
                Source::new(more, ""),
            ],
            documents: vec![Document { path: "crates/a/Cargo.toml".into(), text: manifest.into() }],
        };
        let found = |more| {
            let mut findings = Vec::new();
            check(&tree(more), &mut findings);
            findings.iter().map(|finding| finding.path.clone()).collect::<Vec<_>>()
        };
        assert_eq!(found("crates/a/tests/two.rs"), ["crates/a/tests/two.rs"]);
        assert!(found("crates/b/tests/two.rs").is_empty());
    }
}
