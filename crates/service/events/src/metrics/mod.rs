//! Metrics: what an array is and does, in numbers, as OpenMetrics text.
//!
//! The program that serves arrays has a [`Source`] for each; a scrape asks all of them for a [`Snapshot`] and makes text of
//! it ([`render()`]). Nothing is counted here. Names are those of docs/monitoring.md and stay; `node_md_*`, as Prometheus'
//! node_exporter says them of md's arrays, come on request, so that rules made for those work unchanged.
//!
//! ```text
//!   snapshot        what is said of one array          render, node_md     text
//!   routes          GET /metrics, for any server       server              one on a port of its own
//! ```

mod families;
mod node_md;
mod render;
mod routes;
mod server;
mod snapshot;
#[cfg(test)]
pub(crate) mod tests;

pub use render::{CONTENT_TYPE, render};
pub(crate) use routes::scraping;
pub use server::{MetricsServer, ServerError, parse_address};
pub use snapshot::{Disks, Elevator, FrontEnd, Member, MemberState, Snapshot, Source, State};
