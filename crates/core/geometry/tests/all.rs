//! The tests of geometry as one program, since cargo links a program for each file otherwise.

#![allow(clippy::unwrap_used)] // tests: a panic is a failure

mod data_rows;
mod direct;
mod mirror;
mod mirror_tables;
mod refusals;
mod stripe;
mod stripe_tables;
mod support;
mod words;
