//! Histories of whole arrays: clones, halves that ran apart, strangers, torn tables, wrong clocks.
//!
//! Here a disk is only its superblock and the last write that it holds, so that very many histories
//! can run. The array's machine, the superblocks and assembly are the shipped ones. Shards and data
//! are in [`crate::cycle`], not here.
//!
//! ```text
//!   writes form a tree:   w1 ── w2 ── w4 (half A ran alone)        every start chooses disks
//!                           └─ w3 (half B ran alone)               of one branch, or is refused
//! ```
//!
//! A write goes to every member of the view, in any order, and is acknowledged when the machine
//! allows it. So two disks belong together exactly if the last *acknowledged* write on each is the
//! same. A disk is stale compared with another exactly if the other's write is a later one of the
//! same branch. Assembly never sees writes, and the simulator never looks at event counts.
//!
//! md's format cannot tell one case: a clone is presented *instead* of its member, within one
//! event. That clone looks like a member that misses one update because of a power cut. The tally
//! counts the case (`clone-instead-believed`), and the history ends.
//!
//! # Invariants
//! - Assembly never mixes branches, never chooses stale disks or strangers, and refuses nothing
//!   without cause [check: histories_never_mix_and_meet_every_scenario].
//! - The checker can fail [check: a_mixed_choice_is_noticed].

mod disks;
mod machine;

use std::collections::BTreeSet;

use braid_assembly::{
    Assembly, Choice, Options, Reason, RecordedState, Refusal, Verdict, assemble,
};
use braid_geometry::{Geometry, Slot};

use crate::random::Random;
use crate::tally::Tally;
use disks::{ArrayKind, Device, STRANGER, UUID};

const STARTS: u64 = 14;

/// A write in the tree: the write before it, and whether a client got its acknowledgement.
#[derive(Clone, Copy, Debug)]
struct Write {
    after: usize,
    answered: bool,
}

struct History {
    kind: ArrayKind,
    devices: Vec<Device>,
    /// The first write stands for the content at creation, and is its own predecessor.
    writes: Vec<Write>,
    /// Device numbers of the disks that ran to the end of the last start without harm. Empty unless
    /// all of the array did. The next start must choose these disks again.
    sound: BTreeSet<u16>,
    seconds: u64,
    /// Whether the last state is also recorded outside the array, as the `braid` command records it
    /// in its state folder.
    keeps_record: bool,
    known: Option<RecordedState>,
    /// How many updates were interrupted and how many members were lost so far.
    disturbances: u64,
    random: Random,
    tally: Tally,
}

/// Runs one history.
///
/// # Panics
/// At the first wrong choice, with a description.
#[must_use]
pub fn explore(seed: u64) -> Tally {
    let mut random = Random::new(seed);
    let kind = ArrayKind::any(&mut random);
    let mut history = History {
        devices: kind.disks(UUID),
        sound: kind.numbers().collect(),
        kind,
        writes: vec![Write { after: 0, answered: true }],
        seconds: crate::create::MADE_AT_SECONDS,
        keeps_record: random.chance(50),
        known: None,
        disturbances: 0,
        random,
        tally: Tally { worlds: 1, ..Tally::default() },
    };
    for _ in 0..STARTS {
        history.tally.cycles += 1;
        if !history.start() {
            break;
        }
    }
    history.tally
}

impl History {
    /// The last acknowledged write that a disk holds if its newest write is `write`.
    fn answered(&self, mut write: usize) -> usize {
        while !self.writes[write].answered {
            write = self.writes[write].after;
        }
        write
    }

    /// Whether the write `later` descends from the write `earlier`.
    fn follows(&self, mut later: usize, earlier: usize) -> bool {
        while later > earlier {
            later = self.writes[later].after;
            if later == earlier {
                return true;
            }
        }
        false
    }

