//! Opens and probes members: the first step of `serve`, `examine` and `create`.
//!
//! A probe reads a bounded part of each member: under 400 KiB, plus its bad-block log, bitmap,
//! partial parity log and journal. Each failure to open a member becomes an error with a remedy.
//! `braid-assembly` decides about arrays. This module never writes.

use std::path::Path;

use braid_assembly::ProbedMember;
use braid_geometry::SECTOR_BYTES;
use braid_member::{Access, Holder, IdentityKey, Member, MemberError, OpenError, is_shortage};
use braid_ondisk::{
    BadBlockLog, BadBlockLogError, BadRecord, Bitmap, BitmapError, Features, OwnLog, PplLog,
    PplLogError, Snippet, Superblock, UnvalidatedBitmap, probe, probe_ranges,
};

use rustix::io::Errno;

use braid_console::error::code::Code;
use braid_console::error::system::shortage;
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::shell_word;

/// Bytes of a bitmap's superblock, which has the bitmap's total length.
const BITMAP_HEAD_BYTES: u64 = 256;
/// The command that explains the URIs of members.
const URI_HELP: &str = "braid help B124";
/// Longest bad-block log in bytes: `braid-ondisk` refuses a superblock with a longer one.
const LOG_BYTES_MAX: u64 = 8 * SECTOR_BYTES;

/// Opens a member.
///
/// # Errors
/// Every [`OpenError`], with its code and a remedy.
pub fn open_member(path: &Path, access: Access) -> Result<Box<dyn Member>, CliError> {
    braid_member::open(path, access).map_err(|error| open_error(&error))
}

/// Reads all data of a member that assembly needs. `label` is the operator's name for the member.
///
/// # Errors
/// A read failed; assembly cannot judge such a member.
pub fn probe_member(device: &dyn Member, label: &str) -> Result<ProbedMember, CliError> {
    probed((device, device), label, false)
}

/// Probes a failing disk or a copy of one. Superblocks and signatures are read from `seen`, a view
/// of `device` that tolerates unreadable bytes around them. An unreadable bitmap counts as no
/// bitmap, so that it limits no resync. Any other unreadable log is an error, because without it
/// the member would pass for clean.
///
/// # Errors
/// A read failed.
pub fn probe_beside(
    device: &dyn Member,
    seen: &dyn Member,
    label: &str,
) -> Result<ProbedMember, CliError> {
    probed((device, seen), label, true)
}

fn probed(
    (device, seen): (&dyn Member, &dyn Member),
    label: &str,
    is_lenient: bool,
) -> Result<ProbedMember, CliError> {
    let size_bytes = device.size_bytes();
    let read_of = |device: &dyn Member, offset_bytes: u64, length_bytes: u64| {
        let length = usize::try_from(length_bytes).expect("bounded by the callers");
        let mut bytes = vec![0; length];
        device
            .read_at(&mut bytes, offset_bytes)
            .map(|()| bytes)
            .map_err(|error| io_error(label, "reading", &error))
    };
    let read = |offset_bytes: u64, length_bytes: u64| read_of(device, offset_bytes, length_bytes);
    let mut snippets = Vec::new();
    for range in probe_ranges(size_bytes) {
        let bytes = read_of(seen, range.start, range.end - range.start)?;
        snippets.push(Snippet { offset: range.start, bytes });
    }
    let found = probe(size_bytes, &snippets);
    let (mut bad_blocks, mut bitmap, mut ppl) = (Ok(Vec::new()), None, None);
    let (mut journal, mut own_log) = (None, None);
    if let Some(superblock) = found.newest() {
        bad_blocks = bad_block_log(superblock, size_bytes, &read)?;
        bitmap = match bitmap_of(superblock, size_bytes, &read) {
            Err(_) if is_lenient => None,
            found => found?,
        };
        ppl = ppl_of(superblock, size_bytes, &read)?;
        own_log = own_log_of(superblock, size_bytes, &read)?;
        journal = superblock.read_journal(&mut Ahead::new(device).reader());
    }
    let identity = identity_words(device.identity().key);
    Ok(ProbedMember {
        label: label.to_string(),
        size_bytes,
        identity,
        probe: found,
        bad_blocks,
        bitmap,
        ppl,
        own_log,
        journal,
    })
}

/// Reads a range; the caller has bounded its length.
type Read<'a> = &'a dyn Fn(u64, u64) -> Result<Vec<u8>, CliError>;

