//! Tests of the catalogue as a whole, and of errors as text and as JSON.

use std::collections::BTreeSet;

use super::catalogue::CATALOGUE;
use super::code::Code;
use super::render::explain;
use super::{CliError, Exit, Risk};
use crate::output::colour::{ColourWhen, Environment, Paint};

fn busy() -> CliError {
    CliError::new(Code::MemberBusy, "/dev/sdb is busy")
        .about("/dev/sdb")
        .because("opened by md127 (kernel array \"photos\")")
        .because("assembled by udev")
        .remedy(Risk::Change, "Stop it", "mdadm --stop /dev/md127")
        .remedy(Risk::Look, "See who", "cat /proc/mdstat")
}

#[test]
fn every_code_is_unique_and_has_text() {
    let codes: BTreeSet<String> = CATALOGUE.iter().map(|entry| entry.code.to_string()).collect();
    assert_eq!(codes.len(), CATALOGUE.len());
    let titles: BTreeSet<&str> = CATALOGUE.iter().map(|entry| entry.title).collect();
    assert_eq!(titles.len(), CATALOGUE.len());
    assert!(CATALOGUE.is_sorted_by_key(|entry| entry.code));
    for entry in &CATALOGUE {
        assert!(!entry.title.is_empty() && !entry.title.ends_with('.'), "{}", entry.code);
        let sentences = entry.explanation.matches(['.', '?']).count();
        assert!(sentences >= 2 && entry.explanation.ends_with('.'), "{}", entry.code);
        assert_ne!(entry.exit, Exit::Done, "{}", entry.code);
        assert_eq!(entry.code.entry().title, entry.title);
    }
}

#[test]
fn texts_blame_nobody_and_wonder_at_nothing() {
    for entry in &CATALOGUE {
        let text = format!("{} {}", entry.title, entry.explanation).to_lowercase();
        for word in ["strange", "weird", "sorry", "oops", "invalid argument"] {
            assert!(!text.contains(word), "{}: {word}", entry.code);
        }
    }
}

#[test]
fn codes_read_back_and_unknown_ones_do_not() {
    for entry in &CATALOGUE {
        assert_eq!(entry.code.to_string().parse(), Ok(entry.code));
    }
    assert_eq!("b031".parse(), Ok(Code::DirtyDegraded));
    for text in ["B999", "31", "B31", "B0031", ""] {
        assert!(text.parse::<Code>().is_err(), "{text}");
    }
}

#[test]
fn codes_that_scripts_know_keep_their_numbers() {
    for (code, text, status) in [
        (Code::Usage, "B001", 2),
        (Code::UnknownLevel, "B002", 2),
        (Code::HoldsData, "B012", 12),
        (Code::TooFewMembers, "B030", 13),
        (Code::DirtyDegraded, "B031", 12),
        (Code::MemberTooSmall, "B052", 12),
        (Code::MemberBusy, "B060", 11),
        (Code::Interrupted, "B090", 130),
    ] {
        assert_eq!(code.to_string(), text);
        assert_eq!(code.exit().number(), status);
    }
}

#[test]
fn exit_statuses_are_those_of_the_table() {
    let numbers: Vec<u8> = Exit::TABLE.iter().map(|(exit, _)| exit.number()).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 10, 11, 12, 13, 130]);
    // `mdadm --detail --test` exits with these numbers, too.
    let health = [Exit::Done, Exit::Degraded, Exit::Broken, Exit::Unknown];
    assert_eq!(health.map(Exit::number), [0, 1, 2, 4]);
    assert!(Exit::TABLE.iter().all(|(_, meaning)| !meaning.is_empty()));
}

#[test]
fn text_says_what_why_and_what_to_do() {
    assert_eq!(
        busy().to_text(Paint::plain()),
        "error[B060]: /dev/sdb is busy\n  \
         opened by md127 (kernel array \"photos\")\n  \
         assembled by udev\n  \
         See who:  cat /proc/mdstat\n  \
         Stop it:  mdadm --stop /dev/md127\n"
    );
}

#[test]
fn json_has_the_promised_keys() {
    let json = busy().to_json();
    let keys: BTreeSet<&str> =
        json.as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(keys, BTreeSet::from(["cause", "code", "remedies", "subject", "title"]));
    assert_eq!(json["code"], "B060");
    assert_eq!(json["subject"], "/dev/sdb");
    assert_eq!(json["cause"], "opened by md127 (kernel array \"photos\")\nassembled by udev");
    assert_eq!(json["remedies"][1]["risk"], "change");
    assert!(CliError::new(Code::Interrupted, "interrupted").to_json()["subject"].is_null());
}

#[test]
fn an_error_comes_through_a_server_as_it_was() {
    let error = busy();
    assert_eq!(CliError::from_problem(&error.to_problem()).to_json(), error.to_json());
    let mut unknown = error.to_problem();
    unknown.code = "B999".into();
    let told = CliError::from_problem(&unknown).to_json();
    assert!(told["cause"].as_str().is_some_and(|cause| cause.contains("B999")), "{told}");
}

#[test]
fn a_dangerous_remedy_never_comes_first() {
    let error = CliError::new(Code::HoldsData, "these members hold data");
    let alone =
        error.clone().remedy(Risk::Destroy, "Destroy it", "braid create … --destroy photos");
    assert_eq!(alone.remedies()[0].command, "braid help B012");
    assert_eq!(alone.remedies()[1].risk, Risk::Destroy);
    let both = alone.remedy(Risk::Change, "Serve it instead", "braid serve a b c");
    assert_eq!(both.remedies()[0].label, "Serve it instead");
    assert_eq!(error.remedies().len(), 1);
}

#[test]
fn remedies_of_equal_risk_keep_their_order() {
    let error = busy().remedy(Risk::Look, "Then", "lsof /dev/sdb");
    let labels: Vec<String> = error.remedies().into_iter().map(|remedy| remedy.label).collect();
    assert_eq!(labels, ["See who", "Then", "Stop it"]);
}

#[test]
fn names_are_made_printable() {
    let error = CliError::new(Code::ForeignMember, "\u{1b}[2Jtank").because("a\u{7}b");
    let text = error.to_text(Paint::plain());
    assert!(!text.contains('\u{1b}') && !text.contains('\u{7}'), "{text:?}");
    let always = Paint::decide(ColourWhen::Always, &Environment::default(), false);
    let colours = error.to_text(always).matches('\u{1b}').count();
    assert_eq!(colours % 2, 0, "each colour is ended, and the name adds none");
    assert!(!error.to_text(always).contains("\u{1b}[2J"));
    let forged = CliError::new(Code::ForeignMember, "x").because("name: a\n  Fix it:  rm b");
    assert_eq!(forged.to_text(Paint::plain()).lines().count(), 3);
}

#[test]
fn causes_are_listed_down_to_the_first() {
    let inner = std::io::Error::other("disk on fire");
    let outer = std::io::Error::new(std::io::ErrorKind::NotFound, inner);
    let text = CliError::new(Code::MemberIo, "x").caused_by(&outer).to_text(Paint::plain());
    assert!(text.contains("disk on fire"), "{text}");
}

#[test]
fn help_for_a_code_has_its_status_and_fits_a_terminal() {
    for entry in &CATALOGUE {
        let text = explain(entry.code, Paint::plain());
        assert!(text.starts_with(&entry.code.to_string()));
        assert!(text.contains(&format!("exit status {}", entry.exit.number())));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
