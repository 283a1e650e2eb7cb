//! Chooses the members to believe by force if too few are sound: the newest consistent set, and the
//! writes that it lacks.
//!
//! ```text
//!   assemble ──▶ enough ────────────────────────────────────────────▶ none is believed by force
//!            └─▶ too few ─▶ those left out, newest first, in tiers ─▶ whole tiers, until enough
//! ```
//!
//! Superblocks show in which order members dropped out: each superblock has the count of the last
//! update that reached it. A *tier* is the members that the same update reached last. No member of
//! a tier missed a write that another member of the tier has, so a tier comes in as a whole or
//! stays out. A member of a lower tier is older than members of the tiers above, and stays out once
//! there are enough members without it.
//!
//! The newest table of roles still counts: a member that it calls faulty stays out while there are
//! enough others, however few events it is behind. A member that ran apart (the array ran in two
//! halves) comes in only if the operator names it. A member with a damaged superblock, one that is
//! given twice, or one that was not fully recovered never comes in.
//!
//! A believed member lacks the writes since it dropped out. A believed bitmap that has cleared no
//! bit since names these sectors; without such a bitmap the sectors may be anywhere. The array
//! counts as interrupted, so that nothing is computed from parity that may be wrong.
//!
//! This file does not write. [`Plan::superblocks`] are the superblocks that the members would need;
//! the command puts them into an overlay.
//!
//! Invariants:
//! - no member is believed by force while there are enough members without force
//!   `[check: whoever_is_believed_is_of_the_newest_that_suffice]`;
//! - no member is left out that is newer than a believed one
//!   `[check: whoever_is_believed_is_of_the_newest_that_suffice]`;
//! - the superblocks of a plan make the array that the plan shows
//!   `[check: what_a_plan_would_write_makes_its_array]`.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use braid_geometry::Family;
use braid_ondisk::{BitmapKind, Features, Role, Superblock, SuperblockUpdate, Timestamp};

use crate::verdict::{Reason, Verdict};
use crate::{AssembledArray, Assembly, MemberVerdict, Options, ProbedMember, Refusal, assemble};

/// The part that a member has in the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberUse {
    /// The member is in the array without force.
    Used,
    /// The member is believed by force.
    Believed {
        /// The member's slot.
        slot: u16,
        /// Where the member may lack writes.
        missed: MissedWrites,
    },
    /// The member was in the array, and is not needed.
    LeftOut {
        /// The member's slot.
        slot: u16,
        /// Whether the operator can name the member, to have it believed.
        can_be_asked_for: bool,
    },
    /// The member holds no usable data of the array, so it takes no part.
    Apart,
}

/// The sectors where a member may lack writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MissedWrites {
    /// In these sectors of the member's data area, which a bitmap names.
    Within(Vec<Range<u64>>),
    /// Anywhere: no bitmap has all changes since the member dropped out.
    Anywhere,
}

/// A plan to start the array, by force if necessary.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The verdicts on the members if none is believed by force.
    pub verdicts: Vec<MemberVerdict>,
    /// Why the array cannot start without force.
    pub refusal: Option<Refusal>,
    /// The part of each member in the plan.
    pub member_uses: Vec<MemberUse>,
    /// The array with the believed members. It may only be read.
    pub array: Result<AssembledArray, Refusal>,
    /// New superblocks by member index; empty if no member is believed by force.
    pub superblocks: Vec<(usize, Superblock)>,
}

/// The result of a plan with another choice of members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The array can be read.
    Runs {
        /// The number of slots without a member.
        degraded: u16,
        /// The number of members believed by force.
        believed: usize,
        /// The number of stripes of which some sectors cannot be computed.
        stripes_at_risk: u64,
    },
    /// No array can be assembled.
    Fails(Refusal),
}

impl Plan {
    /// The indices of the members believed by force.
    pub fn believed(&self) -> impl Iterator<Item = usize> {
        let member_uses = self.member_uses.iter().enumerate();
        member_uses
            .filter(|(_, one)| matches!(one, MemberUse::Believed { .. }))
            .map(|(index, _)| index)
    }

    /// The number of stripes of which some sectors cannot be computed.
    #[must_use]
    pub fn stripes_at_risk(&self) -> u64 {
        let risk = self.array.as_ref().ok().and_then(|array| array.withheld_risk.as_ref());
        risk.map_or(0, |risk| risk.stripes)
    }

