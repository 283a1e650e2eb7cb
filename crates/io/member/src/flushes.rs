//! Remembers whether a flush or a durable write of a member has ever failed, and fails later ones.
//!
//! The kernel reports a lost page once and then forgets it ("fsyncgate", LWN 752063), so a failure
//! is for good `[check: a_failed_flush_is_sticky]`. A lack of space is reported as such for ever:
//! the medium is sound, and the array stops writes instead of losing the member. Each later error
//! carries the first error number of the worst kind.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use crate::MemberError;

const NEVER: u64 = 0;
const NO_SPACE: u64 = 1;
/// The worst kind of failure has the greatest number, and is kept.
const LOST: u64 = 2;

/// Upper half: the error number of the first failure of the worst kind; lower half: that kind.
const ERRNO_SHIFT: u32 = 32;

/// The worst failure so far.
#[derive(Debug)]
pub(crate) struct Flushes(AtomicU64);

impl Flushes {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(NEVER))
    }

    pub(crate) fn fail(&self, error: MemberError) {
        let failed = match error {
            // The write was refused before any byte was accepted, which says nothing about earlier
            // writes.
            MemberError::FileTooLong => NEVER,
            MemberError::Protected { errno } if errno == Errno::PERM.raw_os_error() => NEVER,
            MemberError::OutOfSpace { .. } => NO_SPACE,
            _ => LOST,
        };
        let errno = error.os_error().and_then(|errno| u32::try_from(errno).ok()).unwrap_or(0);
        let failed = failed | u64::from(errno) << ERRNO_SHIFT;
        let worse = |before| (class(failed) > class(before)).then_some(failed);
        // A failure that is no worse changes nothing.
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, worse);
    }

    /// Fails if an earlier flush or durable write failed, since a later flush cannot promise
    /// anything then.
    pub(crate) fn check(&self) -> Result<(), MemberError> {
        let failed = self.0.load(Ordering::Acquire);
        let errno = i32::try_from(failed >> ERRNO_SHIFT).ok().filter(|errno| *errno != 0);
        match class(failed) {
            NEVER => Ok(()),
            NO_SPACE => Err(errno.map_or(Errno::NOSPC, Errno::from_raw_os_error).into()),
            _ => Err(MemberError::FlushFailedBefore { errno }),
        }
    }
}

fn class(failed: u64) -> u64 {
    failed & ((1 << ERRNO_SHIFT) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_for_lack_of_space_is_said_so_ever_after() {
        let flushes = Flushes::new();
        flushes.fail(MemberError::FileTooLong);
        flushes.fail(Errno::PERM.into());
        assert_eq!(flushes.check(), Ok(()), "nothing was lost");
        flushes.fail(Errno::DQUOT.into());
        flushes.fail(MemberError::FileTooLong);
        flushes.fail(Errno::NOSPC.into());
        assert_eq!(flushes.check(), Err(Errno::DQUOT.into()), "the first");
        flushes.fail(MemberError::Media { errno: 5 });
        flushes.fail(Errno::DQUOT.into());
        flushes.fail(MemberError::Media { errno: 200 });
        let errno = Some(5);
        assert_eq!(flushes.check(), Err(MemberError::FlushFailedBefore { errno }));
        let flushes = Flushes::new();
        flushes.fail(MemberError::Injected);
        let errno = None;
        assert_eq!(flushes.check(), Err(MemberError::FlushFailedBefore { errno }));
    }
}
