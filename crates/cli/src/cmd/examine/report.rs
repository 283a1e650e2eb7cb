//! The findings of `braid examine` as text and as one JSON object.

use braid_assembly::{GivenBitmapFile, MemberVerdict, ProbedMember, Verdict};
use braid_ondisk::{BadBlockLog, Bitmap, LogHome, PplLog, PplLogError, format_uuid};
use serde_json::{Value, json};

use super::{ExaminedMember, Findings, array, facts};
use braid_console::error::CliError;
use braid_console::output::colour::{Paint, Style};
use braid_console::output::printable::printable;
use braid_console::output::size::format_size;
use braid_console::output::table::{Align, Table};

/// The text: each member, the verdicts, and the array or the reason why there is none.
pub(super) fn to_text(findings: &Findings, paint: Paint) -> String {
    let mut text = String::new();
    for look in &findings.examined {
        text.push_str(&member_text(look, paint));
        text.push('\n');
    }
    for given in &findings.bitmap_files {
        text.push_str(&bitmap_file_text(given, paint));
        text.push('\n');
    }
    if findings.examined.is_empty() {
        return text;
    }
    text.push_str(&verdict_table(findings));
    text.push('\n');
    match (&findings.assembly.array, &findings.refused) {
        (Ok(found), _) => {
            let state = array::state(found);
            let style = if state == "clean" { Style::Good } else { Style::Warning };
            let name = &found.newest.array.name;
            let name = if name.is_empty() { "array" } else { name.as_str() };
            text.push_str(&format!(
                "{}  {}  {}\n",
                paint.paint(Style::Strong, &printable(name)),
                paint.paint(style, &state),
                array::line(found)
            ));
        }
        (Err(_), refused) => {
            text.push_str(&refused.as_ref().map_or_else(String::new, |error| error.to_text(paint)));
        }
    }
    text
}

fn member_text(look: &ExaminedMember, paint: Paint) -> String {
    let label = printable(&look.label);
    let member = match &look.found {
        Ok(member) => member,
        Err(error) => {
            return format!(
                "{}  could not be read\n{}",
                paint.paint(Style::Strong, &label),
                error.to_text(paint)
            );
        }
    };
    let size = format_size(member.size_bytes);
    let mut text = format!("{}  {size}\n", paint.paint(Style::Strong, &label));
    for (heading, words) in lines(member) {
        text.push_str(&format!("  {heading:<10}  {}\n", printable(&words)));
    }
    text
}

fn bitmap_file_text(given: &GivenBitmapFile, paint: Paint) -> String {
    let label = printable(&given.label);
    let mut text = String::new();
    let Ok(file) = &given.file else { return text };
    let size = format_size(file.size_bytes);
    text.push_str(&format!("{}  {size}\n", paint.paint(Style::Strong, &label)));
    for (heading, words) in facts::bitmap_file_lines(file) {
        text.push_str(&format!("  {heading:<10}  {}\n", printable(&words)));
    }
    text
}

fn bitmap_file_json(given: &GivenBitmapFile) -> Option<Value> {
    let file = given.file.as_ref().ok()?;
    let bitmap = file.bitmap.as_ref().ok();
    Some(json!({
        "path": given.label,
        "size_bytes": file.size_bytes,
        "array_uuid": format_uuid(&file.uuid),
        "error": file.bitmap.as_ref().err().map(ToString::to_string),
        "events": bitmap.map(|bitmap| bitmap.superblock.events),
        "bits": bitmap.map(|bitmap| bitmap.bits.count()),
        "bits_set": bitmap.map(|bitmap| bitmap.bits.set_count()),
        "bit_bytes": bitmap.map(|bitmap| bitmap.superblock.chunk_bytes),
        "has_log": file.own_log.is_some(),
    }))
}

fn lines(member: &ProbedMember) -> Vec<facts::Line> {
    let mut lines = Vec::new();
    for found in &member.probe.superblocks {
        match found {
            Ok(superblock) => lines.extend(facts::lines(superblock)),
            Err(error) => lines.push(("damaged", error.to_string())),
        }
    }
    if member.probe.newest().is_some() {
        lines.extend(facts::log_lines(member));
    }
    for foreign in &member.probe.foreign {
        let label = foreign.label.as_ref().map(|label| format!(" \"{label}\""));
        let uuid = foreign.uuid.as_ref().map(|uuid| format!(" {uuid}"));
        let (label, uuid) = (label.unwrap_or_default(), uuid.unwrap_or_default());
        lines
            .push(("holds", format!("{}{label}{uuid} (at byte {})", foreign.kind, foreign.offset)));
    }
    if lines.is_empty() {
        lines.push(("holds", "nothing that is recognised".to_string()));
    }
    lines
}

fn verdict_table(findings: &Findings) -> String {
    let headings = [
        ("member", Align::Left),
        ("slot", Align::Right),
        ("verdict", Align::Left),
        ("reason", Align::Left),
    ];
    let mut table = Table::new(&headings);
    for (label, judged) in judged(findings) {
        match judged {
            Ok(verdict) => {
                let slot = verdict.verdict.slot().map_or("-".to_string(), |slot| slot.to_string());
                let reason = verdict.reason.to_string();
                table.row([label, slot.as_str(), verdict.verdict.code(), reason.as_str()]);
            }
            Err(error) => table.row([label, "-", "unreadable", error.to_string().as_str()]),
        }
    }
    table.render("")
}

