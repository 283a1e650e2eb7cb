//! An operator's changes of members: checks whether a change is allowed, and performs it.
//!
//! ```text
//!   the request's member, by slot or path ─▶ allowed? (the array decides) ─▶ do it, report it
//!   devices ─▶ new_members: examined, judged, nothing written ─▶ saved, wiped, added
//! ```
//!
//! The engine decides which members the array can do without, and when a spare takes a slot.
//!
//! Invariants
//! - with `dry_run`, or refused, not one byte of a device changes
//!   `[check: what_members_cannot_do_is_refused_and_changes_nothing]`.

mod new_members;
mod refusals;
mod request_devices;

pub(super) use refusals::status;
use request_devices::RequestDevices;

use std::path::Path;
use std::time::{Duration, Instant};

use braid_assembly::Tolerance;
use braid_control::PassedDescriptors;
use braid_control::model::{
    MemberChanged, MemberEffect, MemberRequest, MembersAnswer, MembersWanted, VERSION,
};
use braid_geometry::Slot;
use braid_member::IdentityKey;
use braid_ondisk::Role;
use braid_runtime::{ArrayView, MemberId, MemberLook, MemberRefusal, RemoveError, Volume};

use super::array::{self, Facts};
use super::jobs::Ground;
use super::setting::ArrayParts;
use crate::health::absolute;
use crate::membership::Membership;
use braid_console::error::CliError;
use braid_console::error::code::Code;

/// Longest wait until the superblocks of the other members record that a member is out. The member
/// cannot be removed earlier.
const RECORDED_WITHIN: Duration = Duration::from_secs(5);

/// Interval between checks whether superblocks record the failure of a member.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// A member's standing in the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// The member has a slot.
    Active,
    /// The member is to replace another member that has a slot.
    Replacing,
    /// The member is a spare without a slot.
    Waiting,
    /// The device has the write journal.
    Journal,
    /// The member failed, and its device is still open.
    Out,
}

/// A member whose device is open.
struct CurrentMember {
    look: MemberLook,
    label: String,
    standing: Standing,
    /// The slot that the member has or had.
    slot: Option<u16>,
}

/// The array and its members during one member request.
struct RequestContext<'a> {
    volume: &'a Volume,
    membership: &'a Membership,
    facts: &'a Facts,
    /// The array's name in commands.
    word: String,
    ground: Ground,
    members: Vec<CurrentMember>,
    /// The array from which the device was moved, if the device was another array's spare.
    moved_from: Option<&'a str>,
    /// Devices that the client passed open.
    devices: RequestDevices,
    /// The words of the new shape for which the devices are added. An array without redundancy
    /// accepts devices only for a new shape.
    shape_words: Option<String>,
}

impl<'a> RequestContext<'a> {
    fn new(running: &'a ArrayParts, facts: &'a Facts) -> Self {
        let (volume, membership) = (&*running.volume, &*running.membership);
        let looks = volume.look_at_members();
        let view = volume.view();
        let journal = volume.journal().map(|journal| journal.member);
        let seated = |look: MemberLook| {
            let label = absolute(&look.path.to_string_lossy());
            let (slot, replaces) = (slot_of(&view, look.id), replaced_by(&view, look.id));
            let standing = match (slot, replaces, look.is_in) {
                (Some(_), ..) => Standing::Active,
                (None, Some(_), _) => Standing::Replacing,
                (None, None, true) if journal == Some(look.id) => Standing::Journal,
                (None, None, true) => Standing::Waiting,
                (None, None, false) => Standing::Out,
            };
            let slot = slot.or(replaces);
            // No superblock update reaches a failed member, so the superblock on the failed member
            // names its last slot.
            let had = match look.superblock.state.role {
                Role::Active(slot) if standing == Standing::Out => Some(slot),
                _ => None,
            };
            let slot = slot.or(had);
            CurrentMember { look, label, standing, slot }
        };
        Self {
            volume,
            membership,
            facts,
            word: facts.word(),
            ground: array::ground(volume),
            members: looks.into_iter().map(seated).collect(),
            moved_from: None,
            devices: RequestDevices::default(),
            shape_words: None,
        }
    }

