//! Maps of copies of disks, as text. Input: 4 bytes of the disk's size, 1 byte that selects the
//! pieces that fail, then the text.
//!
//! A valid map that is written and read again is the same map, and a copy that continues from it
//! comes to an end.
#![no_main]

use braid_imaging::{Map, Plan, State, Step};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((head, text)) = input.split_first_chunk::<5>() else { return };
    let size_bytes = u64::from(u32::from_le_bytes(*head.first_chunk().unwrap())) % (4 << 20);
    let Ok(text) = std::str::from_utf8(text) else { return };
    if let Ok(map) = Map::parse_of_copy(text, size_bytes) {
        assert!(map.size_bytes() >= size_bytes);
        assert!(map.of(State::Done).all(|range| range.end <= size_bytes));
    }
    let Ok(map) = Map::parse(text, size_bytes) else { return };
    let total: u64 = State::ALL.iter().map(|state| map.bytes(*state)).sum();
    assert_eq!(total, size_bytes);
    let again = map.to_text(&["fuzzed"], (0, '?'), 1);
    assert_eq!(Map::parse(&again, size_bytes).as_ref(), Ok(&map));
    let mut plan = Plan::new(map, 512, 1);
    let mut asked = 0_u64;
    while let Some(request) = plan.next_request() {
        assert!(!request.range.is_empty() && request.range.end <= size_bytes);
        let is_read = (request.range.start >> 9).wrapping_mul(0x9e37) % 256 >= u64::from(head[4]);
        plan.answered(&request, is_read);
        asked += 1;
        assert!(asked < 20 * (size_bytes / 512 + 100) + 20 * text.len() as u64);
    }
    assert_eq!(plan.step(), Step::Over);
    let rest = [State::Untried, State::Untrimmed, State::Unscraped];
    assert_eq!(rest.iter().map(|state| plan.map().bytes(*state)).sum::<u64>(), 0);
});
