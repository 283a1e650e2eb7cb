//! Decides the next action of work that no client asked for: erring members, slots without a
//! member, bad-block logs and the job. The first row that fits is taken.
//! [check: the_tables_keep_their_promises]

use braid_sim_hooks::{Bug, spoiled};

use super::JobAction;
use crate::array::order::{Closing, SharedFacts, Turn};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::array) struct Facts {
    /// A member errs again and again, and needs a reaction ([`crate::array::read_errors`]).
    pub(in crate::array) errs: bool,
    /// A spare can fill a slot without a member, or replace a member.
    pub(in crate::array) spare_fits: bool,
    /// A replacement is up to date.
    pub(in crate::array) replaces: bool,
    /// A bad-block log differs from its wanted content, and may be written.
    pub(in crate::array) log_due: bool,
    pub(in crate::array) log_out: bool,
    pub(in crate::array) job_flush: bool,
    pub(in crate::array) job: JobAction,
    pub(in crate::array) has_job: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::array) enum Action {
    /// Warn of a member that errs again and again, have it replaced, or put it out.
    TreatErring,
    /// Let a spare fill an empty slot, or replace a member. Superblocks record the spare's role
    /// first.
    TakeSpare,
    /// Let a filled replacement take its member's slot; the old member is then lost.
    Replace,
    /// Write bad-block logs that differ from their wanted content. Each log is a resource of its
    /// own.
    WriteBadBlocks,
    FlushForJob,
    Job,
}

pub(in crate::array) fn decide(facts: &Facts, shared: &SharedFacts) -> Option<(Turn, Action)> {
    let may_write = shared.may_write();
    let free = shared.superblocks_free && may_write;
    let changes = free && shared.closing == Closing::No;
    // Superblocks must record first that the replacement is up to date.
    let replaces = facts.replaces && !shared.unsaved;
    let replaces = spoiled(Bug::ReplacesEarly, replaces, facts.replaces);
    let errs = facts.errs && may_write && !shared.stopping;
    let rows = [
        (errs, Turn::Members, Action::TreatErring),
        (changes && facts.spare_fits, Turn::Members, Action::TakeSpare),
        (changes && replaces, Turn::Members, Action::Replace),
        (may_write && facts.log_due, Turn::Work, Action::WriteBadBlocks),
        (free && shared.caches_free && facts.job_flush, Turn::Work, Action::FlushForJob),
        (facts.job != JobAction::Wait, Turn::Work, Action::Job),
    ];
    rows.into_iter().find_map(|(fits, turn, action)| fits.then_some((turn, action)))
}
