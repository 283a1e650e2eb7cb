//! Decides the next update of superblocks, and whether writes may begin, from a table of facts. The
//! first row that fits is taken. [check: the_tables_keep_their_promises]

use crate::array::consistency::LogChangeStage;
use crate::array::order::{Activity, Closing, SharedFacts, Turn};

/// The progress of an update of superblocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::array) enum Stage {
    #[default]
    Free,
    /// Members' bitmaps must first have the update's event count, or new members an empty parity
    /// log.
    Behind,
    /// The driver must agree to the update before the first superblock is written.
    Unconsented,
    /// Members are writing superblocks, or the driver is writing its record or has yet to agree.
    Out,
    /// The last wave is durable, or no member of it is left; more waves follow.
    WaveDurable,
    /// All superblocks are durable, but the update is out of date. Another member was lost, or the
    /// update does not exceed the lost member's event count, or the array is broken.
    Outdated,
    /// All superblocks are durable. The driver's record must get the update's loss before any write
    /// relies on it.
    Unkept,
    /// All superblocks are durable, and so is the driver's record.
    Durable,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::array) struct Facts {
    pub(in crate::array) stage: Stage,
    /// A member is out, and no durable superblock records the loss.
    pub(in crate::array) unrecorded: bool,
    /// The array was found dirty without some of its members, and no superblock records their
    /// absence yet.
    pub(in crate::array) absent: bool,
    /// The last update was written once. It must be written a second time, which wakes no spare.
    pub(in crate::array) said_once: bool,
    /// A job has moved an offset, or a newcomer has failed, and no superblock records that yet.
    pub(in crate::array) unsaved: bool,
    pub(in crate::array) write_wanted: bool,
    /// Shards' writes in flight cannot end while the gate is closed: they wait for writes that have
    /// not begun.
    pub(in crate::array) held_up: bool,
    /// No shard has had a write for a while.
    pub(in crate::array) idle: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::array) enum Action {
    /// Wait while shards finish their writes.
    Wait,
    /// Write the next wave of the update.
    WriteWave,
    /// Ask the driver to agree to the update.
    AskConsent,
    /// Drop the update, because it is out of date.
    DropUpdate,
    /// Have the driver's record name the update's loss.
    KeepRecord,
    /// Publish the update, because it is current.
    CompleteUpdate,
    /// Write superblocks without the lost member.
    Record,
    /// Write superblocks that say active; then the gate opens.
    TurnActive,
    /// Let writes begin, or report that no write may begin.
    OpenGate,
    /// Let no write begin, until superblocks have turned clean.
    CloseGate,
    /// Write superblocks without the absent members.
    RecordAbsent,
    /// Write the last update a second time.
    SayAgain,
    /// Write superblocks with changes other than losses: jobs' offsets.
    RecordChanges,
}

pub(in crate::array) fn decide(facts: &Facts, shared: &SharedFacts) -> Option<(Turn, Action)> {
    let Facts { stage, write_wanted, .. } = *facts;
    let SharedFacts { on_disk, closing, superblocks_free: free, log_change, .. } = *shared;
    let may_write = shared.may_write();
    let is_open = closing == Closing::No;
    // No write begins between the last write and a change of logs. If writes in flight wait for
    // later writes, the gate lets the later ones in, and then closes again.
    let is_unheld =
        log_change == LogChangeStage::No || facts.held_up && on_disk == Activity::Active;
    let opens = free && write_wanted && is_unheld;
    let turns_active = opens && may_write && on_disk == Activity::Clean;
    let closes = free && shared.may_be_clean && is_open;
    let closes_for_logs = closes && matches!(log_change, LogChangeStage::Wanted { .. });
    // A member without an update that is written only once is one event behind, as if it had missed
    // no write. So no flush is answered before the update's second time (I8). The second time comes
    // at once, or with the next update if that is near.
    let is_followed = !is_open || shared.stopping && on_disk == Activity::Active;
    let says_again = shared.to_say_again && (shared.flush_ended || !is_followed);
    // Writes that the closing gate waits for may need room in the journal. Superblocks record the
    // journal's new tail now, and then the gate closes.
    let frees_room = shared.tail_unsaid && closing == Closing::Draining;
    let tells = facts.unsaved && may_write && (is_open || frees_room);
    let stops = shared.stops && may_write && on_disk == Activity::Active;
    let rows = [
        (stage == Stage::Unconsented, Turn::Settle, Action::AskConsent),
        (stage == Stage::WaveDurable, Turn::Settle, Action::WriteWave),
        (stage == Stage::Outdated, Turn::Settle, Action::DropUpdate),
        (stage == Stage::Unkept, Turn::Settle, Action::KeepRecord),
        (stage == Stage::Durable, Turn::Settle, Action::CompleteUpdate),
        (free && shared.is_to_record(), Turn::Admit, Action::Record),
        (turns_active, Turn::Admit, Action::TurnActive),
        (opens, Turn::Admit, Action::OpenGate),
        (closes_for_logs, Turn::Admit, Action::CloseGate),
        (free && shared.flushes && shared.to_record_absent, Turn::Serve, Action::RecordAbsent),
        (free && says_again, Turn::Repeat, Action::SayAgain),
        (free && tells, Turn::Tell, Action::RecordChanges),
        (closes && facts.idle, Turn::Rest, Action::CloseGate),
        (stops && is_open, Turn::Stop, Action::CloseGate),
        (stops, Turn::Stop, Action::Wait),
    ];
    rows.into_iter().find_map(|(fits, turn, action)| fits.then_some((turn, action)))
}
