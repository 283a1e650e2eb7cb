//! The plan of `create` and its result, in words and as JSON.

use braid_geometry::{Family, Geometry, Level, SECTOR_BYTES, layout_name};
use serde_json::{Value, json};

use super::apply::CreatedArray;
use super::candidates::Source;
use super::destroy::NamedThing;
use super::plan::{Consistency, Plan, PlannedMember, Sync};
use braid_console::Globals;
use braid_console::output::colour::Style;
use braid_console::output::printable::printable;
use braid_console::output::shell::shell_word;
use braid_console::output::size::{format_size, format_size_exact};
use braid_ondisk::format_uuid;

pub(super) fn print_plan(plan: &Plan, globals: &Globals) {
    if globals.json {
        outjson!(&to_json(plan, None));
        return;
    }
    outln!("Plan (nothing has been written)");
    out!("{}", body(plan, globals));
    outln!("Run it again without -n to do it:\n  {}", command(plan, globals));
}

pub(super) fn print_made(plan: &Plan, made: &CreatedArray, globals: &Globals) {
    if globals.json {
        outjson!(&to_json(plan, Some(made)));
        return;
    }
    outln!("Created {} ({})", plan.wanted.name, format_uuid(&made.array_uuid));
    out!("{}", body(plan, globals));
    if let Some(saved) = &made.saved {
        let (number, path) = (saved.number, saved.path.display().to_string());
        let path = printable(&path);
        outln!("  saved     the overwritten bytes, in {path}: braid undo {number} puts them back");
    }
    outln!("Next:  {}", globals.paint_out.paint(Style::Command, &printable(&next(plan))));
}

/// The remark about a policy that braid chose by default.
fn default_words(plan: &Plan) -> Option<&'static str> {
    let has_parity = plan.geometry.level().family() == Family::Stripe;
    let is_default = plan.wanted.consistency.is_none() && has_parity;
    let words = match plan.consistency {
        Consistency::Log(..) => {
            "the safest, and the default; --consistency bitmap takes small writes faster and leaves the write hole open"
        }
        Consistency::Bitmap(_) | Consistency::NoRoom => {
            "no room for braid's log: a member lost in a crash may take interrupted writes with \
             it"
        }
        _ => return None,
    };
    is_default.then_some(words)
}

fn command(plan: &Plan, globals: &Globals) -> String {
    globals.paint_out.paint(Style::Command, &printable(&plan.args.command_line()))
}

fn next(plan: &Plan) -> String {
    let labels: Vec<_> = plan.members.iter().map(|member| shell_word(&member.label)).collect();
    let file = plan.bitmap_file.as_ref().map(|file| file.display().to_string());
    let file = file.map(|file| format!("--bitmap-file {} ", shell_word(&file)));
    format!("braid serve {}{}", file.unwrap_or_default(), labels.join(" "))
}

fn body(plan: &Plan, globals: &Globals) -> String {
    let mut lines = vec![
        ("create", format!("{}   {}", plan.wanted.name, shape_words(plan))),
        ("capacity", capacity_words(plan)),
    ];
    lines.extend(unused_words(plan).map(|words| ("unused", words)));
    lines.push(("sync", plan.sync.to_string()));
    if plan.consistency != Consistency::NoRedundancy {
        lines.push(("crash", plan.consistency.to_string()));
    }
    lines.extend(default_words(plan).map(|words| ("", words.to_owned())));
    lines.extend(plan.bitmap_file.as_ref().map(|file| {
        let (path, size) = (file.display(), format_size(plan.bitmap_file_bytes()));
        ("", format!("kept in {path} ({size}, sparse); name it whenever you serve the array"))
    }));
    let journal = plan.members.iter().find(|member| member.is_journal);
    lines.extend(journal.map(|member| {
        let size = format_size(member.placement.data_size_sectors * SECTOR_BYTES);
        ("journal", format!("{size} on {}", member.label))
    }));
    lines.extend(files_words(plan).map(|words| ("files", words)));
    lines.extend(plan.destroyed.iter().map(|thing| ("destroy", thing_words(thing))));
    lines.extend(plan.kept.iter().map(|thing| ("keep", thing_words(thing))));
    let mut text = String::new();
    for (word, line) in lines {
        text.push_str(&format!("  {word:<9} {}\n", printable(&line)));
    }
    for warning in warnings(plan) {
        let mark = globals.paint_out.paint(Style::Warning, "warning");
        text.push_str(&format!("  {mark}   {}\n", printable(&warning)));
    }
    text
}

