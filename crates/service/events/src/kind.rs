//! Kinds of events: the words of mdadm's monitor, and braid's own where md has none.
//!
//! Words are part of the interface: they never change, and new words may be added. An unknown word
//! is kept, so that an older braid can read the history of a newer one. mdadm's words and
//! severities come from its manual page (`mdadm(8)`, MONITOR MODE).
//!
//! Invariants
//! - each word is read back as its kind, and an unknown word stays unchanged
//!   `[check: each_word_is_read_back_and_others_are_kept]`.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// For information.
    Info,
    /// Needs a look.
    Warning,
    /// Needs action: redundancy or data are at stake. Mail is sent for these.
    Critical,
}

impl Severity {
    /// The severity's word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// Declares the kinds of events that are one word each.
macro_rules! kinds {
    ($($(#[doc = $text:literal])+ $name:ident $severity:ident,)+) => {
        /// A kind of change to an array.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind {
            $($(#[doc = $text])+ $name,)+
            /// md's `RebuildNN`: a job has passed this percentage. Info.
            Rebuild(Percent),
            /// A word that this version does not know.
            Other(String),
        }

        impl Kind {
            /// Kinds of one word, in the order of the documentation.
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
    /// md: the array was degraded when the monitor first saw it.
    DegradedArray Critical,
    /// md: a known array has disappeared.
    DeviceDisappeared Critical,
    /// md: a member failed and is out.
    Fail Critical,
    /// md: a member that was being rebuilt failed.
    FailSpare Critical,
    /// md: a spare went from one array to another.
    MoveSpare Info,
    /// md: a new array appeared.
    NewArray Info,
    /// md: the recovery of members began.
    RebuildStarted Warning,
    /// md: the recovery ended; the event has its result.
    RebuildFinished Warning,
    /// md: a member has been rebuilt and is active.
    SpareActive Info,
    /// md: fewer spares than there should be.
    SparesMissing Warning,
    /// md: a test of the event hooks, on request.
    TestMessage Info,
    /// An array was started.
    ArrayStarted Info,
    /// An array was stopped.
    ArrayStopped Info,
    /// More members failed than the level tolerates: the array refuses writes.
    Broken Critical,
    /// The bitmap file failed: the array continues without it.
    BitmapFileLost Warning,
    /// A check began.
    CheckStarted Info,
    /// A check ended; the event has its result.
    CheckFinished Info,
    /// A check found a disagreement, and the wrong member is unknown.
    CorruptionAmbiguous Critical,
    /// A check found wrong sectors and their member; it did not repair them.
    CorruptionLocated Critical,
    /// A check found wrong sectors and repaired them.
    CorruptionRepaired Warning,
    /// A member was added.
    DiskAdded Info,
    /// A member has not answered for too long: the array continues without it until it does.
    DiskAway Warning,
    /// A member was removed.
    DiskRemoved Info,
    /// A member that was away has answered, and comes back.
    DiskReturned Info,
    /// Some events were dropped because they came too fast.
    EventsLost Warning,
    /// The connection to a member on another host was made anew.
    LinkBack Info,
    /// The connection to a member on another host is lost.
    LinkLost Warning,
    /// The file system below a member is full: the array refuses writes.
    OutOfSpace Critical,
    /// A member exceeds the limit of read errors; all were corrected.
    ReadErrors Warning,
    /// A member is being replaced, and serves until the replacement is complete.
    ReplaceWanted Info,
    /// A resync began.
    ResyncStarted Info,
    /// A resync ended; the event has its result.
    ResyncFinished Info,
    /// A reshape met sectors that no member could give: reads of them fail until they are written.
    SectorsLost Critical,
    /// A member is much slower than its siblings; reads avoid it.
    SlowDisk Warning,
    /// A slow member is read again.
    SlowDiskBack Info,
    /// A spare of this array took a slot; its recovery follows.
    SpareTaken Info,
    /// A stale member was left out.
    StaleDiskIgnored Warning,
    /// An acknowledged write is lost.
    WriteLost Critical,
    /// A member is write-protected: the array refuses writes.
    WriteProtected Critical,
}

/// A percentage, 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent(u8);

impl Percent {
    /// Makes a percentage; `None` if `percent` exceeds 100.
    #[must_use]
    pub const fn new(percent: u8) -> Option<Self> {
        if percent <= 100 { Some(Self(percent)) } else { None }
    }

    /// The percentage as a number.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl Kind {
    /// The kind's severity.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        match (self, self.named()) {
            (_, Some((_, severity))) => severity,
            (Self::Other(_), None) => Severity::Warning,
            (_, None) => Severity::Info,
        }
    }

    /// Whether events of this kind are mailed: critical events, and tests of mail.
    #[must_use]
    pub fn is_mailed(&self) -> bool {
        self.severity() == Severity::Critical
            || matches!(self, Self::TestMessage | Self::SparesMissing)
    }

    /// The kind that a word names.
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

    /// Braid mails each event that mdadm mails, and keeps mdadm's severities.
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
