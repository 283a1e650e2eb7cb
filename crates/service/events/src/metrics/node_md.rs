//! Metrics of braid's arrays under the names of node_exporter's metrics for md's arrays. With these
//! names, node_exporter's rules and dashboards work: `NodeRAIDDegraded`, `NodeRAIDDiskFailure`.
//! Names and labels are those of its documentation; the label `device` is the array's name.

use std::fmt::Error;

use braid_runtime::JobKind;

use super::families::{Families, Labels, number};
use super::snapshot::{Snapshot, State};

/// node_exporter's states of an array; each state has a sample of its own.
const STATES: [&str; 5] = ["active", "inactive", "recovering", "resync", "check"];

/// Bytes in a block of node_exporter's metrics.
const BLOCK_BYTES: u64 = 1024;

pub(super) fn encode(snapshots: &[Snapshot], families: &mut Families<'_>) -> Result<(), Error> {
    let device = |one: &Snapshot| -> Labels { vec![("device", one.identity.array.clone())] };
    let each = |value: fn(&Snapshot) -> u64| {
        snapshots.iter().map(|one| (device(one), number(value(one)))).collect::<Vec<_>>()
    };
    let by_state = |values: fn(&Snapshot) -> Vec<(&'static str, u64)>| {
        let sample = |one: &Snapshot| {
            let with = |(state, count): (&str, u64)| {
                let mut labels = device(one);
                labels.push(("state", state.to_owned()));
                (labels, number(count))
            };
            values(one).into_iter().map(with).collect::<Vec<_>>()
        };
        snapshots.iter().flat_map(sample).collect::<Vec<_>>()
    };
    let states = by_state(|one| {
        let now = match one.state() {
            State::Stopped | State::Failed => "inactive",
            State::Rebuilding => "recovering",
            _ if one.is_doing(JobKind::Resync) => "resync",
            _ if one.is_doing(JobKind::Check) || one.is_doing(JobKind::Repair) => "check",
            State::Ok | State::Degraded | State::ReadOnly => "active",
        };
        STATES.map(|state| (state, u64::from(state == now))).to_vec()
    });
    families.gauge("node_md_state", "Indicates the state of md-device", states)?;
    let disks = by_state(|one| {
        vec![("active", one.disks.active), ("failed", one.disks.failed), ("spare", one.disks.spare)]
    });
    families.gauge("node_md_disks", "Number of active/failed/spare disks of device", disks)?;
    families.gauge(
        "node_md_disks_required",
        "Total number of disks of device",
        each(|one| one.slots),
    )?;
    families.gauge(
        "node_md_raid_disks",
        "Number of raid disks on device",
        each(|one| one.slots),
    )?;
    families.gauge(
        "node_md_degraded",
        "Number of degraded disks on device",
        each(|one| one.disks.missing),
    )?;
    families.gauge(
        "node_md_blocks",
        "Total number of blocks on device",
        each(|one| one.size_bytes / BLOCK_BYTES),
    )?;
    let synced = each(|one| {
        let blocks = one.size_bytes / BLOCK_BYTES;
        let share = |job: braid_runtime::JobProgress| {
            let done = u128::from(blocks) * u128::from(job.done) / u128::from(job.end.max(1));
            u64::try_from(done).unwrap_or(blocks).min(blocks)
        };
        one.job.map_or(blocks, share)
    });
    families.gauge("node_md_blocks_synced", "Number of blocks synced on device", synced)
}
