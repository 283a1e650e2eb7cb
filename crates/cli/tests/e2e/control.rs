//! `status`, `list`, `get`, `set` and `stop` on a running array, and its control API under `curl`.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::jobs::typed;
use crate::kit::{Array, RAID_1, RAID_5, Ran, needs, ok, wait_until};

pub(crate) fn json(ran: &Ran) -> Value {
    serde_json::from_str(ran.stdout.trim()).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

/// braid's output for a person.
pub(crate) fn said(array: &Array, words: &[&str]) -> Ran {
    array.run_braid(array.command_line(words, &[])[1..].to_vec())
}

/// The array in `status --json`.
pub(crate) fn status(array: &Array, word: &str) -> Value {
    json(&array.braid(&["status", word], &[]))["arrays"][0].take()
}

fn document() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/api/openapi.json")
}

/// Validates a value against a schema of the shipped document.
pub(crate) fn check(schema: &str, value: &Value) {
    let document: Value =
        serde_json::from_slice(&std::fs::read(document()).expect("it is shipped")).expect("JSON");
    let schema = serde_json::json!({
        "$ref": format!("#/components/schemas/{schema}"),
        "components": document["components"],
    });
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    let errors: Vec<String> = validator.iter_errors(value).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}\n{value}");
}

#[test]
fn an_array_is_found_by_its_name_its_uuid_and_its_socket() {
    let array = Array::create(RAID_5);
    let served = array.serve();
    let control = array.path("run/tank.control").display().to_string();
    let one = status(&array, "tank");
    let uuid = one["uuid"].as_str().expect("a UUID").to_owned();
    assert_eq!(
        (&one["server"]["control"], &one["state"]),
        (&control.as_str().into(), &"ok".into())
    );
    for word in [&uuid, &uuid.replace(':', ""), &control] {
        assert_eq!(status(&array, word)["uuid"], one["uuid"], "{word}");
    }
    let list = json(&array.braid(&["list"], &[]));
    assert_eq!(
        (&list["arrays"][0]["name"], &list["arrays"][0]["control"]),
        (&"tank".into(), &control.into())
    );
    served.stop();
    let list = json(&array.braid(&["list"], &[]));
    assert_eq!(list["arrays"], Value::Array(Vec::new()), "its socket is gone");
}

#[test]
fn names_that_mean_none_several_or_a_dead_server_are_refused_with_what_to_type() {
    let (one, two) = (Array::create(RAID_1), Array::create(RAID_1));
    let served = one.serve();
    let refused = |words: &[&str], code: &str, exit: i32| {
        let ran = one.braid(words, &[]);
        let error = json(&ran);
        assert_eq!((&error["code"], ran.status.code()), (&code.into(), Some(exit)), "{ran:?}");
        error["remedies"][0]["command"].as_str().expect("a command").to_owned()
    };
    assert_eq!(refused(&["status", "nothing"], "B075", 10), "braid list");
    assert_eq!(refused(&["stop", "/nowhere/at.all"], "B075", 10), "braid list");
    // A second array of this name is found in the same folder.
    let runtime = one.path("run");
    let setup = format!("export BRAID_RUNTIME_DIR={}", runtime.display());
    let other = crate::kit::ServerProcess::start_under(&setup, &two, &[], &two.members);
    let command = refused(&["status", "tank"], "B083", 12);
    let word = command.strip_prefix("braid status ").expect("its own words");
    assert!(word.contains(':'), "a UUID: {command}");
    assert_eq!(json(&one.braid(&["status", word], &[]))["arrays"][0]["uuid"], word);
    assert_eq!(json(&one.braid(&["status"], &[]))["arrays"].as_array().map(Vec::len), Some(2));
    other.stop();
    // A killed server leaves its socket behind.
    served.kill();
    assert!(runtime.join("tank.control").exists(), "this is about what is left behind");
    refused(&["status", "tank"], "B077", 10);
    let error = json(&one.braid(&["status", "tank"], &[]));
    let again = error["remedies"][1]["command"].as_str().expect("a command");
    assert!(again.starts_with("braid --json ") && again.contains(" serve "), "{again}");
    let last = one.members.last().expect("a member").display().to_string();
    assert!(again.ends_with(&last), "{again}");
    let all = json(&one.braid(&["status"], &[]));
    assert_eq!(all["unheard"][0]["problem"]["code"], "B077");
    check("Status", &all);
    assert_eq!(said(&one, &["status", "--exit-code"]).status.code(), Some(4));
    // A socket whose server is silent is reported differently than a socket without a server.
    std::fs::remove_file(runtime.join("tank.control")).expect("left behind");
    let _silent = UnixListener::bind(runtime.join("tank.control")).expect("a socket");
    refused(&["status", "tank"], "B078", 1);
    std::fs::remove_file(runtime.join("tank.control")).expect("ours");
    let again = one.serve();
    assert_eq!(status(&one, "tank")["state"], "ok");
    again.stop();
}

