//! The fence of one member's server: it serves one claim at a time, and never an older claim.
//!
//! ```text
//!   judge ─┬─ Joins ─────────────────────────────────── drained ───▶ served
//!          ├─ Succeeds ─ mark made durable ─ succeed ─ drained ───▶ served
//!          └─ Refused
//! ```
//!
//! The driver handles one claim at a time, up to [`Fence::succeed`]: the durable mark only rises.

use std::fmt::{self, Display};
use std::str::FromStr;

use braid_sim_hooks::{Bug, planted};

use crate::claim::{Claim, ClaimError, OwnerId};

/// The highest epoch that a server has served, and its owner. The mark is durable before it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The epoch.
    pub epoch: u64,
    /// The owner in that epoch.
    pub owner: OwnerId,
}

impl Mark {
    /// The mark of a claim.
    #[must_use]
    pub fn of(claim: &Claim) -> Self {
        Self { epoch: claim.epoch, owner: claim.owner }
    }

    /// Whether an owner with the mark `other` has lost the array to the owner with this mark.
    #[must_use]
    pub fn supersedes(&self, other: &Self) -> bool {
        self.epoch >= other.epoch && self != other
    }
}

impl Display for Mark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "epoch={}&owner={}", self.epoch, self.owner)
    }
}

impl FromStr for Mark {
    type Err = ClaimError;

    fn from_str(text: &str) -> Result<Self, ClaimError> {
        let claim: Claim = format!("{text}&session=0").parse()?;
        Ok(Self::of(&claim))
    }
}

/// The answer to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The claim is the holder's, for one more connection. The claim is answered when the holder
    /// is, after [`Fence::is_drained`].
    Joins,
    /// The claim is later than the holder's. The driver makes the mark durable, if there is one,
    /// then calls [`Fence::succeed`], waits for [`Fence::is_drained`], and answers.
    Succeeds {
        /// A mark that is not durable yet.
        mark: Option<Mark>,
    },
    /// A later owner, or a later session, has the member.
    Refused(Mark),
}

/// The sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// An owner, with its claim.
    Owner(Claim),
    /// A client without a claim. A plain client writes only where no owner has ever been.
    Plain {
        /// Whether the request is a write.
        writes: bool,
    },
}

/// The state of one member's server.
#[derive(Debug)]
pub struct Fence {
    mark: Option<Mark>,
    holder: Option<Claim>,
    /// The number of the holder's requests that the device has.
    requests: u64,
    /// The number of requests in the device from former holders and from clients without a claim.
    /// An owner's claim waits for their end.
    older_requests: u64,
}

impl Fence {
    /// A server that starts with this durable mark; `None` if it has never had an owner.
    #[must_use]
    pub fn new(mark: Option<Mark>) -> Self {
        Self { mark, holder: None, requests: 0, older_requests: 0 }
    }

    /// The durable mark.
    #[must_use]
    pub fn mark(&self) -> Option<Mark> {
        self.mark
    }

    /// Judges a claim; changes nothing.
    #[must_use]
    pub fn judge(&self, claim: &Claim) -> Judgement {
        let Some(mark) = self.mark else {
            return Judgement::Succeeds { mark: Some(Mark::of(claim)) };
        };
        let is_same = claim.epoch == mark.epoch && claim.owner == mark.owner;
        if planted(Bug::MarkUnwritten) && claim.epoch > mark.epoch {
            return Judgement::Succeeds { mark: None };
        }
        if claim.epoch > mark.epoch {
            return Judgement::Succeeds { mark: Some(Mark::of(claim)) };
        }
        if planted(Bug::EpochOwnerIgnored) && claim.epoch == mark.epoch {
            return Judgement::Succeeds { mark: None };
        }
        if !is_same {
            return Judgement::Refused(mark);
        }
        match self.holder {
            Some(holder) if claim.session == holder.session => Judgement::Joins,
            Some(holder) if claim.session < holder.session => Judgement::Refused(mark),
            _ => Judgement::Succeeds { mark: None },
        }
    }

