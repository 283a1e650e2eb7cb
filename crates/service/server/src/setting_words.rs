//! Settings in the words of `braid set`, as they are given at the start: on a command line, or in a
//! file.

use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};

/// Settings in the words of `braid set`, for the start: keys and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingWords(Vec<(&'static str, String)>);

impl SettingWords {
    /// Those of these keys that have a value.
    pub fn new<'a>(given: impl IntoIterator<Item = (&'static str, &'a Option<String>)>) -> Self {
        let given = given.into_iter();
        Self(given.filter_map(|(key, value)| Some((key, value.clone()?))).collect())
    }

    /// Whether this one was given.
    pub(super) fn says(&self, key: &str) -> bool {
        self.0.iter().any(|(given, _)| *given == key)
    }

    /// Sets those of these keys that were given.
    pub(super) fn apply<S>(
        &self,
        keys: &[&str],
        settings: &mut S,
        set: impl Fn(&mut S, &str, &str) -> Result<(), String>,
    ) -> Result<(), CliError> {
        for (key, value) in self.0.iter().filter(|(key, _)| keys.contains(key)) {
            set(settings, key, value).map_err(|why| bad_setting(key, value, &why))?;
        }
        Ok(())
    }

    /// Checks those of these keys that were given.
    pub(super) fn check(
        &self,
        keys: &[&str],
        check: impl Fn(&str) -> Result<(), String>,
    ) -> Result<(), CliError> {
        self.apply(keys, &mut (), |(), key, _| check(key))
    }
}

fn bad_setting(key: &str, value: &str, why: &str) -> CliError {
    CliError::new(Code::Usage, format!("--{key} cannot be '{value}'")).because(why).remedy(
        Risk::Look,
        "What there is to set",
        "braid serve --help",
    )
}
