//! Kinds of events: md's words where mdadm's monitor has one, ours where md has none.
//!
//! A word is part of the interface: it stays, and new ones may come. A word that this version does not know is kept as it is,
//! so that the history of a newer braid can be read by an older one. The words of mdadm and their weights are those of its
//! manual page (`mdadm(8)`, MONITOR MODE).
//!
//! Invariants
//! - each kind is read back as itself, and a word that is none stays what it is
//!   `[check: each_word_is_read_back_and_others_are_kept]`.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// To know.
    Info,
    /// To look at.
    Warning,
    /// To act on: redundancy or data is at stake. Mail is sent for these.
    Critical,
}

impl Severity {
    /// One word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// The kinds that are one word each.
macro_rules! kinds {
    ($($(#[doc = $text:literal])+ $name:ident $severity:ident,)+) => {
        /// What changed.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind {
            $($(#[doc = $text])+ $name,)+
            /// md's `RebuildNN`: a job has passed so many percent. Info.
            Rebuild(Percent),
            /// A word that this version does not know.
            Other(String),
        }

        impl Kind {
            /// Those that are one word, in the order of the documentation.
            pub const NAMED: &'static [Self] = &[$(Self::$name,)+];

            const fn named(&self) -> Option<(&'static str, Severity)> {
                match self {
                    $(Self::$name => Some((stringify!($name), Severity::$severity)),)+
                    Self::Rebuild(_) | Self::Other(_) => None,
                }
            }
        }
    };
}

kinds! {
    /// md: an array was found degraded when it was first looked at.
    DegradedArray Critical,
    /// md: an array that was there is not there any more.
    DeviceDisappeared Critical,
    /// md: a member failed and is out.
    Fail Critical,
    /// md: a member that was being rebuilt failed.
    FailSpare Critical,
    /// md: a spare went from one array to another.
    MoveSpare Info,
    /// md: an array that was not known here before.
    NewArray Info,
    /// md: members that do not hold all they should are being recovered.
    RebuildStarted Warning,
    /// md: that ended; how is the event's result.
    RebuildFinished Warning,
    /// md: a member has been rebuilt and is active.
    SpareActive Info,
    /// md: fewer spares than there should be.
    SparesMissing Warning,
    /// md: nothing happened; asked for by a person who wants to see that telling works.
    TestMessage Info,
    /// An array was started.
    ArrayStarted Info,
    /// An array was stopped.
    ArrayStopped Info,
    /// More members failed than the level can make up for: writes are refused.
    Broken Critical,
    /// The bitmap file beside the array failed: it goes on without.
    BitmapFileLost Warning,
    /// A check began.
    CheckStarted Info,
    /// A check ended; how is the event's result.
    CheckFinished Info,
    /// A check found what does not fit, and which part of it is wrong cannot be told.
    CorruptionAmbiguous Critical,
    /// A check found what is wrong, and in which member; it was not repaired.
    CorruptionLocated Critical,
    /// A check found what was wrong, and repaired it.
    CorruptionRepaired Warning,
    /// A member was added.
    DiskAdded Info,
    /// A member has not answered for too long: the array goes on without it until it does.
    DiskAway Warning,
    /// A member was removed.
    DiskRemoved Info,
    /// A member that was away has answered, and comes back.
    DiskReturned Info,
    /// Events came faster than they could be kept, and some were dropped.
    EventsLost Warning,
    /// The file system below a member is full: writes are refused.
    OutOfSpace Critical,
    /// A member has had more read errors than it may have; all were corrected.
    ReadErrors Warning,
    /// A member is to be replaced by another, and serves until that holds all.
    ReplaceWanted Info,
    /// A resync began.
    ResyncStarted Info,
    /// A resync ended; how is the event's result.
    ResyncFinished Info,
    /// A member is much slower than its siblings and is read around.
    SlowDisk Warning,
    /// It is read again.
    SlowDiskBack Info,
    /// A spare of this array has taken the place of a member; it is recovered next.
    SpareTaken Info,
    /// A member is an old copy and was left out.
    StaleDiskIgnored Warning,
    /// A write that had been answered is lost.
    WriteLost Critical,
    /// A member may not be written any more: writes are refused.
    WriteProtected Critical,
}

/// A number of percent, 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent(u8);

impl Percent {
    /// None if it is more than 100.
    #[must_use]
    pub const fn new(percent: u8) -> Option<Self> {
        if percent <= 100 { Some(Self(percent)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl Kind {
    /// How much it matters.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        match (self, self.named()) {
            (_, Some((_, severity))) => severity,
            (Self::Other(_), None) => Severity::Warning,
            (_, None) => Severity::Info,
        }
    }

    /// Whether mail is sent for it: for what is critical, and to see that mail works.
    #[must_use]
    pub fn is_mailed(&self) -> bool {
        self.severity() == Severity::Critical
            || matches!(self, Self::TestMessage | Self::SparesMissing)
    }

    /// The kind of a word.
    #[must_use]
    pub fn of(word: &str) -> Self {
        let is_it = |kind: &&Self| kind.named().is_some_and(|(name, _)| name == word);
        if let Some(kind) = Self::NAMED.iter().find(is_it) {
            return kind.clone();
        }
        let percent = word.strip_prefix("Rebuild").filter(|digits| digits.len() >= 2);
        let percent = percent.and_then(|digits| digits.parse().ok()).and_then(Percent::new);
        let kind = percent.map(Self::Rebuild).filter(|kind| kind.to_string() == word);
        kind.unwrap_or_else(|| Self::Other(word.to_owned()))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.named()) {
            (_, Some((name, _))) => formatter.write_str(name),
            (Self::Other(word), None) => formatter.write_str(word),
            (Self::Rebuild(percent), None) => write!(formatter, "Rebuild{:02}", percent.0),
            (_, None) => unreachable!("all others are one word"),
        }
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::of(&String::deserialize(deserializer)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_read_back_and_others_are_kept() {
        let percents = (0..=100).filter_map(Percent::new).map(Kind::Rebuild);
        for kind in Kind::NAMED.iter().cloned().chain(percents) {
            assert_eq!(Kind::of(&kind.to_string()), kind);
            let json = serde_json::to_string(&kind).expect("JSON");
            assert_eq!(serde_json::from_str::<Kind>(&json).expect("JSON"), kind);
        }
        for word in ["Rebuild", "Rebuild5", "Rebuild101", "Rebuild+5", "Rebuild0050", "fail", ""] {
            assert_eq!(Kind::of(word), Kind::Other(word.to_owned()));
            assert_eq!(Kind::of(word).to_string(), word);
        }
        assert_eq!(Kind::of("Rebuild05").to_string(), "Rebuild05");
    }

    /// What mdadm mails is mailed, and its weights are its own.
    #[test]
    fn mdadm_mails_these() {
        for word in ["Fail", "FailSpare", "DegradedArray", "SparesMissing", "TestMessage"] {
            assert!(Kind::of(word).is_mailed(), "{word}");
        }
        for word in ["SpareActive", "NewArray", "RebuildStarted", "Rebuild20", "MoveSpare"] {
            assert!(!Kind::of(word).is_mailed(), "{word}");
        }
        assert_eq!(Kind::DeviceDisappeared.severity(), Severity::Critical);
        assert_eq!(Kind::RebuildFinished.severity(), Severity::Warning);
    }
}
