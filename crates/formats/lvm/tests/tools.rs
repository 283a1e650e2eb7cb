//! Volumes made by LVM's own tools are at the places that these tools report.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use braid_lvm::{ByteLocation, Shape, groups, physical};
use braid_test_needs::{Need, needs, skip};

use crate::kit::{EXTENT, START, group};
use crate::pools::{device, mapped};

/// Loop devices, detached on drop.
struct Loops(Vec<PathBuf>);

impl Loops {
    fn of(files: &[PathBuf]) -> Option<Self> {
        let mut loops = Self(Vec::new());
        for file in files {
            let ran = Command::new("losetup").args(["-f", "--show"]).arg(file).output().ok()?;
            if !ran.status.success() {
                skip(Need::LoopDevices, "no loop device");
                return None;
            }
            loops.0.push(PathBuf::from(String::from_utf8(ran.stdout).unwrap().trim()));
        }
        Some(loops)
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for device in &self.0 {
            let _ = Command::new("losetup").arg("-d").arg(device).status();
        }
    }
}

/// Runs one of LVM's commands on these devices only, without device-mapper.
fn lvm(loops: &Loops, words: &[&str]) -> String {
    let filter: String =
        loops.0.iter().map(|path| format!("\"a|^{}$|\",", path.display())).collect();
    let config = format!(
        "devices{{use_devicesfile=0 filter=[{filter}\"r|.*|\"]}} backup{{backup=0 archive=0}} global{{event_activation=0}} \
         activation{{udev_sync=0 udev_rules=0 monitoring=0}}"
    );
    let ran = Command::new("lvm")
        .args(words)
        .args(["--driverloaded", "n", "--config", &config])
        .env("LVM_SUPPRESS_FD_WARNINGS", "1")
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    assert!(ran.status.success(), "{words:?}: {ran:?}");
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn what_lvm_made_is_where_it_says() {
    needs!("lvm", "losetup");
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<PathBuf> = ["a", "b", "c"].map(|name| folder.path().join(name)).into();
    for file in &files {
        fs::File::create(file).unwrap().set_len(96 << 20).unwrap();
    }
    let Some(loops) = Loops::of(&files) else { return };
    let paths: Vec<&str> = loops.0.iter().map(|path| path.to_str().unwrap()).collect();
    lvm(&loops, &[&["pvcreate"], &paths[..]].concat());
    lvm(&loops, &[&["vgcreate", "braidtest"], &paths[..]].concat());
    let make = |words: &[&str]| {
        lvm(&loops, &[&["lvcreate", "-an", "-Zn", "-Wn"], words, &["braidtest"]].concat())
    };
    make(&["-n", "one", "-l", "5"]);
    make(&["-n", "two", "-l", "12", "-i", "3", "-I", "64"]);
    make(&["-n", "three", "-l", "30"]);
    lvm(&loops, &["lvextend", "-l", "+4", "braidtest/one"]);
    let said = lvm(
        &loops,
        &[
            "lvs",
            "--noheadings",
            "--separator",
            ";",
            "-o",
            "lv_name,seg_start_pe,seg_size_pe,stripe_size,seg_pe_ranges",
            "--units",
            "b",
            "--nosuffix",
        ],
    );
    let devices: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    let read = |bytes: &Vec<u8>| {
        physical(bytes.len() as u64, &mut crate::kit::read_of(bytes)).unwrap().unwrap()
    };
    let physical: Vec<_> = devices.iter().map(read).collect();
    assert!(physical.iter().all(|one| one.faults.is_empty()));
    let group = groups(&physical).remove(0);
    let mut segments = 0;
    for line in said.lines() {
        let fields: Vec<&str> = line.trim().split(';').collect();
        let [name, start, extents, stripe, ranges] = fields[..] else { panic!("{line}") };
        let number = |text: &str| text.parse::<u64>().unwrap();
        let volume = group.volumes.iter().find(|one| one.name == name).unwrap();
        let Shape::Direct(map) = &volume.shape else { panic!("{volume:?}") };
        let legs: Vec<(usize, u64)> = ranges
            .split_whitespace()
            .map(|range| {
                let (path, extents) = range.rsplit_once(':').unwrap();
                let index = paths.iter().position(|known| *known == path).unwrap();
                (index, number(extents.split('-').next().unwrap()))
            })
            .collect();
        let (extent, stripe) =
            (EXTENT as u64, if legs.len() > 1 { number(stripe) } else { u64::MAX });
        for more in (0..number(extents) * extent).step_by(4096 * 13) {
            let (turn, within) = (more / stripe, more % stripe);
            let leg = legs[usize::try_from(turn).unwrap() % legs.len()];
            let offset = START as u64
                + leg.1 * extent
                + turn / legs.len() as u64 * stripe.min(1 << 40)
                + within;
            let (location, _) = map.at(number(start) * extent + more).unwrap();
            let ByteLocation::On { part, offset_bytes } = location else { panic!("{location:?}") };
            assert_eq!(
                (group.parts[part].device, offset_bytes),
                (Some(leg.0), offset),
                "{name} {more}"
            );
        }
        segments += 1;
    }
    assert!(segments >= 4, "{said}");
}

/// Lets `thin_restore` make a pool's metadata from a description, and returns the metadata's bytes.
fn restored(folder: &Path, description: &str) -> Vec<u8> {
    let (xml, metadata) = (folder.join("xml"), folder.join("metadata"));
    fs::write(&xml, description).unwrap();
    fs::File::create(&metadata).unwrap().set_len(EXTENT as u64).unwrap();
    let ran =
        Command::new("thin_restore").arg("-i").arg(&xml).arg("-o").arg(&metadata).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    fs::read(metadata).unwrap()
}

#[test]
fn what_thin_restore_made_is_where_it_says() {
    needs!("thin_restore");
    let folder = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    // Some of the volume's 48 blocks exist, at random places. Larger volumes give the tree several
    // levels.
    let mut places: Vec<u64> = (0..64).collect();
    random.shuffle(&mut places);
    let blocks: Vec<Option<u64>> =
        (0..48).map(|block| random.bool().then_some(places[block])).collect();
    let mapping = |(block, place): (usize, &Option<u64>)| {
        place.map(|place| {
            format!("<single_mapping origin_block=\"{block}\" data_block=\"{place}\" time=\"1\"/>")
        })
    };
    let of_volume: String = blocks.iter().enumerate().filter_map(mapping).collect();
    let mapped_blocks = blocks.iter().flatten().count();
    let others: String = (0..40_000)
        .map(|block| {
            format!(
                "<single_mapping origin_block=\"{}\" data_block=\"{}\" time=\"0\"/>",
                block * 2,
                64 + block
            )
        })
        .collect();
    let description = format!(
        "<superblock uuid=\"\" time=\"1\" transaction=\"3\" flags=\"0\" version=\"2\" data_block_size=\"128\" nr_data_blocks=\"50000\">\
         <device dev_id=\"2\" mapped_blocks=\"40000\" transaction=\"0\" creation_time=\"0\" snap_time=\"0\">{others}</device>\
         <device dev_id=\"5\" mapped_blocks=\"{mapped_blocks}\" transaction=\"0\" creation_time=\"0\" snap_time=\"1\">{of_volume}</device>\
         </superblock>"
    );
    let metadata = restored(folder.path(), &description);
    let device = device(&metadata, "thin-pool");
    let group = group(std::slice::from_ref(&device));
    let (map, lost) = mapped(&device, &group, 0..3 * EXTENT as u64).unwrap();
    assert_eq!(lost, 0);
    for (block, place) in (0_u64..).zip(&blocks) {
        let expected = match place {
            Some(place) => {
                ByteLocation::On { part: 0, offset_bytes: (START + EXTENT) as u64 + place * 65_536 }
            }
            None => ByteLocation::Zero,
        };
        assert_eq!(map.at(block * 65_536).map(|it| it.0), Some(expected), "{block}");
    }
    // The tree of the other volume has many levels; that tree too must give the places of the
    // description.
    let pool = &group.pools[0];
    let mut read = |_: usize, offset: u64, length: usize| {
        device.get(usize::try_from(offset).unwrap()..)?.get(..length).map(<[u8]>::to_vec)
    };
    let wide = 0..80_000 * 65_536;
    let (map, lost) = braid_lvm::thin::map(pool, (2, wide.end), &wide, &mut read).unwrap();
    assert_eq!(lost, 0);
    for block in 0..80_000_u64 {
        let (location, run) = map.at(block * 65_536).unwrap();
        // This pool's data ends after 256 blocks: blocks that point beyond are lost, not zero.
        assert_eq!(location == ByteLocation::Zero, block % 2 == 1, "{block}");
        assert_eq!(run, 65_536, "{block}");
    }
}
