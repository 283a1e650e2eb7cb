//! The rule about licences: everything built in can be passed on under MIT or Apache-2.0.
//!
//! Reads the SPDX expression that each package gives in `cargo metadata`. `deny.toml` says the
//! same to `cargo deny`, for those who have it; the two lists are compared here.
//!
//! ```text
//! expression = term { "OR" term }        term = factor { "AND" factor }
//! factor     = "(" expression ")" | name [ "WITH" name ]
//! ```

use serde_json::Value;

use super::{Finding, Rule};

/// Licences by their SPDX names.
pub(super) const ALLOWED: [&str; 8] =
    ["0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "Unicode-3.0", "Zlib"];

/// Finds packages whose licence is missing or not allowed.
pub(super) fn check(metadata: &Value, findings: &mut Vec<Finding>) {
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or("?");
        let licence = package["license"].as_str();
        if !licence.is_some_and(is_allowed) {
            let licence = licence.unwrap_or("no licence expression");
            let text = format!("{name}: {licence}");
            findings.push(Finding::new(Rule::Licences, "Cargo.lock", 1, text));
        }
    }
}

/// Whether some choice within the expression uses allowed licences only.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let verdict = any(&tokens, &mut at);
    at == tokens.len() && verdict == Some(true)
}

fn any(tokens: &[&str], at: &mut usize) -> Option<bool> {
    let mut verdict = all(tokens, at)?;
    while tokens.get(*at) == Some(&"OR") {
        *at += 1;
        verdict |= all(tokens, at)?;
    }
    Some(verdict)
}

fn all(tokens: &[&str], at: &mut usize) -> Option<bool> {
    let mut verdict = one(tokens, at)?;
    while tokens.get(*at) == Some(&"AND") {
        *at += 1;
        verdict &= one(tokens, at)?;
    }
    Some(verdict)
}

fn one(tokens: &[&str], at: &mut usize) -> Option<bool> {
    let token = *tokens.get(*at)?;
    *at += 1;
    if token == "(" {
        let verdict = any(tokens, at)?;
        let closed = tokens.get(*at) == Some(&")");
        *at += 1;
        return closed.then_some(verdict);
    }
    if tokens.get(*at) == Some(&"WITH") {
        // An exception only adds permissions.
        *at += 2;
    }
    Some(ALLOWED.contains(&token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_weighed_not_matched() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "MIT OR Apache-2.0 OR LGPL-2.1-or-later",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0-only",
        ] {
            assert!(is_allowed(good), "{good}");
        }
        for bad in ["GPL-2.0-only", "MIT AND GPL-2.0-only", "CDDL-1.0", "(MIT", "", "MIT MIT"] {
            assert!(!is_allowed(bad), "{bad}");
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
        check(&metadata, &mut findings);
        let texts: Vec<&str> = findings.iter().map(|finding| finding.text.as_str()).collect();
        assert_eq!(texts, ["bad: AGPL-3.0-only", "silent: no licence expression"]);
    }

    #[test]
    fn deny_toml_says_the_same() {
        let root = crate::tidy::repository_root().expect("a root");
        let deny = std::fs::read_to_string(root.join("deny.toml")).expect("deny.toml");
        let list = deny.split("allow = [").nth(1).and_then(|rest| rest.split(']').next());
        let mut named: Vec<&str> =
            list.expect("an allow list").split('"').skip(1).step_by(2).collect();
        named.sort_unstable();
        assert_eq!(named, ALLOWED);
    }
}
