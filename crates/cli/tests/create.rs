//! `braid create` makes arrays that braid and mdadm read as requested.

use crate::create_kit::{Folder, MEMBER, MEMBER_BYTES};

/// An array to make, and the expected result of `create`.
type Case = (&'static str, &'static str, &'static str, u64, &'static str, Option<&'static str>);

/// Level, further options, members, capacity in data members, mdadm's level and layout.
const LEVELS: [Case; 14] = [
    ("linear", "", "a b", 2, "linear", None),
    ("linear", "--chunk 64K", "a b c", 3, "linear", None),
    ("0", "", "a b c", 3, "raid0", None),
    ("0", "--layout alternate --chunk 12K", "a b", 2, "raid0", None),
    ("1", "", "a b", 1, "raid1", None),
    ("4", "--chunk 16K", "a b c", 2, "raid4", None),
    ("5", "", "a b c", 2, "raid5", Some("left-symmetric")),
    ("5", "--layout ra --chunk 64K", "a b c d", 3, "raid5", Some("right-asymmetric")),
    ("6", "", "a b c d", 2, "raid6", Some("left-symmetric")),
    ("6", "--layout ddf-N-continue --chunk 4K", "a b c d e", 3, "raid6", Some("ddf-N-continue")),
    ("10", "", "a b c d", 2, "raid10", Some("near=2")),
    ("10", "--layout f2 --chunk 64K", "a b", 1, "raid10", Some("far=2")),
    ("10", "--layout o2 --chunk 64K", "a b c d", 2, "raid10", Some("offset=2")),
    ("10", "--layout n3 --chunk 64K", "a b c", 1, "raid10", Some("near=3")),
];

#[test]
fn every_level_reads_back_in_braid_and_in_mdadm() {
    for (index, (level, options, members, data, mdadm_level, layout)) in
        LEVELS.into_iter().enumerate()
    {
        let folder = Folder::new();
        let metadata = ["1.0", "1.1", "1.2"][index % 3];
        let made = folder
            .braid(&format!(
                "create tank --level {level} {options} --metadata {metadata} --member-size {MEMBER} --json {members}"
            ))
            .done()
            .json();
        let array = &made["array"];
        assert_eq!(array["level"], mdadm_level, "{level}");
        assert_eq!(array["metadata"], metadata);
        let capacity = array["capacity_bytes"].as_u64().expect("a number");
        assert!(
            capacity <= data * MEMBER_BYTES && capacity >= data * (MEMBER_BYTES / 2),
            "{level}: {capacity}"
        );
        let seen = folder.braid(&format!("examine --json {members}"));
        assert_eq!(seen.exit, 0, "{level} {options}: {seen:?}");
        let seen = seen.json();
        assert_eq!(seen["array"]["state"], "clean");
        assert_eq!(seen["array"]["capacity_bytes"], capacity);
        assert_eq!(seen["array"]["uuid"], array["uuid"]);
        assert_eq!(seen["array"]["can_lose"], array["can_lose"]);
        let Some(theirs) = folder.mdadm("b") else { continue };
        assert_eq!(theirs["Raid Level"], mdadm_level);
        assert_eq!(theirs["Array UUID"], array["uuid"].as_str().expect("a text"));
        assert_eq!(theirs["Name"], "tank");
        assert_eq!(theirs["State"], "clean");
        assert_eq!(theirs["Device Role"], "Active device 1");
        assert!(theirs["Checksum"].ends_with("correct"));
        assert_eq!(
            theirs.get("Layout").map(String::as_str),
            layout.or(raid0_layout(level, options))
        );
    }
}

fn raid0_layout(level: &str, options: &str) -> Option<&'static str> {
    let name = if options.contains("alternate") { "alternate" } else { "original" };
    (level == "0").then_some(name)
}

#[test]
fn the_text_says_what_was_made_and_what_is_next() {
    let folder = Folder::new();
    folder
        .braid("create tank --level 6 --member-size 64M a b c d e f")
        .done()
        .says("RAID-6, 6 members, 4 data + 2 parity, chunk 512K, layout left-symmetric, md 1.2")
        .says("248 MiB usable of 384 MiB")
        .says("6 new files of 64 MiB, sparse")
        .says("Next:  braid serve a b c d e f");
}

#[test]
fn a_plan_writes_nothing_and_its_command_does_it() {
    let folder = Folder::new();
    folder.files(&["b"]);
    let plan = folder
        .braid_changing_nothing("create tank -l 1 -n --member-size 8M a b")
        .done()
        .says("Plan (nothing has been written)");
    let command = plan.out.lines().last().expect("a command").trim().to_string();
    folder.braid(command.strip_prefix("braid ").expect("our command")).done().says("Created tank");
    let json = folder.braid_changing_nothing("create other -l 1 -n --json --member-size 8M c d");
    let json = json.done().json();
    assert_eq!((json["dry_run"].as_bool(), json["array"]["uuid"].is_null()), (Some(true), true));
}

