//! The next action for no client: members that err, members that slots lack, bad-block logs and
//! the job. A pure table from facts to one action. The first row that fits is taken.
//! [check: the_tables_keep_their_promises]

use braid_sim_hooks::{Bug, spoiled};

use super::JobAction;
use crate::array::order::{Around, Closing, Turn};

/// Members' upkeep at a glance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::array) struct Facts {
    /// A member errs again and again, and something is to be done about it
    /// ([`crate::array::read_errors`]).
    pub(in crate::array) errs: bool,
    /// A spare may take the place of a member that is missing, or is to be replaced.
    pub(in crate::array) spare_fits: bool,
    /// A replacement holds all.
    pub(in crate::array) replaces: bool,
    /// A bad-block log differs from its wanted content, and may be written.
    pub(in crate::array) log_due: bool,
    /// One is being written.
    pub(in crate::array) log_out: bool,
    /// A job wants members flushed.
    pub(in crate::array) job_flush: bool,
    /// The action that the job wants.
    pub(in crate::array) job: JobAction,
    pub(in crate::array) has_job: bool,
}

/// An action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::array) enum Action {
    /// Warn of a member that errs again and again, have it replaced, or put it out.
    TreatErring,
    /// Let a spare take the place of a member that is missing, or begin to replace one: superblocks
    /// say so first.
    TakeSpare,
    /// Let a replacement that holds all take its place: the old member is lost by that.
    Replace,
    /// Write bad-block logs that do not say what they are to. They are a resource of their own, one
    /// for each member.
    WriteBadBlocks,
    /// Flush what a job has written.
    FlushForJob,
    /// Let the job take its next step.
    Job,
}

/// The table.
pub(in crate::array) fn decide(facts: &Facts, around: &Around) -> Option<(Turn, Action)> {
    let may_write = around.may_write();
    let free = around.superblocks_free && may_write;
    let changes = free && around.closing == Closing::No;
    // Superblocks say that it holds all.
    let replaces = facts.replaces && !around.unsaved;
    let replaces = spoiled(Bug::ReplacesEarly, replaces, facts.replaces);
    let errs = facts.errs && may_write && !around.stopping;
    let rows = [
        (errs, Turn::Members, Action::TreatErring),
        (changes && facts.spare_fits, Turn::Members, Action::TakeSpare),
        (changes && replaces, Turn::Members, Action::Replace),
        (may_write && facts.log_due, Turn::Work, Action::WriteBadBlocks),
        (free && around.caches_free && facts.job_flush, Turn::Work, Action::FlushForJob),
        (facts.job != JobAction::Wait, Turn::Work, Action::Job),
    ];
    rows.into_iter().find_map(|(fits, turn, action)| fits.then_some((turn, action)))
}
