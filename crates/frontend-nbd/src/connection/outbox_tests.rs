//! The outbox by hand: room, answers, batches, and what is left when a connection breaks.

#![allow(clippy::cast_possible_truncation)] // small numbers of our own

use super::*;
use crate::export::IoError;

struct Desk {
    outbox: Outbox,
    counters: Counters,
    budget: Budget,
}

impl Desk {
    fn new(limit_bytes: usize) -> Self {
        let budget = Budget::new(limit_bytes);
        Self { outbox: Outbox::new(), counters: Counters::default(), budget }
    }

    fn read(&mut self, cookie: u64, length: u32) -> Option<u32> {
        self.outbox.begin(cookie, Kind::Read { offset: 0, length }, &self.budget)
    }

    fn finish(&mut self, slot: u32, outcome: Option<Outcome>) {
        let ledger = Ledger { counters: &self.counters, budget: &self.budget };
        self.outbox.finish(slot, outcome, &ledger);
    }

    fn fill(&mut self, slot: u32, byte: u8, length: usize) {
        let payload = Some(Payload::from(vec![byte; length]));
        self.finish(slot, Some(Outcome { status: Ok(()), payload }));
    }

    fn send(&mut self) -> Vec<u8> {
        let batch = self.outbox.batch().expect("replies wait");
        let bytes = batch.parts().flatten().copied().collect();
        self.outbox.sent(batch, &self.budget);
        bytes
    }
}

#[test]
fn room_is_by_number_by_bytes_and_by_the_common_budget() {
    let mut desk = Desk::new(1 << 30);
    let slots: Vec<u32> = (0..IN_FLIGHT_REQUESTS_MAX as u64)
        .map(|cookie| desk.read(cookie, 1).expect("there is room"))
        .collect();
    assert_eq!(desk.read(1000, 1), None, "one more than the limit");
    desk.fill(slots[3], 1, 1);
    assert_eq!(desk.read(1000, 1), None, "a reply that is not out is in flight");
    desk.send();
    assert!(desk.read(1000, 1).is_some());

    let mut desk = Desk::new(1 << 30);
    assert!(desk.read(0, 1).is_some());
    assert_eq!(desk.read(1, IN_FLIGHT_BYTES_MAX as u32), None, "too many bytes");
    assert!(desk.read(1, IN_FLIGHT_BYTES_MAX as u32 - 1).is_some());

    let mut desk = Desk::new(100);
    let mut other = Outbox::new();
    let first = desk.read(0, 300).expect("one goes on whatever the budget");
    assert_eq!(desk.read(1, 1), None, "the budget is spent");
    assert!(desk.outbox.begin(1, Kind::Other, &desk.budget).is_some(), "it costs nothing");
    let theirs = other.begin(0, Kind::Write { length: 50 }, &desk.budget);
    assert!(theirs.is_some(), "another connection has its one as well");
    assert_eq!(desk.budget.held_bytes(), 350);
    desk.fill(first, 1, 300);
    desk.send();
    other.abandon(theirs.expect("it began"), &desk.budget);
    assert_eq!(desk.budget.held_bytes(), 0);
}

#[test]
fn replies_go_out_in_the_order_in_which_they_were_made() {
    let mut desk = Desk::new(1 << 30);
    let slots: Vec<u32> = (0..3).map(|cookie| desk.read(cookie, 4).expect("room")).collect();
    desk.fill(slots[2], 2, 4);
    desk.finish(slots[0], Some(Outcome { status: Err(IoError::NoSpace), payload: None }));
    desk.fill(slots[1], 1, 4);
    let bytes = desk.send();
    let expected = [
        &[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2][..],
        &[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1],
    ];
    assert_eq!(bytes, expected.concat());
    assert_eq!(desk.budget.held_bytes(), 0);
    assert!(desk.outbox.batch().is_none() && desk.outbox.is_quiet());
}

#[test]
fn a_batch_that_is_sent_in_pieces_loses_no_byte() {
    let mut desk = Desk::new(1 << 30);
    for cookie in 0..3 {
        let slot = desk.read(cookie, 5).expect("room");
        desk.fill(slot, cookie as u8 + 1, 5);
    }
    let mut batch = desk.outbox.batch().expect("replies wait");
    assert!(desk.outbox.batch().is_none(), "one batch is out at a time");
    let whole: Vec<u8> = batch.parts().flatten().copied().collect();
    for sent in 0..whole.len() {
        let rest: Vec<u8> = batch.parts().flatten().copied().collect();
        assert_eq!(rest, whole[sent..]);
        assert!(batch.parts().all(|part| !part.is_empty()));
        assert_eq!(batch.advance(1), sent + 1 == whole.len());
    }
}

#[test]
fn what_comes_after_the_end_is_counted_and_thrown_away() {
    let mut desk = Desk::new(1 << 30);
    let [early, late, dropped] =
        [0, 1, 2].map(|cookie| desk.read(cookie, 8).expect("there is room"));
    desk.fill(early, 1, 8);
    desk.outbox.close(&desk.budget);
    assert_eq!((desk.outbox.in_flight(), desk.budget.held_bytes()), (2, 16));
    desk.fill(late, 1, 8);
    desk.finish(dropped, None);
    assert_eq!((desk.outbox.in_flight(), desk.budget.held_bytes()), (0, 0));
    assert!(desk.outbox.batch().is_none());
    let counts = desk.counters.read(0, 0);
    assert_eq!((counts.errors, counts.contract_breaches), ([0; 8], 0));
}

#[test]
fn memory_for_replies_is_used_again() {
    let mut desk = Desk::new(1 << 30);
    let slot = desk.read(0, 1).expect("room");
    desk.fill(slot, 1, 1);
    desk.send();
    let first = desk.outbox.spare_heads[0].as_ptr();
    for cookie in 1..10 {
        assert_eq!(desk.read(cookie, 1), Some(slot), "the slot as well");
        desk.fill(slot, 1, 1);
        desk.send();
    }
    assert_eq!(desk.outbox.spare_heads.len(), 1);
    assert_eq!(desk.outbox.spare_heads[0].as_ptr(), first);
}

#[test]
#[should_panic(expected = "a request is answered once")]
fn a_second_answer_is_refused() {
    let mut desk = Desk::new(1 << 30);
    let slot = desk.read(0, 1).expect("room");
    desk.fill(slot, 1, 1);
    desk.fill(slot, 1, 1);
}
