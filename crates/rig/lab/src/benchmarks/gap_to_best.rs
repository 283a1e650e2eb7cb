//! Compares one variant's figure with the other variants of the same case: whether it is behind,
//! and by how much.

use crate::frame::{Better, Figure, Series, number};

/// The distance of a variant to the best of the other variants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct GapToBest {
    pub(super) best: &'static str,
    /// The median over all rounds of the ratio to that best variant.
    pub(super) ratio: f64,
    /// Whether the ranges of the two variants overlap, so that some rounds show the opposite.
    pub(super) is_within_spread: bool,
}

impl std::fmt::Display for GapToBest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let within = if self.is_within_spread { ", within the spread" } else { "" };
        write!(formatter, "behind {}, {}{within}", self.best, times(self.ratio))
    }
}

/// A ratio as text; `-` if it is not finite.
pub(super) fn times(ratio: f64) -> String {
    if ratio.is_finite() { format!("{}x", number(ratio)) } else { "-".to_owned() }
}

/// Whether a variant is braid, alone or below another program.
fn is_ours(variant: &str) -> bool {
    variant == "braid" || variant.ends_with("on braid")
}

/// Whether, and how far, `series` is behind the best of the other series. If the figure has braid,
/// only braid is compared, with all variants that are not braid. Otherwise each variant is compared
/// with all others.
pub(super) fn behind(figure: &Figure, series: &Series) -> Option<GapToBest> {
    let has_ours = figure.series.iter().any(|one| is_ours(one.variant));
    if has_ours && !is_ours(series.variant) {
        return None;
    }
    let better = figure.metric.better;
    let others = figure
        .series
        .iter()
        .filter(|one| one.variant != series.variant && !(has_ours && is_ours(one.variant)));
    let order = |one: &&Series| match better {
        Better::More => one.spread().median,
        Better::Less => -one.spread().median,
    };
    let best = others.max_by(|a, b| order(a).total_cmp(&order(b)))?;
    if order(&best) <= order(&series) {
        return None;
    }
    let (here, there) = (series.spread(), best.spread());
    let is_within_spread = here.max >= there.min && there.max >= here.min;
    Some(GapToBest { best: best.variant, ratio: series.over(best).median, is_within_spread })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Metric;

    fn figure(metric: Metric, all: &[(&'static str, [f64; 2])]) -> Figure {
        let series =
            all.iter().map(|(variant, values)| Series { variant, values: values.to_vec() });
        Figure { metric, series: series.collect() }
    }

    #[test]
    fn braid_is_behind_whoever_is_best_and_others_are_not_told_of() {
        let all = [("btrfs", [10.0, 12.0]), ("braid", [5.0, 6.0]), ("ext4 on braid", [9.0, 11.5])];
        let figure = figure(Metric::more("files", "1/s"), &all);
        let said: Vec<_> = figure.series.iter().map(|series| behind(&figure, series)).collect();
        assert_eq!(said[0], None);
        assert_eq!(said[1], Some(GapToBest { best: "btrfs", ratio: 0.5, is_within_spread: false }));
        assert!(said[2].is_some_and(|behind| behind.is_within_spread));
    }

    #[test]
    fn without_braid_all_but_the_best_are_behind_and_less_may_be_better() {
        let figure =
            figure(Metric::less("share", "%"), &[("Unix", [4.0, 4.0]), ("TLS", [8.0, 8.0])]);
        assert_eq!(behind(&figure, &figure.series[0]), None);
        let tls = behind(&figure, &figure.series[1]);
        assert_eq!(tls, Some(GapToBest { best: "Unix", ratio: 2.0, is_within_spread: false }));
    }
}
