//! Every build but the simulator's own: constants, which leave no code behind.

use crate::{Bug, Mark, Point, Visits};

/// Whether this bug is planted: never.
#[inline(always)]
#[must_use]
pub const fn planted(_: Bug) -> bool {
    false
}

/// `right`, since no bug is planted.
#[inline(always)]
#[must_use]
pub const fn spoiled<T: Copy>(_: Bug, right: T, _wrong: T) -> T {
    right
}

/// Whether to make a rare, legal choice: never.
#[inline(always)]
#[must_use]
pub const fn sometimes(_: Point) -> bool {
    false
}

/// Notes nothing.
#[inline(always)]
pub const fn reached(_: Mark) {}

/// Plants nothing.
pub const fn plant(_: Option<Bug>) {}

/// Makes no rare choices.
pub const fn shake(_: u64) {}

/// Ends rare choices.
pub const fn steady() {}

/// Forgets all counts.
pub const fn forget() {}

/// No counts.
#[must_use]
pub fn visits() -> Visits {
    Visits::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn none_does_anything() -> bool {
        let mut index = 0;
        while index < Bug::ALL.len() {
            if planted(Bug::ALL[index]) || spoiled(Bug::ALL[index], false, true) {
                return false;
            }
            index += 1;
        }
        index = 0;
        while index < Point::ALL.len() {
            if sometimes(Point::ALL[index]) {
                return false;
            }
            index += 1;
        }
        reached(Mark::ALL[0]);
        true
    }

    /// The compiler itself knows the answers, so no branch on them is left.
    #[test]
    fn without_the_cfg_every_hook_is_a_constant() {
        const NOTHING: bool = none_does_anything();
        const { assert!(NOTHING && !crate::ARE_HERE) }
        plant(Some(Bug::ALL[0]));
        shake(1);
        assert!(!planted(Bug::ALL[0]) && visits() == Visits::default());
    }
}
