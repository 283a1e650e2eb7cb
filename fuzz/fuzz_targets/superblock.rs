//! Probing: md superblocks of every version and all foreign signatures.
//!
//! Input: 8 bytes of device size, 1 byte of flags, then bytes put at the place of one version's
//! superblock. The size is used modulo 2^40, so that the ends of a device are often near its
//! middle. Flag 4 makes the checksum valid first: the fuzzer cannot guess sums, and the checks
//! behind the checksum are the interesting ones. Flag 8 then turns a 0.90 superblock into the other
//! byte order.
//!
//! A superblock in the middle of a reshape splits into two superblocks without a reshape, or gives
//! an error. The sectors on either side of the reshape's position, and those at risk, must be
//! computable from any numbers.
//!
//! An accepted superblock must survive writing, reading back, an update, writing and reading back.
#![no_main]

use braid_assembly::reshape::Reshaping;
use braid_assembly::{Options, ProbedMember, assemble};
use braid_ondisk::{
    Probe, ReshapeSide, Role, Snippet, Superblock, SuperblockUpdate, Timestamp, Version, checksum_v0, checksum_v1,
    probe, probe_ranges, recognise_damaged,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((head, body)) = input.split_first_chunk::<9>() else { return };
    let device_bytes = u64::from_le_bytes(head[..8].try_into().unwrap()) % (1 << 40);
    let version = Version::ALL[usize::from(head[8] & 3)];
    let ranges = probe_ranges(device_bytes);
    assert!(ranges.len() <= 2 && ranges.iter().all(|range| range.end <= device_bytes));
    let mut body = body.to_vec();
    if head[8] & 4 != 0 {
        seal(&mut body, version);
    }
    if head[8] & 8 != 0 && version == Version::V0_90 {
        turn(&mut body);
    }
    let offset = version.super_offset_sectors(device_bytes / 512).unwrap_or(0) * 512;
    let probe = probe(device_bytes, &[Snippet { offset, bytes: body.clone() }]);
    let sound: Vec<Superblock> = probe.superblocks.iter().flatten().cloned().collect();
    // Probing finds the superblock at its own place and at another place, intact or with a flaw.
    for (found_bytes, others) in [(offset, vec![]), (offset + (1 << 20), sound.iter().collect())] {
        if let Some(found) = recognise_damaged(&body, device_bytes, found_bytes, &others) {
            assert!(found.start_bytes <= found_bytes);
            assert_eq!(reread(&found.superblock, found.length_bytes), found.superblock);
        }
    }
    for superblock in sound {
        assert_eq!(reread(&superblock, device_bytes), superblock);
        sides(&superblock, device_bytes);
        let mut updated = superblock;
        updated.apply(&SuperblockUpdate {
            // Reading refuses a count beyond the limit; 2^63 updates do not happen.
            events: (updated.state.events + 1).min(1 << 63),
            update_time: Timestamp { seconds: 1_700_000_000, microseconds: 0 },
            resync_offset: u64::MAX,
            roles: updated.state.roles.clone().into(),
            recovery_offset: updated.device.recovery_offset_sectors,
            is_replacement: false,
            role_of_this: if updated.version.is_v1() { updated.state.role } else { Role::Spare },
        });
        assert_eq!(reread(&updated, device_bytes), updated);
    }
});

fn sides(superblock: &Superblock, device_bytes: u64) {
    for side in ReshapeSide::ALL {
        for moved_sectors in [0, u64::MAX] {
            let Ok(one) = superblock.on_side(side, (moved_sectors, device_bytes)) else { continue };
            assert_eq!(one.reshape, None);
            assert_eq!(reread(&one, device_bytes), one);
        }
    }
    let probe = Probe { superblocks: vec![Ok(superblock.clone())], foreign: Vec::new() };
    let member = ProbedMember {
        label: "m".to_owned(),
        size_bytes: device_bytes,
        identity: "m".to_owned(),
        probe,
        bad_blocks: Ok(Vec::new()),
        bitmap: None,
        ppl: None,
        own_log: None,
        journal: None,
    };
    let members = [member];
    let Some(Ok(reshaping)) = Reshaping::of(&members) else { return };
    assert!(reshaping.done_basis_points() <= 10_000);
    let length: u64 = reshaping.sides().iter().map(|(range, _)| range.end - range.start).sum();
    assert_eq!(length, reshaping.size_sectors);
    let ahead = reshaping.on(ReshapeSide::Before);
    if let Some(risk) = &reshaping.at_risk {
        assert!(ahead.start <= risk.start && risk.end <= ahead.end && !risk.is_empty());
    }
    for side in ReshapeSide::ALL {
        let members = reshaping.members(&members, side);
        let options = Options { read_only: true, ..Options::default() };
        drop(assemble(&members, &options));
    }
}

fn reread(superblock: &Superblock, device_bytes: u64) -> Superblock {
    let snippet = Snippet { offset: superblock.offset_bytes(), bytes: superblock.to_bytes() };
    let mut found = probe(device_bytes, &[snippet]).superblocks;
    assert_eq!(found.len(), 1);
    found.remove(0).expect("what we wrote is sound")
}

/// Reverses each word's bytes, and swaps the halves of 64-bit numbers: the other byte order.
fn turn(body: &mut [u8]) {
    let (words, _) = body.as_chunks_mut::<4>();
    words.iter_mut().for_each(|word| word.reverse());
    for at in [39, 41, 44] {
        if at + 1 < words.len() {
            words.swap(at, at + 1);
        }
    }
}

/// Makes magic and checksum valid.
fn seal(body: &mut Vec<u8>, version: Version) {
    let length = if version.is_v1() { 512 } else { 4096 };
    body.resize(body.len().max(length), 0);
    body[..4].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
    let (at, checksum) =
        if version.is_v1() { (216, checksum_v1(body)) } else { (152, checksum_v0(body)) };
    if let Some(checksum) = checksum {
        body[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
    }
}
