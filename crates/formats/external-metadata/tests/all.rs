//! Reads metadata that mdadm wrote (`oracle/containers`), and the same bytes damaged.

use std::path::Path;

use braid_external_metadata::{Array, Kind, Label, ScannedDisk, State, gather, look};
use braid_geometry::Level;

#[allow(dead_code, unreachable_pub, reason = "shared by path; each user needs a part")]
#[path = "../../../../oracle/fixture.rs"]
mod fixture;
#[allow(dead_code, unreachable_pub, reason = "shared by path; each user needs a part")]
#[path = "../../../../oracle/pattern.rs"]
mod pattern;

use fixture::Fixture;

fn all() -> Vec<(String, Fixture)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../oracle/containers");
    let all = Fixture::all(&folder).expect("fixtures");
    assert!(all.len() >= 20, "{}", all.len());
    all
}

fn of(name: &str) -> Fixture {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../oracle/containers");
    Fixture::load(&folder, &format!("container-{name}")).expect("a fixture")
}

fn label_of(image: &[u8]) -> Option<Result<Label, braid_external_metadata::Damage>> {
    let mut read = |offset: u64, length: usize| {
        let start = usize::try_from(offset).ok()?;
        Some(image.get(start..start.checked_add(length)?)?.to_vec())
    };
    look(image.len() as u64, &mut read)
}

fn labels(fixture: &Fixture) -> Vec<Label> {
    let images = (0..fixture.members.len()).map(|member| fixture.image(member));
    images.map(|image| label_of(&image).expect("metadata").expect("sound")).collect()
}

/// The volumes of disks with these labels. Disk N has the guest's serial number for it, unless N is
/// in `nameless`.
fn arrays(labels: &[Label], nameless: &[usize]) -> Vec<Array> {
    let serials: Vec<String> = (0..labels.len()).map(|it| format!("/dev/loop{it}")).collect();
    let scanned =
        labels.iter().zip(&serials).enumerate().map(|(disk, (label, serial))| ScannedDisk {
            label: Some(label),
            serial: Some(serial.as_str())
                .filter(|_| label.kind == Kind::Imsm && !nameless.contains(&disk)),
        });
    gather(&scanned.collect::<Vec<_>>())
}

fn md_level(level: Level) -> String {
    level.md_number().to_string()
}

#[test]
fn volumes_are_what_md_ran() {
    for (name, fixture) in all() {
        let found = arrays(&labels(&fixture), &[]);
        let told: Vec<(&String, &String)> =
            fixture.facts.iter().filter(|(word, _)| word.starts_with("volume.")).collect();
        assert_eq!(found.len(), told.len(), "{name}");
        for (_, fact) in told {
            let words: Vec<&str> = fact.split(' ').collect();
            let array = found.iter().find(|array| array.name == words[0]).expect("the volume");
            let (level, layout, chunk) = array.shape.clone().expect("a shape");
            assert_eq!(md_level(level), words[1], "{name}");
            if !matches!(level, Level::Raid0 | Level::Raid1) {
                assert_eq!(layout.to_string(), words[2], "{name}");
            }
            assert_eq!(chunk, if level == Level::Raid1 { 0 } else { 128 }, "{name}");
            let sound = array.occupants.iter().filter(|occupant| !occupant.is_stale).count();
            assert!(sound >= array.slots.len() - 1, "{name}: {array:?}");
        }
    }
}

#[test]
fn what_was_going_on_is_told() {
    let state = |name: &str| arrays(&labels(&of(name)), &[])[0].state;
    assert_eq!(state("imsm-raid5-3"), State::Clean);
    assert_eq!(state("imsm-raid5-dirty"), State::Dirty);
    assert_eq!(state("imsm-raid5-initialising"), State::Syncing);
    assert_eq!(state("imsm-raid5-rebuilding"), State::Rebuilding);
    assert_eq!(state("ddf-raid5-la"), State::Clean);
    assert_eq!(state("ddf-raid5-dirty"), State::Dirty);
}

