//! The admission of writes: keeps the writes that may not begin yet.
//!
//! The engine's [`request::WriteAdmission`], which knows no threads, decides which writes may
//! begin. No thread waits here. A write that is not admitted is kept. A thread that ends a write
//! then begins the kept writes that may begin now. An aligned write that finds no other write
//! waiting is admitted at once [check: an_unaligned_write_is_alone].
//!
//! One thread begins the admitted writes one after the other. A write that ends at once admits
//! others. Beginning them from within its own beginning would nest thousands of calls on one stack
//! [check: a_long_queue_takes_no_stack].

use std::collections::VecDeque;

use braid_engine::request::{self, AdmissionMode, Ticket};

use crate::sync::Mutex;
use crate::sync::flaw::{self, Flaw};

/// Admits many aligned writes, or one unaligned write.
pub(crate) struct WriteAdmission<W> {
    state: Mutex<State<W>>,
}

struct State<W> {
    order: request::WriteAdmission,
    /// Writes that are not admitted yet, in the order of their tickets.
    waiting: VecDeque<(Ticket, W)>,
    /// Whether a thread is beginning admitted writes.
    is_beginning: bool,
}

impl<W> Default for WriteAdmission<W> {
    fn default() -> Self {
        let (order, waiting) = (request::WriteAdmission::default(), VecDeque::new());
        Self { state: Mutex::new(State { order, waiting, is_beginning: false }) }
    }
}

impl<W> WriteAdmission<W> {
    /// Returns the write if it is admitted at once. Otherwise a later `leave` begins the write.
    pub(crate) fn enter(&self, mode: AdmissionMode, write: W) -> Option<W> {
        let mut state = self.state.lock().expect("counting does not panic");
        let ticket = state.order.enter(mode);
        if state.order.is_admitted(ticket) || flaw::has(Flaw::EnterAtOnce) {
            return Some(write);
        }
        state.waiting.push_back((ticket, write));
        None
    }

    /// Ends the admission of a write that was answered. `begin` is called for each write that may
    /// begin now, on this thread or on one that is already beginning writes.
    pub(crate) fn leave(&self, mode: AdmissionMode, mut begin: impl FnMut(W)) {
        let mut state = self.state.lock().expect("counting does not panic");
        let lets_in = state.order.leave(mode);
        if !lets_in || state.is_beginning || flaw::has(Flaw::LeaveSilent) {
            return;
        }
        state.is_beginning = true;
        while let Some((ticket, write)) = state.waiting.pop_front() {
            if !state.order.is_admitted(ticket) {
                state.waiting.push_front((ticket, write));
                break;
            }
            drop(state);
            begin(write);
            state = self.state.lock().expect("counting does not panic");
        }
        state.is_beginning = false;
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct World {
        admission: WriteAdmission<AdmissionMode>,
        aligned: AtomicUsize,
        alone: AtomicUsize,
        done: AtomicUsize,
    }

    impl World {
        fn new() -> Self {
            let zero = || AtomicUsize::new(0);
            Self {
                admission: WriteAdmission::default(),
                aligned: zero(),
                alone: zero(),
                done: zero(),
            }
        }

        fn write(&self, mode: AdmissionMode) {
            if mode == AdmissionMode::Exclusive {
                assert_eq!(self.alone.fetch_add(1, Ordering::SeqCst), 0);
                assert_eq!(self.aligned.load(Ordering::SeqCst), 0);
                self.alone.fetch_sub(1, Ordering::SeqCst);
            } else {
                self.aligned.fetch_add(1, Ordering::SeqCst);
                assert_eq!(self.alone.load(Ordering::SeqCst), 0);
                self.aligned.fetch_sub(1, Ordering::SeqCst);
            }
            self.done.fetch_add(1, Ordering::SeqCst);
            self.admission.leave(mode, |mode| self.write(mode));
        }
    }

    #[test]
    fn an_unaligned_write_is_alone() {
        let world = World::new();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let world = &world;
                scope.spawn(move || {
                    for round in 0..2_000 {
                        let mode = if (thread + round) % 5 == 0 {
                            AdmissionMode::Exclusive
                        } else {
                            AdmissionMode::Shared
                        };
                        world
                            .admission
                            .enter(mode, mode)
                            .into_iter()
                            .for_each(|mode| world.write(mode));
                    }
                });
            }
        });
        assert_eq!(world.done.load(Ordering::SeqCst), 8_000, "every write was admitted");
    }

    #[test]
    fn a_long_queue_takes_no_stack() {
        let world = World::new();
        assert_eq!(
            world.admission.enter(AdmissionMode::Shared, AdmissionMode::Shared),
            Some(AdmissionMode::Shared)
        );
        for _ in 0..1_000_000 {
            assert_eq!(
                world.admission.enter(AdmissionMode::Exclusive, AdmissionMode::Exclusive),
                None
            );
        }
        world.admission.leave(AdmissionMode::Shared, |mode| world.write(mode));
        assert_eq!(world.done.load(Ordering::SeqCst), 1_000_000);
    }
}
