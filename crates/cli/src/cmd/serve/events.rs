//! Destinations of events, as options of `serve` and of `hook`.

use std::path::PathBuf;

use braid_events::hooks::mail::SENDMAIL;
use braid_server::EventConfig;

/// Options of `braid serve` and `braid hook` about events.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Telling")]
pub(crate) struct EventArgs {
    /// Run a shell command for each event, with the event as JSON on its standard input and in
    /// $BRAID_EVENT_...; its "$@" is what mdadm gives its PROGRAM.
    #[arg(long, value_name = "CMD")]
    on_event: Option<String>,
    /// Seconds after which the command of --on-event is ended.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    on_event_timeout: u64,
    /// POST each event as JSON to this address; again after a while if there is no answer.
    #[arg(long, value_name = "URL")]
    webhook: Option<String>,
    /// Mail critical events to this address.
    #[arg(long, value_name = "ADDRESS")]
    mail: Option<String>,
    /// The program that sends mail.
    #[arg(long, value_name = "PROGRAM", default_value = SENDMAIL)]
    sendmail: PathBuf,
}

impl EventArgs {
    pub(crate) fn config(&self) -> EventConfig {
        EventConfig {
            on_event: self.on_event.clone(),
            on_event_timeout: self.on_event_timeout,
            webhook: self.webhook.clone(),
            mail: self.mail.clone(),
            sendmail: self.sendmail.clone(),
        }
    }
}
