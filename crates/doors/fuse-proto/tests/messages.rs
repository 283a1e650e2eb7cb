//! Tests with a kernel's messages, and with bytes that only resemble such messages.

use std::time::{Duration, SystemTime};

use braid_fuse_proto::wire::{self, opcode};
use braid_fuse_proto::{
    Errno, File, Head, Owner, ParseError, Reply, Request, SessionParameters, Step, Wishes,
};
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

const SIZE_BYTES: u64 = 10_000_000;
const UNIQUE: u64 = 7;
const OWNER: Owner = Owner { uid: 1000, gid: 100 };
const WISHES: Wishes = Wishes { over_rings: true, request_bytes_max: 1 << 20 };

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::new(1_000, 5)
}

fn file(read_only: bool) -> File {
    File::new(SIZE_BYTES, read_only, OWNER, now())
}

fn header(opcode: u32, node: u64, body_bytes: usize) -> wire::InHeader {
    let len = u32::try_from(size_of::<wire::InHeader>() + body_bytes).expect("short");
    wire::InHeader { len, opcode, unique: UNIQUE, nodeid: node, ..wire::InHeader::default() }
}

fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = header(opcode, wire::NODE_ROOT, body.len()).as_bytes().to_vec();
    bytes.extend(body);
    bytes
}

fn decide_at(file: &mut File, bytes: &[u8], payload_bytes: usize, at: SystemTime) -> Step {
    let head = Head::parse(bytes, bytes.len() + payload_bytes).expect("a head");
    let arguments = &bytes[size_of::<wire::InHeader>()..];
    let request = Request::parse(&head, arguments, payload_bytes).expect("arguments");
    file.decide(&head, &request, (WISHES, at))
}

fn decide(file: &mut File, bytes: &[u8]) -> Step {
    decide_at(file, bytes, 0, now())
}

fn failed(errno: Errno) -> Step {
    Step::Answer(Reply::failed(UNIQUE, errno))
}

fn body<T: FromBytes>(step: Step) -> T {
    let Step::Answer(reply) = step else { panic!("{step:?} is no answer") };
    T::read_from_bytes(reply.body()).expect("of its length")
}

fn write(offset: u64, size: u32, flags: u32) -> Vec<u8> {
    let write = wire::WriteIn { offset, size, flags, ..wire::WriteIn::default() };
    let mut bytes = message(opcode::WRITE, write.as_bytes());
    let total = u32::try_from(bytes.len()).expect("short") + size;
    bytes[..4].copy_from_slice(&total.to_ne_bytes());
    bytes
}

fn fallocate(offset: u64, length: u64, mode: u32) -> Vec<u8> {
    let wire = wire::FallocateIn { offset, length, mode, ..wire::FallocateIn::default() };
    message(opcode::FALLOCATE, wire.as_bytes())
}

#[test]
fn the_first_request_agrees_on_what_both_can_do() {
    let mut file = file(false);
    let flags = wire::init::BIG_WRITES | wire::init::MAX_PAGES | wire::init::INIT_EXT;
    let low = u32::try_from(flags).expect("the lower half") | 1 << 31;
    let high = u32::try_from(wire::init::OVER_IO_URING >> 32).expect("half") | 1;
    let init = wire::InitIn { major: 7, minor: 45, max_readahead: 1 << 17, flags: low };
    let mut bytes = init.as_bytes().to_vec();
    bytes.extend(high.to_ne_bytes());
    bytes.extend([0; 44]);
    let step = decide(&mut file, &message(opcode::INIT, &bytes));
    let Step::Begin(reply, agreed) = step else { panic!("{step:?}") };
    assert_eq!(agreed, SessionParameters { over_rings: true, request_bytes_max: 1 << 20 });
    let out = wire::InitOut::read_from_bytes(reply.body()).expect("of its length");
    // Features that the kernel did not offer, or that the server does not want, stay off.
    assert_eq!(u64::from(out.flags), flags);
    assert_eq!(u64::from(out.flags2) << 32, wire::init::OVER_IO_URING);
    assert_eq!((out.major, out.minor, out.max_pages), (7, 45, 256));
    assert_eq!((out.max_write, out.max_readahead), (1 << 20, 1 << 17));
}

