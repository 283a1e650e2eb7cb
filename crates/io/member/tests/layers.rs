//! The layers: each changes one thing about a member and nothing else.

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

/// An overlay over a memory member: the overlay's folder, the member's content, and the member.
fn overlaid() -> (tempfile::TempDir, Vec<u8>, Arc<MemoryMember>) {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes: Vec<u8> =
        (0..100 * 512).map(|at| u8::try_from(at / 11 % 251).expect("small")).collect();
    let member = Arc::new(MemoryMember::from_bytes(&bytes));
    (folder, bytes, member)
}

fn made(member: &Arc<MemoryMember>, folder: &std::path::Path) -> Overlay<Arc<MemoryMember>> {
    Overlay::make(Arc::clone(member), folder, "m", (7, *b"an identity 4711"))
        .expect("a new overlay")
}

fn all_of(member: &dyn Member) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(member.size_bytes()).expect("small")];
    member.read_at(&mut bytes, 0).expect("readable");
    bytes
}

#[test]
fn an_overlay_reads_like_a_member_that_was_written() {
    let (folder, mut model, member) = overlaid();
    let overlay = made(&member, folder.path());
    assert_eq!(all_of(&overlay), model);
    // Ranges on both sides of every block boundary, and at the short last block.
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
    let overlay = made(&member, folder.path());
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
    let overlay = made(&member, folder.path());
    overlay.write_at(&[3; 700], 4000, false).expect("a write");
    overlay.zero(8192, 8192, false).expect("zeroes");
    overlay.flush().expect("a flush");
    model[4000..4700].fill(3);
    model[8192..16_384].fill(0);
    for value in [4, 5] {
        overlay.write_at(&[value; 512], 30_720, false).expect("a write that is never flushed");
        overlay.write_at(&[value; 5000], 4096, false).expect("a write over what was flushed");
    }
    assert!(matches!(open(7), Err(OverlayError::Busy { .. })), "it is in use");
    drop(overlay);
    let again = open(7).expect("it is there");
    assert_eq!(all_of(&again), model, "what was flushed is there, and nothing by halves");
    // The overlay reuses slots of blocks that were never flushed or were written again.
    for turn in 0..100 {
        again.write_at(&[turn; 9000], 4096, true).expect("a write");
    }
    model[4096..13_096].fill(99);
    drop(again);
    assert!(std::fs::metadata(folder.path().join("m.data")).expect("a file").len() < 16 * 4096);
    assert_eq!(all_of(&open(7).expect("it is there")), model);
    assert!(matches!(open(8), Err(OverlayError::OfOther { .. })), "the member holds other bytes");
}

/// After many writes of the same blocks the log is much longer than the map needs, so an open
/// rewrites it.
#[test]
fn a_long_log_of_an_overlay_is_written_anew() {
    let (folder, mut model, member) = overlaid();
    let overlay = made(&member, folder.path());
    for turn in 0..80_000_u32 {
        overlay.write_at(&[turn.to_le_bytes()[0]; 4096], 8192, false).expect("a write");
    }
    overlay.flush().expect("a flush");
    model[8192..12_288].fill(79_999_u32.to_le_bytes()[0]);
    drop(overlay);
    let blocks = std::fs::metadata(folder.path().join("m.data")).expect("a file").len();
    assert!(blocks < 16 * 4096, "blocks that are written again take their slots again: {blocks}");
    let length = || std::fs::metadata(folder.path().join("m.map")).expect("a map").len();
    assert!(length() > 1 << 20);
    for _ in 0..2 {
        let again = Overlay::open(Arc::clone(&member), folder.path(), "m", 7).expect("it is there");
        assert_eq!((all_of(&again), again.changed().expect("readable")), (model.clone(), vec![]));
        again.write_at(&[1; 512], 0, true).expect("a write");
        model[..512].fill(1);
    }
    assert!(length() < 8192, "{}", length());
}

/// Regression: a child between fork and exec holds its parent's locks, so a closed overlay was
/// refused as in use.
#[test]
fn an_overlay_that_is_held_for_a_moment_longer_is_opened() {
    let (folder, _, member) = overlaid();
    drop(made(&member, folder.path()));
    let held = std::fs::File::open(folder.path().join("m.map")).expect("a map");
    held.lock().expect("it is free");
    let child = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(30));
        drop(held);
    });
    Overlay::open(member, folder.path(), "m", 7).expect("it was held for a moment");
    child.join().expect("it ends");
}

