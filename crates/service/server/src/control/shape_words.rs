//! Words of the control API for shapes, and for a reshape under way.

use braid_control::model::{Reshape, Shape};
use braid_geometry::{Geometry, SECTOR_BYTES, layout_name};
use braid_runtime::Volume;

/// The reshape under way, for the state of the array.
pub(super) fn reshape_of(volume: &Volume) -> Option<Reshape> {
    let look = volume.reshape()?;
    Some(Reshape {
        before: in_words(&look.before),
        after: in_words(&look.after),
        backwards: look.backwards,
        moved_bytes: look.moved_sectors * SECTOR_BYTES,
        total_bytes: look.total_sectors * SECTOR_BYTES,
    })
}

pub(super) fn in_words(geometry: &Geometry) -> Shape {
    let chunk_bytes = u64::from(geometry.chunk_sectors()) * SECTOR_BYTES;
    Shape {
        level: geometry.level().name().to_owned(),
        layout: layout_name(geometry.level(), geometry.layout()),
        chunk_bytes: (chunk_bytes > 0).then_some(chunk_bytes),
        members: geometry.slots(),
        size_bytes: geometry.capacity_sectors() * SECTOR_BYTES,
    }
}
