//! A reshape in words for the report: changes, progress, consequences, and risks.

use std::ops::Range;

use braid_assembly::reshape::Reshaping;
use braid_geometry::{Level, Shape, layout_name};
use serde_json::{Value, json};

use super::{SECTOR_BYTES, UnfinishedReshape};
use braid_console::output::size::format_size;
use braid_discovery::status::words::level_word;

fn size(sectors: &Range<u64>) -> String {
    format_size((sectors.end - sectors.start).saturating_mul(SECTOR_BYTES))
}

fn place(sectors: &Range<u64>) -> String {
    format!("{} (sectors {}..{})", size(sectors), sectors.start, sectors.end)
}

fn members(reshaping: &Reshaping, shape: &Shape) -> String {
    match reshaping.is_striping() {
        true => format!("RAID-0 of {} members", shape.slots.saturating_sub(1)),
        false => format!("{} of {} members", level_word(shape.level.name()), shape.slots),
    }
}

/// The old and the new shape as a short text.
pub(crate) fn kind(reshape: &UnfinishedReshape) -> String {
    let reshaping = &reshape.reshaping;
    let size = format_size(reshaping.size_sectors.saturating_mul(SECTOR_BYTES));
    let [before, after] =
        [&reshaping.before, &reshaping.after].map(|shape| members(reshaping, shape));
    match before == after {
        true => format!("{after} in a reshape, {size}"),
        false => format!("{before} becoming {after}, {size}"),
    }
}

pub(crate) fn level(reshape: &UnfinishedReshape) -> String {
    let (before, after) = (reshape.reshaping.before.level, reshape.reshaping.after.level);
    match before == after {
        true if reshape.reshaping.is_striping() => format!("{} in a reshape", Level::Raid0),
        true => format!("{after} in a reshape"),
        false => format!("{before} becoming {after}"),
    }
}

fn changes(reshape: &UnfinishedReshape) -> Vec<String> {
    let (before, after) = (&reshape.reshaping.before, &reshape.reshaping.after);
    let layout = |shape: &Shape| {
        let number = || format!("layout {}", shape.layout);
        layout_name(shape.level, shape.layout).unwrap_or_else(number)
    };
    let chunk = |shape: &Shape| format_size(u64::from(shape.chunk_sectors) * SECTOR_BYTES);
    let mut changes = Vec::new();
    let mut change = |what: &str, from: String, to: String| {
        if from != to {
            changes.push(format!("{what} from {from} to {to}"));
        }
    };
    let level = |shape: &Shape| level_word(shape.level.name());
    change("the level", level(before), level(after));
    let parity = u16::from(reshape.reshaping.is_striping());
    let slots = |shape: &Shape| shape.slots.saturating_sub(parity).to_string();
    change("members", slots(before), slots(after));
    if after.level != Level::Raid4 {
        change("the layout", layout(before), layout(after));
    }
    change("the chunk", chunk(before), chunk(after));
    if reshape.reshaping.moves_data {
        changes.push("where members have their data".to_owned());
    }
    changes
}

