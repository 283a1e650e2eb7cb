//! Plans with combinations of faults that random plans draw too seldom.
//!
//! Where it stands: next to [`plan`](super::plan), whose plans it makes. Times and delays are
//! drawn; the order of the faults is not.

use super::layout::{Layout, Level, Set};
use super::plan::{Fault, Habits, Plan, TimedFault};
use crate::random::Random;

/// A plan of one of the scenes. Host 0 is the first owner.
pub(super) fn any(random: &mut Random) -> Plan {
    let scene = *random.pick(&[
        split,
        split,
        forgotten_mark,
        flapping_member,
        old_record_of_a_lost_member,
        old_record_under_a_take_over,
        old_release,
    ]);
    let mut plan = quiet(random);
    scene(&mut plan, random);
    plan.calm_at = plan.faults.iter().map(|timed| timed.until).max().unwrap_or(0) + 500;
    plan
}

fn quiet(random: &mut Random) -> Plan {
    let habits = |_| Habits { patience: 4000, ..Habits::any(random) };
    Plan {
        layout: Layout { level: Level::Mirror, members: 2 },
        hosts: (0..3).map(habits).collect(),
        starts: vec![0, 1000, 1500],
        faults: Vec::new(),
        calm_at: 0,
        late_percent: *random.pick(&[0, 2, 10]),
        twice_percent: *random.pick(&[0, 5]),
        lost_percent: 0,
        client_pause: *random.pick(&[40, 100]),
    }
}

impl Plan {
    fn add(&mut self, (at, length): (u64, u64), fault: Fault) {
        self.faults.push(TimedFault { at, until: at + length, fault });
    }

    fn cut(&mut self, when: (u64, u64), host: usize, servers: Set) {
        let (towards, back) = (true, true);
        let is_store_cut = false;
        self.add(when, Fault::Cut { host, servers, is_store_cut, towards, back });
    }
}

/// The owner reaches some members and not the store; an heir reaches the other members.
fn split(plan: &mut Plan, random: &mut Random) {
    use Level::{Mirror, Raid6, Raid10};
    let (level, members, owners) = *random.pick(&[
        (Mirror, 2, 0b01),
        (Mirror, 3, 0b011),
        (Raid6, 4, 0b0011),
        (Raid10, 4, 0b0101),
    ]);
    plan.layout = Layout { level, members };
    let heirs = plan.layout.all() & !owners;
    let (at, length) = (2000 + random.below(1500), 4000 + random.below(4000));
    let (towards, back) = *random.pick(&[(true, true), (true, true), (true, false), (false, true)]);
    let is_store_cut = random.chance(70);
    let owner = Fault::Cut { host: 0, servers: heirs, is_store_cut, towards, back };
    plan.add((at, length), owner);
    plan.cut((at, length), 1, owners);
    plan.cut((at, length), 2, owners);
    plan.add((at + random.below(600), 1), Fault::Haste(1));
    plan.hosts[1].grace = 0;
}

/// The only member of an heir restarts, when the old owner reaches that member again and the heir
/// does not.
fn forgotten_mark(plan: &mut Plan, random: &mut Random) {
    let at = 2000 + random.below(1500);
    let owner =
        Fault::Cut { host: 0, servers: 0b10, is_store_cut: false, towards: true, back: true };
    let length = 2500 + random.below(1500);
    plan.hosts[0].give_up = 9000;
    plan.add((at, length), owner);
    plan.cut((at, 8000), 1, 0b01);
    plan.cut((at, 8000), 2, 0b01);
    plan.add((at + random.below(300), 1), Fault::Haste(1));
    let crash = at + length - random.below(400);
    plan.add((crash, 100 + random.below(300)), Fault::ServerCrash(1));
    plan.cut((crash, 1500), 1, 0b10);
    // The old owner learns from the store only late.
    let (towards, back) = (true, true);
    let store = Fault::Cut { host: 0, servers: 0, is_store_cut: true, towards, back };
    plan.add((at, 7000), store);
}

/// A member fails again while a swap lets it in. Then an heir reaches only that member.
fn flapping_member(plan: &mut Plan, random: &mut Random) {
    plan.lost_percent = *random.pick(&[0, 0, 20]);
    let back = 2100 + random.below(800);
    plan.add((1500, back - 1500), Fault::DeviceErrors(1));
    plan.add((back + 50, 1800), Fault::SlowStore);
    let again = back + 300 + random.below(900);
    plan.add((again, 900 + random.below(600)), Fault::DeviceErrors(1));
    let takeover = again + 300 + random.below(1500);
    plan.add((takeover, 6000), Fault::Crash(0));
    plan.cut((takeover, 6000), 1, 0b01);
    plan.cut((takeover, 6000), 2, 0b01);
    plan.add((takeover + random.below(400), 1), Fault::Haste(1));
    plan.hosts[1].grace = 0;
}

/// A member is out, and the store gets the record of an epoch in which that member was in sync.
fn old_record_of_a_lost_member(plan: &mut Plan, random: &mut Random) {
    plan.add((1600, 1), Fault::Haste(1));
    let cut = 3500 + random.below(500);
    plan.cut((cut, 9000), 1, 0b10);
    let restored = cut + 2500 + random.below(2000);
    plan.add((restored, 1), Fault::Restore(0));
    plan.add((restored + random.below(300), 1), Fault::Haste(2));
    plan.hosts[2].grace = 0;
}

/// Two heirs have swapped and reach no member. The store gets the record from before both swaps,
/// and another owner gives up a member under that record. Then the second heir reaches all members.
fn old_record_under_a_take_over(plan: &mut Plan, random: &mut Random) {
    let at = 2000 + random.below(500);
    plan.cut((at - 100, 15000), 1, 0b11);
    plan.add((at, 1), Fault::Haste(1));
    let length = 6000 + random.below(3000);
    plan.cut((at + 500, length), 2, 0b11);
    plan.add((at + 600, 1), Fault::Haste(2));
    plan.add((at + 1300, 1), Fault::Restore(0));
    plan.add((at + 1301, 1), Fault::Restore(0));
    plan.add((at + 1600 + random.below(500), 1), Fault::Haste(0));
    plan.cut((at + 2500 + random.below(500), 10000), 0, 0b10);
    plan.hosts[0].give_up = 900;
}

/// The store gets a record without owner, although an owner came after that record. That owner gets
/// its servers' answers late.
fn old_release(plan: &mut Plan, random: &mut Random) {
    let at = 2000 + random.below(500);
    plan.add((at, 1), Fault::Release(0));
    // Host 2 starts late, so host 1 is the owner after the release.
    plan.starts[2] = 4000;
    let restored = at + 2800 + random.below(500);
    plan.add((restored, 1), Fault::Restore(0));
    let (towards, back) = (false, true);
    let late = Fault::Cut { host: 1, servers: 0b11, is_store_cut: true, towards, back };
    plan.add((restored + 100 + random.below(400), 400 + random.below(500)), late);
    plan.late_percent = 0;
    plan.client_pause = 20;
}
