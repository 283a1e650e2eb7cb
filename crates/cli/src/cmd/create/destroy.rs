//! Checks that `--destroy` named everything recognisable on the members.
//!
//! [`braid_discovery::contents`] lists the recognisable things and the names by which `--destroy`
//! may name each.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Args;
use super::candidates::{Candidate, Source};
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::shell_word;
use braid_discovery::contents::{self, Thing, keys_of};

/// One named thing of the plan: listed once, with all members that hold it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedThing {
    /// The name as the operator gave it.
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) uuid: Option<String>,
    pub(super) members: Vec<String>,
}

/// Checks that the names cover every recognised thing and nothing else, and each name means one
/// thing. Returns all things, each under the name that the operator gave.
pub(super) fn check(args: &Args, opened: &[Candidate]) -> Result<Vec<(String, Thing)>, CliError> {
    let things: Vec<Thing> = opened.iter().flat_map(things_on).collect();
    for name in &args.destroy {
        match keys_of(name, &things).len() {
            0 => return Err(mismatch(args, name, &things)),
            1 => {}
            _ => return Err(ambiguous(args, name, &things)),
        }
    }
    let named =
        |thing: &Thing| args.destroy.iter().find(|name| thing.answers(name.as_str())).cloned();
    if things.iter().any(|thing| named(thing).is_none()) {
        return Err(holds_data(args, &things));
    }
    let named = things.into_iter().filter_map(|thing| Some((named(&thing)?, thing)));
    Ok(named.collect())
}

/// Splits the named things into those to destroy and those that stay, because they are within the
/// sectors that the plan keeps.
pub(super) fn split(
    named: &[(String, Thing)],
    kept_sectors: &BTreeMap<&str, Range<u64>>,
) -> (Vec<NamedThing>, Vec<NamedThing>) {
    let stays = |thing: &Thing| {
        let kept = kept_sectors.get(thing.label.as_str());
        thing.foreign_sector.zip(kept).is_some_and(|(sector, kept)| kept.contains(&sector))
    };
    let (kept, destroyed): (Vec<_>, Vec<_>) = named.iter().partition(|(_, thing)| stays(thing));
    (merge(&destroyed), merge(&kept))
}

fn merge(named: &[&(String, Thing)]) -> Vec<NamedThing> {
    let mut merged: Vec<NamedThing> = Vec::new();
    for (name, thing) in named {
        let known = merged
            .iter_mut()
            .find(|one| (one.kind, one.uuid.as_deref()) == thing.key() && one.name == *name);
        match known {
            Some(one) if one.members.contains(&thing.label) => {}
            Some(one) => one.members.push(thing.label.clone()),
            None => merged.push(NamedThing {
                name: name.clone(),
                kind: thing.kind,
                uuid: thing.uuid.clone(),
                members: vec![thing.label.clone()],
            }),
        }
    }
    merged
}

fn things_on(opened: &Candidate) -> Vec<Thing> {
    match &opened.source {
        Source::Existing(existing) => contents::things(&opened.label, existing),
        Source::ToMake => Vec::new(),
    }
}

fn ambiguous(args: &Args, name: &str, things: &[Thing]) -> CliError {
    let what = format!("\"{name}\" is the name of several different things on these members");
    let mut error = CliError::new(Code::DestroyNameMismatch, what).about(name);
    let mut better = args.clone();
    better.destroy.retain(|other| other != name);
    for thing in things.iter().filter(|thing| thing.answers(name)) {
        error = error.because(thing.line());
        if !better.destroy.iter().any(|other| thing.answers(other)) {
            better.destroy.push(thing.own_name().to_string());
        }
    }
    error.remedy(Risk::Look, "See what is on them", examine(args)).remedy(
        Risk::Destroy,
        "To destroy all of them, name each",
        better.command_line(),
    )
}

fn mismatch(args: &Args, name: &str, things: &[Thing]) -> CliError {
    let what = format!("there is no \"{name}\" on these members to destroy");
    let mut error = CliError::new(Code::DestroyNameMismatch, what).about(name);
    for thing in things {
        error = error.because(thing.line());
    }
    if things.is_empty() {
        let mut better = args.clone();
        better.destroy.clear();
        return error.because("nothing was recognised on any of them").remedy(
            Risk::Change,
            "Create without it",
            better.command_line(),
        );
    }
    error.remedy(Risk::Look, "See what is on them", examine(args))
}

fn holds_data(args: &Args, things: &[Thing]) -> CliError {
    let unnamed: Vec<&Thing> = things
        .iter()
        .filter(|thing| !args.destroy.iter().any(|name| thing.answers(name)))
        .collect();
    let what = format!("refusing to create \"{}\": these members already hold data", args.name);
    let mut error = CliError::new(Code::HoldsData, what).about(args.name.clone());
    for thing in &unnamed {
        error = error.because(thing.line());
    }
    let mut arrays: BTreeMap<[u8; 16], Vec<String>> = BTreeMap::new();
    for thing in &unnamed {
        if let Some(uuid) = thing.array {
            arrays.entry(uuid).or_default().push(shell_word(&thing.label).into_owned());
        }
    }
    for mut members in arrays.into_values() {
        members.dedup();
        let command = format!("braid serve {}", members.join(" "));
        error = error.remedy(Risk::Change, "Serve the existing array", command);
    }
    let mut better = args.clone();
    for thing in unnamed {
        if better.destroy.iter().any(|name| thing.answers(name)) {
            continue;
        }
        let is_clear = |name: &&String| keys_of(name, things).len() == 1;
        let name = thing.names.iter().find(is_clear).map_or(thing.own_name(), String::as_str);
        better.destroy.push(name.to_string());
    }
    error.remedy(Risk::Look, "See what is on them", examine(args)).remedy(
        Risk::Destroy,
        "To destroy it, name it",
        better.command_line(),
    )
}

fn examine(args: &Args) -> String {
    let devices = args.members.iter().chain(&args.write_journal);
    let labels = devices.map(|path| path.display().to_string());
    let given = labels.filter(|label| label != "missing");
    let words: Vec<String> = given.map(|label| shell_word(&label).into_owned()).collect();
    format!("braid examine {}", words.join(" "))
}
