//! The sectors that a missing member of a dirty array puts at risk.
//!
//! Parity of a stripe in flight may not match its data. With every member present that does no
//! harm: data is read, not computed. If a member is missing, its data would be computed from such
//! parity, and wrong. A slot that holds only parity (raid4's last, parity-first and parity-last
//! layouts) can be missing without harm. Mirrors are never at risk: a copy is a copy. With a
//! believed bitmap, only the stripes that it names were in flight.

use std::ops::Range;

use braid_geometry::{ChunkRow, Geometry, MemberSector, Role, Slot, StripeGeometry};
use braid_ondisk::Bits;
use braid_sim_hooks::{Bug, planted};

use crate::refusal::{AtRisk, RangeAtRisk};

/// The array sectors at risk if the slots in `lost` have no usable member. Redundancy is right
/// before `resync_offset`, and after it where no bit of `doubt` is set.
pub(crate) fn at_risk(
    geometry: &Geometry,
    lost: &[u16],
    (resync_offset, doubt): (u64, Option<&Bits>),
) -> Option<AtRisk> {
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
    let in_doubt = |sectors: Range<u64>| resync_offset.max(sectors.start)..used.min(sectors.end);
    let sectors: Vec<Range<u64>> = match doubt {
        Some(bits) => bits.iter().map(|bit| in_doubt(bits.sectors_of(bit))).collect(),
        None => vec![in_doubt(0..used)],
    };
    let mut rows: Vec<Range<u64>> = Vec::new();
    for sectors in sectors.into_iter().filter(|sectors| !sectors.is_empty()) {
        let start = stripe.row_of(MemberSector(sectors.start)).0;
        let end = stripe.row_of(MemberSector(sectors.end - 1)).0 + 1;
        match rows.last_mut() {
            Some(last) if last.end >= start => last.end = end.max(last.end),
            _ => rows.push(start..end),
        }
    }
    if rows.is_empty() {
        return None;
    }
    let stripes = rows.iter().map(|rows| rows.end - rows.start).sum();
    let range = |rows: Range<u64>| {
        let member = |row| stripe.row_start(ChunkRow(row)).0.min(used);
        let array = |row| match row < stripe.rows() {
            true => stripe.logical(ChunkRow(row), 0, 0).0,
            false => stripe.capacity_sectors(),
        };
        RangeAtRisk {
            member_sectors: member(rows.start)..member(rows.end),
            array_sectors: array(rows.start)..array(rows.end),
        }
    };
    Some(AtRisk { slots, stripes, ranges: rows.into_iter().map(range).collect() })
}

/// Whether any row has data in this slot. Layouts repeat after as many rows as slots.
fn holds_data(stripe: &StripeGeometry, slot: u16) -> bool {
    let rows = stripe.rows().min(u64::from(stripe.slots()));
    (0..rows).any(|row| matches!(stripe.row_map(ChunkRow(row)).role(Slot(slot)), Role::Data(_)))
}
