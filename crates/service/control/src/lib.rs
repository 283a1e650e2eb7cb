//! The control API: shows, sets and stops a running array. HTTP/1.1 with JSON on a Unix socket.
//!
//! The API stands next to the front ends. The program that serves an array gives the API a
//! [`ServedArray`]; clients are braid's commands, `curl --unix-socket` and monitors. The crate does
//! not depend on the engine: its values are plain, and the program fills them in. No byte of the
//! array's data passes through this crate.
//!
//! ```text
//!   server, client      connections: users, number, deadlines; one request and its answer
//!   passed_descriptors  descriptors that go with a request
//!   client_limit        the client to cut off at the limit
//!   routes              operations of an array, and their deadlines
//!   origin_check        whether a foreign web page sent a request
//!   page                the page for browsers
//!   api                 operations, each with its part of the OpenAPI document
//!   served_array        the array's side: its operations and refusals
//!   model/              values, with their JSON schema
//! ```
//!
//! # Stability
//!
//! Paths begin with a version. Within a version, fields and words never change. New fields and
//! words may be added, with a default for clients that are newer than their server. A test compares
//! the shipped document (`docs/api/openapi.json`) with the generated one.
#![forbid(unsafe_code)]

pub mod api;
mod client;
mod client_limit;
pub mod model;
mod origin_check;
mod page;
mod passed_descriptors;
pub mod routes;
mod served_array;
mod server;

pub use client::{Client, ClientError};
pub use client_limit::{ClientGuard, ClientLimit};
pub use origin_check::{Names, guarded};
pub use passed_descriptors::{DESCRIPTORS_MAX, PassedDescriptors};
pub use served_array::{
    Misuse, Refusal, ServedArray, StopListener, StopOutcome, StopTeller, stopping,
};
pub use server::{Limits, Server};
