//! Reading, writing, making durable and zeroing files.

use std::io::ErrorKind;
use std::sync::Arc;

use crate::common::{event_channel, file, workers};
use braid_ring::{Completion, Memory, Operation, Payload, Segment, Segments, Zeroing};

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251).to_le_bytes()[0] ^ seed).collect()
}

fn bytes_of(completion: Completion) -> Vec<u8> {
    let mut operation = completion.operation;
    let memory = std::mem::take(operation.memory().expect("it has memory"));
    let bytes = memory.into_iter().flat_map(|segment| match segment.into_memory() {
        Memory::Payload(payload) => payload.to_vec(),
        Memory::Bytes(bytes) => bytes,
        other => panic!("{other:?}"),
    });
    bytes.collect()
}

#[test]
fn what_is_written_is_read_back_from_several_segments() {
    let (workers, file, (sender, receiver)) = (workers(2, 8), file(1 << 20), event_channel());
    for (round, durable) in [(0_u8, false), (1, true)] {
        let content = pattern(100_000, round);
        let segments: Segments = [
            Payload::from(&content[..50_000]).into(),
            Segment::part(Memory::Bytes(content.clone()), 50_000..60_000),
            Payload::from(&content[60_000..]).into(),
        ]
        .into_iter()
        .collect();
        let write =
            Operation::Write { file: Arc::clone(&file), offset: 4321, memory: segments, durable };
        workers.submit(round.into(), write, sender.clone(), 1).expect("running");
        assert_eq!(receiver.next().result.expect("written"), 100_000);
        let memory = [Payload::zeroed(1).into(), vec![0; 99_999].into()].into_iter().collect();
        let read = Operation::Read { file: Arc::clone(&file), offset: 4321, memory };
        workers.submit(round.into(), read, sender.clone(), 2).expect("running");
        let completion = receiver.next();
        assert_eq!((completion.token, completion.result.as_ref().ok()), (2, Some(&100_000)));
        assert_eq!(bytes_of(completion), content);
    }
    workers.submit(0, Operation::Sync { file }, sender, 3).expect("running");
    assert!(receiver.next().result.is_ok());
}

#[test]
fn registered_memory_is_read_and_written_by_name() {
    let (workers, file, (sender, receiver)) = (workers(2, 8), file(8 << 20), event_channel());
    let mut by_name = 0;
    for round in 0..3_u8 {
        for length in [4096, 64 << 10, 100_000, 2 << 20, (2 << 20) + 4096] {
            let (content, worker) = (pattern(length, round), usize::from(round));
            let write = Operation::Write {
                file: Arc::clone(&file),
                offset: 8192,
                memory: Segments::from_iter([Payload::from(content.as_slice()).into()]),
                durable: round == 1,
            };
            workers.submit(worker, write, sender.clone(), 1).expect("running");
            assert_eq!(receiver.next().result.expect("written"), length);
            let memory = Segments::from_iter([Payload::zeroed(length).into()]);
            let read = Operation::Read { file: Arc::clone(&file), offset: 8192, memory };
            workers.submit(worker, read, sender.clone(), 2).expect("running");
            let completion = receiver.next();
            assert_eq!(completion.result.as_ref().expect("read"), &length);
            assert_eq!(bytes_of(completion), content, "{length} bytes in round {round}");
            by_name += if (8192..=2 << 20).contains(&length) { 2 } else { 0 };
        }
    }
    let registered = workers.counters().registered;
    // In a process with a low limit on pinned memory, only the first slabs are registered.
    assert!(
        (1..=by_name).contains(&registered),
        "{registered}; what is short, or longer than a slab, has no name"
    );
}

