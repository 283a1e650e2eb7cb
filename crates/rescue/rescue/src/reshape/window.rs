//! The window that md left half moved, kept for `braid serve`.
//!
//! ```text
//!   mdadm's backup ─┐
//!   members ────────┴▶ one device ─▶ the next window's content ─▶ STATE/reshape/UUID.copy
//! ```
//!
//! md stopped in a part of the array that a reshape overwrites. From then on the copy stands for
//! braid's own ([`WindowCopy`]): `serve` moves the window again, from there, and goes on. Members
//! are only read here. The copy counts only at the position that superblocks record now.
//!
//! Invariants
//! - rows that may be half moved, and are in no backup, are kept only if the operator accepts them
//!   `[check: md_left_a_chunk_half_changed_and_braid_goes_on_from_its_backup]`;
//! - braid's own newer copy is not replaced
//!   `[check: an_old_backup_file_does_not_replace_a_newer_copy]`;
//! - members that only a rescue believes are not read
//!   `[check: md_left_a_chunk_half_changed_and_braid_goes_on_from_its_backup]`.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use braid_assembly::reshape::Reshaping;
use braid_assembly::{Options, ProbedMember, assemble};
use braid_console::Globals;
use braid_console::error::code::Code;
use braid_console::error::system::system;
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::shell_word;
use braid_console::output::size::format_size;
use braid_discovery::newest_state;
use braid_discovery::probe::open_member;
use braid_discovery::refusal;
use braid_discovery::window_copies;
use braid_member::{Access, Member, is_uri};
use braid_ondisk::{COPIED_SECTORS_MAX, CopiedWindow, Snippet, probe, probe_ranges};
use braid_runtime::WindowCopy;

use super::reshape_device::SECTOR_BYTES;
use super::{RiskPolicy, UnfinishedReshape, read, unfit};
use crate::config::RescueConfig;
use crate::disks::{Disk, Disks};
use crate::group::{Group, groups, one_of};

/// Sectors that are read at a time: few enough that an unreadable one delays little.
const PIECE_SECTORS: u64 = 256;

/// The array, and what its operator knows of its reshape.
#[derive(Clone, Debug)]
pub struct WindowConfig {
    /// The array's members, in any order.
    pub members: Vec<PathBuf>,
    /// The array's name or UUID, if the members are of several.
    pub array: Option<String>,
    /// mdadm's backup file. Without it a backup on an added member is used, if there is one.
    pub backup_file: Option<PathBuf>,
    /// Believe a backup file of another time than the superblocks, and older members.
    pub accept_older: bool,
    /// The most stripes whose computed data may be wrong.
    pub accept_risk: Option<u64>,
    /// The most rows that may be half moved, and are in no backup.
    pub accept_half_moved: Option<u64>,
}

impl WindowConfig {
    fn rescue(&self) -> RescueConfig {
        RescueConfig {
            members: self.members.clone(),
            array: self.array.clone(),
            backup_file: self.backup_file.clone(),
            accept_older: self.accept_older && self.backup_file.is_some(),
            ..RescueConfig::default()
        }
    }

    /// The command line of `braid serve` with these options, and `more`.
    fn serve(&self, more: &str) -> String {
        let option = |name: &str, value: Option<String>| {
            value.map(|value| format!(" {name} {}", shell_word(&value))).unwrap_or_default()
        };
        let file = self.backup_file.as_ref().map(|path| path.display().to_string());
        format!(
            "braid serve{}{}{}{} {more} {}",
            option("--array", self.array.clone()),
            option("--backup-file", file),
            if self.accept_older { " --accept-older" } else { "" },
            option("--accept-risk", self.accept_risk.map(|count| count.to_string())),
            self.rescue().words()
        )
    }
}

