//! The options with which a plan is assembled, and the sectors of believed members that must not be
//! read.

use braid_assembly::rescue::{MemberUse, MissedWrites, Plan};
use braid_assembly::{Options, Refusal};

use braid_discovery::ready::Ready;

/// Makes the sectors that believed members may lack unreadable. Their content is computed from
/// other members, or is an I/O error.
pub(super) fn withholding(plan: &Plan, mut ready: Ready) -> Ready {
    for occupant in ready.array.slots.iter_mut().flatten() {
        let member_use = &plan.member_uses[occupant.member];
        if let MemberUse::Believed { missed: MissedWrites::Within(ranges), .. } = member_use {
            occupant.bad_records.extend(ranges.iter().map(|range| (0, range.clone())));
        }
    }
    ready
}

pub(super) fn wanted(
    plan: &Plan,
    options: &Options,
    (read_only, accept_risk): (bool, Option<u64>),
) -> Options {
    // If the plan believes older members, the report has already said that these members are older
    // than the recorded state.
    let is_told = plan.believed().next().is_some()
        || matches!(plan.refusal, Some(Refusal::OlderThanKnown { .. }));
    let known = if is_told { Vec::new() } else { options.known.clone() };
    let choice = options.choice.clone();
    let without_journal = !read_only;
    let raid0_layout = options.raid0_layout;
    Options {
        choice,
        read_only,
        accept_risk,
        accept_older: options.accept_older,
        without_journal,
        raid0_layout,
        known,
        ..Options::default()
    }
}
