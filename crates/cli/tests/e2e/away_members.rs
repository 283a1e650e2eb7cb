//! A member that does not answer for seconds goes away, and returns by itself. Meanwhile clients'
//! writes and flushes continue, and the member's missed writes are recovered afterwards.
//!
//! The members are files on a FUSE file system that hangs on request, as in
//! [`super::hung_members`].

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::kit::{
    Array, Client, Fail, FaultFs, FileOp, Hang, Mount, Need, RAID_1, RAID_5, RAID_6, Shape,
    assert_same, random_bytes, skip, wait_until,
};

const BLOCK: usize = 4096;
const MEMBER_SIZE: &str = "16M";

/// Limit for every step that does not wait for the silent member.
const LIMIT: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(60);

fn at(index: u64) -> u64 {
    index * BLOCK as u64
}

/// The content of block `index` after round `round`.
fn block(index: u64, round: u64) -> Vec<u8> {
    random_bytes(1 + index + 1000 * round, BLOCK)
}

fn tank(array: &Array) -> Value {
    let ran = array.braid(&["status", "tank", "--json"], &[]);
    serde_json::from_str(&ran.stdout).expect("JSON")
}

fn slot_state(array: &Array) -> Value {
    tank(array)["arrays"][0]["slots"][1]["state"].clone()
}

/// Writes all blocks, many at once, and flushes; returns the time it took.
fn write_round(client: &mut Client, blocks: u64, round: u64) -> Duration {
    let began = Instant::now();
    (0..blocks).for_each(|index| client.ask_write(index, at(index), &block(index, round)));
    for _ in 0..blocks {
        client.hear().expect("a write is answered in time");
    }
    client.flush();
    began.elapsed()
}

fn goes_away_and_comes_back(shape: Shape, hang: Hang, io: &str) {
    let case = format!("{shape:?} {hang:?} {io}");
    let mut array = Array::create_with("tank", shape, MEMBER_SIZE, &["--bitmap-chunk", "64K"]);
    let hanging = Mount::is_possible().then(|| FaultFs::over(&array.members)).flatten();
    let Some(hanging) = hanging else { return skip(Need::Fuse, "no FUSE can be mounted here") };
    array.members = hanging.files();
    let options = ["--io", io, "--away-after-ms", "1000"];
    let mut served = array.serve_with(&options, &array.members);
    assert_eq!(array.braid(&["wait", "tank", "--for", "idle"], &[]).status.code(), Some(0));
    let mut client = Client::connect(&served.socket, PATIENCE);
    write_round(&mut client, 64, 0);
    let let_go = hanging.let_go_at_end();
    hanging.hang(1, hang);
    // The first round of writes waits until the member goes away; later rounds do not wait.
    let first = write_round(&mut client, 64, 1);
    let second = write_round(&mut client, 64, 2);
    assert!(hanging.held() > 0, "{case}: it hangs still");
    assert!(first < LIMIT && second < LIMIT, "{case}: {first:?}, {second:?}");
    let told = served.wait_for("DiskAway");
    assert_eq!(told["subject"]["slot"], 1, "{case}: {told}");
    assert_eq!(slot_state(&array), "away", "{case}");
    for index in 0..64 {
        let found = client.read(at(index), BLOCK).expect("an answer in time");
        assert_same(&found, &block(index, 2), "what is read meanwhile");
    }
    drop(let_go);
    hanging.let_go();
    served.wait_for("DiskReturned");
    let told = served.wait_for("SpareTaken");
    assert!(told["details"]["kept_sectors"].as_u64() > Some(0), "{case}: {told}");
    wait_until("the member to hold all again", PATIENCE, || slot_state(&array) == "ok");
    let third = write_round(&mut client, 64, 3);
    assert!(third < LIMIT, "{case}: {third:?}");
    drop(client);
    // The member's content is right again: the check finds no difference.
    let checked = array.braid(&["check", "tank"], &[]);
    assert_eq!(checked.status.code(), Some(0), "{case}: {}", checked.stderr);
    served.stop();
    let others = array.without(&[0]);
    let served = array.serve_with(&options, &others);
    let mut client = Client::connect(&served.socket, PATIENCE);
    for index in 0..64 {
        let found = client.read(at(index), BLOCK).expect("an answer in time");
        assert_same(&found, &block(index, 3), "what it gives");
    }
    drop(client);
    served.stop();
}

