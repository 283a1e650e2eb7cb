//! Events about connections to members on other hosts, of which the engine sends no notices. The
//! module is pure.
//!
//! ```text
//!   connected ─ a look finds it down: LinkLost ─▶ lost ─ a look finds it up: LinkBack ─▶ connected
//!   connected ─ it was made anew between two looks: LinkBack ─▶ connected
//! ```
//!
//! A member that returns is in no list of members for a moment, between its old name and its new
//! one. So the loss of its connection is forgotten only when the member has been in no list for ten
//! seconds.
//!
//! Invariants
//! - each loss of a connection is reported once, and so is its end
//!   `[check: each_loss_and_its_end_are_reported_once]`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::event::Change;
use crate::kind::Kind;

/// How long a member that is in no list of members is remembered. This is longer than a member's
/// return takes to write superblocks.
const REMEMBERED: Duration = Duration::from_secs(10);

/// The state of the connection to a member on another host, when it was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkLook {
    /// The member's URI.
    pub member: String,
    /// The member's slot; `None` for a spare.
    pub slot: Option<u16>,
    /// Whether the member's server can be reached, as far as is known.
    pub is_up: bool,
    /// Number of times that the connection was renewed after a loss.
    pub reconnects: u64,
    /// The cause of the last loss of the connection; empty if there was no loss.
    pub last_loss: String,
    /// Mean time of the last requests to the member's server.
    pub mean_latency: Duration,
}

/// The connections to members on other hosts, as of the last look.
#[derive(Debug, Default)]
pub struct Links(BTreeMap<String, Known>);

#[derive(Debug)]
struct Known {
    /// The time of the last look that found the member.
    seen: Duration,
    reconnects: u64,
    /// The present loss of the connection.
    loss: Option<Loss>,
}

#[derive(Clone, Copy, Debug)]
struct Loss {
    /// The time when a look found the connection lost.
    since: Duration,
    /// The member's slot when the loss was found. A member that was away waits for its slot as a
    /// spare for a moment.
    slot: Option<u16>,
}

impl Links {
    /// The changes of connections since the last look. `now` is the time since an arbitrary start.
    pub fn changes(&mut self, array: &str, now: Duration, looks: &[LinkLook]) -> Vec<Change> {
        self.0.retain(|_, known| now.saturating_sub(known.seen) < REMEMBERED);
        looks.iter().filter_map(|look| self.change(array, now, look)).collect()
    }

    fn change(&mut self, array: &str, now: Duration, look: &LinkLook) -> Option<Change> {
        let first = Known { seen: now, reconnects: look.reconnects, loss: None };
        let known = self.0.entry(look.member.clone()).or_insert(first);
        known.seen = now;
        let is_anew = look.reconnects > known.reconnects;
        known.reconnects = look.reconnects;
        match (look.is_up, known.loss) {
            (false, None) => {
                known.loss = Some(Loss { since: now, slot: look.slot });
                Some(lost(array, look))
            }
            (true, Some(Loss { since, slot })) => {
                known.loss = None;
                let look = LinkLook { slot: look.slot.or(slot), ..look.clone() };
                Some(back(array, &look, Some(now.saturating_sub(since))))
            }
            (true, None) if is_anew => Some(back(array, look, None)),
            (true, None) | (false, Some(_)) => None,
        }
    }
}

fn subject(array: &str, look: &LinkLook) -> String {
    let slot = look.slot.map(|slot| format!("slot {slot}")).unwrap_or_else(|| "a spare".to_owned());
    format!("the connection to {} ({slot} of {array})", look.member)
}

fn lost(array: &str, look: &LinkLook) -> Change {
    let because = match look.last_loss.as_str() {
        "" => String::new(),
        why => format!(": {why}"),
    };
    let message = format!("{} is lost{because}", subject(array, look));
    let change = Change::now(Kind::LinkLost, message).of(&look.member, look.slot);
    let change = change.with("reconnects", look.reconnects).with("why", look.last_loss.as_str());
    change.advising("its requests wait, and are sent again as soon as its server answers")
}

/// The event that a connection is back. `after` is `None` for a connection that was lost and
/// renewed between two looks.
fn back(array: &str, look: &LinkLook, after: Option<Duration>) -> Change {
    let (subject, milliseconds) = (subject(array, look), |time: Duration| number(time.as_millis()));
    let message = match after.map(milliseconds) {
        Some(after_ms) => format!("{subject} was made anew after {after_ms} ms"),
        None => format!("{subject} was lost and made anew at once: {}", look.last_loss),
    };
    let change = Change::now(Kind::LinkBack, message).of(&look.member, look.slot);
    let change = change.with("reconnects", look.reconnects);
    let change = change.with("latency_us", number(look.mean_latency.as_micros()));
    match after.map(milliseconds) {
        Some(after_ms) => change.with("after_ms", after_ms),
        None => change.with("why", look.last_loss.as_str()),
    }
}

