//! Opens, probes and assembles members: the first step of `serve` and `demo`.

use std::path::{Path, PathBuf};

use braid_assembly::{
    AssembledArray, AssembledJournal, Assembly, Choice, MemberVerdict, Options, ProbedMember,
    Refusal, Verdict, assemble,
};
use braid_engine::replay::Finish;
use braid_member::{Access, Member, Reach};
use braid_ondisk::{Superblock, format_uuid};
use braid_runtime::OpenMember;
use braid_signatures::look;

use crate::bitmap_file;
use crate::newest_state;
use crate::probe::{open_member, probe_member};
use crate::raid0_layout;
use crate::refusal::{self, words};
use crate::replay::journal::{JournalDevice, journal_needed, replay_journal};
use crate::replay::{ReplayResult, ReplayTarget, replay};
use crate::undo::unfinished::refuse_unfinished;
use crate::window_copies;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_console::output::printable::printable;
use braid_console::output::shell::shell_word;

/// An assembled array with its members open.
pub struct Ready {
    /// The array as assembly found it.
    pub array: AssembledArray,
    /// Verdicts of the members, in the order of the command line.
    pub verdicts: Vec<MemberVerdict>,
    /// The open members that assembly chose, by their index on the command line. The bitmap file
    /// follows the members.
    pub members: Vec<Option<OpenMember>>,
    /// Present but unreadable members, and why; the array runs without them if it can.
    pub unreadable: Vec<(String, String)>,
    /// The journal's device, with its index on the command line.
    pub journal: Option<(usize, OpenMember)>,
    /// The result of a replay after an unclean stop.
    pub replayed: Option<ReplayResult>,
    /// The folder for copies of bytes that a replay overwrites.
    state_dir: PathBuf,
}

/// Opens, locks and assembles members, and replays logs: onto the members, or in memory if
/// read-only.
pub fn ready(
    (paths, bitmap_file): (&[PathBuf], Option<&Path>),
    options: Options,
    state_dir: &Path,
) -> Result<Ready, CliError> {
    let (access, target) = match options.read_only {
        true => (Access::ReadOnly, ReplayTarget::Memory),
        false => (Access::ReadWrite, ReplayTarget::Members),
    };
    found((paths, bitmap_file), access, options, state_dir)?.settled(target)
}

impl Ready {
    /// Replays the logs, then checks that the array can be served.
    pub fn settled(mut self, target: ReplayTarget) -> Result<Self, CliError> {
        self.replay(target, Finish::Flushed)?;
        if target == ReplayTarget::Members {
            if self.array.degraded > 0 {
                self.check_unread()?;
            }
            self.keep_journal()?;
        }
        Ok(self)
    }

    /// Labels of the members, then of the bitmap file.
    pub fn labels(&self) -> Vec<String> {
        let members = self.verdicts.iter().map(|verdict| verdict.label.clone());
        members.chain(self.array.bitmap_file.as_ref().map(|file| file.label.clone())).collect()
    }

    /// Refuses a degraded array in which a replay left ranges unread: parity computed in such a
    /// range would not fit data that is read later.
    fn check_unread(&self) -> Result<(), CliError> {
        let mut unread = self.replayed.iter().flat_map(ReplayResult::unread);
        let Some(range) = unread.next() else { return Ok(()) };
        let what = "a member is missing, and another is unreadable where a write was interrupted";
        let why = format!("array sectors {} to {} are not readable", range.start, range.end - 1);
        let look = format!("braid serve --read-only {}", words(&self.labels(), &[]));
        Err(CliError::new(Code::PplNeeded, what)
            .because(why)
            .remedy(Risk::Look, "Best: connect the missing member and name it, too", "")
            .remedy(Risk::Look, "See the data of the intact ones", look))
    }

    /// Makes the journal part of the array; the journal restarts after its replayed content.
    fn keep_journal(&mut self) -> Result<(), CliError> {
        let Some((index, mut open)) = self.journal.take() else { return Ok(()) };
        let labels = self.labels();
        if let Some(ReplayResult::Journal(replayed)) = &self.replayed
            && replayed.leaves_some()
        {
            let what = "the newest writes are only in the journal, because too much is missing to \
                        compute their parity";
            let look = format!("braid serve --read-only {}", words(&labels, &[]));
            return Err(CliError::new(Code::JournalNeeded, what)
                .remedy(Risk::Look, "Best: connect the missing member and name it, too", "")
                .remedy(Risk::Look, "See the data of the intact ones", look));
        }
        let probed = probe_member(&*open.device, &labels[index])?;
        let superblock = superblock_of(&probed, &self.array);
        let log = probed.journal.and_then(Result::ok);
        let (Some(superblock), Some(log)) = (superblock, log) else {
            return Err(CliError::new(
                Code::JournalNeeded,
                "the write journal can no longer be read",
            )
            .about(labels[index].clone())
            .remedy(
                Risk::Look,
                "See what it says",
                format!("braid examine {}", words(&labels, &[])),
            ));
        };
        open.superblock = superblock;
        self.array.journal = Some(AssembledJournal { member: index, log });
        self.members[index] = Some(open);
        Ok(())
    }

