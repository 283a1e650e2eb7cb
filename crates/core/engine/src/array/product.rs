//! Products of facts, written as axes, for the tests of tables. A fact on no axis has its default.

/// An axis of a table's test: each entry sets one fact, or several at once.
pub(super) type Axis<'a, F> = &'a [fn(&mut F)];

macro_rules! set {
    ([$($fact:ident).+] $value:expr) => {
        |facts| facts.$($fact).+ = $value
    };
}

/// Makes the axis of one fact from its values.
macro_rules! axis {
    ($($fact:ident).+: $($value:expr),+) => { axis!(@ [$($fact).+] $($value),+) };
    (@ $fact:tt $($value:expr),+) => { &[$(set!($fact $value)),+] };
}

/// Axes of boolean facts.
macro_rules! flags {
    ($($($fact:ident).+)*) => { [$(&[|_| {}, |facts| facts.$($fact).+ = true]),*] };
}

pub(super) use {axis, flags, set};

pub(super) fn product<F: Copy + Default>(axes: &[Axis<'_, F>], check: &mut impl FnMut(&F)) {
    fn go<F: Copy>(facts: F, axes: &[Axis<'_, F>], check: &mut impl FnMut(&F)) {
        let Some((axis, rest)) = axes.split_first() else { return check(&facts) };
        for set in *axis {
            let mut facts = facts;
            set(&mut facts);
            go(facts, rest, check);
        }
    }
    go(F::default(), axes, check);
}
