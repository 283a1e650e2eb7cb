//! `braid examine` reports each member, never writes, and its exit status reflects the findings.

use crate::create_kit::{Folder, MEMBER_BYTES};
use braid_ondisk::{SuperblockUpdate, UnvalidatedV1, Version};

fn raid5() -> Folder {
    let folder = Folder::new();
    folder.braid("create tank --level 5 --member-size 8M a b c").done();
    folder
}

/// Changes a member's superblock as a running array would.
fn update(folder: &Folder, name: &str, change: impl Fn(&mut SuperblockUpdate)) {
    let bytes = folder.read(name, 4096, 4096);
    let unvalidated = UnvalidatedV1::recognise(&bytes, Version::V1_2).expect("a superblock");
    let mut superblock = unvalidated.validate(MEMBER_BYTES, 4096).expect("a sound one");
    let mut update = SuperblockUpdate {
        events: superblock.state.events,
        update_time: superblock.state.update_time,
        resync_offset: superblock.state.resync_offset,
        roles: superblock.state.roles.clone().into(),
        recovery_offset: None,
        is_replacement: false,
        role_of_this: superblock.state.role,
    };
    change(&mut update);
    superblock.apply(&update);
    folder.write(name, 4096, &superblock.to_bytes());
}

#[test]
fn everything_in_the_superblock_is_said() {
    let folder = raid5();
    let seen = folder.braid_changing_nothing("examine c a b").done();
    for words in [
        "md 1.2 at 4 KiB, checksum ok",
        "tank   ",
        "raid5, 3 slots, layout left-symmetric, chunk 512K",
        "array 12 MiB, of each member 6 MiB",
        "6 MiB from 2 MiB (sector 4096)",
        "slot 2, device number 2",
        "AAA ",
        "clean",
        "events 0",
        "bad blocks  none",
        "tank  clean  12 MiB, can lose 1 more member",
    ] {
        assert!(seen.out.contains(words), "{words}: {}", seen.out);
    }
}

#[test]
fn json_has_a_verdict_for_each_and_the_array() {
    let folder = raid5();
    let seen = folder.braid_changing_nothing("examine --json c a b").done().json();
    for (index, slot) in [2, 0, 1].into_iter().enumerate() {
        let member = &seen["members"][index];
        assert_eq!(member["verdict"]["code"], "fresh");
        assert_eq!(member["verdict"]["slot"], slot);
        assert_eq!(member["superblocks"][0]["device"]["role"], slot);
        assert_eq!(member["superblocks"][0]["state"]["roles"], serde_json::json!([0, 1, 2]));
    }
    assert_eq!(seen["array"]["capacity_bytes"], 12 << 20);
    assert!(seen["refusal"].is_null());
}

#[test]
fn a_member_that_is_not_there_or_not_right_needs_attention() {
    let missing = raid5();
    let seen = missing.braid_changing_nothing("examine a b");
    assert_eq!(seen.exit, 3);
    seen.says("degraded").says("cannot lose a member");

    let damaged = raid5();
    damaged.write("b", 4096 + 40, &[0x55]);
    let seen = damaged.braid_changing_nothing("examine a b c");
    assert_eq!(seen.exit, 3);
    seen.says("checksum is").says("damaged").says("1 of 3 slots not up to date");

    let stale = raid5();
    for name in ["a", "c"] {
        update(&stale, name, |update| update.events += 2);
    }
    let seen = stale.braid_changing_nothing("examine --json a b c");
    assert_eq!((seen.exit, &seen.json()["members"][1]["verdict"]["code"]), (3, &"stale".into()));

    let short = raid5();
    let file = std::fs::File::options().write(true).open(short.path("c")).expect("it is there");
    file.set_len(MEMBER_BYTES / 2).expect("shorter");
    let seen = short.braid_changing_nothing("examine a b c");
    assert_eq!(seen.exit, 3);
    seen.says("truncated");
}

