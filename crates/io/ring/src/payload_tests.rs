//! Tests of payloads: their memory, their content, how much memory is kept, and how a lack of
//! memory ends.

use super::*;

/// Kept memory belongs to the process, so tests that look at it run one after the other.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn payloads_are_aligned_and_of_their_length() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for length_bytes in [0, 1, 511, 4096, 4097, 65536, (32 << 20) + 1] {
        let payload = Payload::zeroed(length_bytes);
        assert_eq!(payload.len(), length_bytes);
        assert!(length_bytes == 0 || payload.as_ptr().addr().is_multiple_of(4096));
        assert!(payload.iter().all(|byte| *byte == 0));
    }
}

#[test]
fn a_zeroed_payload_forgets_the_last_one() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // A size that no other test uses, so that this test gets the same memory back.
    let bytes = (4 << 20) - 100;
    let mut first = Payload::zeroed(bytes);
    first.fill(7);
    let was_at = first.as_ptr();
    drop(first);
    let second = Payload::zeroed(bytes + 50);
    assert_eq!(second.as_ptr(), was_at, "it is recycled");
    assert!(second.iter().all(|byte| *byte == 0));
}

#[test]
#[cfg(debug_assertions)]
fn an_unwritten_payload_shows_in_debug_builds() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    drop(Payload::from(vec![7; 9000]));
    assert!(Payload::for_overwriting(9000).iter().all(|byte| *byte == UNWRITTEN));
}

#[test]
fn what_is_kept_is_bounded() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let many: Vec<Payload> = (0..6).map(|_| Payload::zeroed(32 << 20)).collect();
    drop(many);
    assert!(POOL.bytes.load(Ordering::Relaxed) <= POOL_BYTES_MAX);
}

#[test]
fn capacities_are_what_payloads_take() {
    for bytes in [0, 1, 4095, 4096, 5000, 65536, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, 9 << 20] {
        let before = Payload::capacity_before(bytes);
        assert!(before <= bytes && Payload::capacity_for(before) == before, "{bytes}");
        assert!(Payload::capacity_for(bytes) >= bytes);
        assert_eq!(
            Payload::capacity_before(Payload::capacity_for(bytes)),
            Payload::capacity_for(bytes)
        );
    }
}

#[test]
fn nothing_is_kept_beyond_what_is_set() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let many: Vec<Payload> = (0..3).map(|_| Payload::zeroed(8 << 20)).collect();
    set_payload_memory(3 << 20);
    drop(many);
    assert_eq!(POOL.mappings().len(), 0, "they went back to the system");
    set_payload_memory(PAYLOAD_MEMORY_BYTES);
    drop(Payload::zeroed(8 << 20));
    assert_eq!(POOL.mappings().len(), 1);
}

#[test]
fn what_is_not_to_be_had_is_an_error() {
    for length_bytes in [usize::MAX, usize::MAX / 2, 1 << 60] {
        let refused = Payload::try_zeroed(length_bytes).err();
        assert_eq!(refused, Some(NoMemory { bytes: length_bytes }));
        let mut payload = Payload::from(vec![7; 10]);
        assert!(payload.try_grow(length_bytes, 10).is_err());
        assert_eq!(&payload[..], [7; 10], "it is as it was");
    }
}

#[test]
fn a_payload_that_grows_keeps_what_it_has() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let sizes = [1, 4096, 5000, 100_000, 256 << 10, 1 << 20, 3 << 20, 5 << 20, (9 << 20) + 5];
    let mut payload = Payload::default();
    for (size, next) in sizes.into_iter().zip(1..) {
        let used = payload.len();
        payload.try_grow(size, used).expect("so much memory");
        assert!(payload.len() == size && payload.as_ptr().addr().is_multiple_of(4096));
        payload[used..].fill(next);
    }
    let mut from = 0;
    for (size, value) in sizes.into_iter().zip(1..) {
        assert!(payload[from..size].iter().all(|byte| *byte == value), "from {from}");
        from = size;
    }
}

#[test]
fn memory_that_nobody_writes_is_not_taken() {
    let resident_bytes = || {
        let text = std::fs::read_to_string("/proc/self/statm").expect("procfs");
        let pages: usize = text.split(' ').nth(1).expect("resident").parse().expect("a number");
        pages * 4096
    };
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let before = resident_bytes();
    let many: Vec<_> = (0..8).map(|_| Payload::try_zeroed(100 << 20).expect("addresses")).collect();
    assert!(resident_bytes() < before + (40 << 20), "800 MiB were asked for");
    drop(many);
}

#[test]
fn a_cut_payload_is_its_middle() {
    let mut payload = Payload::from((0..200).collect::<Vec<u8>>());
    payload.cut(10..60);
    payload.cut(5..7);
    assert_eq!(&payload[..], [15, 16]);
    payload[0] = 1;
    assert_eq!(&payload[..], [1, 16]);
}

#[test]
fn a_shorter_payload_goes_back_to_where_it_came_from() {
    let mut payload = Payload::from(vec![1; 1 << 21]);
    payload.truncate(3);
    assert_eq!(&payload[..], [1, 1, 1]);
    drop(payload);
    assert_eq!(Payload::zeroed(1 << 21).len(), 1 << 21);
}
