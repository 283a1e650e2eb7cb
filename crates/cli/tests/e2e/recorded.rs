//! A recording of a served array replays: the machines give again what they gave.

use std::cell::Cell;
use std::time::Duration;

use braid_recording::{Ending, Recording, replay};

use crate::kit::{Array, Background, RAID_5, RAID_6, Shape, needs, wait_until};

fn record_a_loss(shape: Shape) {
    let array = Array::create_sized(shape, "32M");
    let file = array.path("recording").display().to_string();
    let served = array.serve_with(&["--record", &file], &array.present());
    let uri = format!("--uri={}", served.uri);
    let mut load = Background::spawn(
        "fio",
        [
            "--name=load",
            "--ioengine=nbd",
            &uri,
            "--rw=randrw",
            "--bssplit=512/10:4k/50:64k/40",
            "--iodepth=16",
            "--size=12m",
            "--rate=3m,3m",
            "--verify=crc32c",
            "--verify_state_save=0",
            "--randseed=5",
        ],
    );
    std::thread::sleep(Duration::from_millis(400));
    assert!(!load.has_ended(), "fio ended before a member was lost");
    std::fs::remove_file(&array.members[0]).expect("a member");
    wait_until("the loss to be noticed", Duration::from_secs(10), || {
        !served.events("member-out").is_empty()
    });
    load.wait_ok();
    served.stop();
    let text = std::fs::read_to_string(&file).expect("a recording");
    let recording = Recording::parse(&text).unwrap_or_else(|problem| panic!("{problem}"));
    let replayed = replay(&recording, &Cell::new(0)).unwrap_or_else(|trouble| panic!("{trouble}"));
    assert_eq!(replayed.ending, Ending::Ended);
    assert!(replayed.turns > 500 && replayed.left == 0, "{replayed:?}");
    assert!(text.contains(" gone:0"), "the loss is in it");
}

#[test]
fn a_recorded_raid_5_that_loses_a_member_replays() {
    needs!("fio");
    record_a_loss(RAID_5);
}

#[test]
fn a_recorded_raid_6_that_loses_a_member_replays() {
    needs!("fio");
    record_a_loss(RAID_6);
}

#[test]
fn a_recording_overwrites_nothing() {
    let array = Array::create(RAID_5);
    let file = array.members[0].display().to_string();
    let before = std::fs::read(&file).expect("a member");
    array.serve_refused(&["--record", &file], &array.present()).is("B074", 1);
    assert_eq!(std::fs::read(&file).expect("a member"), before);
}