fn number(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(is_up: bool, reconnects: u64) -> LinkLook {
        LinkLook {
            member: "nbd://h1/".to_owned(),
            slot: Some(2),
            is_up,
            reconnects,
            last_loss: "connection reset".to_owned(),
            mean_latency: Duration::from_micros(340),
        }
    }

    #[test]
    fn each_loss_and_its_end_are_reported_once() {
        let mut links = Links::default();
        let mut kinds = |ms, is_up, reconnects| -> Vec<(Kind, Option<u64>)> {
            let changes =
                links.changes("tank", Duration::from_millis(ms), &[look(is_up, reconnects)]);
            changes.iter().map(|one| (one.kind.clone(), one.number("after_ms"))).collect()
        };
        // Losses of connections before the first look are not reported.
        assert_eq!(kinds(0, true, 7), []);
        assert_eq!(kinds(1000, true, 7), []);
        assert_eq!(kinds(2000, false, 7), [(Kind::LinkLost, None)]);
        assert_eq!(kinds(3000, false, 7), []);
        // The connection was back and lost again between two looks.
        assert_eq!(kinds(4000, false, 8), []);
        assert_eq!(kinds(5500, true, 9), [(Kind::LinkBack, Some(3500))]);
        assert_eq!(kinds(6500, true, 9), []);
        assert_eq!(kinds(7500, true, 11), [(Kind::LinkBack, None)]);
        // The member leaves the array while its connection is down, and returns as a new member.
        assert_eq!(kinds(8500, false, 11), [(Kind::LinkLost, None)]);
        assert_eq!(links.changes("tank", Duration::from_secs(9), &[]), []);
        assert_eq!(links.changes("tank", Duration::from_secs(19), &[look(true, 0)]), []);
    }

    /// Regression: a look during a member's return found the member in no list, so the return of
    /// the connection was not reported.
    #[test]
    fn a_member_that_is_in_no_list_for_a_moment_is_still_told_back() {
        let mut links = Links::default();
        let mut kinds = |seconds, looks: &[LinkLook]| -> Vec<Kind> {
            let changes = links.changes("tank", Duration::from_secs(seconds), looks);
            changes.into_iter().map(|one| one.kind).collect()
        };
        assert_eq!(kinds(0, &[look(true, 0)]), []);
        assert_eq!(kinds(1, &[look(false, 0)]), [Kind::LinkLost]);
        assert_eq!(kinds(2, &[]), []);
        assert_eq!(kinds(3, &[look(true, 1)]), [Kind::LinkBack]);
        // The member is in no list between its loss and its return, and nothing is reported twice.
        assert_eq!(kinds(4, &[]), []);
        assert_eq!(kinds(5, &[look(true, 1)]), []);
    }

    /// Regression: a returning member waits as a spare for a moment, and the event about its
    /// connection had no slot.
    #[test]
    fn a_connection_that_is_back_has_the_slot_of_its_loss() {
        let mut links = Links::default();
        let mut slots = |seconds, is_up, reconnects, slot| -> Vec<Option<u16>> {
            let look = LinkLook { slot, ..look(is_up, reconnects) };
            let changes = links.changes("tank", Duration::from_secs(seconds), &[look]);
            changes.iter().map(|one| one.subject.as_ref().and_then(|one| one.slot)).collect()
        };
        assert_eq!(slots(0, true, 0, Some(2)), []);
        assert_eq!(slots(1, false, 0, Some(2)), [Some(2)]);
        assert_eq!(slots(2, true, 1, None), [Some(2)]);
    }

    #[test]
    fn an_event_says_whose_connection_it_is_and_has_its_numbers() {
        let lost = lost("tank", &look(false, 3));
        assert_eq!(
            lost.message,
            "the connection to nbd://h1/ (slot 2 of tank) is lost: connection reset"
        );
        assert_eq!(
            (lost.word("why"), lost.number("reconnects")),
            (Some("connection reset"), Some(3))
        );
        let back = back("tank", &LinkLook { slot: None, ..look(true, 4) }, Some(Duration::ZERO));
        assert_eq!(
            back.message,
            "the connection to nbd://h1/ (a spare of tank) was made anew after 0 ms"
        );
        let numbers = ["reconnects", "latency_us", "after_ms"].map(|name| back.number(name));
        assert_eq!(numbers, [Some(4), Some(340), Some(0)]);
        let subject = back.subject.expect("a member");
        assert_eq!((subject.member.as_str(), subject.slot), ("nbd://h1/", None));
    }
}
