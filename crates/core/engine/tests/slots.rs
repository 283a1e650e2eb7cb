//! A view with more slots than the view before, for a family without state for each slot.

use std::sync::Arc;

use braid_engine::array::{ArrayView, MemberId};
use braid_engine::effect::Report;
use braid_engine::{CacheConfig, CacheMode, Tuning};
use braid_geometry::{Geometry, Level, Shape};

use super::bed::{OneShard, WRITE};

const MEMBER_SECTORS: u64 = 1024;

/// A view of a linear array of `slots` members.
fn view(epoch: u64, slots: u16) -> ArrayView {
    let geometry = Geometry::new(&Shape::uniform(Level::Linear, 0, 0, slots, MEMBER_SECTORS));
    let mut view = ArrayView { epoch, ..ArrayView::consistent(geometry.expect("a plain shape")) };
    // The new members are still to be filled.
    view.slots.iter_mut().flatten().skip(2).for_each(|member| member.recovered_sectors = 0);
    view
}

/// Writes to the member in `slot`; returns the members that the next flush must include.
fn written(linear: &mut OneShard, slot: u64) -> Vec<MemberId> {
    linear.ask(WRITE, slot * MEMBER_SECTORS, 1);
    linear.run();
    linear.handle(|shard, now| shard.handle_write_back(now, slot + 1));
    let member = |report| match report {
        Report::MemberWritten { member } => Some(member),
        _ => None,
    };
    linear.reports.drain(..).filter_map(member).collect()
}

fn linear() -> OneShard {
    let tuning = Tuning { mode: CacheMode::WriteThrough, ..Tuning::default() };
    OneShard::new(CacheConfig::in_memory(128, tuning), Arc::new(view(1, 2)))
}

#[test]
fn a_slot_that_comes_is_written_and_flushed() {
    let mut linear = linear();
    assert_eq!(written(&mut linear, 1), [MemberId(1)]);
    linear.turn(Arc::new(view(2, 3)));
    assert_eq!(written(&mut linear, 2), [MemberId(2)]);
}

#[test]
#[should_panic(expected = "I6: of a member that comes nothing is read before it is recovered")]
fn a_slot_that_comes_holds_nothing() {
    let mut grown = view(2, 3);
    grown.slots[2].as_mut().expect("it comes").recovered_sectors = u64::MAX;
    linear().turn(Arc::new(grown));
}

#[test]
#[should_panic(expected = "a view has a place for each slot of its geometry")]
fn a_view_that_lacks_a_slot_of_its_geometry_is_our_own_mistake() {
    let mut cut = view(2, 3);
    cut.slots.pop();
    linear().turn(Arc::new(cut));
}
