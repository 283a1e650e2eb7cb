//! Scheduled checks, and the records of jobs after a restart.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::control::{check, json, said, status};
use crate::kit::{Array, RAID_0, RAID_5, wait_until};

const LIMIT: Duration = Duration::from_secs(60);

fn kept(array: &Array) -> PathBuf {
    let entries = std::fs::read_dir(array.path("state/arrays")).expect("a folder").flatten();
    let mut paths = entries.map(|entry| entry.path());
    paths.find(|path| path.extension().is_some_and(|end| end == "jobs")).expect("it is kept")
}

#[test]
fn a_restart_knows_how_jobs_ended_and_when_the_next_check_is() {
    let array = Array::create(RAID_5);
    let served = array.serve();
    assert_eq!(said(&array, &["get", "tank", "check-every"]).stdout, "off\n");
    assert_eq!(status(&array, "tank")["next_check"], Value::Null);
    assert_eq!(said(&array, &["check", "tank"]).status.code(), Some(0));
    let dry = said(&array, &["set", "tank", "-n", "check-every=30d"]).stdout;
    assert!(dry.contains("would change from off to 30d"), "{dry}");
    assert_eq!(said(&array, &["get", "tank", "check-every"]).stdout, "off\n");
    assert!(said(&array, &["set", "tank", "check-every=30d"]).status.success());
    let before = status(&array, "tank");
    check("Array", &before);
    assert!(before["next_check"].as_str().is_some_and(|next| next.ends_with('Z')), "{before}");
    served.kill();
    let served = array.serve();
    let after = status(&array, "tank");
    let of_check = |array: &Value| -> Value {
        let last = array["last_jobs"].as_array().expect("rows").clone();
        last.into_iter().find(|job| job["kind"] == "check").expect("a check")
    };
    assert_eq!(of_check(&after), of_check(&before));
    assert_eq!(after["next_check"], before["next_check"]);
    assert_eq!(said(&array, &["get", "tank", "check-every"]).stdout, "30d\n");
    let text = said(&array, &["status", "tank"]).stdout;
    assert!(text.contains("all of it agrees; the next one at "), "{text}");
    assert_eq!(said(&array, &["check", "tank"]).status.code(), Some(0), "a later number");
    assert!(said(&array, &["set", "tank", "check-every=off"]).status.success());
    served.stop();
    let served = array.serve();
    assert_eq!(status(&array, "tank")["next_check"], Value::Null);
    served.stop();
}

#[test]
fn a_check_that_is_due_begins_by_itself() {
    let array = Array::create(RAID_5);
    let served = array.serve();
    assert!(said(&array, &["set", "tank", "check-every=30d"]).status.success());
    served.stop();
    // Moves the schedule's start into the past, as if the setting had been made long ago.
    let path = kept(&array);
    let text = std::fs::read_to_string(&path).expect("a file");
    let mut value: Value = serde_json::from_str(&text).expect("JSON");
    let since = value["check_counted_from_seconds"].as_u64().expect("a time") - 31 * 86_400;
    value["check_counted_from_seconds"] = since.into();
    std::fs::write(&path, value.to_string()).expect("a file");
    let mut served = array.serve();
    served.wait_for("CheckStarted");
    let last = || status(&array, "tank")["last_jobs"][0].clone();
    wait_until("the check to be over", LIMIT, || last()["kind"] == "check");
    assert_eq!((&last()["result"], &last()["differing_sectors"]), (&"completed".into(), &0.into()));
    let text = said(&array, &["status", "tank"]).stdout;
    assert!(text.contains("; the next one at "), "{text}");
    served.stop();
}

#[test]
fn what_has_nothing_to_check_or_cannot_be_kept_is_refused() {
    let array = Array::create(RAID_0);
    let served = array.serve();
    let error = json(&array.braid(&["set", "tank", "check-every=30d"], &[]));
    assert_eq!((&error["code"], &error["subject"]), (&"B001".into(), &"check-every".into()));
    assert!(said(&array, &["set", "tank", "check-every=off"]).status.success());
    served.stop();
    let array = Array::create(RAID_5);
    let served = array.serve();
    for value in ["30", "10m", "soon"] {
        let set = format!("check-every={value}");
        assert_eq!(said(&array, &["set", "tank", &set]).status.code(), Some(2), "{value}");
    }
    // A folder is in the place of the file's temporary name, so the setting cannot be saved.
    let uuid = status(&array, "tank")["uuid"].as_str().expect("a UUID").replace(':', "");
    let new = array.path(&format!("state/arrays/{uuid}.jobs.new"));
    std::fs::create_dir(&new).expect("a folder");
    let error = json(&array.braid(&["set", "tank", "check-every=30d", "dirty-age=77"], &[]));
    assert_eq!(error["code"], "B080");
    check("Problem", &error);
    for (key, value) in [("check-every", "off\n"), ("dirty-age", "500\n")] {
        assert_eq!(said(&array, &["get", "tank", key]).stdout, value, "nothing was changed");
    }
    std::fs::remove_dir(&new).expect("ours");
    assert!(said(&array, &["set", "tank", "check-every=30d"]).status.success());
    served.stop();
}
