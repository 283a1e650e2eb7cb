//! Scenes on a newer kernel than this machine's: `cargo xtask ublk`, braid's ublk door, and
//! `cargo xtask reservations`, owners of disks that two hosts share.
//!
//! This machine's kernel may lack ublk_drv, may not resize its devices (before 6.16), or may not
//! tell who has reserved a disk (before 7.0). So a kernel of Debian's backports is unpacked under
//! `target`. QEMU boots this kernel with braid and one script, which makes all checks. This module
//! packs and starts the guest and reads its output. It leaves the machine's own kernel alone, and
//! needs no root.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::build::Program;
use crate::oracle::{Archive, add_modules, add_programs};
use crate::packages;

/// A guest's script, and the files that it needs in addition to braid and busybox.
#[derive(Debug)]
pub(crate) struct Scene {
    script: &'static str,
    /// The kernel's modules in order of insertion: each module after its dependencies. The script
    /// inserts them.
    modules: &'static [&'static str],
    /// Programs of this machine that are packed into the guest.
    programs: &'static [&'static str],
}

pub(crate) const UBLK: Scene = Scene {
    script: include_str!("ublk.sh"),
    modules: &["ublk_drv"],
    programs: &["/usr/bin/fio", "/sbin/blkdiscard", "/sbin/mke2fs", "/sbin/resize2fs"],
};

pub(crate) const RESERVATIONS: Scene = Scene {
    script: include_str!("reservations.sh"),
    modules: &["configfs", "nvme-fabrics", "nvmet", "nvme-loop"],
    programs: &["/usr/bin/etcd", "/usr/bin/nbdcopy", "/sbin/mke2fs"],
};

/// The last line of the guest's script.
const DONE: &str = "@@DONE";

/// Time limit of the guest, which takes a tenth of this time on two idle cores.
const PATIENCE: Duration = Duration::from_secs(600);

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
pub(crate) fn run(scene: &Scene, options: &Options) -> Result<()> {
    let kernel = packages::newer_kernel().context("a newer kernel")?;
    let braid = match &options.braid {
        Some(path) => path.clone(),
        None => Program::Braid.dev()?,
    };
    let folder = tempfile::tempdir()?;
    let begun = Instant::now();
    std::fs::write(folder.path().join("initrd"), initramfs(scene, &kernel, &braid)?)?;
    let said = boot(&kernel.join("vmlinuz"), folder.path())?;
    let held: Vec<&str> =
        said.lines().filter_map(|line| line.trim().strip_prefix("@@OK ")).collect();
    held.iter().for_each(|what| println!("  {what}"));
    ensure!(said.contains(DONE), "the guest's words:\n{said}");
    println!("{} things hold, {} s", held.len(), begun.elapsed().as_secs());
    Ok(())
}

fn initramfs(scene: &Scene, kernel: &Path, braid: &Path) -> Result<Vec<u8>> {
    let mut archive = Archive::new();
    for folder in ["bin", "lib", "lib64", "dev", "proc", "sys", "tmp", "run", "modules"] {
        archive.directory(folder);
    }
    add_modules(&mut archive, &kernel.join("modules"), scene.modules)?;
    let braid = braid.to_str().context("a path of text")?;
    add_programs(&mut archive, &[scene.programs, &["/usr/bin/busybox", braid]].concat())?;
    archive.file("script", scene.script.as_bytes());
    archive.file("init", INIT.as_bytes());
    Ok(archive.finish())
}

struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        // Kill and wait fail only if the process has ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Runs the guest; returns its console output. The guest has two processors, so that the ublk
/// device has two queues.
fn boot(kernel: &Path, folder: &Path) -> Result<String> {
    let console = folder.join("console");
    let mut qemu = Command::new("qemu-system-x86_64");
    // Disables cmpxchg16b: QEMU 7.2 emulates it wrongly with two processors, and the kernel panics.
    qemu.args(["-accel", "tcg,thread=multi", "-cpu", "max,cx16=off", "-smp", "2", "-m", "1536"]);
    qemu.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    qemu.arg("-kernel").arg(kernel).arg("-initrd").arg(folder.join("initrd"));
    qemu.args([
        "-append",
        "console=ttyS0 quiet loglevel=3 panic=-1 oops=panic nvme_core.multipath=N",
    ]);
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
