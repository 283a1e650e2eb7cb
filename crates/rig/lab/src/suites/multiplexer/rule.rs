//! The compared rules, which say which side the members serve, and when.

use braid_elevator::{Demand, Directions, Multiplexer, MultiplexerSettings, Turn};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Reads and writes may always go: the elevators alone decide.
    FreeForAll,
    /// Writes may go only if no read waits.
    ReadFirst,
    /// Reads may go only if no write waits, as UFS behaved in effect.
    WriteFirst,
    /// HAMMER without its multiplexer. Readers share a leaf's lock for the duration of a read; a
    /// flusher needs the leaf alone.
    HammerBefore,
    /// HAMMER with its multiplexer. In the flusher's slice, readers hold back their next read until
    /// the slice ends, whether or not the flusher has work. The length of the slice follows the
    /// backlog, without feedback.
    Hammer,
    Braid,
}

impl Rule {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::FreeForAll => "free-for-all",
            Self::ReadFirst => "read-first",
            Self::WriteFirst => "write-first",
            Self::HammerBefore => "HAMMER before",
            Self::Hammer => "HAMMER",
            Self::Braid => "braid",
        }
    }

    pub(super) const fn locks(self) -> bool {
        matches!(self, Self::HammerBefore | Self::Hammer)
    }
}

/// The kinds of requests that members may be given.
pub(super) enum Permission {
    /// The same kinds are allowed at every member.
    All(Directions),
    /// The shipped multiplexer decides for each member.
    Turn(Turn),
}

impl Permission {
    pub(super) fn at(&self, waits: Directions, out: (u32, u32)) -> Directions {
        match self {
            Self::All(allowed) => *allowed,
            Self::Turn(turn) => turn.allowed_at(waits, out),
        }
    }
}

pub(super) struct Gate {
    rule: Rule,
    settings: MultiplexerSettings,
    multiplexer: Multiplexer,
    /// HAMMER's slice: the start of the period, and the flusher's part of it.
    slice: (u64, u64),
    /// The integral of set points over time, and the time over which it was taken.
    set_permille_ns: (u128, u64),
    asked_at: u64,
}

impl Gate {
    pub(super) fn new(rule: Rule, settings: MultiplexerSettings) -> Self {
        let multiplexer = Multiplexer::new(settings, 0);
        Self { rule, settings, multiplexer, slice: (0, 0), set_permille_ns: (0, 0), asked_at: 0 }
    }

    /// The kinds of requests that may go now, and when to ask the rule again.
    pub(super) fn turn(&mut self, now: u64, demand: Demand) -> (Permission, Option<u64>) {
        if demand.reads && demand.writes {
            let since = now - self.asked_at;
            self.set_permille_ns.0 += u128::from(self.set_point(demand)) * u128::from(since);
            self.set_permille_ns.1 += since;
        }
        self.asked_at = now;
        // Under the other rules the multiplexer's set point is only for comparison.
        let turn = self.multiplexer.turn(now, demand);
        let allowed = match self.rule {
            Rule::FreeForAll | Rule::HammerBefore | Rule::Hammer => Directions::ALL,
            Rule::ReadFirst => Directions { reads: true, writes: !demand.reads },
            Rule::WriteFirst => Directions { reads: !demand.writes, writes: true },
            Rule::Braid => return (Permission::Turn(turn), Some(turn.until_ns)),
        };
        (Permission::All(allowed), None)
    }

    /// When a reader may begin its next read: at once, except under HAMMER's rule.
    pub(super) fn reader_waits_until(&mut self, now: u64, demand: Demand) -> Option<u64> {
        if self.rule != Rule::Hammer {
            return None;
        }
        let period_ns = self.settings.period_ns;
        if now >= self.slice.0 + period_ns {
            let start = now - now % period_ns;
            let share = u64::from(self.set_point(demand));
            self.slice = (start, period_ns * share / 1000);
        }
        let ends = self.slice.0 + self.slice.1;
        (now < ends).then_some(ends)
    }

    pub(super) fn served(&mut self, side: usize, busy_ns: u64) {
        self.multiplexer.handle_served(side == 0, busy_ns);
    }

    /// The mean set point while both sides had demand, in thousandths.
    pub(super) fn mean_set_point_permille(&self) -> f64 {
        let (sum, time) = self.set_permille_ns;
        #[allow(clippy::cast_precision_loss, reason = "four figures are shown")]
        if time == 0 { 0.0 } else { sum as f64 / time as f64 }
    }

    /// The share that the rule intends for the flusher. HAMMER counts waiting inodes; here one
    /// client counts as all of them.
    fn set_point(&self, demand: Demand) -> u32 {
        let MultiplexerSettings { share_min_permille: least, share_max_permille: most, .. } =
            self.settings;
        match self.rule {
            Rule::Hammer | Rule::HammerBefore if demand.is_urgent => most,
            Rule::Hammer | Rule::HammerBefore => {
                least + (most - least) * demand.backlog_permille.min(1000) / 1000
            }
            _ => self.multiplexer.slice().share_permille,
        }
    }
}
