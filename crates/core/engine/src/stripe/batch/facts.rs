//! Folds a stripe and the array's view into the small values that decisions need.

use braid_geometry::Slot;

use super::super::column_coverage::{ColumnCoverage, EntireSlots};
use super::super::plan::{Need, Plan, Planner, StripeFacts};
use super::super::scheduler::Admission;
use super::decide::Facts;
use super::stripe::{Column, Phase, Stripe};
use crate::array::{ArrayView, Gate};
use crate::context::Common;

/// Facts from outside the stripe. In phases other than [`Phase::Fill`] the facts for plans are
/// false, because no plan is made in those phases.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct BatchContext<'a> {
    pub(in super::super) view: &'a ArrayView,
    pub(in super::super) common: &'a Common,
    pub(in super::super) entire: &'a EntireSlots,
    /// Parity is known to agree with the data of this band, at least where clients have written.
    pub(in super::super) parity_agrees: bool,
    /// Parity agrees also where no client has written.
    pub(in super::super) is_synced: bool,
    /// No write to the band was interrupted.
    pub(in super::super) is_consistent: bool,
    pub(in super::super) admission: Admission,
    pub(in super::super) intent: bool,
    pub(in super::super) memory: bool,
    pub(in super::super) read: bool,
    pub(in super::super) read_idly: bool,
}

/// Folds the stripe into facts for the decision table. In [`Phase::Fill`] the planner makes and
/// keeps a plan, unless the batch continues with its old plan.
#[inline]
pub(in super::super) fn facts(
    stripe: &Stripe,
    context: &BatchContext<'_>,
    planner: &mut Planner,
) -> Facts {
    let filling = stripe.phase == Phase::Fill && stripe.outstanding == 0 && stripe.copies == 0;
    let missed = stripe.phase != Phase::Ready && stripe.is_missed(context.view);
    planner.clear();
    let need = match filling && !is_filled(stripe, context) {
        false => Need::Nothing,
        true => match make_plan(stripe, context, planner) {
            None if can_narrow(stripe, context) => Need::Less,
            None => Need::Impossible,
            Some(plan) if plan.reads() > 0 => Need::Reads,
            Some(_) => Need::Nothing,
        },
    };
    Facts {
        phase: stripe.phase,
        queued: !stripe.queue.is_empty(),
        admission: context.admission,
        read: context.read,
        read_idly: context.read_idly,
        outstanding: stripe.is_outstanding(),
        need,
        left: stripe.is_left,
        intent: context.intent,
        memory: context.memory,
        missed,
        // The state holds even if the log was lost meanwhile: the array reports the loss at once,
        // or once superblocks record the loss.
        logged: stripe.logged,
        broken: context.view.gate == Gate::Broken,
    }
}

/// Whether all planned reads are in memory, and the plan still holds.
fn is_filled(stripe: &Stripe, context: &BatchContext<'_>) -> bool {
    let epoch = context.view.epoch;
    stripe.filled.as_ref().is_some_and(|filled| filled.holds(epoch, || context.parity_agrees))
}

fn make_plan<'a>(
    stripe: &Stripe,
    context: &BatchContext<'_>,
    planner: &'a mut Planner,
) -> Option<&'a Plan> {
    // Members that sit out are not read if that is avoidable. But in sectors that no client has
    // written, members' bytes may differ from what parity gives, and new parity must fit the
    // members' bytes.
    let sits_out = |slot: Slot| context.common.clocks.sits_out(slot);
    if context.common.clocks.is_any_out() && context.is_synced {
        planner.plan(|facts| tell(facts, stripe, context, sits_out));
    }
    if planner.planned().is_none() {
        planner.plan(|facts| tell(facts, stripe, context, |_| false));
    }
    planner.planned()
}

/// Whether a batch that lacks too much may succeed in parts, because its writes or blocks lack
/// different sectors. The batch then begins again with one write, and then with one block of that
/// write.
fn can_narrow(stripe: &Stripe, context: &BatchContext<'_>) -> bool {
    let is_local = |slot: Slot| column_coverage(stripe, context, slot).lacks_some();
    let count = stripe.batch.as_ref().expect("a batch is being filled").count;
    let (run, band) = (&stripe.queue[0].run, stripe.band());
    // Parity of single sectors may be given up.
    let has_sectors = || names_parity(stripe, context) && run.cut_sector(band).is_some();
    let has_less = count > 1 || run.cut(band).is_some() || has_sectors();
    has_less && stripe.slots().any(is_local)
}

/// Whether bad-block logs name some parity of the window.
fn names_parity(stripe: &Stripe, context: &BatchContext<'_>) -> bool {
    let mut parity = [Some(stripe.map.p_slot()), stripe.map.q_slot()].into_iter().flatten();
    let is_named = |slot: Slot| !column_coverage(stripe, context, slot).named().is_empty();
    !context.view.keeps_journal && parity.any(is_named)
}

/// Fills in the facts for a plan, without the columns that are left out.
fn tell(
    facts: &mut StripeFacts,
    stripe: &Stripe,
    context: &BatchContext<'_>,
    is_left_out: impl Fn(Slot) -> bool,
) {
    let batch = stripe.batch.as_ref().expect("facts are asked of a batch");
    let column_facts = |slot: Slot| column_coverage(stripe, context, slot).facts(is_left_out(slot));
    facts.window = batch.window;
    facts.data.extend(stripe.data_slots().map(column_facts));
    facts.p = column_facts(stripe.map.p_slot());
    facts.q = stripe.map.q_slot().map(column_facts);
    facts.preferred = batch.preferred;
    facts.parity_agrees = context.parity_agrees;
    facts.is_synced = context.is_synced;
    facts.is_journaled = context.view.keeps_journal;
}

fn column_coverage<'a>(
    stripe: &'a Stripe,
    context: &BatchContext<'a>,
    slot: Slot,
) -> ColumnCoverage<'a> {
    let Column { touched, valid, unreadable, .. } = *stripe.column(slot);
    let (band, window) = (stripe.band(), stripe.window());
    let BatchContext { common, is_synced, is_consistent, .. } = *context;
    let is_entire = context.entire.has(slot);
    ColumnCoverage {
        common,
        is_entire,
        is_synced,
        is_consistent,
        band,
        slot,
        window,
        touched,
        valid,
        unreadable,
        tries_named: false,
    }
}
