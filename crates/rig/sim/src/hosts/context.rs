//! The world as hosts, servers and the store see it: chance, checker, counts, outgoing messages.
//!
//! Where it stands: between the machines of this folder and the world, which makes one context for
//! each event.

use super::checker::Checker;
use super::message::Sent;
use crate::random::Random;
use crate::tally::Tally;

/// The operator's demand on take-overs after the store was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// No demand: the store has its newest record.
    None,
    /// The next take-over meets a server with a higher epoch, whichever members it claims.
    IsNoticed,
    /// Take-overs need all members, until the owner after such a take-over serves.
    All,
}

pub(super) struct Context<'a> {
    /// The world's time. Hosts compute with their own clocks, and give this time to the checker.
    pub(super) now: u64,
    pub(super) random: &'a mut Random,
    pub(super) checker: &'a mut Checker,
    pub(super) tally: &'a mut Tally,
    pub(super) sent: &'a mut Vec<Sent>,
    pub(super) rule: &'a mut Rule,
}
