//! State of a running array for the control API: facts from its start, and its state now.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use braid_assembly::Tolerance;
use braid_control::model::{
    Array, Bitmap, Failure, Journal, Link, ParityLogs, ReadErrors, Role, Server, Slot, SlotState,
    State, VERSION,
};
use braid_geometry::{Level, SECTOR_BYTES, Slot as SlotNumber, layout_name};
use braid_member::LinkLook;
use braid_ondisk::format_uuid;
use braid_runtime::{ArrayView, Gate, MemberId, MemberLook, Volume};

use super::jobs::Ground;
use super::setting::{self, ArrayParts};
use super::shape_words;
use crate::client_addresses::ClientAddresses;
use crate::clients as limits;
use crate::health::{Health, Incident, absolute};
use crate::jobs::{Due, pace};
use braid_console::output::shell::shell_word;
use braid_console::output::utc::{now_seconds, rfc3339_utc};
use braid_discovery::ready::Ready;
use braid_discovery::running;
use braid_discovery::status::advice::advice;
use braid_discovery::status::words::Manner;

/// Facts from the array's start, and incidents since.
pub(crate) struct Facts {
    pub(super) name: String,
    pub(super) uuid: String,
    layout: Option<String>,
    pub(super) metadata: String,
    since: String,
    health: Arc<Health>,
    /// Where clients reach the array; set once it is served.
    pub(crate) addresses: ClientAddresses,
    /// The control socket's path; set once it listens.
    pub(crate) control: String,
    /// The server's output file, if it has one.
    pub(crate) log: Option<String>,
    /// Areas that the process has closed off; set once the process is confined.
    pub(crate) confined: Vec<String>,
}

/// The state of the array on which the answers to job requests depend.
pub(super) fn ground(volume: &Volume) -> Ground {
    let (view, geometry) = (volume.view(), volume.geometry());
    let slots = || (0..slot_count(&view)).map(|slot| view.member(SlotNumber(slot)));
    Ground {
        is_redundant: !matches!(geometry.level(), Level::Linear | Level::Raid0),
        is_read_only: volume.is_read_only(),
        has_failed: view.gate == Gate::Broken,
        missing_count: slots().filter(Option::is_none).count(),
        is_recovering: slots().flatten().any(|member| member.recovered_sectors != u64::MAX),
        is_replacing: slots().flatten().any(|member| member.replacement.is_some()),
        is_dirty: view.resync_offset != u64::MAX,
    }
}

/// The number of slots; during a reshape, the number in the shape with more slots.
fn slot_count(view: &ArrayView) -> u16 {
    u16::try_from(view.slots.len()).expect("slots are numbered by u16")
}

/// The array's state in one word, as its view shows it.
pub(crate) fn state_of(view: &ArrayView) -> State {
    let is_in_sync = |slot: SlotNumber| {
        view.member(slot).is_some_and(|member| member.recovered_sectors == u64::MAX)
    };
    if view.gate == Gate::Broken {
        State::Failed
    } else if (0..slot_count(view)).map(SlotNumber).all(is_in_sync) {
        State::Ok
    } else {
        State::Degraded
    }
}

impl Facts {
    pub(crate) fn new(name: &str, ready: &Ready, health: Arc<Health>) -> Self {
        let array = &ready.array;
        let facts = &array.newest.array;
        for (slot, one) in (0..).zip(&array.slots) {
            if let Some(one) = one {
                health.note_seat(slot, &ready.verdicts[one.member].label);
            }
        }
        for (slot, one) in &array.replacements {
            health.note_filling(slot.0, &ready.verdicts[one.member].label);
        }
        Self {
            name: name.to_owned(),
            uuid: format_uuid(&facts.uuid),
            layout: layout_name(facts.level, array.shape.layout),
            metadata: array.newest.version.to_string(),
            since: rfc3339_utc(now_seconds()),
            health,
            addresses: ClientAddresses::default(),
            control: String::new(),
            log: None,
            confined: Vec::new(),
        }
    }

    /// The array's name in commands: its own name if commands find the array by it, else the path
    /// of the array's control socket.
    pub(super) fn word(&self) -> String {
        // Without a control socket no command finds the array; the name only identifies it.
        let is_found = self.control.is_empty()
            || running::control_path(&self.name) == Path::new(&self.control);
        let word = if is_found { &self.name } else { &self.control };
        shell_word(word).into_owned()
    }

