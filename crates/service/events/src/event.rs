//! An event: one change of state, reported exactly once.
//!
//! A [`Change`] has a kind and a time. Only the [`crate::teller`] numbers a change, which makes it
//! an [`Event`]. In JSON an event is one object in one line. docs/monitoring.md describes an
//! event's fields, docs/event.schema.json its schema. Fields and words never change, or [`SCHEMA`]
//! changes.
//!
//! Invariants
//! - reading returns the written event `[check: an_event_is_read_back_as_it_was]`;
//! - written events match the shipped schema `[check: every_event_fits_the_shipped_schema]`.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use braid_runtime::AnswerWords;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::kind::{Kind, Severity};

/// The version of an event's form in JSON.
pub const SCHEMA: u32 = 1;

/// A moment in UTC, to the microsecond: `2026-11-20T23:36:03.123456Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

/// The last second of the year 9999: no working clock exceeds it, and the text form ends there.
const SECONDS_MAX: u64 = 253_402_300_799;

impl Moment {
    /// Now, by the system's clock, limited to the years 1970 to 9999.
    #[must_use]
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::from_unix(since)
    }

    /// The moment that is `since` after the start of 1970.
    #[must_use]
    pub fn from_unix(since: Duration) -> Self {
        let seconds = since.as_secs().min(SECONDS_MAX);
        Self(seconds * 1_000_000 + u64::from(since.subsec_micros()))
    }

    /// The time since the start of 1970.
    #[must_use]
    pub fn since_unix(self) -> Duration {
        Duration::from_micros(self.0)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_rfc3339_micros(UNIX_EPOCH + self.since_unix()).fmt(formatter)
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time = humantime::parse_rfc3339(&text).map_err(serde::de::Error::custom)?;
        Ok(Self::from_unix(time.duration_since(UNIX_EPOCH).unwrap_or_default()))
    }
}

/// An array by its name and UUID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name it is served under.
    pub array: String,
    /// The UUID in md's form.
    pub uuid: String,
}

/// The affected member, if the event is not about the array as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// The member's path, as given to braid.
    pub member: String,
    /// The member's present or former slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u16>,
}

/// A failure of a member: a [`braid_runtime::Cause`] in stable words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// The failed member's path, as given to braid.
    pub member: String,
    /// The failed operation.
    pub operation: String,
    /// First sector of 512 bytes on the member; absent if the operation affects all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sector: Option<u64>,
    /// Number of sectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sectors: Option<u32>,
    /// The member's answer.
    pub answer: String,
    /// The operating system's error number, if the answer has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_error: Option<i32>,
    /// The answer in words for people.
    pub error: String,
}

impl Why {
    /// The failure in `cause`, with the label of the member that failed.
    #[must_use]
    pub fn new(cause: &braid_runtime::Cause, member: &str) -> Self {
        let has_place = cause.sectors > 0;
        Self {
            member: member.to_owned(),
            operation: cause.asked.word().to_owned(),
            sector: has_place.then_some(cause.sector),
            sectors: has_place.then_some(cause.sectors),
            answer: cause.answer.word().to_owned(),
            os_error: cause.answer.os_error(),
            error: AnswerWords(cause.answer).to_string(),
        }
    }
}

/// The failure as part of a sentence: `read of 8 sectors at sector 2048 failed: Input/output error
/// (os error 5)`.
impl fmt::Display for Why {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operation.as_str() {
            "nothing" => return formatter.write_str("an operator requested it"),
            "look" => return formatter.write_str("its name no longer leads to it"),
            "zero" => formatter.write_str("zeroing")?,
            "bad-block-log-write" => formatter.write_str("bad-block log write")?,
            operation => formatter.write_str(&operation.replace('-', " "))?,
        }
        match (self.sectors, self.sector) {
            (Some(1), Some(sector)) => write!(formatter, " of 1 sector at sector {sector}")?,
            (Some(count), Some(sector)) => {
                write!(formatter, " of {count} sectors at sector {sector}")?;
            }
            _ => {}
        }
        write!(formatter, " failed: {}", self.error)
    }
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The job is complete.
    Completed,
    /// The job ended before it was complete, for any reason: mdadm's events do not distinguish
    /// reasons.
    Aborted,
}

impl Outcome {
    /// The outcome's word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Aborted => "aborted",
        }
    }
}

/// The result of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobResult {
    /// The job's outcome.
    pub outcome: Outcome,
    /// The job's counters, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
}

