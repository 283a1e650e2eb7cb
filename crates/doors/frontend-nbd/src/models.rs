//! Models of the hand-overs between connections: the registry and the budget under very many
//! schedules. The models of the hand-over to a worker are in `braid-ring`.
//!
//! Where it stands: unit tests that exist under `--cfg shuttle` only; `cargo xtask models` runs
//! them. Timeouts never pass in a model, so a lost wake-up is a deadlock.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use shuttle::thread;

use crate::budget::{Bell, Budget, Grant, Need, Purse};
use crate::registry::{Admission, AdmissionLimits, Registry};
use crate::socket::Socket;
use crate::sync::{Condvar, Flaw, Mutex, choose};

/// With this many schedules each planted flaw is found with room to spare.
const SCHEDULES: usize = 1_000;

/// Runs a model in which no time passes.
pub(crate) fn sample(name: &str, model: fn()) {
    braid_concurrency::models::sample(name, SCHEDULES, false, model);
}

/// A connected socket pair: the server's end and the client's end.
pub(crate) fn pair() -> (Arc<Socket>, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("two descriptors");
    (Arc::new(Socket::new(ours.into(), false).expect("nothing is set on it")), theirs)
}

/// An acceptor with room for one negotiating client, three clients, and a stop once all are
/// accepted.
fn come_and_go() {
    let registry = Arc::new(Registry::default());
    let mut clients = Vec::new();
    for _ in 0..3 {
        registry.wait_for_room(Duration::MAX);
        let (socket, theirs) = pair();
        let limits = AdmissionLimits { connections_max: 3, negotiating_max: 1, idle_limit: None };
        let Admission::Admitted { id, .. } = registry.admit(&socket, &limits) else { continue };
        let connections = Arc::clone(&registry);
        let serve = move || {
            let is_in = connections.note_negotiated(id);
            connections.leave(id);
            drop((socket, theirs));
            is_in
        };
        clients.push(thread::spawn(serve));
    }
    registry.start_draining();
    assert_eq!(registry.wait_until_empty(Duration::MAX), 0, "all have left");
    let served = clients.into_iter().map(|client| client.join().expect("it does not panic"));
    assert!(served.filter(|is_in| *is_in).count() >= 1, "one was not evicted");
    assert_eq!(registry.count(), 0);
}

#[test]
fn what_waits_for_room_or_for_the_end_is_woken() {
    sample("registry: evicted, served, drained", come_and_go);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_connection_that_leaves_silently_is_caught() {
    choose(Flaw::LeaveSilent);
    sample("flawed", come_and_go);
}

#[derive(Default)]
struct Sleeper {
    is_rung: Mutex<bool>,
    rung: Condvar,
}

impl Bell for Sleeper {
    fn ring(&self) {
        *self.is_rung.lock().expect("ringing does not panic") = true;
        self.rung.notify_one();
    }
}

impl Sleeper {
    fn sleep(&self) {
        let is_rung = self.is_rung.lock().expect("ringing does not panic");
        let mut is_rung = self.rung.wait_while(is_rung, |is_rung| !*is_rung).expect("as above");
        *is_rung = false;
    }
}

/// Takes memory from the budget and gives it back. If the memory is not free, waits for it if
/// `waits`, else leaves the queue.
fn take_and_give(budget: &Budget, needs: &[(usize, Need)], waits: bool) {
    let (mut purse, sleeper) = (budget.purse(), Arc::<Sleeper>::default());
    let bell: Arc<dyn Bell> = Arc::<Sleeper>::clone(&sleeper);
    let mut ask = |purse: &mut Purse, bytes, need| loop {
        let grant = budget.take(purse, bytes, need, &bell);
        budget.ring();
        if grant == Grant::Taken {
            return true;
        }
        if !waits {
            budget.leave(purse);
            budget.ring();
            return false;
        }
        sleeper.sleep();
    };
    let taken: usize = needs
        .iter()
        .map(|&(bytes, need)| if ask(&mut purse, bytes, need) { bytes } else { 0 })
        .sum();
    budget.end_growth(&mut purse);
    budget.give(&mut purse, taken);
    budget.ring();
}

/// Four connections share 750 common bytes. Two take up to two thirds, one grows to as much step by
/// step, and one does not wait.
fn share() {
    let budget = Arc::new(Budget::new(1000, 1 << 20));
    let whole = [(500, Need::Whole)];
    let growing = [(100, Need::Growth), (100, Need::Growth), (300, Need::Growth)];
    let others = [(&whole[..], true), (&growing, true), (&whole, false)].map(|(needs, waits)| {
        let (budget, needs) = (Arc::clone(&budget), needs.to_vec());
        thread::spawn(move || take_and_give(&budget, &needs, waits))
    });
    take_and_give(&budget, &growing, true);
    others.into_iter().for_each(|other| other.join().expect("it does not panic"));
    assert_eq!((budget.held_bytes(), budget.waiting()), (0, 0));
}

#[test]
fn whoever_waits_for_memory_is_told() {
    sample("budget: four share what is enough for one", share);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_budget_that_tells_nobody_is_caught() {
    choose(Flaw::GiveSilent);
    sample("flawed", share);
}
