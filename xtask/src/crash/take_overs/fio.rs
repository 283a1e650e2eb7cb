//! fio as the client, behind `qemu-storage-daemon`, which keeps the connection to fio.
//!
//! ```text
//!   fio ─ NBD ─ qemu-storage-daemon ─ NBD ─ link to the owner's socket ─ owner, or its heir
//! ```
//!
//! fio writes every block once in random order, flushes at intervals, reads all blocks back and
//! ends. A new fio with another seed follows. The hook of the owner that begins to serve moves the
//! link, and the daemon sends the unanswered requests again. The connection to a sleeping owner
//! stays until this owner has been woken.
//!
//! fio compares checksum, place and number of each block. Numbers come from fio's random order: a
//! block of an earlier fio has another number, except by chance (1 in 4,608, the array's blocks).
//!
//! Invariants: a lost block, or a request with an error, ends the rounds; so does an heir that gets
//! no writes.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use rustix::process::Signal;
use serde_json::Value;

use super::cluster::{Process, wait_for};
use super::{Plan, REFUSED, SLEEP, Soak, Way, end_owner, serving};
use crate::server::send;

pub(super) const PROGRAMS: [&str; 2] = ["fio", "qemu-storage-daemon"];
const BLOCK_BYTES: u64 = 4096;
/// The time that the daemon waits for an owner.
const RECONNECT_SECONDS: u32 = 60;

/// The blocks that fio has written and read back.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    runs: u64,
    blocks: u64,
    /// The longest time from a request to its answer.
    longest: Duration,
}

/// fio in a thread, run again and again.
pub(super) struct Fio {
    is_over: Arc<AtomicBool>,
    tally: Arc<Mutex<Tally>>,
    thread: Option<JoinHandle<Result<()>>>,
    /// The daemon; its drop also ends fio, if fio still runs.
    _daemon: Process,
}

impl Fio {
    /// Starts the daemon at the array's address, and fio.
    pub(super) fn start(folder: &Path, address: &Path, seed: u64, bytes: u64) -> Result<Self> {
        wait_for("the owner's link", || Ok(address.exists()))?;
        let socket = folder.join("daemon.sock");
        let mut daemon = Command::new("qemu-storage-daemon");
        daemon.arg("--blockdev").arg(format!(
            "driver=nbd,node-name=tank,server.type=unix,server.path={},reconnect-delay={RECONNECT_SECONDS}",
            address.display()
        ));
        daemon.args(["--nbd-server", &format!("addr.type=unix,addr.path={}", socket.display())]);
        daemon.args(["--export", "nbd,id=tank,node-name=tank,name=,writable=on"]);
        let daemon = Process::spawn(&mut daemon, None)?;
        wait_for("qemu-storage-daemon's socket", || Ok(socket.exists()))?;
        let (is_over, tally) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (folder, over, sum) = (folder.to_owned(), Arc::clone(&is_over), Arc::clone(&tally));
        let thread = std::thread::spawn(move || {
            for seed in (seed..).take_while(|_| !over.load(Ordering::SeqCst)) {
                write_and_read(&folder, &socket, (seed, bytes), &sum)
                    .with_context(|| format!("fio with seed {seed}"))?;
            }
            Ok(())
        });
        Ok(Self { is_over, tally, thread: Some(thread), _daemon: daemon })
    }

    pub(super) fn words(&self) -> String {
        let Tally { runs, blocks, longest } = *lock(&self.tally);
        format!(
            "{runs} runs of fio, {blocks} blocks written and read back, 0 wrong; \
             longest request {:.2} s",
            longest.as_secs_f64()
        )
    }

    /// An error if fio has ended.
    fn is_well(&mut self) -> Result<()> {
        let has_ended = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        if has_ended { self.end() } else { Ok(()) }
    }

    /// Waits for the last run of fio to end.
    pub(super) fn end(&mut self) -> Result<()> {
        self.is_over.store(true, Ordering::SeqCst);
        let thread = self.thread.take().context("fio has ended")?;
        thread.join().map_err(|_| anyhow!("fio's thread panicked"))?
    }
}

/// Ends the owner under fio's load; returns how long no host served.
pub(super) fn round(soak: &mut Soak, plan: Plan) -> Result<Duration> {
    let heir = soak.cluster.spawn(1 - soak.host, true)?;
    let owner = (soak.host, soak.owner.process()?);
    let began = end_owner(&mut soak.cluster, owner, plan, || ())?;
    let heir = serving(heir)?;
    let took = began.elapsed();
    soak.host = 1 - soak.host;
    let mut old = std::mem::replace(&mut soak.owner, heir);
    match plan.way {
        Way::HandOver | Way::Stop => old.stopped()?,
        Way::Kill | Way::MemberAndKill => old.kill()?,
        Way::Sleep => {
            std::thread::sleep(SLEEP.saturating_sub(took));
            send(old.process()?, Signal::CONT)?;
            let status = old.ended()?;
            ensure!(status.code() == Some(REFUSED), "a sleeper ended with {status}");
        }
    }
    wait_for("fio's writes", || {
        soak.fio.as_mut().context("fio")?.is_well()?;
        Ok(soak.cluster.bytes_written(soak.host)? > 0)
    })?;
    soak.cluster.wait_until_whole(soak.host)?;
    Ok(took)
}

/// Runs fio once, to its end.
fn write_and_read(
    folder: &Path,
    socket: &Path,
    (seed, bytes): (u64, u64),
    tally: &Mutex<Tally>,
) -> Result<()> {
    let report = folder.join("fio.json");
    let mut fio = Command::new("fio");
    fio.args(["--name=load", "--ioengine=nbd", "--rw=randwrite", "--bs=4k", "--iodepth=16"]);
    fio.args(["--fsync=64", "--verify=crc32c", "--randrepeat=0", "--output-format=json"]);
    fio.arg(format!("--uri=nbd+unix:///?socket={}", socket.display()));
    fio.arg(format!("--randseed={seed}")).arg(format!("--size={bytes}"));
    fio.arg(format!("--output={}", report.display()));
    let said = fio.current_dir(folder).stdin(Stdio::null()).output().context("fio")?;
    let words = String::from_utf8_lossy(&said.stderr);
    ensure!(said.status.success() && words.trim().is_empty(), "{}: {words}", said.status);
    let text = std::fs::read_to_string(&report).context("fio's report")?;
    let job = &serde_json::from_str::<Value>(&text).context("fio's report")?["jobs"][0];
    let number = |side: &Value, name: &str| side[name].as_u64().with_context(|| text.clone());
    let blocks = bytes / BLOCK_BYTES;
    let mut tally = lock(tally);
    for side in ["write", "read"] {
        let side = &job[side];
        ensure!(number(side, "total_ios")? == blocks, "not {blocks} blocks: {text}");
        let longest = Duration::from_nanos(number(&side["clat_ns"], "max")?);
        tally.longest = tally.longest.max(longest);
    }
    tally.runs += 1;
    tally.blocks += blocks;
    Ok(())
}

fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}
