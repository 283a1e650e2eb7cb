//! An array in a line, as clients of NBD are told of it: `RAID-5 of 4 members, 96 GiB, degraded`.

use braid_runtime::Volume;

use super::control::state_of;
use braid_console::output::size::format_size;
use braid_discovery::status::words::level_word;

/// Level, members, size, and how it is at this moment, in the words of `braid status`.
pub(super) fn describe(volume: &Volume) -> String {
    let geometry = volume.geometry();
    let (level, slots) = (level_word(geometry.level().name()), geometry.slots());
    let members = if slots == 1 { "member" } else { "members" };
    let size = format_size(volume.size_bytes());
    let state = state_of(volume, &volume.view());
    format!("{level} of {slots} {members}, {size}, {}", state.word())
}