#[test]
fn a_kernel_of_old_is_spoken_to_or_refused() {
    let asked = |major, minor| {
        let init = wire::InitIn { major, minor, max_readahead: 0, flags: !(1 << 30) };
        decide(&mut file(false), &message(opcode::INIT, init.as_bytes()))
    };
    let Step::Begin(_, agreed) = asked(7, 31) else { panic!("refused") };
    assert!(!agreed.over_rings, "it has no upper half");
    assert_eq!(asked(7, 30), failed(Errno::Protocol));
    assert_eq!(asked(6, 99), failed(Errno::Protocol));
    let Step::Begin(reply, _) = asked(8, 0) else { panic!("refused") };
    let out = wire::InitOut::read_from_bytes(reply.body()).expect("of its length");
    assert_eq!(out.major, 7, "it asks again in our words");
}

#[test]
fn what_stat_tells_is_right() {
    let bytes = message(opcode::GETATTR, &[0; 16]);
    let wire::AttrOut { attr, .. } = body(decide(&mut file(false), &bytes));
    assert_eq!((attr.size, attr.blocks, attr.mode), (SIZE_BYTES, 19_532, 0o100_600));
    assert_eq!((attr.uid, attr.gid, attr.nlink), (1000, 100, 1));
    assert_eq!((attr.mtime, attr.mtimensec), (1_000, 5));
    let wire::AttrOut { attr, .. } = body(decide(&mut file(true), &bytes));
    assert_eq!(attr.mode, 0o100_400);
}

#[test]
fn a_write_changes_the_time_and_a_read_does_not() {
    let mut file = file(false);
    let later = now() + Duration::from_secs(5);
    let read = wire::ReadIn { size: 512, ..wire::ReadIn::default() };
    decide_at(&mut file, &message(opcode::READ, read.as_bytes()), 0, later);
    let stat = message(opcode::GETATTR, &[0; 16]);
    assert_eq!(body::<wire::AttrOut>(decide(&mut file, &stat)).attr.mtime, 1_000);
    decide_at(&mut file, &write(0, 512, 0), 512, later);
    let attr = body::<wire::AttrOut>(decide(&mut file, &stat)).attr;
    assert_eq!((attr.mtime, attr.ctime, attr.atime), (1_005, 1_005, 1_000));
}

#[test]
fn times_are_set_and_nothing_else() {
    let set = |wire: wire::SetattrIn| {
        decide(&mut file(false), &message(opcode::SETATTR, wire.as_bytes()))
    };
    let before_1970 = (-3_i64).cast_unsigned();
    let times = wire::SetattrIn {
        valid: wire::set::ATIME | wire::set::MTIME,
        atime: before_1970,
        atimensec: 250,
        mtime: 77,
        ..wire::SetattrIn::default()
    };
    let attr = body::<wire::AttrOut>(set(times)).attr;
    assert_eq!((attr.atime.cast_signed(), attr.atimensec, attr.mtime), (-3, 250, 77));
    let size = |size| wire::SetattrIn { valid: wire::set::SIZE, size, ..Default::default() };
    assert_eq!(set(size(0)), failed(Errno::Perm));
    assert_eq!(set(size(SIZE_BYTES + 1)), failed(Errno::Perm));
    assert_eq!(body::<wire::AttrOut>(set(size(SIZE_BYTES))).attr.size, SIZE_BYTES);
    let mode = wire::SetattrIn { valid: wire::set::MODE, mode: 0o777, ..Default::default() };
    assert_eq!(set(mode), failed(Errno::Perm));
}

#[test]
fn reads_end_where_the_file_does() {
    let read = |offset, size| {
        let read = wire::ReadIn { offset, size, ..wire::ReadIn::default() };
        decide(&mut file(false), &message(opcode::READ, read.as_bytes()))
    };
    assert_eq!(read(1, 512), Step::Read { offset: 1, length: 512 });
    assert_eq!(read(SIZE_BYTES - 3, 512), Step::Read { offset: SIZE_BYTES - 3, length: 3 });
    for offset in [SIZE_BYTES, SIZE_BYTES + 1, u64::MAX] {
        assert_eq!(read(offset, 512), Step::Answer(Reply::read(UNIQUE, 0)));
    }
    assert_eq!(read(0, (1 << 20) + 1), failed(Errno::Invalid));
}

