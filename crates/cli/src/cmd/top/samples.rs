//! A sample array at work, for tests.

use braid_control::model::{
    Array, Clients, ElevatorRow, Elevators, Found, Job, JobKind, JobPace, JobState, MemberRates,
    PacePhase, Rates, ReadErrors, Role, Settings, SliceRow, Slot, SlotState, VERSION,
};

use super::poller::ArrayAnswers;
use braid_discovery::running::RunningArray;
use braid_discovery::status::sample::tank;
use braid_discovery::status::words::Manner;

/// 2026-11-22 15:48:00 UTC, without more than ASCII.
pub(super) const NOW: Manner = Manner { is_unicode: false, utc_seconds: 1_795_362_480 };

fn slot(number: Option<u16>, member: Option<&str>, state: SlotState) -> Slot {
    let is_slow = state == SlotState::Slow;
    Slot {
        slot: number,
        replaces: None,
        member: member.map(str::to_owned),
        role: Role::Active,
        state,
        since: is_slow.then(|| "2026-11-22T14:02:11Z".into()),
        cause: is_slow.then(|| "it took 900 ms, and the others much less".into()),
        bad_sectors: 0,
        write_mostly: false,
        read_errors: ReadErrors::default(),
        link: None,
    }
}

fn jobs() -> Vec<Job> {
    let recovery = Job {
        kind: JobKind::Recovery,
        state: JobState::Running,
        from_bytes: 0,
        done_bytes: 412,
        total_bytes: 1000,
        percent: 41.2,
        bytes_per_second: Some(312 << 20),
        seconds_left: Some(6720),
        differing_sectors: 0,
        written_sectors: 0,
        unmade_sectors: 0,
        named_sectors: 0,
        found: Found::default(),
    };
    let check = Job { kind: JobKind::Check, state: JobState::Waiting, ..recovery.clone() };
    vec![recovery, check]
}

pub(super) fn elevators() -> Elevators {
    let row = |slot: u16| ElevatorRow {
        slot: Some(slot),
        rotational: Some(true),
        policy: "deadline".into(),
        depth: 32,
        read_expiry_ms: 500,
        write_expiry_ms: 5000,
        waiting_reads: 2,
        waiting_writes: 1,
        out: 4,
        inserted: 0,
        dispatched: 0,
        merged_back: 0,
        merged_front: 0,
        joined: 0,
        batches: 0,
        expired: 0,
        starved: 0,
        aged: 0,
        drained: 0,
        drained_batches: 0,
        drained_sizes: Vec::new(),
        dispatched_batches: 0,
        owner_misses: 0,
        read_bytes: 1 << 30,
        written_bytes: 1 << 30,
        errors: if slot == 1 { 9 } else { 0 },
    };
    let slice = SliceRow {
        start_ns: 0,
        share_permille: 350,
        flusher_ns: 17_500_000,
        busy_reads_ns: 12_000_000,
        busy_writes_ns: 8_000_000,
        held_reads: true,
        held_writes: false,
    };
    Elevators {
        version: VERSION,
        name: "tank".into(),
        uuid: "a1:b2:c3:d4".into(),
        settings: Settings::new(),
        is_multiplexed: true,
        elevators: (0..4).map(row).collect(),
        slices: vec![slice],
    }
}

fn array() -> Array {
    use SlotState::{Missing, Ok, Slow, Waiting};
    let clients =
        Clients { connections: 3, payload_bytes: 1 << 20, requests: 1000, ..Clients::default() };
    Array {
        slots: vec![
            slot(Some(0), Some("/dev/sdb"), Ok),
            slot(Some(1), Some("/dev/sdc"), Slow),
            slot(Some(2), Some("/dev/sdd"), Ok),
            slot(Some(3), None, Missing),
            slot(None, Some("/dev/sdf"), Waiting),
        ],
        jobs: jobs(),
        pace: Some(JobPace {
            phase: PacePhase::Shared,
            allowance_bytes: 8 << 20,
            in_flight_bytes: 4 << 20,
            alone_p99_ns: Some(1_230_000),
            target_p99_ns: Some(2_460_000),
        }),
        settings: Settings::from([
            ("cache".to_owned(), "writeback".into()),
            ("dirty-limit".to_owned(), (64 << 20).into()),
        ]),
        dirty_bytes: 32 << 20,
        bitmap: None,
        parity_logs: None,
        journal: None,
        clients,
        ..tank(&[Ok, Slow, Ok, Missing])
    }
}

pub(super) fn seen() -> ArrayAnswers {
    let running = RunningArray { control: "/run/braid/tank.control".into(), array: array() };
    ArrayAnswers { running, elevators: Some(elevators()) }
}

pub(super) fn rates() -> Rates {
    let row = |slot: u16| MemberRates {
        slot,
        read_bytes_per_second: 30 << 20,
        written_bytes_per_second: 10 << 20,
        errors: if slot == 1 { 2 } else { 0 },
    };
    Rates {
        over_ms: 1000,
        requests_per_second: 250,
        read_bytes_per_second: 120 << 20,
        written_bytes_per_second: 40 << 20,
        members: (0..4).map(row).collect(),
    }
}
