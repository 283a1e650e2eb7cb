//! One superblock, field by field: in words, and as JSON.
//!
//! The order of the fields follows an operator's questions: the array, its shape, the member's part
//! of the array, the state at the array's stop, and the member's other contents.

use braid_assembly::ProbedMember;
use braid_geometry::{Family, Geometry, Level, SECTOR_BYTES, Shape, layout_name};
use braid_ondisk::{
    BadBlockLog, Bitmap, BitmapFile, BitmapKind, ByteOrder, Features, JournalLog, LogHome,
    MarkCounts, MarkState, OwnLog, PplLog, PplLogError, Role, Superblock, Timestamp, format_uuid,
};
use serde_json::{Value, json};

use braid_console::output::size::{format_size, format_size_exact};
use braid_console::output::utc::format_utc;
use braid_discovery::status::words::byte_order_words;

/// The text prints this many bad ranges; JSON has all bad ranges.
const BAD_RANGES_SHOWN: usize = 8;

/// A heading and its words.
pub(super) type Line = (&'static str, String);

fn bytes(sectors: u64) -> u64 {
    sectors.saturating_mul(SECTOR_BYTES)
}

pub(super) fn lines(superblock: &Superblock) -> Vec<Line> {
    let (array, device, state) = (&superblock.array, &superblock.device, &superblock.state);
    let name = if array.name.is_empty() { "(no name)" } else { array.name.as_str() };
    let mut lines = vec![
        (
            "superblock",
            format!(
                "md {}{} at {}, checksum ok",
                superblock.version,
                byte_order_words(superblock.byte_order),
                format_size(superblock.offset_bytes())
            ),
        ),
        ("array", format!("{name}   {}", format_uuid(&array.uuid))),
        ("made", time(array.creation_time)),
        ("shape", shape(superblock)),
        ("sizes", sizes(superblock)),
        (
            "data",
            format!(
                "{} from {} (sector {})",
                format_size(bytes(device.data_size_sectors)),
                format_size(bytes(device.data_offset_sectors)),
                device.data_offset_sectors
            ),
        ),
        ("member", member(superblock)),
        ("slots", format!("{}   (A here, . not)", slots(superblock))),
        ("state", state_words(superblock)),
        ("updated", format!("{}, events {}", time(state.update_time), state.events)),
    ];
    lines.extend(optional(superblock));
    lines
}

/// Lines for features, shown only if the superblock has the feature.
fn optional(superblock: &Superblock) -> Vec<Line> {
    let (device, state) = (&superblock.device, &superblock.state);
    let mut lines = Vec::new();
    if let Some(block_bytes) = superblock.array.logical_block_bytes {
        let size = format_size(u64::from(block_bytes));
        let words = format!("of {size} at least (kernels before 6.19 refuse such an array)");
        lines.push(("blocks", words));
    }
    if let Some(recovered) = device.recovery_offset_sectors {
        lines.push(("recovery", format!("up to sector {recovered} of the data area")));
    }
    if let Some(reshape) = superblock.reshape {
        lines.push((
            "reshape",
            format!(
                "at array sector {}, to {} with {:+} slots{}",
                reshape.position_sectors,
                reshape.new_level,
                reshape.delta_disks,
                if reshape.backwards { ", backwards" } else { "" }
            ),
        ));
    }
    if let Some(offset) = superblock.intent.bitmap_offset_sectors {
        lines.push(("bitmap", format!("{offset} sectors from the superblock")));
    }
    if state.log_counts == Some(LogHome::File) {
        let words = "interrupted writes are marked in its bitmap file (serve --bitmap-file FILE)";
        lines.push(("own log", words.to_owned()));
    }
    if let Some(ppl) = superblock.intent.ppl {
        let (offset, size) = (ppl.offset_sectors, ppl.size_sectors);
        lines.push(("ppl", format!("{size} sectors, {offset} sectors from the superblock")));
    }
    if let Some(journal) = superblock.intent.journal {
        let tail = journal.tail_sectors.map(|tail| format!(", this member, tail at {tail}"));
        lines.push(("journal", format!("the array has one{}", tail.unwrap_or_default())));
    }
    let flags = [("write-mostly", device.flags.write_mostly), ("failfast", device.flags.failfast)];
    let set: Vec<&str> = flags.into_iter().filter(|(_, set)| *set).map(|(name, _)| name).collect();
    if !set.is_empty() {
        lines.push(("flags", set.join(", ")));
    }
    if device.corrected_read_errors > 0 {
        lines.push(("errors", format!("{} read errors corrected", device.corrected_read_errors)));
    }
    let mut features: Vec<String> = state.features.names().map(String::from).collect();
    if state.features.unknown() != 0 {
        features.push(format!("unknown bits {:#x}", state.features.unknown()));
    }
    if !features.is_empty() {
        lines.push(("features", features.join(", ")));
    }
    lines
}

/// A parity log in words.
fn parity_log_words(log: &Result<PplLog, PplLogError>) -> String {
    match log {
        Err(error) => format!("cannot be used: {error}"),
        Ok(PplLog { newest: None, .. }) => "no record".to_string(),
        Ok(log @ PplLog { newest: Some(record), older }) => {
            let (generation, count) = (record.generation, log.entries().count());
            let torn = match record.torn {
                0 => String::new(),
                torn => format!(", {torn} cut short"),
            };
            match older.first() {
                None => format!("record {generation}, {count} entries{torn}"),
                Some(first) => {
                    format!("records {} to {generation}, {count} entries{torn}", first.generation)
                }
            }
        }
    }
}

/// braid's own log in words, and whether this member's superblock makes the log count.
fn own_log_words(member: &ProbedMember, own: &OwnLog) -> String {
    let place = match &own.place {
        Err(error) => return format!("cannot be used: {error}"),
        Ok(place) => format!("{} sectors before the data", place.size_sectors),
    };
    let state = member.probe.newest().map(|superblock| &superblock.state);
    let counts = match state {
        Some(state) if state.log_counts == Some(LogHome::Members) => parity_log_words(&own.log),
        Some(state) if state.is_clean() => "the array is clean and needs none".to_string(),
        _ => {
            "it is void: parity did not agree yet, or another program wrote without it".to_string()
        }
    };
    format!("{place}; {counts}")
}

fn bitmap_words(bitmap: &Bitmap) -> String {
    let Bitmap { superblock: bitmap, bits, marks } = bitmap;
    let each = format_size_exact(u64::from(bitmap.chunk_bytes));
    let (mark, set) = match (bitmap.kind, marks) {
        (BitmapKind::HostEndian, _) => ("bit", "not read".to_string()),
        (_, Some((_, counts))) => ("mark", mark_words(counts, bits.count())),
        (_, None) => ("bit", format!("{} of {} bits set", bits.set_count(), bits.count())),
    };
    let (events, cleared) = (bitmap.events, bitmap.events_cleared);
    let kind = bitmap.kind.name();
    format!("{kind}, a {mark} for {each}, {set}, events {events} (cleared {cleared})")
}

/// A bitmap file in lines.
pub(super) fn bitmap_file_lines(file: &BitmapFile) -> Vec<Line> {
    let mut lines = vec![
        ("holds", "the bitmap of an array, not a member".to_string()),
        ("array", format_uuid(&file.uuid)),
        (
            "bitmap",
            match &file.bitmap {
                Ok(bitmap) => bitmap_words(bitmap),
                Err(error) => format!("cannot be used: {error}"),
            },
        ),
    ];
    let log = file.own_log.as_ref().map(|own| match &own.place {
        Err(error) => format!("cannot be used: {error}"),
        Ok(place) => {
            let words = parity_log_words(&own.log);
            format!("{} sectors at the end; {words}", place.size_sectors)
        }
    });
    lines.extend(log.map(|words| ("braid log", words)));
    lines
}

/// Lines about the member's logs, which are stored next to its superblock.
pub(super) fn log_lines(member: &ProbedMember) -> Vec<Line> {
    let mut lines = Vec::new();
    match &member.bad_blocks {
        Err(error) => lines.push(("bad blocks", format!("the log cannot be read: {error}"))),
        Ok(records) if records.is_empty() => {
            let has_log = member.probe.newest().is_some_and(|s| s.device.bad_block_log.is_some());
            lines.push(("bad blocks", if has_log { "none" } else { "no log" }.to_string()));
        }
        Ok(records) => {
            let ranges = BadBlockLog::ranges(records);
            let mut shown: Vec<String> = ranges
                .iter()
                .take(BAD_RANGES_SHOWN)
                .map(|range| format!("{}+{}", range.start_sector, range.length_sectors))
                .collect();
            if ranges.len() > BAD_RANGES_SHOWN {
                shown.push(format!("and {} more", ranges.len() - BAD_RANGES_SHOWN));
            }
            lines.push(("bad blocks", format!("sectors {}", shown.join(", "))));
        }
    }
    match &member.bitmap {
        None => {}
        Some(Err(error)) => lines.push(("bitmap", format!("cannot be used: {error}"))),
        Some(Ok(bitmap)) => lines.push(("bitmap", bitmap_words(bitmap))),
    }
    lines.extend(member.ppl.as_ref().map(|log| ("ppl log", parity_log_words(log))));
    lines.extend(member.own_log.as_ref().map(|own| ("braid log", own_log_words(member, own))));
    match &member.journal {
        None => {}
        Some(Err(error)) => lines.push(("journal log", format!("cannot be followed: {error}"))),
        Some(Ok(log)) => lines.push(("journal log", journal_words(log))),
    }
    lines
}

/// Numbers of a lockless bitmap's marks in each state, in order, without empty states.
fn mark_states(counts: &MarkCounts) -> impl Iterator<Item = (&'static str, u64)> {
    let states = MarkState::ALL.map(|state| (state.name(), counts.of(state)));
    states.into_iter().chain([("unknown", counts.unknown)]).filter(|(_, count)| *count > 0)
}

fn mark_words(counts: &MarkCounts, marks: u64) -> String {
    let states: Vec<String> =
        mark_states(counts).map(|(name, count)| format!("{count} {name}")).collect();
    format!("{} of {marks} marks", states.join("; "))
}

/// The numbers of a lockless bitmap's marks in each state, as JSON, with empty states.
pub(super) fn marks_json(counts: &MarkCounts) -> Value {
    let key = |name: &str| name.replace(", ", "_").replace(' ', "_");
    let states = MarkState::ALL.map(|state| (key(state.name()), json!(counts.of(state))));
    let all = states.into_iter().chain([("unknown".to_string(), json!(counts.unknown))]);
    Value::Object(all.collect())
}

/// The mode of a write journal, if the journal's records show it.
pub(super) fn journal_mode(log: &JournalLog) -> Option<&'static str> {
    log.is_write_back.then_some("write-back")
}

