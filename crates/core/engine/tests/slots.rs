//! A view with more slots than the one before, for a family without state for each slot.

use std::sync::Arc;

use braid_engine::array::{ArrayView, MemberId, MemberView};
use braid_engine::effect::{MemberIo, MemberIoDone, Report};
use braid_engine::request::{Operation, Piece, RequestId};
use braid_engine::{CacheConfig, CacheMode, Instant, Shard, Tuning};
use braid_geometry::{Geometry, Level, LogicalSector, Shape};

const MEMBER_SECTORS: u64 = 1024;

/// A view of a linear array of `slots` members.
fn view(epoch: u64, slots: u16) -> Arc<ArrayView> {
    let geometry = Geometry::new(&Shape::uniform(Level::Linear, 0, 0, slots, MEMBER_SECTORS));
    // The new members are still to be filled.
    let recovered = |slot| if slot < 2 { u64::MAX } else { 0 };
    Arc::new(ArrayView {
        epoch,
        ..ArrayView::consistent(
            geometry.expect("a plain shape"),
            (0..slots).map(|slot| Some(MemberView::new(MemberId(slot), recovered(slot)))).collect(),
        )
    })
}

/// Writes to the member in `slot`; returns the members that the next flush must include.
fn written(shard: &mut Shard, slot: u16) -> Vec<MemberId> {
    let now = Instant(u64::from(slot) + 1);
    shard.handle_piece(
        now,
        Piece {
            request: RequestId(u64::from(slot)),
            operation: Operation::Write { durable: false },
            start: LogicalSector(u64::from(slot) * MEMBER_SECTORS),
            sectors: 1,
            payload_offset_sectors: 0,
        },
    );
    while let Some(MemberIo { id, .. }) = shard.poll_member_io() {
        shard.handle_member_io(now, MemberIoDone { id, result: Ok(()) });
    }
    shard.handle_write_back(now, u64::from(slot) + 1);
    let reports = std::iter::from_fn(|| shard.poll_report());
    let member = |report| match report {
        Report::MemberWritten { member } => Some(member),
        _ => None,
    };
    reports.filter_map(member).collect()
}

fn shard() -> Shard {
    let tuning = Tuning { mode: CacheMode::WriteThrough, ..Tuning::default() };
    let cache =
        CacheConfig { unit_sectors_max: 128, stripes_max: 16, cached_blocks_max: None, tuning };
    Shard::new(cache, view(1, 2))
}

#[test]
fn a_slot_that_comes_is_written_and_flushed() {
    let mut shard = shard();
    assert_eq!(written(&mut shard, 1), [MemberId(1)]);
    shard.handle_view(Instant(10), view(2, 3));
    assert_eq!(written(&mut shard, 2), [MemberId(2)]);
}

#[test]
#[should_panic(expected = "I6: of a member that comes nothing is read before it is recovered")]
fn a_slot_that_comes_holds_nothing() {
    let mut grown = (*view(2, 3)).clone();
    grown.slots[2] = Some(MemberView::new(MemberId(2), u64::MAX));
    shard().handle_view(Instant(10), Arc::new(grown));
}

#[test]
#[should_panic(expected = "a view has a place for each slot of its geometry")]
fn a_view_that_lacks_a_slot_of_its_geometry_is_our_own_mistake() {
    let mut cut = (*view(2, 3)).clone();
    cut.slots.pop();
    shard().handle_view(Instant(10), Arc::new(cut));
}
