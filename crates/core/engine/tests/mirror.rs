//! One shard of a mirror, driven by hand: orders of events that the simulator meets too rarely.

use std::sync::Arc;

use braid_engine::array::{ArrayView, Gate, MemberId, MemberView};
use braid_engine::buffer::Buffer;
use braid_engine::effect::{MemberIo, MemberOperation};
use braid_engine::request::{Operation, RequestId};
use braid_engine::{CacheConfig, CacheMode, Tuning};
use braid_geometry::{Geometry, Level, Shape};

use super::bed::{OneShard, WRITE};

fn view(epoch: u64, gate: Gate) -> Arc<ArrayView> {
    view_of(epoch, gate, [Some((0, u64::MAX)), Some((1, u64::MAX))])
}

/// A view with a member in each slot: its number, and its recovered sectors.
fn view_of(epoch: u64, gate: Gate, slots: [Option<(u16, u64)>; 2]) -> Arc<ArrayView> {
    let shape = Shape::uniform(Level::Raid1, 0, 0, 2, 1024);
    let member = |(id, recovered_sectors)| MemberView::new(MemberId(id), recovered_sectors);
    Arc::new(ArrayView {
        epoch,
        gate,
        slots: slots.into_iter().map(|slot| slot.map(member)).collect(),
        ..ArrayView::consistent(Geometry::new(&shape).expect("a plain shape"))
    })
}

fn mirror_of(view: Arc<ArrayView>) -> OneShard {
    let tuning = Tuning { mode: CacheMode::WriteThrough, ..Tuning::default() };
    OneShard::new(CacheConfig::in_memory(8, tuning), view)
}

fn ask(mirror: &mut OneShard, operation: Operation) -> RequestId {
    mirror.ask(operation, 0, 8)
}

/// Guards against an old bug: waiting writes were woken in the order of their places in memory, so
/// the first of two overlapping writes was written last.
#[test]
fn overlapping_writes_that_waited_for_the_gate_are_made_in_order() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let mut mirror = mirror_of(view(1, Gate::Closed));
        // Reads that end in any order free their places in any order.
        (0..3).for_each(|_| _ = ask(&mut mirror, Operation::Read));
        let reads = mirror.take_ios();
        for index in order {
            mirror.end(&reads[index], Ok(()));
        }
        let waiting = [(); 3].map(|()| ask(&mut mirror, WRITE));
        assert_eq!(mirror.take_ios(), [], "the gate is closed");
        mirror.turn(view(2, Gate::Open));
        for waiting in waiting {
            let writes = mirror.take_ios();
            assert_eq!(writes.len(), 2, "one write has the range, and goes to both copies");
            for io in writes {
                let MemberOperation::Write { buffer: Buffer::Payload { request, .. }, .. } =
                    io.operation
                else {
                    panic!("it writes a payload: {io:?}")
                };
                assert_eq!(request, waiting, "first come, first served");
                mirror.end(&io, Ok(()));
            }
        }
        assert!(mirror.shard.is_idle());
    }
}

/// A member that joins a running array takes writes, and is not read.
#[test]
fn a_member_that_comes_is_written_and_not_read() {
    let mut mirror = mirror_of(view_of(1, Gate::Open, [Some((0, u64::MAX)), None]));
    mirror.turn(view_of(2, Gate::Open, [Some((0, u64::MAX)), Some((7, 0))]));
    ask(&mut mirror, Operation::Read);
    ask(&mut mirror, Operation::Read);
    ask(&mut mirror, WRITE);
    let members = |is_write| {
        move |io: &MemberIo| (io.operation.is_write() == is_write).then_some(io.member.0)
    };
    let ios = mirror.take_ios();
    assert_eq!(ios.iter().filter_map(members(false)).collect::<Vec<_>>(), [0, 0]);
    assert_eq!(ios.iter().filter_map(members(true)).collect::<Vec<_>>(), [0, 7]);
}

