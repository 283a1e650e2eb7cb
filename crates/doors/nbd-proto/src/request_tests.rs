//! Tests of request admission: every rule, at its edge.

use super::*;
use crate::export::BlockSizes;
use crate::limits::REQUEST_BYTES_MAX;
use proptest::prelude::*;

fn export(size_bytes: u64, read_only: bool, block_sizes: BlockSizes) -> ExportDescription {
    let (name, is_withdrawn) = ("a".into(), false);
    let (description, multi_conn) = (String::new(), true);
    ExportDescription {
        name,
        is_withdrawn,
        description,
        size_bytes,
        read_only,
        multi_conn,
        block_sizes,
    }
}

fn header(kind: u16, flags: u16, offset: u64, length: u64) -> RequestHeader {
    RequestHeader { flags, kind, cookie: 7, offset, length }
}

fn error(header: RequestHeader, export: &ExportDescription) -> Option<ErrorCode> {
    admit(&header, export, Style::Structured, true).err().map(|refusal| refusal.error)
}

const KINDS: [u16; 7] = [
    wire::CMD_READ,
    wire::CMD_WRITE,
    wire::CMD_FLUSH,
    wire::CMD_TRIM,
    wire::CMD_CACHE,
    wire::CMD_WRITE_ZEROES,
    wire::CMD_BLOCK_STATUS,
];

#[test]
fn each_command_takes_exactly_its_flags() {
    let export = export(1 << 20, false, BlockSizes::BYTE_GRANULAR);
    for kind in KINDS {
        let length = if kind == wire::CMD_FLUSH { 0 } else { 512 };
        for bit in 0..16 {
            let flag = 1 << bit;
            let legal = flag == wire::CMD_FLAG_FUA
                || (kind == wire::CMD_READ && flag == wire::CMD_FLAG_DF)
                || (kind == wire::CMD_BLOCK_STATUS && flag == wire::CMD_FLAG_REQ_ONE)
                || (kind == wire::CMD_WRITE_ZEROES
                    && [wire::CMD_FLAG_NO_HOLE, wire::CMD_FLAG_FAST_ZERO].contains(&flag));
            let want = (!legal).then_some(ErrorCode::Invalid);
            assert_eq!(error(header(kind, flag, 0, length), &export), want, "{kind} bit {bit}");
        }
    }
    for kind in [2, 8, 9, 100, u16::MAX] {
        assert_eq!(error(header(kind, 0, 0, 512), &export), Some(ErrorCode::Invalid));
    }
}

#[test]
fn features_that_were_not_negotiated_are_refused() {
    let export = export(1 << 20, false, BlockSizes::BYTE_GRANULAR);
    let read = header(wire::CMD_READ, wire::CMD_FLAG_DF, 0, 512);
    assert!(admit(&read, &export, Style::Simple, false).is_err());
    assert!(admit(&read, &export, Style::Structured, false).is_ok());
    let status = header(wire::CMD_BLOCK_STATUS, 0, 0, 512);
    assert!(admit(&status, &export, Style::Structured, false).is_err());
    assert!(admit(&status, &export, Style::Structured, true).is_ok());
}

#[test]
fn a_read_only_export_refuses_exactly_the_writes() {
    let export = export(1 << 20, true, BlockSizes::BYTE_GRANULAR);
    for kind in KINDS {
        let length = if kind == wire::CMD_FLUSH { 0 } else { 512 };
        let writes = [wire::CMD_WRITE, wire::CMD_TRIM, wire::CMD_WRITE_ZEROES].contains(&kind);
        let want = writes.then_some(ErrorCode::Permission);
        assert_eq!(error(header(kind, 0, 0, length), &export), want, "command {kind}");
    }
}

#[test]
fn ranges_end_where_the_export_ends() {
    let size = 10_000_u64;
    let export = export(size, false, BlockSizes::BYTE_GRANULAR);
    for kind in KINDS {
        if kind == wire::CMD_FLUSH {
            continue;
        }
        let over = if [wire::CMD_WRITE, wire::CMD_WRITE_ZEROES].contains(&kind) {
            ErrorCode::NoSpace
        } else {
            ErrorCode::Invalid
        };
        assert_eq!(error(header(kind, 0, size - 1, 1), &export), None);
        assert_eq!(error(header(kind, 0, size, 1), &export), Some(over));
        assert_eq!(error(header(kind, 0, size - 1, 2), &export), Some(over));
        assert_eq!(error(header(kind, 0, u64::MAX, 1), &export), Some(over));
        assert_eq!(error(header(kind, 0, u64::MAX - 1, 2), &export), Some(over));
        assert_eq!(error(header(kind, 0, 0, 0), &export), Some(ErrorCode::Invalid));
    }
}