    /// Replays the logs once. `finish` says whether the replay then empties a journal.
    pub fn replay(&mut self, target: ReplayTarget, finish: Finish) -> Result<(), CliError> {
        let labels = self.labels();
        // Refuses a requested replay without a valid journal: an array that runs without its
        // journal has nothing to replay.
        let is_lacking = self.array.read_only.is_some() && target.is_requested();
        if let Some(fault) = self.array.journal_fault.as_ref().filter(|_| is_lacking) {
            let members: Vec<&str> = labels.iter().map(String::as_str).collect();
            return Err(journal_needed(fault, &members));
        }
        if let Some((index, device)) = self.journal.take() {
            let journal = JournalDevice {
                label: &labels[index],
                device: &device,
                state_dir: &self.state_dir,
            };
            let members = (&mut self.members, &labels[..]);
            let replayed = replay_journal(&mut self.array, members, &journal, (target, finish))?;
            self.replayed = replayed.map(ReplayResult::Journal);
            self.journal = Some((index, device));
            return Ok(());
        }
        let replayed = replay(&mut self.array, &mut self.members, &labels, target)?;
        self.replayed = replayed.map(ReplayResult::Ppl);
        Ok(())
    }
}

/// Opens and locks the members, and assembles the array. Nothing is written.
pub fn found(
    (paths, bitmap_file): (&[PathBuf], Option<&Path>),
    access: Access,
    options: Options,
    state_dir: &Path,
) -> Result<Ready, CliError> {
    let mut devices: Vec<(Box<dyn Member>, &PathBuf)> = Vec::new();
    let (mut probed, mut unreadable) = (Vec::new(), Vec::new());
    refuse_repeated(paths.iter().map(PathBuf::as_path).chain(bitmap_file))?;
    for path in paths {
        match open_member(path, access) {
            Ok(device) => devices.push((device, path)),
            Err(error) if is_dead(&error) && paths.len() > 1 => {
                unreadable.push((path.to_string_lossy().into_owned(), error.to_string()));
            }
            Err(error) => return Err(error),
        }
    }
    // From here on, the locks keep other commands from beginning to write.
    refuse_unfinished(state_dir, paths)?;
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
    let file = bitmap_file.map(|path| bitmap_file::open(path, access)).transpose()?;
    let (file, given) = file.unzip();
    let known = newest_state::of(state_dir, &probed);
    let window_copies = window_copies::of(state_dir, &probed);
    let options = Options { known, bitmap_file: given, window_copies, ..options };
    let mut ready = decided((readable, &probed), file, &options, state_dir)?;
    ready.unreadable = unreadable;
    Ok(ready)
}

/// Assembles the array from probed devices; `file` is the bitmap file. Nothing is written.
pub fn decided(
    (devices, probed): (Vec<Box<dyn Member>>, &[ProbedMember]),
    file: Option<Box<dyn Member>>,
    options: &Options,
    state_dir: &Path,
) -> Result<Ready, CliError> {
    let Assembly { verdicts, array } = assemble(probed, options);
    let labels: Vec<String> = probed.iter().map(|member| member.label.clone()).collect();
    let array = array.map_err(|refusal| {
        let error = refusal::cli_error(&refusal, &verdicts, &labels);
        match refusal {
            Refusal::NoMembers { .. } => in_partitions(error, &devices, probed),
            _ => error,
        }
    })?;
    raid0_layout::check(&array, options.raid0_layout)?;
    let chosen = |index: usize| {
        let in_slot = array.occupants().any(|occupant| occupant.member == index);
        let is_journal = array.journal.as_ref().is_some_and(|journal| journal.member == index);
        in_slot || is_journal || array.spares.contains(&index)
    };
    let members = devices.into_iter().zip(probed).enumerate().map(|(index, (device, probed))| {
        let superblock = superblock_of(probed, &array).filter(|_| chosen(index))?;
        Some(OpenMember { device, superblock })
    });
    let mut members: Vec<Option<OpenMember>> = members.collect();
    let index = array.journal.as_ref().map(|journal| journal.member);
    let journal = index.and_then(|index| Some((index, members[index].take()?)));
    // The bitmap file follows the members.
    members.extend(array.bitmap_file.as_ref().zip(file).map(|(found, device)| {
        let superblock = array.newest.for_bitmap_file(found.size_bytes);
        Some(OpenMember { device, superblock })
    }));
    let (state_dir, unreadable) = (state_dir.to_path_buf(), Vec::new());
    Ok(Ready { array, verdicts, members, unreadable, journal, replayed: None, state_dir })
}

