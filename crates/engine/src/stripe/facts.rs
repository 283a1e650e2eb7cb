//! Folding a stripe and the array's view into the small values that decisions are made from.

use braid_geometry::Slot;

use super::decide::{Facts, Need, Turn};
use super::plan::{ColumnFacts, Plan, StripeFacts, plan};
use super::sectors::{Extent, SectorSet};
use super::state::{Phase, Stripe};
use crate::array::{ArrayView, Gate};

/// What is known beside the stripe itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around {
    /// Parity is known to agree with the data of this band.
    pub(super) parity_agrees: bool,
    /// When its turn would come, if it is between batches.
    pub(super) turn: Turn,
}

/// The stripe at a glance, for the decision table; and, for one that is being filled, the plan.
///
/// `doubts` says which columns are better not read, and whether that is final: if it is not, and nothing can
/// be done without them, they are read.
pub(super) fn facts(
    stripe: &Stripe,
    view: &ArrayView,
    around: Around,
    doubts: Option<(impl Fn(Slot) -> bool, bool)>,
) -> (Facts, Option<Plan>) {
    let filling = stripe.phase == Phase::Fill && stripe.outstanding == 0 && stripe.copies == 0;
    let missed = stripe.phase != Phase::Ready
        && stripe.slots().any(|slot| {
            let missed = stripe.column(slot).missed.map(|(member, _)| member);
            missed.is_some() && view.member(slot).map(|member| member.id) == missed
        });
    let plan = filling.then(|| {
        let stripe_facts = |doubtful: &dyn Fn(Slot) -> bool| {
            stripe_facts(stripe, view, around.parity_agrees, doubtful)
        };
        match doubts {
            None => plan(&stripe_facts(&|_| false)),
            Some((doubtful, true)) => plan(&stripe_facts(&doubtful)),
            Some((doubtful, false)) => {
                plan(&stripe_facts(&doubtful)).or_else(|| plan(&stripe_facts(&|_| false)))
            }
        }
    });
    let need = match &plan {
        None => Need::Nothing,
        Some(None) => Need::Impossible,
        Some(Some(plan)) if plan.reads() > 0 => Need::Reads,
        Some(Some(_)) => Need::Nothing,
    };
    let facts = Facts {
        phase: stripe.phase,
        queued: !stripe.queue.is_empty(),
        turn: around.turn,
        outstanding: stripe.outstanding > 0 || stripe.phase != Phase::Ready && stripe.copies > 0,
        need,
        missed,
        broken: view.gate == Gate::Broken,
    };
    (facts, plan.flatten())
}

fn stripe_facts(
    stripe: &Stripe,
    view: &ArrayView,
    parity_agrees: bool,
    doubtful: &dyn Fn(Slot) -> bool,
) -> StripeFacts {
    let batch = stripe.batch.as_ref().expect("facts are asked of a batch");
    let column_facts = |slot: Slot| column_facts(stripe, view, slot, doubtful(slot));
    StripeFacts {
        window: batch.window,
        data: stripe.data_slots().map(column_facts).collect(),
        p: column_facts(stripe.map.p_slot()),
        q: stripe.map.q_slot().map(column_facts),
        is_write: batch.is_write,
        preferred: batch.preferred,
        parity_agrees,
    }
}

fn column_facts(stripe: &Stripe, view: &ArrayView, slot: Slot, is_doubtful: bool) -> ColumnFacts {
    let column = stripe.column(slot);
    let window = stripe.window();
    let can_be_asked = |extent: &Extent| {
        let (start, sectors) = stripe.range(*extent);
        view.readable(slot, start, u64::from(sectors)).is_some()
    };
    let readable: SectorSet = match is_doubtful {
        true => SectorSet::EMPTY,
        false => window.without(column.unreadable).extents().filter(can_be_asked).collect(),
    };
    ColumnFacts {
        readable,
        writable: view.member(slot).is_some(),
        loaded: column.valid.common(window),
        touched: column.touched.common(window),
    }
}
