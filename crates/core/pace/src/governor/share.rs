//! The allowance in flight while clients have requests: the law that follows clients' latency.
//!
//! The governor reports, for each slice of time, how many requests were beyond the target. The
//! result is an allowance: bytes in flight on average, from a thousandth of a window to many
//! windows.
//!
//! # The law
//!
//! "p99 is at most the target" means "at most one request in a hundred is beyond it". The count
//! says more than p99: p99 jumps when the hundredth request meets the job, the count follows the
//! job's share smoothly. So the count drives a budget:
//!
//! ```text
//!   budget    + 8/1000 for each request                at most 3 requests saved up
//!             - 1 for each request beyond the target   owed: at most about 10 s of earnings
//!
//!   budget low, this slice lost      cut, by how much was lost; harder if a cut did not help
//!   budget low, this slice did not   hold: what is owed is paid back first
//!   budget good                      grow, by what was earned; slowly near where it was cut last
//! ```
//!
//! Over time the share beyond the target equals the budget's earnings, whatever the members' curve.
//! On a smooth curve the allowance settles at that point. At a cliff (two windows do no harm, three
//! double every latency) the allowance stays below the edge, and tries it only as often as the
//! budget allows. Two rules bound the swing. After a cut comes a slice without another cut, in
//! which the bytes in flight drain; and growth is bounded for each slice.
//!
//! Invariants:
//! - the share of requests beyond the target is what is earned, on a slope and at a cliff
//!   `[check: the_share_beyond_is_what_is_earned]`;
//! - a few slow requests of few do not move the allowance, many do at once
//!   `[check: one_slow_request_is_no_reason]`;
//! - the allowance does not grow beyond what the job uses
//!   `[check: what_is_not_used_does_not_grow]`.

/// Thousandths of a request beyond the target that each request earns. Ten would put p99 at the
/// target; fewer leave room for slow requests just after a cut.
const EARNED_PERMILLE: i64 = 8;
/// Thousandths that each request beyond the target costs.
const COST: i64 = 1000;
const CREDIT_MAX: i64 = 3 * COST;
/// The allowance grows while the budget is at least this.
const CREDIT_TO_GROW: i64 = CREDIT_MAX / 2;
/// A slice that lost this much of the budget causes a whole cut.
const WHOLE_CUT: i64 = 4 * COST;
/// The most debt is what this many slices earn, plus the most credit.
const DEBT_SLICES: i64 = 100;
/// The size of a whole cut, in thousandths of the allowance: for the first bad slice in a row, the
/// second, and any later one.
const CUTS_PERMILLE: [u64; 3] = [300, 600, 800];
/// Growth of the allowance for each earned request, in thousandths.
const GROWTH_PERMILLE: i64 = 50;
/// After this many requests in a row within the target, growth is fourfold. The law aims at one
/// request in 125 beyond the target.
const CLEAN_REQUESTS: u64 = 500;
/// The most growth in one slice, in thousandths.
const GROWTH_MAX_PERMILLE: u64 = 120;
/// The most growth in one slice near the allowance of the last cut, in thousandths.
const GROWTH_NEAR_PERMILLE: u64 = 20;

/// The allowance, and the evidence for and against it.
#[derive(Clone, Debug)]
pub(super) struct Share {
    least_bytes: u64,
    most_bytes: u64,
    allowance_bytes: u64,
    /// The budget, in thousandths of a request beyond the target.
    budget: i64,
    /// Requests since the last request beyond the target.
    clean: u64,
    cuts: usize,
    /// Slices that the bytes in flight before the last cut can still slow down.
    draining: u64,
    /// The allowance just before the last cut.
    knee_bytes: u64,
}

impl Share {
    pub(super) fn new(least_bytes: u64, most_bytes: u64, allowance_bytes: u64) -> Self {
        Self {
            least_bytes,
            most_bytes,
            allowance_bytes: allowance_bytes.clamp(least_bytes, most_bytes),
            budget: 0,
            clean: 0,
            cuts: 0,
            draining: 0,
            knee_bytes: u64::MAX,
        }
    }

    pub(super) fn set(&mut self, least_bytes: u64, most_bytes: u64) {
        (self.least_bytes, self.most_bytes) = (least_bytes, most_bytes);
        self.allowance_bytes = self.allowance_bytes.clamp(least_bytes, most_bytes);
    }

    pub(super) fn allowance_bytes(&self) -> u64 {
        self.allowance_bytes
    }

    /// Whether more requests were beyond the target than the budget allows.
    pub(super) fn is_in_debt(&self) -> bool {
        self.budget < 0
    }

    /// Forgets the budget, because it counted requests against a target that has changed.
    pub(super) fn forgive(&mut self) {
        (self.budget, self.cuts, self.draining) = (0, 0, 0);
        self.knee_bytes = u64::MAX;
    }

    /// Takes a slice in which the job was at work: the number of clients' requests, the number of
    /// these beyond the target, and the job's mean bytes in flight. A cut made now shows in
    /// requests that end `drain_slices` later.
    pub(super) fn slice(
        &mut self,
        (requests, beyond): (u64, u64),
        used_bytes: u64,
        drain_slices: u64,
    ) {
        let requests = i64::try_from(requests).unwrap_or(i64::MAX / COST);
        let beyond = i64::try_from(beyond).unwrap_or(i64::MAX / COST).min(requests);
        let earned = requests.saturating_mul(EARNED_PERMILLE);
        let lost = beyond.saturating_mul(COST) - earned;
        let debt_max = CREDIT_MAX.saturating_add(earned.saturating_mul(DEBT_SLICES));
        self.budget = self.budget.saturating_sub(lost).clamp(-debt_max, CREDIT_MAX);
        self.clean =
            if beyond > 0 { 0 } else { self.clean.saturating_add(requests.unsigned_abs()) };

        if self.draining > 0 {
            self.draining -= 1;
        } else if lost > 0 && self.budget < 0 {
            self.cut(lost.min(-self.budget));
            self.draining = drain_slices.max(1);
        } else {
            self.cuts = 0;
            if self.budget >= CREDIT_TO_GROW && used_bytes.saturating_mul(2) >= self.allowance_bytes
            {
                self.grow(earned);
            }
        }
    }