    /// Makes `claim` the only claim that is served. Its mark is durable.
    ///
    /// # Panics
    /// If the claim is older than the holder's: [`Fence::judge`] refuses older claims.
    pub fn succeed(&mut self, claim: Claim) {
        let is_later = self.mark.is_none_or(|mark| claim.epoch >= mark.epoch);
        assert!(is_later, "a claim succeeds later ones");
        if planted(Bug::DrainForgotten) {
            self.older_requests = 0;
        }
        self.older_requests += std::mem::take(&mut self.requests);
        self.mark = Some(Mark::of(&claim));
        self.holder = Some(claim);
    }

    /// Whether all requests of other senders have returned from the device.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        if planted(Bug::FenceUndrained) {
            return true;
        }
        self.older_requests == 0
    }

    /// Begins a request; false if its sender is not served.
    #[must_use]
    pub fn begin(&mut self, user: User) -> bool {
        match user {
            User::Owner(claim) => {
                if planted(Bug::OldEpochServed) && self.holder != Some(claim) {
                    self.older_requests += 1;
                    return true;
                }
                let is_mark = self.mark == Some(Mark::of(&claim));
                if planted(Bug::OlderSessionServed) && is_mark && self.holder != Some(claim) {
                    self.older_requests += 1;
                    return true;
                }
                let is_holder = self.holder == Some(claim);
                self.requests += u64::from(is_holder);
                is_holder
            }
            User::Plain { writes } => {
                let is_served = !writes || self.mark.is_none();
                self.older_requests += u64::from(is_served && writes);
                is_served
            }
        }
    }

    /// Ends a request that began.
    ///
    /// # Panics
    /// If no such request has begun.
    pub fn end(&mut self, user: User) {
        let count = match user {
            User::Owner(claim) if self.holder == Some(claim) => &mut self.requests,
            User::Owner(_) | User::Plain { writes: true } => &mut self.older_requests,
            User::Plain { writes: false } => return,
        };
        if planted(Bug::DrainForgotten) {
            *count = (*count).max(1);
        }
        *count = count.checked_sub(1).expect("a request that ends has begun");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(epoch: u64, owner: u8, session: u64) -> Claim {
        Claim { epoch, owner: OwnerId([owner; 16]), session }
    }

    fn taken(fence: &mut Fence, claim: Claim) {
        assert!(matches!(fence.judge(&claim), Judgement::Succeeds { .. }), "{claim}");
        fence.succeed(claim);
    }

    #[test]
    fn lower_epochs_and_other_owners_are_refused() {
        let mut fence = Fence::new(None);
        taken(&mut fence, claim(3, 1, 0));
        let mark = Mark { epoch: 3, owner: OwnerId([1; 16]) };
        for other in [claim(2, 1, 9), claim(2, 2, 0), claim(3, 2, 9)] {
            assert_eq!(fence.judge(&other), Judgement::Refused(mark), "{other}");
            assert!(!fence.begin(User::Owner(other)));
        }
        assert_eq!(fence.judge(&claim(3, 1, 0)), Judgement::Joins);
        taken(&mut fence, claim(3, 1, 1));
        assert_eq!(fence.judge(&claim(3, 1, 0)), Judgement::Refused(mark), "an older session");
        taken(&mut fence, claim(4, 2, 0));
        assert!(!fence.begin(User::Owner(claim(3, 1, 1))));
    }

    #[test]
    fn a_restart_keeps_the_mark() {
        let mark = Mark { epoch: 5, owner: OwnerId([1; 16]) };
        let fence = Fence::new(Some(mark));
        assert_eq!(fence.judge(&claim(4, 2, 0)), Judgement::Refused(mark));
        assert_eq!(fence.judge(&claim(5, 1, 0)), Judgement::Succeeds { mark: None });
    }

    #[test]
    fn a_claim_waits_for_older_requests() {
        let mut fence = Fence::new(None);
        let plain = User::Plain { writes: true };
        assert!(fence.begin(plain));
        taken(&mut fence, claim(1, 1, 0));
        assert!(!fence.is_drained());
        fence.end(plain);
        assert!(
            fence.is_drained() && !fence.begin(plain) && fence.begin(User::Plain { writes: false })
        );
        let first = User::Owner(claim(1, 1, 0));
        assert!(fence.begin(first) && fence.is_drained());
        taken(&mut fence, claim(2, 2, 0));
        assert!(!fence.is_drained() && !fence.begin(first));
        assert!(fence.begin(User::Owner(claim(2, 2, 0))));
        fence.end(first);
        assert!(fence.is_drained());
    }
}
