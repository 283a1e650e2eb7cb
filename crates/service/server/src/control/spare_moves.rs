//! Moves a spare from another array of the same group to this one, which lacks a member.
//!
//! ```text
//!   arrays served here ─▶ choose (pure) ─▶ is it large enough? ─▶ the spare's server: remove
//!     ─┬─▶ this one: add, which tells md's MoveSpare
//!      └─▶ the add fails: the spare's server: spare again
//! ```
//!
//! Each array has its own process and finds other arrays by their control sockets in the runtime
//! folder. The array that lacks a member requests the spare. The spare's server removes the spare
//! as for an operator, and refuses a second array. After the removal and before the add, the device
//! belongs to no array, and a stop waits for the add. If this process is killed in between, the
//! other array's history records the removal, and the operator must add the device.

use std::path::Path;

use braid_control::model::{
    Array, MemberRequest, MembersAnswer, MembersWanted, Role, SettingValue, Slot, SlotState, State,
};
use braid_control::{ClientError, PassedDescriptors};
use braid_member::Access;

use super::{Answers, array, members, setting};
use crate::spare_group::{SpareGroup, SpareNeed};
use braid_console::error::code::Code;
use braid_discovery::contents::{self, Existing, Thing};
use braid_discovery::running::{self, RunningArray};

#[derive(Debug)]
struct Offer<'a> {
    /// The array that offers the spare.
    of: &'a RunningArray,
    path: &'a str,
}

/// Spares on offer from other arrays of the group, in the order in which to request them: the array
/// with the most spares first. An array that is not whole needs its spares itself, and offers none.
fn offers<'a>(own_uuid: &str, group: &str, all: &'a [RunningArray]) -> Vec<Offer<'a>> {
    let in_group = SettingValue::from(group);
    let gives = |one: &&RunningArray| {
        one.array.uuid != own_uuid
            && one.array.settings.get(SpareGroup::KEY) == Some(&in_group)
            && one.array.state == State::Ok
            && !one.array.server.stopping
    };
    let spares = |one: &'a RunningArray| one.array.slots.iter().filter_map(spare);
    let mut giving: Vec<&RunningArray> = all.iter().filter(gives).collect();
    giving.sort_by_key(|one| std::cmp::Reverse(spares(one).count()));
    let of = |of| spares(of).map(move |path| Offer { of, path });
    giving.into_iter().flat_map(of).collect()
}

/// The path of a spare that has no request pending.
fn spare(slot: &Slot) -> Option<&str> {
    let is_waiting = slot.state == SlotState::Waiting && slot.role == Role::Spare;
    slot.member.as_deref().filter(|_| is_waiting && slot.replaces.is_none())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    Nothing,
    /// A slot has no member, but a spare of this array waits to take the slot, or the slot's own
    /// member may return.
    SpareWaits,
    Member,
}

fn lack(running: &setting::ArrayParts) -> Lack {
    let volume = &running.volume;
    // Counts spares before slots. A spare that gets its slot between the two counts is counted
    // twice, never left out.
    let waiting = volume.waiting().iter().filter(|(_, replaces)| replaces.is_none()).count();
    let ground = array::ground(volume);
    let may_have = ground.is_redundant && !ground.is_read_only && !ground.has_failed;
    match ground.missing_count {
        0 => Lack::Nothing,
        // A RAID-0 in a reshape has no parity member on purpose.
        _ if !may_have || volume.is_striping() => Lack::Nothing,
        // A member that is away may return to its slot in a moment.
        missing if missing <= waiting + volume.kept_slots() => Lack::SpareWaits,
        _ => Lack::Member,
    }
}

impl Answers {
    /// Moves a spare from another array of the group to this array, if this array lacks a member.
    pub(in super::super) fn take_spare(&self, group: &str) -> SpareNeed {
        let lack = || self.running().map_or(Lack::Nothing, |running| lack(&running));
        match lack() {
            Lack::Nothing => return SpareNeed::Content,
            Lack::SpareWaits => return SpareNeed::Lacking,
            Lack::Member => {}
        }
        let all = running::all().running;
        for offer in offers(&self.facts.uuid, group, &all) {
            // The queries to other arrays took time, so check again whether this array lacks a
            // member.
            let Ok(running) = self.running() else { return SpareNeed::Content };
            if lack() != Lack::Member {
                break;
            }
            let group = &running.spare_group;
            if group.is_refused(offer.path) || !fits(&running, &offer) {
                continue;
            }
            match group.take(|| self.take(&running, &offer)) {
                None => return SpareNeed::Content,
                Some(Ok(()) | Err(None)) => {}
                Some(Err(Some(why))) => {
                    group.refuse(offer.path);
                    running.membership.say_not_moved(offer.path, why);
                }
            }
        }
        SpareNeed::Lacking
    }

