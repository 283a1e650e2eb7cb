//! No ring: model checkers run threads of their own, which no kernel knows.

use braid_engine::array::SuperblockState;
use braid_engine::effect::MemberIo;
use braid_engine::request::ShardIndex;
use braid_member::MemberError;
use braid_ondisk::Timestamp;
use braid_ring::RingError;

use crate::clock::Clock;
use crate::core::{Core, Machine};
use crate::lane::Flight;
use crate::member_threads::MemberQueue;
use crate::options::Options;
use crate::sync::Arc;
use crate::timer::Arm;

/// There is none.
pub(crate) enum Ring {}

#[allow(clippy::unused_self)]
impl Ring {
    pub(crate) fn start(_: &Options, _: bool) -> Result<Option<Self>, RingError> {
        Ok(None)
    }

    pub(crate) fn connect(&self, _: &Arc<Core>) {
        match *self {}
    }

    pub(crate) fn is_here(&self) -> bool {
        match *self {}
    }

    pub(crate) fn schedule(&self, _: &Arc<Core>, _: Machine) -> bool {
        match *self {}
    }

    pub(crate) fn submit(
        &self,
        _: &Core,
        _: &MemberQueue,
        _: (ShardIndex, MemberIo),
    ) -> Result<Option<MemberIo>, MemberError> {
        match *self {}
    }

    pub(crate) fn submit_flight(&self, _: &Core, _: &MemberQueue, _: Flight) -> Result<(), Flight> {
        match *self {}
    }

    pub(crate) fn flush(&self, _: &MemberQueue) -> bool {
        match *self {}
    }

    pub(crate) fn write_superblock(
        &self,
        _: &MemberQueue,
        _: &SuperblockState,
        _: Timestamp,
    ) -> bool {
        match *self {}
    }

    pub(crate) fn arm(&self, _: &Clock, _: Arm) -> bool {
        match *self {}
    }

    pub(crate) fn register(&self, _: &Core) {
        match *self {}
    }

    pub(crate) fn unregister(&self, _: &Core) {
        match *self {}
    }

    pub(crate) fn stop(&self) {
        match *self {}
    }
}
