//! Takes from a process what it does not need: files, system calls, capabilities.
//!
//! Where it stands: beside the server, which asks for it twice. It knows nothing of arrays.
//!
//! ```text
//!   one thread yet:  capabilities::keep ─▶ files::restrict (landlock)      threads made later have the same
//!   all is open:     calls::restrict (seccomp, on all threads)             files by path: still only those granted
//!   proof::try_all:  tries what must not be possible, from inside
//! ```
//!
//! Landlock and capabilities are of a thread and what it starts, so they come before there is a second one; seccomp can be laid
//! upon all threads at once, so it comes last, when nothing new is listened at, mounted or run any more. What an `io_uring` does is
//! seen by landlock and not by seccomp: the rings themselves refuse what they are not for (`braid-ring`).
//!
//! What it does not do: decide what a server needs (`serve::confine` of the command).
//!
//! Invariants
//! - a confined process opens, runs, connects, mounts and traces nothing (`tests/inside.rs`, which is its own harness).
#![forbid(unsafe_code)]

pub mod calls;
pub mod capabilities;
pub mod files;
pub mod proof;

/// Why a process could not be confined.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// Landlock.
    #[error("files cannot be closed off: {0}")]
    Files(#[from] landlock::RulesetError),
    /// Seccomp.
    #[error("system calls cannot be closed off: {0}")]
    Calls(#[from] seccompiler::Error),
    /// Seccomp, a filter that cannot be made.
    #[error("system calls cannot be closed off: {0}")]
    Filter(#[from] seccompiler::BackendError),
    /// Capabilities.
    #[error("capabilities cannot be given up: {0}")]
    Capabilities(#[source] std::io::Error),
    /// What must not be possible was.
    #[error("{0} is possible, and must not be")]
    Loose(&'static str),
}