pub(crate) fn lines(reshape: &UnfinishedReshape) -> Vec<String> {
    let reshaping = &reshape.reshaping;
    let mut lines = vec![format!("What changes: {}.", changes(reshape).join(", "))];
    if reshaping.is_striping() {
        lines.push(
            "Meanwhile md, and so its superblocks, treat it as a RAID-4 without parity.".to_owned(),
        );
    }
    let done = reshaping.done_basis_points();
    let way = match reshaping.backwards {
        false => "from the start of the array to its end",
        true => "from the end of the array to its start",
    };
    let (position, end) = (reshaping.position_sectors, reshaping.size_sectors);
    let percent = format!("{}.{:02} %", done / 100, done % 100);
    lines.push(match &reshape.progress {
        None => format!("It runs {way}, and is at sector {position} of {end}: {percent} are done."),
        Some(progress) => {
            let (recorded, between) = (reshaping.recorded_sectors, &progress.between);
            let on = match between.start == recorded || between.end == recorded {
                true => "and may have gone on",
                false => "and went on",
            };
            format!(
                "It runs {way}. md recorded that it is at sector {recorded} of {end}, {on}: by {} places on the \
                 array it reached a sector between {} and {}, most likely {position}: {percent} \
                 are done.",
                progress.places, between.start, between.end
            )
        }
    });
    let (before, after) = match reshaping.backwards {
        false => ("behind", "before"),
        true => ("before", "behind"),
    };
    lines.push(match (position == 0, position == reshaping.size_sectors, reshaping.backwards) {
        (true, _, false) | (_, true, true) => {
            "No data has the new shape yet; all is read in the old one.".to_owned()
        }
        (_, true, false) | (true, _, true) => {
            "All data has the new shape, and is read there.".to_owned()
        }
        _ => format!(
            "Data {after} it has the new shape, data {before} it the old one; each is read at its \
             present place."
        ),
    });
    for backup in &reshape.backups {
        let parts = backup.metadata.parts.iter().filter_map(|part| reshape.read_from(part));
        let parts: Vec<String> = parts.map(|(range, _)| place(&range)).collect();
        lines.push(match parts.is_empty() {
            true => format!("{} has no needed data.", backup.label),
            false => {
                let why = "data moved since the checkpoint may have overwritten it";
                let from =
                    format!("{} is read from the backup in {}", parts.join(", "), backup.label);
                format!("{from}: {why}.")
            }
        });
    }
    lines.extend(reshape.left_aside.iter().map(|why| format!("Not used: {why}.")));
    let apart = reshape.progress.as_ref().map_or(0, |progress| progress.apart.len());
    if apart > 0 {
        lines.push(format!(
            "{apart} places elsewhere have the other shape: a disk may have lost its cache. Their \
             surroundings are at risk, too."
        ));
    }
    for range in &reshape.at_risk {
        let why = match reshape.progress {
            None => {
                "The new shape begins where the old one still is, so this may be partly \
                 overwritten; it is right if md had not begun there."
            }
            Some(_) => {
                "md was at work there: it may have either shape, and is read at md's most likely \
                 position."
            }
        };
        lines.push(format!("At risk: {}. {why}", place(range)));
    }
    if reshape.at_risk.is_empty() {
        let why = match reshape.backups.is_empty() {
            true => "md does not overwrite data that it still needs",
            false => "the backup has the data that md may have overwritten",
        };
        lines.push(format!("Nothing is lost by where it stopped: {why}."));
    } else if reshape.backups.is_empty() && reshape.left_aside.is_empty() {
        lines.push(
            "mdadm copied that data into a file if it was given one (`--grow --backup-file`): \
             name it (--backup-file FILE)."
                .to_owned(),
        );
    }
    for (range, refused) in reshape.refusals() {
        lines.push(format!("{} cannot be read: {refused}.", place(&range)));
    }
    lines
}

fn bytes(sectors: &Range<u64>) -> Value {
    json!({
        "offset_bytes": sectors.start * SECTOR_BYTES,
        "length_bytes": (sectors.end - sectors.start) * SECTOR_BYTES,
    })
}

pub(crate) fn json(reshape: &UnfinishedReshape) -> Value {
    let reshaping = &reshape.reshaping;
    let shape = |shape: &Shape| {
        json!({
            "level": shape.level.name(),
            "slots": shape.slots,
            "layout": shape.layout,
            "chunk_bytes": u64::from(shape.chunk_sectors) * SECTOR_BYTES,
        })
    };
    let of_backup = |backup: &super::Backup| {
        let parts = backup.metadata.parts.iter().filter_map(|part| reshape.read_from(part));
        let parts: Vec<Value> = parts.map(|(range, _)| bytes(&range)).collect();
        json!({ "file": backup.label, "read": parts })
    };
    let unreadable = reshape
        .refusals()
        .into_iter()
        .map(|(range, refused)| json!({ "bytes": bytes(&range), "code": refused.code() }));
    json!({
        "before": shape(&reshaping.before),
        "after": shape(&reshaping.after),
        "position_bytes": reshaping.recorded_sectors * SECTOR_BYTES,
        "got_to": reshape.progress.as_ref().map(|progress| json!({
            "between": bytes(&progress.between),
            "likely_bytes": reshaping.position_sectors * SECTOR_BYTES,
            "places": progress.places,
            "places_in_the_other_shape": progress.apart.len(),
        })),
        "backwards": reshaping.backwards,
        "moves_data": reshaping.moves_data,
        "done_percent": reshaping.done_basis_points() as f64 / 100.0,
        "at_risk": reshape.at_risk.iter().map(bytes).collect::<Vec<_>>(),
        "backups": reshape.backups.iter().map(of_backup).collect::<Vec<_>>(),
        "backups_left_aside": reshape.left_aside,
        "unreadable": unreadable.collect::<Vec<_>>(),
    })
}