/// A named thing in words: `tank: md array 01234567:... on a, b`.
fn thing_words(thing: &NamedThing) -> String {
    let NamedThing { name, kind, uuid, members } = thing;
    let uuid = uuid.as_ref().filter(|uuid| *uuid != name);
    let uuid = uuid.map(|uuid| format!(" {uuid}")).unwrap_or_default();
    format!("{name}: {kind}{uuid} on {}", members.join(", "))
}

fn thing_json(thing: &NamedThing) -> Value {
    json!({
        "name": thing.name,
        "kind": thing.kind,
        "uuid": thing.uuid,
        "members": thing.members,
    })
}

/// `RAID-6, 6 members, 4 data + 2 parity, chunk 512K, layout left-symmetric, md 1.2`.
fn shape_words(plan: &Plan) -> String {
    let slots = plan.geometry.slots();
    let level = plan.geometry.level();
    let spares =
        plan.members.iter().filter(|member| member.slot.is_none() && !member.is_journal).count();
    let mut parts = vec![level_words(level), plural(usize::from(slots), "member")];
    if spares > 0 {
        parts.push(plural(spares, "spare"));
    }
    match &plan.geometry {
        Geometry::Direct(_) => parts.push("no redundancy".to_string()),
        Geometry::Mirror(mirror) => parts.push(plural(usize::from(mirror.copies()), "copy")),
        Geometry::Stripe(stripe) => {
            let parity = stripe.parity_slots();
            parts.push(format!("{} data + {parity} parity", slots - parity));
        }
    }
    let chunk_sectors = plan.wanted.chunk_sectors;
    if chunk_sectors > 0 {
        parts.push(format!("chunk {}", format_size_exact(u64::from(chunk_sectors) * SECTOR_BYTES)));
    }
    parts.extend(layout_name(level, plan.wanted.layout).map(|name| format!("layout {name}")));
    parts.push(format!("md {}", plan.wanted.version));
    parts.join(", ")
}

fn level_words(level: Level) -> String {
    match level {
        Level::Linear => "linear".to_string(),
        other => format!("RAID-{}", other.md_number()),
    }
}

fn plural(count: usize, word: &str) -> String {
    match (count, word) {
        (1, _) => format!("1 {word}"),
        (_, "copy") => format!("{count} copies"),
        _ => format!("{count} {word}s"),
    }
}

fn capacity_bytes(plan: &Plan) -> u64 {
    plan.geometry.capacity_sectors() * SECTOR_BYTES
}

/// Bytes of the members in slots, each with its own size.
fn raw_bytes(plan: &Plan) -> u64 {
    let active = plan.members.iter().filter(|member| member.slot.is_some());
    active.map(|member| member.size_bytes).fold(0, u64::saturating_add)
}

fn capacity_words(plan: &Plan) -> String {
    let (capacity, raw) = (capacity_bytes(plan), raw_bytes(plan).max(1));
    let usable = format_size(capacity);
    if !plan.missing.is_empty() {
        return format!("{usable} usable");
    }
    let permille = u128::from(capacity) * 1000 / u128::from(raw);
    format!("{usable} usable of {} ({}.{} %)", format_size(raw), permille / 10, permille % 10)
}

/// Bytes of a member beyond the size of the smallest member.
fn unused_bytes(plan: &Plan, member: &PlannedMember) -> u64 {
    if plan.member_size_sectors == 0 || member.is_journal {
        return 0;
    }
    (member.placement.usable_sectors - plan.member_size_sectors) * SECTOR_BYTES
}

