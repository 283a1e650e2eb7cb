//! The overlays of an array: a folder with two files for each member, and a list of the overlays
//! that belong together (`overlay_list`).
//!
//! An overlay is named by a checksum of its member at creation. So the overlay is found under any
//! device name, and not found after a write to the member. A write to the member makes the overlay
//! useless, and the refusal says so.
//!
//! Overlays saved at different times would show a mixture that no client ever wrote. So a missing,
//! older or changed overlay is refused by name, and the array can still be read without its member
//! `[check: an_overlay_that_was_damaged_is_refused_by_name]`.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) use braid_member::layer::overlay::BLOCK_BYTES;
use braid_member::layer::{Overlay, OverlayError};
use braid_member::{Member, lock_exclusively};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use serde_json::json;

use super::config::RescueConfig;
use super::disks::{Disk, Disks};
use super::group::Group;
use super::overlay_list::{self as list, Entry, OverlayList};
use braid_console::Globals;
use braid_console::error::code::Code;
use braid_console::error::system::system;
use braid_console::error::{CliError, Exit, Risk};
use braid_console::output::printable::printable;
use braid_console::output::shell::shell_word;
use braid_console::output::size::format_size;
use braid_console::state::make_folders;

pub(super) type MemberOverlay = Arc<Overlay<Arc<dyn Member>>>;

/// The overlay of an array in the middle of a reshape. The members of such an array cannot have
/// overlays.
pub(super) type ArrayOverlay = Arc<Overlay<Arc<dyn Member>>>;

pub(super) fn folder(args: &RescueConfig, uuid: &str, globals: &Globals) -> PathBuf {
    let base = args.overlay.clone().unwrap_or_else(|| globals.state_dir.join("rescue"));
    base.join(uuid.replace(':', ""))
}

fn name(disk: &Disk) -> String {
    format!("{:016x}", disk.mark)
}

fn names(folder: &Path) -> Result<Vec<String>, CliError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| cannot(folder, &error))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| cannot(folder, &error))?.path();
        let is_map = path.extension().is_some_and(|end| end == "map");
        names.extend(
            path.file_stem().filter(|_| is_map).map(|it| it.to_string_lossy().into_owned()),
        );
    }
    names.sort();
    Ok(names)
}

fn cannot(folder: &Path, error: &io::Error) -> CliError {
    system(format!("the overlay in {} cannot be used", folder.display()), error)
}

pub(super) fn taken_bytes(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let blocks = entries.filter_map(|entry| entry.metadata().ok()).map(|it| it.blocks());
    blocks.sum::<u64>() * 512
}

/// Opens the existing overlays of a group's members; `None` for a member to which nothing was
/// written yet.
pub(super) fn open(
    args: &RescueConfig,
    (disks, group): (&Disks, &Group),
    globals: &Globals,
) -> Result<Vec<Option<MemberOverlay>>, CliError> {
    let folder = folder(args, &group.uuid, globals);
    let list = made(args, &folder)?;
    // The overlay of a member that is left out of this rescue still exists.
    let is_of_one = |there: &Entry| disks.all.iter().any(|disk| name(disk) == there.name);
    if let Some(other) = list.iter().find(|there| !is_of_one(there)) {
        let other = &other.name;
        let why = format!(
            "{other} belongs to a member that was not named, or was written to \
                           since"
        );
        return Err(unfit(args, &folder, &why));
    }
    let of = |disk: &Disk| {
        let entry = list.iter().find(|entry| entry.name == name(disk));
        let open = |entry| {
            open_listed(args, Arc::clone(&disk.device), (&folder, &disk.label), (entry, disk.mark))
        };
        entry.map(open).transpose()
    };
    group.members.iter().map(|index| of(&disks.all[*index])).collect()
}

