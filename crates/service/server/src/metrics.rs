//! Metrics of a served array, and the port that serves them.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use braid_assembly::Tolerance;
use braid_control::{Names, ServedArray, routes};
use braid_events::metrics::{
    Disks, Elevator, FrontEnd, Member, MemberLink, MemberState, MetricsServer, ServerError,
    Snapshot, Source, parse_address,
};
use braid_events::{Identity, Voice};
use braid_frontend_nbd::{ErrorCode, Meter};
use braid_geometry::{Slot, layout_name};
use braid_member::LinkLook;
use braid_runtime::{ArrayView, Gate, MemberId, MemberView, Volume};

use super::report::Reporter;
use braid_console::error::code::Code;
use braid_console::error::system::is_shortage_of;
use braid_console::error::{CliError, Risk};
use braid_discovery::ready::Ready;

/// The address of the metrics port, and which metrics it serves.
#[derive(Clone, Debug)]
pub struct MetricsConfig {
    /// `ADDRESS:PORT`.
    pub address: String,
    /// The metrics address may be one that other machines can reach.
    pub is_public: bool,
    /// Include `node_md_...`, as node_exporter reports them for md's arrays.
    pub has_node_md: bool,
}

impl MetricsConfig {
    /// Validates the metrics address before the server starts.
    pub(super) fn check(&self) -> Result<(), CliError> {
        let parsed = parse_address(&self.address, self.is_public);
        parsed.map(drop).map_err(|error| refused(&error))
    }

    pub(super) fn start(
        &self,
        source: &Arc<ArrayMetrics>,
        served: &Arc<dyn ServedArray>,
    ) -> Result<MetricsServer, CliError> {
        let start = |address| {
            let source: Arc<dyn Source> = Arc::clone(source) as _;
            let names = if self.is_public { Names::Any } else { Names::Machine };
            let page = routes::looking_router(served);
            MetricsServer::start(address, vec![source], self.has_node_md, (page, names))
        };
        parse_address(&self.address, self.is_public)
            .and_then(start)
            .map_err(|error| refused(&error))
    }
}

fn refused(error: &ServerError) -> CliError {
    let code = match error {
        ServerError::Address(_) => Code::Usage,
        ServerError::NotLoopback(_) => Code::ListenNotLoopback,
        ServerError::System { source, .. } if is_shortage_of(source) => Code::Shortage,
        ServerError::System { .. } => Code::SocketBusy,
    };
    let error = CliError::new(code, "metrics cannot be served at this address").caused_by(error);
    let local = "braid serve --metrics 127.0.0.1:9101 MEMBER...";
    let error = error.remedy(Risk::Look, "Serve them on this machine", local);
    if code != Code::ListenNotLoopback {
        return error;
    }
    let public = "braid serve --metrics-public --metrics 0.0.0.0:9101 MEMBER...";
    error.remedy(Risk::Change, "Let other machines read them", public)
}

pub(super) struct ArrayMetrics {
    facts: ConstantFacts,
    /// A weak reference, so that a hanging scrape does not keep the array alive.
    volume: Weak<Volume>,
    reporter: Arc<Reporter>,
    meter: Meter,
    voice: Voice,
}

/// Facts that stay constant while the array is served.
pub(super) struct ConstantFacts {
    identity: Identity,
    level: String,
    layout: String,
    metadata: String,
}

impl ConstantFacts {
    pub(super) fn of(ready: &Ready, reporter: &Reporter) -> Self {
        let array = &ready.array;
        let facts = &array.newest.array;
        Self {
            identity: Identity {
                array: reporter.name().to_owned(),
                uuid: braid_ondisk::format_uuid(&facts.uuid),
            },
            level: facts.level.to_string(),
            layout: layout_name(facts.level, facts.layout).unwrap_or_default(),
            metadata: array.newest.version.to_string(),
        }
    }
}

impl ArrayMetrics {
    pub(super) fn new(
        facts: ConstantFacts,
        (volume, reporter): (&Arc<Volume>, &Arc<Reporter>),
        meter: Meter,
        voice: Voice,
    ) -> Self {
        let (volume, reporter) = (Arc::downgrade(volume), Arc::clone(reporter));
        Self { facts, volume, reporter, meter, voice }
    }

    fn members(
        &self,
        volume: &Volume,
        view: &ArrayView,
        failed: &BTreeMap<String, Option<u16>>,
    ) -> Vec<Member> {
        let sitting_out = volume.sitting_out();
        let looks = volume.look_at_members();
        let links: BTreeMap<MemberId, MemberLink> =
            looks.iter().filter_map(|look| Some((look.id, link(look.link.as_ref()?)))).collect();
        let errors: BTreeMap<MemberId, _> = volume.read_errors().into_iter().collect();
        let slots = slots_of(view).filter_map(|slot| Some((slot.0, view.member(slot)?)));
        let name = |id: MemberId| self.reporter.label(id);
        let in_slot = |(slot, member): (u16, &MemberView)| {
            let state = match (sitting_out.contains(&member.id), member.recovered_sectors) {
                (true, _) => MemberState::Slow,
                (false, u64::MAX) => MemberState::Active,
                (false, _) => MemberState::Rebuilding,
            };
            let corrected_read_errors = errors.get(&member.id).map_or(0, |one| one.corrected);
            Member {
                name: name(member.id),
                slot: Some(slot),
                state,
                corrected_read_errors,
                link: links.get(&member.id).copied(),
            }
        };
        let mut members: Vec<Member> = slots.map(in_slot).collect();
        let (waiting, away) = (volume.waiting(), volume.away());
        for member in looks {
            let (name, is_in) = (name(member.id), member.is_in);
            // A member that returned appears twice under one name; list the member once.
            if members.iter().any(|other| other.name == name) {
                continue;
            }
            let (slot, state) = match is_in || waiting.iter().any(|(id, _)| *id == member.id) {
                true => (None, MemberState::Spare),
                false if away.contains(&member.id) => {
                    (failed.get(&name).copied().flatten(), MemberState::Away)
                }
                false => (failed.get(&name).copied().flatten(), MemberState::Failed),
            };
            let link = links.get(&member.id).copied();
            members.push(Member { name, slot, state, corrected_read_errors: 0, link });
        }
        members
    }

