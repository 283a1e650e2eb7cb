//! A claim on a member, and its words in an export's name.

use std::fmt::{self, Display};
use std::str::FromStr;

/// The identity of an owner, or of a process that wants to own: 16 random bytes, new in each
/// attempt to take an array over. With an old identity, after the store was restored, an owner
/// could get an epoch that it had before, and no server would refuse the claim.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub [u8; 16]);

impl Display for OwnerId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, formatter)
    }
}

impl FromStr for OwnerId {
    type Err = ClaimError;

    fn from_str(text: &str) -> Result<Self, ClaimError> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| is_hex);
        number.map(|number| Self(number.to_be_bytes())).ok_or(ClaimError::Owner)
    }
}

/// Why words are no claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// The words do not have the form `epoch=NUMBER&owner=HEX&session=NUMBER`.
    #[error("a claim has the form epoch=NUMBER&owner=HEX&session=NUMBER")]
    Form,
    /// The epoch is no number from 1 on.
    #[error("the epoch of a claim is a number from 1 on")]
    Epoch,
    /// The owner is not 32 hexadecimal digits.
    #[error("the owner of a claim has 32 hexadecimal digits")]
    Owner,
    /// The session is no number.
    #[error("the session of a claim is a number")]
    Session,
}

/// An owner's claim on a member. A server serves one claim at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The epoch of the store's record, from 1 on.
    pub epoch: u64,
    /// The owner in that epoch.
    pub owner: OwnerId,
    /// Counts the owner's links to the server: a later link ends the requests of earlier links.
    pub session: u64,
}

impl Display for Claim {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { epoch, owner, session } = self;
        write!(formatter, "epoch={epoch}&owner={owner}&session={session}")
    }
}

impl FromStr for Claim {
    type Err = ClaimError;

    fn from_str(text: &str) -> Result<Self, ClaimError> {
        let mut parts = text.split('&');
        let mut value = |name: &str| {
            let part = parts.next().ok_or(ClaimError::Form)?;
            let (word, value) = part.split_once('=').ok_or(ClaimError::Form)?;
            if word == name { Ok(value) } else { Err(ClaimError::Form) }
        };
        let (epoch, owner, session) = (value("epoch")?, value("owner")?, value("session")?);
        if parts.next().is_some() {
            return Err(ClaimError::Form);
        }
        let epoch = epoch.parse().ok().filter(|epoch| *epoch > 0).ok_or(ClaimError::Epoch)?;
        let session = session.parse().map_err(|_| ClaimError::Session)?;
        Ok(Self { epoch, owner: owner.parse()?, session })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_reads_its_own_words_and_no_others() {
        let claim = Claim { epoch: 7, owner: OwnerId([0xa5; 16]), session: 3 };
        let words = claim.to_string();
        assert_eq!(words.parse(), Ok(claim));
        let owner = "a5".repeat(16);
        for (words, error) in [
            (String::new(), ClaimError::Form),
            ("epoch=7".into(), ClaimError::Form),
            (format!("{words}&more=1"), ClaimError::Form),
            (format!("owner={owner}&epoch=7&session=3"), ClaimError::Form),
            (format!("epoch=0&owner={owner}&session=3"), ClaimError::Epoch),
            (format!("epoch=99999999999999999999&owner={owner}&session=3"), ClaimError::Epoch),
            ("epoch=7&owner=+5&session=3".into(), ClaimError::Owner),
            (format!("epoch=7&owner={owner}0&session=3"), ClaimError::Owner),
            (format!("epoch=7&owner={owner}&session=-1"), ClaimError::Session),
        ] {
            assert_eq!(words.parse::<Claim>(), Err(error), "{words}");
        }
    }
}
