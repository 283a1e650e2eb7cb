//! Metrics: the state and work of an array in numbers, as OpenMetrics text.
//!
//! The program that serves arrays has a [`Source`] for each array. A scrape asks all sources for a
//! [`Snapshot`] and turns the snapshots into text ([`render()`]). This module counts nothing
//! itself. docs/monitoring.md lists the names, which are stable. On request, metrics with the
//! `node_md_*` names of Prometheus' node_exporter are added, so that rules made for md's arrays
//! work unchanged.
//!
//! ```text
//!   snapshot        values of one array             render, node_md     text
//!   routes          GET /metrics, for any server    server              one on a port of its own
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
pub use snapshot::{
    Disks, Elevator, FrontEnd, Member, MemberLink, MemberState, Snapshot, Source, State,
};
