//! The layers: each adds one thing and changes nothing else.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use braid_member::layer::{
    Fault, Faulty, Holes, Lenient, Operation, Overlay, OverlayError, Part, Patched, Sectors, Slow,
};
use braid_member::{Member, MemberError, MemoryMember};

const SIZE_BYTES: u64 = 1 << 20;
const NO_SPACE: MemberError = MemberError::OutOfSpace { errno: 28 };
const FAILED_BEFORE: MemberError = MemberError::FlushFailedBefore { errno: None };
const GONE: MemberError = MemberError::Gone { errno: 19 };

fn faulty() -> Faulty<MemoryMember> {
    Faulty::new(MemoryMember::new(SIZE_BYTES))
}

#[test]
fn a_read_fault_strikes_its_range_until_it_is_removed() {
    let member = faulty();
    let faults = member.faults();
    let id = faults.insert(Fault::on(Operation::Read, 4096..8192));
    let read = |offset_bytes| member.read_at(&mut [0; 512], offset_bytes);
    assert_eq!(read(3584), Ok(()), "ends where the fault begins");
    assert_eq!(read(3585), Err(MemberError::Injected), "touches its first byte");
    assert_eq!(read(8191), Err(MemberError::Injected), "touches its last byte");
    assert_eq!(read(8192), Ok(()), "begins where the fault ends");
    assert_eq!(member.write_at(&[1; 512], 4096, true), Ok(()), "writes are not struck");
    faults.remove(id);
    assert_eq!(read(4096), Ok(()));
    assert_eq!(faults.struck_count(), 2);
}

#[test]
fn a_write_fault_of_two_times_writes_nothing_twice_and_then_is_spent() {
    let member = faulty();
    let fault = Fault::everywhere(Operation::Write).times(2).error(NO_SPACE);
    member.faults().insert(fault);
    assert_eq!(member.write_at(&[7; 16], 0, false), Err(NO_SPACE));
    assert_eq!(member.zero(0, 16, true), Err(NO_SPACE));
    let mut buffer = [9; 16];
    member.read_at(&mut buffer, 0).expect("read");
    assert_eq!(buffer, [0; 16]);
    assert_eq!(member.write_at(&[7; 16], 0, false), Ok(()));
}

#[test]
fn a_flush_fault_strikes_once_and_flushes_fail_for_ever() {
    let member = faulty();
    member.faults().insert(Fault::everywhere(Operation::Flush).times(1));
    assert_eq!(member.write_at(&[1], 0, false), Ok(()));
    assert_eq!(member.write_at(&[1], 0, true), Err(MemberError::Injected));
    member.faults().clear();
    assert_eq!(member.flush(), Err(FAILED_BEFORE));
    assert_eq!(member.write_at(&[1], 0, true), Err(FAILED_BEFORE));
    assert_eq!(member.write_at(&[1], 0, false), Ok(()), "a plain write promises nothing");
}

#[test]
fn a_member_killed_by_another_thread_is_gone_until_it_is_revived() {
    let member = Arc::new(faulty());
    let faults = member.faults();
    let (killed, wait_killed) = mpsc::channel();
    std::thread::spawn(move || {
        faults.kill();
        killed.send(()).expect("send");
    });
    wait_killed.recv().expect("recv");
    assert_eq!(member.read_at(&mut [0], 0), Err(GONE));
    assert_eq!(member.write_at(&[0], 0, false), Err(GONE));
    assert_eq!(member.zero(0, 1, false), Err(GONE));
    assert_eq!(member.flush(), Err(GONE));
    member.faults().revive();
    assert_eq!(member.read_at(&mut [0], 0), Ok(()));
    assert_eq!(member.flush(), Err(FAILED_BEFORE), "a missed flush is missed");
}

#[test]
fn a_slow_member_takes_at_least_its_delay() {
    let member = Slow::new(MemoryMember::new(SIZE_BYTES));
    let delays = member.delays();
    let time = |action: &dyn Fn()| {
        let start = Instant::now();
        action();
        start.elapsed()
    };
    let delay = Duration::from_millis(20);
    delays.set_read(delay);
    assert!(time(&|| member.read_at(&mut [0], 0).expect("read")) >= delay);
    delays.set_read(Duration::ZERO);
    delays.set_write(delay);
    delays.set_flush(delay);
    assert!(time(&|| member.write_at(&[0], 0, true).expect("write")) >= 2 * delay);
    assert!(time(&|| member.zero(0, 1, true).expect("zero")) >= delay);
    assert!(time(&|| member.flush().expect("flush")) >= delay);
}

