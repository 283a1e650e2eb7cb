//! One verdict for each member of the chosen array, against the newest superblock.
//!
//! The crate's documentation has the rules and why they are safe. `array` decides whether enough
//! members are left, and whether braid can serve the array.
//!
//! ```text
//!   newest = most events among those whose own role is a slot
//!   own role spare, journal, faulty ........................ that
//!   own role a slot:  less than what is known .............. stale
//!                     two or more events behind ............ stale
//!                     equally new, table the same, older ... stale
//!                     equally new, tables differ ........... contradictory, and no array
//!                     (unless one table counts in a subset of the other's members: it is later)
//!                     calls the newest out ................. faulty: it ran apart
//!                     newest table: any other role ......... faulty (below)
//!                     newest table: the same slot .......... claims the slot
//!   own role journal: two or more events behind ............ stale
//!                     newest table: faulty, or no journal .. faulty
//!   several claim one slot, or one device is given twice: replacement steps back;
//!                         otherwise one is a clone, and there is no array
//! ```
//!
//! A member whose role in the newest table is not the claimed slot is faulty: md writes a removed
//! member as a spare.

use braid_ondisk::{Features, Role};
use braid_sim_hooks::{Bug, planted, spoiled};

use crate::Options;
use crate::candidates::{Candidate, Verdicts};
use crate::recorded_state::RecordedState;
use crate::refusal::Refusal;
use crate::verdict::{Reason, Verdict};

/// A member is up to date if its events are at most this many behind the newest.
const EVENTS_BEHIND_MAX: u64 = 1;

type Claim<'a> = (u16, Candidate<'a>);
/// The slot that a member claims, or the verdict if it claims none.
type SlotClaim = Result<u16, (Verdict, Reason)>;

#[derive(Debug)]
pub(crate) struct Roster<'a> {
    pub(crate) newest: Candidate<'a>,
    /// Members in slots, in order of slots. Some slots may have no member, and no slot has two.
    pub(crate) active: Vec<(u16, Candidate<'a>)>,
    /// Indices of spares in the input, in order of labels.
    pub(crate) spares: Vec<usize>,
    /// Replacements, at most one for a slot. The replaced member is present and holds all data.
    pub(crate) replacements: Vec<(u16, Candidate<'a>)>,
    /// Slots whose replacement braid cannot continue.
    pub(crate) replaced: Vec<u16>,
    /// Devices with the write journal; more than one if a device is given twice.
    pub(crate) journals: Vec<Candidate<'a>>,
}

impl<'a> Roster<'a> {
    /// The members that take writes: those in slots, and their replacements.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = &Candidate<'a>> {
        self.active.iter().chain(&self.replacements).map(|(_, candidate)| candidate)
    }
}

pub(crate) fn judge<'a>(
    group: &[Candidate<'a>],
    options: &Options,
    verdicts: &mut Verdicts,
) -> Result<Roster<'a>, Refusal> {
    let is_known = |known: &&RecordedState| group.iter().any(|one| known.is_of(one.superblock));
    let known = options.known.iter().find(is_known).filter(|_| !options.accept_older);
    let (group, old) = set_old_aside(group, known);
    let group = &group;
    let newest = newest(group, options.accept_older);
    for candidate in &old {
        let (verdict, reason) = judge_old(candidate, newest, known);
        verdicts.give(candidate.index, verdict, reason);
    }
    let contradictory = contradictory(group, options.accept_older);
    let mut claims: Vec<Claim<'a>> = Vec::new();
    let mut twins: Vec<Claim<'a>> = Vec::new();
    let mut spares: Vec<Candidate<'a>> = Vec::new();
    let mut journals: Vec<Candidate<'a>> = Vec::new();
    let judge_one = |candidate: &Candidate<'a>| match contradictory
        .iter()
        .find(|(index, _)| *index == candidate.index)
    {
        Some((_, other)) => {
            Err((Verdict::Contradictory, Reason::TablesDiffer { other: other.clone() }))
        }
        None => judge_alone(candidate, newest, options.accept_older),
    };
    let judged: Vec<_> = group.iter().map(|one| (*one, judge_one(one))).collect();
    for (candidate, result) in &judged {
        match result.clone() {
            Ok(slot) => claims.push((slot, *candidate)),
            Err((Verdict::Stale { .. } | Verdict::Faulty, reason))
                if let Some(slot) = slot_of_twin(candidate, &reason, &judged) =>
            {
                twins.push((slot, *candidate));
            }
            Err((Verdict::Spare, reason)) => match twin_of(candidate, &spares) {
                Some(twin) => {
                    let reason = Reason::SpareTwice { used: twin.label() };
                    verdicts.give(candidate.index, Verdict::Duplicate, reason);
                }
                None => {
                    spares.push(*candidate);
                    verdicts.give(candidate.index, Verdict::Spare, reason);
                }
            },
            Err((Verdict::Journal, reason)) => {
                journals.push(*candidate);
                verdicts.give(candidate.index, Verdict::Journal, reason);
            }
            Err((verdict, reason)) => verdicts.give(candidate.index, verdict, reason),
        }
    }
    let assignment = assign_slots((claims, &twins), newest, verdicts);
    if !contradictory.is_empty() {
        let labels = contradictory.iter().map(|(index, _)| label_of(group, *index)).collect();
        return Err(Refusal::RolesContradict { labels });
    }
    let SlotAssignment { active, replacements, replaced, contested } = assignment;
    if let Some(refusal) = contested {
        return Err(refusal);
    }
    let newest = newest.ok_or_else(|| {
        let only_old = known.and_then(|known| only_old(&old, known));
        only_old.unwrap_or(Refusal::NoMembers { wanted: None })
    })?;
    let spares = spares.iter().map(|spare| spare.index).collect();
    Ok(Roster { newest, active, spares, replacements, replaced, journals })
}