    /// The member with this slot number or path. If several share a path, the member whose standing
    /// is first in `order` is returned.
    fn find(&self, word: &str, order: [Standing; 5]) -> Result<&CurrentMember, CliError> {
        let number = word.parse::<u16>().ok().filter(|_| !word.starts_with('+'));
        let key = if number.is_none() { braid_member::key_at(Path::new(word)) } else { None };
        let is_meant = |one: &CurrentMember| match number {
            Some(number) => one.slot == Some(number),
            None => one.label == word || is_key(one, key),
        };
        let of = |standing| {
            self.members.iter().find(move |one| one.standing == standing && is_meant(one))
        };
        // A slot number selects a member in this order of standings, for every request.
        let order = match number {
            Some(_) => {
                use Standing::{Active, Journal, Out, Replacing, Waiting};
                [Active, Out, Waiting, Replacing, Journal]
            }
            None => order,
        };
        order.into_iter().find_map(of).ok_or_else(|| refusals::no_such_member(self, word, number))
    }

    /// How many more members may be lost, with this slot's member counted as lost.
    fn can_lose(&self, without: Option<u16>) -> u16 {
        let view = self.volume.view();
        let is_in_sync = |slot: Slot| {
            let is_whole =
                |member: &braid_runtime::MemberView| member.recovered_sectors == u64::MAX;
            Some(slot.0) != without && view.member(slot).is_some_and(is_whole)
        };
        Tolerance::of(&self.volume.geometry(), view.resync_offset, &is_in_sync).can_lose
    }

    /// Number of empty slots that no waiting spare could take.
    fn free_slots(&self) -> usize {
        let waiting = self.members.iter().filter(|one| one.standing == Standing::Waiting).count();
        self.ground.missing_count.saturating_sub(waiting)
    }
}

fn slot_of(view: &ArrayView, id: MemberId) -> Option<u16> {
    let slots = (0u16..).zip(&view.slots);
    let mut slots = slots.filter(|(_, one)| one.as_ref().is_some_and(|one| one.id == id));
    slots.next().map(|(slot, _)| slot)
}

/// The slot of the member that `id` is to replace.
fn replaced_by(view: &ArrayView, id: MemberId) -> Option<u16> {
    let is_it = |slot: &Slot| view.member(*slot).is_some_and(|one| one.replacement == Some(id));
    view.slots_with_replacement().find(is_it).map(|slot| slot.0)
}

fn is_key(one: &CurrentMember, key: Option<IdentityKey>) -> bool {
    key == Some(one.look.key)
}

#[derive(Default)]
struct Outcome {
    members: Vec<MemberChanged>,
    destroyed: Vec<String>,
    saved_in: Option<String>,
    /// The slot that the change of members leaves empty.
    lost: Option<u16>,
}

/// Performs the request, or returns an error with its HTTP status.
pub(super) fn change(
    running: &ArrayParts,
    facts: &Facts,
    request: (&MembersWanted, &PassedDescriptors),
    dry_run: bool,
) -> Result<MembersAnswer, (u16, CliError)> {
    change_for(running, facts, request, (dry_run, None))
}

/// Adds the devices that a new shape needs, in the way of [`change`]. `shape_words` are the words
/// for that shape.
pub(super) fn join(
    running: &ArrayParts,
    facts: &Facts,
    request: (&MembersWanted, &PassedDescriptors),
    (dry_run, shape_words): (bool, String),
) -> Result<MembersAnswer, (u16, CliError)> {
    change_for(running, facts, request, (dry_run, Some(shape_words)))
}

