//! Reads are answered while the lease lasts; later ones wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use braid_ring::client::{ClientRequest, Completion, Outcome};
use braid_runtime::{Disk, Extent};

/// The time until which reads may be answered, and the answers that wait for a later one.
pub(crate) struct ReadGate {
    origin: Instant,
    until_ns: AtomicU64,
    waiting: Mutex<Vec<(Completion, Outcome)>>,
}

impl ReadGate {
    /// A gate that is open until `until_ns` after `origin`.
    pub(super) fn new(origin: Instant, until_ns: u64) -> Self {
        Self { origin, until_ns: AtomicU64::new(until_ns), waiting: Mutex::new(Vec::new()) }
    }

    /// Nanoseconds since the origin of the gate's clock.
    pub(super) fn ns_at(&self, moment: Instant) -> u64 {
        let since = moment.saturating_duration_since(self.origin).as_nanos();
        u64::try_from(since).unwrap_or(u64::MAX)
    }

    fn is_open(&self) -> bool {
        self.ns_at(Instant::now()) < self.until_ns.load(Ordering::Acquire)
    }

    /// Moves the end of the lease, and gives the answers that waited for it.
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

/// A disk whose reads are answered while the lease lasts.
pub(crate) struct GatedDisk {
    disk: Arc<dyn Disk>,
    gate: Arc<ReadGate>,
}

impl GatedDisk {
    pub(crate) fn new(disk: Arc<dyn Disk>, gate: Arc<ReadGate>) -> Self {
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
        let completion = match &request {
            ClientRequest::Read { .. } => {
                let gate = Arc::clone(&self.gate);
                Completion::from_fn(move |outcome| gate.answer(completion, outcome))
            }
            _ => completion,
        };
        self.disk.submit(request, completion);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_read_is_answered_only_while_the_lease_lasts() {
        let origin = Instant::now();
        let gate = ReadGate::new(origin, 0);
        let (sender, answers) = channel();
        let ask = || {
            let sender = sender.clone();
            let completion = Completion::from_fn(move |_| sender.send(()).expect("heard"));
            gate.answer(completion, Outcome { result: Ok(()), payload: None });
        };
        ask();
        gate.set_until(gate.ns_at(Instant::now()));
        assert!(answers.try_recv().is_err(), "the lease is over");
        gate.set_until(u64::MAX);
        answers.try_recv().expect("it waited for the lease");
        ask();
        answers.try_recv().expect("at once");
    }
}
