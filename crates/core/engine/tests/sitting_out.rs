//! Members that sit out, as shards' reports of their pace show them.

use braid_engine::array::{Array, ArrayEffect, ArraySetup, MemberId, Notice};
use braid_engine::cause::Cause;
use braid_engine::effect::{Pace, Report};
use braid_engine::request::ShardIndex;
use braid_engine::{Instant, SitOut};
use braid_geometry::{Geometry, Level, Shape};

const MS: u64 = 1_000_000;

struct PacedArray {
    array: Array,
    now_ms: u64,
    notices: Vec<Notice>,
    /// The members that sit out, by the newest list for the shards.
    sitting_out: Vec<MemberId>,
}

impl PacedArray {
    fn new(level: Level, layout: u32, slots: u16) -> Self {
        let mut array = Array::new(ArraySetup::consistent(geometry(level, layout, slots), 2));
        array.handle_sit_out(Instant(0), SitOut { min_ms: 150, ..SitOut::default() });
        let (notices, sitting_out) = (Vec::new(), Vec::new());
        let mut paced = Self { array, now_ms: 1000, notices, sitting_out };
        paced.drain();
        paced
    }

    fn drain(&mut self) {
        while let Some(effect) = self.array.poll_effect() {
            match effect {
                ArrayEffect::Notice(Notice::Recorded { .. }) => {}
                ArrayEffect::Notice(notice) => self.notices.push(notice),
                ArrayEffect::SlowMembers(slow_members) => {
                    self.sitting_out.clone_from(&slow_members.sitting_out);
                }
                _ => {}
            }
        }
    }

    fn note_pace(&mut self, shard: u16, member: u16, pace: Pace) {
        let report = Report::Pace { member: MemberId(member), pace };
        self.array.handle_report(Instant(self.now_ms * MS), ShardIndex(shard), report);
        self.drain();
    }

    /// Runs for `for_ms` milliseconds, in which each member ends requests that take its entry of
    /// `each_ms`.
    fn run(&mut self, for_ms: u64, each_ms: &[u64]) {
        for _ in 0..for_ms / 50 {
            self.now_ms += 50;
            for (member, ms) in (0..).zip(each_ms) {
                self.note_pace(
                    0,
                    member,
                    Pace { completed: 4, mean_ns: ms * MS, oldest_ns: ms * MS / 2 },
                );
            }
        }
    }

    fn out(&self) -> Vec<u16> {
        self.sitting_out.iter().map(|member| member.0).collect()
    }
}

#[test]
fn a_member_that_stalls_sits_out_at_once() {
    let mut paced = PacedArray::new(Level::Raid6, 2, 5);
    paced.run(1000, &[5, 5, 5, 5, 5]);
    for age in (50..=150).step_by(50) {
        assert_eq!(paced.out(), [0; 0], "after {age} ms");
        paced.now_ms += 50;
        paced.note_pace(1, 2, Pace { completed: 0, mean_ns: 0, oldest_ns: age * MS });
    }
    assert_eq!(paced.out(), [2]);
    let [Notice::SitsOut { member: MemberId(2), latency_ms: 150, siblings_us: 5000, .. }] =
        paced.notices[..]
    else {
        panic!("{:?}", paced.notices)
    };
}

#[test]
fn a_slow_mean_takes_a_while() {
    let mut paced = PacedArray::new(Level::Raid5, 2, 4);
    paced.run(450, &[5, 5, 200, 5]);
    assert_eq!(paced.out(), [0; 0]);
    paced.run(200, &[5, 5, 200, 5]);
    assert_eq!(paced.out(), [2]);
    let mut paced = PacedArray::new(Level::Raid5, 2, 4);
    paced.run(5000, &[30, 30, 140, 30]);
    assert_eq!(paced.out(), [0; 0], "below the least that counts");
}

#[test]
fn all_slow_is_none_slow() {
    let mut paced = PacedArray::new(Level::Raid6, 2, 5);
    paced.run(5000, &[400, 700, 500, 800, 300]);
    assert_eq!(paced.out(), [0; 0]);
    assert!(paced.notices.is_empty());
}

