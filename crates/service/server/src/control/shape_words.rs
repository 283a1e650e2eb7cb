//! Words of the control API for shapes, and for a reshape under way.

use braid_control::model::{Array, Reshape, Shape, State};
use braid_geometry::{Family, Geometry, Level, SECTOR_BYTES, layout_name};
use braid_runtime::Volume;

/// The reshape under way, for the state of the array.
pub(super) fn reshape_of(volume: &Volume) -> Option<Reshape> {
    let look = volume.reshape()?;
    let is_striping = volume.is_striping();
    Some(Reshape {
        before: as_seen(&look.before, is_striping),
        after: as_seen(&look.after, is_striping),
        backwards: look.backwards,
        moved_bytes: look.moved_sectors * SECTOR_BYTES,
        total_bytes: look.total_sectors * SECTOR_BYTES,
    })
}

/// A shape of a reshape, as the operator sees it. During a reshape, a RAID-0 is a RAID-4 without
/// its parity member, but the operator sees a RAID-0.
pub(super) fn as_seen(geometry: &Geometry, is_striping: bool) -> Shape {
    let shape = in_words(geometry);
    if !is_striping {
        return shape;
    }
    let level = Level::Raid0.name().to_owned();
    Shape { level, layout: None, members: shape.members.saturating_sub(1), ..shape }
}

/// Shows a RAID-0 during a reshape as the operator sees it: without the slot for parity.
pub(super) fn show_striped(array: &mut Array) {
    let last = array.slots.iter().filter_map(|slot| slot.slot).max();
    array.slots.retain(|slot| slot.slot.is_none() || slot.slot != last || slot.member.is_some());
    array.level = Level::Raid0.name().to_owned();
    array.layout = None;
    array.dirty = false;
    array.can_lose = 0;
    array.parity_in_doubt = false;
    if array.state == State::Degraded {
        array.state = State::Ok;
    }
}

pub(super) fn in_words(geometry: &Geometry) -> Shape {
    let chunk_bytes = u64::from(geometry.chunk_sectors()) * SECTOR_BYTES;
    // Hides a RAID-0's layout: an array whose shape changes has one zone, where all layouts agree.
    let layout = layout_name(geometry.level(), geometry.layout());
    let layout = layout.filter(|_| geometry.level().family() != Family::Direct);
    Shape {
        level: geometry.level().name().to_owned(),
        layout,
        chunk_bytes: (chunk_bytes > 0).then_some(chunk_bytes),
        members: geometry.slots(),
        size_bytes: geometry.capacity_sectors() * SECTOR_BYTES,
    }
}
