//! The shipped alerts, run by promtool: each fires in one test and stays quiet in another.

use std::path::Path;
use std::process::Command;

use braid_test_needs::needs;

fn shipped(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/monitoring");
    std::fs::read_to_string(folder.join(name)).expect("it is shipped")
}

/// Runs promtool's tests with these rules; returns whether they pass, and the output.
fn passes(rules: &str) -> (bool, String) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("alerts.yml"), rules).expect("a file");
    std::fs::write(folder.path().join("test.yml"), shipped("alerts_test.yml")).expect("a file");
    let promtool = Command::new("promtool")
        .args(["test", "rules", "test.yml"])
        .current_dir(folder.path())
        .output()
        .expect("promtool");
    let said = [promtool.stdout, promtool.stderr].concat();
    (promtool.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// The alerts' names, each with the line of its expression.
fn alerts(rules: &str) -> Vec<(&str, &str)> {
    let lines: Vec<&str> = rules.lines().map(str::trim).collect();
    let names = lines.iter().enumerate().filter_map(|(at, line)| {
        let name = line.strip_prefix("- alert: ")?;
        let expression = lines[at + 1];
        assert!(expression.starts_with("expr: "), "{name}");
        Some((name, expression))
    });
    names.collect()
}

#[test]
fn each_alert_fires_when_it_should_and_not_otherwise() {
    needs!("promtool");
    let rules = shipped("alerts.yml");
    let (passed, said) = passes(&rules);
    assert!(passed, "{said}");
    let tests = shipped("alerts_test.yml");
    let alerts = alerts(&rules);
    assert!(alerts.len() >= 13, "{alerts:?}");
    for (name, _) in alerts {
        let quiet = format!("alertname: {name}, exp_alerts: [] }}");
        let fires = format!("alertname: {name}\n        exp_alerts:\n          - exp_labels:");
        assert!(tests.contains(&quiet), "no test has {name} quiet");
        assert!(tests.contains(&fires), "no test has {name} fire");
    }
}

/// Plants an alert that never fires and an alert that always fires; the tests find both.
#[test]
fn a_rule_that_is_wrong_fails_a_test() {
    needs!("promtool");
    let rules = shipped("alerts.yml");
    for (name, expression) in alerts(&rules) {
        for wrong in ["expr: vector(0) > 1", "expr: vector(1)"] {
            let (passed, said) = passes(&rules.replacen(expression, wrong, 1));
            assert!(!passed, "{name} as {wrong}: {said}");
        }
    }
}