    /// Presents disks, checks assembly's choice, and runs the array. False ends the history.
    fn start(&mut self) -> bool {
        self.mischief();
        let presented = self.who_is_presented();
        let members: Vec<_> =
            presented.iter().map(|index| self.devices[*index].probed(*index)).collect();
        let own = |index: &usize| self.devices[*index].uuid == UUID;
        let is_ours = presented.iter().any(|i| own(i) && self.devices[*i].superblock().is_some());
        let uuid = (!is_ours || self.random.chance(90)).then_some(UUID);
        let choice = Choice { uuid, name: None };
        let options =
            Options { choice, known: self.known.iter().cloned().collect(), ..Options::default() };
        let mut labelled = members;
        if self.random.chance(10) {
            self.tally.count("same-disk-twice");
            let mut again = self.random.pick(&labelled).clone();
            again.label.push_str("-again");
            labelled.push(again);
        }
        let assembly = assemble(&labelled, &options);
        let is_open_choice = uuid.is_none();
        self.check_verdicts(&assembly, &presented);
        match &assembly.array {
            Ok(array) => {
                let index_of = |index: usize| presented[first_of(&labelled, index)];
                let chosen: Vec<usize> =
                    array.slots.iter().flatten().map(|one| index_of(one.member)).collect();
                let apart = presented.iter().zip(&assembly.verdicts);
                let apart = apart.filter(|(_, one)| matches!(one.reason, Reason::RanApart { .. }));
                let apart: BTreeSet<usize> = apart.map(|(index, _)| *index).collect();
                if !self.check_choice(&chosen, &presented, &apart) {
                    return false;
                }
                let array = array.clone();
                let by_index: Vec<usize> = (0..labelled.len()).map(index_of).collect();
                self.run(&array, &by_index);
            }
            Err(refusal) => self.check_refusal(refusal, &presented, is_open_choice),
        }
        true
    }

    /// Sometimes clones disks, adds disks of another array, or sets the clock.
    fn mischief(&mut self) {
        if self.random.chance(25) {
            let index = self.random.below(self.devices.len() as u64) as usize;
            let mut clone = self.devices[index].clone();
            clone.is_clone = true;
            clone.taken_at.get_or_insert(self.disturbances);
            self.devices.push(clone);
            self.tally.count("clone-taken");
        }
        if self.random.chance(8) {
            let stranger = self.random.pick(&self.kind.disks(STRANGER)).clone();
            self.devices.push(stranger);
        }
        self.seconds = if self.random.chance(20) {
            self.tally.count("clock-backwards");
            self.seconds - self.random.below(100_000)
        } else {
            self.seconds + self.random.below(100)
        };
    }

    /// Draws the disks to present, in any order; often all disks of the array.
    fn who_is_presented(&mut self) -> Vec<usize> {
        let own = 0..self.kind.disks_count();
        let mut presented: Vec<usize> = own.collect();
        if self.random.chance(35) {
            self.tally.count("disks-withheld");
            let percent = *self.random.pick(&[20, 50, 80]);
            presented.retain(|_| self.random.chance(percent));
        }
        for extra in self.kind.disks_count()..self.devices.len() {
            if self.random.chance(20) {
                presented.push(extra);
            }
        }
        if presented.is_empty() {
            presented.push(0);
        }
        self.random.shuffle(&mut presented);
        presented
    }

    fn check_verdicts(&mut self, assembly: &Assembly, presented: &[usize]) {
        for (index, verdict) in presented.iter().zip(&assembly.verdicts) {
            let device = &self.devices[*index];
            let (verdict, reason) = (verdict.verdict, &verdict.reason);
            if device.uuid == STRANGER {
                self.tally.count("foreign-disk");
                assert!(matches!(verdict, Verdict::Foreign | Verdict::Duplicate), "{reason}");
            } else if device.superblock().is_none() {
                self.tally.count("torn-table-presented");
                assert!(verdict.slot().is_none() && verdict != Verdict::Spare, "{reason}");
            } else if device.is_spare {
                assert!(verdict.slot().is_none(), "a spare is believed: {reason}");
            }
        }
    }

    /// Whether another presented disk has the same device number.
    fn has_twin(&self, index: usize, presented: &[usize]) -> bool {
        let device = &self.devices[index];
        presented.iter().any(|other| *other != index && self.devices[*other].is_twin_of(device))
    }

