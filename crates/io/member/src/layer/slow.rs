//! A member with a delay.
//!
//! The caller's thread sleeps before the operation, on top of the operation's own time. Any thread
//! may change the delay while the member is in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::{Identity, Member, MemberError};

#[derive(Debug, Default)]
struct Settings {
    read_ns: AtomicU64,
    write_ns: AtomicU64,
    flush_ns: AtomicU64,
}

/// The handle by which a test makes a member slow. Initially there is no delay.
#[derive(Debug, Clone, Default)]
pub struct Delays(Arc<Settings>);

impl Delays {
    /// Delays every read from now on.
    pub fn set_read(&self, delay: Duration) {
        store(&self.0.read_ns, delay);
    }

    /// Delays every write and every zeroing from now on.
    pub fn set_write(&self, delay: Duration) {
        store(&self.0.write_ns, delay);
    }

    /// Delays every flush from now on. A durable write gets the delay of a write and of a flush.
    pub fn set_flush(&self, delay: Duration) {
        store(&self.0.flush_ns, delay);
    }
}

fn store(setting: &AtomicU64, delay: Duration) {
    setting.store(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

fn sleep(setting: &AtomicU64) {
    match setting.load(Ordering::Relaxed) {
        0 => {}
        delay_ns => thread::sleep(Duration::from_nanos(delay_ns)),
    }
}

/// A member that is as slow as its [`Delays`] say.
#[derive(Debug)]
pub struct Slow<M> {
    inner: M,
    delays: Delays,
}

impl<M: Member> Slow<M> {
    /// Wraps a member, without delay at first.
    pub fn new(inner: M) -> Self {
        Self { inner, delays: Delays::default() }
    }

    /// The handle to this member's delays.
    pub fn delays(&self) -> Delays {
        self.delays.clone()
    }
}

impl<M: Member> Member for Slow<M> {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<(), MemberError> {
        sleep(&self.delays.0.read_ns);
        self.inner.read_at(buffer, offset_bytes)
    }

    fn write_at(&self, buffer: &[u8], offset_bytes: u64, durable: bool) -> Result<(), MemberError> {
        sleep(&self.delays.0.write_ns);
        if durable {
            sleep(&self.delays.0.flush_ns);
        }
        self.inner.write_at(buffer, offset_bytes, durable)
    }

    fn flush(&self) -> Result<(), MemberError> {
        sleep(&self.delays.0.flush_ns);
        self.inner.flush()
    }

    fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        may_punch: bool,
    ) -> Result<(), MemberError> {
        sleep(&self.delays.0.write_ns);
        self.inner.zero(offset_bytes, length_bytes, may_punch)
    }

    fn can_zero_fast(&self) -> bool {
        self.inner.can_zero_fast()
    }

    fn has_vanished(&self) -> bool {
        self.inner.has_vanished()
    }
}