/// Sets aside members that are older than the recorded state. If a member and its clone differ in
/// age, the record tells the two devices apart, and the older device is set aside.
fn set_old_aside<'a>(
    group: &[Candidate<'a>],
    known: Option<&RecordedState>,
) -> (Vec<Candidate<'a>>, Vec<Candidate<'a>>) {
    let known = spoiled(Bug::KnownIgnored, known, None);
    let is_old = |candidate: &Candidate<'_>| {
        let is_older = known.is_some_and(|known| known.is_beyond(candidate.superblock));
        is_older && own_slot(candidate).is_some()
    };
    group.iter().copied().partition(|candidate| !is_old(candidate))
}

fn judge_old(
    candidate: &Candidate<'_>,
    newest: Option<Candidate<'_>>,
    known: Option<&RecordedState>,
) -> (Verdict, Reason) {
    let (events, known_events) = (candidate.events(), known.map_or(0, |known| known.events));
    let behind = known_events.saturating_sub(events);
    let calls_out =
        |one: &Candidate<'_>, other: &Candidate<'_>| role_in(one, other) == Role::Faulty;
    let apart =
        |newest: &Candidate<'_>| calls_out(newest, candidate) && calls_out(candidate, newest);
    let reason = match newest.filter(apart) {
        Some(newest) => {
            Reason::RanApart { events, newest_events: newest.events(), newest: newest.label() }
        }
        None => Reason::OlderThanKnown { events, known_events },
    };
    (Verdict::Stale { behind }, reason)
}

/// The refusal to return if every member that could have a slot was set aside as old.
fn only_old(old: &[Candidate<'_>], known: &RecordedState) -> Option<Refusal> {
    let events = old.iter().map(Candidate::events).max()?;
    let (known_events, members) = (known.events, known.members.clone());
    Some(Refusal::OlderThanKnown { events, known_events, members })
}

/// The slot that the same member claims under another label: one of the two devices is a clone.
/// 0.90 has no device names, so with 0.90 only equal events and an equal table show a clone.
fn slot_of_twin<'a>(
    candidate: &Candidate<'_>,
    reason: &Reason,
    judged: &[(Candidate<'a>, SlotClaim)],
) -> Option<u16> {
    let device = &candidate.superblock.device;
    let is_named = device.uuid != [0; 16] || matches!(reason, Reason::OlderUpdate { .. });
    if own_slot(candidate).is_none() || !is_named {
        return None;
    }
    judged.iter().find_map(|(other, result)| {
        let is_twin = other.index != candidate.index
            && other.superblock.device.uuid == device.uuid
            && other.superblock.device.number == device.number;
        result.as_ref().ok().copied().filter(|_| is_twin)
    })
}

/// The spare that has this candidate's device number. Neither device is read, so the device with
/// the first label is used.
fn twin_of<'a>(candidate: &Candidate<'_>, spares: &[Candidate<'a>]) -> Option<Candidate<'a>> {
    let number = candidate.superblock.device.number;
    spares.iter().find(|spare| spare.superblock.device.number == number).copied()
}

/// The candidate with the newest superblock. Of several, the candidate with the lowest number, then
/// with the first label: equally new members agree, or assembly refuses.
fn newest<'a>(group: &[Candidate<'a>], accept_older: bool) -> Option<Candidate<'a>> {
    newest_members(group, accept_older)
        .into_iter()
        .min_by_key(|candidate| candidate.superblock.device.number)
}

