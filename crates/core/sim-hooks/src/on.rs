//! The hooks of the simulator's build: the planted bug, the stream of choices and the counts of
//! this thread.

use std::cell::{Cell, RefCell};

use crate::{Bug, Mark, Point, Visits};

/// Each point is switched on in one of this many worlds, so that points also occur alone.
const POINT_OF: u64 = 4;
/// A point that is switched on takes the rare choice once in this many times.
const YES_OF: u64 = 4;

/// The state of the stream of choices, and the points that are switched on.
#[derive(Clone, Copy)]
struct Stream {
    state: u64,
    points: u64,
}

const _: () = assert!(Point::ALL.len() <= 64, "points are bits of a word");

thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    static HARM: Cell<u64> = const { Cell::new(0) };
    static STREAM: Cell<Option<Stream>> = const { Cell::new(None) };
    static POINTS: RefCell<[u64; Point::ALL.len()]> = const { RefCell::new([0; _]) };
    static MARKS: RefCell<[u64; Mark::ALL.len()]> = const { RefCell::new([0; _]) };
}

impl Stream {
    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }
}

/// Whether `bug` is planted.
#[inline]
#[must_use]
pub fn planted(bug: Bug) -> bool {
    let is_planted = PLANTED.get() == Some(bug);
    if is_planted {
        HARM.set(HARM.get() + 1);
    }
    is_planted
}

/// `right`, or `wrong` if `bug` is planted.
///
/// The call stands on a line of its own after the line that makes the right value, and keeps that
/// value's name. Every build evaluates `wrong`: a constant, or an expression that is cheap and
/// cannot panic. A costlier wrong value goes under an `if planted(..)`.
#[inline]
#[must_use]
pub fn spoiled<T: Copy>(bug: Bug, right: T, wrong: T) -> T {
    if planted(bug) { wrong } else { right }
}

/// Whether to make a rare, legal choice.
#[inline]
#[must_use]
pub fn sometimes(point: Point) -> bool {
    let Some(mut stream) = STREAM.get() else { return false };
    if stream.points >> point as u32 & 1 == 0 {
        return false;
    }
    let says_yes = stream.next().is_multiple_of(YES_OF);
    STREAM.set(Some(stream));
    if says_yes {
        POINTS.with_borrow_mut(|points| points[point as usize] += 1);
    }
    says_yes
}

/// Counts that the product reached `mark`.
#[inline]
pub fn reached(mark: Mark) {
    MARKS.with_borrow_mut(|marks| marks[mark as usize] += 1);
}

/// Plants `bug` in place of the bug before; `None` plants none.
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
    HARM.set(0);
}

/// Begins rare choices, at points that the seed selects.
pub fn shake(seed: u64) {
    let mut stream = Stream { state: seed, points: 0 };
    for point in 0..Point::ALL.len() {
        stream.points |= u64::from(stream.next().is_multiple_of(POINT_OF)) << point;
    }
    STREAM.set(Some(stream));
}

/// Ends rare choices.
pub fn steady() {
    STREAM.set(None);
}

/// Forgets all counts.
pub fn forget() {
    HARM.set(0);
    POINTS.with_borrow_mut(|points| points.fill(0));
    MARKS.with_borrow_mut(|marks| marks.fill(0));
}

/// The counts since [`forget`].
#[must_use]
pub fn visits() -> Visits {
    Visits {
        planted: HARM.get(),
        points: POINTS.with_borrow(|points| points.to_vec()),
        marks: MARKS.with_borrow(|marks| marks.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bug_at_a_time() {
        for bug in Bug::ALL {
            plant(Some(*bug));
            let planted: Vec<&Bug> = Bug::ALL.iter().filter(|bug| planted(**bug)).collect();
            assert_eq!((planted, visits().planted), (vec![bug], 1));
        }
        plant(None);
        assert!(!planted(Bug::ALL[0]));
    }

    #[test]
    fn only_the_planted_bug_spoils() {
        plant(Some(Bug::ALL[1]));
        assert_eq!(Bug::ALL[..3].iter().map(|bug| spoiled(*bug, 7, 8)).sum::<u8>(), 7 + 8 + 7);
        assert_eq!(visits().planted, 1);
        plant(None);
        assert_eq!(spoiled(Bug::ALL[1], 7, 8), 7);
    }

    fn choices(seed: u64) -> Vec<bool> {
        shake(seed);
        let points = Point::ALL.iter().cycle().take(1000);
        points.map(|point| sometimes(*point)).collect()
    }

    #[test]
    fn rare_choices_repeat() {
        assert!((0..50).all(|seed| choices(seed) == choices(seed)));
        assert!((0..50).any(|seed| choices(seed) != choices(seed + 50)));
        steady();
        assert!(!Point::ALL.iter().any(|point| sometimes(*point)));
    }
}