#[test]
fn writes_are_durable_where_the_file_was_opened_so() {
    let durable = |flags| match decide_at(&mut file(false), &write(0, 4096, flags), 4096, now()) {
        Step::Write { offset: 0, length: 4096, durable } => durable,
        step => panic!("{step:?}"),
    };
    assert!(!durable(0o40_002), "O_RDWR, O_DIRECT");
    assert!(durable(wire::O_DSYNC));
    assert!(durable(wire::O_DSYNC | wire::O_SYNC_ONLY));
}

#[test]
fn writes_stay_within_the_file_and_what_came_along() {
    let asked = |bytes: &[u8], payload| decide_at(&mut file(false), bytes, payload, now());
    assert_eq!(asked(&write(SIZE_BYTES - 511, 512, 0), 512), failed(Errno::NoSpace));
    assert_eq!(asked(&write(u64::MAX, 512, 0), 512), failed(Errno::NoSpace));
    let bytes = write(0, 512, 0);
    let head = Head::parse(&bytes, bytes.len() + 512).expect("a head");
    let claim = Request::parse(&head, &bytes[40..], 511).expect("arguments");
    let step = file(false).decide(&head, &claim, (WISHES, now()));
    assert_eq!(step, failed(Errno::Invalid), "it says 512 and brings 511");
    let mut frozen = file(true);
    assert_eq!(decide_at(&mut frozen, &write(0, 512, 0), 512, now()), failed(Errno::ReadOnly));
}

#[test]
fn ranges_are_zeroed_as_fallocate_says() {
    let asked = |offset, length, mode| decide(&mut file(false), &fallocate(offset, length, mode));
    let zero = |offset, length, may_punch| Step::Zero { offset, length, may_punch };
    let done = Step::Answer(Reply::done(UNIQUE));
    assert_eq!(asked(5, 10, 0x3), zero(5, 10, true));
    assert_eq!(asked(5, 10, 0x10), zero(5, 10, false));
    assert_eq!(asked(5, 10, 0x11), zero(5, 10, false));
    assert_eq!(asked(0, SIZE_BYTES * 2, 0x3), zero(0, SIZE_BYTES, true), "cut at the end");
    assert_eq!(asked(SIZE_BYTES, 1, 0x3), done);
    assert_eq!(asked(SIZE_BYTES - 1, 2, 0x10), failed(Errno::FileTooBig), "it would grow");
    assert_eq!(asked(0, SIZE_BYTES, 0), done, "there is room for all of it");
    assert_eq!(asked(0, SIZE_BYTES + 1, 0), failed(Errno::FileTooBig));
    assert_eq!(asked(0, SIZE_BYTES + 1, 1), done);
    assert_eq!(asked(u64::MAX, 2, 0x3), failed(Errno::FileTooBig));
    assert_eq!(asked(0, 1, 0x8), failed(Errno::NotSupported), "collapsing");
    assert_eq!(decide(&mut file(true), &fallocate(0, 1, 0x3)), failed(Errno::ReadOnly));
}

#[test]
fn all_of_it_is_data() {
    let seek = |offset, whence| {
        let seek = wire::LseekIn { offset, whence, ..wire::LseekIn::default() };
        decide(&mut file(false), &message(opcode::LSEEK, seek.as_bytes()))
    };
    assert_eq!(body::<wire::LseekOut>(seek(9, 3)).offset, 9);
    assert_eq!(body::<wire::LseekOut>(seek(9, 4)).offset, SIZE_BYTES);
    assert_eq!(seek(SIZE_BYTES, 3), failed(Errno::Nxio));
    assert_eq!(seek(0, 5), failed(Errno::NotImplemented));
}

