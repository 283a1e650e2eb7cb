//! The words in which a member's server answers a claim.
//!
//! NBD has no place for these words but texts: the description of a served export, and the reason
//! of a refusal.

use crate::fence::Mark;

const BEFORE: &str = "claimed; before: ";
const NONE: &str = "no owner";
const FENCED: &str = "another owner has the member: ";

/// The description of a claimed export: the mark that the server had before the claim.
#[must_use]
pub fn served_words(before: Option<Mark>) -> String {
    let mark = before.map_or_else(|| NONE.to_owned(), |mark| mark.to_string());
    format!("{BEFORE}{mark}")
}

/// The mark that the server had before the claim; `None` if the words are no answer to a claim.
#[must_use]
pub fn mark_before(words: &str) -> Option<Option<Mark>> {
    match words.strip_prefix(BEFORE)? {
        NONE => Some(None),
        mark => mark.parse().ok().map(Some),
    }
}

/// The reason of a refusal.
#[must_use]
pub fn refused_words(by: Mark) -> String {
    format!("{FENCED}{by}")
}

/// The mark because of which a claim was refused; `None` if it was refused for another reason.
#[must_use]
pub fn refused_by(words: &str) -> Option<Mark> {
    words.strip_prefix(FENCED)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::OwnerId;

    #[test]
    fn answers_are_read_as_they_were_written() {
        let mark = Mark { epoch: 12, owner: OwnerId([7; 16]) };
        assert_eq!(mark_before(&served_words(None)), Some(None));
        assert_eq!(mark_before(&served_words(Some(mark))), Some(Some(mark)));
        assert_eq!(refused_by(&refused_words(mark)), Some(mark));
        for words in ["", "claimed; before: ", "claimed; before: epoch=0&owner=07", "a disk"] {
            assert_eq!((mark_before(words), refused_by(words)), (None, None), "{words}");
        }
    }
}