/// Reads the bad-block log if the superblock says that the log is not empty.
fn bad_block_log(
    superblock: &Superblock,
    size_bytes: u64,
    read: Read<'_>,
) -> Result<Result<Vec<BadRecord>, BadBlockLogError>, CliError> {
    let Some(place) = superblock.device.bad_block_log else { return Ok(Ok(Vec::new())) };
    if !superblock.state.features.contains(Features::BAD_BLOCKS) {
        return Ok(Ok(Vec::new()));
    }
    let length_bytes = (u64::from(place.size_sectors) * SECTOR_BYTES).min(LOG_BYTES_MAX);
    let bytes = read_near(superblock, place.offset_sectors, length_bytes, size_bytes, read)?;
    Ok(BadBlockLog::parse(&bytes, place))
}

fn bitmap_of(
    superblock: &Superblock,
    size_bytes: u64,
    read: Read<'_>,
) -> Result<Option<Result<Bitmap, BitmapError>>, CliError> {
    let Some(offset_sectors) = superblock.intent.bitmap_offset_sectors else { return Ok(None) };
    let bytes = read_near(superblock, offset_sectors, BITMAP_HEAD_BYTES, size_bytes, read)?;
    let uuid = superblock.uuid_as_stored();
    let Some(found) = UnvalidatedBitmap::recognise(&bytes) else { return Ok(None) };
    let head = match found.validate(&uuid) {
        Ok(head) => head,
        Err(error) => return Ok(Some(Err(error))),
    };
    // The length is validated, so this takes at most as much memory as md allows a bitmap.
    let area = read_near(superblock, offset_sectors, head.total_bytes(), size_bytes, read)?;
    Ok(Some(Bitmap::read(head, &area)))
}

/// Reads the partial parity log. A member with an unreadable log still has usable data.
fn ppl_of(
    superblock: &Superblock,
    size_bytes: u64,
    read: Read<'_>,
) -> Result<Option<Result<PplLog, PplLogError>>, CliError> {
    let Some((start, place)) = superblock.ppl_area() else { return Ok(None) };
    let length_bytes = place.used_bytes().min(size_bytes.saturating_sub(start));
    let bytes = match read(start.min(size_bytes), length_bytes) {
        Ok(bytes) => bytes,
        Err(error) if error.code() == Code::MemberIo => {
            return Ok(Some(Err(PplLogError::Unreadable)));
        }
        Err(error) => return Err(error),
    };
    Ok(Some(PplLog::read(&bytes, place, &superblock.uuid_as_stored())))
}

/// Reads braid's own parity log. A member with an unreadable log still has usable data.
fn own_log_of(
    superblock: &Superblock,
    size_bytes: u64,
    read: Read<'_>,
) -> Result<Option<OwnLog>, CliError> {
    let found = superblock.read_own_log(|start, length_bytes| {
        read(start.min(size_bytes), length_bytes.min(size_bytes.saturating_sub(start)))
    });
    match found {
        Err(error) if error.code() == Code::MemberIo => Ok(None),
        found => found,
    }
}

/// Reads consecutive blocks of a device in large runs.
struct Ahead<'a> {
    device: &'a dyn Member,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Ahead<'a> {
    /// Bytes of one run: reading a journal of gigabytes in single blocks would be slow.
    const PIECE_BYTES: u64 = 1 << 20;

    fn new(device: &'a dyn Member) -> Self {
        Self { device, start: 0, bytes: Vec::new() }
    }

    fn reader(mut self) -> impl FnMut(u64, &mut [u8]) -> bool + 'a {
        move |offset, block| self.read(offset, block)
    }

    /// Reads a block by itself if the run around it cannot be read: the run's other blocks may be
    /// unreadable, and this one readable.
    fn read(&mut self, offset: u64, block: &mut [u8]) -> bool {
        if self.copy(offset, block) {
            return true;
        }
        let left = self.device.size_bytes().saturating_sub(offset);
        let length = usize::try_from(left.min(Self::PIECE_BYTES)).expect("a megabyte");
        (self.start, self.bytes) = (offset, vec![0; length]);
        if self.device.read_at(&mut self.bytes, offset).is_err() {
            self.bytes.clear();
            return block.len() as u64 <= left && self.device.read_at(block, offset).is_ok();
        }
        self.copy(offset, block)
    }

    fn copy(&self, offset: u64, block: &mut [u8]) -> bool {
        let from = offset.checked_sub(self.start).and_then(|from| usize::try_from(from).ok());
        let from = from.and_then(|from| self.bytes.get(from..from.checked_add(block.len())?));
        from.is_some_and(|bytes| {
            block.copy_from_slice(bytes);
            true
        })
    }
}