#[test]
fn a_member_that_hangs_goes_away_and_comes_back_on_rings() {
    for (shape, hang) in [
        (RAID_1, Hang::Everything),
        (RAID_5, Hang::Writes),
        (RAID_5, Hang::Both),
        (RAID_6, Hang::Everything),
    ] {
        goes_away_and_comes_back(shape, hang, "ring");
    }
}

#[test]
fn a_member_that_hangs_goes_away_and_comes_back_on_threads() {
    for (shape, hang) in [(RAID_1, Hang::Writes), (RAID_5, Hang::Everything)] {
        goes_away_and_comes_back(shape, hang, "threads");
    }
}

/// Regression: a disk that hung before it died stayed away for ever, and no spare took its slot.
#[test]
fn a_member_that_dies_while_it_is_away_has_failed() {
    let mut array = Array::create_with("tank", RAID_5, MEMBER_SIZE, &["--bitmap-chunk", "64K"]);
    let hanging = Mount::is_possible().then(|| FaultFs::over(&array.members)).flatten();
    let Some(hanging) = hanging else { return skip(Need::Fuse, "no FUSE can be mounted here") };
    array.members = hanging.files();
    let mut served = array.serve_with(&["--away-after-ms", "1000"], &array.members);
    assert_eq!(array.braid(&["wait", "tank", "--for", "idle"], &[]).status.code(), Some(0));
    let mut client = Client::connect(&served.socket, PATIENCE);
    let _let_go = hanging.let_go_at_end();
    hanging.hang(1, Hang::Both);
    write_round(&mut client, 64, 0);
    served.wait_for("DiskAway");
    hanging.fail(1, Fail { file_op: FileOp::Flush, bytes: 0..u64::MAX, errno: 5 });
    hanging.let_go_of_held();
    let told = served.wait_for("Fail");
    assert_eq!(told["subject"]["slot"], 1, "{told}");
    assert_eq!(
        (&told["cause"]["operation"], &told["cause"]["os_error"]),
        (&"flush".into(), &5.into())
    );
    assert_eq!(slot_state(&array), "failed");
    assert!(served.events("DiskReturned").is_empty());
    drop(client);
    served.stop();
}

/// The operator may fail and remove a member that is away, and add it again when it answers.
#[test]
fn a_member_that_is_away_is_waited_for_by_nobody_who_does_not_want_to() {
    let mut array = Array::create_with("tank", RAID_5, MEMBER_SIZE, &[]);
    let hanging = Mount::is_possible().then(|| FaultFs::over(&array.members)).flatten();
    let Some(hanging) = hanging else { return skip(Need::Fuse, "no FUSE can be mounted here") };
    array.members = hanging.files();
    let mut served = array.serve_with(&["--away-after-ms", "never"], &array.members);
    assert_eq!(array.braid(&["wait", "tank", "--for", "idle"], &[]).status.code(), Some(0));
    let mut client = Client::connect(&served.socket, PATIENCE);
    let let_go = hanging.let_go_at_end();
    hanging.hang(1, Hang::Both);
    (0..64).for_each(|index| client.ask_write(index, at(index), &block(index, 0)));
    wait_until("something to hang", PATIENCE, || hanging.held() > 0);
    // Before the member goes away by itself, the operator fails it.
    assert_eq!(array.braid(&["fail", "tank", "1"], &[]).status.code(), Some(0));
    served.wait_for("Fail");
    for _ in 0..64 {
        client.hear().expect("a write is answered in time");
    }
    assert!(hanging.held() > 0, "it hangs still");
    assert_eq!(slot_state(&array), "failed");
    drop(let_go);
    hanging.let_go();
    drop(client);
    served.stop();
}
