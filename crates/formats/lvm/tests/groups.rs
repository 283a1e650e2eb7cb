//! Groups: which text counts, where volumes are, and which input is refused.

use std::time::{Duration, Instant};

use braid_lvm::{ByteLocation, Fault, Map, PhysicalVolume, Shape, UnreadReason, groups, physical};

use crate::kit::{EXTENT, START, group, head, look, read_of, text, uuid, volume};

fn device(letter: char, extents: usize, text: &[u8]) -> Vec<u8> {
    let bytes = START + extents * EXTENT;
    let mut device = head(letter, bytes as u64, text, 512);
    device.resize(bytes, 0);
    device
}

fn direct<'a>(group: &'a braid_lvm::Group, name: &str) -> &'a Map {
    let volume = group.volumes.iter().find(|one| one.name == name).expect("it is there");
    match &volume.shape {
        Shape::Direct(map) | Shape::Copy(map) => map,
        shape => panic!("{name}: {shape:?}"),
    }
}

fn on(part: usize, extent: usize, more: usize) -> ByteLocation {
    ByteLocation::On { part, offset_bytes: (START + extent * EXTENT + more) as u64 }
}

const LINEAR: &str = "stripe_count = 1\nstripes = [\n\"pv0\", 3\n]";
const SECOND: &str = "stripe_count = 1\nstripes = [\"pv1\", 0]";
const STRIPED: &str = "stripe_count = 2\nstripe_size = 128\nstripes = [\"pv0\", 0, \"pv1\", 2]";

#[test]
fn volumes_are_where_their_segments_say() {
    let volumes = [
        volume("home", true, &[(0, 2, "striped", LINEAR), (2, 1, "striped", SECOND)]),
        volume("fast", true, &[(0, 4, "striped", STRIPED)]),
    ]
    .concat();
    let text = text(7, &[('a', 8), ('b', 8)], &volumes);
    let devices = [device('a', 8, &text), device('b', 8, &text)];
    let group = group(&devices);
    assert_eq!((&*group.name, group.sequence, group.extent_bytes), ("vg", 7, EXTENT as u64));
    let (home, fast) = (direct(&group, "home"), direct(&group, "fast"));
    assert_eq!(home.size_bytes(), 3 * EXTENT as u64);
    assert_eq!(home.at(5), Some((on(0, 3, 5), 2 * EXTENT as u64 - 5)));
    assert_eq!(home.at(2 * EXTENT as u64), Some((on(1, 0, 0), EXTENT as u64)));
    assert_eq!(fast.at(65_536 + 7), Some((on(1, 2, 7), 65_536 - 7)));
    assert_eq!(fast.at(2 * 65_536), Some((on(0, 0, 65_536), 65_536)));
    assert_eq!(fast.at(4 * EXTENT as u64 - 1), Some((on(1, 3, EXTENT - 1), 1)));
    // If a part is missing, its bytes are lost, and no other bytes.
    let group = crate::kit::group(&devices[..1]);
    let home = direct(&group, "home");
    assert_eq!(home.at(0).map(|it| it.0), Some(on(0, 3, 0)));
    assert_eq!(home.at(2 * EXTENT as u64), Some((ByteLocation::Lost, EXTENT as u64)));
    assert_eq!(home.parts().1, [1].into());
    assert_eq!(group.parts[1].device, None);
}

/// A part that was away has an older text.
#[test]
fn the_newest_text_counts() {
    let old = text(3, &[('a', 8), ('b', 8)], &volume("old", true, &[(0, 1, "striped", LINEAR)]));
    let new = text(4, &[('a', 8), ('b', 8)], &volume("new", true, &[(0, 1, "striped", LINEAR)]));
    for devices in
        [[device('a', 8, &old), device('b', 8, &new)], [device('a', 8, &new), device('b', 8, &old)]]
    {
        let group = group(&devices);
        assert_eq!(group.volumes.iter().map(|one| &*one.name).collect::<Vec<_>>(), ["new"]);
    }
}

