//! The tests of the on-disk formats as one program, since cargo links a program for each file
//! otherwise.

#![allow(clippy::unwrap_used)] // tests: a panic is a failure

mod bit_flips;
mod common;
mod damaged_superblock;
#[allow(dead_code, unreachable_pub, reason = "shared by path; each user needs a part")]
#[path = "../../../../oracle/fixture.rs"]
mod fixture;
mod foreign_signatures;
mod lockless_made;
mod mdadm_examine;
mod never_panics;
#[allow(dead_code, unreachable_pub, reason = "shared by path; each user needs a part")]
#[path = "../../../../oracle/pattern.rs"]
mod pattern;
mod shape;
mod v0_90_made;