    /// The plan's result in short.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match &self.array {
            Ok(array) => Outcome::Runs {
                degraded: array.degraded,
                believed: self.believed().count(),
                stripes_at_risk: self.stripes_at_risk(),
            },
            Err(refusal) => Outcome::Fails(refusal.clone()),
        }
    }

    /// The members, with the plan's superblocks in place of their own.
    #[must_use]
    pub fn members(&self, members: &[ProbedMember]) -> Vec<ProbedMember> {
        let mut members = members.to_vec();
        for (index, superblock) in &self.superblocks {
            put(&mut members[*index], superblock);
            // The log of a believed member would be about writes that other members missed.
            members[*index].ppl = None;
            members[*index].own_log = None;
        }
        members
    }
}

/// Makes a plan for these members. Members in `asked` are believed whether they are needed or not.
#[must_use]
pub fn plan(members: &[ProbedMember], options: &Options, asked: &BTreeSet<usize>) -> Plan {
    let options = Options { read_only: true, accept_risk: None, ..options.clone() };
    let Assembly { mut verdicts, array: as_it_stands } = assemble(members, &options);
    let mut options = options;
    let mut base = as_it_stands.clone();
    // By the record all members are old, but their superblocks still tell which member is the
    // newest.
    if let Err(Refusal::OlderThanKnown { .. }) = as_it_stands {
        options.known.clear();
        Assembly { verdicts, array: base } = assemble(members, &options);
    }
    let refusal = as_it_stands.err();
    let Some(newest) = newest(members, &verdicts) else {
        let member_uses = vec![MemberUse::Apart; members.len()];
        return Plan { verdicts, refusal, member_uses, array: base, superblocks: Vec::new() };
    };
    let tiers = tiers(members, &verdicts, newest);
    let may_be_asked = |index: &usize| claim(members, &verdicts, newest, *index).is_some();
    let mut believed: BTreeSet<usize> = asked.iter().copied().filter(may_be_asked).collect();
    let with = |believed: &BTreeSet<usize>| match believed.is_empty() {
        true => (Vec::new(), base.clone()),
        false => believe(members, (&verdicts, newest), believed, &options),
    };
    let (mut superblocks, mut array) = with(&believed);
    if let Err(Refusal::TooFewMembers { .. }) = array {
        let mut more = believed.clone();
        for tier in tiers {
            more.extend(tier);
            let (written, found) = with(&more);
            if found.is_ok() {
                (believed, superblocks, array) = (more, written, found);
                break;
            }
        }
    }
    let member_use = |index: usize| {
        let own = claim(members, &verdicts, newest, index);
        match (verdicts[index].verdict, own) {
            (_, Some((slot, _))) if believed.contains(&index) => {
                MemberUse::Believed { slot, missed: missed(&members[index], array.as_ref().ok()) }
            }
            (verdict, _) if is_used(verdict) => MemberUse::Used,
            (_, Some((slot, _))) => MemberUse::LeftOut { slot, can_be_asked_for: true },
            (Verdict::Stale { .. } | Verdict::Faulty | Verdict::Duplicate, None) => {
                let slot = superblock(&members[index]).map(|one| one.state.role);
                match slot {
                    Some(Role::Active(slot)) => {
                        MemberUse::LeftOut { slot, can_be_asked_for: false }
                    }
                    _ => MemberUse::Apart,
                }
            }
            _ => MemberUse::Apart,
        }
    };
    let member_uses = (0..members.len()).map(member_use).collect();
    Plan { verdicts, refusal, member_uses, array, superblocks }
}

/// The result of a plan that leaves out one of the members.
#[must_use]
pub fn without(
    members: &[ProbedMember],
    options: &Options,
    asked: &BTreeSet<usize>,
    index: usize,
) -> Outcome {
    let mut others = members.to_vec();
    others.remove(index);
    let moved = |other: &usize| if *other > index { other - 1 } else { *other };
    let asked = asked.iter().filter(|other| **other != index).map(moved).collect();
    plan(&others, options, &asked).outcome()
}

fn is_used(verdict: Verdict) -> bool {
    matches!(
        verdict,
        Verdict::Fresh { .. }
            | Verdict::Recovering { .. }
            | Verdict::Spare
            | Verdict::Replacement { .. }
            | Verdict::Journal
    )
}

fn superblock(member: &ProbedMember) -> Option<&Superblock> {
    member.probe.newest()
}

