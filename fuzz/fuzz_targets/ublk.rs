//! A ublk kernel's descriptions of requests, or an existing device. Input: 1 byte that chooses
//! between them, 8 bytes of the device's size in sectors. Then descriptions follow as they lie in
//! shared memory, each behind 4 bytes of queue and tag; or the description of a device.
//!
//! Invariants: no panic; each range read, written, discarded or zeroed lies within the device and
//! is not empty. No payload exceeds the agreed length, and payloads of two entries do not overlap.
//! An answer is an error or the payload's length. Only a device that braid can serve is taken over.
#![no_main]

use braid_ublk_proto::limits::{DEPTH, QUEUES_MAX, REQUEST_BYTES_MAX};
use braid_ublk_proto::wire::{Description, DeviceInfo, Parameters};
use braid_ublk_proto::{
    Errno, Judgement, Request, Shape, answer, fits, judge, parameters, payload_place,
};
use libfuzzer_sys::fuzz_target;
use zerocopy::FromBytes;

/// The served array; the device in the seeds was made for it.
const ARRAY: Shape = Shape {
    size_bytes: 1 << 29,
    is_read_only: false,
    logical_block_bytes: 512,
    unit_bytes: 1 << 16,
};

/// Bytes of the queue and the tag before each description.
const ENTRY_BYTES: usize = 4;

fuzz_target!(|input: &[u8]| {
    let Some((&flags, rest)) = input.split_first() else { return };
    match flags & 1 {
        0 => requests(rest),
        _ => device(rest, flags & 2 != 0),
    }
});

/// Parses the entries of a queue, one after the other.
fn requests(rest: &[u8]) {
    let Some((sectors, mut rest)) = rest.split_first_chunk::<8>() else { return };
    let size_bytes = (u64::from_le_bytes(*sectors) & (u64::MAX >> 9)) << 9;
    let mut before = None;
    while let Some((entry, more)) = rest.split_first_chunk::<ENTRY_BYTES>() {
        let Ok((told, more)) = Description::read_from_prefix(more) else { return };
        rest = more;
        let [queue, _, tag @ ..] = *entry;
        let entry = (u16::from(queue) % QUEUES_MAX, u16::from_le_bytes(tag) % DEPTH);
        let place = payload_place(entry.0, entry.1);
        if let Some((other, there)) = before.replace((entry, place))
            && other != entry
        {
            assert!(place.abs_diff(there) >= u64::from(REQUEST_BYTES_MAX), "{other:?} {entry:?}");
        }
        request(&told, size_bytes);
    }
}

fn request(told: &Description, size_bytes: u64) {
    let Ok(request) = Request::parse(told, size_bytes) else {
        assert_eq!(answer(Err(Errno::Invalid)), -22);
        return;
    };
    let (offset, length) = match request {
        Request::Read { offset, length } | Request::Write { offset, length, .. } => {
            assert!(length <= REQUEST_BYTES_MAX, "{request:?}");
            (offset, u64::from(length))
        }
        Request::Discard { offset, length, .. } | Request::Zero { offset, length, .. } => {
            (offset, length)
        }
        Request::Flush => return,
    };
    assert!(length > 0 && length.is_multiple_of(512), "{request:?}");
    let end = offset.checked_add(length).expect("an end");
    assert!(end <= size_bytes, "{request:?} of {size_bytes}");
    let said = answer(Ok(request.payload_bytes()));
    assert!(u32::try_from(said) == Ok(request.payload_bytes()), "{said}");
}

/// Judges a device that a server has left, with its disk's parameters.
fn device(rest: &[u8], server_lives: bool) {
    let Ok((found, rest)) = DeviceInfo::read_from_prefix(rest) else { return };
    let judged = judge(&found, 7, server_lives);
    if matches!(judged, Judgement::Recover | Judgement::Remake) {
        assert!(found.ublksrv_flags == 7, "another array's");
        assert!((1..=QUEUES_MAX).contains(&found.nr_hw_queues));
        assert!((1..=DEPTH).contains(&found.queue_depth));
    }
    let Ok((told, _)) = Parameters::read_from_prefix(rest) else { return };
    let wanted = parameters(&ARRAY);
    if fits(&told, &wanted, false) {
        assert_eq!(told.dev_sectors, ARRAY.size_bytes >> 9);
    }
    if fits(&told, &wanted, true) {
        assert_eq!((told.max_sectors, told.attrs), (wanted.max_sectors, wanted.attrs));
        assert_eq!(told.logical_bs_shift, 9);
    }
}
