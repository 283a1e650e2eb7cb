//! Intel's containers (IMSM) and DDF, made by mdadm (`oracle/containers`), under `braid rescue`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::kit::{Array, RAID_1, ServerProcess, assert_same, needs};
use crate::members::text;
use crate::reshape::fixture::Fixture;
use crate::reshape::pattern;

struct Container {
    fixture: Fixture,
    /// An array that supplies the test's folder and state folder.
    home: Array,
    disks: Vec<PathBuf>,
}

/// A volume as md reported it while it ran.
struct VolumeFacts {
    number: u8,
    name: String,
    level: String,
    sectors: u64,
}

impl Container {
    fn of(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle/containers");
        let fixture = Fixture::load(&folder, &format!("container-{name}")).expect("a fixture");
        let home = Array::create(RAID_1);
        let disk = |number: usize| {
            let path = home.path(&format!("disk{number}"));
            fs::write(&path, fixture.image(number)).expect("a disk");
            path
        };
        let disks = (0..fixture.members.len()).map(disk).collect();
        Self { fixture, home, disks }
    }

    /// Options that identify the disks of Intel's containers, whose metadata does not.
    fn serials(&self, disks: &[PathBuf]) -> Vec<String> {
        let is_intel = self.fixture.facts["level"] == "imsm";
        let known =
            self.disks.iter().enumerate().filter(|(_, disk)| is_intel && disks.contains(disk));
        known
            .flat_map(|(number, disk)| {
                ["--serial".to_owned(), format!("{}=/dev/loop{number}", text(disk))]
            })
            .collect()
    }

    fn volumes(&self) -> Vec<VolumeFacts> {
        let facts = self.fixture.facts.iter().filter(|(word, _)| word.starts_with("volume."));
        let volume = |(word, fact): (&String, &String)| {
            let words: Vec<&str> = fact.split(' ').collect();
            let [name, level, _, sectors, _] = words[..] else { panic!("{fact}") };
            VolumeFacts {
                number: word.rsplit('.').next().expect("a number").parse().expect("a number"),
                name: name.to_owned(),
                level: level.to_owned(),
                sectors: sectors.parse().expect("sectors"),
            }
        };
        facts.map(volume).collect()
    }

    fn story(&self, words: &[&str], disks: &[PathBuf]) -> Value {
        let serials = self.serials(disks);
        let serials: Vec<&str> = serials.iter().map(String::as_str).collect();
        let ran = self.home.braid(&[&["rescue"], &serials[..], words].concat(), disks);
        assert!(matches!(ran.status.code(), Some(0 | 3 | 10 | 11 | 12 | 13)), "{ran:?}");
        serde_json::from_str(ran.stdout.trim()).expect("one object")
    }

    fn served(&self, words: &[&str], disks: &[PathBuf]) -> ServerProcess {
        let serials = self.serials(disks);
        let serials: Vec<&str> = serials.iter().map(String::as_str).collect();
        ServerProcess::rescued(&self.home, &[words, &serials[..]].concat(), disks)
    }

    fn bytes(&self) -> Vec<Vec<u8>> {
        self.disks.iter().map(|disk| fs::read(disk).expect("a disk")).collect()
    }

    fn without(&self, lost: Option<usize>) -> Vec<PathBuf> {
        let all = self.disks.iter().enumerate();
        all.filter(|(number, _)| Some(*number) != lost).map(|(_, disk)| disk.clone()).collect()
    }
}

/// Sectors with the stamps of a generation.
fn stamped(generation: u8, sectors: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(sectors * 512).expect("small")];
    for (sector, piece) in (0..).zip(bytes.chunks_mut(512)) {
        pattern::repeat(pattern::stamp(generation, sector), piece);
    }
    bytes
}

fn of_volume<'a>(said: &'a Value, name: &str) -> Option<&'a Value> {
    let arrays = said["arrays"].as_array().expect("arrays");
    arrays.iter().find(|array| array["volume"]["volume"] == name)
}

