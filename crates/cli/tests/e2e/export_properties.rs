//! An export's properties, as nbdinfo reports them.

use serde_json::Value;

use crate::jobs::done;
use crate::kit::{
    Array, RAID_0, RAID_1, RAID_5, RAID_6, RAID_10, SUPERBLOCK_BYTES, ServerProcess, Shape, needs,
    ok,
};
use crate::members::{MEMBER_BYTES, assert_whole, blank, filled, text, wait_for_rebuild};

/// Checks every property of an export that nbdinfo reports.
fn look(served: &ServerProcess, data_members: u64, (preferred, description): (u64, &str)) {
    let json = ok("nbdinfo", ["--json", &served.uri]);
    let info: Value = serde_json::from_str(&json).expect("nbdinfo prints JSON");
    assert_eq!(info["protocol"], "newstyle-fixed", "{info}");
    assert_eq!(info["structured"], true, "{info}");
    let export = &info["exports"][0];
    assert_eq!(export["export-size"], served.size_bytes, "{export}");
    // Members have 16 MiB each, of which metadata takes 1 MiB or a little more.
    let most = data_members * (16 << 20);
    assert!((most / 16 * 14..most).contains(&served.size_bytes), "{}", served.size_bytes);
    for flag in [
        "can_cache",
        "can_df",
        "can_fast_zero",
        "can_flush",
        "can_fua",
        "can_multi_conn",
        "can_trim",
        "can_zero",
    ] {
        assert_eq!(export[flag], true, "{flag}: {export}");
    }
    assert_eq!(export["is_read_only"], false, "{export}");
    assert_eq!(export["block_size_minimum"], 1, "{export}");
    assert_eq!(export["block_size_preferred"], preferred, "{export}");
    assert_eq!(export["block_size_maximum"], 64 << 20, "{export}");
    assert_eq!(export["contexts"][0], "base:allocation", "{export}");

    let list: Value = serde_json::from_str(&ok("nbdinfo", ["--list", "--json", &served.uri]))
        .expect("nbdinfo prints JSON");
    let exports = list["exports"].as_array().expect("exports");
    assert_eq!(exports.len(), 1, "{list}");
    assert_eq!(exports[0]["export-name"], "tank", "{list}");
    assert_eq!(exports[0]["export-size"], served.size_bytes, "{list}");
    let told = exports[0]["description"].as_str().expect("a description");
    let (before, state) = description.split_once(", ").expect("level and state");
    assert!(told.starts_with(&format!("{before}, ")) && told.ends_with(state), "{list}");

    let map: Value = serde_json::from_str(&ok("nbdinfo", ["--map", "--json", &served.uri]))
        .expect("nbdinfo prints JSON");
    let extents = map.as_array().expect("extents");
    let ends: Vec<u64> = extents
        .iter()
        .map(|e| e["offset"].as_u64().expect("offset") + e["length"].as_u64().expect("length"))
        .collect();
    assert_eq!(ends.last(), Some(&served.size_bytes), "{map}");
    for (extent, end) in extents[1..].iter().zip(&ends) {
        assert_eq!(extent["offset"], *end, "a gap: {map}");
    }
}

fn look_at_level(shape: Shape, data_members: u64, (preferred, level): (u64, &str)) {
    let array = Array::create(shape);
    let mut served = array.serve();
    look(&served, data_members, (preferred, &format!("{level}, ok")));
    assert_eq!(served.wait_for("assembled")["degraded_slots"], 0);
    served.stop();
    if shape.lost_max > 0 {
        let lost: Vec<usize> = (0..shape.lost_max).collect();
        let mut served = array.serve_with(&[], &array.without(&lost));
        assert_eq!(served.wait_for("assembled")["degraded_slots"], shape.lost_max);
        look(&served, data_members, (preferred, &format!("{level}, degraded")));
        served.stop();
    }
}

#[test]
fn every_level_tells_the_same_healthy_and_degraded() {
    needs!("nbdinfo");
    look_at_level(RAID_0, 3, (4096, "RAID-0 of 3 members"));
    look_at_level(RAID_1, 1, (4096, "RAID-1 of 2 members"));
    // The RAID-5 and the RAID-6 have rows of three chunks of 64 KiB.
    look_at_level(RAID_5, 3, (64 << 10, "RAID-5 of 4 members"));
    look_at_level(RAID_6, 3, (64 << 10, "RAID-6 of 5 members"));
    look_at_level(RAID_10, 2, (4096, "RAID-10 of 4 members"));
}

