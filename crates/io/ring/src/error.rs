//! Errors of starting workers.

use std::io;

/// Why workers could not be started.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// This process may not use io_uring: the sysctl `kernel.io_uring_disabled`, or a container's
    /// seccomp filter, forbids it. Or the kernel was built without io_uring.
    #[error(
        "io_uring is not allowed here ({errno}): kernel.io_uring_disabled, a seccomp filter, or a \
         kernel without it"
    )]
    NotAllowed {
        /// The error of `io_uring_setup`: `EPERM`, `EACCES` or `ENOSYS`.
        errno: io::Error,
    },
    /// The kernel's io_uring lacks a feature that this crate needs.
    #[error("this kernel's io_uring is too old: it lacks {lacks} (Linux 5.13 has it)")]
    TooOld {
        /// The missing feature.
        lacks: &'static str,
    },
    /// The rings' memory exceeds the limit on locked memory.
    #[error("no memory for a ring: the limit on locked memory (ulimit -l) is too low")]
    LockedMemory,
    /// Any other error of the operating system.
    #[error("{call} failed: {error}")]
    System {
        /// The call that failed.
        call: &'static str,
        /// The operating system's error.
        error: io::Error,
    },
}

impl RingError {
    /// Whether the caller should continue without io_uring, because it is not available here.
    pub fn is_lack(&self) -> bool {
        matches!(self, Self::NotAllowed { .. } | Self::TooOld { .. } | Self::LockedMemory)
    }

    pub(crate) fn of_setup(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => Self::NotAllowed { errno: error },
            Some(libc::ENOMEM) => Self::LockedMemory,
            _ => Self::System { call: "io_uring_setup", error },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seccomp_filter_and_a_sysctl_are_told_from_other_failures() {
        for errno in [libc::EPERM, libc::EACCES, libc::ENOSYS] {
            let error = RingError::of_setup(io::Error::from_raw_os_error(errno));
            assert!(matches!(error, RingError::NotAllowed { .. }) && error.is_lack());
        }
        assert!(RingError::of_setup(io::Error::from_raw_os_error(libc::ENOMEM)).is_lack());
        let full = RingError::of_setup(io::Error::from_raw_os_error(libc::EMFILE));
        assert!(!full.is_lack(), "running out of descriptors is no reason to go on another way");
    }
}
