//! The array that the members make, in one line or one object.

use braid_assembly::AssembledArray;
use braid_geometry::Slot;
use braid_ondisk::format_uuid;
use serde_json::{Value, json};

use crate::output::size::format_size;

/// Bytes in a sector.
const SECTOR_BYTES: u64 = 512;

/// How many more members may be lost, whichever they are.
fn can_lose(array: &AssembledArray) -> u16 {
    let in_sync = |slot: Slot| {
        let occupant = array.slots.get(slot.index()).and_then(Option::as_ref);
        occupant.is_some_and(braid_assembly::Occupant::is_in_sync)
    };
    let survives_without =
        |also: Slot| array.geometry.survives(&|slot: Slot| slot == also || !in_sync(slot));
    let slots = (0..array.geometry.slots()).map(Slot);
    if !slots.filter(|&slot| in_sync(slot)).all(survives_without) {
        return 0;
    }
    array.geometry.lost_max().saturating_sub(array.degraded).max(1)
}

/// `clean`, `degraded`, `dirty` or `dirty, degraded`.
pub(super) fn state(array: &AssembledArray) -> &'static str {
    match (array.dirty, array.degraded > 0) {
        (false, false) => "clean",
        (false, true) => "degraded",
        (true, false) => "dirty",
        (true, true) => "dirty, degraded",
    }
}

/// The line, from the state on.
pub(super) fn line(array: &AssembledArray) -> String {
    let capacity = format_size(array.geometry.capacity_sectors().saturating_mul(SECTOR_BYTES));
    let lose = match can_lose(array) {
        0 => "cannot lose a member".to_string(),
        1 => "can lose 1 more member".to_string(),
        more => format!("can lose {more} more members"),
    };
    let degraded = match array.degraded {
        0 => String::new(),
        count => format!(", {count} of {} slots not up to date", array.geometry.slots()),
    };
    let read_only = array.read_only.map(|reason| format!(", read-only: {reason}"));
    format!("{capacity}{degraded}, {lose}{}", read_only.unwrap_or_default())
}

/// The object.
pub(super) fn to_json(array: &AssembledArray) -> Value {
    json!({
        "name": array.newest.array.name,
        "uuid": format_uuid(&array.newest.array.uuid),
        "level": array.geometry.level().name(),
        "capacity_bytes": array.geometry.capacity_sectors().saturating_mul(SECTOR_BYTES),
        "slots": array.geometry.slots(),
        "spares": array.spares.len(),
        "state": state(array),
        "dirty": array.dirty,
        "degraded_slots": array.degraded,
        "can_lose": can_lose(array),
        "events": array.newest.state.events,
        "resync_offset_sectors": (array.resync_offset != u64::MAX).then_some(array.resync_offset),
    })
}