/// Reads at a distance from the superblock; `None` if that position is outside the device.
fn read_near(
    superblock: &Superblock,
    offset_sectors: i32,
    length_bytes: u64,
    size_bytes: u64,
    read: Read<'_>,
) -> Result<Vec<u8>, CliError> {
    let sector =
        superblock.device.super_offset_sectors.checked_add_signed(i64::from(offset_sectors));
    let start = sector.and_then(|sector| sector.checked_mul(SECTOR_BYTES));
    let range = start.and_then(|start| Some((start, start.checked_add(length_bytes)?)));
    match range {
        Some((start, end)) if end <= size_bytes => read(start, length_bytes),
        _ => Ok(Vec::new()),
    }
}

/// Text that is the same for two names exactly if both name one device.
fn identity_words(key: IdentityKey) -> String {
    match key {
        IdentityKey::File { device, inode } => format!("file {device} {inode}"),
        IdentityKey::BlockDevice { device } => format!("block {device}"),
        IdentityKey::Memory { number } => format!("memory {number}"),
        IdentityKey::Remote { number } => format!("remote {number}"),
    }
}

/// The error of a failed read or write. `doing` is the verb: `reading`, `writing`, ...
pub fn io_error(label: &str, doing: &str, error: &MemberError) -> CliError {
    let what = format!("{doing} {label} failed");
    if let MemberError::Media { errno } = error
        && is_shortage(*errno)
    {
        return shortage(what, *errno).about(label).caused_by(error);
    }
    let code = match error {
        MemberError::Protected { .. } => Code::MemberPermission,
        error if error.is_of_the_member() => Code::MemberIo,
        _ => Code::System,
    };
    let failed = CliError::new(code, what).about(label);
    failed.caused_by(error).remedy(Risk::Look, "See what the kernel says", "dmesg | tail")
}

/// The error of a failed opening, with a remedy.
pub fn open_error(error: &OpenError) -> CliError {
    let new = |code, path: &Path| {
        let label = path.display().to_string();
        (
            CliError::new(code, error.to_string()).about(label.clone()),
            shell_word(&label).into_owned(),
        )
    };
    let list = |(failed, path): (CliError, String)| {
        failed.remedy(Risk::Look, "Look at it", format!("ls -l {path}"))
    };
    match error {
        OpenError::Missing { path } => {
            let (failed, _) = new(Code::MemberMissing, path);
            let folder = path.ancestors().skip(1).find(|folder| folder.is_dir());
            let folder = folder.unwrap_or(Path::new(".")).display().to_string();
            let look = format!("ls -l {}", shell_word(&folder));
            let failed = failed.remedy(Risk::Look, "See what is there", look);
            let by_id = Path::new("/dev/disk/by-id");
            match by_id.is_dir() {
                true => failed.remedy(
                    Risk::Look,
                    "Names that do not change",
                    format!("ls -l {}", by_id.display()),
                ),
                false => failed.remedy(Risk::Look, "See the disks", "lsblk"),
            }
        }
        OpenError::DanglingLink { path } => list(new(Code::MemberMissing, path)),
        OpenError::PermissionDenied { path } => {
            let (failed, word) = new(Code::MemberPermission, path);
            failed.remedy(Risk::Look, "See who may", format!("ls -l {word}")).remedy(
                Risk::Change,
                "Let this user",
                format!("sudo setfacl -m u:$(id -u):rw {word}"),
            )
        }
        OpenError::ReadOnlyMedium { path } => {
            let (failed, word) = new(Code::MemberPermission, path);
            let failed = failed.remedy(Risk::Look, "Look at it", format!("braid examine {word}"));
            if path.is_file() {
                let look = format!("findmnt --target {word}");
                return failed.remedy(Risk::Look, "See what it is on", look);
            }
            let why = "the kernel refuses to write it: a switch of the card, a write blocker, a disk below it, or \
                       `blockdev --setro`";
            let writable = format!("blockdev --setrw {word}");
            failed.because(why).remedy(Risk::Change, "If only the kernel's flag is set", writable)
        }
        OpenError::NotAMember { path, .. } => list(new(Code::MemberKind, path)),
        OpenError::Uri { path, .. } => {
            let (failed, _) = new(Code::MemberKind, path);
            failed.remedy(Risk::Look, "See how members on other hosts are named", URI_HELP)
        }
        OpenError::Reserved { path, .. } => {
            let (failed, _) = new(Code::OwnedElsewhere, path);
            failed.remedy(Risk::Look, "See how to serve it, or to clear it", "braid help B127")
        }
        OpenError::Unreachable { path, .. } => {
            let (failed, word) = new(Code::MemberUnreachable, path);
            failed
                .because("nothing was changed; members that are reachable can be served without it")
                .remedy(Risk::Look, "Ask its server", format!("nbdinfo {word}"))
        }
        OpenError::Busy { path, holder } => busy(path, holder),
        OpenError::TooSmall { path, .. } => list(new(Code::MemberTooSmall, path)),
        OpenError::AlreadyExists { path } => {
            let (failed, word) = new(Code::HoldsData, path);
            failed.remedy(Risk::Look, "See what it is", format!("braid examine {word}"))
        }
        OpenError::Unlockable { path, errno } => {
            let (failed, word) = new(Code::MemberUnlockable, path);
            failed
                .because(unlockable(*errno))
                .remedy(Risk::Look, "See what it is on", format!("findmnt --target {word}"))
                .remedy(
                    Risk::Change,
                    "Copy it to a file system with locks",
                    format!("cp --sparse=always {word} /var/tmp/"),
                )
        }
        OpenError::System { path, errno, .. } if is_shortage(*errno) => {
            shortage(error.to_string(), *errno).about(path.display().to_string())
        }
        OpenError::Replaced { path } | OpenError::System { path, .. } => {
            let code = if error.is_of_the_member() { Code::MemberIo } else { Code::System };
            list(new(code, path))
        }
    }
}