/// Keeps the next window of the array's reshape in the state folder, if md left the reshape at a
/// place that only a copy has whole. Other arrays cost a look at superblocks.
///
/// Members on other hosts are not looked at: no lock keeps another server away from them.
///
/// # Errors
/// A member or the backup cannot be read, or the backup is unfit; half moved rows are not accepted;
/// the array does not start for another reason; the state folder cannot be written.
pub fn keep_window(config: &WindowConfig, globals: &Globals) -> Result<(), CliError> {
    if config.members.iter().any(|path| is_uri(path)) || !has_reshape(&config.members) {
        return Ok(());
    }
    let args = config.rescue();
    let disks = Disks::open(&args)?;
    let probed_of = |group: &Group| -> Vec<ProbedMember> {
        group.members.iter().map(|index| disks.all[*index].probed.clone()).collect()
    };
    let is_half_moved = |group: &Group| match Reshaping::of(&probed_of(group)) {
        Some(Ok(found)) => found.at_risk.is_some() && found.point().is_some(),
        _ => false,
    };
    let groups = groups(&disks, &args)?.into_iter().filter(is_half_moved);
    let groups: Vec<Group> = groups.collect();
    let [group] = &groups[..] else {
        return match (groups.first(), &config.backup_file) {
            (Some(_), Some(_)) => Err(one_of(groups, &args, &disks).err().expect("several")),
            _ => Ok(()),
        };
    };
    let probed = probed_of(group);
    let options = Options {
        choice: group.choice.clone(),
        known: newest_state::of(&globals.state_dir, &probed),
        accept_risk: config.accept_risk,
        accept_older: config.accept_older,
        ..Options::default()
    };
    let mut reshape = UnfinishedReshape::of(&probed, (&options, &BTreeSet::new()))
        .expect("it was just found to be in one");
    let members: Vec<&Disk> = group.members.iter().map(|index| &disks.all[*index]).collect();
    let uuid = *reshape.reshaping.uuid();
    let copy = WindowCopy::new(window_copies::path(&globals.state_dir, &uuid), uuid);
    let is_known = window_copies::of(&globals.state_dir, &probed).contains(&uuid);
    if is_known && config.backup_file.is_none() {
        return Ok(());
    }
    reshape.take_backups(&args, &members)?;
    if is_known && !reshape.is_newer_than(&copy, &args)? {
        return Ok(());
    }
    reshape.find_out((&disks, &group.members), globals);
    let labels: Vec<String> = probed.iter().map(|member| member.label.clone()).collect();
    let rows = reshape.rows_at_risk();
    if rows > config.accept_half_moved.unwrap_or(0) {
        let refused = assemble(&probed, &options);
        let Err(refusal) = &refused.array else { return Ok(()) };
        let base = refusal::cli_error(refusal, &refused.verdicts, &labels);
        return Err(half_moved(config, &args, (&reshape, rows), base));
    }
    // With the copy the array must start, from members that need no force.
    let assembly = assemble(&probed, &Options { window_copies: vec![uuid], ..options });
    if let Err(refused) = assembly.array {
        let error = refusal::cli_error(&refused, &assembly.verdicts, &labels);
        return Err(match &config.backup_file {
            Some(_) => error.because("name the backup file again then: nothing of it is kept yet"),
            None => error,
        });
    }
    let Some(window) = reshape.reshaping.window_in_place(&reshape.half_moved()) else {
        return Ok(());
    };
    let sectors = window.end - window.start;
    let refused = |what: &str, why: String| {
        let error =
            CliError::new(Code::Reshaping, what).because(why).because("nothing was changed");
        let look = args.command("");
        error.remedy(Risk::Look, "See its progress, and the readable part", look)
    };
    if sectors > COPIED_SECTORS_MAX {
        let most = format_size(COPIED_SECTORS_MAX * SECTOR_BYTES);
        let why = format!("{} would be copied, and at most {most} are", words(sectors));
        let what = "too much of the array may be half moved to go on with its reshape";
        return Err(refused(what, why));
    }
    let device = reshape.joined((&disks, &group.members), RiskPolicy::Read, globals)?;
    // A sector that a member returns later must not be lost because it was not read now.
    let bytes = content(&*device, &window).map_err(|sector| {
        let what = "the half moved part of the array cannot be read whole";
        refused(
            what,
            format!("sector {sector} of the array cannot be read, or not from the backup"),
        )
    })?;
    let copied = CopiedWindow { sectors: window, bytes, lost: Vec::new() };
    let point = reshape.reshaping.point().expect("it is in a reshape");
    copy.prepare_with(&copied, point).map_err(|error| {
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

/// Whether a member's superblock records a reshape. A member that does not open is none: the start
/// of the array says why.
fn has_reshape(members: &[PathBuf]) -> bool {
    members.iter().any(|path| {
        let Ok(device) = open_member(path, Access::ReadOnly) else { return false };
        let size_bytes = device.size_bytes();
        let snippet = |range: Range<u64>| {
            let mut bytes = vec![0; usize::try_from(range.end - range.start).ok()?];
            device.read_at(&mut bytes, range.start).ok()?;
            Some(Snippet { offset: range.start, bytes })
        };
        let snippets: Vec<Snippet> =
            probe_ranges(size_bytes).into_iter().filter_map(snippet).collect();
        let found = probe(size_bytes, &snippets);
        found.newest().is_some_and(|own| own.reshape.is_some())
    })
}

impl UnfinishedReshape {
    /// Whether the backup file is to be used although the state folder knows the reshape: md went
    /// on since, and wrote the file.
    ///
    /// # Errors
    /// braid's own copy of the same sectors has other content.
    fn is_newer_than(&self, copy: &WindowCopy, args: &RescueConfig) -> Result<bool, CliError> {
        let Some(backup) = self.backups.first() else { return Ok(false) };
        let needed = backup.metadata.parts.iter().filter_map(|part| self.reshaping.needed(part));
        let needed: Vec<(Range<u64>, u64)> = needed.collect();
        if needed.is_empty() {
            return Ok(false);
        }
        let own = self.reshaping.point().map(|point| copy.at(point));
        if let Some(Ok(Some(own))) = own {
            let path = copy.path().display();
            let differs = needed.iter().any(|(sectors, at)| {
                let start = sectors.start.max(own.sectors.start);
                let end = sectors.end.min(own.sectors.end);
                let byte = |sector: u64| usize::try_from(sector * SECTOR_BYTES).expect("in memory");
                let mut theirs = vec![0; byte(end.saturating_sub(start))];
                let from = (at + (start - sectors.start)) * SECTOR_BYTES;
                let ours = byte(start - own.sectors.start);
                start < end
                    && (backup.place.read_at(&mut theirs, from).is_err()
                        || own.bytes[ours..ours + theirs.len()] != theirs)
            });
            return match differs {
                false => Ok(false),
                true => Err(unfit(
                    args,
                    Path::new(&backup.label),
                    &format!("braid's own copy of that part has other content ({path})"),
                )),
            };
        }
        // By its time braid's copy was written before md went on, or after.
        let modified = std::fs::metadata(copy.path()).and_then(|file| file.modified()).ok();
        let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Ok(since.is_none_or(|since| backup.metadata.seconds > since.as_secs()))
    }
}

fn words(sectors: u64) -> String {
    format_size(sectors * SECTOR_BYTES)
}

/// The refusal of rows that are in no backup.
fn half_moved(
    config: &WindowConfig,
    args: &RescueConfig,
    (reshape, rows): (&UnfinishedReshape, u64),
    base: CliError,
) -> CliError {
    let has_file = config.backup_file.is_some();
    let mut error = match has_file {
        true => {
            let what = "the backup does not have all that may be half moved";
            let look = args.command("");
            let error = CliError::new(Code::BackupUnfit, what).because("nothing was changed");
            error.remedy(Risk::Look, "See its progress, and the readable part", look)
        }
        false => base,
    };
    for why in &reshape.left_aside {
        error = error.because(format!("not used: {why}"));
    }
    let why = match reshape.progress {
        Some(_) => "by what is on the array, md was at work there",
        None => "nothing on the array shows how far md got",
    };
    error.because(format!("{rows} rows may be half moved, and are in no backup: {why}")).remedy(
        Risk::Destroy,
        "Go on with the reshape, although these rows may be wrong",
        config.serve(&format!("--accept-half-moved {rows}")),
    )
}

/// The content of these sectors, or the first that cannot be read.
fn content(device: &dyn Member, sectors: &Range<u64>) -> Result<Vec<u8>, u64> {
    let mut bytes = Vec::new();
    let read = |start: u64, count: u64| {
        let length = usize::try_from(count * SECTOR_BYTES).expect("it is in memory");
        read(device, start * SECTOR_BYTES, length)
    };
    let mut start = sectors.start;
    while start < sectors.end {
        let end = sectors.end.min(start + PIECE_SECTORS);
        let Some(piece) = read(start, end - start) else {
            return Err((start..end).find(|one| read(*one, 1).is_none()).unwrap_or(start));
        };
        bytes.extend(piece);
        start = end;
    }
    Ok(bytes)
}
