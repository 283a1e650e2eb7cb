//! Loom's models: small, under every schedule up to a number of preemptions, with a check of every
//! access.
//!
//! Loom follows happens-before, not only the order in which accesses ran. If two threads touch a
//! sector without a hand-over between them, the model fails even if the accesses never met.

use std::sync::Arc as Shared;
use std::sync::atomic::{AtomicUsize, Ordering};

use braid_concurrency::models::explore;
use braid_dispatch::Combiner;
use braid_engine::buffer::{BlockIndex, Buffer};
use braid_engine::computation::Span;
use braid_engine::request::{
    AdmissionMode, Fault, Operation, Piece, Regions, Request, RequestId, Split,
};
use braid_geometry::{Geometry, Level, LogicalSector, Shape};
use braid_ring::Payload;
use loom::sync::Arc;
use loom::thread;

use crate::arena::ShardMemory;
use crate::requests::{self, Requests};
use crate::sync::flaw::{Flaw, choose};
use crate::write_admission::WriteAdmission;

/// The number of writes under way, which all writes of a model share.
struct Gate {
    admission: WriteAdmission<AdmissionMode>,
    inside: AtomicUsize,
    passed: AtomicUsize,
}

impl Gate {
    fn pass(&self, mode: AdmissionMode) {
        let weight = if mode == AdmissionMode::Exclusive { ALONE } else { 1 };
        let others = self.inside.fetch_add(weight, Ordering::Relaxed);
        let may = if mode == AdmissionMode::Exclusive { others == 0 } else { others < ALONE };
        assert!(may, "alone means alone");
        thread::yield_now();
        self.inside.fetch_sub(weight, Ordering::Relaxed);
        self.passed.fetch_add(1, Ordering::Relaxed);
        self.admission.leave(mode, |next| self.pass(next));
    }
}