/// The fill of a write journal in words, and the blocks that it holds.
fn journal_words(log: &JournalLog) -> String {
    let (used, ring) = (log.used_sectors(), log.area.ring_sectors);
    format!(
        "{} of {} in use, sequence {} to {}, {} blocks of data, {}",
        format_size(bytes(used)),
        format_size(bytes(ring)),
        log.first_sequence,
        log.end_sequence,
        log.data_blocks(),
        journal_mode(log).unwrap_or("nothing that only write-back leaves")
    )
}

fn time(time: Timestamp) -> String {
    format_utc(time.seconds)
}

fn shape(superblock: &Superblock) -> String {
    let array = &superblock.array;
    let mut parts = vec![array.level.to_string(), format!("{} slots", array.raid_slots)];
    parts.extend(layout(superblock).map(|name| format!("layout {name}")));
    if array.chunk_sectors > 0 {
        let chunk = format_size_exact(bytes(u64::from(array.chunk_sectors)));
        parts.push(format!("chunk {chunk}"));
    }
    parts.join(", ")
}

/// The layout's name; a raid0 superblock states the layout only with its feature bit.
fn layout(superblock: &Superblock) -> Option<String> {
    let array = &superblock.array;
    let is_said = superblock.state.features.contains(Features::RAID0_LAYOUT);
    let number = if array.level == Level::Raid0 && !is_said { 0 } else { array.layout };
    layout_name(array.level, number)
}

