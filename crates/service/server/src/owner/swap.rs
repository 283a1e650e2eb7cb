//! A swap at the store, whatever becomes of its answer.

use std::time::Duration;

use braid_ownership::{Record, SwapResult};
use braid_store::{Store, StoreError, Stored};

/// The pause before a store that does not answer is asked again.
const PAUSE: Duration = Duration::from_millis(200);

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
    pub(super) fn read(&mut self) -> Result<Option<&Record>, StoreError> {
        self.stored = self.store.read()?;
        Ok(self.record())
    }

    /// Reads the record, as often as it takes the store to answer. `is_away` hears of the first
    /// failure.
    pub(super) fn read_in_the_end(
        &mut self,
        is_away: &dyn Fn(&StoreError),
    ) -> Result<(), StoreError> {
        let mut is_told = false;
        loop {
            match self.read() {
                Ok(_) => return Ok(()),
                Err(error @ StoreError::Unreachable(_)) => {
                    if !std::mem::replace(&mut is_told, true) {
                        is_away(&error);
                    }
                    std::thread::sleep(PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Swaps the record that was seen last for another. If the answer is lost, the record is read
    /// until the store answers.
    pub(super) fn swap(
        &mut self,
        to: &Record,
        is_away: &dyn Fn(&StoreError),
    ) -> Result<SwapResult, StoreError> {
        let from = self.stored.as_ref().map(|stored| stored.version.as_str());
        match self.store.swap(from, to) {
            Ok(Some(stored)) => {
                self.stored = Some(stored);
                return Ok(SwapResult::Done);
            }
            Ok(None) => {}
            Err(error @ StoreError::Unreachable(_)) => is_away(&error),
            Err(error) => return Err(error),
        }
        self.read_in_the_end(&|_| {})?;
        Ok(SwapResult::Record(self.record().cloned()))
    }
}