    /// Adds a member that was left out when the array was taken over.
    pub(in super::super) fn add_member(&self, path: &Path) -> Result<(), String> {
        let running = self.running().map_err(|refusal| format!("{refusal:?}"))?;
        let wanted = MembersWanted {
            request: MemberRequest::Add,
            members: vec![path.to_string_lossy().into_owned()],
            with: None,
            destroy: Vec::new(),
            write_mostly: false,
            descriptors: Vec::new(),
        };
        let nothing = PassedDescriptors::of(Vec::new());
        let added = members::change(&running, &self.facts, (&wanted, &nothing), false);
        added.map(drop).map_err(|(_, error)| error.to_string())
    }

    /// Makes the other array remove the spare, and adds the spare to this array. The error has a
    /// reason only if one of the arrays was changed.
    fn take(&self, running: &setting::ArrayParts, offer: &Offer<'_>) -> Result<(), Option<String>> {
        let Offer { of, path } = offer;
        let name = &of.array.name;
        let wanted = |request, destroy: &[&str]| MembersWanted {
            request,
            members: vec![(*path).to_owned()],
            with: None,
            destroy: destroy.iter().map(|name| (*name).to_owned()).collect(),
            write_mostly: false,
            descriptors: Vec::new(),
        };
        let give_back = || match of
            .client()
            .post_with::<MembersAnswer>("/v1/members", &wanted(MemberRequest::Spare, &[]))
        {
            Ok(_) => format!("{name} has it again"),
            Err(why) => format!("{name} does not take it back: {why}"),
        };
        let now: Array = of.client().get("/v1/array").map_err(|_| None)?;
        if !now.slots.iter().filter_map(spare).any(|one| one == *path) {
            return Err(None);
        }
        let silent = Code::MemberSilent.to_string();
        let removed = of.client().post_with("/v1/members", &wanted(MemberRequest::Remove, &[]));
        let removed: Result<MembersAnswer, ClientError> = removed;
        match removed {
            Ok(_) => {}
            // If two arrays request a spare, its server refuses the second request.
            Err(ClientError::Refused(problem)) if problem.code != silent => return Err(None),
            // The other array may have removed the spare despite the error, for example with
            // requests still unanswered.
            Err(error) => {
                let back = give_back();
                return Err(Some(format!(
                    "{path} could not be taken from {name}: {error}; {back}"
                )));
            }
        }
        let add = wanted(MemberRequest::Add, &[&of.array.uuid]);
        members::take_over(running, &self.facts, &add, name).map_err(|error| {
            let back = give_back();
            Some(format!("{path} could not be taken from {name}: {error}; {back}"))
        })
    }
}

/// Whether the device is large enough, and holds no data except the other array's metadata. False
/// if the device cannot be examined.
fn fits(running: &setting::ArrayParts, offer: &Offer<'_>) -> bool {
    let Ok(device) = braid_member::open(Path::new(offer.path), Access::Examine) else {
        return false;
    };
    if running.volume.may_add_member(device.size_bytes()).is_err() {
        return false;
    }
    let Ok(existing) = Existing::look(device, offer.path) else { return false };
    let is_theirs = |thing: &Thing| thing.uuid.as_ref() == Some(&offer.of.array.uuid);
    contents::things(offer.path, &existing).iter().all(is_theirs)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use braid_discovery::status::sample;

    #[test]
    fn spares_are_taken_from_whole_arrays_of_the_group_that_have_most() {
        let array = |uuid: &str, group: &str, spares: &[&str]| {
            let mut array = sample::tank(&[SlotState::Ok; 4]);
            array.uuid = uuid.to_owned();
            array.settings.insert(SpareGroup::KEY.to_owned(), group.into());
            array.slots.extend(spares.iter().map(|path| sample::spare(path)));
            RunningArray { control: PathBuf::from("/run/braid/x.control"), array }
        };
        let mut degraded = array("d", "rack", &["/d1", "/d2", "/d3"]);
        degraded.array.state = State::Degraded;
        let mut stopping = array("s", "rack", &["/s1"]);
        stopping.array.server.stopping = true;
        let mut promised = array("p", "rack", &["/p1"]);
        promised.array.slots.last_mut().expect("a spare").replaces = Some(0);
        let all = [
            array("own", "rack", &["/o1"]),
            array("a", "rack", &["/a1"]),
            array("b", "rack", &["/b1", "/b2"]),
            array("c", "other", &["/c1"]),
            degraded,
            stopping,
            promised,
        ];
        let found: Vec<&str> = offers("own", "rack", &all).iter().map(|one| one.path).collect();
        assert_eq!(found, ["/b1", "/b2", "/a1"]);
    }
}