fn unused_words(plan: &Plan) -> Option<String> {
    let members = plan.members.iter().filter(|member| !member.is_journal);
    let smallest = members.min_by_key(|member| member.placement.usable_sectors)?;
    let larger: Vec<String> = plan
        .members
        .iter()
        .filter(|member| unused_bytes(plan, member) > 0)
        .map(|member| format!("{} on {}", format_size(unused_bytes(plan, member)), member.label))
        .collect();
    if larger.is_empty() {
        return None;
    }
    let size = format_size(smallest.size_bytes);
    Some(format!("{}; {} is the smallest with {size}", larger.join(", "), smallest.label))
}

fn files_words(plan: &Plan) -> Option<String> {
    let to_make = plan.members.iter().filter(|member| matches!(member.source, Source::ToMake));
    let sizes: Vec<u64> = to_make.map(|member| member.size_bytes).collect();
    let size = sizes.first()?;
    Some(format!("{} of {}, sparse", plural(sizes.len(), "new file"), format_size(*size)))
}

fn warnings(plan: &Plan) -> Vec<String> {
    let mut warnings = Vec::new();
    if !plan.missing.is_empty() {
        let slots: Vec<String> = plan.missing.iter().map(ToString::to_string).collect();
        warnings.push(format!("degraded from the start: slot {} is missing", slots.join(", ")));
    }
    if plan.sync == Sync::Pending {
        warnings.push(
            "redundancy is not right until the first resync is over, which begins when the array \
             is served; --zero makes it right now, --assume-clean is for members that are all \
             zero"
                .to_string(),
        );
    }
    if matches!(plan.consistency, Consistency::Lockless(_)) {
        warnings.push(
            "only Linux 6.18 and later can use an array with a lockless bitmap; earlier kernels refuse it"
                .to_string(),
        );
    }
    warnings
}

fn to_json(plan: &Plan, made: Option<&CreatedArray>) -> Value {
    let wanted = &plan.wanted;
    let saved = made.and_then(|made| made.saved.as_ref());
    let members: Vec<Value> = plan.members.iter().map(|member| member_json(plan, member)).collect();
    json!({
        "command": "create",
        "dry_run": made.is_none(),
        "array": {
            "name": wanted.name,
            "uuid": made.map(|made| format_uuid(&made.array_uuid)),
            "level": wanted.level.name(),
            "layout": layout_name(wanted.level, wanted.layout),
            "chunk_bytes": u64::from(wanted.chunk_sectors) * SECTOR_BYTES,
            "metadata": wanted.version.to_string(),
            "slots": plan.geometry.slots(),
            "can_lose": plan.geometry.lost_max(),
            "capacity_bytes": capacity_bytes(plan),
            "raw_bytes": raw_bytes(plan),
            "member_size_bytes": plan.member_size_sectors * SECTOR_BYTES,
            "sync": plan.sync.code(),
            "consistency": plan.consistency.code(),
            "bitmap_chunk_bytes": plan.consistency.bitmap().map(|bitmap| bitmap.chunk_bytes),
        },
        "members": members,
        "bitmap_file": plan.bitmap_file.as_ref().map(|file| file.display().to_string()),
        "missing_slots": plan.missing,
        "destroyed": plan.destroyed.iter().map(thing_json).collect::<Vec<_>>(),
        "kept": plan.kept.iter().map(thing_json).collect::<Vec<_>>(),
        "saved_in": saved.map(|saved| saved.path.display().to_string()),
        "undo": saved.map(|saved| saved.number),
        "warnings": warnings(plan),
        "next": made.map(|_| next(plan)),
    })
}

fn member_json(plan: &Plan, member: &PlannedMember) -> Value {
    json!({
        "path": member.label,
        "role": match member.slot {
            Some(_) => "active",
            None if member.is_journal => "journal",
            None => "spare",
        },
        "slot": member.slot,
        "size_bytes": member.size_bytes,
        "data_offset_bytes": member.placement.data_offset_sectors * SECTOR_BYTES,
        "unused_bytes": unused_bytes(plan, member),
        "new_file": matches!(member.source, Source::ToMake),
    })
}
