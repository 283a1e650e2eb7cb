//! The list of forgiven excesses, which may only shrink.
//!
//! One line each in `xtask/tidy-exceptions.txt`:
//!
//! ```text
//! rule path[::item] measure   # reason
//! ```
//!
//! The measure is exact: code that grows past it breaks the rule again, code that shrinks below it
//! must lower it, and code that no longer breaks the rule must lose its line. The number of lines
//! is a constant here, so that a new line is never added without a visible second edit.

use super::{Finding, Rule};

/// Where the list stands, from the repository root.
pub(super) const FILE: &str = "xtask/tidy-exceptions.txt";
/// How many lines the list holds. Lower it with the list; never raise it.
const COUNT: usize = 0;

/// Takes forgiven findings out and puts findings about the list itself in.
pub(super) fn apply(list: &str, findings: Vec<Finding>) -> Vec<Finding> {
    apply_counted(list, findings, COUNT)
}

fn apply_counted(list: &str, mut findings: Vec<Finding>, count: usize) -> Vec<Finding> {
    let mut about = Vec::new();
    let mut entries = 0;
    for (index, line) in list.lines().enumerate() {
        let (entry, reason) = line.split_once('#').unwrap_or((line, ""));
        if entry.trim().is_empty() {
            continue;
        }
        entries += 1;
        if let Err(text) = forgive(entry, reason, &mut findings) {
            about.push(Finding::new(Rule::Exceptions, FILE, index + 1, text));
        }
    }
    if entries != count {
        let text = format!("{entries} exceptions, but the constant COUNT says {count}");
        about.push(Finding::new(Rule::Exceptions, FILE, 1, text));
    }
    findings.extend(about);
    findings
}

fn forgive(entry: &str, reason: &str, findings: &mut Vec<Finding>) -> Result<(), String> {
    let parts: Vec<&str> = entry.split_whitespace().collect();
    let [rule, place, measure] = parts[..] else {
        return Err("not of the form: rule path[::item] measure # reason".to_string());
    };
    if reason.trim().is_empty() {
        return Err("an exception needs its reason behind #".to_string());
    }
    let measure: usize = measure.parse().map_err(|_| format!("{measure} is not a number"))?;
    let (path, item) = place.split_once("::").unwrap_or((place, ""));
    let found = findings.iter().position(|finding| {
        finding.rule.name() == rule
            && finding.path == path
            && finding.item == item
            && finding.measure > 0
    });
    let Some(found) = found else {
        return Err(format!("{rule} {place} is no longer needed: delete this line"));
    };
    match findings[found].measure {
        now if now > measure => Err(format!("{place} grew from {measure} to {now}")),
        now if now < measure => {
            findings.remove(found);
            Err(format!("{place} shrank from {measure} to {now}: lower the number"))
        }
        _ => {
            findings.remove(found);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long() -> Vec<Finding> {
        vec![Finding::new(Rule::FunctionLength, "a.rs", 3, "long").measured("run", 80)]
    }

    fn texts(list: &str, count: usize) -> Vec<String> {
        apply_counted(list, long(), count).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn an_exact_exception_forgives() {
        assert_eq!(texts("function-length a.rs::run 80 # one table\n", 1), [""; 0]);
        assert_eq!(texts("", 0), ["long"]);
    }

    #[test]
    fn an_exception_that_is_not_needed_is_a_finding() {
        let found = texts("function-length a.rs::walk 80 # gone\n", 1);
        assert!(found[1].contains("no longer needed"), "{found:?}");
    }

    #[test]
    fn growth_and_shrinkage_are_findings() {
        assert!(texts("function-length a.rs::run 79 # x", 1)[1].contains("grew"));
        assert!(texts("function-length a.rs::run 81 # x", 1)[0].contains("shrank"));
    }

    #[test]
    fn the_list_cannot_grow_silently() {
        let found = texts("function-length a.rs::run 80 # one table\n", 0);
        assert!(found[0].contains("COUNT"), "{found:?}");
    }

    #[test]
    fn an_exception_without_reason_or_form_is_a_finding() {
        assert!(texts("function-length a.rs::run 80", 1)[1].contains("reason"));
        assert!(texts("function-length a.rs::run # x", 1)[1].contains("form"));
    }
}
