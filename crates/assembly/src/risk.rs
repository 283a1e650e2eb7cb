//! What a member that is missing from a dirty array puts at risk.
//!
//! Parity of a stripe that was being written may not match its data. With every member there that does no harm:
//! data is read, not computed. With one missing, its data would be computed from such parity, and wrong. A slot that
//! holds only parity (raid4's last, parity-first and parity-last layouts) can be missing without harm.
//! Mirrors are never at risk: a copy is a copy.

use braid_geometry::{ChunkRow, Geometry, MemberSector, Role, Slot, StripeGeometry};
use braid_hooks::{Bug, planted};

use crate::refusal::AtRisk;

/// What is at risk if these slots are missing and redundancy is right only before `resync_offset`.
pub(crate) fn at_risk(geometry: &Geometry, lost: &[u16], resync_offset: u64) -> Option<AtRisk> {
    let Geometry::Stripe(stripe) = geometry else { return None };
    let used = stripe.used_sectors();
    if resync_offset >= used {
        return None;
    }
    let slots: Vec<u16> = lost.iter().copied().filter(|&slot| holds_data(stripe, slot)).collect();
    if slots.is_empty() {
        return None;
    }
    if planted(Bug::WriteHoleServed) {
        return None;
    }
    let first_row = stripe.row_of(MemberSector(resync_offset));
    let start = stripe.logical(first_row, 0, 0).0;
    Some(AtRisk {
        slots,
        member_sectors: stripe.row_start(first_row).0..used,
        array_sectors: start..stripe.capacity_sectors(),
    })
}

/// Whether any row has data in this slot. The rotation of every layout repeats after as many rows as slots.
fn holds_data(stripe: &StripeGeometry, slot: u16) -> bool {
    let rows = stripe.rows().min(u64::from(stripe.slots()));
    (0..rows).any(|row| matches!(stripe.row_map(ChunkRow(row)).role(Slot(slot)), Role::Data(_)))
}
