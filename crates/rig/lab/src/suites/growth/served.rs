//! `braid serve` with many members, workers, connections, or a large cache. The server is a
//! separate process, whose use of the machine the suite measures.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::super::cost::process::{ProcessUsage, resident_bytes};
use super::super::nbd::servers::{self, Server};
use braid_nbd_client::{Client, Command as Request};

use super::connect;
use super::{Axis, Measurement, Turn};
use crate::frame::{Metric, Report, Settings, Spread};
use crate::random::Random;

const MEMBERS: Axis = Axis {
    name: "members",
    ticks: &[(1.0, "3"), (2.0, "8"), (3.0, "16"), (4.0, "64"), (5.0, "128"), (6.0, "255")],
    values: &[3, 8, 16, 64, 128, 255],
};
const WORKERS: Axis = Axis {
    name: "workers",
    ticks: &[(1.0, "1"), (2.0, "2"), (3.0, "4"), (4.0, "8"), (5.0, "16")],
    values: &[1, 2, 4, 8, 16],
};
const CACHE: Axis = Axis {
    name: "stripe cache",
    ticks: &[(1.0, "1M"), (2.0, "16M"), (3.0, "256M"), (4.0, "1G"), (5.0, "4G")],
    values: &[1, 16, 256, 1024, 4096],
};
const CONNECTIONS: Axis = Axis {
    name: "connections",
    ticks: &[(1.0, "1"), (2.0, "10"), (3.0, "100"), (4.0, "1000"), (5.0, "10000")],
    values: &[1, 10, 100, 1000, 10_000],
};
#[cfg(test)]
pub(super) const AXES: &[Axis] = &[MEMBERS, WORKERS, CACHE, CONNECTIONS];

const CREATED: &str = "members: create, for each";
const STARTED: &str = "members: assembly and start, for each";
const RESIDENT: &str = "members: memory of a server, for each";
const BY_WORKERS: &str = "workers: 4 KiB read";
const CACHED: &str = "cache: memory of a server that has just started";
const IDLE: &str = "connections: memory of one that is idle";
const ONE: &str = "connections: 4 KiB read by one of them";
const ALL: &str = "connections: 4 KiB read by each in turn";

const READ_BYTES: u32 = 4096;
/// Descriptors that the process needs in addition to one for each connection.
const SPARE_DESCRIPTORS: u64 = 200;

struct ServedArray {
    server: Server,
    created_ms: f64,
    started_ms: f64,
    // Declared last, so that the folder outlives the server.
    _folder: tempfile::TempDir,
}

impl ServedArray {
    fn start(braid: &Path, members: u64, options: &[&str]) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let made = |n: u64| -> Result<PathBuf, String> {
            let path = folder.path().join(format!("{n}.member"));
            let file = std::fs::File::create(&path).map_err(|error| error.to_string())?;
            file.set_len(16 << 20).map_err(|error| error.to_string())?;
            Ok(path)
        };
        let members: Vec<PathBuf> = (0..members).map(made).collect::<Result<_, _>>()?;
        let state = folder.path().join("state");
        let start = Instant::now();
        let mut create = Command::new(braid);
        create.arg("--state-dir").arg(&state).args(["create", "lab", "--level", "5"]);
        let output = create.args(["--chunk", "64K", "--assume-clean"]).args(&members).output();
        let output = output.map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let created_ms = start.elapsed().as_secs_f64() * 1e3;
        let socket = folder.path().join("braid.sock");
        let mut serve = Command::new(braid);
        serve.arg("--state-dir").arg(&state).arg("serve").args(options);
        serve.arg("--nbd").arg(format!("nbd+unix:///?socket={}", socket.display())).args(&members);
        let start = Instant::now();
        let server = Server::start(&mut serve, &socket)?;
        let started_ms = start.elapsed().as_secs_f64() * 1e3;
        Ok(Self { server, created_ms, started_ms, _folder: folder })
    }

    fn resident_kib(&self) -> f64 {
        resident_bytes(self.server.pid()).map_or(0.0, |bytes| float(bytes) / 1024.0)
    }

    /// The server's processor time for a read, in nanoseconds. Clients read in turn, `at_once` at a
    /// time.
    fn read(&self, clients: &mut [Client], reads: usize, at_once: usize) -> Result<f64, String> {
        let places = clients[0].info().size_bytes / u64::from(READ_BYTES);
        let mut random = Random::new(9);
        let mut bytes = vec![0; READ_BYTES as usize];
        let before = ProcessUsage::by(self.server.pid())?;
        let mut done = 0;
        while done < reads {
            for group in clients.chunks_mut(at_once) {
                for client in &mut *group {
                    let offset = random.below(places) * u64::from(READ_BYTES);
                    let (length, dont_fragment) = (READ_BYTES, false);
                    let sent = client.send(Request::Read { offset, length, dont_fragment }, &[]);
                    sent.map_err(|error| error.to_string())?;
                }
                for client in &mut *group {
                    client.end(&mut bytes).map_err(|error| error.to_string())?;
                }
                done += group.len();
                if done >= reads {
                    break;
                }
            }
        }
        let used = ProcessUsage::by(self.server.pid())?.processor_ns - before.processor_ns;
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let reads = done as f64;
        Ok(float(used) / reads)
    }
}

