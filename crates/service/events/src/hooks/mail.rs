//! Mail for critical events, by the machine's sendmail.
//!
//! [`crate::kind::Kind::is_mailed`] chooses the events: those that mdadm mails, and equally bad
//! ones. This module makes the message and gives it to `sendmail -t -oi`, which takes its recipient
//! from the `To:` line. The mail system queues the message; if it does not accept the message, the
//! hook tries again.
//!
//! Invariants
//! - no address and no event adds a header `[check: nothing_makes_a_header_of_its_own]`;
//! - no line exceeds mail's limit `[check: no_line_is_longer_than_mail_allows]`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use crate::ending::Ending;
use crate::event::Event;
use crate::hooks::process;
use crate::outlet::{Deliver, DeliveryError, DeliveryFailure};

/// The usual path of sendmail.
pub const SENDMAIL: &str = "/usr/sbin/sendmail";

/// Deadline for sendmail to accept a message.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longest line of a message in characters; mail allows 998 bytes.
const LINE_CHARACTERS_MAX: usize = 240;

/// sendmail's exit status for a temporary failure (`EX_TEMPFAIL`).
const TRY_AGAIN: i32 = 75;

/// A recipient of mail: `user@host`, or a user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address(String);

/// Why a text is no valid recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The address is empty or too long.
    #[error("an address has 1 to 254 characters")]
    Length,
    /// The address has a forbidden character, such as a space, a comma or the end of a line.
    #[error("{0:?} is not allowed in an address; give one address without a name: user@host")]
    Character(char),
    /// The address has neither one part nor two parts around an @.
    #[error("it is not user@host, and no user of this machine")]
    Parts,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text.is_empty() || text.len() > 254 {
            return Err(AddressError::Length);
        }
        // Characters that an address may have without quotes (RFC 5322, atext), and dots. None of
        // these characters begins another address.
        let is_fit = |letter: char| {
            letter.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~.@[]:".contains(letter)
        };
        if let Some(letter) = text.chars().find(|letter| !is_fit(*letter)) {
            return Err(AddressError::Character(letter));
        }
        let (user, host) = text.split_once('@').map_or((text, None), |(a, b)| (a, Some(b)));
        let is_name = |part: &str| {
            !part.is_empty()
                && !part.starts_with(['-', '.'])
                && !part.contains(['@', '[', ']', ':'])
        };
        // Square brackets are for numeric addresses of machines.
        let is_host = |host: &str| {
            let number = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
            is_name(
                number.map_or_else(|| host.to_owned(), |number| number.replace(':', ".")).as_str(),
            )
        };
        if is_name(user) && host.is_none_or(is_host) {
            Ok(Self(text.to_owned()))
        } else {
            Err(AddressError::Parts)
        }
    }
}

/// A hook that mails events to one address.
#[derive(Clone, Debug)]
pub struct Mail {
    to: Address,
    sendmail: PathBuf,
    host: String,
}

impl Mail {
    /// A hook that mails from this machine, named `host`, by the program at `sendmail`.
    #[must_use]
    pub fn new(to: Address, sendmail: &Path, host: &str) -> Self {
        Self { to, sendmail: sendmail.to_owned(), host: host.to_owned() }
    }
}

impl Deliver for Mail {
    fn name(&self) -> &'static str {
        "mail"
    }

    fn wants(&self, event: &Event) -> bool {
        event.change.kind.is_mailed()
    }

    fn deliver(&mut self, event: &Event, ending: &Ending) -> Result<(), DeliveryFailure> {
        let mut command = Command::new(&self.sendmail);
        command.args(["-t", "-oi"]);
        let message = message(event, &self.to, &self.host);
        let status = process::run(&mut command, message.as_bytes(), PATIENCE, ending);
        match status.map_err(DeliveryFailure::for_now)? {
            status if status.success() => Ok(()),
            status => {
                let may_retry = status.code() == Some(TRY_AGAIN);
                Err(DeliveryFailure { error: DeliveryError::Status(status), may_retry })
            }
        }
    }
}

/// The mail message about an event, with this machine's line ends, which sendmail converts.
fn message(event: &Event, to: &Address, host: &str) -> String {
    let change = &event.change;
    let subject = format!("{} of {} on {host}", change.kind, event.array);
    let mut text = format!(
        "To: {}\nSubject: [braid] {}\nAuto-Submitted: auto-generated\nX-Braid-Event: {}\nMIME-Version: 1.0\n\
         Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n",
        to.0,
        header(&subject),
        event.id
    );
    let mut line = |name: &str, value: &str| {
        let value: String = value.chars().map(shown).collect();
        let mut letters = value.chars().peekable();
        let mut first = true;
        while first || letters.peek().is_some() {
            let part: String = letters.by_ref().take(LINE_CHARACTERS_MAX).collect();
            let name = if first { name } else { "" };
            writeln!(text, "{name:<10} {part}").expect("writing to a string does not fail");
            first = false;
        }
    };
    line("what", &change.message);
    line("event", &format!("{} ({}), number {}", change.kind, event.severity.word(), event.id));
    line("when", &change.time.to_string());
    line("array", &format!("{} ({})", event.array, event.uuid));
    line("host", host);
    if let Some(subject) = &change.subject {
        let slot = subject.slot.map_or_else(String::new, |slot| format!(" (slot {slot})"));
        line("member", &format!("{}{slot}", subject.member));
    }
    if let Some(why) = &change.cause {
        let place = why.sector.zip(why.sectors);
        let place =
            place.map_or_else(String::new, |(at, count)| format!(", {count} sectors at {at}"));
        line("cause", &format!("{} at {}{place}: {}", why.operation, why.member, why.error));
    }
    if let Some(result) = &change.result {
        line("result", result.outcome.word());
        result.counts.iter().for_each(|(name, count)| line("", &format!("{name} {count}")));
    }
    let json = serde_json::to_string(&change.details).expect("text and numbers");
    if !change.details.is_empty() {
        line("details", &json);
    }
    text.push_str("\nMore: braid history, braid examine\n");
    text
}

