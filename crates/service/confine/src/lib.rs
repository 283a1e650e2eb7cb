//! Takes unneeded access from a process: files, system calls, capabilities.
//!
//! The server calls this crate twice. The crate has nothing to do with arrays.
//!
//! ```text
//!   one thread yet:  capabilities::keep ─▶ files::restrict (landlock)   later threads: the same
//!   all is open:     calls::restrict (seccomp, on all threads)          paths: only those granted
//!   proof::try_all:  tries what must not be possible, from inside
//! ```
//!
//! Landlock and capabilities cover a thread and its later children, so they are applied before the
//! second thread starts. Seccomp can cover all threads at once, so it is applied last, after every
//! socket, mount and program has started. Landlock sees the work of an `io_uring`, seccomp does
//! not: the rings themselves refuse other operations (`braid-ring`).
//!
//! `serve::confine` of the command decides which access a server needs.
//!
//! Invariants
//! - a confined process opens, runs, connects, mounts and traces nothing (`tests/inside.rs`, which
//!   is its own harness).
#![forbid(unsafe_code)]

pub mod calls;
pub mod capabilities;
pub mod files;
pub mod proof;

/// Why a process could not be confined.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// Landlock failed.
    #[error("files cannot be closed off: {0}")]
    Files(#[from] landlock::RulesetError),
    /// Seccomp failed.
    #[error("system calls cannot be closed off: {0}")]
    Calls(#[from] seccompiler::Error),
    /// A seccomp filter could not be built.
    #[error("system calls cannot be closed off: {0}")]
    Filter(#[from] seccompiler::BackendError),
    /// Capabilities could not be changed.
    #[error("capabilities cannot be given up: {0}")]
    Capabilities(#[source] std::io::Error),
    /// A forbidden operation succeeded.
    #[error("{0} is possible, although it must not be")]
    Loose(&'static str),
}