fn change_for(
    running: &ArrayParts,
    facts: &Facts,
    (wanted, passed): (&MembersWanted, &PassedDescriptors),
    (dry_run, shape_words): (bool, Option<String>),
) -> Result<MembersAnswer, (u16, CliError)> {
    let _one = running.membership.alone();
    let devices = RequestDevices::of(wanted, passed, running.membership.opens_nothing);
    let devices = devices.map_err(|error| (refusals::status(&error), error))?;
    let context = RequestContext { devices, shape_words, ..RequestContext::new(running, facts) };
    let outcome = context.may_be_changed().and_then(|()| match wanted.request {
        MemberRequest::Add | MemberRequest::Spare => new_members::add(&context, wanted, dry_run),
        MemberRequest::Journal => new_members::add_journal(&context, wanted, dry_run),
        MemberRequest::Fail => context.one(wanted).and_then(|word| fail(&context, word, dry_run)),
        MemberRequest::Remove => {
            context.one(wanted).and_then(|word| remove(&context, word, dry_run))
        }
        MemberRequest::Replace => {
            context.only(wanted).and_then(|word| replace(&context, (wanted, word), dry_run))
        }
        MemberRequest::WriteMostly => write_mostly(&context, wanted, dry_run),
    });
    let outcome = outcome.map_err(|error| (refusals::status(&error), error))?;
    // The array's state after the change, or now on a dry run.
    let now = RequestContext::new(running, facts);
    let would_wait = outcome.members.iter().filter(|one| {
        let joins = [MemberEffect::Rebuilds, MemberEffect::CatchesUp, MemberEffect::Waits];
        dry_run && joins.contains(&one.effect)
    });
    let waiting = now.members.iter().filter(|one| one.standing == Standing::Waiting);
    let spares = waiting.count() + would_wait.count();
    let missing = now.ground.missing_count + usize::from(dry_run && outcome.lost.is_some());
    Ok(MembersAnswer {
        version: VERSION,
        name: facts.name.clone(),
        uuid: facts.uuid.clone(),
        request: wanted.request,
        members: outcome.members,
        destroyed: outcome.destroyed,
        saved_in: outcome.saved_in,
        can_lose: now.can_lose(outcome.lost),
        free_slots: u16::try_from(missing.saturating_sub(spares)).unwrap_or(u16::MAX),
        spares: u16::try_from(spares).unwrap_or(u16::MAX),
        jobs_paused: running.board.snapshot(&running.volume).is_paused,
        dry_run,
    })
}

impl RequestContext<'_> {
    /// Whether the array accepts member requests at all.
    fn may_be_changed(&self) -> Result<(), CliError> {
        match self.ground {
            Ground { is_redundant: false, .. } if self.shape_words.is_none() => {
                Err(refusals::no_redundancy(self))
            }
            _ if self.volume.is_striping() => Err(refusals::no_redundancy(self)),
            Ground { is_read_only: true, .. } => Err(refusals::read_only(self)),
            _ if self.volume.journal().is_some_and(|journal| journal.has_failed) => {
                Err(refusals::journal_lost(self))
            }
            Ground { has_failed: true, .. } => Err(refusals::has_failed(self)),
            _ => Ok(()),
        }
    }

    /// The one member that the request names; an error if the request also sets another field.
    fn one<'a>(&self, wanted: &'a MembersWanted) -> Result<&'a str, CliError> {
        match wanted.destroy.is_empty() && wanted.with.is_none() {
            true => self.only(wanted),
            false => Err(refusals::not_one(self, wanted.members.len())),
        }
    }

    /// The one member that the request names, whether or not it sets other fields.
    fn only<'a>(&self, wanted: &'a MembersWanted) -> Result<&'a str, CliError> {
        match wanted.members.as_slice() {
            [one] => Ok(one),
            _ => Err(refusals::not_one(self, wanted.members.len())),
        }
    }
}

