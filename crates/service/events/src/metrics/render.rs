//! Snapshots as OpenMetrics text.

use std::fmt::Error;

use braid_geometry::SECTOR_BYTES;
use braid_runtime::{JobKind, JobProgress};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::families::{Families, Labels, Sample, number};
use super::node_md;
use super::snapshot::{Member, MemberState, Snapshot, State};

/// The media type of OpenMetrics text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of these arrays as text, up to the `# EOF`; if `with_node_md`, also node_exporter's.
#[must_use]
pub fn render(snapshots: Vec<Snapshot>, with_node_md: bool) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Arrays { snapshots, with_node_md }));
    let mut text = String::new();
    encode(&mut text, &registry).expect("writing to a string does not fail");
    text
}

#[derive(Debug)]
struct Arrays {
    snapshots: Vec<Snapshot>,
    with_node_md: bool,
}

impl Collector for Arrays {
    fn encode(&self, encoder: DescriptorEncoder) -> Result<(), Error> {
        let families = &mut Families::new(encoder);
        let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
        families.gauge("braid_build_info", "The version of braid", vec![(version, 1.0)])?;
        self.arrays(families)?;
        self.members(families)?;
        self.jobs(families)?;
        self.work(families)?;
        self.front_ends(families)?;
        self.telling(families)?;
        if self.with_node_md { node_md::encode(&self.snapshots, families) } else { Ok(()) }
    }
}

impl Arrays {
    /// One sample of a metric for each array.
    fn each(&self, value: impl Fn(&Snapshot) -> u64) -> Vec<Sample> {
        self.snapshots.iter().map(|one| (of(one, []), number(value(one)))).collect()
    }

