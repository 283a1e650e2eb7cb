//! For tests of tables: products of facts, written down as axes. Facts on no axis are as they are
//! at rest.

/// One fact, or several at once, as it may be: each entry makes it so.
pub(super) type Axis<'a, F> = &'a [fn(&mut F)];

/// A function that sets a fact.
macro_rules! set {
    ([$($fact:ident).+] $value:expr) => {
        |facts| facts.$($fact).+ = $value
    };
}

/// The values that a fact may have.
macro_rules! axis {
    ($($fact:ident).+: $($value:expr),+) => { axis!(@ [$($fact).+] $($value),+) };
    (@ $fact:tt $($value:expr),+) => { &[$(set!($fact $value)),+] };
}

/// Axes of facts that are so, or not.
macro_rules! flags {
    ($($($fact:ident).+)*) => { [$(&[|_| {}, |facts| facts.$($fact).+ = true]),*] };
}

pub(super) use {axis, flags, set};

/// Every combination.
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
