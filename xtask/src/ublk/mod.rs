//! `cargo xtask ublk`: braid's ublk door on a real kernel.
//!
//! This machine's kernel may lack ublk_drv, or may not resize its devices (before 6.16). So a
//! kernel of Debian's backports is unpacked under `target`. QEMU boots it with braid, fio and one
//! script (`guest.sh`), which makes all checks. This module packs and starts the guest and reads
//! its output. It leaves this machine's own kernel alone, and needs no root.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::build::Program;
use crate::oracle::{Archive, add_modules, add_programs};
use crate::packages;

/// The kernel's modules in order of insertion: each module after its dependencies. The script
/// inserts the last one.
const MODULES: [&str; 1] = ["ublk_drv"];

/// This machine's programs that the guest gets in addition to braid.
const PROGRAMS: [&str; 5] =
    ["/usr/bin/busybox", "/usr/bin/fio", "/sbin/blkdiscard", "/sbin/mke2fs", "/sbin/resize2fs"];

/// The last line of the guest's script.
const DONE: &str = "@@DONE";

/// Time limit of the guest, which takes a tenth of it on two idle cores.
const PATIENCE: Duration = Duration::from_secs(600);

const SCRIPT: &str = include_str!("guest.sh");
const INIT: &str = "#!/bin/sh
export PATH=/bin LD_LIBRARY_PATH=/lib
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mkdir -p /dev/shm
mount -t tmpfs -o size=75% tmp /tmp
mount -t tmpfs shm /dev/shm
if sh /script >/dev/console 2>&1; then echo @@DONE >/dev/console; fi
poweroff -f
";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// This program, not the development build
    #[arg(long, value_name = "PATH")]
    braid: Option<PathBuf>,
}

/// Boots the guest, and prints every successful line of its script.
pub(crate) fn run(options: &Options) -> Result<()> {
    let kernel = packages::newer_kernel().context("a kernel with ublk_drv")?;
    let braid = match &options.braid {
        Some(path) => path.clone(),
        None => Program::Braid.dev()?,
    };
    let folder = tempfile::tempdir()?;
    let begun = Instant::now();
    std::fs::write(folder.path().join("initrd"), initramfs(&kernel, &braid)?)?;
    let said = boot(&kernel.join("vmlinuz"), folder.path())?;
    let held: Vec<&str> =
        said.lines().filter_map(|line| line.trim().strip_prefix("@@OK ")).collect();
    held.iter().for_each(|what| println!("  {what}"));
    ensure!(said.contains(DONE), "the guest's words:\n{said}");
    println!("{} things hold, {} s", held.len(), begun.elapsed().as_secs());
    Ok(())
}

fn initramfs(kernel: &Path, braid: &Path) -> Result<Vec<u8>> {
    let mut archive = Archive::new();
    for folder in ["bin", "lib", "lib64", "dev", "proc", "sys", "tmp", "run", "modules"] {
        archive.directory(folder);
    }
    add_modules(&mut archive, &kernel.join("modules"), &MODULES)?;
    let braid = braid.to_str().context("a path of text")?;
    add_programs(&mut archive, &[&PROGRAMS[..], &[braid]].concat())?;
    archive.file("script", SCRIPT.as_bytes());
    archive.file("init", INIT.as_bytes());
    Ok(archive.finish())
}

struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        // Both calls fail only if the process has ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Runs the guest; returns its console output. It has two processors, so that the device has two
/// queues.
fn boot(kernel: &Path, folder: &Path) -> Result<String> {
    let console = folder.join("console");
    let mut qemu = Command::new("qemu-system-x86_64");
    // Disables cmpxchg16b: QEMU 7.2 emulates it wrongly with two processors, and the kernel panics.
    qemu.args(["-accel", "tcg,thread=multi", "-cpu", "max,cx16=off", "-smp", "2", "-m", "1024"]);
    qemu.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    qemu.arg("-kernel").arg(kernel).arg("-initrd").arg(folder.join("initrd"));
    qemu.args(["-append", "console=ttyS0 quiet loglevel=3 panic=-1 oops=panic"]);
    qemu.arg("-serial").arg(format!("file:{}", console.display()));
    qemu.stdin(Stdio::null()).stdout(Stdio::null());
    let mut guest = Guest(qemu.spawn().context("qemu-system-x86_64")?);
    let begun = Instant::now();
    loop {
        let ended = guest.0.try_wait()?;
        let said = std::fs::read(&console).unwrap_or_default();
        let said = String::from_utf8_lossy(&said).into_owned();
        match ended {
            Some(status) if status.success() => return Ok(said),
            Some(status) => bail!("QEMU ended with {status}: {said}"),
            None if begun.elapsed() > PATIENCE => bail!("no end after {PATIENCE:?}: {said}"),
            None => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}