/// Sectors of the array, if one member's superblock is enough to compute them.
fn capacity_sectors(superblock: &Superblock) -> Option<u64> {
    let array = &superblock.array;
    let slots = u16::try_from(array.raid_slots).ok()?;
    if array.level.family() == Family::Direct {
        return None;
    }
    let shape = Shape::uniform(
        array.level,
        array.layout,
        array.chunk_sectors,
        slots,
        array.member_size_sectors,
    );
    Geometry::new(&shape).ok().map(|geometry| geometry.capacity_sectors())
}

fn sizes(superblock: &Superblock) -> String {
    let used = superblock.array.member_size_sectors;
    match capacity_sectors(superblock) {
        Some(capacity) => format!(
            "array {}, of each member {}",
            format_size(bytes(capacity)),
            format_size(bytes(used))
        ),
        None if superblock.array.level.family() == Family::Direct => {
            "array: the data areas of all members together".to_string()
        }
        None => format!("of each member {}", format_size(bytes(used))),
    }
}

fn role_words(role: Role) -> String {
    match role {
        Role::Active(slot) => format!("slot {slot}"),
        Role::Spare => "spare".to_string(),
        Role::Faulty => "faulty".to_string(),
        Role::Journal => "journal".to_string(),
    }
}

fn member(superblock: &Superblock) -> String {
    let device = &superblock.device;
    let uuid = match device.uuid {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] => String::new(),
        uuid => format!("   {}", format_uuid(&uuid)),
    };
    format!("{}, device number {}{uuid}", role_words(superblock.state.role), device.number)
}

