//! md over two NBD servers on two hosts, without fencing: the losses that braid's owners avoid.
//!
//! ```text
//!   host A, a guest: md RAID-1 ─┬─ nbd ─ qemu-nbd: member 0
//!   host B, a guest: md RAID-1 ─┴─ nbd ─ qemu-nbd: member 1
//! ```
//!
//! Two stories, which docs/hosts.md tells next to braid's:
//!
//! 1. Host A sleeps (SIGSTOP of its machine), host B assembles after three seconds and writes all
//!    blocks. Host A wakes and goes on with its client.
//! 2. The server of member 1 dies, and host A goes on without that member. Then host A dies with
//!    member 0. The server of member 1 is back, and host B assembles that member alone.
//!
//! Every write counts as acknowledged once it is flushed. The scene reports what md does without a
//! judgement, so it is no part of `cargo xtask test`.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;

use super::machine::{Machine, ROUND_LIMIT};
use super::nbd_client::{BOOT_LIMIT, Content, HOST, NETWORK, boot};

const BLOCKS: u32 = 512;
const MEMBER_BYTES: u64 = 16 << 20;
/// The number of writes of host A after it has woken.
const LATE: u32 = 200;
/// The silence after which host B takes over, and the time that host A sleeps.
const SILENCE: Duration = Duration::from_secs(3);

const MODULES: [&str; 3] = ["nbd", "md-mod", "raid1"];
const PROGRAMS: [&str; 3] = ["/usr/bin/busybox", "/usr/sbin/nbd-client", "/sbin/mdadm"];
const INIT: &str = include_str!("guest/md_pairs.sh");

/// The NBD server of one member. A drop kills it.
struct Export(Child);

impl Export {
    fn start(folder: &Path, number: usize, port: u16) -> Result<Self> {
        let mut server = Command::new("qemu-nbd");
        server.args(["--persistent", "--shared=8", "--format=raw", "--export-name=m"]);
        server.args(["--bind=127.0.0.1", &format!("--port={port}")]);
        server.arg(folder.join(format!("m{number}"))).stdin(Stdio::null());
        server.spawn().map(Self).context("qemu-nbd")
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // Kill and wait fail only if the process has ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn host(folder: &Path, name: &str, ports: &[u16]) -> Result<Machine> {
    let folder = folder.join(name);
    std::fs::create_dir(&folder)?;
    let settings = format!(
        "NAME={name}\nSERVERS={HOST}\nPORT0={}\nPORT1={}\nBLOCKS={BLOCKS}\nLATE={LATE}\n",
        ports[0], ports[1]
    );
    let modules = [&NETWORK[..], &MODULES].concat();
    boot(&folder, &Content { modules: &modules, programs: &PROGRAMS, settings, init: INIT })
}

pub(super) fn run(folder: &Path) -> Result<()> {
    let (mut ports, mut exports) = (Vec::new(), Vec::new());
    for number in 0..2 {
        std::fs::File::create(folder.join(format!("m{number}")))?.set_len(MEMBER_BYTES)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        exports.push(Export::start(folder, number, port)?);
        ports.push(port);
    }
    let mut a = host(folder, "A", &ports)?;
    let kernel = a.hear("SERVING", BOOT_LIMIT)?;
    println!("  md of Linux {kernel}, over two servers, {BLOCKS} blocks of 4 KiB");
    let mut b = host(folder, "B", &ports)?;
    b.hear("READY", BOOT_LIMIT)?;

    a.send(Signal::STOP)?;
    std::thread::sleep(SILENCE);
    b.say("take")?;
    b.hear("SERVING", ROUND_LIMIT)?;
    a.say("woken")?;
    a.send(Signal::CONT)?;
    let late = a.hear("LATE", ROUND_LIMIT)?;
    b.say("look")?;
    let found = b.hear("FOUND", ROUND_LIMIT)?;
    let (lost, differing) = found.split_once(' ').context("two numbers")?;
    println!("  A sleeps, B takes over and acknowledges {BLOCKS} writes, A wakes:");
    println!(
        "    A acknowledges {late} more; {lost} of B's are gone; md's check: {differing} differ"
    );
    b.hear("STOPPED", ROUND_LIMIT)?;

    a.say("anew")?;
    a.hear("WHOLE", ROUND_LIMIT)?;
    drop(exports.pop());
    a.say("alone")?;
    a.hear("WRITTEN", ROUND_LIMIT)?;
    drop((a, exports));
    let _export = Export::start(folder, 1, ports[1])?;
    b.say("take")?;
    let found = b.hear("FOUND", ROUND_LIMIT)?;
    let (lost, state) = found.split_once(' ').context("a number and a state")?;
    println!("  A goes on without member 1, acknowledges {BLOCKS} writes, dies with member 0:");
    println!("    B assembles member 1 alone ({state}); {lost} of A's are gone");
    b.ended(ROUND_LIMIT)
}
