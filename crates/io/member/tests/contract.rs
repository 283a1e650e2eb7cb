//! The promises of a member, tested on every kind of member.

use std::sync::Arc;

use braid_member::layer::{Faulty, Slow};
use braid_member::{Member, MemberError, MemoryMember, create_file};

const SIZE_BYTES: u64 = 300 * 1024;

type Members = Vec<(&'static str, Box<dyn Member>)>;

/// An empty member of each kind that any user can make. The folder must live as long as the
/// members.
fn members() -> (tempfile::TempDir, Members) {
    let folder = tempfile::tempdir().expect("tempdir");
    let file = create_file(&folder.path().join("member"), SIZE_BYTES).expect("create_file");
    let layered = Faulty::new(Slow::new(Faulty::new(MemoryMember::new(SIZE_BYTES))));
    let members: Members = vec![
        ("file", file),
        ("memory", Box::new(MemoryMember::new(SIZE_BYTES))),
        ("shared memory", Box::new(Arc::new(MemoryMember::new(SIZE_BYTES)))),
        ("layers", Box::new(layered)),
    ];
    (folder, members)
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| u8::try_from(index % 251).expect("below 251") + 1).collect()
}

fn read(member: &dyn Member, offset_bytes: u64, length: usize) -> Vec<u8> {
    let mut buffer = vec![0xEE; length];
    member.read_at(&mut buffer, offset_bytes).expect("read");
    buffer
}

#[test]
fn a_new_member_reads_as_zeroes_to_its_last_byte() {
    let (_folder, members) = members();
    for (name, member) in &members {
        assert_eq!(member.size_bytes(), SIZE_BYTES, "{name}");
        let all = read(member, 0, usize::try_from(SIZE_BYTES).expect("small"));
        assert!(all.iter().all(|&byte| byte == 0), "{name}");
    }
}

#[test]
fn what_was_written_is_read_back_and_its_neighbours_are_untouched() {
    let (_folder, members) = members();
    // Ranges with odd offsets and lengths: inside one 64 KiB allocation unit of the memory member,
    // across the border of two units, and at the member's end.
    let ranges = [(0, 1), (511, 3), (65_535, 2), (65_000, 140_001), (SIZE_BYTES - 7, 7)];
    for (name, member) in &members {
        for (index, (offset_bytes, length)) in ranges.into_iter().enumerate() {
            member.zero(0, SIZE_BYTES, true).expect("zero");
            let data = pattern(length);
            let durable = index % 2 == 0;
            member.write_at(&data, offset_bytes, durable).expect("write");
            let mut model = vec![0; usize::try_from(SIZE_BYTES).expect("small")];
            let start = usize::try_from(offset_bytes).expect("small");
            model[start..start + length].copy_from_slice(&data);
            assert!(read(member, 0, model.len()) == model, "{name} {offset_bytes}+{length}");
            member.flush().expect("flush");
        }
    }
}

#[test]
fn zeroing_zeroes_exactly_its_range_with_and_without_punching() {
    let (_folder, members) = members();
    for (name, member) in &members {
        for may_punch in [true, false] {
            for (offset_bytes, length) in [(1, 5), (4096, 8192), (60_001, 130_003), (0, 0)] {
                let mut model = pattern(usize::try_from(SIZE_BYTES).expect("small"));
                member.write_at(&model, 0, false).expect("write");
                member.zero(offset_bytes, length, may_punch).expect("zero");
                let start = usize::try_from(offset_bytes).expect("small");
                let end = start + usize::try_from(length).expect("small");
                model[start..end].fill(0);
                let back = read(member, 0, model.len());
                assert!(back == model, "{name} {offset_bytes}+{length} punch {may_punch}");
            }
        }
    }
}

#[test]
fn nothing_reaches_outside_the_member() {
    let (_folder, members) = members();
    let ranges = [(SIZE_BYTES, 1), (SIZE_BYTES - 1, 2), (u64::MAX, 1), (u64::MAX - 1, 2)];
    for (name, member) in &members {
        for (offset_bytes, length) in ranges {
            let mut buffer = pattern(length);
            let length_bytes = length as u64;
            let error =
                MemberError::OutOfBounds { offset_bytes, length_bytes, size_bytes: SIZE_BYTES };
            assert_eq!(member.read_at(&mut buffer, offset_bytes), Err(error), "{name}");
            for durable in [false, true] {
                assert_eq!(member.write_at(&buffer, offset_bytes, durable), Err(error), "{name}");
            }
            assert_eq!(member.zero(offset_bytes, length_bytes, true), Err(error), "{name}");
        }
        assert_eq!(member.read_at(&mut [], SIZE_BYTES), Ok(()), "{name}");
        assert_eq!(member.write_at(&[], SIZE_BYTES, true), Ok(()), "{name}");
        member.flush().expect("a refused range is not a failed flush");
    }
}

#[test]
fn threads_may_use_one_member_at_once() {
    let (_folder, members) = members();
    const THREADS: u64 = 4;
    let share_bytes = SIZE_BYTES / THREADS;
    for (name, member) in &members {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    let value = u8::try_from(thread + 1).expect("small");
                    for step in 0..share_bytes / 1000 {
                        let offset_bytes = thread * share_bytes + step * 1000;
                        member.write_at(&[value; 1000], offset_bytes, false).expect("write");
                        assert_eq!(read(member, offset_bytes, 1000), [value; 1000], "{name}");
                    }
                });
            }
        });
    }
}

#[test]
fn memory_is_given_back_by_zeroing_and_copied_from_bytes() {
    let data = pattern(200_000);
    let member = MemoryMember::from_bytes(&data);
    assert_eq!(member.size_bytes(), 199_680, "whole sectors");
    assert!(read(&member, 0, 199_680) == data[..199_680]);
    assert_eq!(member.allocated_bytes(), 4 * 65_536);
    member.zero(0, 199_680, true).expect("zero");
    // The last allocation unit is longer than the member, so the member's zeroes stay in memory.
    assert_eq!(member.allocated_bytes(), 65_536);
    assert!(member.can_zero_fast());
}

#[test]
fn punching_a_file_gives_its_space_back_where_it_is_said_to() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().expect("tempdir");
    let path = folder.path().join("member");
    let member = create_file(&path, 1 << 20).expect("create_file");
    let blocks = || std::fs::metadata(&path).expect("metadata").blocks();
    let blocks_empty = blocks();
    member.write_at(&pattern(1 << 20), 0, true).expect("write");
    let blocks_full = blocks();
    assert!(blocks_full > blocks_empty, "a new file is sparse");
    member.zero(0, 1 << 20, true).expect("zero");
    member.flush().expect("flush");
    if member.can_zero_fast() {
        assert!(blocks() < blocks_full, "space is given back");
    }
    assert!(read(&member, 0, 1 << 20).iter().all(|&byte| byte == 0));
}