#[test]
fn block_sizes_are_kept() {
    let sizes = BlockSizes::new(512, 4096, 1 << 20).unwrap();
    let export = export(1 << 40, false, sizes);
    for kind in [wire::CMD_READ, wire::CMD_WRITE, wire::CMD_TRIM, wire::CMD_WRITE_ZEROES] {
        assert_eq!(error(header(kind, 0, 512, 512), &export), None);
        assert_eq!(error(header(kind, 0, 511, 512), &export), Some(ErrorCode::Invalid));
        assert_eq!(error(header(kind, 0, 512, 513), &export), Some(ErrorCode::Invalid));
        let limited = [wire::CMD_READ, wire::CMD_WRITE].contains(&kind);
        assert_eq!(error(header(kind, 0, 0, 1 << 20), &export), None);
        let want = limited.then_some(ErrorCode::Invalid);
        assert_eq!(error(header(kind, 0, 0, (1 << 20) + 512), &export), want);
        assert_eq!(error(header(kind, 0, 0, 0xffff_fe00), &export), want);
    }
}

#[test]
fn extended_headers_say_which_length_is_a_payload() {
    let export = export(1 << 50, false, BlockSizes::BYTE_GRANULAR);
    let extended = |kind, flags, length| {
        let header = header(kind, flags, 0, length);
        let error = admit(&header, &export, Style::Extended, true).err();
        (error.map(|refusal| refusal.error), header.payload_bytes(Style::Extended))
    };
    let refused = Some(ErrorCode::Invalid);
    for kind in KINDS {
        let length = if kind == wire::CMD_FLUSH { 0 } else { 512 };
        let has_payload = kind == wire::CMD_WRITE;
        let want = if has_payload { refused } else { None };
        assert_eq!(extended(kind, 0, length), (want, 0), "{kind} without");
        let want = if has_payload { None } else { refused };
        assert_eq!(extended(kind, wire::CMD_FLAG_PAYLOAD_LEN, 512), (want, 512), "{kind} with");
        let is_short = [wire::CMD_READ, wire::CMD_WRITE, wire::CMD_FLUSH].contains(&kind);
        let want = if is_short { refused } else { None };
        assert_eq!(extended(kind, 0, 1 << 50), (want, 0), "{kind} of everything");
    }
    assert_eq!(extended(99, wire::CMD_FLAG_PAYLOAD_LEN, 7), (refused, 7), "a stranger's payload");
}

#[test]
fn flush_has_no_range() {
    let export = export(1 << 20, false, BlockSizes::BYTE_GRANULAR);
    assert_eq!(error(header(wire::CMD_FLUSH, 0, 0, 0), &export), None);
    assert_eq!(error(header(wire::CMD_FLUSH, 0, 1, 0), &export), Some(ErrorCode::Invalid));
    assert_eq!(error(header(wire::CMD_FLUSH, 0, 0, 1), &export), Some(ErrorCode::Invalid));
}

proptest! {
    #[test]
    fn no_admitted_range_leaves_the_export(
        kind in 0_u16..10, flags in 0_u16..64, size in 0_u64..1 << 33,
        offset in prop_oneof![0_u64..1 << 33, Just(u64::MAX), any::<u64>()],
        length in prop_oneof![0_u64..1 << 16, 0_u64..1 << 34, Just(u64::MAX), any::<u64>()],
        shift in 0_u32..13, is_extended in any::<bool>(),
    ) {
        let style = if is_extended { Style::Extended } else { Style::Structured };
        let length = length.min(style.length_max());
        let minimum = 1 << shift;
        let sizes = BlockSizes::new(minimum, 4096.max(minimum), REQUEST_BYTES_MAX).unwrap();
        let export = export(size, false, sizes);
        let header = header(kind, flags, offset, length);
        let bytes =
            if is_extended { header.encode_extended().to_vec() } else { header.encode().to_vec() };
        prop_assert_eq!(RequestHeader::decode(&bytes, style), Some(header));
        if let Ok(command) = admit(&header, &export, style, true)
            && command != Command::Flush
        {
            prop_assert!(u128::from(offset) + u128::from(length) <= u128::from(size));
            prop_assert!(length > 0 && length.is_multiple_of(minimum.into()));
            prop_assert!(command.payload_bytes() <= REQUEST_BYTES_MAX);
            prop_assert_eq!(u64::from(command.payload_bytes()), header.payload_bytes(style));
            let again = RequestHeader::decode(&command.bytes(7, style), style).unwrap();
            prop_assert_eq!(admit(&again, &export, style, true), Ok(command));
        }
    }
}