/// Two aligned writes and one unaligned write ask for admission.
fn admit_writes() {
    explore("write admission: alone is alone", 3, || {
        let (inside, passed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let gate = Shared::new(Gate { admission: WriteAdmission::default(), inside, passed });
        let pass = |mode: AdmissionMode| {
            let gate = Shared::clone(&gate);
            move || gate.admission.enter(mode, mode).into_iter().for_each(|mode| gate.pass(mode))
        };
        let others = [
            thread::spawn(pass(AdmissionMode::Shared)),
            thread::spawn(pass(AdmissionMode::Exclusive)),
        ];
        pass(AdmissionMode::Shared)();
        others.into_iter().for_each(|other| other.join().expect("it does not panic"));
        assert_eq!(gate.passed.load(Ordering::Relaxed), 3, "every write has begun");
    });
}

/// The count that an unaligned write adds: more than all writes that may run together.
const ALONE: usize = 100;

#[test]
fn an_unaligned_write_is_alone_under_every_schedule() {
    admit_writes();
}

#[test]
#[should_panic(expected = "alone means alone")]
fn an_admission_where_no_write_waits_is_caught() {
    choose(Flaw::EnterAtOnce);
    admit_writes();
}

/// The pieces that may go out now, and the request's answer if no piece is in flight.
fn cut(request: &requests::Request) -> (Vec<Piece>, Option<Result<(), Fault>>) {
    let mut pieces = Vec::new();
    let answer = request.cut(|_, piece| pieces.push(piece));
    (pieces, answer)
}

/// Ends a request, and wakes the thread that submitted it.
fn finish(
    requests: &Requests,
    id: RequestId,
    request: Arc<requests::Request>,
    answer: Result<(), Fault>,
) {
    let (completion, payload) = requests.finish(id, request, answer);
    completion(answer, payload);
}

/// A write in three pieces, of which two are acknowledged early. Two threads report answers and
/// releases.
fn answer_early() {
    explore("requests: an answer and two releases", 4, || {
        let requests = Arc::new(Requests::default());
        let id = requests.name();
        let answers = Shared::new(AtomicUsize::new(0));
        let counted = Shared::clone(&answers);
        let completion = Box::new(move |_: Result<(), _>, _: Option<Payload>| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let payload = Payload::from(vec![0; 3 * 512]);
        let request = requests.insert(id, Some(three_pieces(id)), Some(payload), completion);
        let (pieces, _) = cut(&request);
        drop(request);
        assert_eq!(pieces.len(), 2);
        let theirs = Arc::clone(&requests);
        let other = thread::spawn(move || (0..2).for_each(|_| theirs.release_payload(id)));
        for _ in 0..2 {
            let request = requests.get(id);
            let answer = request.reply(Ok(()), (true, false));
            assert!(answer.is_none(), "the third piece is still to come");
        }
        let request = requests.get(id);
        let (last, _) = cut(&request);
        assert_eq!(last.len(), 1);
        let answer = request.reply(Ok(()), (false, false)).expect("the last one");
        finish(&requests, id, request, answer);
        other.join().expect("it does not panic");
        assert_eq!(answers.load(Ordering::Relaxed), 1, "it is answered once");
        assert_eq!(requests.count(), 0, "nothing stays");
    });
}

#[test]
fn an_early_answer_and_its_releases_end_a_request_under_every_schedule() {
    answer_early();
}

#[test]
#[should_panic(expected = "nothing stays")]
fn a_payload_that_is_never_released_is_caught() {
    choose(Flaw::PayloadStays);
    answer_early();
}

/// A write that is acknowledged early, and that another thread releases. A second request may get
/// its memory.
fn use_a_request_again() {
    explore("requests: one's memory for the next", 3, || {
        let requests = Arc::new(Requests::default());
        let answered = Shared::new(AtomicUsize::new(0));
        let ask = |requests: &Requests, id: RequestId, byte: u8| {
            let counted = Shared::clone(&answered);
            let completion = Box::new(move |_: Result<(), _>, bytes: Option<Payload>| {
                assert!(bytes.is_none_or(|bytes| bytes[0] == byte), "each thread's own payload");
                counted.fetch_add(1, Ordering::Relaxed);
            });
            let payload = Payload::from(vec![byte; 512]);
            let request = requests.insert(id, Some(one_piece(id)), Some(payload), completion);
            assert_eq!(cut(&request).0.len(), 1);
        };
        let end = |requests: &Requests, id: RequestId, keeps_payload: bool| {
            let request = requests.get(id);
            let answer = request.reply(Ok(()), (keeps_payload, false)).expect("one piece");
            finish(requests, id, request, answer);
        };
        // Two names that belong to the same table, since each table keeps its own memory.
        let first = requests.name();
        let second = (0..16).map(|_| requests.name()).last().expect("sixteen");
        ask(&requests, first, 1);
        let theirs = Arc::clone(&requests);
        let other = thread::spawn(move || theirs.release_payload(first));
        end(&requests, first, true);
        ask(&requests, second, 2);
        end(&requests, second, false);
        other.join().expect("it does not panic");
        assert_eq!(answered.load(Ordering::Relaxed), 2, "each is answered once");
        assert_eq!(requests.count(), 0, "nothing stays");
    });
}

#[test]
fn the_memory_of_a_request_is_used_again_under_every_schedule() {
    use_a_request_again();
}

#[test]
#[should_panic(expected = "only the table has a spare request")]
fn memory_that_is_kept_while_it_is_used_is_caught() {
    choose(Flaw::KeptInUse);
    use_a_request_again();
}

/// A request of one sector, which is one piece.
fn one_piece(id: RequestId) -> Split {
    pieces(id, (0, 1))
}

/// A request of three sectors, each in a region of its own, and so in three pieces.
fn three_pieces(id: RequestId) -> Split {
    pieces(id, (2047, 2050))
}

fn pieces(id: RequestId, (start, sectors): (u64, u64)) -> Split {
    let shape = Shape::uniform(Level::Raid1, 0, 0, 2, 8192);
    let geometry = Geometry::new(&shape).expect("a mirror");
    let (operation, start) = (Operation::Read, LogicalSector(start));
    Regions::new(&geometry, 2).split(&Request { id, operation, start, sectors })
}

fn payload(request: RequestId, sector: u32) -> Span {
    Span { buffer: Buffer::Payload { request, offset_sectors: sector }, length_bytes: 512 }
}

/// Fills one piece of a payload and answers it. Cuts further pieces and answers them, as the core
/// does.
fn answer_pieces(requests: &Arc<Requests>, memory: &ShardMemory, id: RequestId, first: u32) {
    let mut next = Some(first);
    while let Some(sector) = next {
        memory.write(payload(id, sector), |bytes| {
            thread::yield_now();
            bytes.fill(u8::try_from(sector).expect("three sectors") + 1);
        });
        let request = requests.get(id);
        let answer = request.reply(Ok(()), (false, false));
        let (pieces, answer) = answer.map_or_else(|| cut(&request), |one| (Vec::new(), Some(one)));
        if let Some(answer) = answer {
            finish(requests, id, request, answer);
        }
        let piece = pieces.first().map(|piece| piece.payload_offset_sectors);
        // The first piece is one sector, the second a whole region, the third the remaining
        // sectors.
        next = piece.map(|offset| offset.div_ceil(2048).min(2));
    }
}

/// A read of three pieces, two at a time, on two threads.
fn read_in_pieces() {
    explore("requests: a payload in three pieces", 3, || {
        let requests = Arc::new(Requests::default());
        let memory = ShardMemory::new(1, 1, Arc::clone(&requests)).expect("memory");
        let id = requests.name();
        let answers = Shared::new(AtomicUsize::new(0));
        let counted = Shared::clone(&answers);
        let completion = Box::new(move |result: Result<(), _>, bytes: Option<Payload>| {
            assert_eq!(result, Ok(()));
            let bytes = bytes.expect("the payload comes back");
            let firsts: Vec<u8> = bytes.chunks(512).map(|sector| sector[0]).collect();
            assert_eq!(firsts, [1, 2, 3], "it comes back when all of it is filled");
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let bytes = Payload::from(vec![0; 3 * 512]);
        let request = requests.insert(id, Some(three_pieces(id)), Some(bytes), completion);
        let (pieces, answer) = cut(&request);
        drop(request);
        assert!(answer.is_none() && pieces.len() == 2);
        let (theirs, lent) = (Arc::clone(&requests), memory.clone());
        let other = thread::spawn(move || answer_pieces(&theirs, &lent, id, 1));
        answer_pieces(&requests, &memory, id, 0);
        other.join().expect("it does not panic");
        assert_eq!(answers.load(Ordering::Relaxed), 1, "one answer");
    });
}

#[test]
fn a_request_is_answered_once_and_gives_its_payload_back() {
    read_in_pieces();
}

#[test]
#[should_panic]
fn a_request_that_is_answered_twice_is_caught() {
    choose(Flaw::CutTwice);
    read_in_pieces();
}

fn block(index: u32) -> Span {
    let buffer = Buffer::Block { block: BlockIndex(index), offset_sectors: 0 };
    Span { buffer, length_bytes: 512 }
}

/// Two threads fill a block each and report it. The thread that owns the machine then reads both
/// blocks.
fn fill_and_hand_over(says_so_first: bool) {
    explore("arena: blocks go with their events", 4, move || {
        let requests = Arc::new(Requests::default());
        let memory = ShardMemory::new(2, 1, requests).expect("memory");
        let combiner = Arc::new(Combiner::new(Vec::new()));
        let sum = Shared::new(AtomicUsize::new(0));
        let work = move |combiner: &Combiner<Vec<u32>, u32>, memory: &ShardMemory, index| {
            if says_so_first {
                combiner.push(index);
            }
            memory.write(block(index), |bytes| bytes.fill(1));
            if !says_so_first {
                combiner.push(index);
            }
            combiner.combine(
                |machine, events| {
                    machine.append(events);
                    machine.len() == 2
                },
                |is_whole| {
                    if is_whole {
                        let one = memory.read(block(0), |bytes| usize::from(bytes[0]));
                        let other = memory.read(block(1), |bytes| usize::from(bytes[511]));
                        sum.fetch_add(one + other, Ordering::Relaxed);
                    }
                },
            );
            sum.load(Ordering::Relaxed)
        };
        let (theirs, lent, again) = (Arc::clone(&combiner), memory.clone(), work.clone());
        let other = thread::spawn(move || again(&theirs, &lent, 1));
        let ours = work(&combiner, &memory, 0);
        let theirs = other.join().expect("it does not panic");
        assert_eq!(ours.max(theirs), 2, "both blocks were read as they were filled, once");
    });
}

#[test]
fn a_block_belongs_to_whom_its_event_went() {
    fill_and_hand_over(false);
}

#[test]
#[should_panic]
fn a_block_that_is_used_before_its_event_is_caught() {
    fill_and_hand_over(true);
}
