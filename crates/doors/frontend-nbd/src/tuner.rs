//! Faces of a running server that may be kept beside it: one reads and sets, one reads what is counted.

use std::sync::Arc;
use std::time::Duration;

use crate::budget::request_bytes_max;
use crate::counters::Counts;
use crate::settings::{Settings, granted_of};
use crate::shared::Shared;

/// Reads and sets what may be set while a server runs.
#[derive(Clone)]
pub struct Tuner(pub(crate) Arc<Shared>);

impl std::fmt::Debug for Tuner {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Tuner").field(&self.0.bounds).finish()
    }
}

impl Tuner {
    #[cfg(test)]
    pub(crate) fn of(shared: &Arc<Shared>) -> Self {
        Self(Arc::clone(shared))
    }

    /// As it is now.
    #[must_use]
    pub fn settings(&self) -> Settings {
        Settings {
            connections_max: self.0.bounds.connections_max(),
            idle_limit: self.0.bounds.idle_limit(),
            payload_bytes_max: self.0.bounds.payload_bytes_max(),
            ..self.0.settings
        }
    }

    /// Sets how many connections there may be. Those that there are stay.
    pub fn set_connections_max(&self, count: usize) {
        self.0.bounds.set_connections_max(count);
        // Those that stay have their parts too: no more is dealt out than there is.
        self.0.budget.set_connections_max(count.max(self.0.registry.count()));
    }

    /// Sets after which time idle connections go when their place is wanted.
    pub fn set_idle_limit(&self, limit: Option<Duration>) {
        self.0.bounds.set_idle_limit(limit);
    }

    /// Sets what payloads may take. What is held beyond it comes back as replies go out; clients that were told of a
    /// larger request get `ENOMEM` for what there is no room for any more.
    pub fn set_payload_bytes_max(&self, bytes: usize) {
        self.0.bounds.set_payload_bytes_max(bytes);
        braid_ring::set_payload_memory(bytes);
        self.0.budget.set_limit(granted_of(bytes));
        self.0.budget.ring();
    }

    /// The largest request of clients that come now, in bytes.
    #[must_use]
    pub fn request_bytes_max(&self) -> usize {
        request_bytes_max(self.0.budget.limit_bytes())
    }

    /// What has been counted.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.counts()
    }
}

/// Reads a server's counts.
#[derive(Clone)]
pub struct Meter(pub(crate) Arc<Shared>);

impl std::fmt::Debug for Meter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Meter").field(&self.counts()).finish()
    }
}

impl Meter {
    /// What has been counted.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.counts()
    }
}
