//! The log messages of the runtime (`tracing`): all names and levels in one file.
//!
//! Place in the flow: called as events happen; returns nothing. The program chooses the subscriber.
//! Without one a call reads one number, and formats and allocates nothing (`tests/allocations.rs`).
//! Workers call the subscriber while they own machines, so it must never wait.
//!
//! | Target | What |
//! |---|---|
//! | `braid_runtime::array` | start, stop, superblocks, members that go out or are slow, tuning |
//! | `braid_runtime::member` | each request that failed at a member, each superblock |
//! | `braid_runtime::request` | requests of clients, and those that fail |
//!
//! Fields have the names that `braid serve --json` uses; docs/operating.md lists them.

use std::sync::atomic::{AtomicU64, Ordering};

use braid_engine::array::{BitmapRecord, MemberId, SuperblockState};
use braid_engine::cause::Cause;
use braid_engine::request::{ByteOperation, ByteRequest, Fault, Operation, Request};
use braid_engine::{BadLogWrite, Instant};
use braid_geometry::SECTOR_BYTES;
use tracing::{debug, error, field, info, trace, warn};

use crate::cause::AnswerWords;
use crate::members::Table;
use crate::members::handle::MemberHandle;
use crate::sync::Arc;

const ARRAY: &str = "braid_runtime::array";
const MEMBER: &str = "braid_runtime::member";
const REQUEST: &str = "braid_runtime::request";

/// Minimum nanoseconds between two warnings of failed requests.
const BETWEEN_WARNINGS_NS: u64 = 1_000_000_000;

/// Logs an event with its own fields, followed by the fields of a cause.
macro_rules! with_cause {
    ($level:ident, $target:expr, $cause:expr, $member:expr, { $($fields:tt)* }, $text:literal) => {{
        let cause: Option<Cause> = $cause;
        let place = cause.filter(|cause| cause.sectors > 0);
        $level!(
            target: $target,
            member = $member.map(|member: &MemberHandle| field::display(member.path().display())),
            operation = cause.map(|cause| cause.asked.word()),
            sector = place.map(|cause| cause.sector),
            sectors = place.map(|cause| cause.sectors),
            os_error = cause.and_then(|cause| cause.answer.os_error()),
            error = cause.map(|cause| field::display(AnswerWords(cause.answer))),
            $($fields)*
            $text
        )
    }};
}

/// Logs a request that failed at a member. The array logs its reaction separately.
pub(crate) fn member_failed(member: &MemberHandle, cause: &Cause) {
    with_cause!(
        debug, MEMBER, Some(*cause), Some(member), { slot = member.slot(), },
        "request failed at a member"
    );
}

/// Logs that the cache file could not be stamped with an update of superblocks.
pub(crate) fn cache_file_not_stamped(error: &std::io::Error) {
    error!(target: ARRAY, %error, "the file of answered writes cannot be written");
}

/// Logs that windows of a reshape cannot be copied.
pub(crate) fn no_window_copy(error: &std::io::Error) {
    error!(target: ARRAY, %error, "the file for copies of a reshape's windows cannot be made");
}

pub(crate) fn superblock(member: &MemberHandle, state: &SuperblockState) {
    debug!(
        target: MEMBER,
        member = %member.path().display(),
        slot = member.slot(),
        events = state.events,
        resync_offset = state.resync_offset,
        "superblock write"
    );
}

pub(crate) fn bad_blocks(member: &MemberHandle, write: &BadLogWrite) {
    debug!(
        target: MEMBER,
        member = %member.path().display(),
        slot = member.slot(),
        sectors = write.says.named().sectors(),
        "bad-block log write"
    );
}

pub(crate) fn bitmap(member: &MemberHandle, record: &BitmapRecord) {
    debug!(
        target: MEMBER,
        member = %member.path().display(),
        slot = member.slot(),
        events = record.head.events,
        bits = record.bits.set_count(),
        "bitmap write"
    );
}

/// Logs that all superblocks record every loss. Other reports of the array are logged as events.
pub(crate) fn recorded(events: u64, state: Option<Arc<SuperblockState>>) {
    info!(
        target: ARRAY,
        events,
        dirty = state.map(|state| state.resync_offset != u64::MAX),
        "superblocks are written"
    );
}

