//! Bytes that look random and are the same in every run.

pub(crate) fn random_bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// Compares two byte strings; a failure names the first difference instead of printing megabytes.
#[track_caller]
pub(crate) fn assert_same(found: &[u8], wanted: &[u8], what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}: length");
    if found != wanted {
        let differ = |at: &usize| found[*at] != wanted[*at];
        let count = (0..found.len()).filter(differ).count();
        let first = (0..found.len()).find(differ).expect("they differ");
        panic!(
            "{what}: {count} bytes differ, the first at {first} (sector {}): {:#04x}, not {:#04x}",
            first / 512,
            found[first],
            wanted[first]
        );
    }
}