/// Every examined member with its verdict, or with the error because of which it has no verdict.
fn judged(findings: &Findings) -> Vec<(&str, Result<&MemberVerdict, &CliError>)> {
    let mut verdicts = findings.assembly.verdicts.iter();
    let judge = |look| match look {
        &ExaminedMember { found: Err(ref error), .. } => Err(error),
        _ => Ok(verdicts.next().expect("a verdict for each member that was read")),
    };
    let labels = findings.examined.iter().map(|look| look.label.as_str());
    labels.zip(findings.examined.iter().map(judge)).collect()
}

/// The findings as a JSON object; `refusal` is the error that `braid serve` would give.
pub(super) fn to_json(findings: &Findings) -> Value {
    let members: Vec<Value> = findings
        .examined
        .iter()
        .zip(judged(findings))
        .map(|(look, (_, judged))| member_json(look, judged))
        .collect();
    json!({
        "command": "examine",
        "members": members,
        "bitmap_files": findings.bitmap_files.iter().filter_map(bitmap_file_json).collect::<Vec<_>>(),
        "array": findings.assembly.array.as_ref().ok().map(array::to_json),
        "refusal": findings.refused.as_ref().map(CliError::to_json),
    })
}

fn member_json(look: &ExaminedMember, judged: Result<&MemberVerdict, &CliError>) -> Value {
    let member = match &look.found {
        Ok(member) => member,
        Err(error) => return json!({ "path": look.label, "error": error.to_json() }),
    };
    let sound = member.probe.superblocks.iter().filter_map(|found| found.as_ref().ok());
    let damaged = member.probe.superblocks.iter().filter_map(|found| found.as_ref().err());
    let damaged = damaged.map(|error| {
        json!({
            "version": error.version.to_string(),
            "offset_bytes": error.offset_bytes,
            "reason": error.cause.to_string(),
        })
    });
    let foreign = member.probe.foreign.iter().map(|foreign| {
        json!({
            "kind": foreign.kind.name(),
            "label": foreign.label,
            "uuid": foreign.uuid,
            "offset_bytes": foreign.offset,
        })
    });
    let bad_blocks = member.bad_blocks.as_ref().ok().map(|records| {
        let range = |range: &braid_ondisk::BadRange| {
            json!({ "start_sector": range.start_sector, "length_sectors": range.length_sectors })
        };
        BadBlockLog::ranges(records).iter().map(range).collect::<Vec<_>>()
    });
    let parity_log = |log: &Result<PplLog, PplLogError>| match log {
        Ok(log) => json!({
            "generation": log.newest.as_ref().map(|record| record.generation),
            "entries": log.entries().count(),
            "torn_entries": log.newest.as_ref().map_or(0, |record| record.torn),
        }),
        Err(error) => json!({ "error": error.to_string() }),
    };
    let ppl = member.ppl.as_ref().map(parity_log);
    let own_log = member.own_log.as_ref().map(|own| {
        let state = member.probe.newest().map(|superblock| &superblock.state);
        json!({
            "size_sectors": own.place.as_ref().ok().map(|place| place.size_sectors),
            "counts": state.is_some_and(|state| state.log_counts == Some(LogHome::Members)),
            "log": parity_log(&own.log),
        })
    });
    let journal = member.journal.as_ref().map(|log| match log {
        Ok(log) => json!({
            "tail_sectors": log.area.tail_sectors,
            "ring_sectors": log.area.ring_sectors,
            "used_sectors": log.used_sectors(),
            "first_sequence": log.first_sequence,
            "end_sequence": log.end_sequence,
            "meta_blocks": log.meta_blocks,
            "entries": log.entries.len(),
            "data_blocks": log.data_blocks(),
            "mode": facts::journal_mode(log),
            "end": log.end.code(),
        }),
        Err(error) => json!({ "error": error.to_string() }),
    });
    let bitmap = member.bitmap.as_ref().map(|bitmap| match bitmap {
        Ok(Bitmap { superblock: bitmap, bits, marks }) => json!({
            "marks": marks.as_ref().map(|(_, counts)| facts::marks_json(counts)),
            "bits": bits.count(),
            "bits_set": bits.set_count(),
            "kind": bitmap.kind.name(),
            "events": bitmap.events,
            "events_cleared": bitmap.events_cleared,
            "chunk_bytes": bitmap.chunk_bytes,
        }),
        Err(error) => json!({ "error": error.to_string() }),
    });
    json!({
        "path": look.label,
        "size_bytes": member.size_bytes,
        "superblocks": sound.map(facts::to_json).collect::<Vec<_>>(),
        "damaged": damaged.collect::<Vec<_>>(),
        "foreign": foreign.collect::<Vec<_>>(),
        "bad_blocks": bad_blocks,
        "bitmap": bitmap,
        "ppl": ppl,
        "own_log": own_log,
        "journal": journal,
        "verdict": judged.ok().map(verdict_json),
    })
}

fn verdict_json(verdict: &MemberVerdict) -> Value {
    let recovered = match verdict.verdict {
        Verdict::Recovering { recovered_sectors, .. } => Some(recovered_sectors),
        _ => None,
    };
    json!({
        "code": verdict.verdict.code(),
        "slot": verdict.verdict.slot(),
        "recovered_sectors": recovered,
        "reason": verdict.reason.to_string(),
    })
}
