//! The control API: how a running array is looked at, set and stopped. HTTP/1.1 with JSON on a Unix socket.
//!
//! Where it stands: beside the front ends. The program that serves an array gives it a [`Served`]; verbs of the command,
//! `curl --unix-socket` and monitors are its clients. It knows no engine: its values are plain, and what they are made
//! from is the program's affair. No byte of the array goes through here.
//!
//! ```text
//!   server    client      connections: who may, how many, how long; one request and its answer
//!   passing               descriptors that go with a request
//!   room                  which client goes when there are too many
//!   routes                what is asked and answered, and the deadlines of both
//!   asker                 whether a web page elsewhere asks
//!   page                  the page for browsers
//!   api                   operations, each with its part of the OpenAPI document
//!   served                what the array's side must be able to do
//!   model/                values, with their JSON schema
//! ```
//!
//! # What stays
//!
//! Paths begin with a version. Within one, fields and words stay and new ones may come, with a default for clients that are newer
//! than their server; the document that is shipped (`docs/api/openapi.json`) is compared with what is generated.
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