/// The members with most events, without superseded members and members of an older update. If all
/// members with most events supersede each other in a circle, all of them.
fn newest_members<'a>(group: &[Candidate<'a>], accept_older: bool) -> Vec<Candidate<'a>> {
    let active = || group.iter().copied().filter(|candidate| own_slot(candidate).is_some());
    let counts = || active().map(|candidate| candidate.events());
    let events = counts().max();
    let newest: Vec<_> = active().filter(|one| Some(one.events()) == events).collect();
    let is_old = |one: &Candidate<'_>| {
        let is_older = |other: &Candidate<'_>| !accept_older && is_of_older_update(one, other);
        is_superseded(one, group) || is_outrun(one, group) || group.iter().any(is_older)
    };
    if planted(Bug::SupersededCounts) {
        return newest;
    }
    let (superseded, last): (Vec<_>, Vec<_>) = newest.into_iter().partition(is_old);
    if last.is_empty() { superseded } else { last }
}

fn own_slot(candidate: &Candidate<'_>) -> Option<u16> {
    match candidate.superblock.state.role {
        Role::Active(slot) => Some(slot),
        Role::Spare | Role::Faulty | Role::Journal => None,
    }
}

fn role_in(table_of: &Candidate<'_>, candidate: &Candidate<'_>) -> Role {
    let number = usize::try_from(candidate.superblock.device.number).ok();
    let role = number.and_then(|number| table_of.superblock.state.roles.get(number));
    role.copied().unwrap_or(Role::Spare)
}

/// Whether an equally new member's table has this member out, while this member's table still has
/// that member in.
///
/// md and braid count one event back when the array turns clean. A member that misses this update
/// stays at the higher count. The update that puts the member out brings the other members to the
/// same count again. So the others are later: the member's table has the others in, and the others'
/// tables have the member out. (If two members call each other out, no rule shows which member is
/// right.)
fn is_superseded(one: &Candidate<'_>, group: &[Candidate<'_>]) -> bool {
    let counts_in = |table_of: &Candidate<'_>, whom: &Candidate<'_>| {
        own_slot(whom).is_some_and(|slot| role_in(table_of, whom) == Role::Active(slot))
    };
    group.iter().any(|other| {
        other.events() == one.events()
            && own_slot(other).is_some()
            && counts_in(one, other)
            && !counts_in(other, one)
    })
}

/// Whether an equally new member's table has a proper subset of the active members in this member's
/// table.
///
/// Between two updates with the same count members only leave, so the shorter table is later, also
/// on a member that is in both tables. An interrupted update reached only one of two members. A
/// start without this member then wrote the other member's superblock with the same count. No data
/// is lost: a write is acknowledged only after an update with a count of its own records which
/// members are missing.
fn is_outrun(one: &Candidate<'_>, group: &[Candidate<'_>]) -> bool {
    let own = slots_in(one);
    group.iter().any(|other| {
        let theirs = slots_in(other);
        other.events() == one.events()
            && own_slot(other).is_some()
            && theirs.len() < own.len()
            && theirs.iter().all(|slot| own.contains(slot))
    })
}

/// Whether the superblock of `other` has the same event count and the same table, but a later
/// update time. md, and braid with a sleeping spare, count one event back when the array turns
/// clean, so the same count comes again. All members of one update have its time, so this member
/// missed the last update and the writes since.
///
/// If the tables differ, only the tables decide. A start may bring one member's superblock up to
/// another's count, and then gives it the other's time too.
fn is_of_older_update(one: &Candidate<'_>, other: &Candidate<'_>) -> bool {
    let time = |candidate: &Candidate<'_>| candidate.superblock.state.update_time;
    other.events() == one.events()
        && own_slot(other).is_some()
        && time(one) < time(other)
        && slots_in(one) == slots_in(other)
}

/// The newest members whose slots disagree with those of another newest member, each with that
/// member's label. One update writes one table to every member, so equally new tables should be
/// equal. Roles spare and faulty are not compared: no member is read because of either role.
fn contradictory(group: &[Candidate<'_>], accept_older: bool) -> Vec<(usize, String)> {
    let newest = newest_members(group, accept_older);
    let differ = |a: &Candidate<'_>, b: &Candidate<'_>| slots_in(a) != slots_in(b);
    let find = |candidate: &Candidate<'_>| {
        newest.iter().find(|other| differ(candidate, other)).map(|other| other.label())
    };
    newest.iter().filter_map(|one| find(one).map(|other| (one.index, other))).collect()
}

