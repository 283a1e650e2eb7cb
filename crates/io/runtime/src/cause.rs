//! The cause of a member's failure, in words for people.
//!
//! Place in the flow: for the log and for the program that receives notices.
//! [`crate::executor::fault`] turns an error of a member into a [`Cause`].

use std::fmt;

use braid_engine::cause::{Answer, Cause, RequestKind};

/// A cause in words: `read of 8 sectors at sector 123456 failed: Input/output error (os error 5)`.
/// Sectors have 512 bytes and count from the start of the member.
#[derive(Clone, Copy, Debug)]
pub struct CauseWords<'a>(pub &'a Cause);

impl fmt::Display for CauseWords<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cause { asked, sector, sectors, .. } = *self.0;
        let what = match asked {
            RequestKind::Read => "read",
            RequestKind::Write => "write",
            RequestKind::Zero => "zeroing",
            RequestKind::Flush => "flush",
            RequestKind::Superblock => "superblock write",
            RequestKind::BadBlocks => "bad-block log write",
            RequestKind::Bitmap => "bitmap write",
            RequestKind::ParityLog => "parity log write",
            RequestKind::Journal => "journal write",
            RequestKind::Nothing => return formatter.write_str("an operator requested it"),
            RequestKind::Look => return formatter.write_str("its name no longer leads to it"),
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

/// A member's answer, in words.
#[derive(Clone, Copy, Debug)]
pub struct AnswerWords(pub Answer);

impl fmt::Display for AnswerWords {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Answer::Os(number) => std::io::Error::from_raw_os_error(number).fmt(formatter),
            Answer::CutShort => formatter.write_str("the file was cut short while it was in use"),
            Answer::Vanished => formatter.write_str("its name no longer leads to it"),
            Answer::FlushFailedBefore(None) => formatter.write_str("an earlier flush failed"),
            Answer::FlushFailedBefore(Some(number)) => {
                write!(formatter, "an earlier flush failed: {}", AnswerWords(Answer::Os(number)))
            }
            Answer::OutOfBounds => formatter.write_str("the range lies outside of it"),
            Answer::ReadOnly => formatter.write_str("it was opened for reading only"),
            Answer::Injected => formatter.write_str("injected fault"),
            Answer::Person => formatter.write_str("an operator requested it"),
            Answer::ErredOften => formatter.write_str("it had more read errors than it may have"),
            Answer::Silent => formatter.write_str("it did not answer in time"),
            Answer::Left => formatter.write_str("it left the array before it answered"),
        }
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use braid_engine::array::MemberId;

    use super::*;

    fn cause(asked: RequestKind, sectors: u32, answer: Answer) -> Cause {
        Cause { member: MemberId(1), asked, sector: 123_456, sectors, answer }
    }

    #[test]
    fn a_cause_is_said_with_place_and_error() {
        for (cause, words) in [
            (
                cause(RequestKind::Read, 8, Answer::Os(5)),
                "read of 8 sectors at sector 123456 failed: Input/output error (os error 5)",
            ),
            (
                cause(RequestKind::Superblock, 1, Answer::Os(30)),
                "superblock write of 1 sector at sector 123456 failed: Read-only file system (os error 30)",
            ),
            (
                cause(RequestKind::Flush, 0, Answer::FlushFailedBefore(None)),
                "flush failed: an earlier flush failed",
            ),
            (Cause::errs(MemberId(0)), "read failed: it had more read errors than it may have"),
            (Cause::vanished(MemberId(0)), "its name no longer leads to it"),
        ] {
            assert_eq!(CauseWords(&cause).to_string(), words);
        }
    }
}
