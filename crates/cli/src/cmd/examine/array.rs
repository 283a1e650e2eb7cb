//! The array that the members make, in one line or one object.

use braid_assembly::AssembledArray;
use braid_geometry::{Geometry, SECTOR_BYTES};
use braid_ondisk::format_uuid;
use serde_json::{Value, json};

use braid_console::output::size::format_size;
use braid_discovery::refusal::tolerance_words;

/// The array's state: `clean`, or those of `reshaping`, `dirty` and `degraded` that hold.
pub(super) fn state(array: &AssembledArray) -> String {
    let holds = [
        (array.reshape.is_some(), "reshaping"),
        (array.dirty, "dirty"),
        (array.degraded > 0, "degraded"),
    ];
    let words: Vec<&str> =
        holds.iter().filter(|(holds, _)| *holds).map(|(_, word)| *word).collect();
    if words.is_empty() { "clean".to_owned() } else { words.join(", ") }
}

/// Bytes of the array that clients see; during a reshape the bytes that exist in both shapes.
fn capacity_bytes(array: &AssembledArray) -> u64 {
    let shapes = array.reshape.iter().flat_map(|reshape| [&reshape.before, &reshape.after]);
    let of_shapes = shapes.filter_map(|shape| Geometry::new(shape).ok());
    let least = of_shapes.map(|geometry| geometry.capacity_sectors()).min();
    least.unwrap_or_else(|| array.geometry.capacity_sectors()).saturating_mul(SECTOR_BYTES)
}

/// The line about the array, from the word for its state on.
pub(super) fn line(array: &AssembledArray) -> String {
    let capacity = format_size(capacity_bytes(array));
    let lose = tolerance_words(array.tolerance());
    let degraded = match array.degraded {
        0 => String::new(),
        count => format!(", {count} of {} slots not up to date", array.geometry.slots()),
    };
    let read_only = array.read_only.map(|reason| format!(", read-only: {reason}"));
    format!("{capacity}{degraded}, {lose}{}", read_only.unwrap_or_default())
}

pub(super) fn to_json(array: &AssembledArray) -> Value {
    let tolerance = array.tolerance();
    json!({
        "name": array.newest.array.name,
        "uuid": format_uuid(&array.newest.array.uuid),
        "level": array.geometry.level().name(),
        "capacity_bytes": capacity_bytes(array),
        "slots": array.geometry.slots(),
        "replacements": array.replacements.len(),
        "spares": array.spares.len(),
        "state": state(array),
        "dirty": array.dirty,
        "degraded_slots": array.degraded,
        "can_lose": tolerance.can_lose,
        "parity_in_doubt": tolerance.parity_in_doubt,
        "copies_in_doubt": tolerance.copies_in_doubt,
        "events": array.newest.state.events,
        "resync_offset_sectors": (array.resync_offset != u64::MAX).then_some(array.resync_offset),
    })
}
