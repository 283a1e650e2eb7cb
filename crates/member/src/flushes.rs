//! Whether a flush or a durable write of a member has ever failed, and what later ones are told.
//!
//! The kernel reports a lost page once and then forgets it ("fsyncgate", LWN 752063), so a failure is for good
//! `[check: a_failed_flush_is_sticky]`. What failed for lack of space is told as that ever after: it is no fault of the
//! medium, and the array stops taking writes instead of losing the member.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::MemberError;

const NEVER: u8 = 0;
const NO_SPACE: u8 = 1;
/// The worst is the greatest, and stays.
const LOST: u8 = 2;

/// What has become of flushes so far.
#[derive(Debug)]
pub(crate) struct Flushes(AtomicU8);

impl Flushes {
    /// None has failed.
    pub(crate) const fn new() -> Self {
        Self(AtomicU8::new(NEVER))
    }

    /// A flush or a durable write has failed.
    pub(crate) fn fail(&self, error: MemberError) {
        let failed = match error {
            // Answered before anything is taken over: it says nothing of what was written before.
            MemberError::FileTooLong => NEVER,
            MemberError::OutOfSpace => NO_SPACE,
            _ => LOST,
        };
        self.0.fetch_max(failed, Ordering::AcqRel);
    }

    /// Whether one can still promise anything.
    pub(crate) fn check(&self) -> Result<(), MemberError> {
        match self.0.load(Ordering::Acquire) {
            NEVER => Ok(()),
            NO_SPACE => Err(MemberError::OutOfSpace),
            _ => Err(MemberError::FlushFailedBefore),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_for_lack_of_space_is_said_so_ever_after() {
        let flushes = Flushes::new();
        flushes.fail(MemberError::FileTooLong);
        assert_eq!(flushes.check(), Ok(()), "nothing was lost");
        flushes.fail(MemberError::OutOfSpace);
        flushes.fail(MemberError::FileTooLong);
        assert_eq!(flushes.check(), Err(MemberError::OutOfSpace));
        flushes.fail(MemberError::Media { errno: 5 });
        flushes.fail(MemberError::OutOfSpace);
        assert_eq!(flushes.check(), Err(MemberError::FlushFailedBefore));
    }
}