/// The metadata area is a ring: a text may continue at its front.
#[test]
fn a_text_that_goes_round_is_read() {
    let text = text(1, &[('a', 8)], &volume("home", true, &[(0, 2, "striped", LINEAR)]));
    let ring_end = START - 4096;
    for at in [512, 1024, ring_end - 1, ring_end - 100] {
        let found = look(&head('a', 0, &text, at));
        assert_eq!(
            (found.faults, groups(&[look(&head('a', 0, &text, at))]).len()),
            (vec![], 1),
            "{at}"
        );
    }
}

#[test]
fn what_does_not_fit_its_sum_is_not_believed() {
    let text = text(1, &[('a', 8)], &volume("home", true, &[(0, 2, "striped", LINEAR)]));
    let sound = device('a', 8, &text);
    assert_eq!(look(&sound).uuid, uuid('a'));
    let with = |at: usize| {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        physical(bytes.len() as u64, &mut read_of(&bytes))
    };
    assert_eq!(with(512 + 70), Some(Err(Fault::Sum("its label"))));
    let faults = |found: Option<Result<PhysicalVolume, Fault>>| {
        found.expect("a label").expect("sound").faults
    };
    assert_eq!(faults(with(4096 + 41)), [Fault::Sum("its metadata area")]);
    assert_eq!(faults(with(4096 + 512 + 30)), [Fault::Sum("its metadata")]);
    assert_eq!(with(512), None, "no label");
    assert_eq!(physical(100, &mut |_, _| panic!("too small")), None);
}

fn unread(volumes: &str, name: &str) -> UnreadReason {
    let text = text(1, &[('a', 8), ('b', 8)], volumes);
    let group = group(&[device('a', 8, &text), device('b', 8, &text)]);
    let found = group.volumes.into_iter().find(|one| one.name == name).expect("it is there");
    match found.shape {
        Shape::Unsupported(why) => why,
        shape => panic!("{shape:?}"),
    }
}

#[test]
fn what_is_not_followed_is_named() {
    let of = |kind: &str, rest: &str| unread(&volume("x", true, &[(0, 1, kind, rest)]), "x");
    assert_eq!(of("cache", ""), UnreadReason::Cache("cache".into()));
    assert_eq!(of("raid5", ""), UnreadReason::Kind("raid5".into()));
    assert_eq!(
        of("thin", "thin_pool = \"none\"\ndevice_id = 1"),
        UnreadReason::Astray("none".into())
    );
    let snapshot = [
        volume("home", true, &[(0, 1, "striped", LINEAR)]),
        volume("before", true, &[(0, 1, "striped", SECOND)]),
        volume(
            "snapshot0",
            false,
            &[(0, 1, "snapshot", "chunk_size = 8\norigin = \"home\"\ncow_store = \"before\"")],
        ),
    ];
    assert_eq!(unread(&snapshot.concat(), "before"), UnreadReason::Snapshot);
    let text = text(1, &[('a', 8), ('b', 8)], &snapshot.concat());
    let group = group(&[device('a', 8, &text), device('b', 8, &text)]);
    assert_eq!(
        direct(&group, "home").at(0).map(|it| it.0),
        Some(on(0, 3, 0)),
        "the origin is read"
    );
}

/// Of several copies, the first that is present is read.
#[test]
fn copies_are_read_by_the_first_that_is_here() {
    let image = |name: &str, part: &str| {
        volume(
            name,
            false,
            &[(0, 2, "striped", &format!("stripe_count = 1\nstripes = [\"{part}\", 1]"))],
        )
    };
    let volumes = [
        volume(
            "new",
            true,
            &[(0, 2, "raid1", "device_count = 2\nraids = [\"m0\", \"i0\", \"m1\", \"i1\"]")],
        ),
        volume(
            "old",
            true,
            &[(0, 2, "mirror", "mirror_count = 2\nmirrors = [\"i0\", 0, \"i1\", 0]")],
        ),
        image("i0", "pv0"),
        image("i1", "pv1"),
        image("m0", "pv0"),
        image("m1", "pv1"),
    ];
    let text = text(1, &[('a', 8), ('b', 8)], &volumes.concat());
    let devices = [device('a', 8, &text), device('b', 8, &text)];
    for name in ["new", "old"] {
        let both = group(&devices);
        assert!(matches!(
            both.volumes.iter().find(|one| one.name == name).expect("it").shape,
            Shape::Copy(_)
        ));
        assert_eq!(direct(&both, name).at(9), Some((on(0, 1, 9), 2 * EXTENT as u64 - 9)));
        let one = group(&devices[1..]);
        assert_eq!(direct(&one, name).at(9).map(|it| it.0), Some(on(1, 1, 9)));
    }
}

