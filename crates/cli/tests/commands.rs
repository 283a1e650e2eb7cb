//! Tests of commands that end by themselves, in one test program, because each test file is linked
//! separately.
//!
//! Tests that inspect their whole process have their own programs.

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
