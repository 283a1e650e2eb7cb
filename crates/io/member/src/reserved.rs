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

use crate::error::OpenError;
use crate::remote::{Ownership, boot_ns};

/// The pause between two looks at a reservation: a tenth of the lease of reads.
const WATCH_PAUSE: Duration = Duration::from_millis(100);

/// A device that this process has reserved, watched for as long as this value lives.
#[derive(Debug)]
pub(crate) struct Reserved {
    /// The watching thread has it only while it asks the device.
    _device: Arc<File>,
    seen_ns: Arc<AtomicU64>,
}

impl Reserved {
    /// The newest time, by [`boot_ns`], before which the device named this owner as the holder.
    pub(crate) fn seen_ns(&self) -> Option<u64> {
        Some(self.seen_ns.load(Ordering::Acquire)).filter(|seen| *seen > 0)
    }
}

/// Refuses files, partitions and disks without reservations, and kernels that cannot read
/// reservations. A disk that does not answer passes: its claim fails.
///
/// # Errors
/// The reason, as a clause.
pub fn reservable(path: &Path) -> Result<(), &'static str> {
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
    let Some(mine) = reservation_key(&ownership.array, &ownership.mark) else {
        return Err(refusal(path, format!("no key names epoch {}", ownership.mark.epoch)));
    };
    let mut asked_ns = boot_ns();
    let is_claimed = (0..CLAIM_TRIES).try_fold(false, |is_claimed, _| {
        if is_claimed {
            return Ok(true);
        }
        asked_ns = boot_ns();
        let held = reservation::held(device).map_err(system("IOC_PR_READ_RESERVATION"))?;
        if held.is_some_and(|held| held.kind != WRITE_EXCLUSIVE_REGISTRANTS) {
            return Err(refusal(path, "another program has reserved it in another way".into()));
        }
        let step = reservation_step(mine, held.map(|held| held.key));
        if matches!(step, ReservationStep::Reserve | ReservationStep::Preempt(_)) {
            reservation::register(device, mine).map_err(system("IOC_PR_REGISTER"))?;
        }
        match step {
            ReservationStep::Claimed => Ok(true),
            // Whether it was done, the next look tells.
            ReservationStep::Reserve => {
                reservation::reserve(device, mine).map_err(system("IOC_PR_RESERVE")).map(|_| false)
            }
            ReservationStep::Preempt(old) => {
                let done = reservation::preempt_and_abort(device, mine, old);
                done.map_err(system("IOC_PR_PREEMPT_ABORT")).map(|_| false)
            }
            ReservationStep::Refused(mark) => {
                (ownership.refused)(mark);
                Err(refusal(path, format!("a later owner has it, epoch {}", mark.epoch)))
            }
            ReservationStep::Foreign(key) => Err(refusal(
                path,
                format!("another program or array has reserved it by the key {key:#x}"),
            )),
        }
    })?;
    if !is_claimed {
        return Err(refusal(path, "other hosts reserve it again and again".into()));
    }
    // The older owner has written since this host read them. A page in use is read by a program
    // that is no part of the array.
    fadvise(device, 0, None, Advice::DontNeed).map_err(system("fadvise"))?;
    let watched =
        Arc::new(device.try_clone().map_err(|error| {
            system("dup")(Errno::from_io_error(&error).unwrap_or(Errno::MFILE))
        })?);
    let seen_ns = Arc::new(AtomicU64::new(asked_ns));
    let watch = Watch {
        device: Arc::downgrade(&watched),
        seen_ns: Arc::clone(&seen_ns),
        ownership: Arc::clone(ownership),
        path: path.into(),
        mine,
    };
    let started = thread::Builder::new().name("braid-reserved".into()).spawn(move || watch.run());
    started.map_err(|_| system("clone")(Errno::AGAIN))?;
    Ok(Reserved { _device: watched, seen_ns })
}

struct Watch {
    device: Weak<File>,
    seen_ns: Arc<AtomicU64>,
    ownership: Arc<Ownership>,
    path: PathBuf,
    mine: u64,
}

impl Watch {
    fn run(&self) {
        while let Some(device) = self.device.upgrade() {
            let asked_ns = boot_ns();
            let held = reservation::held(&*device);
            drop(device);
            match held.map(|held| reservation_step(self.mine, held.map(|held| held.key))) {
                Ok(ReservationStep::Claimed) => self.seen_ns.store(asked_ns, Ordering::Release),
                Ok(ReservationStep::Refused(mark)) => (self.ownership.refused)(mark),
                // An operator has cleared it, or the disk lost it with its power: any host writes.
                Ok(_) => {
                    let text = format!("{} is not reserved any more", self.path.display());
                    (self.ownership.reservation_lost)(&text);
                }
                // The device does not answer; requests tell the array.
                Err(_) => {}
            }
            thread::sleep(WATCH_PAUSE);
        }
    }
}