#[test]
fn an_older_disk_is_stale_wherever_it_stands_in_the_line() {
    for name in ["imsm-raid5-stale", "ddf-raid5-stale"] {
        let sound = labels(&of(name));
        for turn in 0..sound.len() {
            let mut order: Vec<usize> = (0..sound.len()).collect();
            order.rotate_left(turn);
            let serials: Vec<String> = order.iter().map(|it| format!("/dev/loop{it}")).collect();
            let scanned = order.iter().zip(&serials).map(|(disk, serial)| ScannedDisk {
                label: Some(&sound[*disk]),
                serial: Some(serial.as_str()).filter(|_| name.starts_with("imsm")),
            });
            let found = gather(&scanned.collect::<Vec<_>>());
            let stale: Vec<usize> = found[0]
                .occupants
                .iter()
                .filter(|occupant| occupant.is_stale)
                .map(|occupant| order[occupant.disk])
                .collect();
            assert_eq!(stale, [1], "{name}: {found:?}");
            let slot =
                found[0].occupants.iter().find(|occupant| occupant.is_stale).expect("one").slot;
            assert!(found[0].slots[slot].is_incomplete, "{name}: {found:?}");
        }
    }
}

#[test]
fn a_disk_that_is_rebuilt_holds_nothing_yet() {
    let found = arrays(&labels(&of("imsm-raid5-rebuilding")), &[]);
    let of_disk =
        |disk: usize| found[0].occupants.iter().find(|occupant| occupant.disk == disk).expect("it");
    // Disk 1 is the failed one, disk 3 the spare that replaces it.
    assert!(of_disk(1).is_stale && !of_disk(3).is_stale, "{found:?}");
    assert_eq!(of_disk(1).slot, of_disk(3).slot);
    assert!(found[0].slots[of_disk(3).slot].is_incomplete, "{found:?}");
}

#[test]
fn the_last_disk_needs_no_serial() {
    let sound = labels(&of("imsm-raid5-3"));
    let all = arrays(&sound, &[]);
    for nameless in 0..3 {
        let mut without = arrays(&sound, &[nameless]);
        assert!(without[0].unknown.is_empty());
        without[0].occupants.sort_by_key(|occupant| occupant.disk);
        let mut occupants = all[0].occupants.clone();
        occupants.sort_by_key(|occupant| occupant.disk);
        assert_eq!(without[0].occupants, occupants);
    }
    let two = arrays(&sound, &[0, 1]);
    assert_eq!((two[0].unknown.as_slice(), two[0].occupants.len()), (&[0, 1][..], 1));
    // In a mirror the identity of a disk does not matter.
    let mirror = labels(&of("imsm-raid1-raid0"));
    let found = arrays(&mirror, &[0, 1]);
    let of_level = |level| {
        found.iter().find(|array| matches!(array.shape, Ok((it, ..)) if it == level)).expect("it")
    };
    assert_eq!(of_level(Level::Raid1).occupants.len(), 2);
    assert!(of_level(Level::Raid1).unknown.is_empty());
    assert_eq!(of_level(Level::Raid0).unknown, [0, 1]);
}

#[test]
fn a_spare_that_nobody_knows_is_not_taken_for_half_a_mirror() {
    // mdadm gives the spare a table of its own, so the remaining disks are the mirror's halves.
    let sound = labels(&of("imsm-spare"));
    for nameless in [&[0, 1, 2][..], &[0, 2], &[1, 2], &[2]] {
        let found = arrays(&sound, nameless);
        let mut seated: Vec<usize> =
            found[0].occupants.iter().map(|occupant| occupant.disk).collect();
        seated.sort_unstable();
        assert_eq!(seated, [0, 1], "{found:?}");
    }
    // Firmware may give a spare the same table as the others.
    let mut same = vec![sound[0].clone(), sound[0].clone(), sound[0].clone()];
    for label in &mut same {
        let spare = braid_external_metadata::DiskEntry {
            identity: "/dev/loop2".to_owned(),
            is_spare: true,
            has_failed: false,
            is_rebuilding: false,
        };
        label.disks.push(spare);
    }
    for nameless in [&[0, 1, 2][..], &[0, 2], &[1, 2], &[0, 1]] {
        let found = arrays(&same, nameless);
        let sure: Vec<usize> = (0..2).filter(|disk| !nameless.contains(disk)).collect();
        let seated: Vec<usize> = found[0].occupants.iter().map(|occupant| occupant.disk).collect();
        assert_eq!(seated, sure, "{found:?}");
        assert_eq!(found[0].unknown, nameless);
    }
    // The only disk without a known serial number gets the only free identity.
    let found = arrays(&same, &[2]);
    assert!(
        found[0].unknown.is_empty() && found[0].occupants.iter().all(|occupant| occupant.disk != 2)
    );
}

