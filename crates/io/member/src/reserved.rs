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

use std::fs::File;
use std::path::Path;
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

/// Whether a block device can be reserved, and this kernel tells by whom.
///
/// # Errors
/// The reason why not, as a clause.
pub fn reservable(path: &Path) -> Result<(), &'static str> {
    let is_block = std::fs::metadata(path).is_ok_and(|metadata| {
        std::os::unix::fs::FileTypeExt::is_block_device(&metadata.file_type())
    });
    if !is_block {
        return Err("it is a file of this host");
    }
    let device = File::open(path).map_err(|_| "it cannot be opened")?;
    reservation::held(&device).map(drop).map_err(|errno| match errno {
        Errno::NOTTY => "this kernel does not tell who has reserved it (Linux 7.0 does)",
        Errno::PERM => "only a whole disk can be reserved, not a partition",
        Errno::OPNOTSUPP => "the device has no persistent reservations",
        _ => "its reservation cannot be read",
    })
}

/// Refuses a device that an owner has reserved, to a process that has no claim of an owner.
pub(crate) fn keep_out(path: &Path, device: &File) -> Result<(), OpenError> {
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
    let Some(mine) = reservation_key(&ownership.mark) else {
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
            ReservationStep::Foreign(key) => {
                Err(refusal(path, format!("another program has reserved it by the key {key:#x}")))
            }
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
                // An operator or another program has cleared or taken it: the lease ends.
                Ok(_) => {}
                // The device does not answer; requests tell the array.
                Err(_) => {}
            }
            thread::sleep(WATCH_PAUSE);
        }
    }
}