/// The overlays that belong together; overlays not listed are ignored.
fn listed(args: &RescueConfig, folder: &Path) -> Result<Vec<Entry>, CliError> {
    let list = list::read(folder).map_err(|error| cannot(folder, &error))?;
    let names = names(folder)?;
    let path = list::path(folder).display().to_string();
    let entries = match list {
        OverlayList::Nothing if names.is_empty() => return Ok(Vec::new()),
        OverlayList::Nothing
            if names.iter().any(|name| is_older(&folder.join(format!("{name}.map")))) =>
        {
            let why = "an older braid made it; that version can commit or discard it";
            return Err(unfit(args, folder, why));
        }
        OverlayList::Nothing => {
            let why = format!("{path}, the list of the overlay's files, is gone");
            return Err(damaged(args, folder, None, &why));
        }
        OverlayList::Damaged => {
            let why = format!("{path} was changed");
            return Err(damaged(args, folder, None, &why));
        }
        OverlayList::Entries(entries) => entries,
    };
    if let Some(name) = names.iter().find(|name| !entries.iter().any(|entry| entry.name == **name))
    {
        let why = format!("{name}.map is not in {path}, the list of the overlay's files");
        return Err(damaged(args, folder, None, &why));
    }
    Ok(entries)
}

/// Whether the file is an overlay's map from a braid version that kept no list of overlays.
fn is_older(map: &Path) -> bool {
    let mut first = [0; 16];
    let is_read = open_map(map).is_some_and(|mut file| file.read_exact(&mut first).is_ok());
    is_read && first == *b"braid-overlay 1\n"
}

/// Opens an overlay's map for reading. `None` if `path` is no plain file, such as a link or a pipe.
fn open_map(path: &Path) -> Option<fs::File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    rustix::fs::open(path, flags, Mode::empty()).ok().map(fs::File::from)
}

/// The overlays that were made completely. An overlay whose making was cut short by a kill holds no
/// data yet.
fn made(args: &RescueConfig, folder: &Path) -> Result<Vec<Entry>, CliError> {
    Ok(listed(args, folder)?.into_iter().filter(|entry| entry.is_made).collect())
}

/// Opens the overlay of an array by the overlay's name and mark; `None` if nothing was written yet.
pub(super) fn open_array(
    args: &RescueConfig,
    folder: &Path,
    (device, (name, mark)): (&Arc<dyn Member>, &(String, u64)),
) -> Result<Option<ArrayOverlay>, CliError> {
    let list = made(args, folder)?;
    if let Some(other) = list.iter().find(|there| there.name != *name) {
        let other = &other.name;
        let why = format!(
            "{other} is of other members, of another state of the array, or with another backup; \
             or the found position of a reshape differs now (--as-recorded)"
        );
        return Err(unfit(args, folder, &why));
    }
    let open = |entry| open_listed(args, Arc::clone(device), (folder, name), (entry, *mark));
    list.first().map(open).transpose()
}

pub(super) fn make_array(
    args: &RescueConfig,
    folder: &Path,
    (device, (name, mark)): (&Arc<dyn Member>, &(String, u64)),
) -> Result<ArrayOverlay, CliError> {
    let there = open_array(args, folder, (device, &(name.clone(), *mark)))?;
    let (device, label) = (Arc::clone(device), name.clone());
    let wanted = OverlayRequest { device, label, name: name.clone(), mark: *mark, there };
    let made = make(args, folder, vec![wanted])?;
    Ok(made.into_iter().next().expect("one was asked for"))
}

/// A request for a member's overlay, which is open already or still to be made.
pub(super) struct OverlayRequest {
    device: Arc<dyn Member>,
    label: String,
    name: String,
    mark: u64,
    /// The overlay, if it was already open.
    there: Option<MemberOverlay>,
}

impl OverlayRequest {
    pub(super) fn of(disk: &Disk, there: Option<MemberOverlay>) -> Self {
        let (device, label) = (Arc::clone(&disk.device), disk.label.clone());
        Self { device, label, name: name(disk), mark: disk.mark, there }
    }
}

