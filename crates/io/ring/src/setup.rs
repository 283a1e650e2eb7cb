//! Makes a ring with all features that this kernel has, restricted to the operations that braid
//! uses.
//!
//! Filters of system calls do not see a ring's operations. So from the first operation on, a ring
//! refuses all operations outside its list. It also refuses all registrations except those of files
//! and buffers. An attacker with the ring cannot open, connect or run anything through it.
//!
//! Invariants
//! - an operation that is not on the list is refused
//!   `[check: a_ring_does_what_braid_does_and_nothing_else]`.

use std::io;

use io_uring::register::Restriction;
use io_uring::{IoUring, opcode, squeue};

use crate::error::RingError;

/// Features that a kernel may lack, the most important first. Each further attempt to make a ring
/// leaves out one more feature.
#[derive(Clone, Copy, Debug)]
struct RingFeatures {
    /// Completions become ready only when this thread asks for them (6.1).
    defer: bool,
    /// Only one thread submits (6.0).
    single_issuer: bool,
    /// Completions never interrupt this thread (5.19).
    cooperative: bool,
    /// A refused operation does not hold up later operations (5.18).
    submit_all: bool,
}

const TRIES: [RingFeatures; 5] = [
    RingFeatures { defer: true, single_issuer: true, cooperative: true, submit_all: true },
    RingFeatures { defer: false, single_issuer: true, cooperative: true, submit_all: true },
    RingFeatures { defer: false, single_issuer: false, cooperative: true, submit_all: true },
    RingFeatures { defer: false, single_issuer: false, cooperative: false, submit_all: true },
    RingFeatures { defer: false, single_issuer: false, cooperative: false, submit_all: false },
];

/// Size of the completion queue, in completions for each submission entry. The kernel keeps
/// completions that exceed it.
const COMPLETIONS_PER_ENTRY: u32 = 4;

/// Maximum number of kernel threads for one worker's operations that block. The kernel starts one
/// more only if the others are blocked. Its default is four for each processor: a few members that
/// hang would take them all, and operations of other members would wait. Two members have fewer
/// operations in flight than this limit (`braid_runtime`'s `members/ring_admission.rs`).
const KERNEL_THREADS_MAX: u32 = 1024;

/// The allowed operations: those of [`crate::Operation`], and those that wake and cancel.
const OPERATIONS: [u8; 16] = [
    opcode::Nop::CODE,
    opcode::Readv::CODE,
    opcode::Writev::CODE,
    opcode::Fsync::CODE,
    opcode::ReadFixed::CODE,
    opcode::WriteFixed::CODE,
    opcode::PollAdd::CODE,
    opcode::Read::CODE,
    opcode::Write::CODE,
    opcode::Fallocate::CODE,
    opcode::Accept::CODE,
    opcode::AsyncCancel::CODE,
    opcode::Send::CODE,
    opcode::Recv::CODE,
    opcode::SendMsg::CODE,
    opcode::RecvMsg::CODE,
];

/// Allowed registrations, by their numbers in linux/io_uring.h: files and buffers.
const REGISTERED: [u8; 7] = [
    2,  // IORING_REGISTER_FILES
    3,  // IORING_UNREGISTER_FILES
    1,  // IORING_UNREGISTER_BUFFERS
    6,  // IORING_REGISTER_FILES_UPDATE
    13, // IORING_REGISTER_FILES2
    15, // IORING_REGISTER_BUFFERS2
    16, // IORING_REGISTER_BUFFERS_UPDATE
];

/// A ring that only the calling thread may use.
pub(crate) fn ring(entries: u32) -> Result<IoUring, RingError> {
    let mut refused = io::Error::from_raw_os_error(libc::EINVAL);
    for features in TRIES {
        match build(features, entries) {
            Ok(ring) => return check(ring),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refused = error,
            Err(error) => return Err(RingError::of_setup(error)),
        }
    }
    Err(RingError::of_setup(refused))
}

fn build(features: RingFeatures, entries: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder
        .dontfork()
        .setup_r_disabled()
        .setup_clamp()
        .setup_cqsize(entries * COMPLETIONS_PER_ENTRY);
    if features.defer {
        builder.setup_defer_taskrun().setup_taskrun_flag();
    } else if features.cooperative {
        builder.setup_coop_taskrun().setup_taskrun_flag();
    }
    if features.single_issuer {
        builder.setup_single_issuer();
    }
    if features.submit_all {
        builder.setup_submit_all();
    }
    let ring = builder.build(entries)?;
    // The 0 leaves the limit for sockets and pipes unchanged. A kernel that knows no such limit
    // (before 5.15) keeps its own.
    let _ = ring.submitter().register_iowq_max_workers(&mut [KERNEL_THREADS_MAX, 0]);
    restrict(&ring)?;
    Ok(ring)
}

fn restrict(ring: &IoUring) -> io::Result<()> {
    let operations = OPERATIONS.into_iter().map(Restriction::sqe_op);
    let registered = REGISTERED.into_iter().map(Restriction::register_op);
    let flags = Restriction::sqe_flags_allowed(squeue::Flags::FIXED_FILE.bits());
    let mut all: Vec<Restriction> = operations.chain(registered).chain([flags]).collect();
    ring.submitter().register_restrictions(&mut all)?;
    ring.submitter().register_enable_rings()
}

fn check(ring: IoUring) -> Result<IoUring, RingError> {
    let parameters = ring.params();
    let needs = [
        (parameters.is_feature_nodrop(), "completions that are never dropped"),
        (parameters.is_feature_submit_stable(), "arguments that are taken at submission"),
        (parameters.is_feature_ext_arg(), "waiting with a timeout"),
        // Polls that fire more than once have no flag of their own. They came with the same kernel
        // as this feature.
        (parameters.is_feature_resource_tagging(), "polls that fire more than once"),
    ];
    if let Some((_, lacks)) = needs.into_iter().find(|(has, _)| !has) {
        return Err(RingError::TooOld { lacks });
    }
    Ok(ring)
}