#[test]
fn reading_past_the_end_is_an_error_and_not_a_short_read() {
    let (workers, file, (sender, receiver)) = (workers(1, 8), file(5000), event_channel());
    let memory = Segments::from_iter([Payload::zeroed(4096).into()]);
    let read = Operation::Read { file, offset: 4096, memory };
    workers.submit(0, read, sender, 0).expect("running");
    assert_eq!(receiver.next().result.expect_err("too short").kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn nothing_to_move_is_moved_at_once() {
    let (workers, file, (sender, receiver)) = (workers(1, 8), file(5000), event_channel());
    let read = Operation::Read { file, offset: 0, memory: Segments::new() };
    workers.submit(0, read, sender, 0).expect("running");
    assert_eq!(receiver.next().result.expect("nothing to do"), 0);
}

#[test]
fn ranges_are_zeroed_both_ways() {
    let (workers, file, (sender, receiver)) = (workers(1, 8), file(1 << 16), event_channel());
    for how in [Zeroing::PunchHole, Zeroing::ZeroRange] {
        let content = pattern(1 << 16, 3);
        let memory = Segments::from_iter([content.clone().into()]);
        let write = Operation::Write { file: Arc::clone(&file), offset: 0, memory, durable: false };
        workers.submit(0, write, sender.clone(), 0).expect("running");
        assert!(receiver.next().result.is_ok());
        let zero = Operation::Zero { file: Arc::clone(&file), offset: 5000, length: 9000, how };
        workers.submit(0, zero, sender.clone(), 0).expect("running");
        assert!(receiver.next().result.is_ok());
        let memory = Segments::from_iter([vec![1; 1 << 16].into()]);
        let read = Operation::Read { file: Arc::clone(&file), offset: 0, memory };
        workers.submit(0, read, sender.clone(), 0).expect("running");
        let mut expected = content;
        expected[5000..14_000].fill(0);
        assert_eq!(bytes_of(receiver.next()), expected);
    }
}

#[test]
fn more_than_the_ring_holds() {
    let (workers, file, (sender, receiver)) = (workers(1, 2), file(1 << 20), event_channel());
    let batch = {
        let (file, sender) = (Arc::clone(&file), Arc::clone(&sender));
        move |worker: &braid_ring::Worker| {
            for token in 0..200_u64 {
                let memory = Segments::from_iter([pattern(4096, token.to_le_bytes()[0]).into()]);
                let (file, offset) = (Arc::clone(&file), token * 4096);
                let write = Operation::Write { file, offset, memory, durable: false };
                worker.submit(write, sender.clone(), token);
            }
        }
    };
    workers.post(0, Box::new(batch)).expect("running");
    let mut tokens: Vec<u64> = (0..200)
        .map(|_| {
            let completion = receiver.next();
            assert_eq!(completion.result.expect("written"), 4096);
            completion.token
        })
        .collect();
    tokens.sort_unstable();
    assert!(tokens.into_iter().eq(0..200), "each completes once");
    assert!(workers.counters().overflowed > 0, "the ring was too small for them");
    let memory = Segments::from_iter([vec![0; 4096].into()]);
    let read = Operation::Read { file, offset: 199 * 4096, memory };
    workers.submit(0, read, sender, 0).expect("running");
    assert_eq!(bytes_of(receiver.next()), pattern(4096, 199));
}

#[test]
fn constant_memory_is_written_from() {
    static TEXT: &[u8] = b"constant";
    let (workers, file, (sender, receiver)) = (workers(1, 4), file(100), event_channel());
    let memory = Segments::from_iter([Segment::whole(Memory::Constant(TEXT))]);
    let write = Operation::Write { file: Arc::clone(&file), offset: 10, memory, durable: false };
    workers.submit(0, write, sender.clone(), 0).expect("running");
    assert_eq!(receiver.next().result.expect("written"), TEXT.len());
    let read = Operation::Read {
        file,
        offset: 10,
        memory: Segments::from_iter([vec![0; TEXT.len()].into()]),
    };
    workers.submit(0, read, sender, 0).expect("running");
    assert_eq!(bytes_of(receiver.next()), TEXT);
}

#[test]
fn one_submission_carries_many_operations() {
    let (workers, file, (sender, receiver)) = (workers(1, 64), file(1 << 20), event_channel());
    let batch = move |worker: &braid_ring::Worker| {
        for token in 0..50 {
            let memory = Segments::from_iter([vec![1; 4096].into()]);
            let (file, offset) = (Arc::clone(&file), token * 4096);
            worker.submit(
                Operation::Write { file, offset, memory, durable: false },
                sender.clone(),
                token,
            );
        }
    };
    let before = workers.counters();
    workers.post(0, Box::new(batch)).expect("running");
    (0..50).for_each(|_| drop(receiver.next()));
    let after = workers.counters();
    assert!(after.entries - before.entries >= 50);
    // Only calls that submit are counted, since the worker may return to sleep once for each
    // operation.
    assert!(after.submissions - before.submissions < 50, "{before:?} {after:?}");
}

#[test]
fn registered_files_are_used_like_others() {
    let (workers, file, (sender, receiver)) = (workers(2, 8), file(1 << 16), event_channel());
    let before = workers.counters().numbered;
    workers.register(&file);
    workers.register(&file);
    for round in 0..4_u8 {
        let (content, on) = (pattern(5000, round), usize::from(round));
        let memory = Segments::from_iter([content.clone().into()]);
        let write = Operation::Write { file: Arc::clone(&file), offset: 7, memory, durable: true };
        workers.submit(on, write, sender.clone(), 0).expect("running");
        assert_eq!(receiver.next().result.expect("written"), 5000);
        let how = Zeroing::PunchHole;
        let zero = Operation::Zero { file: Arc::clone(&file), offset: 100, length: 50, how };
        workers.submit(on + 1, zero, sender.clone(), 0).expect("running");
        receiver.next().result.expect("zeroed");
        let sync = Operation::Sync { file: Arc::clone(&file) };
        workers.submit(on, sync, sender.clone(), 0).expect("running");
        receiver.next().result.expect("durable");
        let memory = Segments::from_iter([vec![1; 5000].into()]);
        let read = Operation::Read { file: Arc::clone(&file), offset: 7, memory };
        workers.submit(on, read, sender.clone(), 0).expect("running");
        let mut expected = content;
        expected[93..143].fill(0);
        assert_eq!(bytes_of(receiver.next()), expected);
        if round == 1 {
            workers.unregister(&file);
        }
    }
    // A kernel before 5.19 has no table of files, so no operation names a number there.
    let has_table = io_uring::IoUring::new(2).expect("a ring").submitter().register_files_sparse(8);
    let expected = if has_table.is_ok() { 8 } else { 0 };
    assert_eq!(workers.counters().numbered - before, expected, "while they were registered");
}
