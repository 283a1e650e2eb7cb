//! One shard of a mirror, driven by hand: orders of events that a simulator meets too rarely.

use std::sync::Arc;

use braid_engine::array::{ArrayView, Gate, MemberId, MemberView};
use braid_engine::buffer::Buffer;
use braid_engine::effect::{MemberIo, MemberIoDone, MemberOperation};
use braid_engine::request::{Operation, Piece, RequestId};
use braid_engine::{CacheConfig, CacheMode, Instant, Shard, Tuning};
use braid_geometry::{Geometry, Level, LogicalSector, Shape};

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
        ..ArrayView::consistent(
            Geometry::new(&shape).expect("a plain shape"),
            slots.into_iter().map(|slot| slot.map(member)).collect(),
        )
    })
}

fn ask(shard: &mut Shard, id: u64, operation: Operation) {
    let piece = Piece {
        request: RequestId(id),
        operation,
        start: LogicalSector(0),
        sectors: 8,
        payload_offset_sectors: 0,
    };
    shard.handle_piece(Instant(id), piece);
}

fn ios(shard: &mut Shard) -> Vec<MemberIo> {
    std::iter::from_fn(|| shard.poll_member_io()).collect()
}

/// Guards against an old bug: waiting writes were woken by place, so the first of two that overlap
/// was written last.
#[test]
fn overlapping_writes_that_waited_for_the_gate_are_made_in_order() {
    let tuning = Tuning { mode: CacheMode::WriteThrough, ..Tuning::default() };
    let cache =
        CacheConfig { unit_sectors_max: 8, stripes_max: 1, cached_blocks_max: None, tuning };
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let mut shard = Shard::new(cache, view(1, Gate::Closed));
        // Reads that end in any order free their places in any order.
        (1..=3).for_each(|id| ask(&mut shard, id, Operation::Read));
        let reads = ios(&mut shard);
        for index in order {
            let done = MemberIoDone { id: reads[index].id, result: Ok(()) };
            shard.handle_member_io(Instant(10), done);
        }
        (4..=6).for_each(|id| ask(&mut shard, id, Operation::Write { durable: false }));
        assert_eq!(ios(&mut shard), [], "the gate is closed");
        shard.handle_view(Instant(20), view(2, Gate::Open));
        for id in 4..=6 {
            let writes = ios(&mut shard);
            assert_eq!(writes.len(), 2, "one write has the range, and goes to both copies");
            for io in writes {
                let MemberOperation::Write { buffer: Buffer::Payload { request, .. }, .. } =
                    io.operation
                else {
                    panic!("it writes a payload: {io:?}")
                };
                assert_eq!(request, RequestId(id), "first come, first served");
                let done = MemberIoDone { id: io.id, result: Ok(()) };
                shard.handle_member_io(Instant(30), done);
            }
        }
        assert!(shard.is_idle());
    }
}

/// A member that joins a running array takes writes, and is not read.
#[test]
fn a_member_that_comes_is_written_and_not_read() {
    let cache = CacheConfig {
        unit_sectors_max: 8,
        stripes_max: 1,
        cached_blocks_max: None,
        tuning: Tuning::default(),
    };
    let mut shard = Shard::new(cache, view_of(1, Gate::Open, [Some((0, u64::MAX)), None]));
    shard.handle_view(Instant(1), view_of(2, Gate::Open, [Some((0, u64::MAX)), Some((7, 0))]));
    ask(&mut shard, 2, Operation::Read);
    ask(&mut shard, 3, Operation::Read);
    ask(&mut shard, 4, Operation::Write { durable: false });
    let members = |is_write| {
        move |io: &MemberIo| (io.operation.is_write() == is_write).then_some(io.member.0)
    };
    let ios = ios(&mut shard);
    assert_eq!(ios.iter().filter_map(members(false)).collect::<Vec<_>>(), [0, 0]);
    assert_eq!(ios.iter().filter_map(members(true)).collect::<Vec<_>>(), [0, 7]);
}

#[test]
#[should_panic(expected = "nothing is read before it is recovered")]
fn a_member_that_comes_with_content_is_refused() {
    let cache = CacheConfig {
        unit_sectors_max: 8,
        stripes_max: 1,
        cached_blocks_max: None,
        tuning: Tuning::default(),
    };
    let mut shard = Shard::new(cache, view_of(1, Gate::Open, [Some((0, u64::MAX)), None]));
    shard.handle_view(Instant(1), view(2, Gate::Open));
}

