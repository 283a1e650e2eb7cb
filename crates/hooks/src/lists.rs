//! What can be planted, chosen and marked: names, each with one line of what it is.
//!
//! The lists are the simulator's tables, too: what is in a list and nowhere in the product is never
//! caught, never said yes to and never reached, and the simulator says so.

/// An enum whose variants have a name for people and, from their documentation, a line of text.
macro_rules! named {
    ($(#[doc = $about:literal])+ enum $list:ident {
        $($(#[doc = $text:literal])+ $variant:ident = $name:literal,)+
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $list {
            $($(#[doc = $text])+ $variant,)+
        }

        impl $list {
            /// All of them, in the order of the list.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// What it is.
            #[must_use]
            pub const fn text(self) -> &'static str {
                let text = match self {
                    $(Self::$variant => concat!($($text),+),)+
                };
                text.trim_ascii()
            }
        }
    };
}

named! {
    /// A mistake that can be planted, to see that the simulator notices it.
    enum Bug {
        /// Parity and engine: P and Q change places when both are made anew.
        SwapPAndQ = "swap-p-and-q",
    }
}

named! {
    /// A choice that is rare but legal; made more often, it meets what is rare.
    enum Point {
        /// A shard has one stripe, whatever it was made for.
        OneStripe = "one-stripe",
    }
}

named! {
    /// A path in the product that every longer run of the simulator takes.
    enum Mark {
        /// Stripe, any phase: something is outstanding.
        StripeWaits = "stripe-waits",
        /// Stripe, ready: no work.
        StripeIdle = "stripe-idle",
        /// Stripe, ready: work, but another band's turn has come.
        StripeYields = "stripe-yields",
        /// Stripe, ready: a batch begins.
        StripeBegins = "stripe-begins",
        /// Stripe, fill: columns are read.
        StripeReads = "stripe-reads",
        /// Stripe, fill: nothing is lacking.
        StripeComputes = "stripe-computes",
        /// Stripe, fill: more is lost than can be solved for.
        StripeRefusesUnread = "stripe-refuses-unread",
        /// Stripe, compute: members are written.
        StripeWrites = "stripe-writes",
        /// Stripe, write: everybody has it.
        StripeFinishes = "stripe-finishes",
        /// Stripe, write: a member missed it and is still believed.
        StripeHolds = "stripe-holds",
        /// Stripe, hold: the loss is recorded.
        StripeFinishesHeld = "stripe-finishes-held",
        /// Stripe, hold: the loss is not recorded yet.
        StripeKeepsHolding = "stripe-keeps-holding",
        /// Stripe, hold: the array takes no more writes.
        StripeRefusesHeld = "stripe-refuses-held",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_everything_is_explained() {
        let bugs = Bug::ALL.iter().map(|bug| (bug.name(), bug.text()));
        let points = Point::ALL.iter().map(|point| (point.name(), point.text()));
        let marks = Mark::ALL.iter().map(|mark| (mark.name(), mark.text()));
        let all: Vec<(&str, &str)> = bugs.chain(points).chain(marks).collect();
        let names: std::collections::BTreeSet<&str> = all.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), all.len());
        assert!(all.iter().all(|(name, text)| text.ends_with('.') && !name.contains(' ')));
    }
}
