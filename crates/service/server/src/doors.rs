//! The array's interfaces other than NBD exports: a file (FUSE), a block device (ublk), a disk of
//! virtual machines (vhost-user).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use braid_console::error::CliError;
use braid_ring::Workers;
use braid_runtime::Disk;

use super::client_addresses::ClientAddresses;
use super::config::ServerConfig;
use super::report::Reporter;
use super::{fuse, ublk, vhost_user};

/// Mount point, block device number and socket of the doors, reserved before the array is touched.
pub(super) struct DoorPlaces {
    file: Option<braid_frontend_fuse::MountPoint>,
    device: Option<braid_frontend_ublk::DeviceClaim>,
    machines: Option<vhost_user::VhostSocket>,
}

impl DoorPlaces {
    pub(super) fn take(
        config: &ServerConfig,
        uuid: [u8; 16],
        reporter: &Reporter,
    ) -> Result<Self, CliError> {
        Ok(Self {
            file: config.file.as_ref().map(|path| fuse::place(path, reporter)).transpose()?,
            device: config.device.map(|id| ublk::place(id, uuid)).transpose()?,
            machines: config.vhost_user.as_deref().map(vhost_user::place).transpose()?,
        })
    }
}

pub(super) struct Doors {
    file: Option<braid_frontend_fuse::Door>,
    device: Option<braid_frontend_ublk::Door>,
    machines: Option<vhost_user::VhostDoor>,
}

impl Doors {
    /// Opens the doors to an array, which have logical blocks of this size.
    pub(super) fn open(
        places: DoorPlaces,
        (disk, block_bytes): (Arc<dyn Disk>, Option<u32>),
        workers: Option<&Arc<Workers>>,
        reporter: &Arc<Reporter>,
    ) -> Result<Self, CliError> {
        let DoorPlaces { file, device, machines } = places;
        let file = file.map(|place| fuse::open(place, Arc::clone(&disk), reporter)).transpose()?;
        let told = || (Arc::clone(&disk), block_bytes);
        let device = device.map(|place| ublk::open(place, told(), reporter)).transpose()?;
        let by = (workers, reporter.uuid());
        let machines = machines.map(|place| vhost_user::open(place, told(), by)).transpose()?;
        Ok(Self { file, device, machines })
    }

    /// Addresses of the doors, and the URIs of the NBD exports.
    pub(super) fn addresses(&self, uris: Vec<String>) -> ClientAddresses {
        let word = |path: &Path| path.display().to_string();
        ClientAddresses {
            uris,
            file: self.file.as_ref().map(|door| word(door.path())),
            device: self.device.as_ref().map(|door| word(door.path())),
            vhost_user: self.machines.as_ref().map(|door| word(door.path())),
        }
    }

    pub(super) fn close(self, deadline: Duration, reporter: &Reporter) {
        if let Some(door) = self.machines {
            vhost_user::close(door, deadline, reporter);
        }
        if let Some(door) = self.device {
            ublk::close(door, deadline, reporter);
        }
        if let Some(door) = self.file {
            fuse::close(door, deadline, reporter);
        }
    }
}
