//! Damaged superblocks that may be newer than every sound one.
//!
//! A power failure can tear a superblock of more than one sector. If it tears the superblocks of
//! all members that recorded the loss of a member, only the lost member's superblock is sound. That
//! superblock says that nothing failed, and the member's data is old.
//!
//! ```text
//!   record that C is out:  A, B        events 7, 7      C stays at 5
//!   the next update:       A, B torn: damaged, their first sectors say 7 or 8
//!   C alone would be       the array with events 5, and all later writes are gone
//! ```
//!
//! A superblock of one sector is never torn, so damage to it has another cause, and the superblock
//! claims nothing. A longer damaged superblock claims a number of events, and the claim can only
//! cause a refusal. Assembly refuses if both of these may be true:
//!
//! - *All sound members may be out.* The claim is two events or more ahead; or it is one event
//!   ahead and counts at least as many members out as there are sound members. (If it is one event
//!   ahead with fewer members out, its table has a sound member in. A finished update would have
//!   reached that member, so the update did not finish and no member missed anything.)
//! - *The damaged and missing members may be an array.* Slots without a sound member are at least
//!   as many as the level needs. So a raid5 with one rotten superblock starts as usual.
//!
//! [check: a_stale_copy_is_not_served_when_the_newer_ones_are_damaged]

use std::collections::BTreeMap;

use braid_geometry::Geometry;
use braid_ondisk::Claim;

use crate::ProbedMember;
use crate::judge::Roster;
use crate::refusal::Refusal;

/// Refuses an array whose newest members may be among the damaged ones.
pub(crate) fn check(
    roster: &Roster<'_>,
    members: &[ProbedMember],
    geometry: &Geometry,
) -> Result<(), Refusal> {
    let (slots, sound) = (usize::from(geometry.slots()), roster.active.len());
    let needed = slots.saturating_sub(usize::from(geometry.lost_max()));
    if slots.saturating_sub(sound) < needed {
        return Ok(());
    }
    let sound_events = roster.newest.events();
    let is_newer = |claim: &Claim| {
        let ahead = claim.events.saturating_sub(sound_events);
        let missing = usize::try_from(claim.missing).unwrap_or(usize::MAX);
        ahead > 1 || (ahead == 1 && sound <= missing)
    };
    let uuid = roster.newest.superblock.array.uuid;
    // A damaged device that is given twice is named once, by its first label.
    let mut newer: BTreeMap<&str, (&str, u64)> = BTreeMap::new();
    for member in members {
        let claim = claim_of(member).filter(|claim| claim.array_uuid == uuid && is_newer(claim));
        let Some(claim) = claim else { continue };
        let one = newer.entry(&member.identity).or_insert((&member.label, claim.events));
        one.0 = one.0.min(&member.label);
    }
    let Some(events) = newer.values().map(|(_, events)| *events).max() else { return Ok(()) };
    let mut labels: Vec<String> = newer.values().map(|(label, _)| (*label).to_owned()).collect();
    labels.sort();
    Err(Refusal::NewestDamaged { labels, events, sound_events })
}

fn claim_of(member: &ProbedMember) -> Option<Claim> {
    if member.probe.newest().is_some() {
        return None;
    }
    let damaged = member.probe.superblocks.iter().filter_map(|found| found.as_ref().err());
    damaged.filter_map(|error| error.claim).max_by_key(|claim| claim.events)
}