/// Regression: a map that was cut, a flipped bit, and zeroed blocks were read, and committed, as if
/// a client had written these bytes.
#[test]
fn an_overlay_that_was_changed_in_any_byte_is_refused() {
    let (folder, mut model, member) = overlaid();
    let overlay = made(&member, folder.path());
    overlay.write_at(&[3; 700], 4000, true).expect("a write");
    overlay.write_at(&[5; 4096], 20_480, false).expect("a write");
    overlay.zero(8192, 4096, false).expect("zeroes");
    overlay.flush().expect("a flush");
    model[4000..4700].fill(3);
    model[20_480..24_576].fill(5);
    model[8192..12_288].fill(0);
    drop(overlay);
    let open = || Overlay::open(Arc::clone(&member), folder.path(), "m", 7);
    let (map, data) = (folder.path().join("m.map"), folder.path().join("m.data"));
    let read = |path: &std::path::Path| std::fs::read(path).expect("a file");
    let (sound_map, sound_data) = (read(&map), read(&data));
    let write = |path: &std::path::Path, bytes: &[u8]| std::fs::write(path, bytes).expect("a file");
    let is_refused = |what: &str| {
        assert!(matches!(open(), Err(OverlayError::Damaged { .. })), "{what}");
    };
    for length in (0..sound_map.len()).step_by(7) {
        write(&map, &sound_map[..length]);
        is_refused(&format!("a map of {length} bytes"));
    }
    let meant = (0..512).chain(4096..sound_map.len());
    for at in meant {
        let mut bytes = sound_map.clone();
        bytes[at] ^= 0x10;
        write(&map, &bytes);
        is_refused(&format!("byte {at} of the map"));
    }
    write(&map, &sound_map);
    for length in (0..sound_data.len()).step_by(511) {
        write(&data, &sound_data[..length]);
        assert!(!is_whole(open()), "{length} bytes of blocks");
    }
    for at in (0..sound_data.len()).step_by(101) {
        let mut bytes = sound_data.clone();
        bytes[at] ^= 0x10;
        write(&data, &bytes);
        let Ok(overlay) = open() else { continue };
        // With one block damaged, every other block can still be read.
        let changed = overlay.changed().expect("readable");
        let mut buffer = [0; 4096];
        let mut failed = Vec::new();
        for start in (0..49_152).step_by(4096) {
            match overlay.read_at(&mut buffer, start as u64) {
                Ok(()) => {
                    assert_eq!(buffer, model[start..start + 4096], "byte {at}, read at {start}")
                }
                Err(error) => {
                    assert!(matches!(error, MemberError::Media { .. }), "{error:?}");
                    failed.push(start as u64..start as u64 + 4096);
                }
            }
        }
        assert_eq!(failed, changed, "byte {at}");
        assert_eq!(changed.len(), 1, "byte {at}");
    }
    write(&data, &sound_data);
    assert_eq!(all_of(&open().expect("it is whole again")), model);
    // The file is replaced by another overlay's blocks, by no file, and by a link to a file.
    let other = folder.path().join("other");
    std::fs::create_dir(&other).expect("a folder");
    let id = *b"another identity";
    drop(Overlay::make(Arc::clone(&member), &other, "m", (7, id)).expect("a new overlay"));
    for (path, name) in [(&map, "m.map"), (&data, "m.data")] {
        let sound = read(path);
        std::fs::copy(other.join("m.data"), path).expect("a copy");
        is_refused(name);
        std::fs::remove_file(path).expect("a file");
        is_refused(name);
        write(&other.join("kept"), &sound);
        std::os::unix::fs::symlink(other.join("kept"), path).expect("a link");
        is_refused(name);
        std::fs::remove_file(path).expect("a link");
        std::fs::hard_link(other.join("kept"), path).expect("a link");
        is_refused(name);
        std::fs::remove_file(path).expect("a link");
        write(path, &sound);
    }
    assert_eq!(all_of(&open().expect("it is whole again")), model);
}

/// Whether an overlay opens and all its blocks match their checksums.
fn is_whole(opened: Result<Overlay<Arc<MemoryMember>>, OverlayError>) -> bool {
    opened.is_ok_and(|overlay| overlay.changed().is_ok_and(|changed| changed.is_empty()))
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
    // One hole is within a sector, two touch, one is empty.
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
    let longer = Holes::of_longer(Arc::clone(&holed), 10240, &[]);
    assert_eq!((longer.size_bytes(), longer.read_at(&mut [0; 512], 7680)), (10240, Ok(())));
    for (at, length) in [(8191, 2), (8192, 512), (9728, 512)] {
        let read = longer.read_at(&mut vec![0; length], at);
        assert!(matches!(read, Err(MemberError::Media { .. })), "{at}: {read:?}");
    }
    // A sector is readable as a whole or not at all.
    let mut zeroed = model;
    zeroed[512..1024].fill(0);
    zeroed[4096..5632].fill(0);
    assert_eq!(all_of(&Lenient(Arc::clone(&holed))), zeroed);
    let mut part = vec![7; 700];
    Lenient(holed).read_at(&mut part, 900).expect("what can be read");
    assert_eq!(part, zeroed[900..1600]);
}