#[test]
fn a_loss_is_told_with_its_cause_and_what_to_type() {
    let array = Array::create(RAID_5);
    let mut served = array.serve();
    let test = |words: &[&str]| said(&array, words).status.code();
    assert_eq!(said(&array, &["status", "-x"]).stdout, "tank is healthy\n");
    assert_eq!(test(&["status", "tank", "--exit-code"]), Some(0));
    served.lose(&array, 1);
    let one = status(&array, "tank");
    assert_eq!((&one["state"], &one["can_lose"]), (&"degraded".into(), &0.into()), "{one}");
    let row = &one["slots"][1];
    assert_eq!((&row["state"], &row["role"]), (&"failed".into(), &"none".into()), "{row}");
    let path = array.members[1].display().to_string();
    assert_eq!(row["member"], path.as_str());
    assert!(row["since"].as_str().is_some_and(|since| since.ends_with('Z')), "{row}");
    assert!(row["cause"].as_str().is_some_and(|cause| !cause.is_empty()), "{row}");
    let text = said(&array, &["status", "-x"]).stdout;
    for part in ["DEGRADED (cannot lose a member)", "problem", "now", "do", "[U_U", &path] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(test(&["status", "tank", "--exit-code"]), Some(1));
    assert_eq!(test(&["status", "nothing", "--exit-code"]), Some(4));
    // The exit status is the same with `--json`.
    let nothing = array.braid(&["status", "nothing", "--exit-code"], &[]);
    assert_eq!((nothing.status.code(), &json(&nothing)["code"]), (Some(4), &"B075".into()));
    // A second loss is beyond the tolerance: the member keeps its slot, and is reported.
    std::fs::remove_file(&array.members[2]).expect("a member to lose");
    served.wait_for("Broken");
    let one = status(&array, "tank");
    assert_eq!(
        (&one["state"], &one["slots"][2]["state"]),
        (&"failed".into(), &"failed".into()),
        "{one}"
    );
    assert_eq!(one["failure"]["member"], array.members[2].display().to_string());
    check("Array", &one);
    assert_eq!(test(&["status", "--exit-code"]), Some(2));
    let text = said(&array, &["status"]).stdout;
    assert!(text.contains("FAILED") && text.contains("braid stop tank"), "{text}");
    let stopped = said(&array, &["stop", "tank"]);
    assert_eq!(stopped.status.code(), Some(3), "{stopped:?}");
    served.wait();
}

#[test]
fn settings_are_got_set_and_only_looked_at() {
    let array = Array::create(RAID_5);
    let served = array.serve();
    let age = || said(&array, &["get", "tank", "dirty-age"]).stdout;
    assert_eq!(age(), "500\n");
    let would = said(&array, &["set", "tank", "-n", "dirty-age=20", "dirty-limit=2M"]).stdout;
    assert!(would.contains("would change from 500 to 20") && would.contains("to 2 MiB"), "{would}");
    assert_eq!(age(), "500\n", "a dry run changes nothing");
    for verb in ["set", "tune"] {
        let ran = said(&array, &[verb, "tank", "dirty-age=20"]);
        assert!(ran.status.success(), "{ran:?}");
        assert_eq!(age(), "20\n");
    }
    let answer = json(&array.braid(&["set", "tank", "dirty-age=30", "dirty-limit=1M"], &[]));
    assert_eq!(answer["changed"]["dirty-age"], serde_json::json!({ "from": 20, "to": 30 }));
    check("SettingsAnswer", &answer);
    // All settings in `status` except fixed ones can be set, as a number and as a word.
    let mut shown = status(&array, "tank")["settings"].take();
    for fixed in ["stripe-unit", "progress-limit"] {
        shown.as_object_mut().expect("an object").remove(fixed).expect("a setting");
    }
    let control = array.path("run/tank.control").display().to_string();
    let url = "http://braid/v1/settings";
    let body = shown.to_string();
    if braid_test_needs::is_installed("curl") {
        let kind = "content-type: application/json";
        let curl = ["-sS", "--unix-socket", &control, "-X", "PATCH", "-H", kind, "-d", &body, url];
        let said: Value = serde_json::from_str(&ok("curl", curl)).expect("JSON");
        assert_eq!(said["changed"], serde_json::json!({}), "{said}");
    }
    // If one of two settings is invalid, neither is set.
    let refused = array.braid(&["set", "tank", "dirty-age=40", "dirty-limit=1"], &[]);
    let error = json(&refused);
    assert_eq!((&error["code"], &error["subject"]), (&"B001".into(), &"dirty-limit".into()));
    check("Problem", &error);
    assert_eq!(age(), "30\n");
    assert_eq!(said(&array, &["get", "tank", "colour"]).status.code(), Some(2));
    assert_eq!(said(&array, &["set", "tank", "dirty-age=1", "dirty-age=2"]).status.code(), Some(2));
    served.stop();
}

