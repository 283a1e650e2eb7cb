//! The braid command.

#[allow(dead_code)]
mod error;
#[allow(dead_code)]
mod output;

fn main() {}
