//! The hooks of every build except the simulator's: constants, which leave no code behind.

use crate::{Bug, Mark, Point, Visits};

/// Whether `bug` is planted: never in this build.
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

/// Whether to make a rare, legal choice: never in this build.
#[inline(always)]
#[must_use]
pub const fn sometimes(_: Point) -> bool {
    false
}

/// Does nothing: this build counts no marks.
#[inline(always)]
pub const fn reached(_: Mark) {}

/// Does nothing: this build plants no bugs.
pub const fn plant(_: Option<Bug>) {}

/// Does nothing: this build makes no rare choices.
pub const fn shake(_: u64) {}

/// Does nothing: this build makes no rare choices.
pub const fn steady() {}

/// Does nothing: this build has no counts.
pub const fn forget() {}

/// Empty counts: this build counts nothing.
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

    /// The assertions are computed by the compiler, so no branch on a hook remains.
    #[test]
    fn without_the_cfg_every_hook_is_a_constant() {
        const NOTHING: bool = none_does_anything();
        const { assert!(NOTHING && !crate::ARE_HERE) }
        plant(Some(Bug::ALL[0]));
        shake(1);
        assert!(!planted(Bug::ALL[0]) && visits() == Visits::default());
    }
}
