//! Members without superblocks. For two shapes the first two members are also read as an array.
//!
//! Input: 1 byte of the number of members (1 to 4), then their bytes, one after another.
//!
//! If the first byte is 128 or more, each byte of the input stands for a sector. So members have
//! more sectors than the fuzzer would write.
#![no_main]

use braid_solver::{Effort, Platter, boundary, solve};
use libfuzzer_sys::fuzz_target;

struct Bytes<'a> {
    bytes: &'a [u8],
    is_spread: bool,
}

impl Platter for Bytes<'_> {
    fn sectors(&self) -> u64 {
        (if self.is_spread { self.bytes.len() } else { self.bytes.len() / 512 }) as u64
    }

    fn read(&self, sector: u64, bytes: &mut [u8]) -> bool {
        let sectors = bytes.len().div_ceil(512) as u64;
        assert!(sector + sectors <= self.sectors(), "{sectors} sectors at {sector}");
        let first = usize::try_from(sector).unwrap();
        for (at, piece) in (first..).zip(bytes.chunks_mut(512)) {
            match self.is_spread {
                true => piece.fill(self.bytes[at]),
                false => piece.copy_from_slice(&self.bytes[at * 512..at * 512 + piece.len()]),
            }
        }
        sector % 97 != 96
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((first, bytes)) = input.split_first() else { return };
    let (count, is_spread) = (usize::from(first % 4) + 1, *first >= 128);
    let share = bytes.len() / count;
    if share == 0 {
        return;
    }
    let members: Vec<Bytes> =
        bytes.chunks_exact(share).take(count).map(|bytes| Bytes { bytes, is_spread }).collect();
    let members: Vec<&dyn Platter> = members.iter().map(|it| it as &dyn Platter).collect();
    let effort = Effort { head_sectors: 64, windows: 8, window_sectors: 8 };
    let solution = solve(&members, &effort);
    for guess in &solution.guesses {
        assert!(guess.slots.iter().flatten().all(|member| *member < count));
        assert_eq!(guess.slots.len(), guess.offsets.len());
    }
    if let [first, second, ..] = members[..] {
        let within = first.sectors() / 8..first.sectors();
        if let Some(found) = boundary((first, second), within.clone(), &effort) {
            let places =
                [within.start, found.between.start, found.likely, found.between.end, within.end];
            assert!(places.is_sorted(), "{places:?}");
        }
    }
});
