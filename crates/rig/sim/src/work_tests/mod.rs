//! Background work in one shard: what comes of it, and how it stands beside clients' writes.

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
