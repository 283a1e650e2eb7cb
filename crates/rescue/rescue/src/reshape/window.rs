//! The window that md left half moved, kept for `braid serve`.
//!
//! ```text
//!   mdadm's backup ─┐
//!   members ────────┴▶ one device ─▶ the next window's content ─▶ STATE/reshape/UUID.copy
//! ```
//!
//! md stopped in a part of the array that a reshape overwrites. From then on the copy stands for
//! braid's own ([`WindowCopy`]): `serve` moves the window again, from the copy, and continues the
//! reshape. This file only reads the members. The copy is used only at the position that
//! superblocks record now.
//!
//! Invariants
//! - sectors that may be wrong are kept in the copy only if the operator accepted the risk
//!   `[check: md_left_a_chunk_half_changed_and_braid_goes_on_from_its_backup]`;
//! - members that only a rescue believes are not read
//!   `[check: md_left_a_chunk_half_changed_and_braid_goes_on_from_its_backup]`.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use braid_assembly::reshape::Reshaping;
use braid_assembly::{Options, ProbedMember, assemble};
use braid_console::Globals;
use braid_console::error::code::Code;
use braid_console::error::system::system;
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::shell_word;
use braid_console::output::size::format_size;
use braid_discovery::newest_state;
use braid_discovery::probe::{open_member, probe_member};
use braid_discovery::refusal;
use braid_discovery::window_copies;
use braid_member::{Access, Member};
use braid_ondisk::{COPIED_SECTORS_MAX, CopiedWindow};
use braid_runtime::WindowCopy;

use super::reshape_device::SECTOR_BYTES;
use super::{RiskPolicy, UnfinishedReshape, read};
use crate::config::RescueConfig;
use crate::disks::{Disk, Disks};
use crate::group::groups;

/// Sectors per read: few enough that an unreadable read delays little.
const PIECE_SECTORS: u64 = 256;

/// The array, and what its operator knows of its reshape.
#[derive(Clone, Debug)]
pub struct WindowConfig {
    /// The array's members, in any order.
    pub members: Vec<PathBuf>,
    /// The array's name or UUID, if the members are of several.
    pub array: Option<String>,
    /// mdadm's backup file. A backup on an added member is found without this option.
    pub backup_file: Option<PathBuf>,
    /// Believe a backup although its time differs from the superblocks' time.
    pub accept_older: bool,
    /// The most stripes that may be wrong in the copy.
    pub accept_risk: Option<u64>,
}

impl WindowConfig {
    fn rescue(&self) -> RescueConfig {
        RescueConfig {
            members: self.members.clone(),
            array: self.array.clone(),
            backup_file: self.backup_file.clone(),
            accept_older: self.accept_older,
            ..RescueConfig::default()
        }
    }

    fn serve(&self, more: &str) -> String {
        let file = self.backup_file.as_ref().map(|path| path.display().to_string());
        let file = file.map(|path| format!(" --backup-file {}", shell_word(&path)));
        format!("braid serve{}{more} {}", file.unwrap_or_default(), self.rescue().words())
    }
}