/// The cause of a failed lock, by error number.
fn unlockable(errno: i32) -> &'static str {
    match Errno::from_raw_os_error(errno) {
        Errno::NOLCK => {
            "its file system has no lock available: a network file system without a lock daemon, \
             or a full lock table"
        }
        Errno::PERM | Errno::ACCESS => "its file system, or a security module, allows no locks",
        _ => "its file system has no locks of this kind",
    }
}

fn busy(path: &Path, holder: &Holder) -> CliError {
    let label = path.display().to_string();
    let path_word = shell_word(&label);
    let code = match holder.innermost() {
        Holder::Lock { .. } | Holder::OtherServer => Code::MemberLocked,
        _ => Code::MemberBusy,
    };
    let failed = CliError::new(code, format!("{label} is busy")).because(holder.to_string());
    let failed = failed.about(label.clone());
    let stop_md = |array: &str| format!("mdadm --stop {}", shell_word(&format!("/dev/{array}")));
    match holder.innermost() {
        Holder::KernelArray { array, .. } => failed
            .remedy(Risk::Look, "See it", "cat /proc/mdstat")
            .remedy(Risk::Change, "Stop it", stop_md(array)),
        Holder::Device { holder, .. } if holder.starts_with("md") => failed
            .remedy(Risk::Look, "See it", "cat /proc/mdstat")
            .remedy(Risk::Change, "Stop it", stop_md(holder)),
        Holder::Device { .. } | Holder::Unknown => {
            failed.remedy(Risk::Look, "See who", format!("lsblk {path_word}"))
        }
        Holder::Mount { mounted_at, .. } => {
            let mounted_at = mounted_at.display().to_string();
            let command = format!("umount {}", shell_word(&mounted_at));
            failed.remedy(Risk::Change, "Unmount it", command)
        }
        Holder::Swap { held } => {
            let held = if held.starts_with('/') { held.clone() } else { format!("/dev/{held}") };
            let command = format!("swapoff {}", shell_word(&held));
            failed.remedy(Risk::Change, "Stop swapping to it", command)
        }
        Holder::LoopDevice { name, .. } => {
            let command = format!("losetup --detach {}", shell_word(&format!("/dev/{name}")));
            failed.remedy(Risk::Look, "See it", "losetup --list").remedy(
                Risk::Change,
                "Detach it",
                command,
            )
        }
        Holder::Lock { process_id: Some(process_id), .. } => {
            failed.remedy(Risk::Look, "See which", format!("ps -fp {process_id}"))
        }
        Holder::Lock { process_id: None, .. } => {
            failed.remedy(Risk::Look, "See which", format!("fuser -v {path_word}"))
        }
        Holder::OtherServer => failed.remedy(Risk::Look, "See the served arrays", "braid list"),
        Holder::Below { .. } => unreachable!("a layer is not the innermost"),
    }
}

#[cfg(test)]
mod tests;