#[test]
fn segments_that_cannot_be_are_refused() {
    let of = |segments: &[(u64, u64, &str, &str)]| unread(&volume("x", true, segments), "x");
    let cases: [&[(u64, u64, &str, &str)]; 9] = [
        &[(1, 1, "striped", LINEAR)],
        &[(0, 2, "striped", LINEAR), (1, 1, "striped", LINEAR)],
        &[(0, 6, "striped", LINEAR)],
        &[(0, u64::MAX, "striped", LINEAR)],
        &[(0, 3, "striped", STRIPED)],
        &[(
            0,
            2,
            "striped",
            "stripe_count = 2\nstripe_size = 0\nstripes = [\"pv0\", 0, \"pv1\", 0]",
        )],
        &[(
            0,
            2,
            "striped",
            "stripe_count = 3\nstripe_size = 8\nstripes = [\"pv0\", 0, \"pv1\", 0]",
        )],
        &[(0, 2, "striped", "")],
        &[],
    ];
    for segments in cases {
        assert!(matches!(of(segments), UnreadReason::Nonsense(_)), "{segments:?}");
    }
    assert_eq!(
        of(&[(0, 1, "striped", "stripe_count = 1\nstripes = [\"pv9\", 0]")]),
        UnreadReason::Astray("pv9".into())
    );
}

/// Volumes on volumes, each referenced several times: the work is exponential without a limit.
#[test]
fn what_leads_in_circles_or_wide_ends() {
    let to = |name: &str| format!("stripe_count = 1\nstripes = [\"{name}\", 0]");
    let circle = [
        volume("a", true, &[(0, 1, "striped", &to("b"))]),
        volume("b", true, &[(0, 1, "striped", &to("a"))]),
    ];
    assert!(matches!(unread(&circle.concat(), "a"), UnreadReason::Astray(_)));
    let wide: String = (0..4000)
        .map(|index| {
            let next = to(&format!("v{}", (index + 1) % 4000));
            let segments: Vec<_> =
                (0..20).map(|start| (start, 1, "striped", next.as_str())).collect();
            volume(&format!("v{index}"), true, &segments)
        })
        .collect();
    let text = text(1, &[('a', 8)], &wide);
    let began = Instant::now();
    let mut device = head('a', 0, b"x", 512);
    // The text is too long for an area of 1 MiB, so the area has 32 MiB.
    let (area, bytes) = (4096_usize, 32_usize << 20);
    device.resize(area + bytes, 0);
    device[area + 512..area + 512 + text.len()].copy_from_slice(&text);
    device[512 + 112..512 + 120].copy_from_slice(&(bytes as u64).to_le_bytes());
    let sum = crate::kit::lvm_sum(&device[512 + 20..1024]);
    device[512 + 16..512 + 20].copy_from_slice(&sum.to_le_bytes());
    for (place, value) in [(32, bytes), (48, text.len())] {
        device[area + place..area + place + 8].copy_from_slice(&(value as u64).to_le_bytes());
    }
    let of_text = crate::kit::lvm_sum(&text);
    device[area + 56..area + 60].copy_from_slice(&of_text.to_le_bytes());
    let sum = crate::kit::lvm_sum(&device[area + 4..area + 512]);
    device[area..area + 4].copy_from_slice(&sum.to_le_bytes());
    let found = look(&device);
    assert_eq!(found.faults, []);
    let group = groups(&[found]).remove(0);
    assert_eq!(group.volumes.len(), 4000);
    assert!(group.volumes.iter().all(|one| matches!(one.shape, Shape::Unsupported(_))));
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}
