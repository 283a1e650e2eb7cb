//! The content of a partition or volume, in words and as JSON.

use braid_signatures::{Signature, Volume};
use serde_json::{Value, json};

use braid_console::output::size::format_size;

pub(super) fn content_words(volume: &Volume) -> String {
    if volume.is_unreadable && volume.signatures.is_empty() {
        return "it cannot be read".to_owned();
    }
    let members = volume.superblocks.iter().map(|superblock| {
        let array = &superblock.array;
        format!("a member of another array ({} {})", array.level, array.name)
    });
    let words: Vec<String> = volume.signatures.iter().map(signature_words).chain(members).collect();
    match (words.is_empty(), volume.is_zero) {
        (true, true) => "nothing: zeroes".to_owned(),
        (true, false) => "data of a kind that braid does not know".to_owned(),
        _ => words.join(", "),
    }
}

/// Whether no known content was found: zeroes, or other bytes.
pub(super) fn is_nameless(volume: &Volume) -> bool {
    volume.signatures.is_empty() && volume.superblocks.is_empty() && !volume.is_unreadable
}

fn signature_words(signature: &Signature) -> String {
    let label = signature.label.as_ref().map(|label| format!(" \"{label}\"")).unwrap_or_default();
    let facts = &signature.facts;
    let notes = [
        facts.size_bytes.map(|bytes| format!(", {}", format_size(bytes))),
        facts.devices.map(|count| format!(", one of {count} devices")),
        facts.was_in_use.then(|| ", was in use: its journal is to be replayed".to_owned()),
        facts.has_errors.then(|| ", has noted errors of its own".to_owned()),
        facts.is_encrypted.then(|| ", encrypted".to_owned()),
    ];
    let notes: String = notes.into_iter().flatten().collect();
    format!("{}{label}{notes}", signature.name)
}

pub(super) fn signature_json(signature: &Signature) -> Value {
    json!({
        "kind": signature.name,
        "label": signature.label,
        "uuid": signature.uuid,
        "size_bytes": signature.facts.size_bytes,
        "was_in_use": signature.facts.was_in_use,
        "has_errors": signature.facts.has_errors,
        "encrypted": signature.facts.is_encrypted,
    })
}