#[test]
fn layers_pass_identity_and_size_through() {
    let inner = MemoryMember::new(SIZE_BYTES);
    let key = inner.identity().key;
    let stack = Faulty::new(Slow::new(Faulty::new(inner)));
    assert_eq!(stack.identity().key, key);
    assert_eq!(stack.size_bytes(), SIZE_BYTES);
    assert!(stack.can_zero_fast());
    assert_ne!(MemoryMember::new(SIZE_BYTES).identity().key, key);
}

#[test]
fn a_patched_member_reads_as_written_and_is_never_written() {
    let pattern = |from: usize, length: usize| -> Vec<u8> {
        (from..from + length).map(|at| u8::try_from(at / 7 % 251).expect("small")).collect()
    };
    let size = usize::try_from(SIZE_BYTES).expect("small");
    let inner = Arc::new(MemoryMember::from_bytes(&pattern(0, size)));
    let sectors: Sectors = [(2, [0xaa; 512]), (3, [0xbb; 512]), (9, [0xcc; 512])].into();
    let member = Patched::new(Arc::clone(&inner), sectors);
    let mut expected = pattern(0, size);
    expected[1024..1536].fill(0xaa);
    expected[1536..2048].fill(0xbb);
    expected[9 * 512..10 * 512].fill(0xcc);
    for (offset, length) in
        [(0, 8192), (1000, 100), (1100, 500), (1536, 512), (2048, 512), (0, 0), (5000, 99)]
    {
        let mut bytes = vec![0; length];
        member.read_at(&mut bytes, offset as u64).expect("inside");
        assert_eq!(bytes, expected[offset..offset + length], "{length} bytes at {offset}");
    }
    assert!(matches!(
        member.read_at(&mut [0; 2], SIZE_BYTES - 1),
        Err(MemberError::OutOfBounds { .. })
    ));
    assert_eq!(member.write_at(&[1; 512], 0, false), Err(MemberError::ReadOnly));
    assert_eq!(member.zero(0, 512, true), Err(MemberError::ReadOnly));
    assert_eq!((member.flush(), member.raw().is_none()), (Ok(()), true));
    let mut whole = vec![0; size];
    inner.read_at(&mut whole, 0).expect("inside");
    assert_eq!(whole, pattern(0, size));
}

/// A folder, what a member holds, and the member.
fn overlaid() -> (tempfile::TempDir, Vec<u8>, Arc<MemoryMember>) {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes: Vec<u8> =
        (0..100 * 512).map(|at| u8::try_from(at / 11 % 251).expect("small")).collect();
    let member = Arc::new(MemoryMember::from_bytes(&bytes));
    (folder, bytes, member)
}

fn all_of(member: &dyn Member) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(member.size_bytes()).expect("small")];
    member.read_at(&mut bytes, 0).expect("readable");
    bytes
}

#[test]
fn an_overlay_reads_like_a_member_that_was_written() {
    let (folder, mut model, member) = overlaid();
    let overlay = Overlay::open(Arc::clone(&member), folder.path(), "m", 7).expect("a new overlay");
    assert_eq!(all_of(&overlay), model);
    // Offsets and lengths on both sides of every border of blocks, and at the member's short last one.
    let size = model.len();
    let cases = [
        (0, 512),
        (4095, 2),
        (4096, 4096),
        (8000, 9000),
        (20_480, 8192),
        (size - 512, 512),
        (size - 3000, 3000),
        (12_288, 100),
    ];
    for (turn, (at, length)) in cases.into_iter().enumerate() {
        let value = u8::try_from(turn + 1).expect("few");
        if turn % 3 == 2 {
            overlay.zero(at as u64, length as u64, true).expect("zeroes");
            model[at..at + length].fill(0);
        } else {
            overlay.write_at(&vec![value; length], at as u64, turn % 2 == 0).expect("a write");
            model[at..at + length].fill(value);
        }
        assert_eq!(all_of(&overlay), model, "after {turn}");
        let mut part = vec![0; length + 1000];
        let from = at.saturating_sub(500).min(size - part.len());
        overlay.read_at(&mut part, from as u64).expect("a read over the borders");
        assert_eq!(part, model[from..from + part.len()], "after {turn}");
    }
    let beyond = overlay.write_at(&[1; 512], size as u64 - 511, false);
    assert!(matches!(beyond, Err(MemberError::OutOfBounds { .. })), "{beyond:?}");
}

