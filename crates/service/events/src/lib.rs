//! Events: changes of an array, kept in a history and sent to operators and programs.
//!
//! This crate stands next to the server. The program that serves an array turns the engine's
//! notices into changes ([`notice`]), and passes these to a [`Teller`]. This crate is off the data
//! path, and delays no request.
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
//!   hooks/{hook_process, command, webhook, mail}   history   standing
//!   hooks/process   outlet                         notice    membership   links
//!   ending                                         event
//!                                                  kind
//! ```
//!
//! [`with_telling`] extends the control API, and [`metrics`] serves numbers as text. [`service`]
//! reports to the service manager and feeds its watchdog; [`sockets`] takes over its listening
//! sockets.
//!
//! This crate decides nothing about the array, and reads no member.
#![forbid(unsafe_code)]

mod api;
mod ending;
pub mod event;
pub mod history;
pub mod hooks;
pub mod kind;
pub mod links;
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
pub use outlet::{Backoff, Deliver, DeliveryError, DeliveryFailure, OutletCounts, OutletNotice};
pub use standing::{CompletedCheck, Standing};
pub use teller::{Complaint, Counts, Listener, Teller, Voice};
