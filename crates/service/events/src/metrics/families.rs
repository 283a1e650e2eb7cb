//! Families of metrics: a name, a description, and a sample for each set of labels.

use std::fmt::Error;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

pub(super) struct Families<'a>(DescriptorEncoder<'a>);

pub(super) type Labels = Vec<(&'static str, String)>;

pub(super) type Sample = (Labels, f64);

impl<'a> Families<'a> {
    pub(super) fn new(encoder: DescriptorEncoder<'a>) -> Self {
        Self(encoder)
    }

    /// Writes a family of gauges; writes nothing if the family has no samples.
    pub(super) fn gauge(
        &mut self,
        name: &str,
        help: &str,
        samples: Vec<Sample>,
    ) -> Result<(), Error> {
        if samples.is_empty() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        samples.iter().try_for_each(|(labels, value)| {
            ConstGauge::new(*value).encode(family.encode_family(labels)?)
        })
    }

    /// Writes a family of counters. The encoder appends `_total` to the name.
    pub(super) fn counter(
        &mut self,
        name: &str,
        help: &str,
        samples: Vec<Sample>,
    ) -> Result<(), Error> {
        if samples.is_empty() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        samples.iter().try_for_each(|(labels, value)| {
            ConstCounter::new(*value).encode(family.encode_family(labels)?)
        })
    }
}

/// A count as a metric's value: exact up to 2^53.
#[allow(clippy::cast_precision_loss, reason = "metrics are floating point")]
pub(super) fn number(count: u64) -> f64 {
    count as f64
}
