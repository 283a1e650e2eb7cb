//! A helper that changes a volume while a client writes to it.

use std::sync::atomic::{AtomicBool, Ordering};

use braid_runtime::Volume;

use crate::client::{read, write};

/// Bytes that depend on their position and on a seed.
fn pattern(length: usize, seed: u8) -> Vec<u8> {
    let byte = |at: usize| (at / 512 % 256) ^ (at % 251);
    (0..length).map(|at| u8::try_from(byte(at)).expect("a byte") ^ seed).collect()
}

/// Calls `act` while a client writes. Checks afterwards that all data is intact and the volume
/// stops cleanly.
pub(crate) fn while_it_is_written(volume: Volume, act: impl FnOnce(&Volume)) {
    const BYTES: u64 = 65_536;
    const PLACES: u64 = 32;
    let is_over = AtomicBool::new(false);
    let written = |round: u64| {
        let seed = u8::try_from(round % 256).expect("a byte");
        pattern(usize::try_from(BYTES).expect("it is short"), seed)
    };
    let rounds = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut rounds = 0;
            while !is_over.load(Ordering::Acquire) {
                write(&volume, rounds % PLACES * BYTES, &written(rounds), false);
                rounds += 1;
            }
            rounds
        });
        act(&volume);
        is_over.store(true, Ordering::Release);
        writer.join().expect("it writes")
    });
    for place in 0..rounds.min(PLACES) {
        let last = (rounds - 1 - place) / PLACES * PLACES + place;
        let length = usize::try_from(BYTES).expect("it is short");
        assert!(read(&volume, place * BYTES, length) == written(last), "{place}");
    }
    assert!(volume.stop().clean);
}
