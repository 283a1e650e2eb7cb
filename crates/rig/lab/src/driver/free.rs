//! The payloads of a driver that no request uses, by number.

use braid_engine::request::RequestId;

#[derive(Debug)]
pub(super) struct Free(Vec<RequestId>);

impl Free {
    pub(super) fn new(payloads: usize) -> Self {
        Self((0..payloads as u64).rev().map(RequestId).collect())
    }

    pub(super) fn take(&mut self) -> Option<RequestId> {
        self.0.pop()
    }

    pub(super) fn give(&mut self, id: RequestId) {
        self.0.push(id);
    }
}
