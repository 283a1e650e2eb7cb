//! Compares mdadm's places of superblock, data and bad-block log, on members of 20 GiB and 1 TiB,
//! with `braid_ondisk::placement`. The members are sparse files; only metadata is written.

use anyhow::{Context, Result, ensure};
use braid_geometry::Level;
use braid_ondisk::{PlacementRequest, Version, placement};

use super::super::drive::Member;
use super::super::guest::{Case, Ending};
use super::super::report::CaseReport;
use super::super::suite::Bench;
use super::tally::Tally;

const SIZES: [(&str, u64); 2] = [("20G", 20 << 21), ("1T", 1 << 31)];
const VERSIONS: [Version; 3] = [Version::V1_0, Version::V1_1, Version::V1_2];
/// Chunk of the levels that have chunks, in KiB.
const CHUNK_KIB: u32 = 512;
/// Levels, and mdadm's options for an array with the one member.
const LEVELS: [(Level, &str); 3] = [
    (Level::Raid1, "--level=1 --raid-devices=2 --bitmap=none --assume-clean $M1 missing"),
    (Level::Raid10, "--level=10 --raid-devices=2 --bitmap=none --assume-clean $M1 missing"),
    (Level::Raid0, "--level=0 --raid-devices=1 --force $M1"),
];

/// Compares the places for every size, version and level.
pub(super) fn compare(bench: &Bench, tally: &Tally) -> Result<()> {
    let cases = SIZES.into_iter().map(|(word, sectors)| Case {
        name: format!("places-{word}"),
        members: vec![Member::zeros(sectors)],
        script: script(),
    });
    let report = bench.run(cases.collect(), Ending::PowerOff, &bench.folder.join("places"))?;
    for (word, sectors) in SIZES {
        let case = &report.cases[&format!("places-{word}")];
        for (version, (level, _)) in VERSIONS
            .into_iter()
            .flat_map(|version| LEVELS.into_iter().map(move |level| (version, level)))
        {
            let name = format!("places-{word}-{level}-m{version}");
            let placed = case.succeeded().and_then(|()| one(case, sectors, version, level));
            let placed = tally.check(&name, placed).is_some();
            tally.count("placements on large members", usize::from(placed));
        }
    }
    Ok(())
}

fn script() -> String {
    let mut script = String::new();
    for version in VERSIONS {
        for (level, words) in LEVELS {
            let chunk =
                if level == Level::Raid1 { String::new() } else { format!("--chunk={CHUNK_KIB} ") };
            script += &format!(
                "mdadm --create $A --run --metadata={version} --homehost=oracle {chunk}{words}\n\
                 mdadm --stop $A\ntext {level}-{version} mdadm --examine $M1\n\
                 mdadm --zero-superblock $M1\n"
            );
        }
    }
    script
}

fn one(case: &CaseReport, device_sectors: u64, version: Version, level: Level) -> Result<()> {
    let place = placement(&PlacementRequest {
        version,
        device_bytes: device_sectors * 512,
        level,
        chunk_sectors: if level == Level::Raid1 { 0 } else { CHUNK_KIB * 2 },
        member_size_sectors: None,
        data_offset_sectors: None,
    })?;
    let text = case.text(&format!("{level}-{version}"))?;
    let number = |word: &str| -> Result<i64> {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(word)?.strip_prefix(" :"));
        let line = line.with_context(|| format!("mdadm says no {word}:\n{text}"))?;
        let mut numbers = line.split_whitespace().rev().filter_map(|word| word.parse().ok());
        numbers.next().with_context(|| format!("{word} is no number:{line}"))
    };
    let log = place.bad_block_log.context("braid places no bad-block log")?;
    let signed = |sectors: u64| i64::try_from(sectors).context("too large");
    let mut expected = vec![
        ("Super Offset", signed(place.super_offset_sectors)?),
        ("Avail Dev Size", signed(place.data_size_sectors)?),
        ("Bad Block Log", i64::from(log.offset_sectors)),
    ];
    // With 1.0 mdadm does not print the data offset, which is 0.
    if version != Version::V1_0 {
        expected.push(("Data Offset", signed(place.data_offset_sectors)?));
    }
    for (word, ours) in expected {
        let theirs = number(word)?;
        ensure!(ours == theirs, "{word}: mdadm chose {theirs}, braid {ours}");
    }
    let used = number("Used Dev Size").unwrap_or(signed(place.data_size_sectors)?);
    let ours = signed(place.member_size_sectors)?;
    ensure!(ours == 0 || ours == used, "Used Dev Size: mdadm chose {used}, braid {ours}");
    Ok(())
}
