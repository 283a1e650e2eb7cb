//! The control API: shows, sets and stops a running array. HTTP/1.1 with JSON on a Unix socket.
//!
//! It stands beside the front ends. The program that serves an array gives it a [`Served`]; its
//! clients are verbs of the command, `curl --unix-socket` and monitors. The crate knows no engine:
//! its values are plain, and the program fills them. No byte of the array passes through here.
//!
//! ```text
//!   server    client      connections: users, number, deadlines; one request and its answer
//!   passing               descriptors that go with a request
//!   room                  the client to cut off at the limit
//!   routes                operations of an array, and their deadlines
//!   asker                 whether a foreign web page sent a request
//!   page                  the page for browsers
//!   api                   operations, each with its part of the OpenAPI document
//!   served                the array's side: its operations and refusals
//!   model/                values, with their JSON schema
//! ```
//!
//! # Stability
//!
//! Paths begin with a version. Within a version fields and words stay. New ones may come, with a
//! default for clients that are newer than their server. A test compares the shipped document
//! (`docs/api/openapi.json`) with the generated one.
#![forbid(unsafe_code)]

pub mod api;
mod asker;
mod client;
pub mod model;
mod page;
mod passing;
mod room;
pub mod routes;
mod served;
mod server;

pub use asker::{Names, guarded};
pub use client::{Client, ClientError};
pub use passing::{DESCRIPTORS_MAX, Passed};
pub use room::{Place, Room};
pub use served::{Misuse, Refusal, Served, StopListener, StopOutcome, StopTeller, stopping};
pub use server::{Limits, Server};
