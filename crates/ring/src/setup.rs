//! Making a ring: with everything that helps, or with what this kernel has.

use std::io;

use io_uring::IoUring;

use crate::error::RingError;

/// What a kernel may not know, most wanted first. Each try does without one thing more.
#[derive(Clone, Copy, Debug)]
struct Wishes {
    /// Completions are made ready when this thread asks for them, and at no other moment (6.1).
    defer: bool,
    /// Only one thread submits (6.0).
    single_issuer: bool,
    /// Completions never interrupt what this thread does (5.19).
    cooperative: bool,
    /// One operation that is refused does not hold up those after it (5.18).
    submit_all: bool,
}

const TRIES: [Wishes; 5] = [
    Wishes { defer: true, single_issuer: true, cooperative: true, submit_all: true },
    Wishes { defer: false, single_issuer: true, cooperative: true, submit_all: true },
    Wishes { defer: false, single_issuer: false, cooperative: true, submit_all: true },
    Wishes { defer: false, single_issuer: false, cooperative: false, submit_all: true },
    Wishes { defer: false, single_issuer: false, cooperative: false, submit_all: false },
];

/// Completions that the ring has room for, for each entry; more are kept by the kernel.
const COMPLETIONS_PER_ENTRY: u32 = 4;

/// Threads of the kernel's that may be kept on behalf of one worker: what it cannot begin at once is theirs. It starts one
/// more only when the others are kept. By itself it would stop at four for each processor, and a few members that hang
/// would take them all, with what the other members need one for in line behind; so many are more than two members may have
/// out (`braid_runtime`'s `members/ring_admission.rs`).
const KERNEL_THREADS_MAX: u32 = 1024;

/// A ring for the thread that calls this, and for no other.
pub(crate) fn ring(entries: u32) -> Result<IoUring, RingError> {
    let mut refused = io::Error::from_raw_os_error(libc::EINVAL);
    for wishes in TRIES {
        match build(wishes, entries) {
            Ok(ring) => return check(ring),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refused = error,
            Err(error) => return Err(RingError::of_setup(error)),
        }
    }
    Err(RingError::of_setup(refused))
}

fn build(wishes: Wishes, entries: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.dontfork().setup_clamp().setup_cqsize(entries * COMPLETIONS_PER_ENTRY);
    if wishes.defer {
        builder.setup_defer_taskrun().setup_taskrun_flag();
    } else if wishes.cooperative {
        builder.setup_coop_taskrun().setup_taskrun_flag();
    }
    if wishes.single_issuer {
        builder.setup_single_issuer();
    }
    if wishes.submit_all {
        builder.setup_submit_all();
    }
    builder.build(entries)
}

/// Refuses a ring that lacks what there is no way around.
fn check(ring: IoUring) -> Result<IoUring, RingError> {
    let parameters = ring.params();
    let needs = [
        (parameters.is_feature_nodrop(), "completions that are never dropped"),
        (parameters.is_feature_submit_stable(), "arguments that are taken at submission"),
        (parameters.is_feature_ext_arg(), "waiting with a timeout"),
        // Came with the same kernel as polls that fire more than once, which has no flag of its own.
        (parameters.is_feature_resource_tagging(), "polls that fire more than once"),
    ];
    if let Some((_, lacks)) = needs.into_iter().find(|(has, _)| !has) {
        return Err(RingError::TooOld { lacks });
    }
    // Unchanged for what is no file. A kernel that knows no such limit (before 5.15) keeps to its own.
    let _ = ring.submitter().register_iowq_max_workers(&mut [KERNEL_THREADS_MAX, 0]);
    Ok(ring)
}
