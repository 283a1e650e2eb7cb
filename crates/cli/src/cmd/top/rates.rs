//! The rates between two polls of an array: pure. Counters only grow while one process serves one
//! array. If a counter shrank, the polls are of two runs or two members, and there is no rate.

use std::path::Path;
use std::time::Duration;

use braid_control::model::{Array, Elevators, MemberRates, Rates};

use super::poller::{ArrayAnswers, ArraysSnapshot};

/// The rates of the array at a control socket.
pub(super) fn between(
    before: &ArraysSnapshot,
    now: &ArraysSnapshot,
    control: &Path,
) -> Option<Rates> {
    rates(before.of(control)?, now.of(control)?, now.at.saturating_sub(before.at))
}

fn rates(before: &ArrayAnswers, now: &ArrayAnswers, over: Duration) -> Option<Rates> {
    let (old, new) = (&before.running.array, &now.running.array);
    let is_one_run = (old.server.pid, &old.server.since, &old.uuid)
        == (new.server.pid, &new.server.since, &new.uuid);
    let over_ms = u64::try_from(over.as_millis()).ok().filter(|over_ms| *over_ms > 0)?;
    let rate = |old: u64, new: u64| {
        let grown = u128::from(new.checked_sub(old)?) * 1000 / u128::from(over_ms);
        u64::try_from(grown).ok()
    };
    let members = match (&before.elevators, &now.elevators) {
        (Some(before), Some(now)) => members((old, before), (new, now), rate),
        _ => Vec::new(),
    };
    let (old, new) = (&old.clients, &new.clients);
    is_one_run.then_some(())?;
    Some(Rates {
        over_ms,
        requests_per_second: rate(old.requests, new.requests)?,
        read_bytes_per_second: rate(old.bytes_read, new.bytes_read)?,
        written_bytes_per_second: rate(old.bytes_written, new.bytes_written)?,
        members,
    })
}

fn members(
    (old, before): (&Array, &Elevators),
    (new, now): (&Array, &Elevators),
    rate: impl Fn(u64, u64) -> Option<u64>,
) -> Vec<MemberRates> {
    let path = |array: &Array, slot: u16| {
        let row = array.slots.iter().find(|row| row.slot == Some(slot));
        row.and_then(|row| row.member.clone())
    };
    let rates = now.elevators.iter().filter_map(|row| {
        let slot = row.slot?;
        let was = before.elevators.iter().find(|was| was.slot == Some(slot))?;
        // If another member has the slot now, its counters do not continue the old member's.
        (path(old, slot) == path(new, slot)).then_some(())?;
        Some(MemberRates {
            slot,
            read_bytes_per_second: rate(was.read_bytes, row.read_bytes)?,
            written_bytes_per_second: rate(was.written_bytes, row.written_bytes)?,
            errors: row.errors.checked_sub(was.errors)?,
        })
    });
    rates.collect()
}

#[cfg(test)]
mod tests {
    use super::super::samples::{elevators, seen};
    use super::*;

    fn over(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_rate_is_what_a_count_has_grown_by_in_a_second() {
        let (before, mut now) = (seen(), seen());
        let clients = &mut now.running.array.clients;
        clients.requests += 500;
        clients.bytes_read += 1 << 20;
        clients.bytes_written += 3;
        let rows = &mut now.elevators.as_mut().expect("they were asked").elevators;
        rows[1].read_bytes += 4096;
        rows[1].written_bytes += 8192;
        rows[1].errors += 7;
        let rates = rates(&before, &now, over(2000)).expect("one run");
        assert_eq!((rates.over_ms, rates.requests_per_second), (2000, 250));
        assert_eq!(rates.read_bytes_per_second, 512 << 10);
        assert_eq!(rates.written_bytes_per_second, 1, "cut, not rounded");
        let one = MemberRates {
            slot: 1,
            read_bytes_per_second: 2048,
            written_bytes_per_second: 4096,
            errors: 7,
        };
        assert_eq!(rates.members[1], one);
        assert_eq!(rates.members[0].read_bytes_per_second, 0);
    }

    #[test]
    fn two_runs_and_no_time_have_no_rates() {
        let before = seen();
        assert_eq!(rates(&before, &seen(), over(0)), None);
        let mut later = seen();
        later.running.array.server.pid += 1;
        assert_eq!(rates(&before, &later, over(1000)), None);
        let mut back = seen();
        back.running.array.clients.requests = 0;
        let mut grown = before.clone();
        grown.running.array.clients.requests = 9;
        assert_eq!(rates(&grown, &back, over(1000)), None, "counts do not fall");
    }

    #[test]
    fn another_member_in_the_slot_has_no_rates_yet() {
        let (before, mut now) = (seen(), seen());
        now.running.array.slots[0].member = Some("/dev/sdz".into());
        now.elevators.as_mut().expect("they were asked").elevators[0].read_bytes += 1 << 30;
        let slots = |rates: Rates| rates.members.iter().map(|row| row.slot).collect::<Vec<_>>();
        assert_eq!(rates(&before, &now, over(1000)).map(slots), Some(vec![1, 2, 3]));
        now.elevators = None;
        assert_eq!(rates(&before, &now, over(1000)).map(slots), Some(vec![]));
        assert_eq!(elevators().elevators.len(), 4);
    }

    #[test]
    fn a_count_of_any_size_is_no_overflow() {
        let (mut before, mut now) = (seen(), seen());
        before.running.array.clients.bytes_read = 0;
        now.running.array.clients.bytes_read = u64::MAX;
        let rate = rates(&before, &now, over(1000)).map(|rates| rates.read_bytes_per_second);
        assert_eq!(rate, Some(u64::MAX));
        assert_eq!(rates(&before, &now, over(1)), None, "no number says it");
    }
}
