//! What a plan makes of assembly: what it is asked for, and what is not read of whom it believes.

use braid_assembly::rescue::{Missed, Plan, Stand};
use braid_assembly::{Options, Refusal};

use braid_discovery::ready::Ready;

/// With what believed members may lack taken for unreadable: it is made of the others, or an I/O error.
pub(super) fn withholding(plan: &Plan, mut ready: Ready) -> Ready {
    for occupant in ready.array.slots.iter_mut().flatten() {
        let stand = &plan.stands[occupant.member];
        if let Stand::Believed { missed: Missed::Within(ranges), .. } = stand {
            occupant.bad_records.extend(ranges.iter().map(|range| (0, range.clone())));
        }
    }
    ready
}

/// What assembly is asked for.
pub(super) fn wanted(
    plan: &Plan,
    options: &Options,
    (read_only, accept_risk): (bool, Option<u64>),
) -> Options {
    // Who is believed by force is older than what is known, and that was said.
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
        without_journal,
        raid0_layout,
        known,
        ..Options::default()
    }
}
