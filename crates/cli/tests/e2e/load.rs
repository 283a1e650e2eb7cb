//! fio reads and writes at depth 32 and verifies every block, while members are lost.

use std::fs::OpenOptions;
use std::time::Duration;

use crate::kit::{
    Array, Background, RAID_1, RAID_5, RAID_6, RAID_10, ServerProcess, Shape, assert_same, needs,
    ok, random_bytes, wait_until,
};

/// Ways of losing a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// The member's file is deleted; writes would still succeed, but no program would find the
    /// data.
    Deleted,
    /// The member's file is cut to nothing: reads fail at once.
    Truncated,
}

/// fio at depth 32: half reads, half writes, blocks of 512 bytes to 192 KiB, each written block
/// read back. `rate`, in bytes per second and direction, makes the load last long enough to lose
/// members.
fn verifying_load(served: &ServerProcess, seed: u64, rate: Option<&str>) -> Background {
    let seed = format!("--randseed={seed}");
    let uri = format!("--uri={}", served.uri);
    let mut words = vec![
        "--name=load",
        "--ioengine=nbd",
        &uri,
        "--rw=randrw",
        "--bssplit=512/10:3k/10:4k/30:64k/40:192k/10",
        "--bs_unaligned",
        "--iodepth=32",
        "--size=18m",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
        "--do_verify=1",
        &seed,
    ];
    words.extend(rate);
    Background::spawn("fio", words)
}

fn assert_no_errors(said: &str) {
    assert!(said.contains("err= 0"), "{said}");
}

fn lose_under_load(shape: Shape, loss: Loss) {
    // Members are larger than fio's data: on a smaller disk fio would overwrite its own blocks.
    let array = Array::create_sized(shape, "32M");
    let mut served = array.serve();
    let mut load = verifying_load(&served, 1, Some("--rate=3m,3m"));
    for slot in 0..shape.lost_max {
        std::thread::sleep(Duration::from_millis(400));
        assert!(!load.has_ended(), "fio ended before a member was lost");
        match loss {
            Loss::Deleted => std::fs::remove_file(&array.members[slot]).expect("a member"),
            Loss::Truncated => {
                let file = OpenOptions::new().write(true).open(&array.members[slot]);
                file.and_then(|file| file.set_len(0)).expect("a member");
            }
        }
        wait_until("the loss to be noticed", Duration::from_secs(10), || {
            served.events("Fail").len() > slot
        });
        assert!(!load.has_ended(), "fio ended before the loss was noticed");
    }
    assert_no_errors(&load.wait_ok());
    assert!(served.events("Broken").is_empty());
    served.wait_for("Fail");
    // Runs the load once more from the beginning, while the array is degraded.
    assert_no_errors(&verifying_load(&served, 2, None).wait_ok());
    served.stop();
    let served = array.serve_with(&[], &array.without(&(0..shape.lost_max).collect::<Vec<_>>()));
    served.stop();
}

#[test]
fn fio_raid_1_a_member_is_deleted() {
    needs!("fio");
    lose_under_load(RAID_1, Loss::Deleted);
}

#[test]
fn fio_raid_5_a_member_is_deleted() {
    needs!("fio");
    lose_under_load(RAID_5, Loss::Deleted);
}

#[test]
fn fio_raid_5_a_member_is_truncated() {
    needs!("fio");
    lose_under_load(RAID_5, Loss::Truncated);
}

#[test]
fn fio_raid_6_two_members_are_deleted() {
    needs!("fio");
    lose_under_load(RAID_6, Loss::Deleted);
}

#[test]
fn fio_raid_6_two_members_are_truncated() {
    needs!("fio");
    lose_under_load(RAID_6, Loss::Truncated);
}

#[test]
fn fio_raid_10_a_member_is_deleted() {
    needs!("fio");
    lose_under_load(RAID_10, Loss::Deleted);
}

#[test]
fn fio_raid_10_a_member_is_truncated() {
    needs!("fio");
    lose_under_load(RAID_10, Loss::Truncated);
}

/// A write beyond the end of a truncated member fills the file with zeroes, which are no data.
#[test]
fn a_truncated_member_is_not_read_as_zeroes() {
    needs!("qemu-io", "nbdcopy");
    for shape in [RAID_1, RAID_5, RAID_6, RAID_10] {
        let array = Array::create(shape);
        let mut served = array.serve();
        let size = usize::try_from(served.size_bytes).expect("small");
        let mut bytes = random_bytes(40, size);
        served.write_all(&array, &bytes);
        let file = OpenOptions::new().write(true).open(&array.members[0]);
        file.and_then(|file| file.set_len(0)).expect("a member");
        // Writes the last stripes in full, so that no member is read.
        let last = size - (1 << 20);
        let write = format!("write -P 5 {last} {}", 1 << 20);
        ok("qemu-io", ["-f", "raw", "-c", &write, "-c", "read 0 1M", served.uri.as_str()]);
        bytes[last..].fill(5);
        assert_same(&served.read_all(&array), &bytes, shape.level);
        served.wait_for("Fail");
        served.stop();
    }
}

/// 32 fio clients at once, each with its own part of the array, whose content is verified.
#[test]
fn thirty_two_connections() {
    needs!("fio");
    let array = Array::create(RAID_5);
    let served = array.serve();
    let uri = format!("--uri={}", served.uri);
    let said = ok(
        "fio",
        [
            "--name=many",
            "--ioengine=nbd",
            uri.as_str(),
            "--rw=randrw",
            "--bs=16k",
            "--iodepth=8",
            "--size=1m",
            "--offset_increment=1m",
            "--numjobs=32",
            "--thread",
            "--group_reporting",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_state_save=0",
        ],
    );
    assert_no_errors(&said);
    served.stop();
}

/// Several requests of the largest size that the server advertises.
#[test]
fn requests_of_64_mib() {
    needs!("fio");
    let array = Array::create_sized(RAID_5, "64M");
    let served = array.serve();
    let uri = format!("--uri={}", served.uri);
    let said = ok(
        "fio",
        [
            "--name=large",
            "--ioengine=nbd",
            uri.as_str(),
            "--rw=write",
            "--bs=64m",
            "--iodepth=3",
            "--size=128m",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_state_save=0",
        ],
    );
    assert_no_errors(&said);
    served.stop();
}
