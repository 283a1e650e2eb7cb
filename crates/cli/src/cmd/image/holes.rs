//! Holes of a sparse file: the file system lists them, so no read is needed.
//!
//! Block devices are not searched, as they have no holes. The map stays short without short holes.

use std::ops::Range;
use std::path::Path;

use braid_geometry::SECTOR_BYTES;
use braid_imaging::{Map, PIECE_BYTES, State};
use braid_member::{Member, MemberError};
use rustix::fs::{SeekFrom, seek};

use braid_console::regular;

/// The long holes of a file of this size, in order; none if the file system cannot report holes.
fn holes(path: &Path, size_bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let file = regular::open(path).ok();
    let mut at = 0;
    std::iter::from_fn(move || {
        let file = file.as_ref().filter(|_| at < size_bytes)?;
        let start: u64 = at;
        let end = match seek(file, SeekFrom::Data(start)) {
            Ok(data) => data.min(size_bytes),
            // No data follow the hole.
            Err(rustix::io::Errno::NXIO) => size_bytes,
            Err(_) => return None,
        };
        at = seek(file, SeekFrom::Hole(end)).ok().filter(|next| *next > end).unwrap_or(size_bytes);
        Some(start.next_multiple_of(SECTOR_BYTES)..end - end % SECTOR_BYTES)
    })
    .filter(|hole| hole.end.saturating_sub(hole.start) >= PIECE_BYTES)
}

/// Marks the holes of the source file as copied in the map, once the copy has zeroes there.
///
/// # Errors
/// Zeroes cannot be written to the copy.
pub(super) fn skip(source: &Path, image: &dyn Member, map: &mut Map) -> Result<(), MemberError> {
    for hole in holes(source, map.size_bytes()) {
        let within = |range: Range<u64>| range.start.max(hole.start)..range.end.min(hole.end);
        let untried = map.of(State::Untried).map(within).filter(|range| !range.is_empty());
        for range in untried.collect::<Vec<_>>() {
            if map.is_full() {
                return Ok(());
            }
            image.zero(range.start, range.end - range.start, true)?;
            map.set(range, State::Done);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn holes_lie_between_data_and_at_the_end() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let size = 64 << 20;
        file.as_file().set_len(size).expect("a length");
        let found = |size| holes(file.path(), size).collect::<Vec<_>>();
        assert_eq!(found(size), std::slice::from_ref(&(0..size)));
        // The file has data in the middle, and a hole below the minimum length.
        file.as_file().write_all_at(&[1; 1 << 16], 16 << 20).expect("data");
        file.as_file().write_all_at(&[1; 1 << 16], (16 << 20) + (1 << 18)).expect("data");
        let end = (16 << 20) + (1 << 18) + (1 << 16);
        assert_eq!(found(size), [0..16 << 20, end..size]);
        assert_eq!(found(1 << 19), Vec::<Range<u64>>::new());
        assert_eq!(holes(Path::new("/dev/zero"), 1 << 30).count(), 0);
    }
}
