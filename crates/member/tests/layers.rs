//! The layers: each adds one thing and changes nothing else.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use braid_member::layer::{Fault, Faulty, Operation, Patched, Sectors, Slow};
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
