//! What both ends agree on: INIT, the first request.
//!
//! The kernel says what it can do, we answer what of it we want, and only that holds. The longest request is ours to
//! choose, up to what the kernel has pages for.

use crate::limits::{
    BACKGROUND_MAX, CONGESTED_AT, MINOR_MIN, PAGE_BYTES, REQUEST_BYTES_MAX, REQUEST_PAGES_MAX,
};
use crate::wire::{self, InitOut, init};

/// What INIT says of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The major version of its protocol.
    pub major: u32,
    /// The minor version.
    pub minor: u32,
    /// How far it reads ahead, in bytes.
    pub readahead_bytes: u32,
    /// What it can do: [`crate::wire::init`].
    pub flags: u64,
}

/// What we would like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// Requests come by io_uring.
    pub over_rings: bool,
    /// No request is longer; a multiple of a page, at most [`REQUEST_BYTES_MAX`].
    pub request_bytes_max: u32,
}

/// What holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// Requests come by io_uring once all queues are there.
    pub over_rings: bool,
    /// No READ and no WRITE is longer.
    pub request_bytes_max: u32,
}

/// What is always wanted where it is there.
const WANTED: u64 = init::ASYNC_READ
    | init::BIG_WRITES
    | init::ASYNC_DIO
    | init::PARALLEL_DIROPS
    | init::HANDLE_KILLPRIV
    | init::MAX_PAGES
    | init::INIT_EXT
    | init::DIRECT_IO_ALLOW_MMAP;

impl Kernel {
    /// Whether its protocol is one that is spoken here. A newer major is answered with ours, and then asked again.
    #[must_use]
    pub fn is_spoken(&self) -> bool {
        self.major > wire::MAJOR || (self.major == wire::MAJOR && self.minor >= MINOR_MIN)
    }

    /// What is agreed on, and our answer.
    #[must_use]
    pub fn agree(&self, wishes: Wishes) -> (Agreed, InitOut) {
        let over_rings = wishes.over_rings
            && self.flags & init::INIT_EXT != 0
            && self.flags & init::OVER_IO_URING != 0;
        let wanted = WANTED | if over_rings { init::OVER_IO_URING } else { 0 };
        let flags = self.flags & wanted;
        let wished = wishes.request_bytes_max.clamp(PAGE_BYTES, REQUEST_BYTES_MAX);
        let pages = u16::try_from(wished.div_euclid(PAGE_BYTES)).unwrap_or(REQUEST_PAGES_MAX);
        let request_bytes_max = u32::from(pages).saturating_mul(PAGE_BYTES);
        let low = u32::try_from(flags & u64::from(u32::MAX)).expect("masked");
        let high = u32::try_from(flags >> 32).expect("the upper half");
        let out = InitOut {
            major: wire::MAJOR,
            minor: wire::MINOR.min(if self.major == wire::MAJOR {
                self.minor
            } else {
                wire::MINOR
            }),
            max_readahead: self.readahead_bytes,
            flags: low,
            max_background: BACKGROUND_MAX,
            congestion_threshold: CONGESTED_AT,
            max_write: request_bytes_max,
            time_gran: 1,
            max_pages: pages,
            flags2: high,
            ..InitOut::default()
        };
        (Agreed { over_rings, request_bytes_max }, out)
    }
}