#[test]
#[should_panic(expected = "nothing is read before it is recovered")]
fn a_member_that_comes_with_content_is_refused() {
    let mut mirror = mirror_of(view_of(1, Gate::Open, [Some((0, u64::MAX)), None]));
    mirror.turn(view(2, Gate::Open));
}

/// Guards against an old bug: reads went to either copy, though one was marked write-mostly,
/// because its disk is slow or distant.
#[test]
fn a_write_mostly_member_is_read_only_where_no_other_copy_is() {
    let marked = |epoch, slots| {
        let mut view = ArrayView::clone(&view_of(epoch, Gate::Open, slots));
        let marked = view.slots[0].as_mut().expect("it is there");
        marked.is_write_mostly = true;
        Arc::new(view)
    };
    let both = marked(1, [Some((0, u64::MAX)), Some((1, u64::MAX))]);
    let mut mirror = mirror_of(both);
    (0..4).for_each(|_| _ = ask(&mut mirror, Operation::Read));
    let read: Vec<_> = mirror.take_ios().into_iter().map(|io| io.member).collect();
    assert_eq!(read, [MemberId(1); 4], "the other copy is read, however busy it is");
    let alone = marked(2, [Some((0, u64::MAX)), None]);
    let mut mirror = mirror_of(alone);
    ask(&mut mirror, Operation::Read);
    let read: Vec<_> = mirror.take_ios().into_iter().map(|io| io.member).collect();
    assert_eq!(read, [MemberId(0)], "no other is left");
}

/// A view let a write begin, also to the replacement that took the slot with that view. Guards
/// against an old bug: that write was taken for a write to the member that left. It was
/// acknowledged before the replacement had it.
#[test]
fn a_write_to_a_member_that_has_just_stepped_in_is_waited_for() {
    let mut replaced = ArrayView::clone(&view(1, Gate::Closed));
    replaced.slots[1].as_mut().expect("it is there").replacement = Some(MemberId(7));
    let mut mirror = mirror_of(Arc::new(replaced));
    let write = ask(&mut mirror, WRITE);
    assert_eq!(mirror.take_ios(), [], "the gate is closed");
    let stepped_in = view_of(2, Gate::Open, [Some((0, u64::MAX)), Some((7, u64::MAX))]);
    mirror.turn(stepped_in);
    let (own, other): (Vec<_>, Vec<_>) =
        mirror.take_ios().into_iter().partition(|io| io.member == MemberId(0));
    let [own, other] = [own[0], other[0]];
    assert_eq!(other.member, MemberId(7));
    mirror.end(&own, Ok(()));
    assert!(!mirror.answered(write), "a copy has not taken it");
    mirror.end(&other, Ok(()));
    let reply = mirror.reply(write).expect("both have it");
    assert!(reply.result.is_ok() && !reply.keeps_payload && mirror.shard.is_idle());
}

/// Guards against an old bug: a disk that hung held up the write and its range. The disk's
/// successor sat out for the age of the disk's reads.
#[test]
fn a_mirror_does_not_wait_for_a_member_that_has_left() {
    let mut mirror = mirror_of(view(1, Gate::Open));
    let first = ask(&mut mirror, WRITE);
    let (own, hung): (Vec<_>, Vec<_>) =
        mirror.take_ios().into_iter().partition(|io| io.member == MemberId(0));
    mirror.end(&own[0], Ok(()));
    assert!(!mirror.answered(first));
    mirror.turn(view_of(2, Gate::Open, [Some((0, u64::MAX)), None]));
    let reply = mirror.reply(first).expect("the array goes on without it");
    assert!(reply.result.is_ok() && reply.keeps_payload, "its payload is still written");
    let second = ask(&mut mirror, WRITE);
    let ios = mirror.take_ios();
    assert_eq!(ios.iter().map(|io| io.member.0).collect::<Vec<_>>(), [0], "the range is free");
    mirror.end(&ios[0], Ok(()));
    assert!(mirror.answered(second) && mirror.releases.is_empty());
    mirror.end(&hung[0], Ok(()));
    assert_eq!(mirror.releases, [first]);
    assert!(mirror.shard.is_idle());
}
