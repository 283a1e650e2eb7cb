//! Remaining times of simulated rebuilds whose speed changes, and the absence of a figure while the
//! time is unknown.

use braid_pace::{Estimate, Progress, RemainingTime};

const SECOND: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Pseudorandom numbers at least 0 and below 1 (SplitMix64).
struct Chance(u64);

impl Chance {
    fn part(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// A rebuild's speed in MiB for each second. Arguments: the part done, the seconds so far, chance.
type Speed = fn(f64, f64, &mut Chance) -> f64;

fn constant(_: f64, _: f64, _: &mut Chance) -> f64 {
    200.0
}

fn noisy(_: f64, _: f64, chance: &mut Chance) -> f64 {
    100.0 + 200.0 * chance.part()
}

/// A turning disk: inner tracks are half as fast as outer ones.
fn zoned(part: f64, _: f64, _: &mut Chance) -> f64 {
    240.0 * (1.0 - part / 2.0)
}

fn zoned_and_noisy(part: f64, _: f64, chance: &mut Chance) -> f64 {
    zoned(part, 0.0, chance) * (0.8 + 0.4 * chance.part())
}

/// A turning disk whose speed falls in sixteen steps, as a real disk's zones make it.
fn zoned_in_steps(part: f64, _: f64, _: &mut Chance) -> f64 {
    240.0 * (1.0 - (part * 16.0).floor() / 32.0)
}

/// One second in a hundred begins a stall of half a minute.
fn stalls(_: f64, seconds: f64, chance: &mut Chance) -> f64 {
    let is_stalled = seconds % 97.0 < 30.0 * chance.part().round();
    if is_stalled { 0.0 } else { 200.0 }
}

/// Clients for five minutes of every fifteen.
fn comes_and_goes(_: f64, seconds: f64, _: &mut Chance) -> f64 {
    if seconds % 900.0 < 300.0 { 40.0 } else { 220.0 }
}

/// A turning disk with clients for five minutes of every fifteen.
fn zoned_with_clients(part: f64, seconds: f64, chance: &mut Chance) -> f64 {
    comes_and_goes(part, seconds, chance) * (1.0 - part / 2.0)
}

/// Clients come after a tenth of the work, and stay.
fn comes_to_stay(part: f64, _: f64, _: &mut Chance) -> f64 {
    if part < 0.1 { 220.0 } else { 60.0 }
}

/// Clients go after a tenth of the work.
fn goes(part: f64, _: f64, _: &mut Chance) -> f64 {
    if part < 0.1 { 60.0 } else { 220.0 }
}

/// The clients' load slowly rises and falls.
fn tide(_: f64, seconds: f64, chance: &mut Chance) -> f64 {
    150.0 + 60.0 * (seconds / 2000.0).sin() + 20.0 * chance.part()
}

const PROFILES: [(&str, Speed); 11] = [
    ("constant", constant),
    ("noisy", noisy),
    ("zoned", zoned),
    ("zoned and noisy", zoned_and_noisy),
    ("zoned in steps", zoned_in_steps),
    ("stalls", stalls),
    ("load comes and goes", comes_and_goes),
    ("zoned, load comes, goes", zoned_with_clients),
    ("load comes to stay", comes_to_stay),
    ("load goes", goes),
    ("tide", tide),
];

/// Runs a rebuild that reports progress once a second. Returns estimated over true time left, at
/// each quarter of the work.
fn ratios(speed: Speed, total: u64, seed: u64) -> [f64; 3] {
    let mut chance = Chance(seed);
    let mut progress = Progress::new(0, 0, total);
    let (mut done, mut seconds, mut said) = (0.0, 0_u64, Vec::new());
    while done < total as f64 {
        done += speed(done / total as f64, seconds as f64, &mut chance) * MIB as f64;
        seconds += 1;
        progress.handle_done(seconds * SECOND, whole(done).min(total));
        if done >= total as f64 * 0.25 * (said.len() + 1) as f64 && said.len() < 3 {
            let estimate = progress.estimate(seconds * SECOND).expect("a quarter is done");
            let RemainingTime::Seconds(left) = estimate.remaining else { panic!("{estimate:?}") };
            said.push((seconds, left));
        }
    }
    let ratio = |(at, left): (u64, u64)| left as f64 / (seconds - at) as f64;
    [ratio(said[0]), ratio(said[1]), ratio(said[2])]
}

#[allow(clippy::cast_possible_truncation, reason = "it saturates")]
fn whole(number: f64) -> u64 {
    number as u64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn right_within_15_percent_in_the_median() {
    println!("said over what was so, median of sizes  at 25 %   at 50 %   at 75 %");
    let mut errors = [const { Vec::new() }; 3];
    for (name, speed) in PROFILES {
        let mut all = [const { Vec::new() }; 3];
        for seed in 0..20 {
            let total = (400 + 137 * seed) * GIB;
            let found = ratios(speed, total, seed);
            (0..3).for_each(|index| all[index].push(found[index]));
        }
        let medians = all.clone().map(median);
        println!("{name:<38} {:>8.2} {:>9.2} {:>9.2}", medians[0], medians[1], medians[2]);
        for (index, ratios) in all.into_iter().enumerate() {
            let error = median(ratios.iter().map(|ratio| (ratio - 1.0).abs()).collect());
            // If clients went a moment ago, half of the window still has their load. No window can
            // foresee a load that rises and falls over hours.
            let most = if index == 0 { 0.5 } else { 0.35 };
            assert!(error <= most, "{name}, quarter {}: {error}", index + 1);
            errors[index].extend(ratios.into_iter().map(|ratio| (ratio - 1.0).abs()));
        }
    }
    let medians = errors.clone().map(median);
    println!(
        "error, median of all                   {:>8.3} {:>9.3} {:>9.3}",
        medians[0], medians[1], medians[2]
    );
    assert!(medians.iter().all(|error| *error <= 0.15), "{medians:?}");
}

#[test]
fn nothing_is_said_that_is_not_known() {
    let mut progress = Progress::new(5 * SECOND, 0, 1000 * GIB);
    assert_eq!(progress.estimate(6 * SECOND), None);
    assert_eq!(progress.estimate(100 * SECOND), None);
    // A single report of progress gives no rate.
    progress.handle_done(101 * SECOND, 5 * GIB);
    assert_eq!(progress.estimate(101 * SECOND), None);
    // Four reports within a moment give no rate either.
    let mut progress = Progress::new(0, 0, 1000 * GIB);
    (1..9).for_each(|step| progress.handle_done(step, step * GIB));
    assert_eq!(progress.estimate(9), None);
    assert!(progress.estimate(SECOND).is_some());

    // With almost no progress each second, no remaining time of twelve digits is shown.
    let mut progress = Progress::new(0, 0, u64::MAX);
    (1..100).for_each(|second| progress.handle_done(second * SECOND, second));
    let estimate = progress.estimate(100 * SECOND);
    assert_eq!(estimate, Some(Estimate { bytes_per_second: 1, remaining: RemainingTime::Long }));

    // The job stops, and its remaining time becomes unknown.
    let mut progress = Progress::new(0, 0, 1000 * GIB);
    (1..=1000).for_each(|second| progress.handle_done(second * SECOND, second * GIB / 4));
    for (second, is_known) in
        [(1000, true), (1100, true), (1250, true), (1500, false), (u64::MAX / SECOND, false)]
    {
        let left = progress.estimate(second * SECOND).map(|estimate| estimate.remaining);
        let left = left.expect("it has been known");
        assert_eq!(left != RemainingTime::Unknown, is_known, "{left:?} at {second}");
    }

    // The job is done at once, or reports more than its total.
    for done in [1000 * GIB, u64::MAX] {
        let mut progress = Progress::new(0, 0, 1000 * GIB);
        progress.handle_done(1, done);
        let left = progress.estimate(1).map(|estimate| estimate.remaining);
        assert_eq!(
            (left, progress.bytes()),
            (Some(RemainingTime::Seconds(0)), (1000 * GIB, 1000 * GIB))
        );
    }

    // The progress goes back, and the clock too.
    let mut progress = Progress::new(50 * SECOND, 7 * GIB, 10 * GIB);
    progress.handle_done(60 * SECOND, 8 * GIB);
    progress.handle_done(55 * SECOND, GIB);
    assert_eq!((progress.estimate(40 * SECOND), progress.bytes().0), (None, GIB));
}

/// No input causes a panic, or a figure beyond a hundred days.
#[test]
fn odd_progress_does_no_harm() {
    let mut chance = Chance(3);
    let mut any = |most: u64| whole(chance.part() * most as f64);
    for _ in 0..300 {
        let mut progress = Progress::new(any(SECOND), any(GIB), any(100 * GIB));
        let (mut now, mut done) = (0, 0);
        for _ in 0..400 {
            let most = [10, SECOND, 100_000 * SECOND][usize::try_from(any(3)).unwrap()];
            now += any(most);
            done = if any(50) == 0 { any(GIB) } else { done + any(GIB) };
            match any(5) {
                0 => progress.set_paused(now, any(2) == 0),
                _ => progress.handle_done(now, done),
            }
            if let Some(Estimate { remaining: RemainingTime::Seconds(left), .. }) =
                progress.estimate(now)
            {
                assert!(left < 100 * 86_400, "{left}");
            }
        }
    }
}

#[test]
fn a_pause_is_no_time() {
    let run = |pause: u64| {
        let mut progress = Progress::new(0, 0, 1000 * GIB);
        (1..=500).for_each(|second| progress.handle_done(second * SECOND, second * GIB));
        progress.set_paused(500 * SECOND, true);
        assert!(progress.estimate((500 + pause) * SECOND).is_some());
        progress.set_paused((500 + pause) * SECOND, false);
        let later = |second: u64| (500 + pause + second) * SECOND;
        (1..=100).for_each(|second| progress.handle_done(later(second), (500 + second) * GIB));
        progress.estimate(later(100))
    };
    assert_eq!(
        run(0),
        Some(Estimate { bytes_per_second: GIB, remaining: RemainingTime::Seconds(400) })
    );
    assert_eq!(run(86_400), run(0));
}

/// A rebuild that continues another process's work measures only its own speed.
#[test]
fn what_was_done_before_is_no_speed() {
    let mut progress = Progress::new(0, 500 * GIB, 1000 * GIB);
    (1..=100).for_each(|second| progress.handle_done(second * SECOND, (500 + second) * GIB));
    let estimate = progress.estimate(100 * SECOND);
    assert_eq!(
        estimate,
        Some(Estimate { bytes_per_second: GIB, remaining: RemainingTime::Seconds(400) })
    );
}
