//! Opening, probing and assembling members: what `serve` and `demo` begin with.

use std::path::{Path, PathBuf};

use braid_assembly::{AssembledArray, Assembly, MemberVerdict, Options, Verdict, assemble};
use braid_member::{Access, Member};
use braid_ondisk::Superblock;
use braid_runtime::OpenMember;

use crate::error::code::Code;
use crate::error::{CliError, Risk};
use crate::probe::{open_member, probe_member};
use crate::refusal;

/// An array that can be run, with its members open.
pub(crate) struct Ready {
    pub(crate) array: AssembledArray,
    pub(crate) verdicts: Vec<MemberVerdict>,
    /// By index into the members that were named; those not chosen are closed already.
    pub(crate) members: Vec<Option<OpenMember>>,
    /// Members that are there but cannot be read, and why; the array does without them if it can.
    pub(crate) unreadable: Vec<(String, String)>,
}

/// Opens the members, locks them, and decides. Nothing is written.
pub(crate) fn ready(paths: &[PathBuf], options: &Options) -> Result<Ready, CliError> {
    let access = if options.read_only { Access::ReadOnly } else { Access::ReadWrite };
    let mut devices: Vec<(Box<dyn Member>, &PathBuf)> = Vec::new();
    let (mut probed, mut unreadable) = (Vec::new(), Vec::new());
    for (index, path) in paths.iter().enumerate() {
        refuse_repeated(paths, index)?;
        match open_member(path, access) {
            Ok(device) => devices.push((device, path)),
            Err(error) if is_dead(&error) && paths.len() > 1 => {
                unreadable.push((path.to_string_lossy().into_owned(), error.to_string()));
            }
            Err(error) => return Err(error),
        }
    }
    let mut readable: Vec<Box<dyn Member>> = Vec::new();
    for (device, path) in devices {
        let label = path.to_string_lossy();
        match probe_member(&*device, &label) {
            Ok(member) => {
                probed.push(member);
                readable.push(device);
            }
            Err(error) if is_dead(&error) && paths.len() > 1 => {
                unreadable.push((label.into_owned(), error.to_string()));
            }
            Err(error) => return Err(error),
        }
    }
    let devices = readable;
    let Assembly { verdicts, array } = assemble(&probed, options);
    let labels: Vec<String> = probed.iter().map(|member| member.label.clone()).collect();
    let array = array.map_err(|refusal| refusal::cli_error(&refusal, &verdicts, &labels))?;
    let chosen = |index: usize| {
        let in_slot = array.slots.iter().flatten().any(|occupant| occupant.member == index);
        in_slot || array.spares.contains(&index)
    };
    let members = devices.into_iter().zip(&probed).enumerate().map(|(index, (device, probed))| {
        let superblock = superblock_of(probed, &array).filter(|_| chosen(index))?;
        Some(OpenMember { device, superblock })
    });
    let members = members.collect();
    Ok(Ready { array, verdicts, members, unreadable })
}

/// The member's superblock that belongs to the array.
fn superblock_of(
    probed: &braid_assembly::ProbedMember,
    array: &AssembledArray,
) -> Option<Superblock> {
    let sound = probed.probe.superblocks.iter().filter_map(|found| found.as_ref().ok());
    let newest = &array.newest;
    let matching = sound.filter(|superblock| {
        superblock.array.uuid == newest.array.uuid && superblock.version == newest.version
    });
    matching.max_by_key(|superblock| superblock.state.events).cloned()
}

/// Whether a member is there but of no use: too small to be one, or unreadable. The array may well
/// do without it; a member that is busy or missing is rather a slip of the hand.
fn is_dead(error: &CliError) -> bool {
    matches!(error.code(), Code::MemberIo | Code::MemberTooSmall)
}

/// A path that was named twice is a slip of the hand; opening it twice would only say "locked".
fn refuse_repeated(paths: &[PathBuf], index: usize) -> Result<(), CliError> {
    let same = |other: &&PathBuf| same_file(other, &paths[index]);
    match paths[..index].iter().find(same) {
        None => Ok(()),
        Some(first) => {
            let path = paths[index].display();
            let what = format!("{path} is named twice");
            let why = format!("it is the same device as {}", first.display());
            let error = CliError::new(Code::SameMemberTwice, what).because(why);
            let examine = format!(
                "braid examine {}",
                crate::output::shell::shell_word(&paths[index].to_string_lossy())
            );
            Err(error.about(path.to_string()).remedy(Risk::Look, "Look at it", examine))
        }
    }
}

fn same_file(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (std::fs::metadata(a), std::fs::metadata(b)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => a == b,
    }
}

/// Whether a verdict is what one hopes for.
pub(crate) fn is_well(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Fresh { .. } | Verdict::Spare)
}