#[test]
fn foreign_containers_are_read_with_each_loss() {
    needs!("nbdcopy");
    let healthy = [
        "imsm-raid1-raid0",
        "imsm-raid0-3",
        "imsm-raid5-3",
        "imsm-raid10-raid5",
        "imsm-spare",
        "ddf-raid0-2",
        "ddf-raid1-2",
        "ddf-raid5-raid1",
        "ddf-raid5-la",
        "ddf-raid5-ra",
        "ddf-raid6-5",
        "ddf-raid6-zero",
        "ddf-raid10-4",
        "ddf-raid10-6",
    ];
    for name in healthy {
        let container = Container::of(name);
        let before = container.bytes();
        let count = container.disks.len();
        for lost in std::iter::once(None).chain((0..count).map(Some)) {
            let mut disks = container.without(lost);
            // The order of the disks does not matter.
            disks.reverse();
            let said = container.story(&[], &disks);
            for volume in container.volumes() {
                let about = format!("{name}, {} without {lost:?}: {said:#}", volume.name);
                let is_readable = |found: &Value| found["readable"] == true;
                let found = of_volume(&said, &volume.name);
                let uses_all = found.is_some_and(|found| {
                    found["degraded_slots"].as_u64().is_some_and(|missing| missing == 0)
                });
                if volume.level == "0" && lost.is_some() {
                    assert!(!found.is_some_and(is_readable), "{about}");
                    continue;
                }
                let found = found.unwrap_or_else(|| panic!("{about}"));
                assert!(is_readable(found), "{about}");
                assert_eq!(found["dirty"], false, "{about}");
                assert_eq!(found["volume"]["size_bytes"], volume.sectors * 512, "{about}");
                assert!(lost.is_some() || uses_all, "{about}");
                let served = container.served(&["--read-only", "--array", &volume.name], &disks);
                let read = served.read_all(&container.home);
                assert_same(&read, &stamped(volume.number, volume.sectors), &about);
                served.stop();
            }
        }
        assert!(before == container.bytes(), "{name}: a disk was written");
    }
}

/// The verdicts on the disks of a container's only array.
fn stands(found: &Value) -> Vec<(String, String)> {
    let word = |value: &Value| value.as_str().expect("text").to_owned();
    let one = |member: &Value| {
        let disk = word(&member["member"]);
        let disk = disk.rsplit('/').next().expect("a name").split('@').next().expect("a disk");
        (disk.to_owned(), word(&member["stand"]))
    };
    found["members"].as_array().expect("members").iter().map(one).collect()
}

#[test]
fn an_older_disk_of_a_foreign_container_is_left_out_and_can_be_believed() {
    needs!("nbdcopy");
    for name in ["imsm-raid5-stale", "ddf-raid5-stale"] {
        let container = Container::of(name);
        // The sectors that were written while disk 1 was away.
        let mut wanted = stamped(1, 12288);
        wanted[..512 * 512].copy_from_slice(&stamped(2, 512));
        for turn in 0..4 {
            let mut disks = container.disks.clone();
            disks.rotate_left(turn);
            let said = container.story(&[], &disks);
            let found = of_volume(&said, "volume1").unwrap_or_else(|| panic!("{said:#}"));
            assert_eq!((&found["degraded_slots"], &found["dirty"]), (&1.into(), &false.into()));
            let of_one = stands(found).into_iter().find(|(disk, _)| disk == "disk1");
            assert_eq!(of_one.expect("it").1, "left-out", "{found:#}");
            let served = container.served(&["--read-only"], &disks);
            assert_same(&served.read_all(&container.home), &wanted, name);
            served.stop();
        }
        // If a sound disk is missing as well, the stale disk is needed, and its old sectors may be
        // anywhere in the volume.
        let said = container.story(&[], &container.without(Some(0)));
        let found = of_volume(&said, "volume1").expect("it");
        let of_one = stands(found).into_iter().find(|(disk, _)| disk == "disk1");
        assert_eq!(of_one.expect("it").1, "believed", "{found:#}");
        assert!(found["stripes_at_risk"].as_u64() > Some(0), "{found:#}");
    }
}

#[test]
fn a_foreign_volume_that_was_being_written_is_not_computed_from() {
    needs!("nbdcopy");
    for name in ["imsm-raid5-dirty", "imsm-raid5-initialising", "ddf-raid5-dirty"] {
        let container = Container::of(name);
        let said = container.story(&[], &container.disks);
        let found = of_volume(&said, "volume1").unwrap_or_else(|| panic!("{said:#}"));
        assert_eq!((&found["dirty"], &found["stripes_at_risk"]), (&true.into(), &0.into()));
        // All disks are present, so no data needs to be computed.
        let served = container.served(&["--read-only"], &container.disks);
        assert_same(&served.read_all(&container.home), &stamped(1, 8192), name);
        served.stop();
        let said = container.story(&[], &container.without(Some(1)));
        let found = of_volume(&said, "volume1").expect("it");
        assert_eq!(found["stripes_at_risk"], 32, "{name}: {found:#}");
    }
}

