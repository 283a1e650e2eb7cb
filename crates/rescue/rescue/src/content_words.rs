//! The content of a partition or volume, in words and as JSON.

use braid_signatures::{Thing, Volume};
use serde_json::{Value, json};

use braid_console::output::size::format_size;

pub(super) fn content_words(volume: &Volume) -> String {
    if volume.is_unreadable && volume.things.is_empty() {
        return "it cannot be read".to_owned();
    }
    let members = volume.superblocks.iter().map(|superblock| {
        let array = &superblock.array;
        format!("a member of another array ({} {})", array.level, array.name)
    });
    let words: Vec<String> = volume.things.iter().map(thing_words).chain(members).collect();
    match (words.is_empty(), volume.is_zero) {
        (true, true) => "nothing: zeroes".to_owned(),
        (true, false) => "data of a kind that braid does not know".to_owned(),
        _ => words.join(", "),
    }
}

/// Whether no known content was found: zeroes, or other bytes.
pub(super) fn is_nameless(volume: &Volume) -> bool {
    volume.things.is_empty() && volume.superblocks.is_empty() && !volume.is_unreadable
}

fn thing_words(thing: &Thing) -> String {
    let label = thing.label.as_ref().map(|label| format!(" \"{label}\"")).unwrap_or_default();
    let says = &thing.says;
    let notes = [
        says.size_bytes.map(|bytes| format!(", {}", format_size(bytes))),
        says.devices.map(|count| format!(", one of {count} devices")),
        says.was_in_use.then(|| ", was in use: its journal is to be replayed".to_owned()),
        says.has_errors.then(|| ", has noted errors of its own".to_owned()),
        says.is_encrypted.then(|| ", encrypted".to_owned()),
    ];
    let notes: String = notes.into_iter().flatten().collect();
    format!("{}{label}{notes}", thing.name)
}

pub(super) fn thing_json(thing: &Thing) -> Value {
    json!({
        "kind": thing.name,
        "label": thing.label,
        "uuid": thing.uuid,
        "size_bytes": thing.says.size_bytes,
        "was_in_use": thing.says.was_in_use,
        "has_errors": thing.says.has_errors,
        "encrypted": thing.says.is_encrypted,
    })
}
