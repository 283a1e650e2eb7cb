//! Tests of the budget alone: granted requests, waiting requests, and the order of bells.

use std::sync::atomic::AtomicUsize as Count;

use super::*;

const MIB: usize = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct BellCounter(Count);

impl BellCounter {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Bell for BellCounter {
    fn ring(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

struct Table {
    budget: Budget,
    purses: Vec<Purse>,
    bells: Vec<Arc<BellCounter>>,
}

impl Table {
    fn new(limit_bytes: usize, connections: usize) -> Self {
        let budget = Budget::new(limit_bytes, connections);
        let purses = (0..connections).map(|_| budget.purse()).collect();
        let bells = (0..connections).map(|_| Arc::default()).collect();
        Self { budget, purses, bells }
    }

    fn take(&mut self, who: usize, bytes: usize, need: Need) -> bool {
        let bell: Arc<dyn Bell> = Arc::<BellCounter>::clone(&self.bells[who]);
        self.budget.take(&mut self.purses[who], bytes, need, &bell) == Grant::Taken
    }

    fn give(&mut self, who: usize, bytes: usize) {
        self.budget.give(&mut self.purses[who], bytes);
        self.budget.ring();
    }

    fn rung(&self, who: usize) -> usize {
        self.bells[who].count()
    }
}

#[test]
fn a_small_request_never_waits_behind_large_ones() {
    let mut table = Table::new(128 * MIB, 256);
    for who in 0..255 {
        while table.take(who, 32 * MIB, Need::Whole) {}
    }
    for who in 0..256 {
        let mut purse = table.budget.purse();
        let bell: Arc<dyn Bell> = Arc::<BellCounter>::clone(&table.bells[who]);
        let grant = table.budget.take(&mut purse, 128 << 10, Need::Whole, &bell);
        assert_eq!(grant, Grant::Taken, "{who}");
    }
}

#[test]
fn no_more_is_granted_than_there_is() {
    let mut state = 1_u64;
    let mut next = |end: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(state >> 33).expect("31 bits") % end
    };
    let mut table = Table::new(16 * MIB, 12);
    let mut held: Vec<Vec<usize>> = vec![Vec::new(); 12];
    let mut waits: Vec<Option<(usize, Need)>> = vec![None; 12];
    for _ in 0..200_000 {
        let who = next(12);
        match (next(3), waits[who]) {
            (0, _) if !held[who].is_empty() => {
                let bytes = held[who].swap_remove(0);
                table.give(who, bytes);
            }
            (1, _) if next(4) == 0 => {
                table.budget.leave(&mut table.purses[who]);
                table.budget.end_growth(&mut table.purses[who]);
                waits[who] = None;
            }
            (_, asked) => {
                let need = if next(2) == 0 { Need::Whole } else { Need::Growth };
                let (bytes, need) = asked.unwrap_or((next(8 * MIB), need));
                let is_taken = table.take(who, bytes, need);
                waits[who] = (!is_taken).then_some((bytes, need));
                held[who].extend(is_taken.then_some(bytes));
            }
        }
        let sum: usize = held.iter().flatten().sum();
        assert_eq!(sum, table.budget.held_bytes());
        assert!(sum <= 16 * MIB);
        let in_line = table.purses.iter().filter(|purse| purse.is_waiting).count();
        assert_eq!(table.budget.waiting(), in_line);
    }
    for (who, mut held) in held.into_iter().enumerate() {
        table.budget.leave(&mut table.purses[who]);
        table.budget.end_growth(&mut table.purses[who]);
        held.drain(..).for_each(|bytes| table.give(who, bytes));
    }
    assert_eq!((table.budget.held_bytes(), table.budget.waiting()), (0, 0));
    assert_eq!(table.budget.lock().partial_bytes, 0);
}

#[test]
fn one_that_takes_much_leaves_half_as_much() {
    let mut table = Table::new(128 * MIB, 64);
    for who in 0..63 {
        while table.take(who, MIB, Need::Whole) {}
        table.budget.leave(&mut table.purses[who]);
    }
    let first = table.purses[0].held_bytes();
    assert!((63 * MIB..=65 * MIB).contains(&first), "{first}");
    assert!(table.take(63, 128 << 10, Need::Whole));
}

#[test]
fn those_who_wait_are_called_one_after_the_other() {
    let mut table = Table::new(16 * MIB, 4);
    assert!(table.take(0, 9 * MIB, Need::Whole), "two thirds of what is common, and its own");
    for who in 1..4 {
        assert!(!table.take(who, 8 * MIB, Need::Whole));
    }
    table.give(0, 9 * MIB);
    assert_eq!([1, 2, 3].map(|who| table.rung(who)), [1, 0, 0]);
    assert!(!table.take(2, 8 * MIB, Need::Whole), "it is not its turn");
    assert!(!table.take(0, 10 * MIB, Need::Whole), "nor does it leave half as much");
    assert!(table.take(1, 8 * MIB, Need::Whole));
    assert_eq!(table.rung(2), 0);
    table.give(1, 8 * MIB);
    table.budget.leave(&mut table.purses[2]);
    table.budget.ring();
    assert_eq!(table.rung(3), 1, "one that leaves lets the next in");
}

#[test]
fn a_line_of_the_longest_requests_holds_up_shorter_ones_for_a_while_only() {
    let mut table = Table::new(128 * MIB, 64);
    assert!(table.take(0, 64 * MIB, Need::Whole));
    assert!((1..63).all(|who| !table.take(who, 64 * MIB, Need::Whole)));
    let mut overtaken = 0;
    while table.take(63, 2 * MIB, Need::Whole) {
        overtaken += 1;
        table.give(63, 2 * MIB);
    }
    assert!((3000..=OVERTAKING_MAX).contains(&overtaken), "{overtaken}");
    table.give(0, 64 * MIB);
    assert!(table.take(1, 64 * MIB, Need::Whole), "the first in line is not starved");
}

#[test]
fn growing_writes_do_not_starve_each_other() {
    let mut table = Table::new(128 * MIB, 8);
    let mut lengths = [MIB; 8];
    for who in 0..8 {
        assert!(table.take(who, MIB, Need::Growth));
    }
    let mut finished = 0;
    for round in 0..1000 {
        for (who, length) in lengths.iter_mut().enumerate() {
            let most = 64 * MIB;
            if *length < most && table.take(who, *length, Need::Growth) {
                *length *= 2;
            }
            if *length == most {
                table.budget.end_growth(&mut table.purses[who]);
                table.give(who, most);
                // The finished write asks for no more memory.
                (*length, finished) = (usize::MAX, finished + 1);
            }
        }
        if finished == 8 {
            return assert!(round < 100);
        }
    }
    panic!("{finished} of 8 writes were finished: {lengths:?}");
}

#[test]
fn a_limit_that_is_lowered_calls_those_who_want_more() {
    let mut table = Table::new(128 * MIB, 2);
    assert!(table.take(0, 56 * MIB, Need::Whole));
    assert!(!table.take(1, 80 * MIB, Need::Whole));
    table.budget.set_limit(8 * MIB);
    assert_eq!(request_bytes_max(8 * MIB), 4 * MIB);
    table.budget.ring();
    assert_eq!(table.rung(1), 1);
    table.budget.leave(&mut table.purses[1]);
    assert!(!table.take(1, 4 * MIB, Need::Whole), "more is held than there is");
    assert!(table.take(1, MIB, Need::Whole), "it has its own");
    table.give(0, 56 * MIB);
    assert!(table.take(0, 4 * MIB, Need::Whole));
}

#[test]
fn a_claimant_that_leaves_claims_nothing() {
    let mut table = Table::new(4 * MIB, 3);
    table.budget.share_bytes.store(0, Ordering::Relaxed);
    assert!(table.take(0, 2 * MIB, Need::Whole));
    // Connection 1 is first in the queue, and its client leaves before memory is free.
    assert!(!table.take(1, 2 * MIB, Need::Growth));
    assert_eq!(table.budget.lock().claimant, Some(table.purses[1].name));
    table.budget.leave(&mut table.purses[1]);
    table.give(0, 2 * MIB);
    assert!(table.take(2, 2 * MIB, Need::Growth), "no other claims anything");
}

#[test]
fn growing_writes_that_hold_more_than_there_is_now_give_up() {
    let mut table = Table::new(128 * MIB, 3);
    table.budget.share_bytes.store(0, Ordering::Relaxed);
    for who in 0..2 {
        assert!(table.take(who, 8 * MIB, Need::Growth));
    }
    table.budget.set_limit(16 * MIB);
    let bell: Arc<dyn Bell> = Arc::<BellCounter>::clone(&table.bells[0]);
    let grant = table.budget.take(&mut table.purses[0], MIB, Need::Growth, &bell);
    assert_eq!(grant, Grant::Never);
    table.budget.end_growth(&mut table.purses[0]);
    table.give(0, 8 * MIB);
    // The remaining growing write alone holds more than the part for growing writes.
    let grant = table.budget.take(&mut table.purses[1], MIB, Need::Growth, &bell);
    assert_eq!(grant, Grant::Never);
    table.budget.end_growth(&mut table.purses[1]);
    table.give(1, 8 * MIB);
    assert!(table.take(2, MIB, Need::Growth));
    assert_eq!((table.rung(0), table.rung(1)), (0, 0), "none waited");
}

#[test]
fn one_that_takes_its_replies_is_not_behind_all_that_do_not() {
    let mut table = Table::new(128 * MIB, 256);
    let good = 255;
    assert!(table.take(good, 8 * MIB, Need::Whole));
    Budget::note_moved(&mut table.purses[good], 8 * MIB);
    table.give(good, 8 * MIB);
    let mut sitting: Vec<usize> =
        (0..255).filter(|who| table.take(*who, 32 * MIB, Need::Whole)).collect();
    assert!(sitting.len() < 5, "the others are in line");
    assert!(!table.take(good, 8 * MIB, Need::Whole));
    let mut served = 0;
    while table.rung(good) == 0 {
        // The server cuts a client that holds memory; the first in the queue gets the memory.
        table.give(sitting.remove(0), 32 * MIB);
        let next = (0..255).find(|who| table.rung(*who) > 0 && table.purses[*who].is_waiting);
        if let Some(next) = next
            && table.rung(good) == 0
            && table.take(next, 32 * MIB, Need::Whole)
        {
            sitting.push(next);
            served += 1;
        }
    }
    assert!(served <= 1, "{served} came before it");
    assert!(table.take(good, 8 * MIB, Need::Whole));
}