/// Makes the missing overlays, and lists all overlays before any write to one.
pub(super) fn make(
    args: &RescueConfig,
    folder: &Path,
    wanted: Vec<OverlayRequest>,
) -> Result<Vec<MemberOverlay>, CliError> {
    make_folders(folder).map_err(|(path, error)| cannot(&path, &error))?;
    // If two servers start at once, one makes the overlay and the other server is refused.
    let held = fs::File::open(folder).map_err(|error| cannot(folder, &error))?;
    flock(&held, FlockOperation::LockExclusive).map_err(|error| cannot(folder, &error.into()))?;
    // Overlays of members that are left out of this rescue stay listed.
    let mut entries = listed(args, folder)?;
    let was_made =
        |one: &OverlayRequest| entries.iter().any(|entry| entry.is_made && entry.name == one.name);
    if wanted.iter().any(|one| one.there.is_none() && was_made(one)) {
        return Err(busy(folder));
    }
    entries.retain(|entry| !wanted.iter().any(|one| one.name == entry.name));
    let entry = |one: &OverlayRequest| {
        let (id, sequence) = match &one.there {
            Some(overlay) => overlay.identity_and_sequence(),
            None => (list::new_id(), 0),
        };
        Entry { name: one.name.clone(), id, sequence, is_made: one.there.is_some() }
    };
    let mut new: Vec<Entry> = wanted.iter().map(entry).collect();
    let save = |new: &[Entry]| {
        let all = [&entries, new].concat();
        list::write(folder, &all).map_err(|error| cannot(folder, &error))
    };
    save(&new)?;
    let mut overlays = Vec::new();
    for (one, entry) in wanted.into_iter().zip(&mut new) {
        overlays.push(match one.there {
            Some(overlay) => overlay,
            None => {
                let made = Overlay::make(one.device, folder, &one.name, (one.mark, entry.id));
                Arc::new(made.map_err(|error| overlay_error(args, (folder, &one.label), &error))?)
            }
        });
        entry.is_made = true;
    }
    save(&new)?;
    Ok(overlays)
}

/// Opens an overlay and checks it. On a read-only server, only the damaged blocks of the overlay
/// are I/O errors.
fn open_listed(
    args: &RescueConfig,
    device: Arc<dyn Member>,
    (folder, label): (&Path, &str),
    (entry, mark): (&Entry, u64),
) -> Result<MemberOverlay, CliError> {
    let opened = Overlay::open(device, folder, &entry.name, mark);
    let overlay = opened.map_err(|error| overlay_error(args, (folder, label), &error))?;
    let (id, sequence) = overlay.identity_and_sequence();
    if id != entry.id || sequence < entry.sequence {
        let why = format!("{}.map is older or newer than the others", entry.name);
        return Err(damaged(args, folder, Some(label), &why));
    }
    if args.serve && args.read_only {
        return Ok(Arc::new(overlay));
    }
    let changed = overlay.changed().map_err(|error| cannot(folder, &error))?;
    let bytes: u64 = changed.iter().map(|range| range.end - range.start).sum();
    if let Some(first) = changed.first() {
        let why = format!(
            "{}.data lost its writes: {} of {label}, from byte {} on",
            entry.name,
            format_size(bytes),
            first.start
        );
        return Err(CliError::new(
            Code::OverlayDamaged,
            format!("the overlay of {label} in {} is damaged", folder.display()),
        )
        .about(label)
        .because(why)
        .because("nothing was changed")
        .remedy(
            Risk::Look,
            "Read it without that part, which is computed from the others or an I/O error",
            args.command("--serve --read-only"),
        )
        .remedy(Risk::Destroy, "Throw it away", args.command("--discard")));
    }
    Ok(Arc::new(overlay))
}

fn overlay_error(
    args: &RescueConfig,
    (folder, label): (&Path, &str),
    error: &OverlayError,
) -> CliError {
    match error {
        OverlayError::Busy { .. } => busy(folder),
        OverlayError::OfOther { .. } => unfit(args, folder, &error.to_string()),
        OverlayError::Damaged { .. } => damaged(args, folder, Some(label), &error.to_string()),
        OverlayError::System { source, .. } => cannot(folder, source),
    }
}