/// One letter for each slot: its state in this superblock's view.
fn slots(superblock: &Superblock) -> String {
    let roles = &superblock.state.roles;
    let slots = u16::try_from(superblock.array.raid_slots).unwrap_or(u16::MAX);
    let mut here = vec![false; usize::from(slots)];
    for role in roles {
        if let Role::Active(slot) = role
            && let Some(is_here) = here.get_mut(usize::from(*slot))
        {
            *is_here = true;
        }
    }
    here.into_iter().map(|is_here| if is_here { 'A' } else { '.' }).collect()
}

fn state_words(superblock: &Superblock) -> String {
    match superblock.state.resync_offset {
        u64::MAX => "clean".to_string(),
        0 => "active: redundancy was not in sync everywhere when this was written".to_string(),
        sector => format!("resync reached sector {sector}"),
    }
}

/// The roles up to the last device that has one; md fills the rest of the table with spares.
fn named_roles(roles: &[Role]) -> &[Role] {
    let end = roles.iter().rposition(|role| *role != Role::Spare).map_or(0, |last| last + 1);
    roles.get(..end).unwrap_or_default()
}

/// The superblock as an object; sizes in bytes, times in seconds since 1970.
pub(super) fn to_json(superblock: &Superblock) -> Value {
    let (array, device, state) = (&superblock.array, &superblock.device, &superblock.state);
    let role = |role: &Role| match role {
        Role::Active(slot) => json!(slot),
        other => json!(role_words(*other)),
    };
    json!({
        "version": superblock.version.to_string(),
        "big_endian": superblock.byte_order == ByteOrder::Big,
        "offset_bytes": superblock.offset_bytes(),
        "array": {
            "name": array.name,
            "uuid": format_uuid(&array.uuid),
            "level": array.level.name(),
            "layout": layout(superblock),
            "layout_number": array.layout,
            "chunk_bytes": bytes(u64::from(array.chunk_sectors)),
            "slots": array.raid_slots,
            "member_size_bytes": bytes(array.member_size_sectors),
            "capacity_bytes": capacity_sectors(superblock).map(bytes),
            "creation_time_seconds": array.creation_time.seconds,
            "preferred_minor": array.preferred_minor,
            "logical_block_bytes": array.logical_block_bytes,
        },
        "device": {
            "number": device.number,
            "uuid": format_uuid(&device.uuid),
            "role": role(&state.role),
            "data_offset_bytes": bytes(device.data_offset_sectors),
            "data_size_bytes": bytes(device.data_size_sectors),
            "recovery_offset_bytes": device.recovery_offset_sectors.map(bytes),
            "write_mostly": device.flags.write_mostly,
            "failfast": device.flags.failfast,
            "corrected_read_errors": device.corrected_read_errors,
            "has_bad_block_log": device.bad_block_log.is_some(),
        },
        "state": {
            "events": state.events,
            "update_time_seconds": state.update_time.seconds,
            "clean": state.is_clean(),
            "resync_offset_sectors": (!state.is_clean()).then_some(state.resync_offset),
            "features": state.features.names().collect::<Vec<_>>(),
            "unknown_features": state.features.unknown(),
            "roles": named_roles(&state.roles).iter().map(role).collect::<Vec<_>>(),
        },
        "bitmap_offset_sectors": superblock.intent.bitmap_offset_sectors,
        "has_ppl": superblock.intent.ppl.is_some(),
        "has_journal": superblock.intent.journal.is_some(),
        "reshape_position_sectors": superblock.reshape.map(|reshape| reshape.position_sectors),
    })
}
