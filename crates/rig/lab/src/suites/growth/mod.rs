//! Suite `growth`: how the cost of a request, member or connection grows with their number.
//!
//! ```text
//!   an axis (members: 3, 8, ... 255) ─▶ a contender for each point, in turns ─▶ a case and a curve
//! ```
//!
//! Every cost is divided by the unit that it may grow with: a full stripe for each member, memory
//! for each connection, start-up for each member. So each curve should be flat, and the ratio of
//! the largest point to the smallest is the verdict. Costs are processor time, so that more threads
//! than cores can be measured: they take turns on the cores. The figure is a request's time on a
//! core, not requests a second.

mod arrays;
mod engine;
mod served;

use std::path::Path;
use std::time::Duration;

use braid_nbd_client::{Client, ClientError, ClientPlan, plan_for};

use crate::frame::{
    Case, Contender, Curves, Figure, Marks, Metric, Report, Series, Settings, Suite, Target, race,
};

pub(super) const SUITE: Suite = Suite {
    name: "growth",
    about: "the cost of a request, a member, an array or a connection as their number grows",
    run,
};

/// A quantity that grows along the x axis of a case.
#[derive(Clone, Copy)]
struct Axis {
    name: &'static str,
    /// The points of the axis: position and name of each, in growing order.
    ticks: &'static [(f64, &'static str)],
    values: &'static [u64],
}

/// One turn of a point, which returns its figure.
type Turn<'a> = Box<dyn FnMut() -> f64 + 'a>;

/// A quantity measured along an axis.
struct Measurement {
    name: &'static str,
    metric: Metric,
    /// Upper bound for the ratio of the largest point to the smallest, and why the ratio may exceed
    /// one.
    most: (f64, &'static str),
}

impl Axis {
    /// The points of a run; only a few in a small run.
    fn points(&self, settings: &Settings) -> Vec<(u64, &'static str)> {
        let count = if settings.small { 2 } else { self.values.len() };
        let names = self.ticks.iter().map(|(_, name)| *name);
        self.values.iter().copied().zip(names).take(count).collect()
    }

    /// Lets every point take its turn in each round, then adds a case and a curve. The caller notes
    /// points that it cannot prepare, and leaves them out.
    fn race<'a>(
        &self,
        settings: &Settings,
        report: &mut Report,
        measurement: &Measurement,
        points: Vec<(&'static str, Turn<'a>)>,
    ) {
        let contenders = points
            .into_iter()
            .map(|(name, mut turn)| Contender::new(name, move || vec![turn()]))
            .collect();
        let case = race(settings, measurement.name, &[measurement.metric], contenders);
        case.into_iter().for_each(|case| self.judge(report, measurement, case));
    }

    /// Adds values that were measured one point after the other, in any number.
    fn told(
        &self,
        settings: &Settings,
        report: &mut Report,
        measurement: &Measurement,
        points: Vec<(&'static str, Vec<f64>)>,
    ) {
        if !settings.wants(measurement.name) {
            return;
        }
        let series = points.into_iter().map(|(variant, values)| Series { variant, values });
        let figures = vec![Figure { metric: measurement.metric, series: series.collect() }];
        let case = Case { name: measurement.name.to_owned(), figures, targets: Vec::new() };
        self.judge(report, measurement, case);
    }

    /// Adds a case with its curve, and the bound on the ratio of the last point to the first.
    fn judge(&self, report: &mut Report, measurement: &Measurement, case: Case) {
        let series = &case.figures[0].series;
        let (Some(first), Some(last)) = (series.first(), series.last()) else { return };
        let (most, why) = measurement.most;
        let mut target = Target::ratio(measurement.metric.name, last.variant, first.variant, most);
        target.source = why;
        report.curves.push(self.curve(measurement, &case));
        report.add(Some(case.with([target])));
    }

    fn curve(&self, measurement: &Measurement, case: &Case) -> Curves {
        let place = |name: &str| self.ticks.iter().find(|(_, tick)| *tick == name);
        let points = case.figures[0].series.iter().filter_map(|series| {
            let (place, _) = place(series.variant)?;
            Some((*place, series.spread().median))
        });
        Curves {
            title: measurement.name.to_owned(),
            x: self.name,
            y: measurement.metric.unit,
            ticks: self.ticks,
            lines: vec![("braid", points.collect())],
            marks: Marks::Line,
        }
    }
}

fn run(settings: &Settings) -> Report {
    let mut report = Report::default();
    engine::run(settings, &mut report);
    arrays::run(settings, &mut report);
    served::run(settings, &mut report);
    report.note(
        "each figure is per unit of the growing axis, so the curve must be flat; figures are \
         processor time, also if threads outnumber cores and take turns",
    );
    report
}

const PATIENCE: Duration = Duration::from_secs(20);

/// Connects a client to the default export. fio and the kernel's client cannot have ten thousand
/// connections; this client has a socket, and no thread.
pub(in crate::suites) fn connect(socket: &Path) -> Result<Client, String> {
    let plan = ClientPlan { structured_replies: false, extended_headers: false, ..plan_for("") };
    let said = |error: ClientError| format!("{}: {error}", socket.display());
    Client::connect(socket, plan, PATIENCE).map_err(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_has_a_name_and_a_place_and_they_grow() {
        for axis in engine::AXES.iter().chain(served::AXES).chain([&arrays::ARRAYS]) {
            assert_eq!(axis.ticks.len(), axis.values.len(), "{}", axis.name);
            assert!(axis.values.is_sorted() && axis.ticks.is_sorted(), "{}", axis.name);
        }
    }
}