/// Returns the character, or a replacement if the character ends a line or controls a terminal.
fn shown(letter: char) -> char {
    if letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}') {
        '\u{fffd}'
    } else {
        letter
    }
}

/// Text for a header: printable ASCII of limited length.
fn header(text: &str) -> String {
    let is_plain = |letter: char| matches!(letter, ' '..='~');
    text.chars().map(|letter| if is_plain(letter) { letter } else { '?' }).take(200).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::event::{Change, Identity};
    use crate::kind::Kind;
    use crate::samples::{NASTY, events};

    fn to() -> Address {
        "root@example.org".parse().expect("an address")
    }

    #[test]
    fn addresses_are_told_from_what_is_none() {
        for good in ["root", "a.b+c@example.org", "o'neil@host", "x@[127.0.0.1]", "x@[IPv6:::1]"] {
            assert!(good.parse::<Address>().is_ok(), "{good}");
        }
        let long = "a".repeat(255);
        for bad in [
            "",
            &long,
            "a b",
            "a,b",
            "a@b@c",
            "@b",
            "a@",
            "-oQ/tmp",
            "a@-b",
            "a\nBcc: b",
            "a\r",
            "\"a\"@b",
            "a@b\0",
            "A <a@b>",
            "a;b",
            "a@b\u{2028}",
            "grüße",
            "a\t",
            "|sh(x)",
            "a:b",
            ".a",
        ] {
            assert!(bad.parse::<Address>().is_err(), "{bad:?}");
        }
    }

    /// Splits a mail message into its headers and its text.
    fn parts(message: &str) -> (Vec<(String, String)>, String) {
        let (headers, text) = message.split_once("\n\n").expect("an empty line");
        let header = |line: &str| {
            let (name, value) = line.split_once(": ").expect("a header");
            (name.to_owned(), value.to_owned())
        };
        (headers.lines().map(header).collect(), text.to_owned())
    }

    #[test]
    fn nothing_makes_a_header_of_its_own() {
        let identity = Identity { array: NASTY.to_owned(), uuid: NASTY.to_owned() };
        let change = Change::now(Kind::of(NASTY), NASTY).of(NASTY, Some(3)).with(NASTY, NASTY);
        let mut all = events();
        all.push(Event::new(7, &identity, change));
        for event in all {
            let message = message(&event, &to(), NASTY);
            let (headers, text) = parts(&message);
            let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
            let expected = ["To", "Subject", "Auto-Submitted", "X-Braid-Event", "MIME-Version"];
            assert_eq!(names[..5], expected, "{message}");
            assert_eq!(names.len(), 7, "{message}");
            assert_eq!(headers[0].1, "root@example.org");
            assert!(headers[1].1.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{message}");
            assert!(message.lines().all(|line| line != "." && !line.contains('\r')), "{message}");
            assert!(!message.contains('\u{1b}') && text.contains("what"), "{message}");
        }
    }

    #[test]
    fn no_line_is_longer_than_mail_allows() {
        let long = "größe".repeat(2000);
        let change =
            Change::now(Kind::Fail, long.clone()).of(&long, None).with("name", long.as_str());
        let identity = Identity { array: long.clone(), uuid: "u".to_owned() };
        let message = message(&Event::new(1, &identity, change), &to(), &long);
        assert!(message.lines().all(|line| line.len() <= 998));
        let letters = message.chars().filter(|letter| *letter == 'ß').count();
        assert!(letters >= 2000 * 4, "all of it is there: {letters}");
    }

    #[test]
    fn sendmail_is_given_the_message() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("sendmail");
        let write = |script: &str| {
            std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("a file");
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&program, mode).expect("a mode");
        };
        let path = folder.path().display();
        write(&format!("echo \"$@\" > '{path}/args'; cat > '{path}/mail'"));
        let mut mail = Mail::new(to(), &program, "host");
        let event =
            events().into_iter().find(|event| mail.wants(event)).expect("one that is mailed");
        mail.deliver(&event, &Ending::default()).expect("it is taken");
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect("a file");
        assert_eq!(read("args"), "-t -oi\n");
        assert_eq!(read("mail"), message(&event, &to(), "host"));
        let (headers, text) = parts(&read("mail"));
        assert_eq!(headers[1].1, "[braid] Fail of tank on host");
        assert!(
            text.contains("cause      write at /dev/m1, 8 sectors at 123456: Input/output error"),
            "{text}"
        );
        for (script, may_retry) in [("exit 75", true), ("exit 67", false)] {
            write(script);
            let failed = mail.deliver(&event, &Ending::default()).expect_err("it is not taken");
            assert_eq!(failed.may_retry, may_retry, "{script}");
        }
        std::fs::remove_file(&program).expect("a file");
        let absent = mail.deliver(&event, &Ending::default()).expect_err("it is not there");
        assert!(absent.may_retry && matches!(absent.error, DeliveryError::Start(_)));
    }
}
