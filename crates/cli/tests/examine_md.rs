//! `braid examine` on arrays of the kernel's md: it reports the same as md.

use std::fs;
use std::path::Path;

use crate::create_kit::Folder;
use crate::fixture::Fixture;
use serde_json::Value;

fn fixtures() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle/fixtures")
}

/// Unpacks a fixture's array into a folder; also returns its members' names.
fn unpack(name: &str) -> (Folder, Fixture, String) {
    let folder = Folder::new();
    let array = Fixture::load(&fixtures(), name).expect("a fixture");
    let names: Vec<String> = (0..array.members.len()).map(|index| format!("m{index}")).collect();
    for (index, name) in names.iter().enumerate() {
        fs::write(folder.path(name), array.image(index)).expect("written");
    }
    (folder, array, names.join(" "))
}

#[test]
fn healthy_arrays_are_described_as_md_described_them() {
    let mut names: Vec<String> = fs::read_dir(fixtures())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter_map(|name| name.strip_suffix(".txt").map(String::from))
        .filter(|name| !name.starts_with("state-"))
        // Far sets, and raid0 without a layout, are refused by name; other tests below check that.
        .filter(|name| !name.contains("-sets") && !name.contains("-default"))
        .collect();
    names.sort();
    assert!(names.len() > 40, "{}", names.len());
    // Every third array suffices here: the tests of assembly take all.
    for name in names.iter().step_by(3) {
        let (folder, array, members) = unpack(name);
        let seen = folder.braid(&format!("examine --json {members}"));
        assert_eq!((seen.exit, seen.err.as_str()), (0, ""), "{name}: {seen:?}");
        let seen = seen.json();
        let said = &seen["members"][0]["superblocks"][0]["array"];
        assert_eq!(said["level"], array.facts["level"].as_str(), "{name}");
        assert_eq!(said["slots"], array.number("raid_disks"), "{name}");
        if !matches!(array.facts["level"].as_str(), "raid1" | "linear") {
            assert_eq!(said["chunk_bytes"], array.number("chunk_size"), "{name}");
        }
        assert_eq!(seen["array"]["capacity_bytes"], array.number("sectors") * 512, "{name}");
    }
}

#[test]
fn arrays_in_trouble_are_called_that() {
    for (name, exit, code) in [
        ("state-raid1-bitmap", 0, None),
        ("state-raid1-write-mostly", 0, None),
        ("state-raid5-spare", 0, None),
        ("state-raid1-dirty", 3, None),
        ("state-raid1-recovering", 3, None),
        ("state-raid1-bad-blocks", 3, None),
        ("state-raid5-stale", 3, None),
        ("state-raid5-stale-m0.90", 3, None),
        ("state-raid6-stale-twice", 3, None),
        ("state-raid5-dirty-degraded", 3, Some("B031")),
        ("state-raid5-ppl", 0, None),
        ("state-raid5-replacing", 3, None),
        ("raid10-f2-5-m1.2-sets2", 3, Some("B023")),
        ("state-raid5-journal", 3, None),
        ("state-raid5-reshaping", 3, None),
        ("state-raid5-reshaping-stuck", 3, Some("B024")),
    ] {
        let (folder, _, members) = unpack(name);
        let seen = folder.braid(&format!("examine --json {members}"));
        assert_eq!(seen.exit, exit, "{name}: {seen:?}");
        let said = seen.json();
        let expected = code.map_or(Value::Null, Value::from);
        assert_eq!(said["refusal"]["code"], expected, "{name}: {said:#}");
        assert_eq!(folder.braid(&format!("examine {members}")).exit, exit, "{name} as text");
    }
}

#[test]
fn an_array_of_mds_is_not_overwritten_unless_it_is_named() {
    // Metadata 0.90 has no name: the array is named by its UUID.
    let (folder, _, members) = unpack("state-raid5-dirty-m0.90");
    let seen = folder.braid(&format!("examine --json {members}")).json();
    let uuid = &seen["members"][0]["superblocks"][0]["array"]["uuid"];
    let uuid = uuid.as_str().expect("a text").to_string();
    let create = format!("create new --level 1 --metadata 1.1 {members}");
    folder.braid_changing_nothing(&create).refused("B012", 12).says(&uuid);
    folder.braid(&format!("{create} --destroy {uuid}")).done();
    let seen = folder.braid(&format!("examine --json {members}")).json();
    for member in seen["members"].as_array().expect("a list") {
        assert_eq!(member["superblocks"].as_array().map(Vec::len), Some(1));
        assert_eq!(member["superblocks"][0]["version"], "1.1");
    }
}
