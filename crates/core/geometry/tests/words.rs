//! Words for levels and layouts: those that mdadm accepts, and those that `mdadm --examine` 4.2
//! prints.

use crate::support::{RAID5_LAYOUTS, RAID6_LAYOUTS};
use braid_geometry::{
    Family, GeometryError, Level, Slot, default_layout, layout_name, parse_layout,
};

#[test]
fn levels_come_back_from_number_and_name() {
    for level in Level::ALL {
        assert_eq!(Level::from_md(level.md_number()), Some(level));
        assert_eq!(level.to_string().parse(), Ok(level));
    }
    for number in (-1000..1000).filter(|n| ![-1, 0, 1, 4, 5, 6, 10].contains(n)) {
        assert_eq!(Level::from_md(number), None);
    }
    let words = ["0", "stripe", "1", "mirror", "4", "5", "6", "10", "linear"];
    let numbers = words.map(|word| word.parse::<Level>().unwrap().md_number());
    assert_eq!(numbers, [0, 0, 1, 1, 4, 5, 6, 10, -1]);
    for word in ["", "7", "raid", "raid05", "RAID5", " 5", "-1", "multipath"] {
        assert_eq!(word.parse::<Level>(), Err(GeometryError::LevelWordUnknown), "{word:?}");
    }
}

#[test]
fn families() {
    let families = Level::ALL.map(|level| level.family().to_string());
    let expected = ["direct", "direct", "mirror", "stripe", "stripe", "stripe", "mirror"];
    assert_eq!(families, expected);
    assert_eq!(Level::Raid10.family(), Family::Mirror);
    assert_eq!(format!("[{:>8}] [{:<3}]", Level::Raid5, Slot(7)), "[   raid5] [7  ]");
}

#[test]
fn parity_layout_words_and_numbers() {
    let shared = [
        ("left-asymmetric", 0),
        ("right-asymmetric", 1),
        ("left-symmetric", 2),
        ("right-symmetric", 3),
        ("parity-first", 4),
        ("parity-last", 5),
    ];
    let raid6 = [
        ("ddf-zero-restart", 8),
        ("ddf-N-restart", 9),
        ("ddf-N-continue", 10),
        ("left-asymmetric-6", 16),
        ("right-asymmetric-6", 17),
        ("left-symmetric-6", 18),
        ("right-symmetric-6", 19),
        ("parity-first-6", 20),
    ];
    for (word, number) in shared {
        for level in [Level::Raid5, Level::Raid6] {
            assert_eq!(parse_layout(level, word), Ok(number));
            assert_eq!(layout_name(level, number).as_deref(), Some(word));
        }
    }
    for (word, number) in raid6 {
        assert_eq!(parse_layout(Level::Raid6, word), Ok(number));
        assert_eq!(layout_name(Level::Raid6, number).as_deref(), Some(word));
        assert_eq!(layout_name(Level::Raid5, number), None);
    }
    for level in [Level::Raid5, Level::Raid6] {
        let short = ["la", "ra", "ls", "rs", "default"].map(|word| parse_layout(level, word));
        assert_eq!(short, [Ok(0), Ok(1), Ok(2), Ok(3), Ok(2)]);
    }
    let ddf = ["ddf-zero-restart", "ddf-N-restart", "ddf-N-continue"];
    assert_eq!(ddf.map(|word| parse_layout(Level::Raid5, word)), [Ok(1), Ok(0), Ok(2)]);
}

#[test]
fn numbers_without_a_name() {
    for number in 0..64 {
        let (raid5, raid6) = (layout_name(Level::Raid5, number), layout_name(Level::Raid6, number));
        assert_eq!(raid5.is_some(), RAID5_LAYOUTS.contains(&number));
        assert_eq!(raid6.is_some(), RAID6_LAYOUTS.contains(&number));
    }
}

#[test]
fn raid10_layout_words_and_names() {
    let table = [
        ("n2", 0x102, "near=2"),
        ("n3", 0x103, "near=3"),
        ("f2", 0x201, "far=2"),
        ("f3", 0x301, "far=3"),
        ("o2", 0x1_0201, "offset=2"),
        ("o200", 0x1_c801, "offset=200"),
    ];
    for (word, number, name) in table {
        assert_eq!(parse_layout(Level::Raid10, word), Ok(number));
        assert_eq!(layout_name(Level::Raid10, number).as_deref(), Some(name));
    }
    let name = |number| layout_name(Level::Raid10, number).unwrap();
    assert_eq!(name(0x202), "near=2, far=2");
    assert_eq!(name(0x1_0202), "near=2, offset=2");
    assert_eq!(name(0x101), "NO REDUNDANCY");
    let bad =
        ["", "n", "2", "n0", "n201", "n+2", "n 2", "x2", "near=2", "n2f2", "é2", "n99999999999"];
    for word in bad {
        let error = GeometryError::LayoutWordUnknown { level: Level::Raid10 };
        assert_eq!(parse_layout(Level::Raid10, word), Err(error), "{word:?}");
    }
}

#[test]
fn raid0_layout_words_and_names() {
    let words = ["original", "alternate", "1", "2", "dangerous", "default"];
    let numbers = words.map(|word| parse_layout(Level::Raid0, word).unwrap());
    assert_eq!(numbers, [1, 2, 1, 2, 0, 1]);
    let names = [0, 1, 2, 3].map(|number| layout_name(Level::Raid0, number));
    let names = names.each_ref().map(|name| name.as_deref());
    assert_eq!(names, [Some("dangerous"), Some("original"), Some("alternate"), None]);
}

#[test]
fn levels_without_layouts() {
    for level in [Level::Linear, Level::Raid1, Level::Raid4] {
        assert_eq!(parse_layout(level, "default"), Ok(0));
        let error = GeometryError::LayoutWordUnknown { level };
        assert_eq!(parse_layout(level, "left-symmetric"), Err(error));
        assert_eq!(layout_name(level, 0), None);
    }
    assert_eq!(
        GeometryError::LayoutWordUnknown { level: Level::Raid1 }.to_string(),
        "not a layout of raid1"
    );
}

#[test]
fn defaults_are_layouts() {
    let defaults = Level::ALL.map(default_layout);
    assert_eq!(defaults, [0, 1, 0, 0, 2, 2, 0x102]);
}
