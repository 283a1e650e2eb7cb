//! Models of the hand-over to a worker that may be asleep. Under loom a small model runs under
//! every schedule, under shuttle a larger model under many.
//!
//! The bell is a flag to wait for, like the eventfd. A worker that is left asleep is a deadlock,
//! which both checkers find. The models with a flaw show that the checkers would find one.

use braid_concurrency::{Arc, Condvar, Mutex, thread};

use crate::inbox::{Bell, Inbox};

/// The line that a flawed model leaves out.
#[cfg_attr(loom, allow(dead_code))]
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// The worker sleeps although items wait.
    SleepsAnyway,
    /// A pushing thread never rings.
    Silent,
}

struct Door {
    inbox: Inbox<u32>,
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Door {
    fn leave(&self, item: u32, flaw: Flaw) {
        let bell = self.inbox.push(item, false).expect("it is open");
        if bell == Bell::Ring && flaw != Flaw::Silent {
            *self.rung.lock().expect("no panic") = true;
            self.changed.notify_one();
        }
    }

    /// Runs the worker until it has had `count` items.
    fn work(&self, count: usize, flaw: Flaw) -> Vec<u32> {
        let (mut had, mut items) = (Vec::new(), Vec::new());
        loop {
            self.inbox.take(&mut items);
            had.append(&mut items);
            if had.len() == count {
                return had;
            }
            if self.inbox.sleep() || flaw == Flaw::SleepsAnyway {
                let mut rung = self.rung.lock().expect("no panic");
                while !*rung {
                    rung = self.changed.wait(rung).expect("no panic");
                }
                *rung = false;
            }
        }
    }
}

/// Each of `threads` threads leaves `each` items. The worker gets all items, and those of each
/// thread in order.
fn hand_over(threads: u32, each: u32, flaw: Flaw) {
    let door = Arc::new(Door {
        inbox: Inbox::new(false),
        rung: Mutex::new(false),
        changed: Condvar::new(),
    });
    let others: Vec<_> = (0..threads)
        .map(|thread| {
            let door = Arc::clone(&door);
            thread::spawn(move || (0..each).for_each(|item| door.leave(thread * each + item, flaw)))
        })
        .collect();
    let had = door.work((threads * each) as usize, flaw);
    others.into_iter().for_each(|other| other.join().expect("it does not panic"));
    for thread in 0..threads {
        let of_it: Vec<u32> = had.iter().copied().filter(|item| item / each == thread).collect();
        assert!(of_it.iter().copied().eq(thread * each..(thread + 1) * each), "{of_it:?}");
    }
}

#[cfg(loom)]
fn explore(name: &str, threads: u32, each: u32, flaw: Flaw) {
    braid_concurrency::models::explore(name, 3, move || hand_over(threads, each, flaw));
}

#[cfg(shuttle)]
fn explore(name: &str, threads: u32, each: u32, flaw: Flaw) {
    let model = move || hand_over(threads * 2, each * 3, flaw);
    braid_concurrency::models::sample(name, 10_000, false, model);
}

#[test]
fn a_worker_is_never_left_asleep() {
    explore("a worker's inbox", 2, 2, Flaw::None);
}

// Runs under shuttle only: loom cannot unwind out of a deadlock.
#[cfg(shuttle)]
#[test]
#[should_panic]
fn a_worker_that_does_not_look_before_it_sleeps_is_noticed() {
    explore("flawed", 1, 2, Flaw::SleepsAnyway);
}

// Runs under shuttle only: loom cannot unwind out of a deadlock.
#[cfg(shuttle)]
#[test]
#[should_panic]
fn a_bell_that_is_not_rung_is_noticed() {
    explore("flawed", 1, 2, Flaw::Silent);
}