#[test]
fn the_text_names_what_people_look_for() {
    needs!("nbdinfo");
    let array = Array::create(RAID_5);
    let served = array.serve();
    let text = ok("nbdinfo", [&served.uri]);
    for words in ["can_multi_conn: true", "base:allocation", "block_size_maximum: 67108864"] {
        assert!(text.contains(words), "{words}:\n{text}");
    }
    // The export has the array's name as well as the empty name; another name fails.
    let socket = served.socket.display();
    let named = |name: &str| format!("nbd+unix:///{name}?socket={socket}");
    assert_eq!(ok("nbdinfo", ["--size", &named("tank")]).trim(), served.size_bytes.to_string());
    assert!(!crate::kit::run("nbdinfo", [named("other")]).status.success());
    served.stop();
}

#[test]
fn holes_are_told_and_what_was_just_written_is_none() {
    needs!("nbdinfo", "qemu-io", "qemu-img");
    for shape in [RAID_0, RAID_1, RAID_5, RAID_6, RAID_10] {
        let array = Array::create(shape);
        let served = array.serve();
        ok("qemu-io", ["-f", "raw", "-c", "write -P 5 65536 1048576", &served.uri]);
        let map: Value = serde_json::from_str(&ok("nbdinfo", ["--map", "--json", &served.uri]))
            .expect("nbdinfo prints JSON");
        let extents = map.as_array().expect("extents");
        for extent in extents {
            let at = |name: &str| extent[name].as_u64().expect("a number");
            let is_touched = at("offset") < 65536 + 1048576 && 65536 < at("offset") + at("length");
            assert!(!is_touched || at("type") == 0, "{map}");
        }
        // The export's last extent is a hole and zero.
        assert_eq!(extents.last().expect("one at least")["type"], 3, "{map}");
        let qemu = ok("qemu-img", ["map", "-f", "raw", "--output=json", &served.uri]);
        let qemu: Value = serde_json::from_str(&qemu).expect("qemu-img prints JSON");
        let last = qemu.as_array().and_then(|map| map.last()).expect("one at least").clone();
        assert_eq!((&last["data"], &last["zero"]), (&false.into(), &true.into()), "{qemu}");
        served.stop();
    }
}

#[test]
fn read_only_is_told_and_kept() {
    needs!("nbdinfo", "qemu-io", "nbdcopy");
    let array = Array::create(RAID_5);
    let before: Vec<_> =
        array.members.iter().map(|path| std::fs::read(path).expect("it")).collect();
    let served = array.serve_with(&["--read-only"], &array.members);
    let info: Value =
        serde_json::from_str(&ok("nbdinfo", ["--json", &served.uri])).expect("nbdinfo prints JSON");
    let export = &info["exports"][0];
    assert_eq!(export["is_read_only"], true, "{export}");
    assert_eq!(export["can_trim"], false, "{export}");
    assert_eq!(export["can_zero"], false, "{export}");
    let write = ["-f", "raw", "-c", "write -P 1 0 4096", served.uri.as_str()];
    assert!(!crate::kit::run("qemu-io", write).status.success(), "a write went through");
    assert!(served.read_all(&array).iter().all(|byte| *byte == 0));
    served.stop();
    for (path, before) in array.members.iter().zip(before) {
        assert!(std::fs::read(path).expect("a member") == before, "{path:?} was written");
    }
}

/// Regression: braid refused arrays of Linux 6.19 and later, which record a logical block size.
#[test]
fn an_array_that_says_its_logical_block_is_served_with_it() {
    needs!("nbdinfo", "nbdcopy");
    let array = Array::create(RAID_5);
    for slot in 0..RAID_5.members {
        array.patch_superblock(slot, 224, &4096_u32.to_le_bytes(), true);
    }
    let served = array.serve();
    let json = ok("nbdinfo", ["--json", &served.uri]);
    let info: Value = serde_json::from_str(&json).expect("nbdinfo prints JSON");
    let export = &info["exports"][0];
    assert_eq!(export["block_size_minimum"], 4096, "{export}");
    assert_eq!(export["block_size_preferred"], 64 << 10, "{export}");
    let wanted = filled(&array, &served, 3);
    done(&array, &["fail", "tank", "1"]);
    done(&array, &["remove", "tank", "1"]);
    let new = blank(&array, "new", MEMBER_BYTES);
    done(&array, &["add", "tank", text(&new)]);
    wait_for_rebuild(&array);
    let members = [array.without(&[1]), vec![new]].concat();
    assert_whole(&array, served, &members, &wanted);
    for member in &members {
        let superblock = std::fs::read(member).expect("a member");
        let at = usize::try_from(SUPERBLOCK_BYTES).expect("small") + 224;
        assert_eq!(superblock[at..at + 4], 4096_u32.to_le_bytes(), "{}", member.display());
    }
    let examined = array.braid(&["examine"], &members).stdout;
    assert!(examined.contains("\"logical_block_bytes\":4096"), "{examined}");
}
