//! The ublk door of `braid serve`: the array as a block device of this machine, in addition to NBD.

use std::sync::Arc;
use std::time::Duration;

use braid_frontend_ublk::{ClaimError, DeviceClaim, Disk, Door, OpenError};
use serde_json::json;

use super::report::Reporter;
use braid_console::error::code::Code;
use braid_console::error::system::system;
use braid_console::error::{CliError, Risk};

/// Reserves a ublk device for the array with this UUID, before the array is touched. The device has
/// the number `id`, or a number that the kernel chooses.
pub(super) fn place(id: Option<u32>, uuid: [u8; 16]) -> Result<DeviceClaim, CliError> {
    DeviceClaim::take(id, word_of(uuid)).map_err(|error| place_error(&error))
}

/// The number by which a ublk device is recognised as this array's. The number is never 0, since
/// devices of other programs have 0.
fn word_of(uuid: [u8; 16]) -> u64 {
    let whole = u128::from_be_bytes(uuid);
    let halves = [whole >> 64, whole & u128::from(u64::MAX)];
    let [high, low] = halves.map(|half| u64::try_from(half).expect("64 bits"));
    (high ^ low).max(1)
}

pub(super) fn open(
    place: DeviceClaim,
    (disk, logical_block_bytes): (Arc<dyn Disk>, Option<u32>),
    reporter: &Arc<Reporter>,
) -> Result<Door, CliError> {
    let told = Arc::clone(reporter);
    let gone = move || {
        let text = "another program removed the block device, which no longer shows the array; \
                    NBD clients go on";
        told.aside("device-gone", &json!({}), text);
    };
    let block_bytes = logical_block_bytes.unwrap_or(512);
    let door = Door::open(place, (disk, block_bytes), gone).map_err(|error| open_error(&error))?;
    if door.was_taken_over() {
        let path = door.path().display().to_string();
        let text = format!("a killed server left {path}; it goes on");
        reporter.aside("device-taken-over", &json!({ "device": path }), &text);
    }
    Ok(door)
}

pub(super) fn close(door: Door, deadline: Duration, reporter: &Reporter) {
    let path = door.path().display().to_string();
    let closed = door.close(deadline);
    if closed.was_in_use || !closed.is_gone {
        let text = format!(
            "{path} was in use when the array was stopped: programs that have it open get \
                     errors"
        );
        let facts = json!({ "device": path, "gone": closed.is_gone });
        reporter.aside("device-in-use", &facts, &text);
    }
}

const WHAT: &str = "the array cannot be made a block device";

fn place_error(error: &ClaimError) -> CliError {
    let lacks = || CliError::new(Code::NoUblk, WHAT).caused_by(error);
    let taken = |id: &u32| {
        let device = format!("/dev/ublkb{id}");
        CliError::new(Code::DeviceTaken, WHAT).caused_by(error).about(device)
    };
    let error = match error {
        ClaimError::NoDriver => {
            lacks().remedy(Risk::Change, "Load its module", "sudo modprobe ublk_drv")
        }
        ClaimError::Denied => lacks().remedy(Risk::Look, "See who may", "ls -l /dev/ublk-control"),
        ClaimError::NoRing(_) => {
            let look = "cat /proc/sys/kernel/io_uring_disabled";
            lacks().remedy(Risk::Look, "See whether io_uring is switched off", look)
        }
        ClaimError::TooOld => lacks().remedy(Risk::Look, "See its version", "uname -r"),
        ClaimError::Served { id, pid } => {
            taken(id).remedy(Risk::Look, "See which server has it", format!("ps {pid}"))
        }
        ClaimError::Foreign(id) | ClaimError::NotReleased(id) => {
            let look = format!("lsblk /dev/ublkb{id}");
            taken(id).remedy(Risk::Look, "See what it is", look)
        }
        ClaimError::System { source, .. } => system(WHAT, source).because(error.to_string()),
    };
    elsewhere(error)
}

fn open_error(error: &OpenError) -> CliError {
    let taken = |id: &u32| {
        let device = format!("/dev/ublkb{id}");
        let look = format!("lsblk {device}");
        let error = CliError::new(Code::DeviceTaken, WHAT).caused_by(error).about(device);
        error.remedy(Risk::Look, "See what it is", look)
    };
    let error = match error {
        OpenError::Taken(id) | OpenError::Differs(id) => taken(id),
        OpenError::Denied => {
            let error = CliError::new(Code::NoUblk, WHAT).caused_by(error);
            error.remedy(Risk::Look, "See who may", "ls -l /dev/ublk-control")
        }
        OpenError::System { source, .. } => system(WHAT, source).because(error.to_string()),
    };
    elsewhere(error)
}

fn elsewhere(error: CliError) -> CliError {
    error.remedy(Risk::Look, "Serve it over NBD alone", "braid serve MEMBER...")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_told_apart_and_from_none() {
        assert_eq!((word_of([0; 16]), word_of([7; 16])), (1, 1));
        let mut uuid = [7; 16];
        uuid[3] = 8;
        assert_ne!(word_of(uuid), word_of([9; 16]));
        assert_ne!(word_of(uuid), 0);
    }
}
