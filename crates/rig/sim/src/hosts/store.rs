//! The store: one record, changed by compare-and-swap.
//!
//! Where it stands: takes requests from the network. It can be restored to an earlier record.

use braid_ownership::{Record, SwapResult};

use super::context::Context;
use super::message::{FromStore, Sent, ToStore};

#[derive(Debug, Default)]
pub(super) struct Store {
    record: Option<Record>,
    /// Earlier records, oldest first.
    past: Vec<Option<Record>>,
    /// Counts restorations: a restoration loses the requests on their way to the store.
    life: u64,
    /// How many faults keep the store away at present.
    pub(super) absences: u32,
}

impl Store {
    pub(super) fn record(&self) -> Option<&Record> {
        self.record.as_ref()
    }

    pub(super) fn take(&mut self, message: ToStore, context: &mut Context<'_>) {
        if self.absences > 0 || message.life != self.life {
            return;
        }
        let result = match message.swap {
            Some((from, to)) if from == self.record => {
                self.past.push(self.record.replace(to));
                SwapResult::Done
            }
            _ => SwapResult::Record(self.record.clone()),
        };
        let reply = FromStore { call: message.call, result };
        context.sent.push(Sent::FromStore(message.process, Box::new(reply)));
    }

    pub(super) fn life(&self) -> u64 {
        self.life
    }

    /// Restores the record from before the last `swaps` swaps; for 0, the last one of an earlier
    /// epoch. False if there is no such record.
    pub(super) fn restore(&mut self, swaps: usize) -> bool {
        let epoch = self.record.as_ref().map_or(0, |record| record.epoch);
        let is_earlier =
            |past: &Option<Record>| past.as_ref().is_some_and(|past| past.epoch < epoch);
        let at = match swaps {
            0 => self.past.iter().rposition(is_earlier),
            _ => self.past.len().checked_sub(swaps),
        };
        let Some(at) = at else { return false };
        self.record = self.past[at].clone();
        self.life += 1;
        true
    }
}
