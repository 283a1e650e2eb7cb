//! Decides the next step of the work on an extent: a pure table from facts to one action.
//!
//! | Stage | out | range      |                                   | action | ends a Wait         |
//! |-------|-----|------------|-----------------------------------|--------|---------------------|
//! | any   | yes |            |                                   | Wait   | the member's answer |
//! | Read  | no  | waited for |                                   | Wait   | its holders         |
//! | Read  | no  | locked     | it was read; a copy to be mended  | Mend   |                     |
//! | Read  | no  |            | it was read                       | Finish |                     |
//! | Read  | no  |            | it is to be read again in halves  | Halve  |                     |
//! | Read  | no  | not asked  | a copy failed, and may be mended  | Lock   |                     |
//! | Read  | no  |            | another copy can be read          | Read   |                     |
//! | Read  | no  |            | none can                          | Refuse |                     |
//! | Write | no  | not asked  | no intent; the array takes writes | Wait   | a view, gate open   |
//! | Write | no  | not asked  | no intent                         | Refuse |                     |
//! | Write | no  | not asked  |                                   | Lock   |                     |
//! | Write | no  | waited for |                                   | Wait   | its holders         |
//! | Write | no  | locked     | it has not begun                  | Write  |                     |
//! | Write | no  | locked     | a copy missed it; can be recorded | Wait   | a view without it   |
//! | Write | no  | locked     | a copy missed it, or none has it  | Refuse |                     |
//! | Write | no  | locked     |                                   | Finish |                     |
//! | Mend  | no  | locked     |                                   | Finish |                     |
//!
//! *Out*: a request is outstanding. *Its holders*: the works that hold the range. *Without it*:
//! without the member.
//!
//! The first row that fits is taken. A read locks its range only when a copy has failed: the range
//! must not change while the copy is mended. [check: the_table_is_total]

use braid_sim_hooks::{Mark, reached};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// A client's read, of one copy.
    Read,
    /// A client's write, to every copy.
    Write,
    /// The read succeeded; its bytes are being written to the unreadable copies.
    Mend,
}

/// The state of the lock on the work's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Range {
    NotAsked,
    Waiting,
    Locked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) stage: Stage,
    pub(super) outstanding: bool,
    pub(super) range: Range,
    /// Read: the payload holds a copy's data.
    pub(super) was_read: bool,
    /// Read: the read is repeated in halves.
    pub(super) halves: bool,
    /// Read: a copy failed, and the array allows its rewrite.
    pub(super) mendable: bool,
    /// Read: a rewrite of a failed copy may help, and is possible now.
    pub(super) to_mend: bool,
    /// Read: a copy that has not failed can be read.
    pub(super) has_copy: bool,
    /// Write: superblocks allow writes to the region (I3).
    pub(super) intent: bool,
    /// Write: requests to the copies were submitted.
    pub(super) begun: bool,
    /// Write: at least one copy has the data.
    pub(super) written: bool,
    /// Write: a copy that missed the write still counts as good.
    pub(super) missed: bool,
    /// The array refuses writes, so superblocks record no more losses.
    pub(super) broken: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Wait,
    /// Lock the range.
    Lock,
    /// Read the chosen copy.
    Read,
    /// Begin the read again, in two parts.
    Halve,
    /// Write the payload to the copies that failed.
    Mend,
    /// Write every copy.
    Write,
    /// Answer: success.
    Finish,
    /// Answer: failure.
    Refuse,
}

pub(super) fn decide(facts: &Facts) -> Action {
    match (facts.stage, facts.range) {
        _ if facts.outstanding => Action::Wait,
        (Stage::Read | Stage::Write, Range::Waiting) => {
            reached(Mark::WaitsForRange);
            Action::Wait
        }
        (Stage::Read, Range::Locked) if facts.was_read && facts.to_mend => Action::Mend,
        (Stage::Read, _) if facts.was_read => Action::Finish,
        (Stage::Read, _) if facts.halves => Action::Halve,
        (Stage::Read, Range::NotAsked) if facts.mendable => Action::Lock,
        (Stage::Read, _) if facts.has_copy => Action::Read,
        (Stage::Read, _) => {
            reached(Mark::NoCopyLeft);
            Action::Refuse
        }
        (Stage::Write, Range::NotAsked) if !facts.intent && !facts.broken => Action::Wait,
        (Stage::Write, Range::NotAsked) if !facts.intent => {
            reached(Mark::GatedRefused);
            Action::Refuse
        }
        (Stage::Write, Range::NotAsked) => Action::Lock,
        (Stage::Write, Range::Locked) if !facts.begun => Action::Write,
        (Stage::Write, Range::Locked) if facts.missed && !facts.broken => {
            reached(Mark::MirrorAwaitsRecord);
            Action::Wait
        }
        (Stage::Write, Range::Locked) if facts.missed || !facts.written => {
            reached(Mark::MirrorRefuses);
            Action::Refuse
        }
        (Stage::Write, Range::Locked) | (Stage::Mend, _) => Action::Finish,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_facts() -> impl Iterator<Item = Facts> {
        let stages = [Stage::Read, Stage::Write, Stage::Mend];
        let ranges = [Range::NotAsked, Range::Waiting, Range::Locked];
        let pairs = stages.into_iter().flat_map(move |stage| ranges.map(|range| (stage, range)));
        pairs.flat_map(|(stage, range)| {
            (0_u32..1 << 11).map(move |bits| {
                let bit = |n: u32| bits >> n & 1 == 1;
                Facts {
                    stage,
                    range,
                    outstanding: bit(0),
                    was_read: bit(1),
                    halves: bit(2),
                    mendable: bit(3),
                    to_mend: bit(4),
                    has_copy: bit(5),
                    begun: bit(6),
                    written: bit(7),
                    missed: bit(8),
                    broken: bit(9),
                    intent: bit(10),
                }
            })
        })
    }

    #[test]
    fn the_table_is_total() {
        for facts in all_facts() {
            let action = decide(&facts);
            if facts.outstanding {
                assert_eq!(action, Action::Wait, "nothing moves under a request: {facts:?}");
                continue;
            }
            match action {
                Action::Wait => {
                    let by_lock = facts.range == Range::Waiting && facts.stage != Stage::Mend;
                    let by_view = facts.stage == Stage::Write && !facts.broken;
                    let by_view = by_view && (facts.missed || !facts.intent);
                    assert!(by_lock || by_view, "something will wake it: {facts:?}");
                }
                Action::Write | Action::Mend => {
                    assert_eq!(
                        facts.range,
                        Range::Locked,
                        "copies change under the lock: {facts:?}"
                    );
                }
                Action::Finish if facts.stage == Stage::Write => {
                    assert!(facts.written && !facts.missed, "I4, and a copy has it: {facts:?}");
                }
                Action::Finish if facts.stage == Stage::Read => {
                    assert!(facts.was_read, "{facts:?}");
                }
                Action::Lock if facts.stage == Stage::Write => {
                    assert!(facts.intent, "I3: superblocks say so first: {facts:?}");
                    assert_eq!(facts.range, Range::NotAsked, "asked once: {facts:?}");
                }
                Action::Lock => assert_eq!(facts.range, Range::NotAsked, "asked once: {facts:?}"),
                Action::Read => assert!(facts.has_copy && !facts.was_read, "{facts:?}"),
                Action::Finish | Action::Refuse | Action::Halve => {}
            }
        }
    }
}