/// The index of the member whose superblock counts: of all members in a slot, the member with most
/// events, then with the lowest number.
fn newest(members: &[ProbedMember], verdicts: &[MemberVerdict]) -> Option<usize> {
    let in_slot = |index: &usize| verdicts[*index].verdict.slot().is_some();
    let rank = |index: &usize| {
        let superblock = superblock(&members[*index]).expect("it has a slot by its superblock");
        (superblock.state.events, std::cmp::Reverse(superblock.device.number))
    };
    (0..members.len()).filter(in_slot).max_by_key(rank)
}

type LastUpdate = (u64, Timestamp);

/// The slot for which a member may be believed, and the member's last update. `None` if the member
/// may not be believed.
fn claim(
    members: &[ProbedMember],
    verdicts: &[MemberVerdict],
    newest: usize,
    index: usize,
) -> Option<(u16, LastUpdate)> {
    let MemberVerdict { verdict, reason, .. } = &verdicts[index];
    let is_old = matches!(
        (verdict, reason),
        (
            Verdict::Stale { .. } | Verdict::Faulty,
            Reason::EventsBehind { .. }
                | Reason::OlderUpdate { .. }
                | Reason::OlderThanKnown { .. }
                | Reason::MarkedFaulty { .. }
                | Reason::NotInNewestTable { .. }
                | Reason::RanApart { .. }
        )
    );
    let (own, of_newest) = (superblock(&members[index])?, superblock(&members[newest])?);
    let Role::Active(slot) = own.state.role else { return None };
    let is_same = own.version == of_newest.version
        && (&own.array.uuid, own.array.level, own.array.layout, own.array.chunk_sectors)
            == (
                &of_newest.array.uuid,
                of_newest.array.level,
                of_newest.array.layout,
                of_newest.array.chunk_sectors,
            )
        && (own.array.raid_slots, own.array.member_size_sectors, own.array.creation_time)
            == (
                of_newest.array.raid_slots,
                of_newest.array.member_size_sectors,
                of_newest.array.creation_time,
            );
    // An older member never takes the slot of a sound one.
    let is_taken = verdicts.iter().any(|other| other.verdict.slot() == Some(slot));
    let is_twice = (0..members.len()).any(|other| {
        let twin = superblock(&members[other]).filter(|twin| twin.array.uuid == own.array.uuid);
        other != index && twin.is_some_and(|twin| twin.device.number == own.device.number)
    });
    let is_whole = own.device.recovery_offset_sectors.is_none()
        && !own.state.features.contains(Features::REPLACEMENT)
        && members[index].bad_blocks.is_ok();
    let is_fit = is_old && is_same && is_whole && !is_taken && !is_twice;
    (is_fit && fits(own, of_newest.state.roles.len()))
        .then_some((slot, (own.state.events, own.state.update_time)))
}

/// Whether a table of `roles` roles has an entry for this superblock's device.
fn fits(own: &Superblock, roles: usize) -> bool {
    let number = usize::try_from(own.device.number).unwrap_or(usize::MAX);
    roles <= own.state.roles.len() && number < own.state.roles.len()
}

/// Whether the superblock's array has all slots that a table names.
fn has_slots(own: &Superblock, roles: &[Role]) -> bool {
    let slots = own.array.raid_slots;
    roles.iter().all(|role| !matches!(role, Role::Active(slot) if u32::from(*slot) >= slots))
}

/// The members that may be believed without being named, in tiers, the newest tier first.
fn tiers(
    members: &[ProbedMember],
    verdicts: &[MemberVerdict],
    newest: usize,
) -> Vec<BTreeSet<usize>> {
    let ran_apart = |index: &usize| matches!(verdicts[*index].reason, Reason::RanApart { .. });
    let mut order: Vec<(LastUpdate, u16, usize)> = (0..members.len())
        .filter(|index| !ran_apart(index))
        .filter_map(|index| {
            let (slot, reached) = claim(members, verdicts, newest, index)?;
            Some((reached, slot, index))
        })
        .collect();
    order.sort_by_key(|(reached, slot, index)| (std::cmp::Reverse(*reached), *slot, *index));
    let mut given: BTreeSet<u16> = BTreeSet::new();
    let mut tiers = Vec::new();
    for tier in order.chunk_by(|(a, ..), (b, ..)| a == b) {
        // If two members of one tier claim one slot, no rule tells which member is right.
        let is_alone = |slot: u16| tier.iter().filter(|(_, other, _)| *other == slot).count() == 1;
        let of_tier = tier.iter().filter(|(_, slot, _)| is_alone(*slot) && !given.contains(slot));
        tiers.push(of_tier.map(|(.., index)| *index).collect());
        given.extend(tier.iter().map(|(_, slot, _)| *slot));
    }
    tiers
}

