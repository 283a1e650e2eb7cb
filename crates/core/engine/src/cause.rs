//! Why a member failed: what it was asked, where, and what it answered.
//!
//! The executor makes a [`Cause`] when an operation fails and gives it with the result. The machine
//! goes by the member and the [`FaultKind`](crate::effect::FaultKind): it carries the cause along,
//! to the notice that says what became of the failure, and decides nothing by where it was and what
//! was answered [check: a_cause_changes_nothing_but_what_is_said].

use crate::ids::MemberId;

/// An operation on a member that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cause {
    /// The member.
    pub member: MemberId,
    /// The request to the member.
    pub asked: Asked,
    /// First sector, counted from the start of the member and not of its data area; 0 if `sectors`
    /// is.
    pub sector: u64,
    /// How many sectors; 0 for what is about the whole member.
    pub sectors: u32,
    /// The member's answer.
    pub answer: Answer,
}

// It travels with results and replies, which are copied often.
const _: () = assert!(size_of::<Cause>() == 24, "three words");

impl Cause {
    /// A person has said so: nothing was asked of the member.
    #[must_use]
    pub fn person(member: MemberId) -> Self {
        Self { member, asked: Asked::Nothing, sector: 0, sectors: 0, answer: Answer::Person }
    }

    /// It has had more read errors than the limit allows. All were corrected.
    #[must_use]
    pub fn errs(member: MemberId) -> Self {
        let answer = Answer::ErredOften;
        Self { member, asked: Asked::Read, sector: 0, sectors: 0, answer }
    }

    /// It left with requests under way, and these are not waited for.
    #[must_use]
    pub fn left(member: MemberId) -> Self {
        let answer = Answer::Left;
        Self { member, asked: Asked::Nothing, sector: 0, sectors: 0, answer }
    }

    /// It has not answered for too long.
    #[must_use]
    pub fn silent(member: MemberId) -> Self {
        let answer = Answer::Silent;
        Self { member, asked: Asked::Nothing, sector: 0, sectors: 0, answer }
    }

    /// The member's name leads nowhere any more, or not to it.
    #[must_use]
    pub fn vanished(member: MemberId) -> Self {
        let answer = Answer::Vanished;
        Self { member, asked: Asked::Look, sector: 0, sectors: 0, answer }
    }
}

/// A request to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// To read sectors.
    Read,
    /// To write sectors.
    Write,
    /// To make sectors read as zeroes.
    Zero,
    /// To write its volatile cache out.
    Flush,
    /// To write its superblock.
    Superblock,
    /// To write its bad-block log, and what was written before.
    BadBlocks,
    /// To write its write-intent bitmap.
    Bitmap,
    /// To write its partial parity log.
    ParityLog,
    /// To write the write journal that it has.
    Journal,
    /// Whether it is still there.
    Look,
    /// Nothing: a person has spoken.
    Nothing,
}

impl Asked {
    /// All of them.
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

    /// One word for it, for programs; it stays.
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
    /// The file is shorter than it was when it was opened.
    CutShort,
    /// Its name leads nowhere any more, or not to it.
    Vanished,
    /// An earlier flush or durable write failed, so none is believed; the operating system's error
    /// then, if it was one.
    FlushFailedBefore(Option<i32>),
    /// The range does not lie inside it; nothing was asked of the device.
    OutOfBounds,
    /// It was opened for reading only; nothing was asked of the device.
    ReadOnly,
    /// A fault that a test asked for.
    Injected,
    /// It was not asked: a person has said that it fails.
    Person,
    /// It has had more read errors than the limit allows, all of which were corrected.
    ErredOften,
    /// It has not answered in time.
    Silent,
    /// It left the array before it answered.
    Left,
}

impl Answer {
    /// One word for it, for programs; it stays. The number of an error comes by itself:
    /// [`Self::os_error`].
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

    /// The operating system's error number, if the answer has or derives from one.
    #[must_use]
    pub const fn os_error(self) -> Option<i32> {
        match self {
            Self::Os(number) => Some(number),
            Self::FlushFailedBefore(number) => number,
            _ => None,
        }
    }
}
