//! Rounds: every contender takes its turn on the same work, beginning with another one each round.

use std::cell::RefCell;

use super::report::{Case, Figure, Metric, Series, Settings};

/// A participant of a race: a variant, and its turn, which returns a value for each metric.
pub struct Contender<'a> {
    variant: &'static str,
    turn: Box<dyn FnMut() -> Vec<f64> + 'a>,
}

impl<'a> Contender<'a> {
    /// A contender of a variant and its turn.
    pub fn new(variant: &'static str, turn: impl FnMut() -> Vec<f64> + 'a) -> Self {
        Self { variant, turn: Box::new(turn) }
    }
}

/// The reason for the first failed turn of a race.
#[derive(Debug, Default)]
pub struct Failed(RefCell<Option<String>>);

impl Failed {
    /// The turn's values. If the turn failed, `count` zeroes, and the reason is kept.
    pub fn or_zeroes(&self, values: Result<Vec<f64>, String>, count: usize) -> Vec<f64> {
        values.unwrap_or_else(|why| {
            self.0.borrow_mut().get_or_insert(why);
            vec![0.0; count]
        })
    }

    /// The case, if every turn gave values.
    ///
    /// # Errors
    /// The reason for the first failed turn.
    pub fn or_case(self, case: Option<Case>) -> Result<Option<Case>, String> {
        self.0.into_inner().map_or(Ok(case), Err)
    }
}

/// Lets the contenders take turns on the case, if the settings want it. A first round warms up and
/// is dropped, unless the run is small. The other contenders are compared with the first.
///
/// # Panics
/// If a turn returns another number of values than there are metrics.
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

/// Repeats one contender's turn for ever, for a profiler.
fn repeat(name: &str, profile: &str, contenders: &mut [Contender<'_>]) {
    let wanted = profile.strip_prefix(name).and_then(|rest| rest.strip_prefix('/'));
    let Some(one) = contenders.iter_mut().find(|one| Some(one.variant) == wanted) else { return };
    println!("repeating {profile}, process {}", std::process::id());
    loop {
        (one.turn)();
    }
}
