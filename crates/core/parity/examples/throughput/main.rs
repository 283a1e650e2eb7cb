//! Each kernel's speed: `cargo run --release -p braid-parity --example throughput [-- --quick]`.
//!
//! `--quick` runs every cell once on little memory: it tests the benchmark, and measures nothing.

use std::io;

mod body;
#[allow(dead_code, unreachable_pub, reason = "shared with the comparison, which uses more of it")]
mod measure;

fn main() -> io::Result<()> {
    let quick = std::env::args().skip(1).any(|argument| argument == "--quick");
    body::print(&mut io::stdout().lock(), quick)
}