pub(super) fn run(settings: &Settings, report: &mut Report) {
    let of = [CREATED, STARTED, RESIDENT, BY_WORKERS, CACHED, IDLE, ONE, ALL];
    if !of.iter().any(|name| settings.wants(name)) {
        return;
    }
    let braid = match servers::braid() {
        Ok(braid) => braid,
        Err(why) => return report.note(format!("served arrays: skipped, {why}")),
    };
    by_members(settings, report, &braid);
    by_cache(settings, report, &braid);
    by_workers(settings, report, &braid);
    by_connections(settings, report, &braid);
}

type Points = Vec<(&'static str, Vec<f64>)>;

fn by_members(settings: &Settings, report: &mut Report, braid: &Path) {
    if ![CREATED, STARTED, RESIDENT].iter().any(|name| settings.wants(name)) {
        return;
    }
    let (mut created, mut started, mut resident): (Points, Points, Points) = Default::default();
    for (members, name) in MEMBERS.points(settings) {
        let each = float(members);
        let (mut create, mut start, mut memory) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..settings.runs {
            match ServedArray::start(braid, members, &[]) {
                Ok(served) => {
                    create.push(served.created_ms / each);
                    start.push(served.started_ms / each);
                    memory.push(served.resident_kib() / each);
                }
                Err(why) => {
                    report.note(format!("{STARTED}: not with {name}, {why}"));
                    break;
                }
            }
        }
        if create.is_empty() {
            continue;
        }
        let all = |values: &[f64]| Spread::of(values).median * each;
        report.note(format!(
            "{name} members: created in {:.0} ms, served after {:.0} ms, {:.1} MiB",
            all(&create),
            all(&start),
            all(&memory) / 1024.0
        ));
        created.push((name, create));
        started.push((name, start));
        resident.push((name, memory));
    }
    let why = (1.0, "the process itself costs memory beside its one member");
    let measurement = |name, metric| Measurement { name, metric, most: why };
    let each = Metric::less("creation, a member", "ms");
    MEMBERS.told(settings, report, &measurement(CREATED, each), created);
    let each = Metric::less("start, a member", "ms");
    MEMBERS.told(settings, report, &measurement(STARTED, each), started);
    let each = Metric::less("memory, a member", "KiB");
    MEMBERS.told(settings, report, &measurement(RESIDENT, each), resident);
}

fn by_cache(settings: &Settings, report: &mut Report, braid: &Path) {
    if !settings.wants(CACHED) {
        return;
    }
    let mut points: Points = Vec::new();
    for (_, name) in CACHE.points(settings) {
        match ServedArray::start(
            braid,
            4,
            &["--cache-size", name, "--workers", "1", "--stripe-unit", "16K"],
        ) {
            Ok(served) => points.push((name, vec![served.resident_kib() / 1024.0])),
            Err(why) => report.note(format!("{CACHED}: not with {name}, {why}")),
        }
    }
    let most = (1.5, "stripes that were never used take no memory");
    let metric = Metric::less("memory of a server", "MiB");
    CACHE.told(settings, report, &Measurement { name: CACHED, metric, most }, points);
}

fn by_workers(settings: &Settings, report: &mut Report, braid: &Path) {
    if !settings.wants(BY_WORKERS) {
        return;
    }
    let reads = if settings.small { 200 } else { 40_000 };
    let mut all = Vec::new();
    for (_, name) in WORKERS.points(settings) {
        let served = ServedArray::start(braid, 4, &["--io", "ring", "--workers", name]);
        let with_clients = served.and_then(|served| {
            let clients = (0..32).map(|_| connect(served.server.socket()));
            Ok((clients.collect::<Result<Vec<_>, _>>()?, served))
        });
        match with_clients {
            Ok((clients, served)) => all.push((name, clients, served)),
            Err(why) => report.note(format!("{BY_WORKERS}: not with {name}, {why}")),
        }
    }
    let points = all.iter_mut().map(|(name, clients, served)| {
        // If the server has died, the figure is infinity, which the case shows.
        let turn = move || served.read(clients, reads, 32).unwrap_or(f64::INFINITY);
        (*name, Box::new(turn) as Turn<'_>)
    });
    let points = points.collect();
    let most = (2.0, "waking a sleeping worker costs more than the read");
    let metric = Metric::less("processor time of a read", "ns");
    WORKERS.race(settings, report, &Measurement { name: BY_WORKERS, metric, most }, points);
}

fn by_connections(settings: &Settings, report: &mut Report, braid: &Path) {
    if ![IDLE, ONE, ALL].iter().any(|name| settings.wants(name)) {
        return;
    }
    let most = CONNECTIONS.points(settings).last().map_or(0, |(count, _)| *count);
    // Each connection has a descriptor in this process, and one in the server.
    if let Err(why) = raise_descriptors(most + SPARE_DESCRIPTORS) {
        return report.note(format!("connections: skipped, {why}"));
    }
    let limit = most.max(16).to_string();
    let served = match ServedArray::start(braid, 4, &["--connections", &limit]) {
        Ok(served) => served,
        Err(why) => return report.note(format!("connections: skipped, {why}")),
    };
    let (mut idle, mut one, mut all): (Points, Points, Points) = Default::default();
    let mut clients: Vec<Client> = Vec::new();
    let before = served.resident_kib();
    for (count, name) in CONNECTIONS.points(settings) {
        let one_more = || connect(served.server.socket());
        let connected = (clients.len() as u64..count)
            .try_for_each(|_| one_more().map(|client| clients.push(client)));
        let memory = (served.resident_kib() - before).max(0.0) / float(count);
        let measured = connected.and_then(|()| measure(settings, &served, &mut clients));
        match measured {
            Ok((by_one, by_all)) => {
                idle.push((name, vec![memory]));
                one.push((name, by_one));
                all.push((name, by_all));
            }
            Err(why) => {
                report.note(format!("connections: not {name}, {why}"));
                break;
            }
        }
    }
    let measurement = |name, metric, most| Measurement { name, metric, most };
    let each = Metric::less("memory of a connection", "KiB");
    let flat = (1.5, "flat; one server had more and more of them");
    CONNECTIONS.told(settings, report, &measurement(IDLE, each, flat), idle);
    let each = Metric::less("processor time of a read", "ns");
    CONNECTIONS.told(settings, report, &measurement(ONE, each, flat), one);
    let caches = (2.0, "a connection's state leaves the processor's caches");
    CONNECTIONS.told(settings, report, &measurement(ALL, each, caches), all);
}

/// Measures the cost of a read through one client, then through all clients.
fn measure(
    settings: &Settings,
    served: &ServedArray,
    clients: &mut [Client],
) -> Result<(Vec<f64>, Vec<f64>), String> {
    let reads = if settings.small { 100 } else { 20_000 };
    let count = clients.len();
    // Read once before the measurement, so that the cost of first requests does not count.
    served.read(clients, count, 32)?;
    let (mut by_one, mut by_all) = (Vec::new(), Vec::new());
    for _ in 0..settings.runs {
        by_one.push(served.read(&mut clients[..1], reads, 1)?);
        by_all.push(served.read(clients, reads.max(count), 32)?);
    }
    Ok((by_one, by_all))
}

fn raise_descriptors(wanted: u64) -> Result<(), String> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(|error| error.to_string())?;
    if hard < wanted {
        return Err(format!("a process may have {hard} descriptors here, and {wanted} are needed"));
    }
    let set = setrlimit(Resource::RLIMIT_NOFILE, soft.max(wanted), hard);
    set.map_err(|error| error.to_string())
}

fn float(count: u64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let float = count as f64;
    float
}
