//! Failures at a member, in the form for the machines and for the log. Only here does an error of a
//! [`Member`](braid_member::Member) become a [`MemberFault`], for all back ends.
//!
//! Invariant: on the way to the notice every error of the operating system keeps its number, and
//! every failed range its sector [check: every_error_keeps_its_number_or_its_word].

use braid_engine::array::{MemberId, MetadataArea};
use braid_engine::cause::{Answer, Cause, RequestKind};
use braid_engine::effect::{FaultKind, MemberFault, MemberIo};
use braid_geometry::SECTOR_BYTES;
use braid_member::MemberError;

use crate::log;
use crate::members::handle::MemberHandle;

/// The fault of a failed member request.
pub(crate) fn of_io(member: &MemberHandle, io: &MemberIo, error: MemberError) -> MemberFault {
    at(member, io.operation.asked(), member.range(io), error)
}

/// The fault of an operation of which only the range on the device is known: offset and length in
/// bytes.
pub(crate) fn at(
    member: &MemberHandle,
    asked: RequestKind,
    range: (u64, u64),
    error: MemberError,
) -> MemberFault {
    MemberFault { kind: kind_of(asked, error), cause: cause(member, asked, range, error) }
}

/// The fault of a request to a member that no longer exists.
pub(crate) fn gone(member: MemberId, asked: RequestKind) -> MemberFault {
    let cause = Cause { asked, ..Cause::vanished(member) };
    MemberFault { kind: FaultKind::Gone, cause }
}

/// The fault of a request to a member that left the array before it answered.
pub(crate) fn left(member: MemberId) -> MemberFault {
    MemberFault { kind: FaultKind::Gone, cause: Cause::left(member) }
}

/// The kind of request that writes a metadata area of this kind.
pub(crate) const fn asked_of(area: MetadataArea) -> RequestKind {
    match area {
        MetadataArea::Superblock => RequestKind::Superblock,
        MetadataArea::BadBlocks => RequestKind::BadBlocks,
        MetadataArea::Bitmap => RequestKind::Bitmap,
        MetadataArea::ParityLog => RequestKind::ParityLog,
        MetadataArea::Journal => RequestKind::Journal,
    }
}

/// The cause, for the array and for the log.
pub(crate) fn cause(
    member: &MemberHandle,
    asked: RequestKind,
    (offset_bytes, length_bytes): (u64, u64),
    error: MemberError,
) -> Cause {
    let sectors = u32::try_from(length_bytes.div_ceil(SECTOR_BYTES)).unwrap_or(u32::MAX);
    let sector = offset_bytes / SECTOR_BYTES;
    let cause = Cause { member: member.id(), asked, sector, sectors, answer: answer_of(error) };
    log::member_failed(member, &cause);
    cause
}

fn kind_of(asked: RequestKind, error: MemberError) -> FaultKind {
    match error {
        // A sector that refuses reads counts as a bad sector.
        MemberError::Protected { .. } if asked == RequestKind::Read => FaultKind::Media,
        MemberError::Gone { .. } | MemberError::Truncated => FaultKind::Gone,
        MemberError::OutOfSpace { .. } | MemberError::FileTooLong => FaultKind::NoSpace,
        MemberError::Protected { .. } => FaultKind::Protected,
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
        | MemberError::Protected { errno }
        | MemberError::Gone { errno } => Answer::Os(errno),
        MemberError::FileTooLong => Answer::Os(error.os_error().expect("it has one")),
        MemberError::Truncated => Answer::CutShort,
        MemberError::OutOfBounds { .. } => Answer::OutOfBounds,
        MemberError::ReadOnly => Answer::ReadOnly,
        MemberError::FlushFailedBefore { errno } => Answer::FlushFailedBefore(errno),
        MemberError::Injected => Answer::Injected,
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use crate::cause::AnswerWords;

    /// Regression: no message named sector and error, so each error needed a search by hand.
    #[test]
    fn every_error_keeps_its_number_or_its_word() {
        for error in [
            MemberError::Media { errno: 5 },
            MemberError::OutOfSpace { errno: 122 },
            MemberError::Protected { errno: 1 },
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
        let written = |error| kind_of(RequestKind::Write, error);
        assert_eq!(written(MemberError::OutOfSpace { errno: 122 }), FaultKind::NoSpace);
        assert_eq!(written(MemberError::Protected { errno: 30 }), FaultKind::Protected);
        assert_eq!(
            kind_of(RequestKind::Read, MemberError::Protected { errno: 1 }),
            FaultKind::Media
        );
        assert_eq!(written(MemberError::Gone { errno: 116 }), FaultKind::Gone);
        assert_eq!(written(MemberError::FlushFailedBefore { errno: Some(28) }), FaultKind::Media);
    }
}
