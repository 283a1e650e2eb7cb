//! Rounds: every contender takes its turn on the same work, each round beginning with another one.

use super::report::{Case, Figure, Metric, Series, Settings};

/// One who takes part: a variant, and its turn, which gives a value for each metric.
pub struct Contender<'a> {
    variant: &'static str,
    turn: Box<dyn FnMut() -> Vec<f64> + 'a>,
}

impl<'a> Contender<'a> {
    /// A variant and its turn.
    pub fn new(variant: &'static str, turn: impl FnMut() -> Vec<f64> + 'a) -> Self {
        Self { variant, turn: Box::new(turn) }
    }
}

/// Lets the contenders take turns on the case, if it is wanted. A first round warms up and is dropped, unless the run is
/// small. The first contender is what the others are compared with.
///
/// # Panics
/// When a turn gives another number of values than there are metrics.
pub fn race(
    settings: &Settings,
    name: &str,
    metrics: &[Metric],
    mut contenders: Vec<Contender<'_>>,
) -> Option<Case> {
    if !settings.wants(name) {
        return None;
    }
    if let Some(profile) = &settings.profile {
        repeat(name, profile, &mut contenders);
        return None;
    }
    let blank = |metric: &Metric| Figure {
        metric: *metric,
        series: contenders
            .iter()
            .map(|one| Series { variant: one.variant, values: Vec::new() })
            .collect(),
    };
    let mut figures: Vec<Figure> = metrics.iter().map(blank).collect();
    let warm_up = usize::from(!settings.small);
    let count = contenders.len();
    for round in 0..settings.runs + warm_up {
        for turn in 0..count {
            let index = (round + turn) % count;
            let values = (contenders[index].turn)();
            assert_eq!(values.len(), metrics.len(), "a value for each metric");
            if round >= warm_up {
                for (figure, value) in figures.iter_mut().zip(values) {
                    figure.series[index].values.push(value);
                }
            }
        }
    }
    Some(Case { name: name.to_owned(), figures, targets: Vec::new() })
}

/// Takes one contender's turn again and again.
fn repeat(name: &str, profile: &str, contenders: &mut [Contender<'_>]) {
    let wanted = profile.strip_prefix(name).and_then(|rest| rest.strip_prefix('/'));
    let Some(one) = contenders.iter_mut().find(|one| Some(one.variant) == wanted) else { return };
    println!("repeating {profile}, process {}", std::process::id());
    loop {
        (one.turn)();
    }
}
