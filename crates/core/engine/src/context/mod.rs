//! The state that a shard's three families share: the view, the pieces, the clocks, the effects.
//!
//! The shard makes one [`Common`] and hands it to its family with every event.

mod clocks;
mod common;
mod orphans;
mod pairs;
mod pieces;
mod trims;
mod written_members;

pub(crate) use clocks::{Clocks, PROBE_SECTORS};
pub(crate) use common::Common;
pub(crate) use orphans::{Departures, OrphanRequest, ReservedMemory};
pub(crate) use pieces::PieceKey;
#[cfg(test)]
pub(crate) use pieces::Pieces;
