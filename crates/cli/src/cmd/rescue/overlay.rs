//! The overlays of an array: a folder with two files for each member.
//!
//! They are named by what the member held when they were made. So an overlay is found whatever a disk is called today, and is not found
//! any more once somebody has written to the member: then it would be of use to nobody, and that is said.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use braid_member::Member;
pub(super) use braid_member::layer::overlay::BLOCK_BYTES;
use braid_member::layer::{Overlay, OverlayError};
use serde_json::json;

use super::args::Args;
use super::disks::{Disk, Disks};
use super::group::Group;
use crate::cmd::Globals;
use crate::error::code::Code;
use crate::error::system::system;
use crate::error::{CliError, Exit, Risk};
use crate::output::printable::printable;
use crate::output::shell::shell_word;
use crate::output::size::format_size;
use crate::state::make_folders;
use crate::undo;

/// One member's.
pub(super) type OfMember = Arc<Overlay<Arc<dyn Member>>>;

/// An array's, where its members cannot have one: it is in the middle of a reshape.
pub(super) type OfArray = Arc<Overlay<Arc<dyn Member>>>;

/// The folder of an array.
pub(super) fn folder(args: &Args, uuid: &str, globals: &Globals) -> PathBuf {
    let base = args.overlay.clone().unwrap_or_else(|| globals.state_dir.join("rescue"));
    base.join(uuid.replace(':', ""))
}

fn name(disk: &Disk) -> String {
    format!("{:016x}", disk.mark)
}

/// The names of overlays in a folder; none where there is none.
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

/// Bytes that the files in a folder take.
pub(super) fn taken_bytes(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let blocks = entries.filter_map(|entry| entry.metadata().ok()).map(|it| it.blocks());
    blocks.sum::<u64>() * 512
}

/// Opens the overlays that there are of a group's members; none where nothing was written yet.
pub(super) fn open(
    args: &Args,
    (disks, group): (&Disks, &Group),
    globals: &Globals,
) -> Result<Vec<Option<OfMember>>, CliError> {
    let folder = folder(args, &group.uuid, globals);
    let names_there = names(&folder)?;
    // One that is left out for now has one all the same.
    let is_of_one = |there: &String| disks.all.iter().any(|disk| name(disk) == *there);
    if let Some(other) = names_there.iter().find(|there| !is_of_one(there)) {
        if let Some(number) = cut_short(&folder, group, globals) {
            return Err(half_written(&folder, number));
        }
        let why = format!("{other} is of a member that is not named, or that was written to since");
        return Err(unfit(args, &folder, &why));
    }
    let of = |disk: &Disk| {
        let is_there = names_there.contains(&name(disk));
        is_there.then(|| open_one(args, disk, &folder)).transpose()
    };
    group.members.iter().map(|index| of(&disks.all[*index])).collect()
}

/// Opens the overlay of an array, if there is one; none where nothing was written yet. It has this name and mark.
pub(super) fn open_array(
    args: &Args,
    folder: &Path,
    (device, (name, mark)): (&Arc<dyn Member>, &(String, u64)),
) -> Result<Option<OfArray>, CliError> {
    let names_there = names(folder)?;
    if let Some(other) = names_there.iter().find(|there| *there != name) {
        let why = format!(
            "{other} is of other members, of the array in another state, or with another backup; or how far a reshape got was found otherwise now \
             (--as-recorded)"
        );
        return Err(unfit(args, folder, &why));
    }
    let is_there = !names_there.is_empty();
    is_there.then(|| make_array(args, folder, (device, &(name.clone(), *mark)))).transpose()
}

/// Opens the overlay of an array, or makes it.
pub(super) fn make_array(
    args: &Args,
    folder: &Path,
    (device, (name, mark)): (&Arc<dyn Member>, &(String, u64)),
) -> Result<OfArray, CliError> {
    open_named(args, Arc::clone(device), folder, (name, *mark))
}

/// Opens the overlay of one member, or makes it.
pub(super) fn open_one(args: &Args, disk: &Disk, folder: &Path) -> Result<OfMember, CliError> {
    open_named(args, Arc::clone(&disk.device), folder, (&name(disk), disk.mark))
}

fn open_named(
    args: &Args,
    device: Arc<dyn Member>,
    folder: &Path,
    (name, mark): (&str, u64),
) -> Result<OfMember, CliError> {
    make_folders(folder).map_err(|(path, error)| cannot(&path, &error))?;
    let opened = Overlay::open(device, folder, name, mark);
    opened.map(Arc::new).map_err(|error| match &error {
        OverlayError::Busy { .. } => {
            let what = format!("the overlay in {} is in use", folder.display());
            CliError::new(Code::OverlayBusy, what)
                .because("the array is being served from it")
                .remedy(Risk::Look, "See by whom", format!("fuser -v {}", files(folder)))
        }
        OverlayError::OfOther { .. } => unfit(args, folder, &error.to_string()),
        OverlayError::System { source, .. } => cannot(folder, source),
    })
}

fn files(folder: &Path) -> String {
    format!("{}/*.map", shell_word(&folder.display().to_string()))
}

fn unfit(args: &Args, folder: &Path, why: &str) -> CliError {
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

/// The number under which the commit of an overlay was saved, if it is still there: such a one did not come to its end.
fn cut_short(folder: &Path, group: &Group, globals: &Globals) -> Option<u64> {
    let kept = undo::find(&globals.state_dir, None).ok()??;
    let record = kept.record.ok()?;
    let is_commit = record.command.split(' ').any(|word| word == "--commit");
    let saved = UNIX_EPOCH + record.time;
    let is_older = |entry: fs::DirEntry| Some(entry.metadata().ok()?.modified().ok()? <= saved);
    let is_of_it = fs::read_dir(folder).ok()?.flatten().all(|entry| is_older(entry) == Some(true));
    (is_commit && is_of_it && record.array == group.name).then_some(kept.number)
}

fn half_written(folder: &Path, number: u64) -> CliError {
    let what = "these members were only partly written by `--commit`".to_owned();
    CliError::new(Code::OverlayUnfit, what)
        .because(format!("the overlay in {} is of what they were before", folder.display()))
        .because("with that taken back it can be committed again, or looked at")
        .remedy(Risk::Change, "Take back what was written", format!("braid undo {number}"))
}

/// There is none to commit or to throw away.
pub(super) fn missing(args: &Args, folder: &Path) -> CliError {
    let what = format!("there is no overlay in {}", folder.display());
    CliError::new(Code::OverlayMissing, what)
        .because("nothing was written since the members were as they are")
        .remedy(Risk::Look, "Look at the array", args.command(""))
}

/// Throws the overlays of an array away.
pub(super) fn discard(args: &Args, group: &Group, globals: &Globals) -> Result<Exit, CliError> {
    let folder = folder(args, &group.uuid, globals);
    let names = names(&folder)?;
    if names.is_empty() {
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

/// Removes the folder, unless one of its files is in use.
pub(super) fn remove(folder: &Path) -> Result<(), CliError> {
    for name in names(folder)? {
        let path = folder.join(format!("{name}.map"));
        let file = fs::File::open(&path).map_err(|error| cannot(folder, &error))?;
        let locked = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
        if locked.is_err() {
            let what = format!("the overlay in {} is in use", folder.display());
            return Err(CliError::new(Code::OverlayBusy, what)
                .because("the array is being served from it")
                .remedy(Risk::Look, "See by whom", format!("fuser -v {}", files(folder))));
        }
    }
    fs::remove_dir_all(folder).map_err(|error| cannot(folder, &error))
}