/// Guards against an old bug: reads went to either copy, though one was marked write-mostly,
/// because its disk is slow or distant.
#[test]
fn a_write_mostly_member_is_read_only_where_no_other_copy_is() {
    let tuning = Tuning { mode: CacheMode::WriteThrough, ..Tuning::default() };
    let cache =
        CacheConfig { unit_sectors_max: 8, stripes_max: 1, cached_blocks_max: None, tuning };
    let marked = |epoch, slots| {
        let mut view = ArrayView::clone(&view_of(epoch, Gate::Open, slots));
        let marked = view.slots[0].as_mut().expect("it is there");
        marked.is_write_mostly = true;
        Arc::new(view)
    };
    let both = marked(1, [Some((0, u64::MAX)), Some((1, u64::MAX))]);
    let mut shard = Shard::new(cache, both);
    for id in 1..=4 {
        ask(&mut shard, id, Operation::Read);
    }
    let read: Vec<_> = ios(&mut shard).into_iter().map(|io| io.member).collect();
    assert_eq!(read, [MemberId(1); 4], "the other copy is read, however busy it is");
    let alone = marked(2, [Some((0, u64::MAX)), None]);
    let mut shard = Shard::new(cache, alone);
    ask(&mut shard, 1, Operation::Read);
    let read: Vec<_> = ios(&mut shard).into_iter().map(|io| io.member).collect();
    assert_eq!(read, [MemberId(0)], "no other is left");
}

/// A view let a write begin, also to the replacement that stepped in with that view. Guards against
/// an old bug: that write was taken for a write to the member that left. It was acknowledged before
/// the replacement had it.
#[test]
fn a_write_to_a_member_that_has_just_stepped_in_is_waited_for() {
    let tuning = Tuning { mode: CacheMode::WriteThrough, ..Tuning::default() };
    let cache =
        CacheConfig { unit_sectors_max: 8, stripes_max: 1, cached_blocks_max: None, tuning };
    let mut replaced = ArrayView::clone(&view(1, Gate::Closed));
    replaced.slots[1].as_mut().expect("it is there").replacement = Some(MemberId(7));
    let mut shard = Shard::new(cache, Arc::new(replaced));
    ask(&mut shard, 1, Operation::Write { durable: false });
    assert_eq!(ios(&mut shard), [], "the gate is closed");
    let stepped_in = view_of(2, Gate::Open, [Some((0, u64::MAX)), Some((7, u64::MAX))]);
    shard.handle_view(Instant(2), stepped_in);
    let (own, other): (Vec<_>, Vec<_>) =
        ios(&mut shard).into_iter().partition(|io| io.member == MemberId(0));
    let [own, other] = [own[0], other[0]];
    assert_eq!(other.member, MemberId(7));
    shard.handle_member_io(Instant(3), MemberIoDone { id: own.id, result: Ok(()) });
    assert!(shard.poll_reply().is_none(), "a copy has not taken it");
    shard.handle_member_io(Instant(4), MemberIoDone { id: other.id, result: Ok(()) });
    let reply = shard.poll_reply().expect("both have it");
    assert!(reply.result.is_ok() && !reply.keeps_payload && shard.is_idle());
}

/// Guards against an old bug: a disk that hung held up the write and its range. The disk's
/// successor sat out for the age of the disk's reads.
#[test]
fn a_mirror_does_not_wait_for_a_member_that_has_left() {
    let tuning = Tuning { mode: CacheMode::WriteThrough, ..Tuning::default() };
    let cache =
        CacheConfig { unit_sectors_max: 8, stripes_max: 1, cached_blocks_max: None, tuning };
    let mut shard = Shard::new(cache, view(1, Gate::Open));
    ask(&mut shard, 1, Operation::Write { durable: false });
    let (own, hung): (Vec<_>, Vec<_>) =
        ios(&mut shard).into_iter().partition(|io| io.member == MemberId(0));
    shard.handle_member_io(Instant(2), MemberIoDone { id: own[0].id, result: Ok(()) });
    assert!(shard.poll_reply().is_none());
    shard.handle_view(Instant(3), view_of(2, Gate::Open, [Some((0, u64::MAX)), None]));
    let reply = shard.poll_reply().expect("the array goes on without it");
    assert!(reply.result.is_ok() && reply.keeps_payload, "its payload is still written");
    ask(&mut shard, 2, Operation::Write { durable: false });
    let second = ios(&mut shard);
    assert_eq!(second.iter().map(|io| io.member.0).collect::<Vec<_>>(), [0], "the range is free");
    shard.handle_member_io(Instant(4), MemberIoDone { id: second[0].id, result: Ok(()) });
    assert!(shard.poll_reply().is_some() && shard.poll_release().is_none());
    shard.handle_member_io(Instant(5), MemberIoDone { id: hung[0].id, result: Ok(()) });
    assert_eq!(shard.poll_release(), Some(RequestId(1)));
    assert!(shard.is_idle());
}
