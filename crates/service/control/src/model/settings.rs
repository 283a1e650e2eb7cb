//! Settings of a running array, by the words of `braid set`.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings by key: the options of `braid serve` without the leading dashes.
pub type Settings = BTreeMap<String, SettingValue>;

/// A setting's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum SettingValue {
    /// A count, or a size in bytes.
    Number(u64),
    /// A word, or a size with its unit.
    Text(String),
}

impl fmt::Display for SettingValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(formatter),
            Self::Text(text) => text.fmt(formatter),
        }
    }
}

impl From<u64> for SettingValue {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for SettingValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for SettingValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// An array's settings: the answer to `GET` and `PATCH /v1/settings`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SettingsAnswer {
    /// The version of this object: 1.
    pub version: u32,
    /// The array's name.
    pub name: String,
    /// The array's UUID.
    pub uuid: String,
    /// The settings; after a dry run, the expected settings.
    pub settings: Settings,
    /// The request's changes, by key; empty after a `GET`. Equal values are no change.
    pub changed: BTreeMap<String, Change>,
    /// Whether this was a dry run, which changes nothing.
    pub dry_run: bool,
}

/// A setting that changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The old value; null if it was not set.
    pub from: Option<SettingValue>,
    /// The new value; null if it is no longer set.
    pub to: Option<SettingValue>,
}

impl SettingsAnswer {
    /// The differences between two sets of settings.
    #[must_use]
    pub fn changes(from: &Settings, to: &Settings) -> BTreeMap<String, Change> {
        let keys = from.keys().chain(to.keys());
        let change = |key: &String| {
            let (from, to) = (from.get(key).cloned(), to.get(key).cloned());
            (from != to).then(|| (key.clone(), Change { from, to }))
        };
        keys.filter_map(change).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_a_change_and_what_does_not_is_none() {
        let settings = |pairs: &[(&str, u64)]| -> Settings {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect()
        };
        let changes = SettingsAnswer::changes(
            &settings(&[("same", 1), ("other", 2), ("gone", 3)]),
            &settings(&[("same", 1), ("other", 4), ("new", 5)]),
        );
        let number = |number: u64| Some(SettingValue::Number(number));
        let expected = BTreeMap::from([
            ("gone".to_owned(), Change { from: number(3), to: None }),
            ("new".to_owned(), Change { from: None, to: number(5) }),
            ("other".to_owned(), Change { from: number(2), to: number(4) }),
        ]);
        assert_eq!(changes, expected);
    }
}
