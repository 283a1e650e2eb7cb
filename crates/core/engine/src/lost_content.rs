//! The content that stands in the place of a sector that no member could give.
//!
//! A reshape writes this content, and bad-block logs name its sector, so that no client reads it.
//! The text says what happened, for a reader who ignores the logs. A check that tries logged
//! sectors ([`crate::work::Task::Retry`]) recognizes the content, and leaves its sector in the log:
//! the parity of the row fits the content.

use braid_geometry::SECTOR_BYTES;

/// The content of a lost sector.
#[must_use]
pub fn lost_sector() -> &'static [u8] {
    const WORDS: &[u8; 64] = b"braid: no member could give this sector when the array changed.\n";
    const LENGTH: usize = 512;
    const _: () = assert!(LENGTH as u64 == SECTOR_BYTES, "a sector");
    static SECTOR: [u8; LENGTH] = {
        let mut sector = [0; LENGTH];
        let mut at = 0;
        while at < LENGTH {
            sector[at] = WORDS[at % WORDS.len()];
            at += 1;
        }
        sector
    };
    &SECTOR
}
