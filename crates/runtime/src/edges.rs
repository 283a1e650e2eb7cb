//! Requests that do not begin or end at a sector.
//!
//! The engine counts in sectors. A write that covers part of one must keep the rest, so it reads
//! the sector, lays its bytes over it and writes it back; meanwhile no other write may touch that
//! sector. Such writes are rare (every common client aligns), so they simply have the array to
//! themselves: [`Turnstile`] lets either many aligned writes or one unaligned one through.

use std::sync::{Condvar, Mutex};

#[derive(Default)]
struct State {
    aligned: usize,
    waiting_aligned: usize,
    waiting_alone: usize,
    alone: bool,
    /// An unaligned write was just served: aligned ones that waited for it go first.
    aligned_turn: bool,
}

/// Many aligned writes, or one that is not.
#[derive(Default)]
pub(crate) struct Turnstile {
    state: Mutex<State>,
    changed: Condvar,
}

impl Turnstile {
    /// Lets an aligned write in; waits while an unaligned one is in or waits before it.
    pub(crate) fn enter(&self) {
        let mut state = self.state.lock().expect("counting does not panic");
        state.waiting_aligned += 1;
        let blocked =
            |state: &mut State| state.alone || (state.waiting_alone > 0 && !state.aligned_turn);
        let state = self.changed.wait_while(state, blocked);
        let mut state = state.expect("counting does not panic");
        state.waiting_aligned -= 1;
        state.aligned += 1;
        state.aligned_turn &= state.waiting_aligned > 0;
    }

    /// An aligned write has been answered.
    pub(crate) fn leave(&self) {
        let mut state = self.state.lock().expect("counting does not panic");
        state.aligned -= 1;
        let wake = state.aligned == 0 && state.waiting_alone > 0;
        drop(state);
        if wake {
            self.changed.notify_all();
        }
    }

    /// Runs `work` while no write is in flight.
    pub(crate) fn alone<R>(&self, work: impl FnOnce() -> R) -> R {
        let mut state = self.state.lock().expect("counting does not panic");
        state.waiting_alone += 1;
        let blocked = |state: &mut State| state.alone || state.aligned > 0 || state.aligned_turn;
        let state = self.changed.wait_while(state, blocked);
        let mut state = state.expect("counting does not panic");
        state.waiting_alone -= 1;
        state.alone = true;
        drop(state);
        let result = work();
        let mut state = self.state.lock().expect("counting does not panic");
        state.alone = false;
        state.aligned_turn = state.waiting_aligned > 0;
        drop(state);
        self.changed.notify_all();
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn an_unaligned_write_is_alone() {
        let turnstile = Turnstile::default();
        let (aligned, alone) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (turnstile, aligned, alone) = (&turnstile, &aligned, &alone);
                scope.spawn(move || {
                    for round in 0..2_000 {
                        if (thread + round) % 5 == 0 {
                            turnstile.alone(|| {
                                assert_eq!(alone.fetch_add(1, Ordering::SeqCst), 0);
                                assert_eq!(aligned.load(Ordering::SeqCst), 0);
                                alone.fetch_sub(1, Ordering::SeqCst);
                            });
                        } else {
                            turnstile.enter();
                            aligned.fetch_add(1, Ordering::SeqCst);
                            assert_eq!(alone.load(Ordering::SeqCst), 0);
                            aligned.fetch_sub(1, Ordering::SeqCst);
                            turnstile.leave();
                        }
                    }
                });
            }
        });
    }
}