#[test]
fn an_overlay_takes_every_write_and_the_member_none() {
    let (folder, bytes, member) = overlaid();
    let overlay = Overlay::open(Arc::clone(&member), folder.path(), "m", 7).expect("a new overlay");
    assert_eq!((overlay.used_bytes(), overlay.ranges()), (0, vec![]));
    overlay.write_at(&[9; 100], 5000, true).expect("a write");
    overlay.zero(16_384, 8192, false).expect("zeroes");
    overlay.write_at(&[9; 512], 99 * 512, false).expect("a write");
    overlay.flush().expect("a flush");
    assert_eq!(overlay.ranges(), [4096..8192, 16_384..24_576, 49_152..51_200]);
    assert_eq!(overlay.used_bytes(), 4096 + 8192 + 2048);
    assert_eq!(all_of(member.as_ref()), bytes, "the member is as it was");
}

#[test]
fn an_overlay_survives_a_restart() {
    let (folder, mut model, member) = overlaid();
    let open = |mark| Overlay::open(Arc::clone(&member), folder.path(), "m", mark);
    let overlay = open(7).expect("a new overlay");
    overlay.write_at(&[3; 700], 4000, false).expect("a write");
    overlay.flush().expect("a flush");
    model[4000..4700].fill(3);
    overlay.write_at(&[4; 512], 30_720, false).expect("a write that is never flushed");
    assert!(matches!(open(7), Err(OverlayError::Busy { .. })), "it is in use");
    drop(overlay);
    let again = open(7).expect("it is there");
    assert_eq!(all_of(&again), model, "what was flushed is there, and nothing by halves");
    drop(again);
    assert!(matches!(open(8), Err(OverlayError::OfOther { .. })), "the member holds other bytes");
    // A map that was cut, or has bits behind the member's end, is none.
    let map = folder.path().join("m.map");
    let sound = std::fs::read(&map).expect("a map");
    let mut beyond = sound.clone();
    beyond[4096 + 100] = 1;
    for spoiled in [&sound[..4000], &beyond[..], b"".as_slice()] {
        std::fs::write(&map, spoiled).expect("a map");
        assert!(matches!(open(7), Err(OverlayError::OfOther { .. })), "{} bytes", spoiled.len());
    }
    std::fs::write(&map, &sound).expect("a map");
    assert_eq!(all_of(&open(7).expect("it is whole again")), model);
}

#[test]
fn a_part_shows_its_stretch_and_nothing_else() {
    let (_folder, mut model, member) = overlaid();
    let part = Part::new(Arc::clone(&member), 5120, 2048).expect("it lies in the member");
    assert_eq!(all_of(&part), model[5120..7168]);
    part.write_at(&[8; 512], 1536, true).expect("a write");
    part.zero(0, 512, true).expect("zeroes");
    for refused in [part.write_at(&[8; 2], 2047, false), part.read_at(&mut [0], 2048)] {
        assert!(matches!(refused, Err(MemberError::OutOfBounds { .. })), "{refused:?}");
    }
    model[5120 + 1536..7168].fill(8);
    model[5120..5632].fill(0);
    assert_eq!(all_of(member.as_ref()), model);
    assert!(Part::new(Arc::clone(&member), 51_000, 201).is_err(), "it ends behind the member");
}

#[test]
fn what_a_copy_lacks_is_an_error_or_zeroes() {
    let member = MemoryMember::new(8192);
    let model: Vec<u8> = (0..8192).map(|at| (at % 251) as u8 + 1).collect();
    member.write_at(&model, 0, false).expect("a write");
    // One is within a sector, two touch, one is empty.
    let holes = [4096..5120, 1000..1010, 5120..5632, 7000..7000];
    let holed = Arc::new(Holes::new(member, &holes));
    let is_bad = |at: usize| (4096..5632).contains(&at) || (1000..1010).contains(&at);
    for (start, length) in [
        (0, 8192),
        (0, 1000),
        (999, 1),
        (999, 2),
        (1009, 1),
        (1010, 3086),
        (4095, 2),
        (5631, 1),
        (5632, 2560),
        (7000, 1),
    ] {
        let mut buffer = vec![0; length];
        let read = holed.read_at(&mut buffer, start as u64);
        match (start..start + length).any(is_bad) {
            true => assert!(matches!(read, Err(MemberError::Media { .. })), "{start}: {read:?}"),
            false => assert_eq!((read, &buffer[..]), (Ok(()), &model[start..start + length])),
        }
    }
    assert_eq!(holed.write_at(&[0; 512], 4096, false), Err(MemberError::ReadOnly));
    // A sector is read or not.
    let mut zeroed = model;
    zeroed[512..1024].fill(0);
    zeroed[4096..5632].fill(0);
    assert_eq!(all_of(&Lenient(Arc::clone(&holed))), zeroed);
    let mut part = vec![7; 700];
    Lenient(holed).read_at(&mut part, 900).expect("what can be read");
    assert_eq!(part, zeroed[900..1600]);
}
