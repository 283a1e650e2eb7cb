//! A server's settings: connections, payload memory, idle limit, progress deadline, with their
//! defaults from `limits.rs`. `Bounds` holds the settings that change while the server runs.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::limits;

/// A server's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Most connections at a time; [`crate::Tuner`] changes this limit while the server runs.
    pub connections_max: usize,
    /// Most connections that may be negotiating at a time.
    pub negotiating_max: usize,
    /// Time for the whole negotiation.
    pub handshake_deadline: Duration,
    /// Memory for the payloads of all connections; can change while the server runs. It is the
    /// payload memory of the process ([`braid_ring::set_payload_memory`]): a third is registered
    /// with rings, and requests get the rest. The largest request is half of that rest, rounded
    /// down to a power of two.
    pub payload_bytes_max: usize,
    /// Idle time after which a new client may take the place of a connection, if all connections
    /// are in use; `None`: never. Can change while the server runs.
    pub idle_limit: Option<Duration>,
    /// Time for a client to move [`limits::STRIDE_BYTES`] of a payload or a reply, or the rest of
    /// it if less is left.
    pub progress_deadline: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connections_max: limits::CONNECTIONS_MAX,
            negotiating_max: limits::NEGOTIATING_MAX,
            handshake_deadline: limits::HANDSHAKE_DEADLINE,
            payload_bytes_max: limits::PAYLOAD_BYTES_MAX,
            idle_limit: None,
            progress_deadline: limits::PROGRESS_DEADLINE,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Bounds {
    connections_max: AtomicUsize,
    /// The idle limit in milliseconds; [`NEVER`] for no limit.
    idle_limit_ms: AtomicU64,
    payload_bytes_max: AtomicUsize,
}

const NEVER: u64 = u64::MAX;

impl Bounds {
    pub(crate) fn new(settings: &Settings) -> Self {
        let bounds = Self {
            connections_max: AtomicUsize::new(settings.connections_max),
            idle_limit_ms: AtomicU64::new(NEVER),
            payload_bytes_max: AtomicUsize::new(settings.payload_bytes_max),
        };
        bounds.set_idle_limit(settings.idle_limit);
        bounds
    }

    pub(crate) fn connections_max(&self) -> usize {
        self.connections_max.load(Ordering::Relaxed)
    }

    pub(crate) fn set_connections_max(&self, count: usize) {
        self.connections_max.store(count, Ordering::Relaxed);
    }

    pub(crate) fn payload_bytes_max(&self) -> usize {
        self.payload_bytes_max.load(Ordering::Relaxed)
    }

    pub(crate) fn set_payload_bytes_max(&self, bytes: usize) {
        self.payload_bytes_max.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn idle_limit(&self) -> Option<Duration> {
        let ms = self.idle_limit_ms.load(Ordering::Relaxed);
        (ms != NEVER).then(|| Duration::from_millis(ms))
    }

    pub(crate) fn set_idle_limit(&self, limit: Option<Duration>) {
        let ms = |limit: Duration| u64::try_from(limit.as_millis()).unwrap_or(NEVER);
        self.idle_limit_ms.store(limit.map_or(NEVER, ms), Ordering::Relaxed);
    }
}

/// The part of the payload memory that is available to requests.
pub(crate) fn granted_of(payload_bytes_max: usize) -> usize {
    payload_bytes_max - payload_bytes_max / 3
}
