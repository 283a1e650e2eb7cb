//! The frame of every suite: it takes settings and returns a report of cases and figures.
//! ```text
//!   Report ─▶ Case ("64 writers") ─▶ Figure (a metric) ─▶ Series (a variant) ─▶ a value per round
//! ```
//! Values of two variants are compared only within a round: a slow machine slows both.

mod curves;
pub mod json;
mod machine;
pub mod plot;
mod race;
mod report;
mod svg;
pub mod table;
mod usage;

pub use machine::Machine;
pub use race::{Contender, Failed, race};
pub use report::{
    Better, Case, Curves, Figure, Marks, Metric, Report, Series, Settings, Spread, Suite, Target,
    named,
};
pub(crate) use svg::{escape, number};
pub use usage::Usage;