#[test]
fn what_has_no_answer_gets_none() {
    for kind in [opcode::FORGET, opcode::BATCH_FORGET, opcode::INTERRUPT] {
        assert_eq!(decide(&mut file(false), &message(kind, &[0; 16])), Step::Silent);
    }
    assert_eq!(decide(&mut file(false), &message(1, b"name\0")), failed(Errno::NotImplemented));
    let mut bytes = header(opcode::GETATTR, 2, 16).as_bytes().to_vec();
    bytes.extend([0; 16]);
    assert_eq!(decide(&mut file(false), &bytes), failed(Errno::Stale));
}

#[test]
fn a_message_that_lies_about_itself_is_none() {
    let bytes = message(opcode::GETATTR, &[0; 16]);
    assert_eq!(Head::parse(&bytes, 57), Err(ParseError::Length { said: 56, bytes: 57 }));
    assert_eq!(Head::parse(&bytes[..39], 39), Err(ParseError::Short { bytes: 39 }));
    let head = Head::parse(&bytes, 56).expect("a head");
    let read = Head { opcode: opcode::READ, ..head };
    assert_eq!(Request::parse(&read, &[0; 39], 0), Err(ParseError::Short { bytes: 39 }));
}

#[test]
fn an_answer_says_its_length() {
    let said = |reply: &Reply| u32::from_ne_bytes(reply.bytes()[..4].try_into().expect("four"));
    let attributes = wire::AttrOut::default();
    for (reply, length, payload) in [
        (Reply::done(1), 16, 0),
        (Reply::failed(1, Errno::Io), 16, 0),
        (Reply::with(1, &attributes), 120, 0),
        (Reply::written(1, 9), 24, 0),
        (Reply::read(1, 4096), 16, 4096),
    ] {
        assert_eq!(
            (reply.bytes().len(), said(&reply)),
            (length, u32::try_from(length).expect("") + payload)
        );
        assert_eq!([reply.head(), reply.body()].concat(), reply.bytes());
    }
    let failed = Reply::failed(1, Errno::NoSpace);
    assert_eq!(failed.bytes()[4..8], (-28_i32).to_ne_bytes());
}

/// Checks the invariants of every step.
fn check(step: &Step, payload_bytes: usize) {
    match *step {
        Step::Read { offset, length } => {
            assert!(length > 0 && length <= 1 << 20 && offset + u64::from(length) <= SIZE_BYTES);
        }
        Step::Write { offset, length, .. } => {
            assert!(length as usize == payload_bytes && offset + u64::from(length) <= SIZE_BYTES);
        }
        Step::Zero { offset, length, .. } => {
            assert!(length > 0 && offset + length <= SIZE_BYTES);
        }
        Step::Answer(reply) | Step::Begin(reply, _) => {
            let said = u32::from_ne_bytes(reply.bytes()[..4].try_into().expect("four"));
            assert_eq!(said as usize, reply.bytes().len());
        }
        Step::Flush | Step::Silent => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_message_panics(bytes in prop::collection::vec(any::<u8>(), 0..300), total in 0_usize..400) {
        if let Ok(head) = Head::parse(&bytes, total)
            && let Ok(request) = Request::parse(&head, &bytes[40..], total.saturating_sub(80))
        {
            check(&file(false).decide(&head, &request, (WISHES, now())), total.saturating_sub(80));
        }
    }

    #[test]
    fn no_message_leaves_the_file(
        opcode in 0_u32..64,
        body in prop::collection::vec(prop_oneof![Just(0_u8), Just(0xff), any::<u8>()], 0..128),
        near_end in any::<bool>(),
        read_only in any::<bool>(),
        payload in 0_usize..5000,
    ) {
        let mut body = body;
        if near_end && body.len() >= 24 {
            body[8..16].copy_from_slice(&(SIZE_BYTES - 100).to_ne_bytes());
            body[16..20].copy_from_slice(&u32::try_from(payload).expect("short").to_ne_bytes());
        }
        let head = Head { unique: UNIQUE, opcode, node: wire::NODE_ROOT };
        if let Ok(request) = Request::parse(&head, &body, payload) {
            let step = file(read_only).decide(&head, &request, (WISHES, now()));
            check(&step, payload);
            let changes = matches!(step, Step::Write { .. } | Step::Zero { .. } | Step::Flush);
            prop_assert!(!(read_only && changes));
        }
    }
}