    /// Checks which disks assembly chose. False if it chose a clone instead of its member and md's
    /// format could not tell the two apart.
    fn check_choice(
        &mut self,
        chosen: &[usize],
        presented: &[usize],
        ran_apart: &BTreeSet<usize>,
    ) -> bool {
        let answered = |index: &usize| self.answered(self.devices[*index].write);
        let last = chosen.iter().map(answered).max().expect("an array has members");
        let mixed = chosen.iter().find(|index| answered(index) != last);
        let could_tell = |index: &&usize| {
            let device = &self.devices[**index];
            device.uuid == UUID && !device.is_spare && device.superblock().is_some()
        };
        let own: Vec<usize> = presented.iter().filter(could_tell).copied().collect();
        let newer = own
            .iter()
            .find(|index| !ran_apart.contains(index) && self.follows(answered(index), last));
        if mixed.is_some() || newer.is_some() {
            let is_instead = |index: &usize| {
                let device = &self.devices[*index];
                // A disk with a torn superblock does not say which array it belongs to.
                let is_silent = |other: &usize| {
                    !presented.contains(other) || self.devices[*other].superblock().is_none()
                };
                let mut others = (0..self.devices.len()).filter(is_silent);
                others.any(|other| self.devices[other].is_twin_of(device))
            };
            // All chosen disks belong to one branch, except clones that replace a member.
            let (instead, own): (Vec<usize>, Vec<usize>) =
                chosen.iter().partition(|i| is_instead(i));
            let is_of_one = own.iter().all(|index| answered(index) == answered(&own[0]));
            assert!(
                !instead.is_empty() && is_of_one,
                "chosen {chosen:?} of {presented:?}: mixed {mixed:?}, newer {newer:?} than {last}"
            );
            let told = own.iter().map(|index| self.devices[*index].updates).max();
            let misses = |index: &&usize| newer.is_some() || answered(index) != last;
            let could = |index: &&usize| self.can_be_told(&self.devices[**index], told);
            let misled = instead.iter().filter(misses).find(could);
            assert!(misled.is_none(), "{misled:?} of {chosen:?} is an old copy");
            self.tally.count("clone-instead-believed");
            return false;
        }
        if !ran_apart.is_empty() {
            self.tally.count("split-brain-one-half-chosen");
        }
        if chosen.iter().any(|index| self.devices[*index].is_clone) {
            self.tally.count("clone-as-good-as-its-member");
        }
        if presented.iter().any(|index| self.has_twin(*index, presented)) {
            self.tally.count("clone-presented");
        }
        self.tally.count("started");
        true
    }

    /// Whether assembly can notice that a clone replaces its member and misses writes. `told` is
    /// the number of superblock updates on the most updated of the other members.
    ///
    /// - The record in the state folder shows the missed writes, unless an interrupted update
    ///   reached the clone. Then a later update can have the same event count and, if the clock
    ///   stands still, the same time.
    /// - Without a spare, every update is written twice, with one more event each time. So a clone
    ///   that missed a change is two events behind, unless an interrupted update reached the clone.
    /// - With a spare, turning active adds one event and turning clean takes it back. After an even
    ///   number of updates the counts are equal and only the times differ. This holds if no member
    ///   was lost and no update interrupted since the disk was cloned.
    fn can_be_told(&self, clone: &Device, told: Option<u64>) -> bool {
        let is_undisturbed = clone.taken_at == Some(self.disturbances);
        let since = told.map_or(0, |told| told.saturating_sub(clone.updates));
        let comes_again = is_undisturbed && since > 0 && since.is_multiple_of(2);
        let is_older = since > 1 && (self.kind.spares == 0 || comes_again);
        let by_format = is_older && !clone.is_ahead;
        by_format || self.keeps_record && !clone.is_ahead
    }

    fn check_refusal(&mut self, refusal: &Refusal, presented: &[usize], is_open_choice: bool) {
        let count = match refusal {
            Refusal::SlotClaimedTwice { labels, .. } => {
                let twins = presented.iter().any(|index| self.has_twin(*index, presented));
                assert!(twins && labels.len() > 1, "{refusal}");
                "refused-clone-beside-its-member"
            }
            Refusal::RolesContradict { labels } => {
                assert!(labels.len() > 1, "{refusal}");
                "refused-contradictory"
            }
            Refusal::SeveralArrays { arrays } => {
                let foreign = presented.iter().any(|index| self.devices[*index].uuid == STRANGER);
                assert!(is_open_choice && foreign && arrays.len() == 2, "{refusal}");
                "refused-several-arrays"
            }
            Refusal::NewestDamaged { labels, .. } => {
                let has_none = |index: &&usize| self.devices[**index].superblock().is_none();
                let damaged = presented.iter().filter(has_none).count();
                assert!(damaged >= labels.len(), "{refusal}");
                "refused-newest-damaged"
            }
            Refusal::OlderThanKnown { .. } => {
                assert!(self.known.is_some(), "{refusal}");
                "refused-older-than-known"
            }
            Refusal::DirtyAndDegraded(_) => "refused-write-hole",
            Refusal::TooFewMembers { .. } => "refused-too-few",
            Refusal::NoMembers { .. } => "refused-no-members",
            _ => panic!("refused without reason: {refusal}"),
        };
        self.tally.count(count);
        let alone = presented.iter().all(|index| {
            let device = &self.devices[*index];
            device.uuid == UUID && !device.is_clone
        });
        assert!(!(alone && self.is_sound(presented)), "the disks are sound: {refusal}");
    }

