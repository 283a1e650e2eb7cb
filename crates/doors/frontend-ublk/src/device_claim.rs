//! Checks the ublk driver and finds a device number for the array.
//!
//! A number is free if no device has it. A killed server of the same array may have left a device.
//! This module finds such a device, and `door` takes it over. If no number is given, all devices
//! are searched for such a device.

use std::io;
use std::time::Instant;

use braid_ublk_proto::wire::DeviceInfo;
use braid_ublk_proto::{Judgement, can_resize, is_new_enough, judge};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use crate::control::{Control, ControlError, is};
use crate::limits::{DEATH_DEADLINE, LOOK};

const DEVICES: &str = "/sys/class/ublk-char";

/// Why the array gets no device.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The ublk driver is not loaded.
    #[error("the kernel's ublk_drv is not loaded: there is no /dev/ublk-control")]
    NoDriver,
    /// The kernel forbids this user to use the ublk driver.
    #[error("/dev/ublk-control may not be used by this user")]
    Denied,
    /// This process cannot make an io_uring ring.
    #[error("ublk needs io_uring, which the kernel refuses to this process")]
    NoRing(#[source] io::Error),
    /// The ublk driver lacks a feature that the door needs.
    #[error("the kernel's ublk_drv is too old: braid needs Linux 6.6 or later")]
    TooOld,
    /// A living server has the device.
    #[error("/dev/ublkb{id} is served by process {pid}")]
    Served {
        /// The device's number.
        id: u32,
        /// The process ID of the server.
        pid: i32,
    },
    /// The device belongs to another array, or to another program.
    #[error("/dev/ublkb{0} exists, and belongs to another array")]
    Foreign(u32),
    /// The kernel does not release a dead server's device.
    #[error("/dev/ublkb{0} has a dead server, and the kernel does not let go of it")]
    NotReleased(u32),
    /// A system call failed.
    #[error("{call} failed")]
    System {
        /// The system call that failed.
        call: &'static str,
        /// Why the call failed.
        source: io::Error,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum SearchResult {
    /// There is no such device: make one with this number, or with any number for `None`.
    Nothing(Option<u32>),
    Waiting(DeviceInfo),
}

/// The open driver, and a free number or a device to take over.
pub struct DeviceClaim {
    pub(crate) control: Control,
    pub(crate) found: SearchResult,
    pub(crate) array: u64,
    /// Whether the kernel can change the size of a live device.
    pub(crate) can_resize: bool,
}

impl std::fmt::Debug for DeviceClaim {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("DeviceClaim").field("found", &self.found).finish_non_exhaustive()
    }
}

impl DeviceClaim {
    /// Finds the device with this number, or any number, for an array. `array` is the word that
    /// marks the array's devices.
    ///
    /// # Errors
    /// The array cannot have the device; nothing was changed.
    pub fn take(id: Option<u32>, array: u64) -> Result<Self, ClaimError> {
        let mut control = Control::open().map_err(not_opened)?;
        let can_resize = match control.features() {
            Ok(features) if is_new_enough(features) => can_resize(features),
            Ok(_) => return Err(ClaimError::TooOld),
            Err(error) if is(&error, &[Errno::PERM, Errno::ACCESS]) => {
                return Err(ClaimError::Denied);
            }
            Err(_) => return Err(ClaimError::TooOld),
        };
        let found = match id {
            Some(id) => look(&mut control, id, array)?,
            None => left(&mut control, array)?
                .map_or(SearchResult::Nothing(None), SearchResult::Waiting),
        };
        Ok(Self { control, found, array, can_resize })
    }
}

fn not_opened(error: ControlError) -> ClaimError {
    let source = match error {
        ControlError::Ring(source) if is(&source, &[Errno::PERM, Errno::ACCESS, Errno::NOSYS]) => {
            return ClaimError::NoRing(source);
        }
        ControlError::Ring(source) => return ClaimError::System { call: "making a ring", source },
        ControlError::Node(source) => source,
    };
    if is(&source, &[Errno::NOENT, Errno::NODEV, Errno::NXIO]) {
        return ClaimError::NoDriver;
    }
    if is(&source, &[Errno::PERM, Errno::ACCESS]) {
        return ClaimError::Denied;
    }
    ClaimError::System { call: "opening /dev/ublk-control", source }
}

fn failed(source: io::Error) -> ClaimError {
    if is(&source, &[Errno::PERM, Errno::ACCESS]) {
        return ClaimError::Denied;
    }
    ClaimError::System { call: "looking at a ublk device", source }
}

fn lives(pid: i32) -> bool {
    // A process of another user counts as alive (EPERM). Tests with a signal, not by `/proc`.
    Pid::from_raw(pid.max(0)).is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

/// Looks at the device with this number; waits until the kernel notices that its server has died.
fn look(control: &mut Control, id: u32, array: u64) -> Result<SearchResult, ClaimError> {
    let until = Instant::now() + DEATH_DEADLINE;
    loop {
        let Some(info) = control.look(id).map_err(failed)? else {
            return Ok(SearchResult::Nothing(Some(id)));
        };
        match judge(&info, array, lives(info.ublksrv_pid)) {
            Judgement::Recover => return Ok(SearchResult::Waiting(info)),
            Judgement::Served => {
                return Err(ClaimError::Served { id, pid: info.ublksrv_pid });
            }
            Judgement::Foreign => return Err(ClaimError::Foreign(id)),
            Judgement::Remake => {
                control.delete(id, true).map_err(failed)?;
                return Ok(SearchResult::Nothing(Some(id)));
            }
            Judgement::Wait if Instant::now() > until => return Err(ClaimError::NotReleased(id)),
            Judgement::Wait => std::thread::sleep(LOOK),
        }
    }
}

/// Searches for a device that a dead server of this array has left.
fn left(control: &mut Control, array: u64) -> Result<Option<DeviceInfo>, ClaimError> {
    // If the machine has no ublk device, the folder does not exist.
    for entry in std::fs::read_dir(DEVICES).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("ublkc")?.parse().ok());
        let Some(id) = number else { continue };
        let Some(info) = control.look(id).map_err(failed)? else { continue };
        let judgement = judge(&info, array, lives(info.ublksrv_pid));
        if matches!(judgement, Judgement::Recover | Judgement::Wait)
            && let SearchResult::Waiting(info) = look(control, id, array)?
        {
            return Ok(Some(info));
        }
    }
    Ok(None)
}