#[test]
fn dirty_and_degraded_is_explained_with_the_risk_last() {
    let folder = raid5();
    for name in ["a", "b"] {
        update(&folder, name, |update| {
            update.events += 1;
            update.resync_offset = 0;
        });
    }
    let seen = folder.braid_changing_nothing("examine --json a b");
    let refusal = &seen.json()["refusal"];
    assert_eq!((seen.exit, &refusal["code"]), (3, &"B031".into()));
    let remedies = refusal["remedies"].as_array().expect("a list");
    assert_eq!(remedies[0]["risk"], "look");
    let last = remedies.last().expect("some")["command"].as_str().expect("a command");
    let count =
        last.strip_prefix("braid serve --accept-risk ").and_then(|rest| rest.strip_suffix(" a b"));
    assert!(count.is_some_and(|count| count.parse::<u64>().is_ok_and(|count| count > 0)), "{last}");
}

#[test]
fn too_few_several_and_twice_are_told_apart() {
    let folder = raid5();
    folder.braid("create other --level 1 --member-size 8M x y").done();
    let code = |members: &str| {
        let seen = folder.braid_changing_nothing(&format!("examine --json {members}"));
        assert_eq!(seen.exit, 3, "{members}");
        seen.json()["refusal"]["code"].as_str().map(String::from)
    };
    assert_eq!(code("a").as_deref(), Some("B030"));
    assert_eq!(code("a b x").as_deref(), Some("B033"));
    assert_eq!(code("a b c ./a"), None);
    std::fs::copy(folder.path("a"), folder.path("copy")).expect("a copy");
    assert_eq!(code("a b c copy").as_deref(), Some("B034"));
}

#[test]
fn without_any_superblock_there_is_no_array() {
    let folder = Folder::new();
    folder.files(&["a", "b"]);
    crate::create_kit::write_ext(&folder, "b", "backup");
    let seen = folder.braid_changing_nothing("examine a b");
    assert_eq!(seen.exit, 10);
    seen.says("nothing that is recognised").says("ext \"backup\"").says("error[B020]");
}

#[test]
fn one_that_cannot_be_read_does_not_hide_the_others() {
    let folder = raid5();
    let seen = folder.braid_changing_nothing("examine a b c nosuch");
    assert_eq!(seen.exit, 3);
    seen.says("nosuch  could not be read").says("error[B050]").says("tank  clean");
    folder.braid_changing_nothing("examine nosuch").refused("B050", 1);
    folder.braid_changing_nothing("examine").refused("B001", 2);
}

#[test]
fn a_member_that_is_in_use_may_be_looked_at() {
    let folder = raid5();
    let held = std::fs::File::open(folder.path("a")).expect("it is there");
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive)
        .expect("no other process has it");
    folder.braid_changing_nothing("examine a b c").done();
}

#[test]
fn a_name_from_a_disk_cannot_steer_the_terminal() {
    let folder = Folder::new();
    folder.files(&["a"]);
    crate::create_kit::write_ext(&folder, "a", "\u{1b}[2Jx");
    let seen = folder.braid("examine a");
    assert!(!seen.out.contains('\u{1b}') && seen.out.contains("\\u{1b}"), "{seen:?}");
}

/// Regression: `examine` said that a dirty RAID-5 can lose 1 more member. After the loss all chunks
/// of the lost member were unreadable, and the next start was refused.
#[test]
fn a_dirty_array_is_not_said_to_bear_what_it_does_not() {
    for (level, members, can_lose, doubt, words) in [
        ("5", "a b c", 0, "parity_in_doubt", "cannot lose a member until its parity is resynced"),
        ("6", "a b c d", 0, "parity_in_doubt", "cannot lose a member until its parity is resynced"),
        ("1", "a b c", 2, "copies_in_doubt", "can lose 2 more members; its copies may differ"),
    ] {
        let folder = Folder::new();
        let create = format!("create tank --level {level} --member-size 8M {members}");
        folder.braid(&create).done();
        members.split(' ').for_each(|name| update(&folder, name, |one| one.resync_offset = 0));
        let seen = folder.braid_changing_nothing(&format!("examine {members}"));
        assert_eq!(seen.exit, 3);
        seen.says("tank  dirty").says(words);
        let seen = folder.braid_changing_nothing(&format!("examine --json {members}")).json();
        let array = &seen["array"];
        assert_eq!(array["can_lose"], can_lose, "{array}");
        for name in ["parity_in_doubt", "copies_in_doubt"] {
            assert_eq!(array[name], name == doubt, "{array}");
        }
    }
}
