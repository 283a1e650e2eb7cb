//! Settings in the words of `braid set`, from the command line or a file at the start.

use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};

/// Settings for the start, as keys and values of `braid set`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingWords(Vec<(&'static str, String)>);

impl SettingWords {
    /// The settings in `given` that have a value.
    pub fn new<'a>(given: impl IntoIterator<Item = (&'static str, &'a Option<String>)>) -> Self {
        let given = given.into_iter();
        Self(given.filter_map(|(key, value)| Some((key, value.clone()?))).collect())
    }

    pub(super) fn says(&self, key: &str) -> bool {
        self.0.iter().any(|(given, _)| *given == key)
    }

    /// Applies the settings whose key is in `keys`.
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

    /// Checks the settings whose key is in `keys`.
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
        "See the settings",
        "braid serve --help",
    )
}
