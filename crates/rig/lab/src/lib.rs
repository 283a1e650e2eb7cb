//! The lab: compares every mechanism with the code before that mechanism, on the same work, in one
//! run.
//!
//! Place in the flow: next to the simulator, as another driver of the shipped engine and runtime;
//! nothing depends on it. Unlike the product it contains the code *before* each mechanism and *the
//! seed's fix*, as small models, and a disk in virtual time ([`disk`]). Tables: docs/lab.md.
//! ```text
//!   suites ── contenders ──▶ frame::race (rounds, turns) ──▶ Report ──▶ table │ JSON │ SVG
//!     │                                                        ▲
//!     └─ driver (engine over memory or none) │ disk (virtual time) │ runtime's Volume │ processes
//! ```
//! A further suite is one file with a function from [`frame::Settings`] to [`frame::Report`], and
//! one line in [`suites::SUITES`].
#![forbid(unsafe_code)]

mod array;
pub mod benchmarks;
pub mod disk;
pub mod driver;
mod engine;
pub mod frame;
#[allow(dead_code, unreachable_pub, reason = "shared by path; each user needs a part")]
#[path = "../../../../oracle/look.rs"]
mod look;
mod member;
mod pages;
mod random;
pub mod suites;