#[test]
fn a_foreign_disk_that_was_being_rebuilt_is_not_read() {
    needs!("nbdcopy");
    let container = Container::of("imsm-raid5-rebuilding");
    let said = container.story(&[], &container.disks);
    let found = of_volume(&said, "volume1").unwrap_or_else(|| panic!("{said:#}"));
    assert_eq!((&found["readable"], &found["stripes_at_risk"]), (&true.into(), &0.into()));
    let served = container.served(&["--read-only"], &container.disks);
    assert_same(&served.read_all(&container.home), &stamped(1, 8192), "of the others");
    served.stop();
    // If a second disk is missing too, too little redundancy is left, however much was rebuilt.
    let said = container.story(&[], &container.without(Some(0)));
    assert_eq!(of_volume(&said, "volume1").expect("it")["readable"], false, "{said:#}");
}

#[test]
fn what_is_not_mds_is_not_committed() {
    needs!("nbdcopy");
    let container = Container::of("ddf-raid1-2");
    let before = container.bytes();
    let content: Vec<u8> = stamped(9, 4096);
    let served = container.served(&[], &container.disks);
    served.write_all(&container.home, &content);
    served.stop();
    // The write went to the overlay, which the next run finds.
    let served = container.served(&[], &container.disks);
    assert_same(&served.read_all(&container.home), &content, "over the overlay");
    served.stop();
    for words in [&["rescue", "--commit"][..], &["rescue", "--commit", "-n"]] {
        let refused = container.home.refused(words, &container.disks);
        assert_eq!(refused.code, "B109", "{}", refused.json);
        container.home.follow(&refused.json, "Look at it; nothing is written");
    }
    let disk = text(&container.disks[0]).to_owned();
    let refused = container.home.refused(&["rescue", "--fill", &disk], &container.disks);
    assert_eq!(refused.code, "B109", "{}", refused.json);
    assert!(before == container.bytes(), "a disk was written");
    let ran = container.home.braid(&["rescue", "--discard"], &container.disks);
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
}

#[test]
fn a_foreign_mirror_is_read_although_its_disks_seem_to_have_a_table() {
    needs!("nbdcopy");
    let container = Container::of("imsm-raid1-raid0");
    // A partition table at the start of the mirror, and so of both disks, with one partition.
    let mut table = [0u8; 512];
    table[446..462].copy_from_slice(&[0, 0, 2, 0, 0x83, 0, 0, 0, 8, 0, 0, 0, 0xf8, 0x0f, 0, 0]);
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    for disk in &container.disks {
        let file = fs::OpenOptions::new().write(true).open(disk).expect("a disk");
        std::os::unix::fs::FileExt::write_all_at(&file, &table, 0).expect("a table");
    }
    // For this volume the disks' serial numbers are not needed; for the other volume the report
    // asks for them.
    let ran = container.home.braid(&["rescue"], &container.disks);
    let said: Value = serde_json::from_str(ran.stdout.trim()).expect("one object");
    let found = of_volume(&said, "volume1").unwrap_or_else(|| panic!("{said:#}"));
    assert_eq!(found["contents"][0]["export"], "volume1-p1", "{found:#}");
    assert_eq!(found["degraded_slots"], 0, "{found:#}");
    assert!(of_volume(&said, "volume2").is_none(), "{said:#}");
    let notes = said["containers"].to_string();
    assert!(notes.contains("--serial") && notes.contains("/dev/loop1, /dev/loop0"), "{notes}");
    // A number unknown to the metadata is the operator's mistake.
    let wrong = format!("{}=WD-1", text(&container.disks[0]));
    let refused = container.home.refused(&["rescue", "--serial", &wrong], &container.disks);
    assert_eq!(refused.code, "B001", "{}", refused.json);
}

#[test]
fn foreign_metadata_that_is_damaged_says_so() {
    let container = Container::of("imsm-raid5-3");
    let disk = &container.disks[0];
    let mut bytes = fs::read(disk).expect("a disk");
    let anchor = bytes.len() - 1024;
    bytes[anchor + 40] ^= 1;
    fs::write(disk, bytes).expect("a disk");
    let ran = container.home.braid(&["rescue"], &container.disks[..1]);
    assert_eq!(ran.status.code(), Some(10), "{ran:?}");
    assert!(ran.stdout.contains("its checksum is wrong"), "{ran:?}");
}
