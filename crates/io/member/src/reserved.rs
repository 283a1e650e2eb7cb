//! The claim of an owner on a device that the kernel attached: a persistent reservation.
//!
//! ```text
//!   open for writing ─▶ claim ─▶ forget pages that were read before ─▶ watch, ten times a second
//!                         └─ refused: a later owner has it                └─ lost: `refused`
//! ```
//!
//! The rules are [`braid_ownership::reservation_step`]'s. Writes of an owner that lost its
//! reservation fail at the device, so the watch only ends the process sooner, and renews the lease
//! of its reads. A reservation stays when the owner ends: without it, a host that slept through a
//! take-over could write again. So only a process with an owner's claim opens the device for
//! writing ([`keep_out`]).

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use braid_block_ioctl::reservation::{self, WRITE_EXCLUSIVE_REGISTRANTS};
use braid_ownership::{
    CLAIM_TRIES, ReservationStep, mark_of_key, reservation_key, reservation_step,
};
use rustix::fs::{Advice, fadvise};
use rustix::io::Errno;

use crate::error::{MemberError, OpenError};
use crate::remote::{Ownership, boot_ns, is_uri};

/// The pause between two looks at a reservation: a tenth of the lease of reads.
const WATCH_PAUSE: Duration = Duration::from_millis(100);

/// A device that this process has reserved, watched for as long as this value lives.
#[derive(Debug)]
pub(crate) struct Reserved(Arc<Claim>);

#[derive(Debug)]
struct Claim {
    path: PathBuf,
    device: File,
    ownership: Arc<Ownership>,
    key: u64,
    /// The newest time, by [`boot_ns`], before which the device named this owner as the holder.
    seen_ns: AtomicU64,
}

impl Reserved {
    pub(crate) fn seen_ns(&self) -> u64 {
        self.0.seen_ns.load(Ordering::Acquire)
    }

    /// Receives a request's error. A disk that refuses this host's writes has a later owner: the
    /// process ends before a client gets an answer.
    pub(crate) fn note(&self, error: MemberError) {
        if error.os_error() == Some(Errno::BADE.raw_os_error()) {
            self.0.is_lost("refuses this host's writes");
        }
    }
}

/// Refuses members that could not keep an older owner out: files, partitions and disks without
/// reservations, and all disks where the kernel cannot read reservations. Members with a server
/// pass, and so do disks that do not answer: their claim fails.
///
/// # Errors
/// The reason, as a clause.
pub fn keeps_owners_out(path: &Path) -> Result<(), &'static str> {
    if is_uri(path) {
        return Ok(());
    }
    let Ok(metadata) = std::fs::metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_block_device() {
        return Err("it is a file of this host");
    }
    let Ok(device) = File::open(path) else { return Ok(()) };
    match reservation::held(&device) {
        Err(Errno::NOTTY | Errno::INVAL) => {
            Err("this kernel does not tell who has reserved it (Linux 7.0 does)")
        }
        Err(Errno::OPNOTSUPP) => Err("the device has no persistent reservations"),
        // The first kernels with this call want a descriptor for writing, which a claim has.
        Err(Errno::PERM) if sysfs(&metadata).join("partition").exists() => {
            Err("only a whole disk can be reserved, not a partition")
        }
        _ => Ok(()),
    }
}

