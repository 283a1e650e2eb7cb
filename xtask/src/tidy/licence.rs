//! Licence rule: linked packages permit MIT or Apache-2.0, and come from crates.io.
//!
//! The rule compares `cargo metadata` with the list in `deny.toml`, using the parser of `cargo
//! deny` (`spdx`). `cargo deny` itself is available here only as source: it builds for minutes on
//! two cores for a check of a second. Its advisories come from GitHub, which not every machine
//! reaches. If `cargo deny` is installed, `cargo deny check` works on the same file.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;
use spdx::{Expression, Licensee, ParseMode};

use super::{Finding, Rule};

/// The only permitted source of packages.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub(super) fn allowed(root: &Path) -> Result<Vec<Licensee>> {
    let text = std::fs::read_to_string(root.join("deny.toml")).context("deny.toml")?;
    let table: toml::Table = text.parse().context("deny.toml")?;
    let list = table.get("licenses").and_then(|licences| licences.get("allow"));
    let list = list.and_then(toml::Value::as_array).context("deny.toml has no licenses.allow")?;
    let licensee = |name: &toml::Value| {
        let name = name.as_str().context("licenses.allow is a list of names")?;
        Licensee::parse(name).with_context(|| format!("licenses.allow: {name}"))
    };
    list.iter().map(licensee).collect()
}

/// Finds packages with a missing or forbidden licence, or from another source.
pub(super) fn check(metadata: &Value, allowed: &[Licensee], findings: &mut Vec<Finding>) {
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or("?");
        let licence = package["license"].as_str();
        if !licence.is_some_and(|licence| is_allowed(licence, allowed)) {
            let licence = licence.unwrap_or("no licence expression");
            let text = format!("{name}: {licence}");
            findings.push(Finding::new(Rule::Licences, "Cargo.lock", 1, text));
        }
        if let Some(source) = package["source"].as_str().filter(|source| *source != REGISTRY) {
            let text = format!("{name} comes from {source}");
            findings.push(Finding::new(Rule::Licences, "Cargo.lock", 1, text));
        }
    }
}

/// Whether a licence expression can be fulfilled with permitted licences only.
fn is_allowed(expression: &str, allowed: &[Licensee]) -> bool {
    // The expression is parsed laxly, because older crates write "MIT/Apache-2.0".
    let expression = Expression::parse_mode(expression, ParseMode::LAX);
    let is_met = |expression: Expression| {
        expression.evaluate(|wanted| allowed.iter().any(|licensee| licensee.satisfies(wanted)))
    };
    expression.is_ok_and(is_met)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours() -> Vec<Licensee> {
        allowed(&crate::tidy::repository_root().expect("a root")).expect("deny.toml")
    }

    #[test]
    fn expressions_are_weighed_not_matched() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "MIT OR Apache-2.0 OR LGPL-2.1-or-later",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
        ] {
            assert!(is_allowed(good, &ours()), "{good}");
        }
        for bad in ["GPL-2.0-only", "MIT AND GPL-2.0-only", "CDDL-1.0", "(MIT", "", "MIT MIT"] {
            assert!(!is_allowed(bad, &ours()), "{bad}");
        }
    }

    #[test]
    fn a_package_under_another_licence_is_found() {
        let metadata = serde_json::json!({ "packages": [
            { "name": "good", "license": "MIT" },
            { "name": "bad", "license": "AGPL-3.0-only" },
            { "name": "silent", "license": null },
        ]});
        let mut findings = Vec::new();
        check(&metadata, &ours(), &mut findings);
        let texts: Vec<&str> = findings.iter().map(|finding| finding.text.as_str()).collect();
        assert_eq!(texts, ["bad: AGPL-3.0-only", "silent: no licence expression"]);
    }

    #[test]
    fn a_package_from_elsewhere_is_found() {
        let elsewhere = "git+https://example.invalid/elsewhere";
        let metadata = serde_json::json!({ "packages": [
            { "name": "ours", "license": "MIT", "source": null },
            { "name": "usual", "license": "MIT", "source": REGISTRY },
            { "name": "odd", "license": "MIT", "source": elsewhere },
        ]});
        let mut findings = Vec::new();
        check(&metadata, &ours(), &mut findings);
        let texts: Vec<&str> = findings.iter().map(|finding| finding.text.as_str()).collect();
        assert_eq!(texts, [format!("odd comes from {elsewhere}")]);
    }
}
