//! The state that all threads of a server share: exports, settings, counters, memory, registry.
//!
//! Where it stands: below the connections and their transports, which use this state.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::budget::Budget;
use crate::counters::{Counters, Counts};
use crate::export::Export;
use crate::notice::{Listener, Notices};
use crate::registry::Registry;
use crate::settings::{Bounds, Settings, granted_of};
use crate::tls::Pumps;

pub(crate) struct Shared {
    pub(crate) exports: Vec<Arc<dyn Export>>,
    pub(crate) settings: Settings,
    pub(crate) counters: Counters,
    pub(crate) budget: Budget,
    pub(crate) bounds: Bounds,
    pub(crate) notices: Notices,
    pub(crate) registry: Registry,
    pub(crate) pumps: Arc<Pumps>,
    pub(crate) stopping: AtomicBool,
    pub(crate) stopping_since: OnceLock<Instant>,
}

impl Shared {
    pub(crate) fn new(
        exports: Vec<Arc<dyn Export>>,
        settings: Settings,
        listener: Option<Listener>,
    ) -> Self {
        Self {
            exports,
            settings,
            counters: Counters::default(),
            budget: Budget::new(granted_of(settings.payload_bytes_max), settings.connections_max),
            bounds: Bounds::new(&settings),
            notices: Notices::new(listener),
            registry: Registry::default(),
            pumps: Arc::default(),
            stopping: AtomicBool::new(false),
            stopping_since: OnceLock::new(),
        }
    }

    pub(crate) fn stopping_since(&self) -> Option<Instant> {
        self.stopping_since.get().copied()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counters.read(self.registry.count(), &self.budget)
    }
}
