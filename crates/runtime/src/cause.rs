//! What failed at a member: the cause that the engine carries along, and its words.
//!
//! Where it stands: between what a [`Member`](braid_member::Member) answers and what the machines are told. The one place
//! where an error of a member becomes a [`MemberFault`], for every way that a request takes to the device.
//!
//! Invariant: no error of the operating system loses its number, and no place its sector, on the way to the notice
//! [check: a_cause_is_said_with_place_and_error].

use std::fmt;

use braid_engine::cause::{Answer, Asked, Cause};
use braid_engine::effect::{FaultKind, MemberFault, MemberIo};
use braid_geometry::SECTOR_BYTES;
use braid_member::MemberError;

use crate::executor::MemberHandle;
use crate::log;

impl MemberHandle {
    /// That a member request failed.
    pub(crate) fn io_fault(&self, io: &MemberIo, error: MemberError) -> MemberFault {
        self.fault_at(io.operation.asked(), self.range(io), error)
    }

    /// The same of what is known by its place on the device only: offset and length in bytes.
    pub(crate) fn fault_at(
        &self,
        asked: Asked,
        range: (u64, u64),
        error: MemberError,
    ) -> MemberFault {
        MemberFault { kind: kind_of(error), cause: self.cause(asked, range, error) }
    }

    /// What failed, for the array and for the log.
    pub(crate) fn cause(
        &self,
        asked: Asked,
        (offset_bytes, length_bytes): (u64, u64),
        error: MemberError,
    ) -> Cause {
        let sectors = u32::try_from(length_bytes.div_ceil(SECTOR_BYTES)).unwrap_or(u32::MAX);
        let sector = offset_bytes / SECTOR_BYTES;
        let cause = Cause { member: self.id(), asked, sector, sectors, answer: answer_of(error) };
        log::member_failed(self, &cause);
        cause
    }
}

/// What the machines make of an error.
fn kind_of(error: MemberError) -> FaultKind {
    match error {
        MemberError::Gone { .. } | MemberError::Truncated => FaultKind::Gone,
        MemberError::OutOfSpace { .. } | MemberError::FileTooLong => FaultKind::NoSpace,
        MemberError::Media { .. }
        | MemberError::OutOfBounds { .. }
        | MemberError::ReadOnly
        | MemberError::FlushFailedBefore { .. }
        | MemberError::Injected => FaultKind::Media,
    }
}

fn answer_of(error: MemberError) -> Answer {
    match error {
        MemberError::Media { errno }
        | MemberError::OutOfSpace { errno }
        | MemberError::Gone { errno } => Answer::Os(errno),
        MemberError::FileTooLong => Answer::Os(error.os_error().expect("it has one")),
        MemberError::Truncated => Answer::CutShort,
        MemberError::OutOfBounds { .. } => Answer::OutOfBounds,
        MemberError::ReadOnly => Answer::ReadOnly,
        MemberError::FlushFailedBefore { errno } => Answer::FlushFailedBefore(errno),
        MemberError::Injected => Answer::Injected,
    }
}

/// A cause in words: `read of 8 sectors at sector 123456 failed: Input/output error (os error 5)`. Sectors have 512 bytes
/// and count from the start of the member.
#[derive(Clone, Copy, Debug)]
pub struct CauseWords<'a>(pub &'a Cause);

impl fmt::Display for CauseWords<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cause { asked, sector, sectors, .. } = *self.0;
        let what = match asked {
            Asked::Read => "read",
            Asked::Write => "write",
            Asked::Zero => "zeroing",
            Asked::Flush => "flush",
            Asked::Superblock => "superblock write",
            Asked::Look => return formatter.write_str("it is not there any more under its name"),
        };
        formatter.write_str(what)?;
        match sectors {
            0 => {}
            1 => write!(formatter, " of 1 sector at sector {sector}")?,
            _ => write!(formatter, " of {sectors} sectors at sector {sector}")?,
        }
        write!(formatter, " failed: {}", AnswerWords(self.0.answer))
    }
}

/// What a member answered, in words.
#[derive(Clone, Copy, Debug)]
pub struct AnswerWords(pub Answer);

impl fmt::Display for AnswerWords {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Answer::Os(number) => std::io::Error::from_raw_os_error(number).fmt(formatter),
            Answer::CutShort => formatter.write_str("the file was cut short while it was in use"),
            Answer::Vanished => formatter.write_str("it is not there any more under its name"),
            Answer::FlushFailedBefore(None) => formatter.write_str("an earlier flush failed"),
            Answer::FlushFailedBefore(Some(number)) => {
                write!(formatter, "an earlier flush failed: {}", AnswerWords(Answer::Os(number)))
            }
            Answer::OutOfBounds => formatter.write_str("the range lies outside of it"),
            Answer::ReadOnly => formatter.write_str("it was opened for reading only"),
            Answer::Injected => formatter.write_str("injected fault"),
        }
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use braid_engine::array::MemberId;

    fn cause(asked: Asked, sectors: u32, answer: Answer) -> Cause {
        Cause { member: MemberId(1), asked, sector: 123_456, sectors, answer }
    }

    #[test]
    fn a_cause_is_said_with_place_and_error() {
        for (cause, words) in [
            (
                cause(Asked::Read, 8, Answer::Os(5)),
                "read of 8 sectors at sector 123456 failed: Input/output error (os error 5)",
            ),
            (
                cause(Asked::Superblock, 1, Answer::Os(30)),
                "superblock write of 1 sector at sector 123456 failed: Read-only file system (os error 30)",
            ),
            (
                cause(Asked::Flush, 0, Answer::FlushFailedBefore(None)),
                "flush failed: an earlier flush failed",
            ),
            (Cause::vanished(MemberId(0)), "it is not there any more under its name"),
        ] {
            assert_eq!(CauseWords(&cause).to_string(), words);
        }
    }

    /// Each error had to be put right by hand: which sector, which error, was not said anywhere.
    #[test]
    fn every_error_keeps_its_number_or_its_word() {
        for error in [
            MemberError::Media { errno: 5 },
            MemberError::OutOfSpace { errno: 122 },
            MemberError::Gone { errno: 116 },
            MemberError::FileTooLong,
            MemberError::Truncated,
            MemberError::OutOfBounds { offset_bytes: 1, length_bytes: 2, size_bytes: 3 },
            MemberError::ReadOnly,
            MemberError::FlushFailedBefore { errno: None },
            MemberError::FlushFailedBefore { errno: Some(5) },
            MemberError::Injected,
        ] {
            assert_eq!(answer_of(error).os_error(), error.os_error(), "{error:?}");
            assert!(!AnswerWords(answer_of(error)).to_string().is_empty());
        }
        assert_eq!(kind_of(MemberError::OutOfSpace { errno: 122 }), FaultKind::NoSpace);
        assert_eq!(kind_of(MemberError::Gone { errno: 116 }), FaultKind::Gone);
        assert_eq!(kind_of(MemberError::FlushFailedBefore { errno: Some(28) }), FaultKind::Media);
    }
}
