//! Events for the operator's changes of members: the engine sends no notices of these changes.

use crate::event::Change;
use crate::kind::Kind;

/// A device became a member. `is_spare`: it has no slot. `returns`: it was a member before.
#[must_use]
pub fn added(array: &str, member: &str, (is_spare, returns): (bool, bool)) -> Change {
    let what = if is_spare { "waits as a spare" } else { "takes a free slot" };
    let again = if returns { "again " } else { "" };
    let message = format!("{member} is a member of {array} {again}and {what}");
    let change = Change::now(Kind::DiskAdded, message).of(member, None);
    change.with("spare", is_spare).with("returns", returns)
}

/// A device became the write journal.
#[must_use]
pub fn journaled(array: &str, member: &str) -> Change {
    let message = format!("{member} has the write journal of {array}");
    Change::now(Kind::DiskAdded, message).of(member, None).with("journal", true)
}

/// A spare of the array `from` became a member of `array`, which lacked one.
#[must_use]
pub fn moved(array: &str, member: &str, from: &str) -> Change {
    let message =
        format!("{member}, a spare of {from}, is a spare of {array} now, which lacks a member");
    Change::now(Kind::MoveSpare, message).of(member, None).with("from", from)
}

/// A member was removed, and its device closed; `slot` is its former slot.
#[must_use]
pub fn removed(array: &str, member: &str, slot: Option<u16>) -> Change {
    let had = slot.map(|slot| format!(" (it had slot {slot})")).unwrap_or_default();
    let message = format!("{member} was removed from {array}{had}");
    Change::now(Kind::DiskRemoved, message).of(member, slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_says_what_became_of_which_member() {
        for (change, kind, words) in [
            (
                added("tank", "/m4", (true, false)),
                Kind::DiskAdded,
                "/m4 is a member of tank and waits",
            ),
            (
                added("tank", "/m4", (false, true)),
                Kind::DiskAdded,
                "tank again and takes a free slot",
            ),
            (
                moved("tank", "/m4", "pool"),
                Kind::MoveSpare,
                "a spare of pool, is a spare of tank now",
            ),
            (journaled("tank", "/m4"), Kind::DiskAdded, "/m4 has the write journal of tank"),
            (removed("tank", "/m4", Some(1)), Kind::DiskRemoved, "tank (it had slot 1)"),
            (removed("tank", "/m4", None), Kind::DiskRemoved, "removed from tank"),
        ] {
            assert_eq!(change.kind, kind);
            assert!(change.message.contains(words), "{}", change.message);
            assert_eq!(change.subject.map(|subject| subject.member).as_deref(), Some("/m4"));
        }
    }
}
