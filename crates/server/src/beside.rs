//! Arrays that are rescued beside another, for volumes that lie on several: served by its server, and told of by nobody but their exports.

use std::sync::Arc;

use braid_frontend_nbd::Export;
use braid_runtime::{Options, Volume};

use super::described;
use super::not_opened::not_opened;
use super::parts::Opened;
use braid_console::error::CliError;

/// They run until they are stopped.
#[derive(Default)]
pub(super) struct Beside {
    exports: Vec<Arc<dyn Export>>,
    volumes: Vec<Arc<Volume>>,
}

impl Beside {
    /// Opens them with these options.
    pub(super) fn open(others: Vec<(String, Opened)>, options: &Options) -> Result<Self, CliError> {
        let mut beside = Self::default();
        for (name, opened) in others {
            let ready = match opened {
                Opened::Array(ready) => *ready,
                Opened::Device(device) => {
                    beside.exports.push(device.export()?.1);
                    continue;
                }
            };
            let block_bytes = ready.array.newest.array.logical_block_bytes;
            let labels = ready.labels();
            let opened = Volume::open(&ready.array, ready.members, options, |_| {});
            let volume =
                Arc::new(opened.map_err(|error| not_opened(&error, &labels).about(&name))?);
            beside.exports.push(described::export(name, &volume, block_bytes));
            beside.volumes.push(volume);
        }
        Ok(beside)
    }

    /// The first array and these, by their numbers.
    pub(super) fn exports(&self, first: &Arc<dyn Export>) -> Vec<Arc<dyn Export>> {
        std::iter::once(first).chain(&self.exports).cloned().collect()
    }

    /// Ends them; what was on its way is over by then.
    pub(super) fn stop(self) {
        drop(self.exports);
        for volume in self.volumes {
            volume.stop();
        }
    }
}
