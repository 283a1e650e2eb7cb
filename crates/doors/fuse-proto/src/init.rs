//! INIT, the first request: both ends agree on their parameters.
//!
//! The kernel lists its features, the answer selects some of them, and only the selected features
//! are in effect. The server chooses the longest request, up to the kernel's limit of pages.

use crate::limits::{
    BACKGROUND_MAX, CONGESTED_AT, MINOR_MIN, PAGE_BYTES, REQUEST_BYTES_MAX, REQUEST_PAGES_MAX,
};
use crate::wire::{self, InitOut, init};

/// The kernel's parameters in INIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The major version of the kernel's protocol.
    pub major: u32,
    /// The minor version of the kernel's protocol.
    pub minor: u32,
    /// How far the kernel reads ahead, in bytes.
    pub readahead_bytes: u32,
    /// The kernel's features, as bits of [`crate::wire::init`].
    pub flags: u64,
}

/// The server's wishes for the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// Whether requests should come through io_uring.
    pub over_rings: bool,
    /// Length of the longest request in bytes: a multiple of a page, at most [`REQUEST_BYTES_MAX`].
    pub request_bytes_max: u32,
}

/// The agreed parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionParameters {
    /// Whether requests come through io_uring once all queues are registered.
    pub over_rings: bool,
    /// Length of the longest READ and WRITE in bytes.
    pub request_bytes_max: u32,
}

/// Features that the server always selects if the kernel has them.
const WANTED: u64 = init::ASYNC_READ
    | init::BIG_WRITES
    | init::ASYNC_DIO
    | init::PARALLEL_DIROPS
    | init::HANDLE_KILLPRIV
    | init::MAX_PAGES
    | init::INIT_EXT
    | init::DIRECT_IO_ALLOW_MMAP;

impl Kernel {
    /// Whether the kernel's major version is supported. A kernel with a newer major version gets
    /// this crate's version as the answer, and sends INIT again.
    #[must_use]
    pub fn is_spoken(&self) -> bool {
        self.major > wire::MAJOR || (self.major == wire::MAJOR && self.minor >= MINOR_MIN)
    }

    /// The agreed parameters, and the answer to INIT.
    #[must_use]
    pub fn agree(&self, wishes: Wishes) -> (SessionParameters, InitOut) {
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
        (SessionParameters { over_rings, request_bytes_max }, out)
    }
}
