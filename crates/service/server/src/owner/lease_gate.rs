//! Answers to clients' requests are sent while the owner's lease lasts; after its end they wait for
//! the next lease.
//!
//! Writes are safe without the lease. But an owner that was suspended could answer a request after
//! the next owner has begun to serve.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use braid_member::boot_ns;
use braid_ring::client::{ClientRequest, Completion, Outcome};
use braid_runtime::{Disk, Extent};

/// The end of the lease, until which requests are answered, and the answers that wait for a later
/// end. Times are those of [`boot_ns`].
pub(crate) struct LeaseGate {
    until_ns: AtomicU64,
    waiting: Mutex<Vec<(Completion, Outcome)>>,
}

impl LeaseGate {
    /// A gate that is open until `until_ns`.
    pub(super) fn new(until_ns: u64) -> Self {
        Self { until_ns: AtomicU64::new(until_ns), waiting: Mutex::new(Vec::new()) }
    }

    fn is_open(&self) -> bool {
        boot_ns() < self.until_ns.load(Ordering::Acquire)
    }

    /// Moves the end of the lease, and sends the answers that waited for the move.
    pub(super) fn set_until(&self, until_ns: u64) {
        self.until_ns.store(until_ns, Ordering::Release);
        let waiting = std::mem::take(&mut *self.waiting.lock().expect("parking does not panic"));
        waiting.into_iter().for_each(|(completion, outcome)| self.answer(completion, outcome));
    }

    fn answer(&self, completion: Completion, outcome: Outcome) {
        if self.is_open() {
            return completion.complete(outcome);
        }
        self.waiting.lock().expect("parking does not panic").push((completion, outcome));
    }
}

/// A disk whose requests are answered while the lease lasts.
pub(crate) struct GatedDisk {
    disk: Arc<dyn Disk>,
    gate: Arc<LeaseGate>,
}

impl GatedDisk {
    pub(crate) fn new(disk: Arc<dyn Disk>, gate: Arc<LeaseGate>) -> Self {
        Self { disk, gate }
    }
}

impl Disk for GatedDisk {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.disk.is_read_only()
    }

    fn unit_bytes(&self) -> u64 {
        self.disk.unit_bytes()
    }

    fn zeroes_fast(&self, offset: u64, length: u64) -> bool {
        self.disk.zeroes_fast(offset, length)
    }

    fn extents(&self, offset: u64, length: u64, runs_max: usize) -> Vec<Extent> {
        self.disk.extents(offset, length, runs_max)
    }

    fn submit(&self, request: ClientRequest, completion: Completion) {
        let gate = Arc::clone(&self.gate);
        let gated = Completion::from_fn(move |outcome| gate.answer(completion, outcome));
        self.disk.submit(request, gated);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_request_is_answered_only_while_the_lease_lasts() {
        let gate = LeaseGate::new(0);
        let (sender, answers) = channel();
        let ask = || {
            let sender = sender.clone();
            let completion = Completion::from_fn(move |_| sender.send(()).expect("heard"));
            gate.answer(completion, Outcome { result: Ok(()), payload: None });
        };
        ask();
        gate.set_until(boot_ns());
        assert!(answers.try_recv().is_err(), "the lease is over");
        gate.set_until(u64::MAX);
        answers.try_recv().expect("it waited for the lease");
        ask();
        answers.try_recv().expect("at once");
    }
}
