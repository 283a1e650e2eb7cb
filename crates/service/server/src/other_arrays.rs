//! Arrays rescued together with another, for volumes that span several. One server serves all these
//! arrays; clients see the arrays' exports only.

use std::sync::Arc;
use std::time::Duration;

use braid_frontend_nbd::Export;
use braid_runtime::{Options, Volume};

use super::array_export;
use super::device::DeviceDisk;
use super::event_delivery::logged;
use super::open_errors::array_open_error;
use super::parts::ArrayOrDevice;
use braid_console::error::CliError;

/// Arrays and devices that run until `stop`.
#[derive(Default)]
pub(super) struct OtherArrays {
    exports: Vec<Arc<dyn Export>>,
    volumes: Vec<Arc<Volume>>,
    devices: Vec<Arc<DeviceDisk>>,
}

impl OtherArrays {
    pub(super) fn open(
        others: Vec<(String, ArrayOrDevice)>,
        options: &Options,
    ) -> Result<Self, CliError> {
        let mut arrays = Self::default();
        for (name, opened) in others {
            let ready = match opened {
                ArrayOrDevice::Array(ready) => *ready,
                ArrayOrDevice::Device(device) => {
                    // Errors of a device are recorded in the log only.
                    let (disk, export) = device.export(|_| {})?;
                    arrays.exports.push(export);
                    arrays.devices.push(disk);
                    continue;
                }
            };
            let block_bytes = ready.array.newest.array.logical_block_bytes;
            let labels = ready.labels();
            let opened = Volume::open(
                &ready.array,
                ready.members,
                options,
                logged(name.clone(), labels.clone()),
            );
            let volume =
                Arc::new(opened.map_err(|error| array_open_error(&error, &labels).about(&name))?);
            let disk = Arc::clone(&volume) as _;
            arrays.exports.push(array_export::export(name, &volume, disk, block_bytes));
            arrays.volumes.push(volume);
        }
        Ok(arrays)
    }

    pub(super) fn exports(&self, first: &Arc<dyn Export>) -> Vec<Arc<dyn Export>> {
        std::iter::once(first).chain(&self.exports).cloned().collect()
    }

    /// Stops all arrays, and waits at most `patience` for devices. Returns whether all writes are
    /// durable.
    pub(super) fn stop(self, patience: Duration) -> bool {
        drop(self.exports);
        let volumes = self.volumes.iter().map(|volume| volume.stop().clean);
        let devices = self.devices.iter().map(|device| device.end(patience).is_ok());
        // Stop every array and device, even if an earlier one fails.
        volumes.chain(devices).fold(true, |all, one| all & one)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use braid_frontend_nbd::{ClientRequest, Completion, Payload};
    use braid_member::layer::Overlay;
    use braid_member::layer::overlay::OverlayId;
    use braid_member::{Member, MemoryMember};

    use super::super::device::Device;
    use super::*;

    /// Regression: a device served together with an array was not flushed at the stop, and writes
    /// in the device's overlay were lost.
    #[test]
    fn what_was_written_to_a_device_beside_an_array_is_durable_at_the_stop() {
        let folder = tempfile::tempdir().expect("a folder");
        let below = || Arc::new(MemoryMember::new(1 << 20)) as Arc<dyn Member>;
        let made = Overlay::make(below(), folder.path(), "array-7", (7, OverlayId::default()));
        let device: Arc<dyn Member> = Arc::new(made.expect("an overlay"));
        let device = Device {
            name: "tank".to_owned(),
            uuid: [7; 16],
            kind: "raid5 that is reshaped".to_owned(),
            device,
            read_only: false,
            logical_block_bytes: None,
        };
        let others = vec![("tank".to_owned(), ArrayOrDevice::Device(device))];
        let arrays = OtherArrays::open(others, &Options::default()).expect("it is opened");
        let (sender, told) = channel();
        let tell = move |outcome: braid_frontend_nbd::Outcome| {
            sender.send(outcome.result).expect("heard");
        };
        let payload = Payload::from(vec![9; 4096]);
        let write = ClientRequest::Write { offset: 8192, payload, durable: false };
        arrays.exports[0].submit(write, Completion::from_fn(tell));
        assert_eq!(told.recv(), Ok(Ok(())));
        assert!(arrays.stop(Duration::from_secs(20)), "all is durable");
        // The threads that serve the device drop the overlay when their queue is gone.
        let until = std::time::Instant::now() + Duration::from_secs(20);
        let again = loop {
            match Overlay::open(below(), folder.path(), "array-7", 7) {
                Ok(again) => break again,
                Err(error) => assert!(std::time::Instant::now() < until, "{error}"),
            }
            std::thread::yield_now();
        };
        let mut found = [0; 4096];
        again.read_at(&mut found, 8192).expect("it can be read");
        assert_eq!(found, [9; 4096]);
    }
}
