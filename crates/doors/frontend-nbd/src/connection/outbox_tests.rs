//! Tests of the outbox alone: room, answers, batches, and open requests after a connection breaks.

#![allow(clippy::cast_possible_truncation)] // small numbers of our own

use super::*;
use crate::budget::tests::BellCounter;
use braid_ring::client::RequestError;

struct World {
    outbox: Outbox,
    counters: Counters,
    budget: Budget,
}

fn echo(cookie: u64) -> Echo {
    Echo { cookie, offset: 0 }
}

fn outbox(budget: &Budget) -> Outbox {
    Outbox::new(budget.purse(), Arc::<BellCounter>::default())
}

impl World {
    fn new(limit_bytes: usize) -> Self {
        let budget = Budget::new(limit_bytes, 4);
        Self { outbox: outbox(&budget), counters: Counters::default(), budget }
    }

    fn read(&mut self, cookie: u64, length: u32) -> Option<u32> {
        match self.outbox.begin(echo(cookie), Kind::Read { length }, &self.budget) {
            BeginResult::Slot(slot, _) => Some(slot),
            BeginResult::Wait | BeginResult::TooLarge => None,
        }
    }

    fn finish(&mut self, slot: u32, outcome: Outcome) {
        let ledger = Ledger { counters: &self.counters, budget: &self.budget };
        self.outbox.finish(slot, outcome, &ledger);
    }

    fn fill(&mut self, slot: u32, byte: u8, length: usize) {
        let payload = Some(Payload::from(vec![byte; length]));
        self.finish(slot, Outcome { result: Ok(()), payload });
    }

    fn send(&mut self) -> Vec<u8> {
        let batch = self.outbox.batch().expect("replies wait");
        let bytes = batch.parts().flatten().copied().collect();
        self.outbox.sent(batch, true, &self.budget);
        bytes
    }
}

#[test]
fn room_is_by_number_by_bytes_and_by_the_common_budget() {
    let mut world = World::new(1 << 30);
    let slots: Vec<u32> = (0..IN_FLIGHT_REQUESTS_MAX as u64)
        .map(|cookie| world.read(cookie, 1).expect("there is room"))
        .collect();
    assert_eq!(world.read(1000, 1), None, "one more than the limit");
    world.fill(slots[3], 1, 1);
    assert_eq!(world.read(1000, 1), None, "a reply that is not out is in flight");
    world.send();
    assert!(world.read(1000, 1).is_some());

    let mut world = World::new(1 << 30);
    let half = u32::try_from(IN_FLIGHT_BYTES_MAX / 2).expect("64 MiB");
    assert!(world.read(0, half).is_some() && world.read(1, half).is_some());
    assert_eq!(world.read(2, 1), None, "too many bytes");

    let mut world = World::new(1 << 20);
    let begun = world.outbox.begin(echo(0), Kind::Read { length: 600 << 10 }, &world.budget);
    assert_eq!(begun, BeginResult::TooLarge, "half of the budget is the largest");
    let first = world.read(0, 512 << 10).expect("all that a request may have");
    assert_eq!(world.read(1, 512 << 10), None, "the budget is spent");
    world.outbox.stop_waiting(&world.budget);
    let mut other = outbox(&world.budget);
    let theirs = other.begin(echo(0), Kind::Read { length: 64 << 10 }, &world.budget);
    let BeginResult::Slot(theirs, _) = theirs else { panic!("it has its own: {theirs:?}") };
    assert!(
        matches!(world.outbox.begin(echo(1), Kind::Other, &world.budget), BeginResult::Slot(..)),
        "no cost"
    );
    assert_eq!(world.budget.held_bytes(), (512 + 64) << 10);
    world.fill(first, 1, 512 << 10);
    world.send();
    other.abandon(theirs, &world.budget);
    assert_eq!(world.budget.held_bytes(), 0);
}

