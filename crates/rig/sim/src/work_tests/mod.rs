//! Tests of background work in one shard: its results, and how it runs while clients write.

#![cfg_attr(
    not(test),
    allow(dead_code, unused_imports, reason = "one room is told where bugs are planted")
)]

mod bench;
#[cfg(test)]
mod copies;
#[cfg(test)]
mod parity;
pub(crate) mod repair;