#[test]
fn the_last_members_are_spares() {
    let folder = Folder::new();
    let made =
        folder.braid("create tank -l 5 --spare 2 --member-size 8M --json a b c d e").done().json();
    assert_eq!(made["array"]["slots"], 3);
    assert_eq!(made["members"][3]["role"], "spare");
    let seen = folder.braid("examine --json a b c d e");
    assert_eq!((seen.exit, &seen.json()["array"]["spares"]), (0, &2.into()));
    assert_eq!(seen.json()["members"][4]["verdict"]["code"], "spare");
    if let Some(theirs) = folder.mdadm("e") {
        assert_eq!(theirs["Device Role"], "spare");
        assert!(theirs["Array State"].starts_with("AAA "), "{theirs:?}");
    }
}

#[test]
fn an_array_may_begin_with_a_member_missing() {
    let folder = Folder::new();
    let made = folder.braid("create tank -l 6 --member-size 8M a missing c d").done();
    made.says("degraded from the start: slot 1 is missing").says("braid serve a c d");
    let seen = folder.braid("examine --json a c d");
    let array = &seen.json()["array"];
    assert_eq!(
        (seen.exit, &array["can_lose"], &array["state"]),
        (3, &1.into(), &"degraded".into())
    );
    if let Some(theirs) = folder.mdadm("c") {
        assert_eq!(theirs["Device Role"], "Active device 2");
        assert!(theirs["Array State"].starts_with("A.AA"), "{theirs:?}");
    }
}

#[test]
fn the_smallest_member_decides_and_the_rest_is_said_to_be_unused() {
    let folder = Folder::new();
    folder.file("large", 12 << 20);
    let made = folder.braid("create tank -l 1 --member-size 8M large small");
    let made = made.done().says("4 MiB on large; small is the smallest with 8 MiB");
    assert!(made.out.contains("1 new file of 8 MiB"), "{made:?}");
    assert_eq!(folder.read("large", 0, 1).len(), 1, "it keeps its size");
    assert_eq!(std::fs::metadata(folder.path("large")).expect("it is there").len(), 12 << 20);
}

#[test]
fn members_that_hold_unknown_bytes_are_not_called_in_sync() {
    let folder = Folder::new();
    folder.files(&["a", "b", "c"]);
    folder.braid("create tank -l 5 a b c").done().says("redundancy is not right until");
    let seen = folder.braid("examine --json a b c");
    assert_eq!((seen.exit, &seen.json()["array"]["resync_offset_sectors"]), (3, &0.into()));
    if let Some(theirs) = folder.mdadm("a") {
        assert_eq!(theirs["State"], "active", "as mdadm writes it without --assume-clean");
    }
}

#[test]
fn zero_makes_redundancy_right_by_writing_zeroes() {
    let folder = Folder::new();
    folder.files(&["a", "b", "c"]);
    for name in ["a", "b", "c"] {
        folder.write(name, 0, &vec![0xab; 8 << 20]);
    }
    let made = folder.braid("create tank -l 5 --zero --destroy data --json a b c").done().json();
    assert_eq!(made["array"]["sync"], "zeroed");
    let start = made["members"][0]["data_offset_bytes"].as_u64().expect("a number");
    let length = made["array"]["member_size_bytes"].as_u64().expect("a number");
    for name in ["a", "b", "c"] {
        let data = folder.read(name, start, usize::try_from(length).expect("small"));
        assert!(data.iter().all(|byte| *byte == 0));
        assert_eq!(folder.read(name, 1000, 1), [0xab], "only the data area was zeroed");
    }
    assert_eq!(folder.braid("examine a b c").exit, 0);
}

#[test]
fn assume_clean_is_taken_at_its_word() {
    let folder = Folder::new();
    folder.files(&["a", "b"]);
    folder.write("a", 4 << 20, &[7; 4096]);
    folder.braid("create tank -l 1 --assume-clean a b").done().says("assumed to be in sync");
    assert_eq!(folder.braid("examine a b").exit, 0);
    assert_eq!(folder.read("a", 4 << 20, 4096), [7; 4096], "the contents stay");
}

#[test]
fn without_redundancy_left_there_is_nothing_to_bring_in_sync() {
    let folder = Folder::new();
    folder.files(&["a", "b", "c", "d"]);
    let made = folder.braid("create tank -l 5 --json a missing b").done().json();
    assert_eq!(made["array"]["sync"], "no-redundancy");
    // With only one of raid6's two parities left, a wrong parity would go unnoticed.
    folder
        .braid_changing_nothing("create tank6 -l 6 c missing d x --member-size 8M")
        .refused("B031", 12)
        .says("--zero");
    folder.braid("create tank6 -l 6 --zero c missing d x --member-size 8M").done();
}