/// Adds devices that were spares of another array.
pub(super) fn take_over(
    running: &ArrayParts,
    facts: &Facts,
    wanted: &MembersWanted,
    moved_from: &str,
) -> Result<(), CliError> {
    let _one = running.membership.alone();
    let context =
        RequestContext { moved_from: Some(moved_from), ..RequestContext::new(running, facts) };
    context.may_be_changed().and_then(|()| new_members::add(&context, wanted, false)).map(|_| ())
}

fn fail(context: &RequestContext<'_>, word: &str, dry_run: bool) -> Result<Outcome, CliError> {
    use Standing::{Active, Journal, Out, Replacing, Waiting};
    let member = context.find(word, [Active, Replacing, Waiting, Out, Journal])?;
    let changed = |effect| MemberChanged {
        member: member.label.clone(),
        // A member that is to replace another has no slot of its own yet.
        slot: member.slot.filter(|_| member.standing != Standing::Replacing),
        effect,
        returns: false,
        kept_sectors: 0,
    };
    if member.standing == Standing::Journal {
        return Err(refusals::is_journal(context, member));
    }
    if member.standing == Standing::Out {
        return Ok(Outcome { members: vec![changed(MemberEffect::Nothing)], ..Outcome::default() });
    }
    let id = member.look.id;
    let refused = |refusal| match refusal {
        MemberRefusal::Needed => refusals::needed(context, member),
        other => refusals::refused(context, other),
    };
    context.volume.may_fail_member(id).map_err(refused)?;
    if !dry_run {
        context.volume.fail_member(id).map_err(refused)?;
        wait_until_recorded(context, id, member.standing == Standing::Waiting);
    }
    let lost = member.slot.filter(|_| member.standing == Standing::Active);
    Ok(Outcome { members: vec![changed(MemberEffect::Fails)], lost, ..Outcome::default() })
}

