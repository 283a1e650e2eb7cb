//! A command that runs for each event, like the `PROGRAM` of mdadm's monitor.
//!
//! ```text
//!   standard input              the event as one line of JSON
//!   BRAID_EVENT                 its kind
//!   BRAID_EVENT_ID              its number
//!   BRAID_EVENT_TIME            when, in UTC
//!   BRAID_EVENT_SEVERITY        info, warning or critical
//!   BRAID_EVENT_ARRAY, _UUID    which array
//!   BRAID_EVENT_MEMBER, _SLOT   which member, if one
//!   BRAID_EVENT_RESULT          completed or aborted, of a job
//!   BRAID_EVENT_MESSAGE         a sentence
//!   "$@"                        kind, array, member, as in mdadm's PROGRAM
//! ```
//!
//! A shell reads the operator's line, which contains no part of the event. Control characters in
//! the variables are replaced, because scripts read lines; the JSON keeps these characters.
//!
//! Invariants
//! - no event can make the shell run anything `[check: no_event_can_have_the_shell_do_anything]`.

use std::process::Command;
use std::time::Duration;

use crate::ending::Ending;
use crate::event::Event;
use crate::hooks::process;
use crate::outlet::{Deliver, DeliveryError, DeliveryFailure};

/// The default deadline of a command.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A line of shell that runs for each event, one at a time.
#[derive(Clone, Debug)]
pub struct OnEvent {
    script: String,
    patience: Duration,
}

impl OnEvent {
    /// A hook that runs this line of shell, and kills it after `patience`.
    #[must_use]
    pub fn new(script: impl Into<String>, patience: Duration) -> Self {
        Self { script: script.into(), patience }
    }
}

impl Deliver for OnEvent {
    fn name(&self) -> &'static str {
        "command"
    }

    fn deliver(&mut self, event: &Event, ending: &Ending) -> Result<(), DeliveryFailure> {
        let mut command = Command::new("/bin/sh");
        let member = event.change.subject.as_ref().map(|subject| one_line(&subject.member));
        command.args(["-c", &self.script, "braid-event"]);
        command
            .args([one_line(&event.change.kind.to_string()), one_line(&event.array)])
            .args(member);
        for (name, value) in environment(event) {
            command.env(name, value);
        }
        let mut input = event.to_json().into_bytes();
        input.push(b'\n');
        // A failed command is not repeated, since half of its work may be done.
        let status = process::run(&mut command, &input, self.patience, ending);
        match status.map_err(DeliveryFailure::for_good)? {
            status if status.success() => Ok(()),
            status => Err(DeliveryFailure::for_good(DeliveryError::Status(status))),
        }
    }
}

fn environment(event: &Event) -> Vec<(&'static str, String)> {
    let change = &event.change;
    let mut all = vec![
        ("BRAID_EVENT", change.kind.to_string()),
        ("BRAID_EVENT_ID", event.id.to_string()),
        ("BRAID_EVENT_TIME", change.time.to_string()),
        ("BRAID_EVENT_SEVERITY", event.severity.word().to_owned()),
        ("BRAID_EVENT_ARRAY", event.array.clone()),
        ("BRAID_EVENT_UUID", event.uuid.clone()),
        ("BRAID_EVENT_MESSAGE", change.message.clone()),
    ];
    if let Some(subject) = &change.subject {
        all.push(("BRAID_EVENT_MEMBER", subject.member.clone()));
        all.extend(subject.slot.map(|slot| ("BRAID_EVENT_SLOT", slot.to_string())));
    }
    if let Some(result) = &change.result {
        all.push(("BRAID_EVENT_RESULT", result.outcome.word().to_owned()));
    }
    all.into_iter().map(|(name, value)| (name, one_line(&value))).collect()
}

/// The text without control characters, NUL among them.
fn one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Change;
    use crate::kind::Kind;
    use crate::samples::{NASTY, events, identity};

    fn deliver(script: &str, event: &Event) -> Result<(), DeliveryFailure> {
        OnEvent::new(script, Duration::from_secs(60)).deliver(event, &Ending::default())
    }

    #[test]
    fn a_command_is_given_the_event_in_three_ways() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().display();
        let script =
            format!("cat > '{path}/json'; env > '{path}/env'; printf '%s|' \"$@\" > '{path}/args'");
        for event in events() {
            deliver(&script, &event).expect("it succeeds");
            let read =
                |name: &str| std::fs::read_to_string(folder.path().join(name)).expect("a file");
            assert_eq!(serde_json::from_str::<Event>(&read("json")).expect("JSON"), event);
            let found: Vec<String> = read("env").lines().map(str::to_owned).collect();
            for (name, value) in environment(&event) {
                assert!(found.contains(&format!("{name}={value}")), "{name}: {found:?}");
            }
            let kind = event.change.kind.to_string();
            assert!(read("args").starts_with(&format!("{kind}|tank|")), "{}", read("args"));
        }
    }

    #[test]
    fn no_event_can_have_the_shell_do_anything() {
        let folder = tempfile::tempdir().expect("a folder");
        let touched = folder.path().join("touched");
        let touch = format!("touch {}", touched.display());
        for text in [
            format!("$({touch})"),
            format!("`{touch}`"),
            format!("'; {touch}; '"),
            format!("\"; {touch}; \""),
            format!("\n{touch}\n"),
            format!("a\0b; {touch}"),
            format!("-c {touch}"),
            NASTY.to_owned(),
        ] {
            let change = Change::now(Kind::of(&text), text.clone()).of(&text, Some(1));
            let mut identity = identity();
            identity.array.clone_from(&text);
            let event = Event::new(1, &identity, change);
            deliver("test -n \"$BRAID_EVENT_MEMBER\" && test $# = 3", &event)
                .expect("no more than that");
            assert!(!touched.exists(), "{text:?}");
        }
    }

    #[test]
    fn a_command_that_fails_is_not_run_again() {
        let event = &events()[0];
        let failed = deliver("exit 3", event).expect_err("it failed");
        assert!(!failed.may_retry);
        assert!(failed.error.to_string().contains("exit status: 3"), "{}", failed.error);
    }
}
