//! Swaps an array's record at the store, even if the store's answer is lost.

use std::time::Duration;

use braid_ownership::{Record, SwapResult};
use braid_store::{Store, StoreError, Stored};

/// The pause before the next request to a store that does not answer.
pub(super) const PAUSE: Duration = Duration::from_millis(200);

/// The record of an array in a store, as it was seen last.
pub(super) struct Seen {
    store: Box<dyn Store>,
    stored: Option<Stored>,
}

impl Seen {
    pub(super) fn new(store: Box<dyn Store>) -> Self {
        Self { store, stored: None }
    }

    pub(super) fn record(&self) -> Option<&Record> {
        self.stored.as_ref().map(|stored| &stored.record)
    }

    /// Reads the record.
    pub(super) fn read(&mut self) -> Result<(), StoreError> {
        self.stored = self.store.read()?;
        Ok(())
    }

    /// Replaces the record that was seen last by the record `to`. If the answer is lost, the record
    /// is read until the store answers. `goes_on` gets each failure, and waits.
    ///
    /// # Errors
    /// The store refused, or did not answer before `goes_on` gave up.
    pub(super) fn swap(
        &mut self,
        to: &Record,
        goes_on: &mut dyn FnMut(&StoreError) -> bool,
    ) -> Result<SwapResult, StoreError> {
        let from = self.stored.as_ref().map(|stored| stored.version.as_str());
        let mut tried = match self.store.swap(from, to) {
            Ok(Some(stored)) => {
                self.stored = Some(stored);
                return Ok(SwapResult::Done);
            }
            Ok(None) => self.read(),
            Err(error) => Err(error),
        };
        loop {
            match tried {
                Ok(()) => return Ok(SwapResult::Record(self.record().cloned())),
                Err(error @ StoreError::Unreachable(_)) if goes_on(&error) => tried = self.read(),
                Err(error) => return Err(error),
            }
        }
    }
}
