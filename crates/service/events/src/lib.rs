//! Telling: what changes in an array becomes events, which are kept, and taken to where people and programs look.
//!
//! Where it stands: beside the server. The program that serves an array makes changes of the engine's notices ([`notice`])
//! and tells them to a [`Teller`]; nothing here is on the way of data, and nothing here holds anything up.
//!
//! ```text
//!   notice (engine) ──▶ change ──▶ teller ──▶ history on disk
//!                                    ├──────▶ outlets: command, webhook, mail
//!                                    ├──────▶ followers (a stream of events)
//!                                    └──────▶ standing ──▶ metrics
//! ```
//!
//! # Layers
//!
//! ```text
//!   api
//!   metrics/                                       service   sockets
//!   teller
//!   hooks/{apart, command, webhook, mail}          history   standing
//!   hooks/process   outlet                         notice    membership
//!   ending                                         event
//!                                                  kind
//! ```
//!
//! [`with_telling`]: what the control API gets of it; [`metrics`]: numbers as text, and a server for them; [`service`]: the service manager is told, and its watchdog fed;
//! [`sockets`]: listening sockets that it passed on.
//!
//! What it does not do: decide anything about the array, or read its members.
#![forbid(unsafe_code)]

mod api;
mod ending;
pub mod event;
pub mod history;
pub mod hooks;
pub mod kind;
pub mod membership;
pub mod metrics;
pub mod notice;
mod outlet;
#[cfg(test)]
mod samples;
pub mod service;
pub mod sockets;
mod standing;
mod teller;

pub use api::{FOLLOWERS_MAX, with_telling};
pub use ending::Ending;
pub use event::{Change, Event, Identity, Moment};
pub use history::{History, HistoryError};
pub use kind::{Kind, Severity};
pub use outlet::{Backoff, Deliver, DeliveryError, OutletCounts, OutletNotice, Undelivered};
pub use standing::{Checked, Standing};
pub use teller::{Complaint, Counts, Listener, Teller, Voice};