pub(crate) fn asked(request: &ByteRequest) {
    trace!(
        target: REQUEST,
        operation = byte_word(request.operation),
        offset = request.offset,
        length = request.length,
        "request"
    );
}

pub(crate) fn refused(request: &ByteRequest, why: &impl std::fmt::Display) {
    debug!(
        target: REQUEST,
        operation = byte_word(request.operation),
        offset = request.offset,
        length = request.length,
        error = %why,
        "request refused"
    );
}

#[derive(Debug, Default)]
pub(crate) struct Failures {
    /// Earliest moment of the next warning, in nanoseconds of the array's clock.
    next_ns: AtomicU64,
    unsaid: AtomicU64,
}

impl Failures {
    /// Logs a client's failed request; warns at most once a second, as thousands can fail at once.
    pub(crate) fn failed(
        &self,
        now: Instant,
        members: &Table,
        request: Option<&Request>,
        (fault, cause): (Fault, Option<Cause>),
    ) {
        let request_operation = request.map_or("flush", |request| word(request.operation));
        let offset = request.map(|request| request.start.0 * SECTOR_BYTES);
        let length = request.map(|request| request.sectors * SECTOR_BYTES);
        let member = cause.and_then(|cause| members.get(cause.member).map(|member| &**member));
        with_cause!(
            debug, REQUEST, cause, member,
            { request = request_operation, offset, length, fault = %fault, },
            "request failed"
        );
        if let Some(failed) = self.is_due(now) {
            with_cause!(
                warn, REQUEST, cause, member,
                { request = request_operation, offset, length, fault = %fault, failed, },
                "requests fail"
            );
        }
    }

    /// The number of failures since the last warning, if another warning is due.
    fn is_due(&self, now: Instant) -> Option<u64> {
        self.unsaid.fetch_add(1, Ordering::Relaxed);
        let next_ns = self.next_ns.load(Ordering::Relaxed);
        let then_ns = now.0 + BETWEEN_WARNINGS_NS;
        let is_due = now.0 >= next_ns
            && self
                .next_ns
                .compare_exchange(next_ns, then_ns, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        is_due.then(|| self.unsaid.swap(0, Ordering::Relaxed))
    }
}

pub(crate) fn started(
    (level, slots, missing): (&str, u16, usize),
    (size_bytes, read_only, shards): (u64, bool, u16),
    is_on_rings: bool,
) {
    let io = if is_on_rings { "ring" } else { "threads" };
    info!(
        target: ARRAY,
        raid_level = level, slots, missing, size_bytes, read_only, shards, io, "array has started"
    );
}

pub(crate) fn stopping() {
    info!(target: ARRAY, "array is being stopped");
}

/// Logs that a member has ended all its operations after being away, and does not return to the
/// array by itself.
pub(crate) fn stays_away(member: MemberId, why: &dyn std::fmt::Display) {
    warn!(target: ARRAY, member = member.0, %why, "a member stays away");
}

/// Logs that a setting has changed; `how` is its new value.
pub(crate) fn tuned(what: &str, how: &dyn std::fmt::Debug) {
    info!(target: ARRAY, what, how = ?how, "tuned");
}

fn word(operation: Operation) -> &'static str {
    match operation {
        Operation::Read => "read",
        Operation::Write { .. } => "write",
        Operation::WriteZeroes { .. } => "write-zeroes",
        Operation::Trim => "trim",
    }
}

fn byte_word(operation: ByteOperation) -> &'static str {
    match operation {
        ByteOperation::Read => "read",
        ByteOperation::Write { .. } => "write",
        ByteOperation::WriteZeroes { .. } => "write-zeroes",
        ByteOperation::Trim { .. } => "trim",
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn thousands_of_failures_are_one_warning_a_second() {
        let failures = Failures::default();
        let at = |ms: u64| Instant(ms * 1_000_000);
        assert_eq!(failures.is_due(at(5)), Some(1), "the first at once");
        for ms in 6..1005 {
            assert_eq!(failures.is_due(at(ms)), None);
        }
        assert_eq!(failures.is_due(at(1005)), Some(1000), "and how many there were");
        assert_eq!(failures.is_due(at(1006)), None);
    }
}