    pub(super) fn array(&self, running: &ArrayParts, stopping: bool) -> Array {
        let ArrayParts { volume, tuner, board, .. } = running;
        // Reads the waiting spares before the view. A spare that gets a slot between the two reads
        // appears in the view.
        let waiting = volume.waiting();
        let view = volume.view();
        let geometry = volume.geometry();
        let is_in_sync = |slot: SlotNumber| {
            view.member(slot).is_some_and(|member| member.recovered_sectors == u64::MAX)
        };
        let tolerance = Tolerance::of(&geometry, view.resync_offset, &is_in_sync);
        let state = state_of(&view);
        let has_failed = state == State::Failed;
        let told = board.snapshot(volume);
        let counters = volume.counters().named();
        let counters = counters.into_iter().map(|(name, count)| (name.to_owned(), count));
        let mut array = Array {
            version: VERSION,
            name: self.name.clone(),
            uuid: self.uuid.clone(),
            level: geometry.level().name().to_owned(),
            layout: match geometry.level() {
                // The superblocks of a RAID-0 may leave its layout open, so the layout is the one
                // with which the array started.
                Level::Raid0 | Level::Linear => self.layout.clone(),
                level => layout_name(level, geometry.layout()),
            },
            metadata: self.metadata.clone(),
            chunk_bytes: match u64::from(geometry.chunk_sectors()) * SECTOR_BYTES {
                0 => None,
                bytes => Some(bytes),
            },
            size_bytes: volume.size_bytes(),
            whole_size_bytes: Some(volume.whole_size_bytes())
                .filter(|bytes| *bytes > volume.size_bytes()),
            state,
            read_only: volume.is_read_only(),
            dirty: view.resync_offset != u64::MAX,
            can_lose: if has_failed { 0 } else { tolerance.can_lose },
            parity_in_doubt: tolerance.parity_in_doubt,
            copies_in_doubt: tolerance.copies_in_doubt,
            slots: with_links(self.slots(volume, &view, waiting), volume),
            replaced: self.replaced(),
            left_out: self.health.left_out(),
            jobs: told.jobs,
            last_jobs: told.last,
            next_check: match board.check_due(now_seconds()) {
                Due::Never => None,
                Due::At(at) | Due::Since(at) => Some(rfc3339_utc(at)),
            },
            reshape: shape_words::reshape_of(volume),
            jobs_paused: told.is_paused,
            pace: volume.job_look().as_ref().map(pace),
            advice: Vec::new(),
            failure: self.health.failure().filter(|_| has_failed),
            lost: self.health.lost(),
            uris: self.addresses.uris.clone(),
            file: self.addresses.file.clone(),
            device: self.addresses.device.clone(),
            vhost_user: self.addresses.vhost_user.clone(),
            settings: setting::all(running),
            dirty_bytes: volume.dirty_bytes(),
            bitmap: volume.bitmap().map(|look| Bitmap {
                bit_bytes: look.bit_bytes,
                bits: look.bits,
                bits_set: look.bits_set,
                unwritten: look.unwritten,
            }),
            parity_logs: volume.parity_logs().map(|are_kept| match are_kept {
                true => ParityLogs::Kept,
                false => ParityLogs::Pending,
            }),
            journal: volume.journal().map(|look| Journal {
                path: volume
                    .member_path(look.member)
                    .map_or_else(String::new, |path| absolute(&path.to_string_lossy())),
                used_bytes: look.used_sectors * SECTOR_BYTES,
                size_bytes: look.ring_sectors * SECTOR_BYTES,
            }),
            clients: limits::state(tuner),
            sat_out_ms: volume.sat_out_ms(),
            counters: counters.collect::<BTreeMap<_, _>>(),
            confined: self.confined.clone(),
            server: Server {
                pid: std::process::id(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                control: self.control.clone(),
                log: self.log.clone(),
                since: self.since.clone(),
                stopping,
            },
        };
        if volume.is_striping() {
            shape_words::show_striped(&mut array);
        }
        let manner = Manner { is_unicode: true, ..Manner::now() };
        array.advice = advice(&array, &self.word(), manner);
        array
    }

    /// One row for each slot, then one for each replacement and each spare.
    fn slots(
        &self,
        volume: &Volume,
        view: &ArrayView,
        mut waiting: Vec<(MemberId, Option<SlotNumber>)>,
    ) -> Vec<Slot> {
        let sitting_out = volume.sitting_out();
        let known: BTreeMap<MemberId, _> = volume.read_errors().into_iter().collect();
        let errors = |member: MemberId| {
            let errors = known.get(&member).copied().unwrap_or_default();
            let (corrected, recent, over_limit) = (errors.corrected, errors.recent, errors.is_over);
            ReadErrors { corrected, recent, over_limit }
        };
        let is_sound = |failure: &Failure| failure.out_of_space || failure.write_protected;
        let failure = self.health.failure().filter(|failure| !is_sound(failure));
        let path =
            |member| volume.member_path(member).map(|path| absolute(&path.to_string_lossy()));
        let row = |number: u16| match view.member(SlotNumber(number)) {
            Some(member) => {
                let member_path = path(member.id);
                // A failed member beyond the tolerated number keeps its slot: the array no longer
                // updates superblocks.
                if let Some(failure) = &failure
                    && member_path.as_ref() == Some(&failure.member)
                {
                    return Slot {
                        slot: Some(number),
                        replaces: None,
                        member: member_path,
                        role: Role::Active,
                        state: SlotState::Failed,
                        since: Some(failure.since.clone()),
                        cause: Some(failure.cause.clone()),
                        bad_sectors: member.bad_blocks.sectors(),
                        write_mostly: member.is_write_mostly,
                        read_errors: errors(member.id),
                        link: None,
                    };
                }
                let slow = self.health.slow(number).filter(|_| sitting_out.contains(&member.id));
                let state = match (sitting_out.contains(&member.id), member.recovered_sectors) {
                    (true, _) => SlotState::Slow,
                    (false, u64::MAX) => SlotState::Ok,
                    (false, _) => SlotState::Recovering,
                };
                Slot {
                    slot: Some(number),
                    replaces: None,
                    member: member_path,
                    role: Role::Active,
                    state,
                    since: slow.as_ref().map(|slow| slow.since.clone()),
                    cause: slow.map(|slow| slow.cause),
                    bad_sectors: member.bad_blocks.sectors(),
                    write_mostly: member.is_write_mostly,
                    read_errors: errors(member.id),
                    link: None,
                }
            }
            None => self.empty(number),
        };
        let mut slots: Vec<Slot> = (0..slot_count(view)).map(row).collect();
        let replacements = (0..slot_count(view)).filter_map(|number| {
            let member = view.member(SlotNumber(number))?;
            let id = member.replacement?;
            Some(Slot {
                slot: None,
                replaces: Some(number),
                member: path(id),
                role: Role::Replacement,
                state: SlotState::Filling,
                since: None,
                cause: None,
                bad_sectors: member.replacement_bad_blocks.sectors(),
                write_mostly: false,
                read_errors: ReadErrors::default(),
                link: None,
            })
        });
        slots.extend(replacements);
        waiting.retain(|(id, _)| !view.is_used(*id));
        let spares = waiting.into_iter().map(|(id, replaces)| Slot {
            slot: None,
            replaces: replaces.map(|slot| slot.0),
            member: path(id),
            role: Role::Spare,
            state: SlotState::Waiting,
            since: None,
            cause: None,
            bad_sectors: 0,
            write_mostly: false,
            read_errors: ReadErrors::default(),
            link: None,
        });
        slots.extend(spares);
        slots
    }

    /// Members that lost their slot to another member, and failed spares.
    fn replaced(&self) -> Vec<Slot> {
        let row = |(slot, out): (Option<u16>, Incident)| Slot {
            slot,
            replaces: None,
            member: Some(out.member),
            role: Role::None,
            state: if out.is_replaced { SlotState::Replaced } else { SlotState::Failed },
            since: Some(out.since),
            cause: Some(out.cause),
            bad_sectors: 0,
            write_mostly: false,
            read_errors: ReadErrors::default(),
            link: None,
        };
        self.health.replaced().into_iter().map(row).collect()
    }

    fn empty(&self, number: u16) -> Slot {
        let missing = |since, cause| Slot {
            slot: Some(number),
            replaces: None,
            member: None,
            role: Role::None,
            state: SlotState::Missing,
            since,
            cause,
            bad_sectors: 0,
            write_mostly: false,
            read_errors: ReadErrors::default(),
            link: None,
        };
        if let Some(gone) = self.health.gone(number) {
            return missing(Some(gone.since), Some(gone.cause));
        }
        let out = self.health.out(number);
        // Without an incident, the slot's last member went out a moment ago, and the notice about
        // that member has not arrived yet.
        let member =
            out.as_ref().map(|out| out.member.clone()).or_else(|| self.health.seat(number));
        if member.is_none() {
            return missing(None, None);
        }
        let is_away = out.as_ref().is_some_and(|out| out.is_away);
        let (since, cause) = out.map(|out| (out.since, out.cause)).unzip();
        let (slot, role) = (Some(number), Role::None);
        let state = if is_away { SlotState::Away } else { SlotState::Failed };
        Slot {
            slot,
            replaces: None,
            member,
            role,
            state,
            since,
            cause,
            bad_sectors: 0,
            write_mostly: false,
            read_errors: ReadErrors::default(),
            link: None,
        }
    }
}
/// The rows, each with the connections of its member, if the member is on another host.
fn with_links(mut rows: Vec<Slot>, volume: &Volume) -> Vec<Slot> {
    let of = |look: MemberLook| {
        let LinkLook { is_up, last_loss, reconnects, mean_latency, .. } = look.link?;
        let last_loss = Some(last_loss).filter(|text| !text.is_empty());
        let mean_latency_us = u64::try_from(mean_latency.as_micros()).unwrap_or(u64::MAX);
        let link = Link { is_up, reconnects, last_loss, mean_latency_us };
        Some((absolute(&look.path.to_string_lossy()), link))
    };
    let links: BTreeMap<String, Link> =
        volume.look_at_members().into_iter().filter_map(of).collect();
    for row in &mut rows {
        row.link = row.member.as_ref().and_then(|member| links.get(member)).cloned();
    }
    rows
}