#[test]
fn an_array_that_was_stopped_can_be_served_at_once() {
    let array = Array::create(RAID_5);
    for round in 0..6 {
        let mut served = array.serve();
        let would = said(&array, &["stop", "tank", "-n"]);
        assert!(would.stdout.starts_with("would stop tank"), "{would:?}");
        let stopped = if round % 2 == 0 {
            json(&array.braid(&["stop", "tank"], &[]))
        } else {
            let ran = array.braid(&["stop", "tank", "--detach"], &[]);
            assert!(ran.status.success(), "{ran:?}");
            served.wait_for("stopped")
        };
        assert_eq!(stopped["in_order"], true, "{stopped}");
        if round % 2 == 0 {
            check("Stopped", &stopped);
            assert!(!served.socket.exists(), "its socket is left behind");
            let examined = array.braid(&["examine"], &array.members);
            assert!(examined.status.success(), "the members are free: {examined:?}");
        }
        assert!(served.wait().success());
    }
}

#[test]
fn status_is_watched_until_it_is_interrupted() {
    let array = Array::create(RAID_1);
    let served = array.serve();
    let words = array.command_line(&["status", "tank", "--watch", "--every", "1"], &[]);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_braid"));
    command.args(words).env("BRAID_RUNTIME_DIR", array.path("run"));
    let output = array.path("watched");
    command.stdout(std::fs::File::create(&output).expect("a file"));
    let mut watching = command.spawn().expect("braid starts");
    let lines = || std::fs::read_to_string(&output).expect("a file").lines().count();
    wait_until("two looks", Duration::from_secs(30), || lines() >= 2);
    watching.kill().and_then(|()| watching.wait()).expect("our own child");
    served.stop();
}

/// Every block marked `sh` in docs/control.md, unchanged.
#[test]
fn the_recipes_about_the_control_socket_work() {
    needs!("curl");
    let recipes = include_str!("../../../../docs/control.md").split("```sh\n").skip(1);
    let recipes: Vec<&str> =
        recipes.map(|recipe| recipe.split("```").next().expect("its end")).collect();
    assert_eq!(recipes.len(), 2, "verbs and curl");
    let array = Array::create(RAID_5);
    let served = array.serve();
    for recipe in recipes {
        let said = typed(&array, &format!("set -e\n{recipe}"));
        assert!(!said.contains("\"code\":\"B"), "a recipe is refused: {said}");
    }
    served.stop();
}

/// The shipped document is generated from the types. `BRAID_WRITE_API=1` writes it.
#[test]
fn the_document_that_is_shipped_is_the_one_that_is_served() {
    needs!("curl");
    let array = Array::create(RAID_1);
    let served = array.serve();
    let control = array.path("run/tank.control").display().to_string();
    let ask = |target: &str| {
        let url = format!("http://braid{target}");
        let said = ok("curl", ["-sS", "--fail", "--unix-socket", &control, &url]);
        serde_json::from_str::<Value>(&said).expect("JSON")
    };
    let document = ask("/openapi.json");
    if std::env::var_os("BRAID_WRITE_API").is_some() {
        std::fs::write(self::document(), format!("{document:#}\n")).expect("it can be written");
    }
    let shipped: Value =
        serde_json::from_slice(&std::fs::read(self::document()).expect("it is shipped"))
            .expect("JSON");
    assert!(document == shipped, "BRAID_WRITE_API=1 cargo test -p braid --test e2e document");
    for (target, schema) in
        [("/v1/array", "Array"), ("/v1/settings", "SettingsAnswer"), ("/v1/elevators", "Elevators")]
    {
        check(schema, &ask(target));
    }
    check("Status", &json(&array.braid(&["status"], &[])));
    check("StopPlan", &json(&array.braid(&["stop", "tank", "-n"], &[])));
    served.stop();
}