/// Adds to the error the partitions that are members, since the kernel's devices for these
/// partitions can be served.
fn in_partitions(
    mut error: CliError,
    devices: &[Box<dyn Member>],
    probed: &[ProbedMember],
) -> CliError {
    let mut paths = Vec::new();
    for (device, probed) in devices.iter().zip(probed) {
        let mut read = |offset: u64, length: usize| {
            let mut bytes = vec![0; length];
            device.read_at(&mut bytes, offset).ok().map(|()| bytes)
        };
        for volume in look(device.size_bytes(), &mut read).volumes {
            let Some(partition) = volume.partition.filter(|_| !volume.superblocks.is_empty())
            else {
                continue;
            };
            let (label, number) = (&probed.label, partition.number);
            let array = &volume.superblocks[0].array;
            let name = match array.name.is_empty() {
                true => format_uuid(&array.uuid),
                false => array.name.clone(),
            };
            error = error.because(format!("partition {number} of {label} is a member of {name}"));
            let between =
                if label.ends_with(|last: char| last.is_ascii_digit()) { "p" } else { "" };
            paths.push(format!("{label}{between}{number}"));
        }
    }
    match !paths.is_empty() && paths.iter().all(|path| braid_member::may_be_there(Path::new(path)))
    {
        false => error,
        true => {
            let command = format!("braid serve {}", words(&paths, &[]));
            error.remedy(Risk::Change, "Serve the partitions", command)
        }
    }
}

/// The member's superblock that belongs to the array.
fn superblock_of(probed: &ProbedMember, array: &AssembledArray) -> Option<Superblock> {
    let sound = probed.probe.superblocks.iter().filter_map(|found| found.as_ref().ok());
    let newest = &array.newest;
    let matching = sound.filter(|superblock| {
        superblock.array.uuid == newest.array.uuid && superblock.version == newest.version
    });
    matching.max_by_key(|superblock| superblock.state.events).cloned()
}

/// Whether a member is present but unusable: too small, or unreadable. The array may run without
/// such a member; a busy or missing member is more likely the operator's mistake.
pub fn is_dead(error: &CliError) -> bool {
    matches!(error.code(), Code::MemberIo | Code::MemberTooSmall)
}

/// Refuses two names of the same device: a link, a loop device over the device, or a partition of
/// the device. Without this check the error would only report that the device is locked.
pub fn refuse_repeated<'a>(paths: impl Iterator<Item = &'a Path>) -> Result<(), CliError> {
    let mut seen: Vec<(&Path, Reach)> = Vec::new();
    for path in paths {
        let reach = Reach::of(path);
        let shared = seen.iter().find_map(|(first, other)| {
            let how = if *first == path {
                Some("both names lead to one device".to_owned())
            } else {
                None
            };
            Some((first, how.or_else(|| reach.shared_with(other))?))
        });
        if let Some((first, how)) = shared {
            let label = path.display().to_string();
            let error = CliError::new(Code::SameMemberTwice, format!("{label} is named twice"))
                .because(format!("it is the same storage as {}: {how}", first.display()))
                .about(label.clone());
            let command = format!("braid examine {}", shell_word(&label));
            return Err(error.remedy(Risk::Look, "Look at it", command));
        }
        seen.push((path, reach));
    }
    Ok(())
}

/// Whether a member with this verdict needs no attention.
pub fn is_well(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Fresh { .. } | Verdict::Spare | Verdict::Journal)
}

/// The name under which an array is served: the superblock's name, or the UUID.
pub fn served_name(name: &str, uuid: &str) -> String {
    // md stores "host:name"; operators use only the part after the colon.
    let name = name.rsplit(':').next().unwrap_or_default();
    // The name comes from a disk and is not trusted, since it becomes part of a path and of
    // terminal output.
    let is_harmless = !name.is_empty()
        && !name.starts_with('.')
        && printable(name) == name
        && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ' | '+'));
    if is_harmless { name.to_string() } else { uuid.replace(':', "") }
}

/// Parses an array's name, or its UUID as mdadm and braid print it.
pub fn choice(array: Option<&str>) -> Choice {
    let Some(text) = array else { return Choice::default() };
    let digits: String = text.chars().filter(|c| !matches!(c, ':' | '-')).collect();
    match u128::from_str_radix(&digits, 16) {
        Ok(uuid) if digits.len() == 32 => {
            Choice { uuid: Some(uuid.to_be_bytes()), ..Choice::default() }
        }
        _ => Choice { name: Some(text.to_string()), ..Choice::default() },
    }
}
