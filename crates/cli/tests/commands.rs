//! The tests of commands that end by themselves, in one program: a program for each file is linked for each file.
//!
//! Programs of their own have those that look at their whole process.

#![allow(clippy::unwrap_used)] // tests: a panic is a failure

mod create;
mod create_destroy;
mod create_kit;
mod create_refusals;
mod demo;
mod examine;
mod examine_md;
#[allow(dead_code, unreachable_pub, reason = "shared by path; each user needs a part")]
#[path = "../../../oracle/fixture.rs"]
mod fixture;
#[allow(dead_code, unreachable_pub, reason = "shared by path; each user needs a part")]
#[path = "../../../oracle/pattern.rs"]
mod pattern;
