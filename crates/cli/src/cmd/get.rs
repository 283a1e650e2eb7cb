//! `braid get`: prints the settings of a running array.

use braid_control::model::{SettingValue, SettingsAnswer};

use super::Globals;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Exit, Risk};
use braid_console::output::printable::printable;
use braid_console::output::size::format_size;
use braid_discovery::running::{self, unanswered};

const SIZES: [&str; 7] = [
    "bitmap-chunk",
    "cache-size",
    "stripe-unit",
    "dirty-limit",
    "payload-memory",
    "job-floor",
    "job-ceiling",
];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The array's name, its UUID, or the path of its control socket.
    #[arg(value_name = "ARRAY")]
    array: String,
    /// Print only the value of this setting.
    #[arg(value_name = "KEY")]
    key: Option<String>,
}

pub(crate) fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    get(&args.array, args.key.as_deref(), globals)
}

pub(super) fn get(array: &str, key: Option<&str>, globals: &Globals) -> Result<Exit, CliError> {
    let running = running::find(array)?;
    let answer = running.client().get::<SettingsAnswer>("/v1/settings");
    let mut answer = answer.map_err(|error| unanswered(&running.control, &error))?;
    if let Some(key) = key {
        let Some(value) = answer.settings.remove(key) else {
            let what = format!("there is no setting called {key}");
            let keys: Vec<String> = answer.settings.into_keys().collect();
            let error = CliError::new(Code::Usage, what)
                .about(key)
                .because(format!("there are {}", keys.join(", ")));
            let command = format!("braid get {}", running.word(&[]));
            return Err(error.remedy(Risk::Look, "See all settings", command));
        };
        if !globals.json {
            outln!("{}", printable(&value.to_string()));
            return Ok(Exit::Done);
        }
        answer.settings = [(key.to_owned(), value)].into();
    }
    tell(&answer, globals);
    Ok(Exit::Done)
}

pub(super) fn tell(answer: &SettingsAnswer, globals: &Globals) {
    if globals.json {
        outjson!(&serde_json::to_value(answer).expect("it is made of text and numbers"));
        return;
    }
    for (key, value) in &answer.settings {
        outln!("{:<18} {}", printable(key), value_words(key, value));
    }
}

pub(super) fn value_words(key: &str, value: &SettingValue) -> String {
    match value {
        SettingValue::Number(bytes) if SIZES.contains(&key) => format_size(*bytes),
        value => printable(&value.to_string()).into_owned(),
    }
}
