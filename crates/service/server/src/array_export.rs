//! One line about an array for NBD clients: `RAID-5 of 4 members, 96 GiB, degraded`.

use std::sync::Arc;

use braid_frontend_nbd::Export;
use braid_runtime::{Disk, Volume};

use super::control::state_of;
use super::export::DiskExport;
use braid_console::output::size::format_size;
use braid_discovery::status::words::level_word;

/// The array as an export that describes its current state whenever a client asks.
pub(super) fn export(
    name: String,
    volume: &Arc<Volume>,
    disk: Arc<dyn Disk>,
    logical_block_bytes: Option<u32>,
) -> Arc<dyn Export> {
    let described = Arc::clone(volume);
    Arc::new(DiskExport::new(name, disk, logical_block_bytes, move || describe(&described)))
}

/// Describes the level, members, size and current state in the words of `braid status`.
fn describe(volume: &Volume) -> String {
    let geometry = volume.geometry();
    let (level, slots) = (level_word(geometry.level().name()), geometry.slots());
    let members = if slots == 1 { "member" } else { "members" };
    let size = format_size(volume.size_bytes());
    let state = state_of(&volume.view());
    format!("{level} of {slots} {members}, {size}, {}", state.word())
}