/// Device numbers with a slot in this member's table, and their slots, in order of numbers.
fn slots_in(candidate: &Candidate<'_>) -> Vec<(usize, u16)> {
    let roles = candidate.superblock.state.roles.iter().enumerate();
    roles
        .filter_map(|(number, role)| match role {
            Role::Active(slot) => Some((number, *slot)),
            Role::Spare | Role::Faulty | Role::Journal => None,
        })
        .collect()
}

fn judge_alone(
    candidate: &Candidate<'_>,
    newest: Option<Candidate<'_>>,
    accept_older: bool,
) -> SlotClaim {
    let table_role = newest.map(|newest| role_in(&newest, candidate));
    let (slot, newest) = match (candidate.superblock.state.role, newest) {
        (Role::Journal, newest) => return Err(judge_journal(candidate, newest, table_role)),
        (Role::Faulty, _) => return Err((Verdict::Faulty, Reason::SaysFaulty)),
        (Role::Spare, Some(newest)) if table_role == Some(Role::Faulty) => {
            return Err((Verdict::Faulty, Reason::MarkedFaulty { newest: newest.label() }));
        }
        // A member says that it is a spare, but the table has another role for its number. Either
        // another device got the number after the member left, or an update that missed the member
        // gave it a slot. In both cases the member holds no data, and its number is taken.
        (Role::Spare, Some(newest)) if matches!(table_role, Some(Role::Active(_))) => {
            return Err((Verdict::Faulty, Reason::NumberTaken { newest: newest.label() }));
        }
        (Role::Spare, _) => return Err((Verdict::Spare, Reason::SaysSpare)),
        (Role::Active(slot), newest) => (slot, newest.expect("an active member has a newest one")),
    };
    let (events, newest_events) = (candidate.events(), newest.events());
    if planted(Bug::StaleAccepted) {
        return Ok(slot);
    }
    let behind = newest_events.saturating_sub(events);
    let calls_newest_out = role_in(candidate, &newest) == Role::Faulty;
    let ran_apart = table_role == Some(Role::Faulty) && calls_newest_out;
    let apart = Reason::RanApart { events, newest_events, newest: newest.label() };
    if behind > EVENTS_BEHIND_MAX {
        let reason = if ran_apart { apart } else { Reason::EventsBehind { events, newest_events } };
        return Err((Verdict::Stale { behind }, reason));
    }
    if !accept_older && is_of_older_update(candidate, &newest) {
        let time = |candidate: &Candidate<'_>| candidate.superblock.state.update_time;
        let (updated, newest_updated) = (time(candidate), time(&newest));
        let reason = Reason::OlderUpdate { events, updated, newest_updated };
        return Err((Verdict::Stale { behind }, reason));
    }
    let calls_newest_out = spoiled(Bug::SupersededCounts, calls_newest_out, false);
    match table_role {
        // Updates only take members out of the table. So if the newest table has a member in that
        // calls the newest member out, a clone stood for one of the two members.
        Some(Role::Active(_)) if calls_newest_out => return Err((Verdict::Faulty, apart)),
        Some(Role::Active(in_table)) if in_table == slot => {}
        Some(Role::Faulty) if ran_apart => return Err((Verdict::Faulty, apart)),
        Some(Role::Faulty) => {
            return Err((Verdict::Faulty, Reason::MarkedFaulty { newest: newest.label() }));
        }
        _ => {
            let reason = Reason::NotInNewestTable { slot, newest: newest.label() };
            return Err((Verdict::Faulty, reason));
        }
    }
    match &candidate.member.bad_blocks {
        Err(error) if has(candidate, Features::BAD_BLOCKS) => {
            Err((Verdict::Damaged, Reason::BadBlockLog(*error)))
        }
        _ => Ok(slot),
    }
}

/// Judges a journal device by its events, like a member, and by the newest table.
fn judge_journal(
    candidate: &Candidate<'_>,
    newest: Option<Candidate<'_>>,
    table_role: Option<Role>,
) -> (Verdict, Reason) {
    let (events, newest_events) = (candidate.events(), newest.map_or(0, |newest| newest.events()));
    let behind = newest_events.saturating_sub(events);
    match newest {
        Some(_) if behind > EVENTS_BEHIND_MAX => {
            (Verdict::Stale { behind }, Reason::EventsBehind { events, newest_events })
        }
        Some(newest) if table_role == Some(Role::Faulty) => {
            (Verdict::Faulty, Reason::MarkedFaulty { newest: newest.label() })
        }
        // The array dropped its journal, or an update that adds the journal was interrupted.
        Some(newest) if !has(&newest, Features::JOURNAL) => {
            (Verdict::Faulty, Reason::NoJournal { newest: newest.label() })
        }
        _ => (Verdict::Journal, Reason::SaysJournal),
    }
}

