//! Spares shared between arrays with separate servers.

use std::time::Duration;

use serde_json::Value;

use crate::control::{said, status};
use crate::jobs::{done, refused};
use crate::kit::{Array, RAID_1, RAID_5, ServerProcess, Shape, needs, wait_until};
use crate::members::{assert_whole, filled};

const LIMIT: Duration = Duration::from_secs(60);

/// An array whose last members are spares, in the runtime folder of `other`.
fn with_spares(other: &Array, name: &str, spares: usize) -> Array {
    let shape = Shape { members: RAID_1.members + spares, ..RAID_1 };
    let words = ["--spare", &spares.to_string()];
    Array::create_with(name, shape, "16M", &words).found_with(other)
}

fn spares(array: &Array, name: &str) -> usize {
    let one = status(array, name);
    let rows = one["slots"].as_array().expect("rows");
    rows.iter().filter(|row| row["state"] == "waiting").count()
}

fn events(array: &Array, name: &str, kind: &str) -> Vec<Value> {
    let lines = array.braid(&["history", name], &[]).stdout;
    let events = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    events.filter(|event| event["kind"] == kind).collect()
}

fn in_group(array: &Array, group: &str) -> ServerProcess {
    array.serve_with(&["--spare-group", group], &array.present())
}

/// An array takes a spare of another array in its group. Without groups the operator had to notice,
/// remove the spare from one array and add it to the other.
#[test]
fn an_array_without_a_spare_takes_one_of_its_group() {
    needs!("nbdcopy");
    let tank = Array::create(RAID_5);
    let pool = with_spares(&tank, "pool", 2);
    let (serving, giving) = (in_group(&tank, "rack"), in_group(&pool, "rack"));
    let wanted = filled(&tank, &serving, 1);
    assert_eq!(said(&tank, &["get", "tank", "spare-group"]).stdout, "rack\n");
    done(&tank, &["fail", "tank", "2"]);
    wait_until("the array to be whole", LIMIT, || status(&tank, "tank")["state"] == "ok");
    assert_eq!((spares(&tank, "tank"), spares(&tank, "pool")), (0, 1), "one was lacking");
    let moved = events(&tank, "tank", "MoveSpare");
    let member = moved[0]["subject"]["member"].as_str().expect("a path").to_owned();
    assert_eq!((moved.len(), &moved[0]["details"]["from"]), (1, &"pool".into()), "{moved:?}");
    assert_eq!(events(&tank, "tank", "DiskAdded"), Vec::<Value>::new(), "said once");
    assert_eq!(events(&pool, "pool", "DiskRemoved")[0]["subject"]["member"], member.as_str());
    // The next loss takes the last spare of the group. The loss after it finds no spare, and the
    // array stays degraded.
    for slot in ["0", "1"] {
        done(&tank, &["remove", "tank", "failed"]);
        done(&tank, &["fail", "tank", slot]);
        if slot == "0" {
            wait_until("it to be whole", LIMIT, || status(&tank, "tank")["state"] == "ok");
        }
    }
    std::thread::sleep(Duration::from_millis(500));
    let one = status(&tank, "tank");
    assert_eq!((&one["state"], spares(&tank, "pool")), (&"degraded".into(), 0), "{one}");
    // An array that joins the group later also gives its spare.
    let late = with_spares(&tank, "late", 1);
    let lending = in_group(&late, "rack");
    wait_until("it to be whole", LIMIT, || status(&tank, "tank")["state"] == "ok");
    let paths = status(&tank, "tank")["slots"].as_array().expect("rows").clone();
    let paths: Vec<_> =
        paths.iter().map(|row| row["member"].as_str().expect("a path").into()).collect();
    assert_whole(&tank, serving, &paths, &wanted);
    giving.stop();
    lending.stop();
}

#[test]
fn no_spare_is_taken_from_another_group_from_a_degraded_array_or_where_it_is_too_small() {
    let tank = Array::create(RAID_5);
    let serving = in_group(&tank, "rack");
    let shape = Shape { members: 3, ..RAID_1 };
    let small = Array::create_with("small", shape, "8M", &["--spare", "1"]).found_with(&tank);
    let others = [
        (with_spares(&tank, "other", 1), "elsewhere"),
        (with_spares(&tank, "alone", 1), "off"),
        (small, "rack"),
    ];
    let servers: Vec<ServerProcess> =
        others.iter().map(|(array, group)| in_group(array, group)).collect();
    // The array `degraded` offers no spare: it needs its spare itself once jobs resume.
    let degraded = with_spares(&tank, "degraded", 1);
    let options = ["--spare-group", "rack", "--jobs", "paused"];
    let needing = degraded.serve_with(&options, &degraded.members);
    done(&tank, &["fail", "degraded", "0"]);
    done(&tank, &["fail", "tank", "2"]);
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(status(&tank, "tank")["state"], "degraded");
    for name in ["other", "alone", "small"] {
        assert_eq!(spares(&tank, name), 1, "{name}");
    }
    // Setting the group starts the search for a spare at once.
    done(&tank, &["set", "tank", "spare-group=elsewhere"]);
    wait_until("the array to be whole", LIMIT, || status(&tank, "tank")["state"] == "ok");
    assert_eq!((spares(&tank, "other"), spares(&tank, "small")), (0, 1));
    let remedy = refused(&tank, &["set", "tank", "spare-group=a b"], "B001", 2);
    assert_eq!(remedy, "braid set --help");
    needing.stop();
    for served in servers {
        served.stop();
    }
    serving.stop();
}

/// Two arrays compete for one spare: one array gets it, and the other continues without.
#[test]
fn of_two_that_ask_for_one_spare_one_gets_it() {
    let tank = Array::create(RAID_5);
    let second = Array::create_named("second", RAID_5, "16M").found_with(&tank);
    let pool = with_spares(&tank, "pool", 1);
    let servers = [&tank, &second, &pool].map(|array| in_group(array, "off"));
    for name in ["tank", "second"] {
        done(&tank, &["fail", name, "1"]);
    }
    done(&tank, &["set", "pool", "spare-group=rack"]);
    std::thread::scope(|scope| {
        for name in ["tank", "second"] {
            let tank = &tank;
            scope.spawn(move || done(tank, &["set", name, "spare-group=rack"]));
        }
    });
    let states = || ["tank", "second"].map(|name| status(&tank, name)["state"] == "ok");
    wait_until("one of them to be whole", LIMIT, || states().contains(&true));
    assert_eq!((spares(&tank, "pool"), states().contains(&false)), (0, true));
    for served in servers {
        served.stop();
    }
}