    fn front_end(&self) -> FrontEnd {
        let counts = self.meter.counts();
        FrontEnd {
            name: "nbd",
            connections: counts.connections,
            accepted: counts.accepted,
            rejected: vec![
                ("full", counts.refused),
                ("evicted", counts.cut.evicted),
                ("idled", counts.cut.idled),
                ("stalled", counts.cut.stalled),
            ],
            requests: counts.requests,
            read_bytes: counts.bytes_read,
            written_bytes: counts.bytes_written,
            errors: ErrorCode::ALL.map(|code| (word(code), counts.errors_of(code))).to_vec(),
            payload_bytes: counts.bytes_in_flight,
        }
    }
}

impl Source for ArrayMetrics {
    fn snapshot(&self) -> Snapshot {
        let (facts, standing) = (&self.facts, self.voice.standing());
        let volume = self.volume.upgrade();
        let volume = volume.as_deref();
        let view = volume.map(Volume::view);
        let view = view.as_deref();
        let members = volume.zip(view);
        let members = members.map(|(volume, view)| self.members(volume, view, &standing.failed));
        let members = members.unwrap_or_default();
        let count = |state| members.iter().filter(|member| member.state == state).count() as u64;
        let of_volume = |value: fn(&Volume) -> u64| volume.map_or(0, value);
        let elevator = |state: braid_runtime::ElevatorState| {
            let counters = state.counters;
            Some(Elevator {
                slot: state.slot?,
                waiting_reads: counters.waiting_reads,
                waiting_writes: counters.waiting_writes,
                in_flight: counters.out,
                dispatched: counters.elevator.dispatched,
            })
        };
        let elevators = volume.map(Volume::elevators).unwrap_or_default();
        Snapshot {
            identity: facts.identity.clone(),
            level: facts.level.clone(),
            layout: facts.layout.clone(),
            metadata: facts.metadata.clone(),
            slots: view.map_or(0, |view| view.geometry.slots().into()),
            can_lose: view.map_or(0, can_lose),
            is_read_only: volume.is_some_and(Volume::is_read_only),
            size_bytes: of_volume(Volume::size_bytes),
            dirty_bytes: of_volume(Volume::dirty_bytes),
            bitmap_bits: volume.and_then(Volume::bitmap).map(|look| (look.bits_set, look.bits)),
            disks: Disks {
                active: count(MemberState::Active) + count(MemberState::Slow),
                rebuilding: count(MemberState::Rebuilding),
                spare: count(MemberState::Spare),
                failed: count(MemberState::Failed) + count(MemberState::Away),
                missing: view.map_or(0, |view| {
                    slots_of(view).filter(|slot| !is_whole(view, *slot)).count() as u64
                }),
            },
            job: volume.and_then(Volume::job),
            sat_out_ms: of_volume(Volume::sat_out_ms),
            counters: volume.map(|volume| volume.counters().named()).unwrap_or_default(),
            elevators: elevators.into_iter().filter_map(elevator).collect(),
            front_ends: vec![self.front_end()],
            told: self.voice.counts(),
            members,
            standing,
        }
    }
}

fn link(look: &LinkLook) -> MemberLink {
    let LinkLook { is_up, reconnects, mean_latency, .. } = look;
    MemberLink { is_up: *is_up, reconnects: *reconnects, mean_latency: *mean_latency }
}

fn slots_of(view: &ArrayView) -> impl Iterator<Item = Slot> {
    (0..view.geometry.slots()).map(Slot)
}

/// Whether the slot's member is completely recovered.
fn is_whole(view: &ArrayView, slot: Slot) -> bool {
    view.member(slot).is_some_and(|member| member.recovered_sectors == u64::MAX)
}

/// How many more members the array may lose, whichever they are; computed as in assembly.
fn can_lose(view: &ArrayView) -> u64 {
    if view.gate == Gate::Broken {
        return 0;
    }
    let is_in_sync = |slot| is_whole(view, slot);
    Tolerance::of(&view.geometry, view.resync_offset, &is_in_sync).can_lose.into()
}

fn word(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::Permission => "permission",
        ErrorCode::Io => "io",
        ErrorCode::Memory => "memory",
        ErrorCode::Invalid => "invalid",
        ErrorCode::NoSpace => "no-space",
        ErrorCode::Overflow => "overflow",
        ErrorCode::Unsupported => "not-supported",
        ErrorCode::Shutdown => "shutdown",
    }
}