#[test]
fn a_flipped_bit_is_noticed() {
    // IMSM has one copy of its metadata: every bit of its anchor counts.
    let mut image = of("imsm-raid10-raid5").image(0);
    let anchor = image.len() - 1024;
    for bit in 0..512 * 8 {
        image[anchor + bit / 8] ^= 1 << (bit % 8);
        assert!(!matches!(label_of(&image), Some(Ok(_))), "bit {bit} of the anchor");
        image[anchor + bit / 8] ^= 1 << (bit % 8);
    }
    // DDF has two copies of its metadata: the other copy gives the same label, or the label is
    // damaged.
    let fixture = of("ddf-raid5-raid1");
    let mut image = fixture.image(0);
    let sound = label_of(&image).expect("metadata").expect("sound");
    let mut random = fastrand::Rng::with_seed(18);
    let raw = fixture.members[0].raw.iter();
    let bytes: Vec<usize> = raw
        .flat_map(|(at, raw)| {
            let at = usize::try_from(*at).expect("small");
            at..at + raw.len()
        })
        .collect();
    for _ in 0..400 {
        let (at, bit) = (bytes[random.usize(..bytes.len())], 1u8 << random.u8(..8));
        image[at] ^= bit;
        if let Some(Ok(label)) = label_of(&image) {
            let is_kept = |label: &Label| label.records.iter().all(|it| sound.records.contains(it));
            assert!(is_kept(&label), "a flip at {at} changes a volume");
        }
        image[at] ^= bit;
    }
    // If both copies are damaged, the label is damaged.
    for header in [96, 104] {
        let at = image.len() - 512 + header;
        let sector = u64::from_be_bytes(*image[at..].first_chunk().expect("a place"));
        image[usize::try_from(sector * 512).expect("small") + 50] ^= 1;
    }
    assert!(matches!(label_of(&image), Some(Err(_))));
}

#[test]
fn nobody_is_in_two_slots() {
    let mut random = fastrand::Rng::with_seed(7);
    let everything: Vec<Vec<Label>> = all().iter().map(|(_, fixture)| labels(fixture)).collect();
    for _ in 0..2000 {
        // Disks of several containers, some twice, with unknown or wrong serial numbers.
        let mut chosen: Vec<(Label, Option<String>)> = Vec::new();
        for _ in 0..random.usize(1..7) {
            let container = &everything[random.usize(..everything.len())];
            let mut label = container[random.usize(..container.len())].clone();
            label.generation = label.generation.wrapping_add(random.u64(..2));
            if random.bool() {
                label.own = None;
            }
            let serial = format!("/dev/loop{}", random.u8(..6));
            chosen.push((label, Some(serial).filter(|_| random.bool())));
        }
        let scanned: Vec<ScannedDisk<'_>> = chosen
            .iter()
            .map(|(label, serial)| ScannedDisk { label: Some(label), serial: serial.as_deref() })
            .collect();
        for array in gather(&scanned) {
            for occupant in &array.occupants {
                assert!(
                    occupant.slot < array.slots.len() && occupant.disk < scanned.len(),
                    "{array:?}"
                );
                let same = array.occupants.iter().filter(|other| other.disk == occupant.disk);
                assert_eq!(same.count(), 1, "{array:?}");
                assert!(!array.unknown.contains(&occupant.disk), "{array:?}");
            }
        }
    }
}
