//! Folding a stripe and the array's view into the small values that decisions are made from.

use braid_geometry::{MemberSector, Slot};

use super::decide::{Facts, Need};
use super::plan::{ColumnFacts, Plan, StripeFacts, plan};
use super::state::{ColumnState, Phase, Stripe};
use crate::array::{ArrayView, Gate};

/// What the batch lacks, and the plan for getting it.
pub(super) fn need(stripe: &Stripe, view: &ArrayView, parity_agrees: bool) -> (Need, Option<Plan>) {
    let plan = plan(&stripe_facts(stripe, view, parity_agrees));
    let need = match &plan {
        None => Need::Impossible,
        Some(plan) if plan.reads() > 0 => Need::Reads,
        Some(_) => Need::Nothing,
    };
    (need, plan)
}

/// The stripe at a glance, for the decision table.
pub(super) fn facts(
    stripe: &Stripe,
    view: &ArrayView,
    (parity_agrees, others_wait): (bool, bool),
) -> Facts {
    let filling = stripe.phase == Phase::Fill && stripe.outstanding == 0;
    let missed = stripe.slots().any(|slot| {
        let missed = stripe.column(slot).missed.map(|(member, _)| member);
        missed.is_some() && view.member(slot).map(|member| member.id) == missed
    });
    Facts {
        phase: stripe.phase,
        queued: !stripe.queue.is_empty(),
        yields: stripe.has_served && others_wait,
        outstanding: stripe.outstanding > 0,
        need: if filling { need(stripe, view, parity_agrees).0 } else { Need::Nothing },
        missed,
        broken: view.gate == Gate::Broken,
    }
}

fn stripe_facts(stripe: &Stripe, view: &ArrayView, parity_agrees: bool) -> StripeFacts {
    let batch = stripe.batch.as_ref().expect("facts are asked of a batch");
    StripeFacts {
        data: stripe.data_slots().map(|slot| column_facts(stripe, view, slot)).collect(),
        p: column_facts(stripe, view, stripe.map.p_slot()),
        q: stripe.map.q_slot().map(|slot| column_facts(stripe, view, slot)),
        is_write: batch.is_write,
        preferred: batch.preferred,
        parity_agrees,
    }
}

fn column_facts(stripe: &Stripe, view: &ArrayView, slot: Slot) -> ColumnFacts {
    let column = stripe.column(slot);
    let window = stripe.batch.as_ref().expect("facts are asked of a batch").window;
    let (start, sectors): (MemberSector, u32) = stripe.range();
    ColumnFacts {
        readable: !column.unreadable && view.readable(slot, start, u64::from(sectors)).is_some(),
        writable: view.member(slot).is_some(),
        loaded: column.state == ColumnState::Clean,
        touched: !column.touched.is_empty(),
        covered: column.touched.contains(window.set()),
    }
}
