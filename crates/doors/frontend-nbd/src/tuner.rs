//! Handles by which a program controls a running server: [`Tuner`] reads and changes settings,
//! [`Meter`] reads counters.

use std::sync::Arc;
use std::time::Duration;

use crate::budget::request_bytes_max;
use crate::counters::Counts;
use crate::settings::{Settings, granted_of};
use crate::shared::Shared;

/// Reads and changes a running server's settings.
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

    /// The current settings.
    #[must_use]
    pub fn settings(&self) -> Settings {
        Settings {
            connections_max: self.0.bounds.connections_max(),
            idle_limit: self.0.bounds.idle_limit(),
            payload_bytes_max: self.0.bounds.payload_bytes_max(),
            ..self.0.settings
        }
    }

    /// Sets the limit of connections. Existing connections stay.
    pub fn set_connections_max(&self, count: usize) {
        self.0.bounds.set_connections_max(count);
        // While more connections exist than the new limit allows, divides the shares among all of
        // them, so that the budget never exceeds its limit.
        self.0.budget.set_connections_max(count.max(self.0.registry.count()));
    }

    /// Sets how long a connection must be idle before it may be cut for a new one.
    pub fn set_idle_limit(&self, limit: Option<Duration>) {
        self.0.bounds.set_idle_limit(limit);
    }

    /// Sets the memory for payloads. Memory held beyond the new limit is freed as replies are sent.
    /// Older clients were promised larger requests; requests that no longer fit get `ENOMEM`.
    pub fn set_payload_bytes_max(&self, bytes: usize) {
        self.0.bounds.set_payload_bytes_max(bytes);
        braid_ring::set_payload_memory(bytes);
        self.0.budget.set_limit(granted_of(bytes));
        self.0.budget.ring();
    }

    /// The largest request, in bytes, that new clients may send.
    #[must_use]
    pub fn request_bytes_max(&self) -> usize {
        request_bytes_max(self.0.budget.limit_bytes())
    }

    /// The server's counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.counts()
    }
}

/// Reads a server's counters.
#[derive(Clone)]
pub struct Meter(pub(crate) Arc<Shared>);

impl std::fmt::Debug for Meter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Meter").field(&self.counts()).finish()
    }
}

impl Meter {
    /// The server's counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.counts()
    }
}
