//! The cause of a member's failure: the request, its place, and the answer.
//!
//! The executor makes a [`Cause`] when an operation fails, and returns it with the result. The
//! machine decides by the member and the [`FaultKind`](crate::effect::FaultKind) alone. It only
//! puts the cause into the failure's notice [check: a_cause_changes_nothing_but_what_is_said].

use crate::ids::MemberId;

/// A failed operation on a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cause {
    /// The member.
    pub member: MemberId,
    /// The request that failed.
    pub asked: RequestKind,
    /// First sector of the request, from the start of the member, not of its data area; 0 if
    /// `sectors` is 0.
    pub sector: u64,
    /// Sectors of the request; 0 for a request to the whole member.
    pub sectors: u32,
    /// The member's answer.
    pub answer: Answer,
}

// Results and replies contain a `Cause`, and are copied often.
const _: () = assert!(size_of::<Cause>() == 24, "three words");

impl Cause {
    /// The operator failed the member; no request was sent.
    #[must_use]
    pub fn person(member: MemberId) -> Self {
        Self { member, asked: RequestKind::Nothing, sector: 0, sectors: 0, answer: Answer::Person }
    }

    /// The member had more read errors than the limit allows. All errors were corrected.
    #[must_use]
    pub fn errs(member: MemberId) -> Self {
        let answer = Answer::ErredOften;
        Self { member, asked: RequestKind::Read, sector: 0, sectors: 0, answer }
    }

    /// The member left with requests in flight, and the array does not wait for them.
    #[must_use]
    pub fn left(member: MemberId) -> Self {
        let answer = Answer::Left;
        Self { member, asked: RequestKind::Nothing, sector: 0, sectors: 0, answer }
    }

    /// The member has not answered for too long.
    #[must_use]
    pub fn silent(member: MemberId) -> Self {
        let answer = Answer::Silent;
        Self { member, asked: RequestKind::Nothing, sector: 0, sectors: 0, answer }
    }

    /// The member's path no longer exists, or no longer leads to the member.
    #[must_use]
    pub fn vanished(member: MemberId) -> Self {
        let answer = Answer::Vanished;
        Self { member, asked: RequestKind::Look, sector: 0, sectors: 0, answer }
    }
}

/// A request to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestKind {
    /// To read sectors.
    Read,
    /// To write sectors.
    Write,
    /// To make sectors read as zeroes.
    Zero,
    /// To flush the member's volatile cache.
    Flush,
    /// To write the member's superblock.
    Superblock,
    /// To write the member's bad-block log, and to flush earlier writes.
    BadBlocks,
    /// To write the member's write-intent bitmap.
    Bitmap,
    /// To write the member's partial parity log.
    ParityLog,
    /// To write the write journal on the member.
    Journal,
    /// To see whether the member still exists.
    Look,
    /// No request: the operator failed the member.
    Nothing,
}

impl RequestKind {
    /// All kinds of requests.
    pub const ALL: [Self; 11] = [
        Self::Read,
        Self::Write,
        Self::Zero,
        Self::Flush,
        Self::Superblock,
        Self::BadBlocks,
        Self::Bitmap,
        Self::ParityLog,
        Self::Journal,
        Self::Look,
        Self::Nothing,
    ];

    /// One word for this kind of request, for programs. The word never changes.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Zero => "zero",
            Self::Flush => "flush",
            Self::Superblock => "superblock-write",
            Self::BadBlocks => "bad-block-log-write",
            Self::Bitmap => "bitmap-write",
            Self::ParityLog => "parity-log-write",
            Self::Journal => "journal-write",
            Self::Look => "look",
            Self::Nothing => "nothing",
        }
    }
}

/// A member's answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// An error of the operating system: its number (`errno`).
    Os(i32),
    /// The member's file is shorter than at its opening.
    CutShort,
    /// The member's path no longer exists, or no longer leads to the member.
    Vanished,
    /// An earlier flush or durable write of the member failed, so no later flush is trusted. Holds
    /// the earlier failure's error number, if any.
    FlushFailedBefore(Option<i32>),
    /// The range does not lie inside the member; the device got no request.
    OutOfBounds,
    /// The member was opened for reading only; the device got no request.
    ReadOnly,
    /// A fault that a test injected.
    Injected,
    /// The member got no request: the operator failed it.
    Person,
    /// The member had more read errors than the limit allows. All errors were corrected.
    ErredOften,
    /// The member has not answered in time.
    Silent,
    /// The member left the array before it answered.
    Left,
}

impl Answer {
    /// One word for this answer, for programs. The word never changes. [`Self::os_error`] has the
    /// error number.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Os(_) => "os-error",
            Self::CutShort => "cut-short",
            Self::Vanished => "vanished",
            Self::FlushFailedBefore(_) => "flush-failed-before",
            Self::OutOfBounds => "out-of-bounds",
            Self::ReadOnly => "read-only",
            Self::Injected => "injected",
            Self::Person => "person",
            Self::ErredOften => "erred-often",
            Self::Silent => "silent",
            Self::Left => "left",
        }
    }

    /// The operating system's error number, if the answer has one or derives from one.
    #[must_use]
    pub const fn os_error(self) -> Option<i32> {
        match self {
            Self::Os(number) => Some(number),
            Self::FlushFailedBefore(number) => number,
            _ => None,
        }
    }
}
