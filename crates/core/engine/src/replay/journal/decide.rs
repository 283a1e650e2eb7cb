//! Decides the next step in the replay of a journal, from a table of facts.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Between,
    Base,
    /// The missing columns of the base (the stripe before its new data) are computed.
    Solve,
    Take,
    Make,
    Keep,
    Seal,
    Commit,
    Load,
    Write,
    Flush,
    Restart,
    Tail,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// A pending stripe gets its parity.
    Settle,
    Seal,
    Copy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "facts, each of its own")]
pub(super) struct Facts {
    pub(super) phase: Phase,
    pub(super) is_pending: bool,
    /// Whether a member failed a request, and redundancy does not make up for it.
    pub(super) has_failed: bool,
    pub(super) job: Option<Job>,
    /// Whether a column of the base is unknown, and can still be read.
    pub(super) wants_column: bool,
    /// Whether a data column is missing that the stripe's new data does not replace.
    pub(super) lacks_kept: bool,
    /// Whether the known columns of the base suffice to compute the missing ones.
    pub(super) can_solve: bool,
    /// Whether the replay writes members, and not only memory.
    pub(super) is_durable: bool,
    /// Whether the journal has stripes to replay.
    pub(super) has_stripes: bool,
    /// Whether no server needs the journal any more once members are flushed.
    pub(super) may_restart: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Wait,
    Begin,
    Fetch,
    Solve,
    Take,
    /// Leave the stripe in the journal.
    Leave,
    Make,
    Keep,
    Seal,
    Commit,
    Load,
    Write,
    Next,
    Flush,
    Restart,
    MoveTail,
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
        Phase::Between => between(facts),
        Phase::Base => of_base(facts),
        Phase::Solve => Decision::Take,
        Phase::Take => Decision::Make,
        Phase::Make if facts.is_durable => Decision::Keep,
        Phase::Make | Phase::Load => Decision::Write,
        Phase::Seal => Decision::Commit,
        Phase::Keep | Phase::Commit | Phase::Write => Decision::Next,
        Phase::Flush if facts.may_restart => Decision::Restart,
        Phase::Restart => Decision::MoveTail,
        Phase::Flush | Phase::Tail => Decision::Finish,
        Phase::Done => Decision::Wait,
    }
}

fn between(facts: &Facts) -> Decision {
    match facts.job {
        Some(Job::Settle) => Decision::Begin,
        Some(Job::Seal) => Decision::Seal,
        Some(Job::Copy) => Decision::Load,
        None if facts.is_durable && facts.has_stripes => Decision::Flush,
        None => Decision::Finish,
    }
}

/// The next step for the base of a pending stripe: the stripe's old columns.
fn of_base(facts: &Facts) -> Decision {
    match () {
        () if facts.wants_column => Decision::Fetch,
        () if !facts.lacks_kept => Decision::Take,
        () if facts.can_solve => Decision::Solve,
        () => Decision::Leave,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASES: [Phase; 14] = [
        Phase::Between,
        Phase::Base,
        Phase::Solve,
        Phase::Take,
        Phase::Make,
        Phase::Keep,
        Phase::Seal,
        Phase::Commit,
        Phase::Load,
        Phase::Write,
        Phase::Flush,
        Phase::Restart,
        Phase::Tail,
        Phase::Done,
    ];
    const JOBS: [Option<Job>; 4] = [None, Some(Job::Settle), Some(Job::Seal), Some(Job::Copy)];

    fn all() -> impl Iterator<Item = Facts> {
        let kinds = PHASES.into_iter().flat_map(|phase| JOBS.map(|job| (phase, job)));
        kinds.flat_map(|(phase, job)| {
            (0_u32..1 << 8).map(move |bits| {
                let bit = |index: u32| bits >> index & 1 != 0;
                Facts {
                    phase,
                    job,
                    is_pending: bit(0),
                    has_failed: bit(1),
                    wants_column: bit(2),
                    lacks_kept: bit(3),
                    can_solve: bit(4),
                    is_durable: bit(5),
                    has_stripes: bit(6),
                    may_restart: bit(7),
                }
            })
        })
    }

    #[test]
    fn parity_is_made_of_all_data() {
        for facts in all() {
            match decide(&facts) {
                Decision::Solve => assert!(facts.lacks_kept && facts.can_solve, "{facts:?}"),
                Decision::Take if facts.phase == Phase::Base => assert!(!facts.lacks_kept),
                Decision::Take => assert_eq!(facts.phase, Phase::Solve),
                Decision::Leave => assert!(facts.lacks_kept && !facts.can_solve, "{facts:?}"),
                Decision::Make => assert_eq!(facts.phase, Phase::Take),
                _ => {}
            }
        }
    }

    #[test]
    fn the_order_is_kept() {
        for facts in all() {
            match decide(&facts) {
                Decision::Write if facts.is_durable => assert_eq!(facts.phase, Phase::Load),
                Decision::Commit => assert_eq!(facts.phase, Phase::Seal),
                Decision::Flush => assert!(facts.job.is_none() && facts.is_durable, "{facts:?}"),
                Decision::Restart => assert!(facts.phase == Phase::Flush && facts.may_restart),
                Decision::MoveTail => assert_eq!(facts.phase, Phase::Restart),
                Decision::Finish if facts.is_durable && facts.has_stripes => {
                    assert!(matches!(facts.phase, Phase::Flush | Phase::Tail), "{facts:?}");
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
