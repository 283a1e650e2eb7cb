//! The events that one run meets, drawn before it begins.

use super::kinds::Change;
use crate::random::Random;

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CrashKind {
    /// All disks lose their caches.
    PowerCut,
    /// Disks keep everything that reached them.
    Kill,
}

/// An effect that happens as late as possible: all that clients do comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LateEffect {
    Superblock,
    /// A message of the array to a shard.
    Letter,
}

/// The plan of a run. Lists are taken from their end.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Crashes, each at a number of effects at disks.
    pub(super) crashes: Vec<(u64, CrashKind)>,
    /// Disks that die, each at a number of effects.
    pub(super) losses: Vec<(u64, usize)>,
    /// Disks that are missing from the start.
    pub(super) missing: Vec<usize>,
    /// Sectors of progress at which the reshape turns round.
    pub(super) turns: Vec<u64>,
    /// The turn that was requested and waits for a window to end.
    pub(super) asked_turn: Option<u64>,
    /// Array sectors that some disk cannot read at first.
    pub(super) unreadable: Vec<u64>,
    /// Array sectors that are lost because too many disks cannot read their strips.
    pub(super) lost: Vec<u64>,
    /// How many pieces fail because the process lacks memory.
    pub(super) short_of_memory: u32,
    /// How many copies of windows fail because the state folder is full.
    pub(super) copies_fail: u32,
    /// Most requests of clients in flight at once.
    pub(super) clients: usize,
    /// Steps of clients before the reshape begins.
    pub(super) steps_before: u64,
    pub(super) window_sectors: u64,
    pub(super) writes_back: bool,
    /// Percentage of writes in the old shape that disks delay.
    pub(super) delayed_percent: u64,
    /// The effect that happens as late as possible.
    pub(super) late: Option<LateEffect>,
    /// A clean stop is followed by a power cut.
    pub(super) cuts_at_rest: bool,
}

impl Plan {
    /// A plan in which nothing happens but the reshape.
    pub(super) fn quiet() -> Self {
        Self {
            crashes: Vec::new(),
            losses: Vec::new(),
            missing: Vec::new(),
            turns: Vec::new(),
            asked_turn: None,
            unreadable: Vec::new(),
            lost: Vec::new(),
            short_of_memory: 0,
            copies_fail: 0,
            clients: 2,
            steps_before: 0,
            window_sectors: 1,
            writes_back: false,
            delayed_percent: 2,
            late: None,
            cuts_at_rest: true,
        }
    }

    /// A plan for an array that needs each member.
    pub(super) fn any_striped(change: &Change, random: &mut Random) -> Self {
        let size = change.size();
        let mut plan = Self {
            clients: 1 + random.below(6) as usize,
            steps_before: random.below(400),
            window_sectors: *random.pick(&[1, 1, 100, 1 << 18]),
            late: random.chance(10).then_some(LateEffect::Superblock),
            cuts_at_rest: random.chance(50),
            ..Self::quiet()
        };
        for _ in 0..*random.pick(&[0, 0, 1, 2]) {
            plan.turns.push(random.below(size + size / 4));
        }
        let mut at = 0;
        for _ in 0..random.below(5) {
            at += random.below(300);
            plan.crashes.push((at, *random.pick(&[CrashKind::PowerCut, CrashKind::Kill])));
        }
        plan.crashes.reverse();
        if random.chance(20) {
            plan.lost = (0..1 + random.below(4)).map(|_| random.below(size)).collect();
        }
        plan
    }

    pub(super) fn any(change: &Change, random: &mut Random) -> Self {
        let size = change.size();
        let mut plan = Self {
            clients: 1 + random.below(6) as usize,
            steps_before: random.below(400),
            window_sectors: *random.pick(&[1, 1, 1, 100, 200, 1 << 18]),
            writes_back: random.chance(30),
            late: match random.below(20) {
                0 | 1 => Some(LateEffect::Superblock),
                2 => Some(LateEffect::Letter),
                _ => None,
            },
            cuts_at_rest: random.chance(50),
            ..Self::quiet()
        };
        let turns = if !change.can_turn() { 0 } else { *random.pick(&[0, 0, 0, 1, 1, 2, 3]) };
        for _ in 0..turns {
            plan.turns.push(random.below(size + size / 4));
        }
        // Mostly draws from members of the old shape, which have data from the beginning.
        let slots = if random.chance(70) { change.slots_before() } else { change.disk_count() };
        let slots = u64::from(slots);
        match random.below(13) {
            0..5 => {
                let mut at = 0;
                for _ in 0..1 + random.below(4) {
                    at += random.below(900);
                    let kind = *random.pick(&[CrashKind::PowerCut, CrashKind::Kill]);
                    plan.crashes.push((at, kind));
                }
                plan.crashes.reverse();
            }
            5..8 => {
                let count = 1 + random.below(u64::from(change.tolerated()));
                let mut disks: Vec<usize> = (0..slots as usize).collect();
                random.shuffle(&mut disks);
                for disk in disks.into_iter().take(count as usize) {
                    let is_missing = random.chance(30) && !change.is_at_once();
                    if is_missing && disk < usize::from(change.slots_before()) {
                        plan.missing.push(disk);
                    } else {
                        plan.losses.push((random.below(1500), disk));
                    }
                }
                plan.losses.sort_unstable_by_key(|(at, _)| std::cmp::Reverse(*at));
                // After a crash, parity is in doubt until the resync at the end: a later loss would
                // be one too many.
                if random.chance(15) {
                    let last = plan.losses.first().map_or(0, |(at, _)| *at);
                    let kind = *random.pick(&[CrashKind::PowerCut, CrashKind::Kill]);
                    plan.crashes.push((last + 1 + random.below(600), kind));
                }
            }
            8 => {
                plan.unreadable = (0..1 + random.below(24)).map(|_| random.below(size)).collect();
                plan.delayed_percent = *random.pick(&[2, 50]);
            }
            9..11 if !change.is_at_once() => {
                plan.lost = (0..1 + random.below(4)).map(|_| random.below(size)).collect();
                // A write that was acknowledged early and that no batch can carry out is lost.
                plan.writes_back = false;
                if random.chance(30) {
                    plan.missing = vec![random.below(change.slots_before().into()) as usize];
                } else if random.chance(50) {
                    let kind = *random.pick(&[CrashKind::PowerCut, CrashKind::Kill]);
                    plan.crashes = vec![(random.below(600), kind)];
                }
            }
            11 => {
                plan.short_of_memory = 1 + random.below(3) as u32;
                plan.copies_fail = random.below(3) as u32;
            }
            _ => {}
        }
        plan
    }
}
