//! Completes a guess with all its evidence, and computes its worth.

use braid_geometry::{Level, default_layout};

use crate::Platter;
use crate::counts::Evidence;
use crate::evidence;
use crate::guess::{Guess, VolumeStart};
use crate::habits;
use crate::scan::Scan;
use crate::sign::{Volume, VolumeKind, Walk};

/// Array sectors where volumes may start without a table: the first sector, and usual starts of
/// partitions.
const STARTS: [u64; 3] = [0, 2048, 63];
/// The most starts of a volume that are tried, including those from tables inside partitions.
const STARTS_MAX: usize = 96;

pub(crate) fn starts_of(volume: &Volume, scan: &Scan) -> Vec<u64> {
    if volume.kind == VolumeKind::Table {
        return vec![0];
    }
    let mut starts = STARTS.to_vec();
    let within =
        scan.starts.iter().flat_map(|outer| scan.starts.iter().map(move |inner| outer + inner));
    for start in scan.starts.iter().copied().chain(within) {
        if !starts.contains(&start) && starts.len() < STARTS_MAX {
            starts.push(start);
        }
    }
    starts
}

/// Collects all evidence for a guess, and finds the starts of the other volumes.
pub(crate) fn judge(guess: &mut Guess, scan: &Scan, members: &[&dyn Platter]) -> Option<()> {
    let geometry = guess.geometry()?;
    guess.starts.truncate(1);
    let main = guess.starts[0];
    for (volume, found) in
        scan.volumes.iter().enumerate().filter(|(volume, _)| *volume != main.volume)
    {
        let explained = |sector| {
            let alone = Guess { starts: vec![VolumeStart { volume, sector }], ..guess.clone() };
            (evidence::explain(&alone, &geometry, scan), sector)
        };
        let tried = starts_of(found, scan).into_iter().map(explained);
        // A volume inside a file has no start that explains its signs, and does not count against
        // the guess.
        let best = tried.max_by_key(|(found, _)| found.weight);
        if let Some((found, sector)) = best
            && found.explained * 2 > found.seen
        {
            guess.starts.push(VolumeStart { volume, sector });
        }
    }
    let found = evidence::explain(guess, &geometry, scan);
    let (Walk { confirmed, refuted }, is_doubted) =
        evidence::predict(guess, &geometry, scan, members);
    let (agreeing, compared) = evidence::compare(guess, &geometry, members);
    let is_cut = guess.starts.iter().any(|start| {
        let end = start.sector.saturating_add(scan.volumes[start.volume].size_sectors);
        end > geometry.capacity_sectors()
    });
    let is_shadowed = evidence::looks_like_parity(guess, &geometry, scan, members);
    guess.evidence = Evidence {
        confirmed,
        refuted,
        agreeing,
        compared,
        is_doubted,
        is_shadowed,
        is_cut,
        ..found
    };
    Some(())
}

/// A guess's worth, in tenths of an address: explained signs, predictions, agreeing redundancy, and
/// how usual the array is.
pub(crate) fn worth(guess: &Guess, members: &[&dyn Platter]) -> i64 {
    let of = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let it = guess.evidence;
    let mut addresses = it.sum();
    if it.disagrees() || it.is_shadowed {
        addresses /= 2;
    }
    let mut different = guess.offsets.clone();
    different.sort_unstable();
    different.dedup();
    // If members have different offsets, more signs are explained by chance.
    addresses -= 2 * of(different.len() - 1);
    let agreement = (it.agreeing * 50).checked_div(it.compared).map_or(0, |part| of(part) - 25);
    // Slots without a member and members without a slot make a guess worth less.
    let assigned = guess.slots.iter().flatten().count();
    let mut plain = agreement - 40 * of(guess.missing()) - 40 * of(members.len() - assigned);
    let smallest = members.iter().map(|member| member.sectors()).min().unwrap_or(0);
    plain += habits::worth(smallest, &guess.offsets, guess.chunk_sectors, &guess.slots);
    plain += if guess.starts.first().is_some_and(|start| start.sector == 0) { 4 } else { 0 };
    plain += if guess.layout == default_layout(guess.level) { 1 } else { 0 };
    // Two members that are each other's parity are usually called a mirror, so RAID-1 gets a point
    // more.
    plain += if guess.level == Level::Raid1 { 1 } else { 0 };
    10 * addresses + plain
}