/// Waits until the superblocks of the other members record the failure, or until the loss of a
/// spare was reported, so that a following `remove` succeeds. After a timeout, the `remove` is
/// refused, and can be tried again.
fn wait_until_recorded(context: &RequestContext<'_>, id: MemberId, is_spare: bool) {
    let began = Instant::now();
    let is_there = || match is_spare {
        true => !context.membership.is_lost_spare(id),
        false => context.volume.view().is_used(id),
    };
    while is_there() && began.elapsed() < RECORDED_WITHIN {
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// Sets write-mostly on exactly these members: reads avoid them while another copy exists.
fn write_mostly(
    context: &RequestContext<'_>,
    wanted: &MembersWanted,
    dry_run: bool,
) -> Result<Outcome, CliError> {
    use Standing::{Active, Journal, Out, Replacing, Waiting};
    refusals::has_copies(context)?;
    let find = |word: &String| context.find(word, [Active, Replacing, Waiting, Out, Journal]);
    let meant = wanted.members.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    let is_meant = |one: &CurrentMember| meant.iter().any(|meant| meant.look.id == one.look.id);
    let mut outcome = Outcome::default();
    for one in context.members.iter().filter(|one| one.look.is_in) {
        let is_it = is_meant(one);
        if one.look.superblock.device.flags.write_mostly == is_it {
            continue;
        }
        if !dry_run {
            let set = context.volume.set_write_mostly(one.look.id, is_it);
            set.map_err(|refusal| refusals::refused(context, refusal))?;
        }
        outcome.members.push(MemberChanged {
            member: one.label.clone(),
            slot: one.slot,
            effect: if is_it { MemberEffect::WriteMostly } else { MemberEffect::ReadAgain },
            returns: false,
            kept_sectors: 0,
        });
    }
    Ok(outcome)
}

fn replace(
    context: &RequestContext<'_>,
    (wanted, word): (&MembersWanted, &str),
    dry_run: bool,
) -> Result<Outcome, CliError> {
    use Standing::{Active, Journal, Out, Replacing, Waiting};
    let order = [Active, Out, Replacing, Waiting, Journal];
    let member = context.find(word, order)?;
    let old = member.look.id;
    let slot = context.volume.may_replace_member(old);
    let slot =
        slot.map_err(|refusal| refusals::not_replaced(context, (member, wanted), refusal))?;
    let is_meant = |one: &&CurrentMember| match &wanted.with {
        None => true,
        Some(with) => one.label == *with || is_key(one, braid_member::key_at(Path::new(with))),
    };
    let mut waiting = context.members.iter().filter(|one| one.standing == Standing::Waiting);
    let Some(spare) = waiting.find(is_meant) else {
        return match &wanted.with {
            Some(device) => new_members::replace(context, wanted, (slot.0, device), dry_run),
            None => Err(refusals::no_spare(context, member)),
        };
    };
    if !dry_run {
        let replaced = context.volume.replace_member(old, spare.look.id);
        replaced.map_err(|refusal| refusals::not_replaced(context, (member, wanted), refusal))?;
    }
    let effect = MemberEffect::Replaces;
    let new = MemberChanged {
        member: spare.label.clone(),
        slot: Some(slot.0),
        effect,
        returns: false,
        kept_sectors: 0,
    };
    Ok(Outcome { members: vec![new], ..Outcome::default() })
}

fn remove(context: &RequestContext<'_>, word: &str, dry_run: bool) -> Result<Outcome, CliError> {
    let is_out = |one: &&CurrentMember| one.standing == Standing::Out;
    let out = || context.members.iter().filter(is_out);
    let leads_nowhere = |one: &&CurrentMember| !braid_member::may_be_there(Path::new(&one.label));
    let members: Vec<&CurrentMember> = match word {
        "failed" => out().collect(),
        "detached" => out().filter(leads_nowhere).collect(),
        word => {
            use Standing::{Active, Journal, Out, Replacing, Waiting};
            vec![context.find(word, [Out, Waiting, Replacing, Active, Journal])?]
        }
    };
    let is_journal = |one: &&&CurrentMember| one.standing == Standing::Journal;
    if let Some(journal) = members.iter().find(is_journal) {
        return Err(refusals::is_journal(context, journal));
    }
    let is_used =
        |one: &&&CurrentMember| matches!(one.standing, Standing::Active | Standing::Replacing);
    if let Some(active) = members.iter().find(is_used) {
        return Err(refusals::in_use(context, active));
    }
    let mut outcome = Outcome::default();
    for member in members {
        if !dry_run {
            take_away(context, member).map_err(|error| {
                let gone = |error: CliError, one: &MemberChanged| {
                    error.because(format!("{} was removed before that", one.member))
                };
                outcome.members.iter().fold(error, gone)
            })?;
        }
        outcome.members.push(MemberChanged {
            member: member.label.clone(),
            slot: member.slot,
            effect: MemberEffect::Goes,
            returns: false,
            kept_sectors: 0,
        });
    }
    Ok(outcome)
}

/// Removes a member that is out, or a spare, and closes its device.
fn take_away(context: &RequestContext<'_>, member: &CurrentMember) -> Result<(), CliError> {
    let removed = context.membership.remove(context.volume, member.look.id, member.slot);
    removed.map_err(|error| match error {
        RemoveError::Busy => refusals::unanswered(context, member),
        RemoveError::Refused(MemberRefusal::InUse) => refusals::in_use(context, member),
        RemoveError::Refused(other) => refusals::refused(context, other),
    })
}

/// The error code for a refused member request.
fn code_of(refusal: MemberRefusal) -> Code {
    match refusal {
        MemberRefusal::NoMember => Code::NoSuchMember,
        MemberRefusal::InUse => Code::MemberInUse,
        MemberRefusal::Replaced | MemberRefusal::Unrecovered => Code::NotReplaced,
        MemberRefusal::NoSpare => Code::NoSpare,
        MemberRefusal::Needed => Code::MemberNeeded,
        MemberRefusal::NoRedundancy => Code::NoRedundancy,
        MemberRefusal::NoWrites => Code::ArrayFailed,
        MemberRefusal::Changing => Code::BitmapBusy,
    }
}