fn sysfs(metadata: &Metadata) -> PathBuf {
    let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

/// Refuses a device that an owner has reserved, to a process that has no claim of an owner. USB
/// disks are not asked: some stop answering after a command that they do not know.
pub(crate) fn keep_out(path: &Path, device: &File) -> Result<(), OpenError> {
    let place = device.metadata().ok().and_then(|it| std::fs::canonicalize(sysfs(&it)).ok());
    if place.is_some_and(|place| place.to_string_lossy().contains("/usb")) {
        return Ok(());
    }
    let held = reservation::held(device).ok().flatten();
    match held.and_then(|held| mark_of_key(held.key)) {
        Some(mark) => {
            Err(refusal(path, format!("an owner by a store has it, epoch {}", mark.epoch)))
        }
        None => Ok(()),
    }
}

fn refusal(path: &Path, reason: String) -> OpenError {
    OpenError::Reserved { path: path.into(), reason }
}

/// Claims an open device for the owner, and watches it.
pub(crate) fn claim(
    path: &Path,
    device: &File,
    ownership: &Arc<Ownership>,
) -> Result<Reserved, OpenError> {
    let system = |call| {
        move |errno: Errno| OpenError::System {
            path: path.into(),
            call,
            errno: errno.raw_os_error(),
        }
    };
    let Some(key) = reservation_key(&ownership.array, &ownership.mark) else {
        return Err(refusal(path, format!("no key names epoch {}", ownership.mark.epoch)));
    };
    let register =
        || reservation::register(device, key).map_err(system("IOC_PR_REGISTER")).map(drop);
    for _ in 0..CLAIM_TRIES {
        let asked_ns = boot_ns();
        let held = reservation::held(device).map_err(system("IOC_PR_READ_RESERVATION"))?;
        if held.is_some_and(|held| held.kind != WRITE_EXCLUSIVE_REGISTRANTS) {
            return Err(refusal(path, "another program has reserved it in another way".into()));
        }
        // The next look at the reservation shows whether a call was done.
        match reservation_step(key, held.map(|held| held.key)) {
            ReservationStep::Claimed => {
                return watched(path, device, (ownership, key, asked_ns)).map_err(system("dup"));
            }
            ReservationStep::Reserve => {
                register()?;
                reservation::reserve(device, key).map_err(system("IOC_PR_RESERVE"))?;
            }
            ReservationStep::Preempt(older) => {
                register()?;
                let done = reservation::preempt_and_abort(device, key, older);
                done.map_err(system("IOC_PR_PREEMPT_ABORT"))?;
            }
            ReservationStep::Refused(mark) => {
                (ownership.refused)(mark);
                return Err(refusal(path, format!("a later owner has it, epoch {}", mark.epoch)));
            }
            ReservationStep::Foreign(key) => {
                let who = format!("another program or array has reserved it by the key {key:#x}");
                return Err(refusal(path, who));
            }
        }
    }
    Err(refusal(path, "other hosts reserve it again and again".into()))
}

/// Starts the watch of a claimed device.
fn watched(
    path: &Path,
    device: &File,
    (ownership, key, seen_ns): (&Arc<Ownership>, u64, u64),
) -> Result<Reserved, Errno> {
    // The older owner has written since this host read the cached pages. A page in use is read by a
    // program that is no part of the array.
    fadvise(device, 0, None, Advice::DontNeed)?;
    let shortage = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN);
    let claim = Arc::new(Claim {
        path: path.into(),
        device: device.try_clone().map_err(shortage)?,
        ownership: Arc::clone(ownership),
        key,
        seen_ns: AtomicU64::new(seen_ns),
    });
    let watch = Arc::downgrade(&claim);
    let thread = thread::Builder::new().name("braid-reserved".into());
    thread.spawn(move || watch_while(&watch)).map_err(shortage)?;
    Ok(Reserved(claim))
}

/// Checks the reservation for as long as the claim lives. Only a check holds the claim.
fn watch_while(claim: &Weak<Claim>) {
    while let Some(claim) = claim.upgrade() {
        claim.look();
        drop(claim);
        thread::sleep(WATCH_PAUSE);
    }
}

impl Claim {
    fn look(&self) {
        let asked_ns = boot_ns();
        let held = reservation::held(&self.device);
        match held.map(|held| reservation_step(self.key, held.map(|held| held.key))) {
            Ok(ReservationStep::Claimed) => self.seen_ns.store(asked_ns, Ordering::Release),
            Ok(ReservationStep::Refused(mark)) => (self.ownership.refused)(mark),
            // An operator cleared the reservation, or a power loss did: any host writes.
            Ok(_) => self.is_lost("is not reserved any more"),
            // The device does not answer; the array learns that from its requests.
            Err(_) => {}
        }
    }

    fn is_lost(&self, how: &str) {
        (self.ownership.reservation_lost)(&format!("{} {how}", self.path.display()));
    }
}