    /// Several samples of a metric for each array, which one more label distinguishes.
    fn by<'s, I: IntoIterator<Item = (String, u64)>>(
        &'s self,
        label: &'static str,
        values: impl Fn(&'s Snapshot) -> I,
    ) -> Vec<Sample> {
        let sample = |one: &'s Snapshot| {
            let values = values(one).into_iter();
            values
                .map(|(word, value)| (of(one, [(label, word)]), number(value)))
                .collect::<Vec<_>>()
        };
        self.snapshots.iter().flat_map(sample).collect()
    }

    fn arrays(&self, families: &mut Families<'_>) -> Result<(), Error> {
        let facts = |one: &Snapshot| {
            let labels = [
                ("uuid", one.identity.uuid.clone()),
                ("level", one.level.clone()),
                ("layout", one.layout.clone()),
                ("metadata", one.metadata.clone()),
            ];
            (of(one, labels), 1.0)
        };
        let facts = self.snapshots.iter().map(facts).collect();
        families.gauge("braid_array_info", "Facts about the array, as labels", facts)?;
        let states = self.by("state", |one| {
            let now = one.state();
            State::ALL.map(|state| (state.word().to_owned(), u64::from(state == now)))
        });
        families.gauge(
            "braid_array_state",
            "State of the array: 1 for the present state",
            states,
        )?;
        let can_lose = self.each(|one| one.can_lose);
        families.gauge(
            "braid_array_can_lose_disks",
            "Number of further members the array can lose",
            can_lose,
        )?;
        let degraded = self.each(|one| one.disks.missing);
        families.gauge(
            "braid_array_degraded_disks",
            "Slots without a fully rebuilt member",
            degraded,
        )?;
        let disks = self.by("role", |one| {
            let disks = one.disks;
            [
                ("active", disks.active),
                ("rebuilding", disks.rebuilding),
                ("spare", disks.spare),
                ("failed", disks.failed),
                ("missing", disks.missing),
            ]
            .map(|(role, count)| (role.to_owned(), count))
        });
        families.gauge("braid_array_disks", "Members by their role", disks)?;
        let sizes = self.each(|one| one.size_bytes);
        families.gauge("braid_array_size_bytes", "The size of the array", sizes)?;
        let dirty = self.each(|one| one.dirty_bytes);
        families.gauge(
            "braid_array_dirty_bytes",
            "Bytes acknowledged and not on the members yet",
            dirty,
        )?;
        let bitmaps = self.by("state", |one| {
            let counted = one.bitmap_bits.map(|(set, all)| [("set", set), ("clear", all - set)]);
            let named = |(state, count): (&str, u64)| (state.to_owned(), count);
            counted.into_iter().flatten().map(named).collect::<Vec<_>>()
        });
        families.gauge("braid_array_bitmap_bits", "Bits of the write-intent bitmap", bitmaps)?;
        let lost = self.each(|one| one.standing.lost_bytes);
        families.counter("braid_array_lost_bytes", "Bytes acknowledged and lost", lost)?;
        let checked =
            self.snapshots.iter().filter_map(|one| Some((one, one.standing.checked.as_ref()?)));
        let times = checked
            .clone()
            .map(|(one, checked)| (of(one, []), checked.time.since_unix().as_secs_f64()));
        let times = times.collect();
        families.gauge(
            "braid_scrub_last_completed_timestamp_seconds",
            "When the last check ended",
            times,
        )?;
        let found = |(one, checked): (&Snapshot, &crate::standing::CompletedCheck)| {
            (
                of(one, []),
                number(checked.counts.get("differing_sectors").copied().unwrap_or_default()),
            )
        };
        let found = checked.map(found).collect();
        families.gauge(
            "braid_scrub_mismatches",
            "Sectors that disagreed with the others in the last check",
            found,
        )
    }

    fn members(&self, families: &mut Families<'_>) -> Result<(), Error> {
        let states = self.snapshots.iter().flat_map(|one| {
            one.members.iter().flat_map(move |member| {
                MemberState::ALL.map(|state| {
                    let slot = member.slot.map_or_else(String::new, |slot| slot.to_string());
                    let labels = [
                        ("member", member.name.clone()),
                        ("slot", slot),
                        ("state", state.word().to_owned()),
                    ];
                    (of(one, labels), f64::from(u8::from(state == member.state)))
                })
            })
        });
        families.gauge(
            "braid_member_state",
            "State of the member: 1 for the present state",
            states.collect(),
        )?;
        let corrected = self.snapshots.iter().flat_map(|one| {
            one.members.iter().filter_map(move |member| {
                let slot = member.slot?.to_string();
                let labels = [("member", member.name.clone()), ("slot", slot)];
                Some((of(one, labels), number(member.corrected_read_errors)))
            })
        });
        let help = "Runs of sectors that the member could not read and that were rewritten from \
                    the others";
        families.counter("braid_member_corrected_read_errors", help, corrected.collect())?;
        let links = || {
            self.snapshots.iter().flat_map(|one| {
                let member = |one: &Member| Some((one.link?, [("member", one.name.clone())]));
                let members = one.members.iter().filter_map(member);
                members.map(move |(link, labels)| (link, of(one, labels)))
            })
        };
        let up = links().map(|(link, labels)| (labels, f64::from(u8::from(link.is_up))));
        let help = "Whether the member's server can be reached";
        families.gauge("braid_member_link_up", help, up.collect())?;
        let anew = links().map(|(link, labels)| (labels, number(link.reconnects)));
        let help = "Connections to the member's server that were made anew after a loss";
        families.counter("braid_member_link_reconnects", help, anew.collect())?;
        let latency = links().map(|(link, labels)| (labels, link.mean_latency.as_secs_f64()));
        let help = "Mean time of the last requests to the member's server";
        families.gauge("braid_member_link_latency_seconds", help, latency.collect())?;
        let sat_out =
            self.snapshots.iter().map(|one| (of(one, []), number(one.sat_out_ms) / 1000.0));
        let help = "Time that reads avoided slow members, all of them together";
        families.counter("braid_members_sat_out_seconds", help, sat_out.collect())?;
        let waiting = self.snapshots.iter().flat_map(|one| {
            one.elevators.iter().flat_map(move |elevator| {
                [("read", elevator.waiting_reads), ("write", elevator.waiting_writes)].map(
                    |(op, count)| {
                        let labels = [("slot", elevator.slot.to_string()), ("op", op.to_owned())];
                        (of(one, labels), number(count))
                    },
                )
            })
        });
        families.gauge(
            "braid_elevator_waiting_requests",
            "Requests that wait in the member's elevator",
            waiting.collect(),
        )?;
        let by_slot = |value: fn(&super::snapshot::Elevator) -> u64| {
            self.by("slot", move |one| {
                let elevators = one.elevators.iter();
                elevators
                    .map(move |elevator| (elevator.slot.to_string(), value(elevator)))
                    .collect::<Vec<_>>()
            })
        };
        let in_flight = by_slot(|elevator| elevator.in_flight);
        families.gauge(
            "braid_elevator_in_flight_requests",
            "Requests that the member's elevator has given to it",
            in_flight,
        )?;
        let dispatched = by_slot(|elevator| elevator.dispatched);
        families.counter(
            "braid_elevator_dispatched_requests",
            "Requests that the member's elevator gave to it so far",
            dispatched,
        )
    }

    /// Progress of jobs; an array without a job has no samples.
    fn jobs(&self, families: &mut Families<'_>) -> Result<(), Error> {
        let each = |value: fn(&JobProgress) -> f64| {
            let sample = |one: &Snapshot| {
                let job = one.job?;
                Some((of(one, [("kind", kind(job.kind).to_owned())]), value(&job)))
            };
            self.snapshots.iter().filter_map(sample).collect::<Vec<_>>()
        };
        let ratio = each(|job| if job.end == 0 { 1.0 } else { number(job.done) / number(job.end) });
        families.gauge("braid_sync_progress_ratio", "Progress of the job, 0 to 1", ratio)?;
        let done = each(|job| number(job.done * SECTOR_BYTES));
        families.gauge("braid_sync_done_bytes", "Position of the job", done)?;
        let size = each(|job| number(job.end * SECTOR_BYTES));
        families.gauge("braid_sync_size_bytes", "End of the job", size)?;
        let differing = each(|job| number(job.differing));
        let help = "Sectors that did not agree with the others, so far";
        families.gauge("braid_sync_differing_sectors", help, differing)?;
        let paused = each(|job| f64::from(u8::from(job.paused)));
        families.gauge("braid_sync_paused", "Whether the job waits to be resumed", paused)
    }

    /// The engine's counters, under the engine's names.
    fn work(&self, families: &mut Families<'_>) -> Result<(), Error> {
        let Some(first) = self.snapshots.first() else { return Ok(()) };
        for (name, _) in &first.counters {
            let value = |one: &Snapshot| {
                let found = one.counters.iter().find(|(other, _)| other == name);
                found.map_or(0, |(_, count)| *count)
            };
            let help = format!("The engine's count of {}", name.replace('_', " "));
            families.counter(&format!("braid_engine_{name}"), &help, self.each(value))?;
        }
        Ok(())
    }

    fn front_ends(&self, families: &mut Families<'_>) -> Result<(), Error> {
        let each = |value: fn(&super::snapshot::FrontEnd) -> u64| {
            self.by("frontend", move |one| {
                let fronts = one.front_ends.iter();
                fronts.map(move |front| (front.name.to_owned(), value(front))).collect::<Vec<_>>()
            })
        };
        let inner =
            |label: &'static str,
             values: fn(&super::snapshot::FrontEnd) -> Vec<(&'static str, u64)>| {
                self.snapshots
                    .iter()
                    .flat_map(move |one| {
                        one.front_ends.iter().flat_map(move |front| {
                            values(front).into_iter().map(move |(word, count)| {
                                let labels =
                                    [("frontend", front.name.to_owned()), (label, word.to_owned())];
                                (of(one, labels), number(count))
                            })
                        })
                    })
                    .collect::<Vec<_>>()
            };
        families.gauge(
            "braid_frontend_connections",
            "Connections now",
            each(|front| front.connections),
        )?;
        families.counter(
            "braid_frontend_accepted",
            "Connections accepted",
            each(|front| front.accepted),
        )?;
        let rejected = inner("reason", |front| front.rejected.clone());
        families.counter("braid_frontend_rejected", "Connections turned away or cut", rejected)?;
        families.gauge(
            "braid_frontend_payload_bytes",
            "Payload bytes in flight",
            each(|front| front.payload_bytes),
        )?;
        families.counter(
            "braid_io_requests",
            "Requests of clients",
            each(|front| front.requests),
        )?;
        let bytes =
            inner("op", |front| vec![("read", front.read_bytes), ("write", front.written_bytes)]);
        families.counter("braid_io_bytes", "Bytes that clients read and wrote", bytes)?;
        let errors = inner("error", |front| front.errors.clone());
        families.counter("braid_io_errors", "Errors returned to clients", errors)
    }

    fn telling(&self, families: &mut Families<'_>) -> Result<(), Error> {
        let kinds = self.by("kind", |one| {
            let kinds = one.standing.events.iter();
            kinds.map(|(kind, count)| (kind.to_string(), *count)).collect::<Vec<_>>()
        });
        families.counter("braid_events", "Events reported since the start", kinds)?;
        let dropped = self.each(|one| one.told.dropped);
        families.counter(
            "braid_events_dropped",
            "Changes dropped because they came too fast",
            dropped,
        )?;
        let unwritten = self.each(|one| one.told.unwritten);
        families.gauge("braid_events_unwritten", "Events missing in the history", unwritten)?;
        let hooks = self.snapshots.iter().flat_map(|one| {
            one.told.outlets.iter().flat_map(move |(hook, counts)| {
                let results = [
                    ("delivered", counts.delivered),
                    ("retried", counts.retried),
                    ("failed", counts.failed),
                    ("dropped", counts.dropped),
                ];
                results.map(|(result, count)| {
                    let labels = [("hook", (*hook).to_owned()), ("result", result.to_owned())];
                    (of(one, labels), number(count))
                })
            })
        });
        families.counter("braid_hook_events", "Events at hooks by result", hooks.collect())
    }
}

/// A job's kind as a label: md's words, except for the recovery of members.
const fn kind(kind: JobKind) -> &'static str {
    match kind {
        JobKind::Resync => "resync",
        JobKind::Recovery => "recovery",
        JobKind::Replace => "replace",
        JobKind::Check => "check",
        JobKind::Repair => "repair",
        JobKind::Reshape => "reshape",
    }
}

/// The label with the array's name, and the labels in `others`.
fn of(one: &Snapshot, others: impl IntoIterator<Item = (&'static str, String)>) -> Labels {
    let mut labels = vec![("array", one.identity.array.clone())];
    labels.extend(others);
    labels
}
