//! The plan of a history: the array, the hosts' habits, and the faults with their times.
//!
//! Where it stands: drawn from the seed before the world begins. All faults end before the calm.

use super::layout::{Layout, Set};
use crate::random::Random;

/// The world's time at which all faults are over, at most.
const CALM_MAX: u64 = 20_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A host's machine stops, and its clock continues.
    Pause(usize),
    Crash(usize),
    /// Links of a host are cut, in one direction or both.
    Cut {
        host: usize,
        servers: Set,
        is_store_cut: bool,
        towards: bool,
        back: bool,
    },
    /// A host's connection to a member breaks.
    Break(usize, usize),
    ServerCrash(usize),
    DeviceErrors(usize),
    SlowDevice(usize),
    StoreAway,
    SlowStore,
    /// The store gets back its record from before so many swaps; for 0, one of an earlier epoch.
    Restore(usize),
    /// A host gives the array back.
    Release(usize),
    /// A host takes the array over although the owner lives.
    Haste(usize),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct TimedFault {
    pub(super) at: u64,
    pub(super) until: u64,
    pub(super) fault: Fault,
}

/// The settings of one host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habits {
    /// The speed of the host's clock, in thousandths of the world's.
    pub(super) rate: u64,
    /// The host takes over if the record does not change for so long.
    pub(super) patience: u64,
    /// The host gives up a member that is silent for so long.
    pub(super) give_up: u64,
    /// Once enough members are claimed, the host waits so long for the other members.
    pub(super) grace: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) layout: Layout,
    pub(super) hosts: Vec<Habits>,
    /// When each host starts.
    pub(super) starts: Vec<u64>,
    pub(super) faults: Vec<TimedFault>,
    pub(super) calm_at: u64,
    /// Percent of messages that take long.
    pub(super) late_percent: u64,
    /// Percent of requests to the store that arrive twice.
    pub(super) twice_percent: u64,
    /// Percent of requests to the store, and of its answers, that are lost.
    pub(super) lost_percent: u64,
    /// Mean pause between two requests of the clients of a host.
    pub(super) client_pause: u64,
}

impl Plan {
    pub(super) fn any(random: &mut Random) -> Self {
        let layout = Layout::any(random);
        let hosts: Vec<Habits> = (0..2 + random.below(2)).map(|_| Habits::any(random)).collect();
        let calm_at = CALM_MAX / 3 + random.below(CALM_MAX * 2 / 3);
        let is_restored = random.chance(20);
        let count = 2 + random.below(9);
        let mut faults: Vec<TimedFault> = Vec::new();
        for at in 0..count {
            let fault = match at {
                0 if is_restored => Fault::Restore(*random.pick(&[0, 0, 0, 1, 2, 5])),
                _ => Fault::any(layout, hosts.len(), random),
            };
            let at = 300 + random.below(calm_at - 300);
            let length = *random.pick(&[200, 800, 2000, 5000]);
            let until = (at + 1 + random.below(length)).min(calm_at);
            faults.push(TimedFault { at, until, fault });
        }
        // In most histories a host takes over from an owner that lives.
        let haste = Fault::Haste(random.below(hosts.len() as u64) as usize);
        let at = calm_at / 4 + random.below(calm_at / 2);
        faults.push(TimedFault { at, until: at + 1, fault: haste });
        let starts = hosts.iter().map(|_| random.below(500)).collect();
        Self {
            layout,
            hosts,
            starts,
            faults,
            calm_at,
            late_percent: *random.pick(&[0, 2, 10]),
            twice_percent: *random.pick(&[0, 5, 40]),
            lost_percent: *random.pick(&[0, 2, 20]),
            client_pause: *random.pick(&[60, 150, 300]),
        }
    }
}

impl Habits {
    pub(super) fn any(random: &mut Random) -> Self {
        Self {
            rate: 950 + random.below(101),
            patience: *random.pick(&[700, 2500, 3000, 4000]),
            give_up: *random.pick(&[900, 1500, 2500]),
            grace: *random.pick(&[0, 0, 100, 400]),
        }
    }
}

impl Fault {
    fn any(layout: Layout, hosts: usize, random: &mut Random) -> Self {
        let host = random.below(hosts as u64) as usize;
        let member = random.below(layout.members as u64) as usize;
        match random.weighted(&[3, 2, 6, 2, 3, 2, 3, 2, 2, 2, 4]) {
            0 => Self::Pause(host),
            1 => Self::Crash(host),
            2 => {
                let servers = random.below(1 << layout.members) as Set;
                let servers = if random.chance(30) { layout.all() } else { servers };
                let (towards, back) = *random.pick(&[(true, true), (true, false), (false, true)]);
                Self::Cut { host, servers, is_store_cut: random.chance(40), towards, back }
            }
            3 => Self::Break(host, member),
            4 => Self::ServerCrash(member),
            5 => Self::DeviceErrors(member),
            6 => Self::SlowDevice(member),
            7 => Self::StoreAway,
            8 => Self::SlowStore,
            9 => Self::Release(host),
            _ => Self::Haste(host),
        }
    }
}