fn busy(folder: &Path) -> CliError {
    let what = format!("the overlay in {} is in use", folder.display());
    CliError::new(Code::OverlayBusy, what).because("the array is being served from it").remedy(
        Risk::Look,
        "See by whom",
        format!("fuser -v {}", files(folder)),
    )
}

/// The refusal of an overlay that is damaged or lost, with its member if known.
fn damaged(args: &RescueConfig, folder: &Path, label: Option<&str>, why: &str) -> CliError {
    let of = label.map_or_else(String::new, |label| format!(" of {label}"));
    let what = format!("the overlay{of} in {} is damaged", folder.display());
    let error =
        CliError::new(Code::OverlayDamaged, what).because(why).because("nothing was changed");
    let error = label.into_iter().fold(error, |error, label| {
        let without = format!("--serve --read-only --without {}", shell_word(label));
        error.about(label).remedy(
            Risk::Look,
            "Read the array without this member, with the other overlays",
            args.command(&without),
        )
    });
    error
        .remedy(
            Risk::Look,
            "Look at the members without it",
            args.command("--overlay \"$(mktemp -d)\""),
        )
        .remedy(Risk::Destroy, "Throw it away", args.command("--discard"))
}

fn files(folder: &Path) -> String {
    format!("{}/*.map", shell_word(&folder.display().to_string()))
}

fn unfit(args: &RescueConfig, folder: &Path, why: &str) -> CliError {
    let what = format!("the overlay in {} does not fit these members", folder.display());
    CliError::new(Code::OverlayUnfit, what)
        .because(why)
        .because("nothing was changed")
        .remedy(
            Risk::Look,
            "Look at the members without it",
            args.command("--overlay \"$(mktemp -d)\""),
        )
        .remedy(Risk::Destroy, "Throw it away", args.command("--discard"))
}

pub(super) fn missing(args: &RescueConfig, folder: &Path) -> CliError {
    let what = format!("there is no overlay in {}", folder.display());
    CliError::new(Code::OverlayMissing, what)
        .because("nothing was written over the members")
        .remedy(Risk::Look, "Look at the array", args.command(""))
}

pub(super) fn discard(
    args: &RescueConfig,
    group: &Group,
    globals: &Globals,
) -> Result<Exit, CliError> {
    let folder = folder(args, &group.uuid, globals);
    let names = names(&folder)?;
    if names.is_empty() && !list::path(&folder).exists() {
        return Err(missing(args, &folder));
    }
    let bytes = taken_bytes(&folder);
    remove(&folder)?;
    let place = folder.display().to_string();
    if globals.json {
        outjson!(&json!({ "discarded": place, "bytes": bytes, "members": names.len() }));
    } else {
        outln!("thrown away: {} ({})", printable(&place), format_size(bytes));
    }
    Ok(Exit::Done)
}

/// Removes this overlay folder only, unless one of its files is in use.
pub(super) fn remove_committed(folder: &Path) -> Result<(), CliError> {
    match list::read(folder) {
        Ok(OverlayList::Entries(_)) => remove(folder),
        _ => Ok(()),
    }
}

/// Removes an overlay folder unless one of its files is in use. A rename comes first, so the folder
/// is removed whole or stays whole.
pub(super) fn remove(folder: &Path) -> Result<(), CliError> {
    for name in names(folder)? {
        let Some(file) = open_map(&folder.join(format!("{name}.map"))) else { continue };
        if lock_exclusively(&file) == Ok(false) {
            return Err(busy(folder));
        }
    }
    let gone = folder.with_extension("gone");
    let remove = || {
        if gone.exists() {
            fs::remove_dir_all(&gone)?;
        }
        fs::rename(folder, &gone)?;
        fs::remove_dir_all(&gone)
    };
    match remove() {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(cannot(folder, &error)),
        _ => Ok(()),
    }
}
