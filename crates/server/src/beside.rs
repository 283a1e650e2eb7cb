//! Arrays that are rescued beside another, for volumes that lie on several: served by its server, and told of by nobody but their exports.

use std::sync::Arc;

use braid_frontend_nbd::Export;
use braid_runtime::{Options, Volume};

use super::described;
use super::not_opened::not_opened;
use braid_console::error::CliError;
use braid_discovery::ready::Ready;

/// They run until they are stopped.
#[derive(Default)]
pub(super) struct Beside {
    arrays: Vec<(String, Arc<Volume>, Option<u32>)>,
}

impl Beside {
    /// Opens them as the first one is.
    pub(super) fn open(others: Vec<(String, Ready)>, options: &Options) -> Result<Self, CliError> {
        let mut beside = Self::default();
        for (name, ready) in others {
            let block_bytes = ready.array.newest.array.logical_block_bytes;
            let labels = ready.labels();
            let opened = Volume::open(&ready.array, ready.members, options, |_| {});
            let volume = opened.map_err(|error| not_opened(&error, &labels).about(&name))?;
            beside.arrays.push((name, Arc::new(volume), block_bytes));
        }
        Ok(beside)
    }

    /// The first array and these, by their numbers.
    pub(super) fn exports(&self, first: &Arc<dyn Export>) -> Vec<Arc<dyn Export>> {
        let export = |(name, volume, block_bytes): &(String, Arc<Volume>, Option<u32>)| {
            described::export(name.clone(), volume, *block_bytes)
        };
        std::iter::once(Arc::clone(first)).chain(self.arrays.iter().map(export)).collect()
    }

    /// Ends them; what was on its way is over by then.
    pub(super) fn stop(self) {
        for (_, volume, _) in self.arrays {
            volume.stop();
        }
    }
}