/// The array with these members believed, and the superblocks that they need.
fn believe(
    members: &[ProbedMember],
    (verdicts, newest): (&[MemberVerdict], usize),
    believed: &BTreeSet<usize>,
    options: &Options,
) -> (Vec<(usize, Superblock)>, Result<AssembledArray, Refusal>) {
    let of_newest = superblock(&members[newest]).expect("it is the newest");
    let roles = roles(members, (verdicts, of_newest), believed);
    let resync_offset = match of_newest.array.level.family() {
        Family::Direct => of_newest.state.resync_offset,
        Family::Mirror | Family::Stripe => 0,
    };
    let written = |index: usize| {
        let in_slot = verdicts[index].verdict.slot();
        let is_replacement = matches!(verdicts[index].verdict, Verdict::Replacement { .. });
        let mut own = superblock(&members[index])?.clone();
        let is_in = in_slot.is_some() || is_replacement || believed.contains(&index);
        let own_role = std::slice::from_ref(&own.state.role);
        let has_slots = has_slots(&own, &roles) && has_slots(&own, own_role);
        if !is_in || !fits(&own, roles.len()) || !has_slots {
            return None;
        }
        own.apply(&SuperblockUpdate {
            events: of_newest.state.events,
            update_time: of_newest.state.update_time,
            resync_offset,
            roles: Arc::clone(&roles),
            recovery_offset: own.device.recovery_offset_sectors,
            is_replacement,
            role_of_this: own.state.role,
        });
        Some((index, own))
    };
    let superblocks: Vec<(usize, Superblock)> = (0..members.len()).filter_map(written).collect();
    let mut others = members.to_vec();
    for (index, superblock) in &superblocks {
        put(&mut others[*index], superblock);
        others[*index].ppl = None;
        others[*index].own_log = None;
    }
    let options = Options { known: Vec::new(), ..options.clone() };
    (superblocks, assemble(&others, &options).array)
}

/// Every device's role if these members are believed; all other devices become faulty.
fn roles(
    members: &[ProbedMember],
    (verdicts, of_newest): (&[MemberVerdict], &Superblock),
    believed: &BTreeSet<usize>,
) -> Arc<[Role]> {
    let mut roles = of_newest.state.roles.clone();
    let number = |index: usize| {
        let own = superblock(&members[index]).filter(|own| own.array.uuid == of_newest.array.uuid);
        own.and_then(|own| usize::try_from(own.device.number).ok())
    };
    let is_claimed = |index: usize| is_used(verdicts[index].verdict) || believed.contains(&index);
    for index in (0..members.len()).filter(|index| !is_claimed(*index)) {
        if let Some(role @ Role::Active(_)) = number(index).and_then(|it| roles.get_mut(it)) {
            *role = Role::Faulty;
        }
    }
    for &index in believed {
        let Some(own) = superblock(&members[index]) else { continue };
        // A missing device may have taken this member's slot since.
        roles.iter_mut().filter(|role| **role == own.state.role).for_each(|role| {
            *role = Role::Faulty;
        });
        if let Some(role) = number(index).and_then(|number| roles.get_mut(number)) {
            *role = own.state.role;
        }
    }
    while roles.last() == Some(&Role::Spare) {
        roles.pop();
    }
    roles.into()
}

fn put(member: &mut ProbedMember, superblock: &Superblock) {
    let place = (superblock.version, superblock.device.super_offset_sectors);
    let mut found = member.probe.superblocks.iter_mut().flatten();
    let old = found.find(|old| (old.version, old.device.super_offset_sectors) == place);
    *old.expect("it was made of one of these") = superblock.clone();
}

/// The sectors where a believed member may lack writes, by the bitmap of the array.
fn missed(member: &ProbedMember, array: Option<&AssembledArray>) -> MissedWrites {
    let events = superblock(member).map_or(0, |own| own.state.events);
    let Some(bitmap) = array.and_then(|array| array.bitmap.as_ref()) else {
        return MissedWrites::Anywhere;
    };
    let goes_back = bitmap.is_current
        && bitmap.superblock.kind == BitmapKind::Classic
        && bitmap.superblock.events_cleared <= events;
    if !goes_back {
        return MissedWrites::Anywhere;
    }
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for range in bitmap.bits.iter().map(|bit| bitmap.bits.sectors_of(bit)) {
        match ranges.last_mut() {
            Some(last) if last.end >= range.start => last.end = range.end,
            _ => ranges.push(range),
        }
    }
    MissedWrites::Within(ranges)
}
