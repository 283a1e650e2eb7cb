//! Direct I/O together with buffered I/O on one member: both read the same bytes.

use braid_member::{Access, DirectError, Member, MemoryMember, create_file, open};

/// A buffer at an address that is a multiple of 4096.
#[repr(align(4096))]
struct Aligned([u8; 8192]);

#[test]
fn aligned_and_other_transfers_see_each_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("member");
    drop(create_file(&path, 1 << 20).expect("a file"));
    let member = open(&path, Access::ReadWrite).expect("a member");
    if let Err(error) = member.go_direct() {
        assert_ne!(error, DirectError::NotADevice, "a file may be refused for other reasons only");
        assert!(!member.is_direct());
        return;
    }
    assert!(member.is_direct());
    let mut memory = Aligned([1; 8192]);
    member.write_at(&memory.0, 4096, false).expect("aligned");
    member.write_at(&[2; 300], 5000, true).expect("not aligned, durable");
    member.write_at(&memory.0[..512], 8192, true).expect("one sector, durable");
    let mut expected = [1; 8192];
    expected[904..1204].fill(2);
    member.read_at(&mut memory.0, 4096).expect("aligned");
    assert_eq!(memory.0, expected);
    member.zero(4096, 8192, false).expect("zeroed");
    member.read_at(&mut memory.0, 4096).expect("aligned");
    assert_eq!(memory.0, [0; 8192]);
    member.flush().expect("flushed");
}

#[test]
fn memory_has_no_page_cache_to_go_past() {
    assert_eq!(MemoryMember::new(1 << 20).go_direct(), Err(DirectError::NotADevice));
}
