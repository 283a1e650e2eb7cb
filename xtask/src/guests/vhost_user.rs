//! A guest that boots from the array by vhost-user-blk: braid's, or qemu-storage-daemon's over NBD.
//!
//! ```text
//! members ─ braid serve ┬─ vhost-user-blk ─ QEMU: firmware, GRUB, Linux, its root
//!                       └─ NBD ─ qemu-storage-daemon ─ vhost-user-blk ─ QEMU: the same
//! ```
//!
//! While the guest writes, a member fails. A little later the server is killed and started again,
//! which the guest sees as a pause. The daemon reconnects because of its `reconnect-delay`. Without
//! the daemon QEMU itself reconnects and resubmits requests in flight. At the end this machine's
//! programs read the file system from the array.
//!
//! Invariants:
//! - every file that the guest has synced has its bytes, for the guest and for this machine.
//!   Otherwise `run` fails, as for a guest that sees an error.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal};

use super::array::Array;
use super::files;
use super::image::{self, PARTITION_BYTES};
use super::machine::{Machine, ROUND_LIMIT};
use crate::programs::{output, run as run_program};
use crate::server::send;

const MEMORY_MIB: u32 = 384;
/// GRUB reads a kernel through the firmware, which takes a tenth of this time on two idle cores.
const BOOT_LIMIT: Duration = Duration::from_secs(180);
/// The daemon waits this long for a server of the array.
const RECONNECT_SECONDS: u32 = 60;

const FIRST: &str = include_str!("guest/root.sh");

/// The scene with qemu-storage-daemon.
pub(super) fn run(braid: &Path, folder: &Path) -> Result<()> {
    // The daemon reconnects and does not notice that acknowledged writes were lost. So the server
    // must not acknowledge writes before they are on the members.
    let array = booting(braid, folder, &["--cache", "writethrough"])?;
    let daemon = Daemon::start(&array.socket(), folder.join("vhost.sock"))?;
    let array = live(array, &devices(&daemon.socket, ""))?;
    daemon.stop()?;
    compare(array, folder)
}

/// The scene without qemu-storage-daemon.
pub(super) fn run_own(braid: &Path, folder: &Path) -> Result<()> {
    let socket = folder.join("vhost.sock");
    let path = socket.to_str().context("a path of text")?;
    let array = booting(braid, folder, &["--vhost-user", path])?;
    let array = live(array, &devices(&socket, reconnect()?))?;
    compare(array, folder)
}

fn booting(braid: &Path, folder: &Path, doors: &[&str]) -> Result<Array> {
    let disk = image::make(folder, FIRST)?;
    let array = Array::create(braid, folder, doors)?;
    run_program(Command::new("nbdcopy").arg("--flush").arg(&disk).arg(array.uri()))?;
    std::fs::remove_file(&disk)?;
    Ok(array)
}

/// QEMU's options for the disk by vhost-user-blk.
fn devices(socket: &Path, reconnect: &str) -> Vec<String> {
    let socket = format!("socket,id=disk,path={}{reconnect}", socket.display());
    let device = "vhost-user-blk-pci,chardev=disk,num-queues=1,bootindex=0";
    ["-chardev", &socket, "-device", device].map(str::to_owned).to_vec()
}

/// This QEMU's option for reconnecting. QEMU 9.2 gave the option a new name, and a later version
/// dropped the old name.
fn reconnect() -> Result<&'static str> {
    let said = output(Command::new("qemu-system-x86_64").arg("--version"))?;
    let major = said.split("version ").nth(1).and_then(|rest| rest.split('.').next());
    let major: u32 = major.and_then(|word| word.parse().ok()).context(said.clone())?;
    Ok(if major >= 10 { ",reconnect-ms=500" } else { ",reconnect=1" })
}

/// Runs the guest to its end; returns the array and the guest's report about its files.
fn live(mut array: Array, devices: &[String]) -> Result<(Array, String)> {
    let begun = Instant::now();
    let mut machine = Machine::start(MEMORY_MIB, devices)?;
    let root = machine.hear("ROOT", BOOT_LIMIT)?;
    ensure!(root.starts_with("/dev/vda1 / ext4 rw"), "another root: {root}");
    println!("  it has booted from the array ({:.0} s)", begun.elapsed().as_secs_f64());
    machine.hear_rounds()?;
    array.lose_a_member()?;
    machine.hear_rounds()?;
    println!("  it goes on without a member");
    array.kill_and_serve()?;
    machine.hear_rounds()?;
    println!("  it goes on after the server was killed");
    machine.say("end")?;
    let files = machine.hear("SAME", ROUND_LIMIT)?;
    machine.ended(ROUND_LIMIT)?;
    Ok((array, files))
}

/// Reads the guest's files with this machine's programs.
fn compare((array, files): (Array, String), folder: &Path) -> Result<()> {
    array.expect_state("degraded")?;
    let same = files::compare(&array, folder, PARTITION_BYTES)?;
    ensure!(files == same.to_string(), "the guest knows {files} files, and {same} are there");
    println!("  {files} files are the same for the guest and for this machine");
    array.stop()
}

/// A running qemu-storage-daemon. A drop kills it.
struct Daemon {
    child: Child,
    socket: PathBuf,
}

impl Daemon {
    /// Starts the daemon on an NBD server's socket, and waits until the daemon accepts a machine.
    fn start(nbd: &Path, socket: PathBuf) -> Result<Self> {
        let mut command = Command::new("qemu-storage-daemon");
        command.arg("--blockdev").arg(format!(
            "driver=nbd,node-name=tank,server.type=unix,server.path={},discard=unmap,reconnect-delay={RECONNECT_SECONDS}",
            nbd.display()
        ));
        command.arg("--export").arg(format!(
            "vhost-user-blk,id=tank,node-name=tank,addr.type=unix,addr.path={},writable=on",
            socket.display()
        ));
        let child = command.stdin(Stdio::null()).spawn().context("qemu-storage-daemon")?;
        let mut daemon = Self { child, socket };
        let begun = Instant::now();
        while !daemon.socket.exists() {
            let ended = daemon.child.try_wait()?;
            ensure!(ended.is_none(), "qemu-storage-daemon ended with {ended:?}");
            ensure!(begun.elapsed() < ROUND_LIMIT, "qemu-storage-daemon makes no socket");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(daemon)
    }

    fn stop(mut self) -> Result<()> {
        let process = Pid::from_raw(i32::try_from(self.child.id())?).context("a process")?;
        send(process, Signal::TERM)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "qemu-storage-daemon ended with {status}");
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Kill and wait fail if the daemon has ended, as it usually has.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