#[test]
fn a_long_reply_is_lent_a_stride_at_a_time() {
    let mut world = World::new(1 << 30);
    let length = 2 * STRIDE_BYTES + 5;
    let lengths = [10, length, 7];
    for (cookie, length) in (0..).zip(lengths) {
        let slot = world.read(cookie, length as u32).expect("room");
        world.fill(slot, cookie as u8 + 1, length);
    }
    let mut sent = Vec::new();
    while let Some(mut batch) = world.outbox.batch() {
        let by_parts: Vec<u8> = batch.parts().flatten().copied().collect();
        let mut segments = Segments::new();
        loop {
            batch.lend(&mut segments);
            let bytes = segments.iter().map(Segment::length_bytes).sum();
            assert!(bytes > 0 && bytes <= STRIDE_BYTES);
            batch.take_back(&mut segments);
            let parts = batch.parts().flatten().copied();
            let before = sent.len();
            sent.extend(parts);
            assert_eq!(sent.len() - before, bytes, "both ways give the same");
            if batch.advance(bytes) {
                break;
            }
        }
        assert!(sent.ends_with(&by_parts) || by_parts.len() <= STRIDE_BYTES);
        world.outbox.sent(batch, true, &world.budget);
    }
    let mut rest = &sent[..];
    for (byte, length) in (1_u8..).zip(lengths) {
        let (reply, behind) = rest.split_at(16 + length);
        assert!(reply[16..].iter().all(|found| *found == byte) && reply[15] == byte - 1);
        rest = behind;
    }
    assert!(rest.is_empty());
    assert_eq!(world.budget.held_bytes(), 0);
}

#[test]
fn replies_go_out_in_the_order_in_which_they_were_made() {
    let mut world = World::new(1 << 30);
    let slots: Vec<u32> = (0..3).map(|cookie| world.read(cookie, 4).expect("room")).collect();
    world.fill(slots[2], 2, 4);
    world.finish(slots[0], Outcome { result: Err(RequestError::NoSpace), payload: None });
    world.fill(slots[1], 1, 4);
    let bytes = world.send();
    let expected = [
        &[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2][..],
        &[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1],
    ];
    assert_eq!(bytes, expected.concat());
    assert_eq!(world.budget.held_bytes(), 0);
    assert!(world.outbox.batch().is_none() && world.outbox.is_quiet());
}

#[test]
fn a_batch_that_is_sent_in_pieces_loses_no_byte() {
    let mut world = World::new(1 << 30);
    for cookie in 0..3 {
        let slot = world.read(cookie, 5).expect("room");
        world.fill(slot, cookie as u8 + 1, 5);
    }
    let mut batch = world.outbox.batch().expect("replies wait");
    assert!(world.outbox.batch().is_none(), "one batch is out at a time");
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
    let mut world = World::new(1 << 30);
    let [early, late, dropped] =
        [0, 1, 2].map(|cookie| world.read(cookie, 8).expect("there is room"));
    world.fill(early, 1, 8);
    world.outbox.close(&world.budget);
    assert_eq!((world.outbox.in_flight(), world.budget.held_bytes()), (2, 2 * 4096));
    world.fill(late, 1, 8);
    world.finish(dropped, Outcome { result: Err(RequestError::Dropped), payload: None });
    assert_eq!((world.outbox.in_flight(), world.budget.held_bytes()), (0, 0));
    assert!(world.outbox.batch().is_none());
    let counts = world.counters.read(0, &world.budget);
    assert_eq!((counts.errors, counts.contract_breaches), ([0; 8], 0));
}

#[test]
fn memory_for_replies_is_used_again() {
    let mut world = World::new(1 << 30);
    let slot = world.read(0, 1).expect("room");
    world.fill(slot, 1, 1);
    world.send();
    let first = world.outbox.spare_heads[0].as_ptr();
    for cookie in 1..10 {
        assert_eq!(world.read(cookie, 1), Some(slot), "the slot as well");
        world.fill(slot, 1, 1);
        world.send();
    }
    assert_eq!(world.outbox.spare_heads.len(), 1);
    assert_eq!(world.outbox.spare_heads[0].as_ptr(), first);
}

#[test]
#[should_panic(expected = "a request is answered once")]
fn a_second_answer_is_refused() {
    let mut world = World::new(1 << 30);
    let slot = world.read(0, 1).expect("room");
    world.fill(slot, 1, 1);
    world.fill(slot, 1, 1);
}
