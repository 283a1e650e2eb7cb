//! Commands about ublk devices; each call waits for the end of its command.

use std::fs::OpenOptions;
use std::io;

use braid_ublk_proto::wire::{ControlCommand, DeviceInfo, NO_QUEUE, Parameters, command};
use rustix::io::Errno;
use zerocopy::{FromZeros, IntoBytes};

use crate::kernel::Calls;

const NODE: &str = "/dev/ublk-control";

pub(crate) struct Control(Calls);

pub(crate) enum ControlError {
    /// The driver's device node cannot be opened: the module is missing, or the user has no right
    /// to use the node.
    Node(io::Error),
    Ring(io::Error),
}

impl Control {
    /// Opens the driver. Fails without the driver's module, the right to use it, or a ring.
    pub(crate) fn open() -> Result<Self, ControlError> {
        let file =
            OpenOptions::new().read(true).write(true).open(NODE).map_err(ControlError::Node)?;
        Calls::new(file).map(Self).map_err(ControlError::Ring)
    }

    fn call(&mut self, code: u32, id: u32, (data, bytes): (u64, &mut [u8])) -> io::Result<()> {
        let about = ControlCommand { dev_id: id, queue_id: NO_QUEUE, data, ..Default::default() };
        self.0.call(code, about, bytes)
    }

    fn plain(&mut self, code: u32, id: u32) -> io::Result<()> {
        self.call(code, id, (0, &mut []))
    }

    pub(crate) fn features(&mut self) -> io::Result<u64> {
        let mut features = 0_u64;
        self.call(command::GET_FEATURES, u32::MAX, (0, features.as_mut_bytes()))?;
        Ok(features)
    }

    pub(crate) fn look(&mut self, id: u32) -> io::Result<Option<DeviceInfo>> {
        let mut info = DeviceInfo::new_zeroed();
        match self.call(command::GET_DEV_INFO, id, (0, info.as_mut_bytes())) {
            Ok(()) => Ok(Some(info)),
            Err(error) if is(&error, &[Errno::NODEV, Errno::INVAL]) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a device; returns the description that the kernel gives of it.
    pub(crate) fn add(&mut self, mut info: DeviceInfo) -> io::Result<DeviceInfo> {
        self.call(command::ADD_DEV, info.dev_id, (0, info.as_mut_bytes()))?;
        Ok(info)
    }

    pub(crate) fn set_parameters(&mut self, id: u32, mut said: Parameters) -> io::Result<()> {
        self.call(command::SET_PARAMS, id, (0, said.as_mut_bytes()))
    }

    pub(crate) fn parameters(&mut self, id: u32) -> io::Result<Parameters> {
        let mut said = Parameters::new_zeroed();
        said.len = u32::try_from(size_of::<Parameters>()).expect("a small number");
        self.call(command::GET_PARAMS, id, (0, said.as_mut_bytes()))?;
        Ok(said)
    }

    /// Gives a disk another size.
    pub(crate) fn update_size(&mut self, id: u32, sectors: u64) -> io::Result<()> {
        self.call(command::UPDATE_SIZE, id, (sectors, &mut []))
    }

    /// Makes the disk of a device, once all its queues have fetched.
    pub(crate) fn start(&mut self, id: u32) -> io::Result<()> {
        self.call(command::START_DEV, id, (u64::from(std::process::id()), &mut []))
    }

    pub(crate) fn stop(&mut self, id: u32) -> io::Result<()> {
        self.plain(command::STOP_DEV, id)
    }

    /// Deletes the device; if `waits`, waits until no process has the device open.
    pub(crate) fn delete(&mut self, id: u32, waits: bool) -> io::Result<()> {
        if !waits {
            let deleted = self.plain(command::DEL_DEV_ASYNC, id);
            if !deleted.as_ref().is_err_and(|error| is(error, &[Errno::OPNOTSUPP])) {
                return deleted;
            }
        }
        self.plain(command::DEL_DEV, id)
    }

    pub(crate) fn begin_recovery(&mut self, id: u32) -> io::Result<()> {
        self.plain(command::START_USER_RECOVERY, id)
    }

    /// Lets the disk of a recovered device continue, once all queues have fetched.
    pub(crate) fn end_recovery(&mut self, id: u32) -> io::Result<()> {
        self.call(command::END_USER_RECOVERY, id, (u64::from(std::process::id()), &mut []))
    }
}

pub(crate) fn is(error: &io::Error, codes: &[Errno]) -> bool {
    codes.iter().any(|errno| Some(errno.raw_os_error()) == error.raw_os_error())
}