#[test]
fn a_member_that_is_well_again_comes_back() {
    let mut paced = PacedArray::new(Level::Raid5, 2, 4);
    for time in 0..3 {
        paced.run(1000, &[5, 5, 300, 5]);
        assert_eq!(paced.out(), [2]);
        paced.run(900, &[5, 5, 100, 5]);
        assert_eq!(paced.out(), [2], "not well enough");
        let mut waited = 0;
        while paced.out() == [2] {
            paced.run(50, &[5, 5, 6, 5]);
            waited += 50;
        }
        assert!(waited >= 1000 << time && waited <= (1000 << time) + 100, "{waited} ms");
        paced.run(300, &[5, 5, 6, 5]);
        assert_eq!(paced.out(), [0; 0]);
    }
    assert_eq!(paced.notices.len(), 6);
    paced.run(70_000, &[5, 5, 6, 5]);
    paced.run(1000, &[5, 5, 300, 5]);
    paced.run(1200, &[5, 5, 6, 5]);
    assert_eq!(paced.out(), [0; 0], "that it did before is forgotten");
    assert!(paced.array.sat_out_ns(Instant(paced.now_ms * MS)) > 8_000 * MS);
}

/// For every level and every pair of members, the level's losses limit who may sit out together.
#[test]
fn no_more_sit_out_than_the_level_can_lose() {
    for (level, layout, slots) in [
        (Level::Raid0, 0, 3),
        (Level::Raid1, 0, 2),
        (Level::Raid1, 0, 3),
        (Level::Raid10, 0x102, 4),
        (Level::Raid5, 2, 4),
        (Level::Raid6, 2, 6),
    ] {
        for missing in [None, Some(slots - 1)] {
            for order in [[0, 1, 2, 3], [3, 1, 0, 2], [2, 0, 3, 1]] {
                let mut paced = PacedArray::new(level, layout, slots);
                if let Some(missing) = missing.filter(|_| level != Level::Raid0) {
                    paced.note_pace(0, missing, Pace { completed: 1, mean_ns: 1, oldest_ns: 0 });
                    paced.array.handle_member_gone(
                        Instant(paced.now_ms * MS),
                        Cause::vanished(MemberId(missing)),
                    );
                    paced.drain();
                }
                // Each member is much slower than those before it, which may have to stay.
                let mut oldest_ns = 1000 * MS;
                for member in order.into_iter().filter(|member| *member < slots) {
                    paced.note_pace(0, member, Pace { completed: 0, mean_ns: 0, oldest_ns });
                    oldest_ns *= 100;
                }
                let geometry = geometry(level, layout, slots);
                let gone = missing.filter(|_| level != Level::Raid0);
                let is_away = |slot: braid_geometry::Slot| {
                    paced.out().contains(&slot.0) || gone == Some(slot.0)
                };
                assert!(geometry.survives(&is_away) || level == Level::Raid0, "{level} {order:?}");
                assert_eq!(
                    paced.out().is_empty(),
                    level == Level::Raid0 || may_none(&geometry, gone)
                );
            }
        }
    }
}

fn geometry(level: Level, layout: u32, slots: u16) -> Geometry {
    Geometry::new(&Shape::uniform(level, layout, 8, slots, 64)).expect("a plain shape")
}

fn may_none(geometry: &Geometry, gone: Option<u16>) -> bool {
    (0..geometry.slots())
        .filter(|slot| Some(*slot) != gone)
        .all(|one| !geometry.survives(&|slot| slot.0 == one || gone == Some(slot.0)))
}

#[test]
fn a_loss_takes_those_back_that_cannot_be_done_without() {
    let mut paced = PacedArray::new(Level::Raid5, 2, 4);
    paced.run(1000, &[5, 5, 300, 5]);
    assert_eq!(paced.out(), [2]);
    paced.array.handle_member_gone(Instant(paced.now_ms * MS), Cause::vanished(MemberId(0)));
    paced.drain();
    assert_eq!(paced.out(), [0; 0]);
}
