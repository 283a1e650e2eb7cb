//! `braid serve --elevator`, `braid set elevator=` and `braid elevators`: under load, shown,
//! refused.

use crate::jobs::done;
use crate::kit::{Array, Background, RAID_5, needs};

/// A load that verifies its reads, and lasts long enough for all settings.
pub(crate) fn load(uri: &str, more: &[&str]) -> Background {
    let uri = format!("--uri={uri}");
    let words = [
        "--name=load",
        "--ioengine=nbd",
        &uri,
        "--rw=randrw",
        "--bssplit=512/10:4k/50:64k/30:192k/10",
        "--bs_unaligned",
        "--iodepth=16",
        "--size=16m",
        "--rate=6m,6m",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
    ];
    Background::spawn("fio", [&words, more].concat())
}

fn set_under_load(io: &str) {
    let array = Array::create_sized(RAID_5, "32M");
    let options = ["--io", io, "--elevator", "deadline"];
    let on = ["--multiplexer", "on", "--multiplexer-period", "20", "--depth", "4"];
    let (served, control) = array.serve_controlled(&[&options[..], &on].concat());
    let load = load(&served.uri, &["--fsync=64"]);
    let first = done(&array, &["elevators", &control]);
    assert_eq!(
        (first["is_multiplexed"].as_bool(), &first["elevators"][0]["depth"]),
        (Some(true), &4.into())
    );
    for round in 0..16 {
        let settings = match round % 4 {
            0 => ["elevator=none", "multiplexer=off", "depth=1"],
            1 => ["elevator=deadline", "elevator:1=none", "multiplexer=on"],
            2 => ["elevator=deadline", "multiplexer=on", "depth=2"],
            _ => ["elevator=deadline", "multiplexer-share=30-90", "depth=auto"],
        };
        done(&array, &[&["tune", &control], &settings[..]].concat());
        let shown = done(&array, &["elevators", &control]);
        let policy = if round % 4 == 0 { "none" } else { "deadline" };
        assert_eq!(shown["elevators"][0]["policy"], policy);
        std::thread::sleep(std::time::Duration::from_millis(60));
    }
    let said = load.wait_ok();
    assert!(said.contains("err= 0"), "{said}");
    let last = done(&array, &["elevators", &control]);
    let sum = |key: &str| -> u64 {
        let elevators = last["elevators"].as_array().expect("a list");
        elevators.iter().map(|one| one[key].as_u64().expect("a number")).sum()
    };
    assert!(sum("inserted") > 0 && sum("dispatched") > 0, "{last}");
    assert_eq!((sum("waiting_reads"), sum("waiting_writes")), (0, 0));
    assert!(last["slices"].as_array().is_some_and(|slices| !slices.is_empty()), "{last}");
    served.stop();
}

#[test]
fn elevators_are_switched_under_load_on_rings_and_every_block_is_right() {
    needs!("fio");
    set_under_load("auto");
}

#[test]
fn elevators_are_switched_under_load_by_threads_and_every_block_is_right() {
    needs!("fio");
    set_under_load("threads");
}

#[test]
fn what_cannot_be_scheduled_is_refused_and_changes_nothing() {
    let array = Array::create(RAID_5);
    let (served, control) = array.serve_controlled(&[]);
    for (setting, why) in [
        ("elevator=cfq", "deadline"),
        ("elevator:9=none", "slot 9"),
        ("multiplexer-share=70-10", "10-70"),
        ("depth=0", "from 1"),
        ("colour=red", "writes-starved"),
    ] {
        let refusal = array.braid(&["tune", &control, "batch=3", setting], &[]);
        assert!(!refusal.status.success(), "{refusal:?}");
        let said = &refusal.stdout;
        assert!(said.contains("B001") && said.contains(why), "{setting}: {refusal:?}");
    }
    let ran = array.braid(&["get", &control, "batch"], &[]);
    assert!(ran.stdout.contains("\"batch\":\"auto\""), "{ran:?}");
    served.stop();
    let refusal = array.braid(&["serve", "--elevator", "noop"], &array.members);
    assert!(refusal.stdout.contains("B001"), "{refusal:?}");
    let refusal = array.braid(&["elevators", "/nowhere/at.all"], &[]);
    assert!(refusal.stdout.contains("B075"), "{refusal:?}");
}
