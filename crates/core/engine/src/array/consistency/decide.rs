//! Decides consistency's next action: a pure table from facts to one action.
//!
//! The tables of the bitmap and of the logs each return the action that they want
//! ([`super::intent`], [`super::parity_logs`], [`super::journal`]). This table decides when
//! superblock writes and flushes of members' caches allow such an action. The first row that fits
//! is taken. [check: what_is_kept_changes_only_where_it_may]

use super::intent::IntentAction;
use super::log_change::LogChangeStage;
use super::parity_logs::LogAction;
use crate::array::order::{Activity, SharedFacts, Turn, Writes};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::array) struct Facts {
    pub(in crate::array) bits: IntentAction,
    pub(in crate::array) bits_out: bool,
    /// The array is about to create or drop a bitmap.
    pub(in crate::array) bitmap_change: bool,
    /// No superblock names the bitmap any more, and no request for it is in flight.
    pub(in crate::array) bitmap_left: bool,
    pub(in crate::array) log_change: LogChangeStage,
    pub(in crate::array) logs: LogAction,
    pub(in crate::array) logs_out: bool,
    /// The journal has free room that the tail in superblocks does not record yet.
    pub(in crate::array) tail_unsaid: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::array) enum Action {
    /// Create or drop logs: the next superblocks record the change.
    ChangeLogs,
    /// Wipe out the remaining heads of dropped logs.
    WipeLogs,
    /// Forget logs that no superblock names any more.
    DropLogs,
    /// Forget a bitmap that no superblock names any more.
    DropBitmap,
    /// Create or drop a bitmap: the next superblocks record the change.
    ChangeBitmap,
    Bits(IntentAction),
    Logs(LogAction),
}

pub(in crate::array) fn decide(facts: &Facts, shared: &SharedFacts) -> Option<(Turn, Action)> {
    if shared.writes != Writes::Allowed {
        return None;
    }
    let Facts { log_change, .. } = *facts;
    let SharedFacts { superblocks_free, caches_free, .. } = *shared;
    let is_wanted = matches!(log_change, LogChangeStage::Wanted { .. });
    let is_still = shared.on_disk == Activity::Clean;
    let bits_awaited = matches!(facts.bits, IntentAction::Open | IntentAction::Write);
    let sweeps =
        matches!(facts.bits, IntentAction::Ask | IntentAction::Revoke | IntentAction::Forget);
    let logs_awaited = matches!(facts.logs, LogAction::Blank | LogAction::Grant | LogAction::Write);
    let (bits, logs) = (Action::Bits(facts.bits), Action::Logs(facts.logs));
    let rows = [
        (superblocks_free && is_wanted && is_still, Turn::Change, Action::ChangeLogs),
        (log_change == LogChangeStage::ToWipe, Turn::Change, Action::WipeLogs),
        (log_change == LogChangeStage::Over, Turn::Change, Action::DropLogs),
        (facts.bitmap_left, Turn::Change, Action::DropBitmap),
        (superblocks_free && facts.bitmap_change, Turn::Change, Action::ChangeBitmap),
        (bits_awaited, Turn::Change, bits),
        (logs_awaited, Turn::Change, logs),
        (caches_free && facts.logs == LogAction::Flush, Turn::Change, logs),
        (sweeps, Turn::Sweep, bits),
        (caches_free && facts.bits == IntentAction::Flush, Turn::Sweep, bits),
        (shared.stops && facts.bits == IntentAction::Clear, Turn::Stop, bits),
    ];
    rows.into_iter().find_map(|(fits, turn, action)| fits.then_some((turn, action)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::product::{Axis, axis, flags, product, set};

    #[derive(Clone, Copy, Default)]
    struct Case {
        facts: Facts,
        shared: SharedFacts,
    }

    fn for_all(mut check: impl FnMut(&Facts, &SharedFacts)) {
        use IntentAction::{Ask, Clear, Flush, Forget, Open, Revoke, Wait, Write};
        let axes: [Axis<'_, Case>; 5] = [
            axis!(facts.bits: Wait, Open, Write, Ask, Revoke, Flush, Forget, Clear),
            axis!(facts.logs: LogAction::Wait, LogAction::Blank, LogAction::Write, LogAction::Grant,
                LogAction::Flush),
            axis!(facts.log_change: LogChangeStage::No, LogChangeStage::Wanted { makes: true },
                LogChangeStage::Wanted { makes: false }, LogChangeStage::UnderWay,
                LogChangeStage::ToWipe, LogChangeStage::Over),
            axis!(shared.writes: Writes::Allowed, Writes::ReadOnly, Writes::Broken),
            axis!(shared.on_disk: Activity::Clean, Activity::Active, Activity::NotKept),
        ];
        let flags: [Axis<'_, Case>; 8] = flags![facts.bits_out facts.bitmap_change facts.bitmap_left
            facts.logs_out facts.tail_unsaid shared.superblocks_free shared.caches_free
            shared.stops];
        product(&[&axes[..], &flags].concat(), &mut |case| check(&case.facts, &case.shared));
    }

    #[test]
    fn what_is_kept_changes_only_where_it_may() {
        for_all(|facts, shared| {
            let may_write = shared.writes == Writes::Allowed;
            let awaited = matches!(facts.bits, IntentAction::Open | IntentAction::Write);
            let Some((turn, action)) = decide(facts, shared) else {
                assert!(!may_write || !awaited, "shards or superblocks wait: {facts:?}");
                return;
            };
            assert!(may_write, "nothing changes where writes are refused: {facts:?}");
            match action {
                Action::ChangeLogs => {
                    assert_eq!(shared.on_disk, Activity::Clean, "nothing is written: {facts:?}");
                    assert!(shared.superblocks_free, "they say it next: {facts:?}");
                }
                Action::ChangeBitmap => {
                    assert!(facts.bitmap_change, "{facts:?}");
                    assert!(shared.superblocks_free, "they say it next: {facts:?}");
                }
                Action::WipeLogs => assert_eq!(facts.log_change, LogChangeStage::ToWipe),
                Action::DropLogs => assert_eq!(facts.log_change, LogChangeStage::Over),
                Action::DropBitmap => assert!(facts.bitmap_left, "{facts:?}"),
                Action::Bits(IntentAction::Flush) | Action::Logs(LogAction::Flush) => {
                    assert!(shared.caches_free, "one flush at a time: {facts:?}");
                }
                Action::Bits(IntentAction::Wait) | Action::Logs(LogAction::Wait) => {
                    panic!("a wait is no action: {facts:?}");
                }
                Action::Bits(IntentAction::Clear) => assert_eq!(turn, Turn::Stop, "{facts:?}"),
                Action::Bits(_) | Action::Logs(_) => {}
            }
        });
    }
}