    /// Whether `presented` includes all disks that ran to the end of the last start without harm.
    /// False if the last start left no such set of disks.
    fn is_sound(&self, presented: &[usize]) -> bool {
        let own = presented.iter().filter(|index| !self.devices[**index].is_clone);
        let numbers: BTreeSet<u16> = own.map(|index| self.devices[*index].number).collect();
        !self.sound.is_empty() && self.sound.is_subset(&numbers)
    }
}

/// The first index in `labelled` that has the same identity as the disk at `index`.
fn first_of(labelled: &[braid_assembly::ProbedMember], index: usize) -> usize {
    let identity = &labelled[index].identity;
    let first = labelled.iter().position(|member| member.identity == *identity);
    first.expect("it is in the list itself")
}

/// Whether the level tolerates the slots without a member.
fn survives(geometry: &Geometry, slots: &[bool]) -> bool {
    geometry.survives(&|slot: Slot| !slots[slot.index()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histories_never_mix_and_meet_every_scenario() {
        let mut total = Tally::default();
        (0..4000).for_each(|seed| total.add(&explore(seed)));
        for name in [
            "clone-taken",
            "clone-presented",
            "clone-as-good-as-its-member",
            "refused-clone-beside-its-member",
            "split-brain-one-half-chosen",
            "refused-contradictory",
            "foreign-disk",
            "refused-several-arrays",
            "same-disk-twice",
            "clock-backwards",
            "torn-table-presented",
            "refused-newest-damaged",
            "spare-told",
            "power-cut",
            "levelled",
        ] {
            assert!(total.of(name) > 0, "{name} never happened: {:?}", total.counts);
        }
    }

    /// A history with two writes; only the first disk has the second.
    fn mixed() -> History {
        let mut random = Random::new(1);
        let mut kind = ArrayKind::any(&mut random);
        while kind.slots < 4 {
            kind = ArrayKind::any(&mut random);
        }
        let mut history = History {
            devices: kind.disks(UUID),
            sound: BTreeSet::new(),
            kind,
            writes: vec![Write { after: 0, answered: true }, Write { after: 0, answered: true }],
            seconds: crate::create::MADE_AT_SECONDS,
            keeps_record: false,
            known: None,
            disturbances: 0,
            random,
            tally: Tally::default(),
        };
        history.devices[0].write = 1;
        history
    }

    /// The checker notices a wrong choice. Here a member's write is older than its superblock says.
    #[test]
    #[should_panic(expected = "mixed Some")]
    fn a_mixed_choice_is_noticed() {
        mixed().check_choice(&[0, 1], &[0, 1], &BTreeSet::new());
    }

    /// A clone in place of its member does not excuse the wrong choice of another disk.
    #[test]
    #[should_panic(expected = "mixed Some")]
    fn a_mixed_choice_beside_a_clone_is_noticed() {
        let mut history = mixed();
        let clone = history.devices.len();
        history.devices.push(history.devices[2].clone());
        history.devices[clone].is_clone = true;
        history.check_choice(&[0, 1, clone], &[0, 1, clone], &BTreeSet::new());
    }

    #[test]
    fn a_clone_instead_of_its_member_is_an_excuse_for_itself() {
        let mut history = mixed();
        let clone = history.devices.len();
        history.devices.push(history.devices[2].clone());
        history.devices[clone].is_clone = true;
        history.devices[1].write = 1;
        let chosen = [0, 1, clone];
        assert!(!history.check_choice(&chosen, &chosen, &BTreeSet::new()));
    }
}