    fn cut(&mut self, lost: i64) {
        if self.cuts == 0 {
            self.knee_bytes = self.allowance_bytes;
        }
        let permille = CUTS_PERMILLE[self.cuts.min(CUTS_PERMILLE.len() - 1)];
        let part = permille * lost.min(WHOLE_CUT).unsigned_abs() / WHOLE_CUT.unsigned_abs();
        let less = part_of(self.allowance_bytes, part);
        self.allowance_bytes = self.allowance_bytes.saturating_sub(less).max(self.least_bytes);
        self.cuts += 1;
    }

    fn grow(&mut self, earned: i64) {
        let faster = if self.clean >= CLEAN_REQUESTS { 4 } else { 1 };
        let permille = earned.saturating_mul(GROWTH_PERMILLE * faster) / COST;
        // An allowance well beyond the knee shows that the knee belonged to another load.
        if self.allowance_bytes > part_of(self.knee_bytes, 1250) {
            self.knee_bytes = u64::MAX;
        }
        let is_near = self.allowance_bytes >= part_of(self.knee_bytes, 800);
        let most = if is_near { GROWTH_NEAR_PERMILLE } else { GROWTH_MAX_PERMILLE };
        let more = part_of(self.allowance_bytes, permille.unsigned_abs().min(most));
        self.allowance_bytes = self.allowance_bytes.saturating_add(more).min(self.most_bytes);
    }
}

fn part_of(bytes: u64, permille: u64) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(permille) / 1000).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = 1 << 20;

    /// Runs thousands of slices; `curve` gives the share of requests beyond the target for an
    /// allowance. Returns the share, the least and the most allowance of the second half.
    #[allow(clippy::cast_possible_truncation, reason = "a few thousand at most")]
    fn settle(requests: u64, curve: impl Fn(f64) -> f64) -> (f64, f64, f64) {
        let mut share = Share::new(WINDOW / 1000, 16 * WINDOW, WINDOW);
        let (mut all, mut beyond, mut least, mut most) = (0.0, 0.0, f64::MAX, 0_f64);
        let mut owed = 0.0;
        let slices = 4_000_000 / requests;
        for slice in 0..slices {
            let allowance = share.allowance_bytes() as f64 / WINDOW as f64;
            owed += curve(allowance).min(1.0) * requests as f64;
            let slow = owed as u64;
            owed -= slow as f64;
            share.slice((requests, slow), share.allowance_bytes(), 1);
            if slice > slices / 2 {
                (all, beyond) = (all + requests as f64, beyond + slow as f64);
                (least, most) = (least.min(allowance), most.max(allowance));
            }
        }
        (beyond / all, least, most)
    }

    #[test]
    fn the_share_beyond_is_what_is_earned() {
        for requests in [10, 100, 1000, 10_000] {
            for full in [0.001, 0.05, 2.0] {
                // On a slope, exactly the earned share of requests is beyond the target at `full`
                // windows.
                let (beyond, least, most) = settle(requests, |allowance| 0.008 * allowance / full);
                assert!(beyond <= 0.009, "{beyond} of slope {full}, {requests}");
                let band = (0.6 * full..1.5 * full).contains(&least) && most < 1.5 * full;
                assert!(band, "{least} to {most} of slope {full}, {requests}");
            }
            for edge in [0.01, 0.7, 3.0] {
                let cliff = |allowance| if allowance > edge { 0.5 } else { 0.0 };
                let (beyond, least, most) = settle(requests, cliff);
                assert!(beyond <= 0.009, "{beyond} at cliff {edge}, {requests}");
                let band = (0.6 * edge..edge).contains(&least) && most < 1.1 * edge;
                assert!(band, "{least} to {most} at cliff {edge}, {requests}");
            }
        }
    }

    #[test]
    fn one_slow_request_is_no_reason() {
        let mut share = Share::new(1, 16 * WINDOW, WINDOW);
        (0..100).for_each(|_| share.slice((10, 0), 0, 1));
        share.slice((10, 1), 0, 1);
        assert_eq!(share.allowance_bytes(), WINDOW);
        (0..20).for_each(|_| share.slice((10, 10), 0, 1));
        assert!(share.allowance_bytes() < WINDOW / 1000, "{}", share.allowance_bytes());
    }

    #[test]
    fn what_is_not_used_does_not_grow() {
        let mut share = Share::new(1, 16 * WINDOW, WINDOW);
        (0..1000).for_each(|_| share.slice((1000, 0), WINDOW / 4, 1));
        assert_eq!(share.allowance_bytes(), WINDOW);
        (0..1000).for_each(|_| share.slice((1000, 0), share.allowance_bytes(), 1));
        assert_eq!(share.allowance_bytes(), 16 * WINDOW);
    }

    #[test]
    fn odd_numbers_do_no_harm() {
        let mut share = Share::new(1, 16 * WINDOW, WINDOW);
        for (requests, beyond) in [(u64::MAX, u64::MAX), (0, u64::MAX), (u64::MAX, 0), (0, 0)] {
            (0..10).for_each(|_| share.slice((requests, beyond), u64::MAX, 1));
            assert!((1..=16 * WINDOW).contains(&share.allowance_bytes()));
        }
    }
}
