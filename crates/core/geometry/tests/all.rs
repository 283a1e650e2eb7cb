//! The tests of geometry, in one program: a program for each file is linked for each file.

#![allow(clippy::unwrap_used)] // tests: a panic is a failure

mod direct;
mod mirror;
mod mirror_tables;
mod refusals;
mod stripe;
mod stripe_tables;
mod support;
mod words;
