//! Sample arrays for tests.

use std::collections::BTreeMap;

use braid_control::model::{
    Array, Clients, ReadErrors, Role, Server, Settings, Slot, SlotState, State, VERSION,
};

/// A slot's row in the array's status, with this state.
pub fn slot(number: u16, state: SlotState) -> Slot {
    let is_there = !matches!(state, SlotState::Missing);
    let is_new = matches!(state, SlotState::Failed | SlotState::Slow);
    Slot {
        slot: Some(number),
        replaces: None,
        member: is_there.then(|| format!("/dev/sd{}", ["b", "c", "d", "e"][usize::from(number)])),
        role: Role::Active,
        state,
        since: is_new.then(|| "2026-11-22T14:02:11Z".to_owned()),
        cause: is_new.then(|| "write of 8 sectors at sector 8 failed".to_owned()),
        bad_sectors: 0,
        write_mostly: false,
        read_errors: ReadErrors::default(),
        link: None,
    }
}

/// A spare's row in the array's status.
pub fn spare(path: &str) -> Slot {
    let (slot, member) = (None, Some(path.to_owned()));
    Slot { slot, member, role: Role::Spare, ..self::slot(0, SlotState::Waiting) }
}

/// A RAID-6 called tank, its slots in these states.
pub fn tank(states: &[SlotState]) -> Array {
    let slots: Vec<Slot> = (0..).zip(states).map(|(number, state)| slot(number, *state)).collect();
    let is_whole = states.iter().all(|state| matches!(state, SlotState::Ok | SlotState::Slow));
    Array {
        reshape: None,
        whole_size_bytes: None,
        version: VERSION,
        name: "tank".into(),
        uuid: "a1:b2:c3:d4".into(),
        level: "raid6".into(),
        layout: Some("left-symmetric".into()),
        metadata: "1.2".into(),
        chunk_bytes: Some(512 << 10),
        size_bytes: 4 << 30,
        state: if is_whole { State::Ok } else { State::Degraded },
        read_only: false,
        dirty: false,
        can_lose: 1,
        parity_in_doubt: false,
        copies_in_doubt: false,
        slots,
        replaced: Vec::new(),
        left_out: Vec::new(),
        jobs: Vec::new(),
        last_jobs: Vec::new(),
        next_check: None,
        jobs_paused: false,
        pace: None,
        advice: Vec::new(),
        failure: None,
        lost: None,
        uris: vec!["nbd+unix:///tank?socket=/run/braid/tank.sock".into()],
        file: None,
        device: None,
        vhost_user: None,
        settings: Settings::new(),
        dirty_bytes: 3 << 20,
        bitmap: None,
        parity_logs: None,
        journal: None,
        clients: Clients::default(),
        sat_out_ms: 0,
        counters: BTreeMap::new(),
        confined: Vec::new(),
        server: Server {
            pid: 7,
            version: "0".into(),
            control: "/run/braid/tank.control".into(),
            log: None,
            since: "2026-11-22T14:00:00Z".into(),
            stopping: false,
        },
    }
}