/// An additional value of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Detail {
    /// Yes or no.
    Flag(bool),
    /// A number; its name ends with the unit.
    Number(u64),
    /// A word.
    Word(String),
    /// A value of a newer version, kept unchanged.
    Other(serde_json::Value),
}

impl From<bool> for Detail {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<u64> for Detail {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Detail {
    fn from(word: &str) -> Self {
        Self::Word(word.to_owned())
    }
}

/// An event without a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The time of the change.
    pub time: Moment,
    /// The kind of the change.
    pub kind: Kind,
    /// A description of the change, for people.
    pub message: String,
    /// Consequences of the change, and remedies, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// The member that the change affects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Subject>,
    /// The failure that caused the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Why>,
    /// The result of the job that ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<JobResult>,
    /// Additional values, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<String, Detail>,
}

impl Change {
    /// Makes a change with the present time.
    #[must_use]
    pub fn now(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            time: Moment::now(),
            kind,
            message: message.into(),
            advice: None,
            subject: None,
            cause: None,
            result: None,
            details: BTreeMap::new(),
        }
    }

    /// Adds advice to a change: consequences and remedies.
    #[must_use]
    pub fn advising(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Sets the member that the change affects.
    #[must_use]
    pub fn of(mut self, member: &str, slot: Option<u16>) -> Self {
        self.subject = Some(Subject { member: member.to_owned(), slot });
        self
    }

    /// Sets the failure that caused the change.
    #[must_use]
    pub fn because(mut self, why: Why) -> Self {
        self.cause = Some(why);
        self
    }

    /// Adds a value to the change; `name` is in lower case, words joined by `_`, the unit last.
    #[must_use]
    pub fn with(mut self, name: &str, detail: impl Into<Detail>) -> Self {
        self.details.insert(name.to_owned(), detail.into());
        self
    }

    /// Adds the result of a job to the change.
    #[must_use]
    pub fn ended(mut self, outcome: Outcome, counts: &[(&str, u64)]) -> Self {
        let counts = counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        self.result = Some(JobResult { outcome, counts });
        self
    }

    /// The change's additional value with this name, if the value is a word.
    #[must_use]
    pub fn word(&self, name: &str) -> Option<&str> {
        match self.details.get(name) {
            Some(Detail::Word(word)) => Some(word),
            _ => None,
        }
    }

    /// The change's additional value with this name, if the value is a number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.details.get(name) {
            Some(Detail::Number(number)) => Some(*number),
            _ => None,
        }
    }
}

/// A change with its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The version of the JSON.
    pub schema: u32,
    /// The event's number: consecutive for this array on this machine, across runs.
    pub id: u64,
    /// The name that the array is served under.
    pub array: String,
    /// The array's UUID, in md's form.
    pub uuid: String,
    /// How severe the change is.
    pub severity: Severity,
    /// The change.
    #[serde(flatten)]
    pub change: Change,
}

impl Event {
    /// Makes an event of a change by giving it a number.
    #[must_use]
    pub fn new(id: u64, identity: &Identity, change: Change) -> Self {
        Self {
            schema: SCHEMA,
            id,
            array: identity.array.clone(),
            uuid: identity.uuid.clone(),
            severity: change.kind.severity(),
            change,
        }
    }

    /// The event as one line of JSON, without a newline.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("it is text and numbers, and its keys are text")
    }
}

#[cfg(test)]
mod schema_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn an_event_is_read_back_as_it_was() {
        for event in samples::events() {
            let line = event.to_json();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(serde_json::from_str::<Event>(&line).expect("JSON"), event, "{line}");
        }
    }

    #[test]
    fn a_newer_braid_may_say_more() {
        let line = r#"{"schema":1,"id":7,"time":"2026-11-20T23:36:03Z","array":"tank","uuid":"u",
            "kind":"Novelty","severity":"info","message":"m","colour":"red","details":{"a":1,"b":"c","d":true}}"#;
        let event: Event = serde_json::from_str(line).expect("JSON");
        assert_eq!(event.change.kind, Kind::Other("Novelty".to_owned()));
        assert_eq!(event.change.number("a"), Some(1));
        assert_eq!(event.change.details["d"], Detail::Flag(true));
    }

    #[test]
    fn moments_are_written_in_utc_and_bounded() {
        let moment = Moment::from_unix(Duration::from_micros(951_782_400_000_007));
        assert_eq!(moment.to_string(), "2000-02-29T00:00:00.000007Z");
        assert_eq!(Moment::from_unix(Duration::MAX).to_string().len(), moment.to_string().len());
    }
}
