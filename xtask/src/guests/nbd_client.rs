//! A guest whose kernel is the client: its nbd driver, set up by nbd-client, with ext4 on the
//! device.
//!
//! ```text
//! members ─ braid serve ─ NBD by TCP on 127.0.0.1 ─ QEMU's user network (10.0.2.2)
//!   ─ nbd-client ─ /dev/nbd0 ─ ext4
//! ```
//!
//! Checks the driver's parameters, and that `fstrim` makes holes in the members. A member fails
//! while files are written. Then the guest unmounts, the server is killed and started again at the
//! same port, and the driver is set up once more. The guest must unmount first. Requests without a
//! server fail at once, since nbd-client cannot set the driver's timeout for a lost connection. And
//! nbd-client's `-persist` ends when the kernel reports the connection as gone (seen with 3.24 and
//! Linux 6.1).
//!
//! Invariants:
//! - every file that the guest has synced has its bytes, for the guest and for this machine.
//!   Otherwise `run` fails, as for a guest that sees an error.

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::array::Array;
use super::files;
use super::machine::{Machine, ROUND_LIMIT};
use crate::oracle::{Archive, add_modules, add_programs, find_kernel};

const MEMORY_MIB: u32 = 384;
pub(super) const BOOT_LIMIT: Duration = Duration::from_secs(120);
/// The address of this machine's loopback in QEMU's user network.
pub(super) const HOST: &str = "10.0.2.2";
/// The guest's 24 MiB occupy 32 MiB of members, with parity. Trimming must free this many bytes.
const TRIMMED_BYTES_MIN: u64 = 24 << 20;

/// Modules of the network in order of insertion: each module after its dependencies.
pub(super) const NETWORK: [&str; 8] = [
    "virtio_ring",
    "virtio",
    "virtio_pci_modern_dev",
    "virtio_pci_legacy_dev",
    "virtio_pci",
    "failover",
    "net_failover",
    "virtio_net",
];
/// Further modules, in order of insertion like those of the network.
const MODULES: [&str; 6] = ["crc32c_generic", "crc16", "mbcache", "jbd2", "ext4", "nbd"];
const PROGRAMS: [&str; 3] = ["/usr/bin/busybox", "/usr/sbin/nbd-client", "/usr/sbin/mke2fs"];
const INIT: &str = include_str!("guest/nbd_client.sh");
const ROUNDS: &str = include_str!("guest/rounds.sh");

pub(super) fn run(braid: &Path, folder: &Path) -> Result<()> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let uri = format!("nbd://127.0.0.1:{port}/");
    let mut array = Array::create(braid, folder, &["--nbd", &uri])?;
    let settings = format!("HOST={HOST}\nPORT={port}\n");
    let modules = [&NETWORK[..], &MODULES].concat();
    let content = Content { modules: &modules, programs: &PROGRAMS, settings, init: INIT };
    let mut machine = boot(folder, &content)?;
    let shape = machine.hear("SHAPE", BOOT_LIMIT)?;
    check_shape(&shape, array.size_bytes()?)?;
    println!("  /dev/nbd0 is the array's shape: {shape}");

    machine.hear("FULL", ROUND_LIMIT)?;
    let before = array.taken_bytes()?;
    machine.say("trim")?;
    machine.hear("TRIMMED", ROUND_LIMIT)?;
    let gone = before.saturating_sub(array.taken_bytes()?);
    ensure!(gone >= TRIMMED_BYTES_MIN, "fstrim freed {gone} bytes of the members");
    println!("  fstrim frees {} MiB of the members", gone >> 20);

    machine.hear_rounds()?;
    array.lose_a_member()?;
    machine.hear_rounds()?;
    println!("  it goes on without a member");
    machine.say("pause")?;
    machine.hear("PAUSED", ROUND_LIMIT)?;
    array.kill_and_serve()?;
    machine.say("back")?;
    machine.hear("BACK", ROUND_LIMIT)?;
    machine.hear_rounds()?;
    println!("  everything synced is there after the server was killed");
    machine.say("end")?;
    let count = machine.hear("SAME", ROUND_LIMIT)?;
    machine.ended(ROUND_LIMIT)?;

    array.expect_state("degraded")?;
    let same = files::compare(&array, folder, 0)?;
    ensure!(count == same.to_string(), "the guest knows {count} files, and {same} are there");
    println!("  {same} files are the same for the guest and for this machine");
    array.stop()
}

/// Checks the NBD driver's parameters: size, sector, FUA, longest discard, cache.
fn check_shape(shape: &str, size_bytes: u64) -> Result<()> {
    let mut words = shape.splitn(5, ' ');
    let mut word = || words.next().context("a word");
    ensure!(word()? == size_bytes.to_string(), "not {size_bytes} bytes: {shape}");
    let sector: u64 = word()?.parse()?;
    ensure!(sector == 512 || sector == 4096, "sectors of {sector} bytes: {shape}");
    ensure!(word()? == "1" && word()? != "0", "no FUA or no TRIM: {shape}");
    ensure!(word()? == "write back", "no flushes: {shape}");
    Ok(())
}

/// The content of a guest that runs in memory.
pub(super) struct Content<'a> {
    pub(super) modules: &'a [&'a str],
    pub(super) programs: &'a [&'a str],
    /// Shell variables of the guest's scripts.
    pub(super) settings: String,
    /// The guest's first process.
    pub(super) init: &'a str,
}

/// Starts a guest with this content in QEMU's user network.
pub(super) fn boot(folder: &Path, content: &Content<'_>) -> Result<Machine> {
    let (kernel, modules) = find_kernel()?;
    let mut archive = Archive::new();
    for name in ["bin", "lib", "lib64", "dev", "proc", "sys", "tmp", "modules", "etc"] {
        archive.directory(name);
    }
    add_modules(&mut archive, &modules, content.modules)?;
    add_programs(&mut archive, content.programs)?;
    archive.file("settings", content.settings.as_bytes());
    archive.file("rounds.sh", ROUNDS.as_bytes());
    archive.file("init", content.init.as_bytes());
    let initrd = folder.join("initrd");
    std::fs::write(&initrd, archive.finish())?;
    let words = |path: &Path| path.display().to_string();
    let devices = [
        "-kernel",
        &words(&kernel),
        "-initrd",
        &words(&initrd),
        "-append",
        "console=ttyS0 quiet loglevel=3 panic=-1 oops=panic",
        "-netdev",
        "user,id=net",
        "-device",
        "virtio-net-pci,netdev=net,romfile=",
    ];
    Machine::start(MEMORY_MIB, &devices.map(str::to_owned))
}
