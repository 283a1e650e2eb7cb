//! Background work in one shard: what comes of it, and how it stands beside clients' writes.

mod bench;
mod copies;
mod parity;
mod repair;
