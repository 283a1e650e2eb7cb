//! Decides the next step of a replay, from a table of facts.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Between,
    Read,
    Compute,
    Write,
    Flush,
    Record,
    Void,
    Done,
}

/// A count as the decision table distinguishes counts: none, one, or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    None,
    One,
    More,
}

impl Count {
    pub(super) fn of(count: usize) -> Self {
        match count {
            0 => Self::None,
            1 => Self::One,
            _ => Self::More,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "facts, each of its own")]
pub(super) struct Facts {
    pub(super) phase: Phase,
    pub(super) is_pending: bool,
    /// Whether a write, a flush, a superblock or a log failed.
    pub(super) has_failed: bool,
    pub(super) has_step: bool,
    /// Whether a read of more than one sector failed.
    pub(super) may_split: bool,
    /// Number of missing columns that the interrupted write covers.
    pub(super) lacks_written: Count,
    /// Number of missing columns that the interrupted write does not cover.
    pub(super) lacks_kept: Count,
    /// Whether the log has partial parity for the step.
    pub(super) has_partial: bool,
    /// Whether the step computes Q, and P is present.
    pub(super) has_p: bool,
    /// Whether P's log has partial parity for the same columns.
    pub(super) has_p_partial: bool,
    /// Whether parity must become durable.
    pub(super) is_durable: bool,
    /// Whether superblocks may say clean: all members are present, and the replay made all parity
    /// fit.
    pub(super) may_settle: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Wait,
    Begin,
    /// Repeat the step sector by sector.
    Split,
    /// Compute parity from all data.
    Recompute,
    /// Compute parity from the columns that were being written, and partial parity.
    FromPartial,
    /// Compute Q from all data, with the missing column computed from P and the other columns.
    FromP,
    /// Compute Q from the columns that were being written and Q's partial parity. P and its partial
    /// parity supply the missing column.
    FromPAndPartials,
    /// Leave parity as it is.
    Leave,
    Write,
    Next,
    Flush,
    Record,
    Void,
    Finish,
    Fail,
}

pub(super) fn decide(facts: &Facts) -> Decision {
    if facts.is_pending {
        return Decision::Wait;
    }
    if facts.has_failed && facts.phase != Phase::Done {
        return Decision::Fail;
    }
    match facts.phase {
        Phase::Between if facts.has_step => Decision::Begin,
        Phase::Between if facts.is_durable => Decision::Flush,
        Phase::Between | Phase::Void => Decision::Finish,
        Phase::Read => of_columns(facts),
        Phase::Compute => Decision::Write,
        Phase::Write => Decision::Next,
        Phase::Flush if facts.may_settle => Decision::Record,
        Phase::Flush => Decision::Finish,
        Phase::Record => Decision::Void,
        Phase::Done => Decision::Wait,
    }
}

/// The decision after the replay has read every readable column.
fn of_columns(facts: &Facts) -> Decision {
    let lacks = (facts.lacks_written, facts.lacks_kept);
    match lacks {
        _ if facts.may_split => Decision::Split,
        (Count::None, Count::None) => Decision::Recompute,
        (Count::None, _) if facts.has_partial => Decision::FromPartial,
        (Count::One, Count::None) if facts.has_p => Decision::FromP,
        (Count::One, _) if facts.has_p && facts.has_partial && facts.has_p_partial => {
            Decision::FromPAndPartials
        }
        _ => Decision::Leave,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASES: [Phase; 8] = [
        Phase::Between,
        Phase::Read,
        Phase::Compute,
        Phase::Write,
        Phase::Flush,
        Phase::Record,
        Phase::Void,
        Phase::Done,
    ];

    fn all() -> impl Iterator<Item = Facts> {
        const COUNTS: [Count; 3] = [Count::None, Count::One, Count::More];
        let lacks = COUNTS.into_iter().flat_map(|one| COUNTS.map(|other| (one, other)));
        let lacks: Vec<(Count, Count)> = lacks.collect();
        PHASES.into_iter().flat_map(move |phase| {
            let lacks = lacks.clone();
            (0_u32..1 << 9).flat_map(move |bits| {
                let bit = move |index: u32| bits >> index & 1 != 0;
                let facts = move |(lacks_written, lacks_kept)| Facts {
                    phase,
                    is_pending: bit(0),
                    has_failed: bit(1),
                    has_step: bit(2),
                    may_split: bit(3),
                    lacks_written,
                    lacks_kept,
                    has_p: bit(4),
                    has_p_partial: bit(5),
                    has_partial: bit(6),
                    is_durable: bit(7),
                    may_settle: bit(8),
                };
                lacks.clone().into_iter().map(facts)
            })
        })
    }

    #[test]
    fn nothing_is_made_of_what_is_not_there() {
        for facts in all() {
            let lacks = (facts.lacks_written, facts.lacks_kept);
            match decide(&facts) {
                Decision::Recompute => {
                    assert_eq!(lacks, (Count::None, Count::None), "{facts:?}");
                    assert_eq!(facts.phase, Phase::Read, "{facts:?}");
                }
                Decision::FromPartial => {
                    assert!(lacks.0 == Count::None && facts.has_partial, "{facts:?}");
                }
                // P supplies one missing column. If kept columns are missing too, partial parities
                // stand for them.
                Decision::FromP => {
                    assert!(lacks == (Count::One, Count::None) && facts.has_p, "{facts:?}");
                }
                Decision::FromPAndPartials => {
                    let has_both = facts.has_partial && facts.has_p_partial;
                    assert!(lacks.0 == Count::One && lacks.1 != Count::None, "{facts:?}");
                    assert!(facts.has_p && has_both, "{facts:?}");
                }
                Decision::Write => assert_eq!(facts.phase, Phase::Compute),
                _ => {}
            }
        }
    }

    #[test]
    fn clean_comes_after_a_flush_and_with_everybody() {
        for facts in all() {
            match decide(&facts) {
                Decision::Record => assert!(facts.may_settle && facts.phase == Phase::Flush),
                Decision::Void => assert_eq!(facts.phase, Phase::Record),
                Decision::Flush => assert!(!facts.has_step && facts.is_durable, "{facts:?}"),
                Decision::Finish if facts.is_durable => {
                    assert!(matches!(facts.phase, Phase::Flush | Phase::Void), "{facts:?}");
                }
                _ => {}
            }
        }
    }

    #[test]
    fn what_failed_ends_it_and_what_is_asked_for_is_waited_for() {
        for facts in all() {
            let decision = decide(&facts);
            let is_over = facts.phase == Phase::Done;
            assert_eq!(decision == Decision::Wait, facts.is_pending || is_over, "{facts:?}");
            let fails = facts.has_failed && !is_over && !facts.is_pending;
            assert_eq!(decision == Decision::Fail, fails, "{facts:?}");
        }
    }
}