/// Copies the next window of the array's reshape to the state folder, if members alone do not have
/// the window whole, and the folder has no copy. For an array without a reshape, only superblocks
/// are read.
///
/// # Errors
/// A member or the backup cannot be read, or the backup is unfit; the array does not start for
/// another reason; sectors are in no backup, and their risk was not accepted; the state folder
/// cannot be written.
pub fn keep_window(config: &WindowConfig, globals: &Globals) -> Result<(), CliError> {
    if !has_reshape(&config.members) {
        return Ok(());
    }
    let args = config.rescue();
    let disks = Disks::open(&args)?;
    let of_group = |group: &crate::group::Group| -> Vec<ProbedMember> {
        group.members.iter().map(|index| disks.all[*index].probed.clone()).collect()
    };
    let is_half_moved = |members: &[ProbedMember]| match Reshaping::of(members) {
        Some(Ok(found)) => {
            found.at_risk.is_some()
                && !window_copies::of(&globals.state_dir, members).contains(found.uuid())
        }
        _ => false,
    };
    let groups = groups(&disks, &args)?.into_iter();
    let mut groups = groups.filter(|group| is_half_moved(&of_group(group)));
    let (Some(group), None) = (groups.next(), groups.next()) else { return Ok(()) };
    let probed = of_group(&group);
    let options = Options {
        choice: group.choice.clone(),
        known: newest_state::of(&globals.state_dir, &probed),
        accept_risk: config.accept_risk,
        accept_older: config.accept_older,
        ..Options::default()
    };
    let mut reshape = UnfinishedReshape::of(&probed, (&options, &BTreeSet::new()))
        .expect("it was just found to be in one");
    // With the window's copy the array must start, from members that need no force.
    let window_copies = vec![*reshape.reshaping.uuid()];
    let assembly = assemble(&probed, &Options { window_copies, ..options });
    if let Err(refused) = assembly.array {
        let labels: Vec<String> = probed.iter().map(|member| member.label.clone()).collect();
        return Err(refusal::cli_error(&refused, &assembly.verdicts, &labels));
    }
    let members: Vec<&Disk> = group.members.iter().map(|index| &disks.all[*index]).collect();
    reshape.take_backups(&args, &members)?;
    reshape.find_out((&disks, &group.members), globals);
    let stripes = reshape.rows_at_risk();
    if stripes > config.accept_risk.unwrap_or(0) {
        let has_backup = !reshape.backups.is_empty();
        return match has_backup || config.accept_risk.is_some() {
            // The array's own refusal says more than the refusal of its risk.
            false => Ok(()),
            true => Err(at_risk(config, &args, (stripes, has_backup))),
        };
    }
    let Some(window) = reshape.reshaping.window_in_place(&reshape.half_moved()) else {
        return Ok(());
    };
    let sectors = window.end - window.start;
    if sectors > COPIED_SECTORS_MAX {
        let most = format_size(COPIED_SECTORS_MAX * SECTOR_BYTES);
        let what = "too much of the array may be half moved to go on with its reshape";
        let error = CliError::new(Code::Reshaping, what);
        return Err(error
            .because(format!("{} would be copied, and at most {most} are", words(sectors)))
            .remedy(Risk::Look, "Read it, and serve it over an overlay", args.command("")));
    }
    let device = reshape.joined((&disks, &group.members), RiskPolicy::Read, globals)?;
    let copied = copied(&*device, window);
    if let Some(backup) = reshape.unreadable_backup(&copied.lost) {
        return Err(super::unfit(&args, Path::new(&backup.label), "it cannot be read whole"));
    }
    let (uuid, point) = (*reshape.reshaping.uuid(), reshape.reshaping.point());
    let copy = WindowCopy::new(window_copies::path(&globals.state_dir, &uuid), uuid);
    let point = point.expect("it is in a reshape");
    let kept = copy.prepare().and_then(|()| copy.keep(&copied, point));
    kept.map_err(|error| {
        system("the half moved part cannot be kept in the state folder", &error)
            .about(copy.path().display().to_string())
    })?;
    let from = match reshape.backups.first() {
        Some(backup) => format!("the backup in {} and members", backup.label),
        None => "members".to_owned(),
    };
    errln!(
        "note: {} of the array are half moved; their content is in {}, from {from}",
        words(sectors),
        copy.path().display()
    );
    Ok(())
}

/// Whether a member's superblock records a reshape. A member that cannot be opened is ignored here:
/// the array's start reports the reason.
fn has_reshape(members: &[PathBuf]) -> bool {
    members.iter().any(|path| {
        let device = open_member(path, Access::ReadOnly);
        let probed = device.and_then(|device| probe_member(&*device, &path.to_string_lossy()));
        probed.is_ok_and(|member| member.probe.newest().is_some_and(|own| own.reshape.is_some()))
    })
}

fn words(sectors: u64) -> String {
    format_size(sectors * SECTOR_BYTES)
}

fn at_risk(
    config: &WindowConfig,
    args: &RescueConfig,
    (stripes, has_backup): (u64, bool),
) -> CliError {
    let (code, what) = match has_backup {
        true => (Code::BackupUnfit, "the backup does not have all that may be half moved"),
        false => {
            (Code::DirtyDegraded, "part of the array may be half moved, and there is no backup")
        }
    };
    CliError::new(code, what)
        .because(format!(
            "{stripes} stripes may be wrong: the array's content does not show how far md got"
        ))
        .because("nothing was changed")
        .remedy(Risk::Look, "See its progress, and the readable part", args.command(""))
        .remedy(
            Risk::Destroy,
            "Go on with the reshape, although they may be wrong",
            config.serve(&format!(" --accept-risk {stripes}")),
        )
}

/// The content of a window. Sectors that no member returns are noted, and filled with zeroes.
fn copied(device: &dyn Member, sectors: Range<u64>) -> CopiedWindow {
    let (mut bytes, mut lost) = (Vec::new(), Vec::<Range<u64>>::new());
    let read = |start: u64, count: u64| {
        let length = usize::try_from(count * SECTOR_BYTES).expect("it is in memory");
        read(device, start * SECTOR_BYTES, length)
    };
    let mut start = sectors.start;
    while start < sectors.end {
        let end = sectors.end.min(start + PIECE_SECTORS);
        match read(start, end - start) {
            Some(piece) => bytes.extend(piece),
            None => {
                for sector in start..end {
                    let one = read(sector, 1);
                    if one.is_none() {
                        match lost.last_mut() {
                            Some(last) if last.end == sector => last.end += 1,
                            _ => lost.push(sector..sector + 1),
                        }
                    }
                    bytes.extend(one.unwrap_or_else(|| vec![0; SECTOR_BYTES as usize]));
                }
            }
        }
        start = end;
    }
    CopiedWindow { sectors, bytes, lost }
}