fn has(candidate: &Candidate<'_>, feature: Features) -> bool {
    candidate.superblock.state.features.contains(feature)
}

struct SlotAssignment<'a> {
    active: Vec<(u16, Candidate<'a>)>,
    replacements: Vec<(u16, Candidate<'a>)>,
    replaced: Vec<u16>,
    contested: Option<Refusal>,
}

fn assign_slots<'a>(
    (mut claims, twins): (Vec<Claim<'a>>, &[Claim<'a>]),
    newest: Option<Candidate<'a>>,
    verdicts: &mut Verdicts,
) -> SlotAssignment<'a> {
    let mut assignment = SlotAssignment {
        active: Vec::new(),
        replacements: Vec::new(),
        replaced: Vec::new(),
        contested: None,
    };
    let newest_events = newest.map_or(0, |newest| newest.events());
    // The sort is stable, so claims of one slot stay in order of labels.
    claims.sort_by_key(|(slot, _)| *slot);
    for claims in claims.chunk_by(|(a, _), (b, _)| a == b) {
        let slot = claims[0].0;
        let claimants: Vec<Candidate<'a>> = claims.iter().map(|(_, claimant)| *claimant).collect();
        let mut claimants = set_replacements_aside(slot, claimants, &mut assignment, verdicts);
        claimants.extend(twins.iter().filter(|(of, _)| *of == slot).map(|(_, twin)| *twin));
        claimants.sort_by_key(Candidate::label);
        // Two claims of one slot mean a member and its clone, whatever the event counts say. If
        // either device ran without the other, both may have acknowledged writes that the other
        // lacks.
        match claimants.as_slice() {
            [only] => {
                let (verdict, reason) = occupies(slot, only, newest_events);
                verdicts.give(only.index, verdict, reason);
                assignment.active.push((slot, *only));
            }
            several => {
                contest(slot, several, verdicts);
                let labels = several.iter().map(Candidate::label).collect();
                assignment.contested.get_or_insert(Refusal::SlotClaimedTwice { slot, labels });
            }
        }
    }
    assignment
}

/// Sets replacements aside if the member that they replace is present. Otherwise a replacement
/// serves as the member.
fn set_replacements_aside<'a>(
    slot: u16,
    claimants: Vec<Candidate<'a>>,
    assignment: &mut SlotAssignment<'a>,
    verdicts: &mut Verdicts,
) -> Vec<Candidate<'a>> {
    let (replacements, originals): (Vec<_>, Vec<_>) =
        claimants.into_iter().partition(|claimant| has(claimant, Features::REPLACEMENT));
    let Some(original) = originals.first() else { return replacements };
    for replacement in &replacements {
        let reason = Reason::OriginalPresent { original: original.label() };
        verdicts.give(replacement.index, Verdict::Replacement { slot }, reason);
    }
    let is_whole = original.superblock.device.recovery_offset_sectors.is_none();
    // A clone has its member's device number, so the table cannot tell the two devices apart.
    let number = |one: &Candidate<'_>| one.superblock.device.number;
    match replacements[..] {
        [] => {}
        [one] if is_whole && originals.len() == 1 && number(&one) != number(original) => {
            assignment.replacements.push((slot, one));
        }
        _ => assignment.replaced.push(slot),
    }
    originals
}

fn occupies(slot: u16, candidate: &Candidate<'_>, newest_events: u64) -> (Verdict, Reason) {
    let events = candidate.events();
    match candidate.superblock.device.recovery_offset_sectors {
        Some(recovered_sectors) => (
            Verdict::Recovering { slot, recovered_sectors },
            Reason::RecoveryUnfinished { recovered_sectors },
        ),
        None if events == newest_events => (Verdict::Fresh { slot }, Reason::Newest { events }),
        None => (Verdict::Fresh { slot }, Reason::OneBehind { events }),
    }
}

fn contest(slot: u16, several: &[Candidate<'_>], verdicts: &mut Verdicts) {
    for (position, claimant) in several.iter().enumerate() {
        let other = if position == 0 { &several[1] } else { &several[0] };
        let reason = Reason::SlotContested { slot, by: other.label() };
        verdicts.give(claimant.index, Verdict::Duplicate, reason);
    }
}

fn label_of(group: &[Candidate<'_>], index: usize) -> String {
    let found = group.iter().find(|candidate| candidate.index == index);
    found.expect("the index is from this group").label()
}
