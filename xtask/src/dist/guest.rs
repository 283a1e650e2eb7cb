//! Tries the package in a virtual machine with systemd and udev: installed, serving, rebooted.
//!
//! ```text
//!   debootstrap ─▶ root (kept) ─▶ disk: + braid.deb, guest.sh and a unit that runs it
//!   start 1: install, create, scan --write, start ─▶ an image in ─▶ reboot
//!   start 2: the rule sees the members, the unit serves ─▶ the same bytes ─▶ removed
//! ```
//!
//! The array's bytes are also the same with a member failed, after kill -9, and rebuilt.
//!
//! QEMU emulates in software, as for all guests of the tests: a run takes some minutes.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{copied, done};
use crate::guests::machine::Machine;

const PACKAGES: &str = "systemd-sysv,udev,libgcc-s1,libnbd-bin,linux-image-cloud-amd64,zstd";
const MEMORY_MIB: u32 = 1024;
const DISK_BYTES: u64 = 2 << 30;
const MEMBERS: usize = 4;
const MEMBER_BYTES: u64 = 64 << 20;
/// Time limit: an emulated start of systemd takes a minute or two, on a busy machine longer.
const LIMIT: Duration = Duration::from_secs(420);

const SCRIPT: &str = include_str!("guest.sh");
const UNIT: &str = "[Unit]
Description=what is tried in this machine
After=multi-user.target
[Service]
Type=simple
ExecStart=/drill.sh
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
";
/// Successes that the guest reports after its second start, in this order.
const SAID: [&str; 4] =
    ["after a restart of the machine", "with a member failed", "after kill -9", "rebuilt"];

/// Makes the virtual machine, and runs the test in it.
pub(super) fn used(package: &Path, out: &Path) -> Result<()> {
    let begun = Instant::now();
    let root = out.join("machine-root");
    if !root.join("boot").exists() {
        let include = format!("--include={PACKAGES}");
        done(
            Command::new("debootstrap")
                .args(["--variant=minbase", &include, "bookworm"])
                .arg(&root),
        )?;
    }
    let disk = disk(package, &root, out)?;
    let mut devices: Vec<String> = Vec::new();
    let mut drive = |path: &Path| {
        let words = format!("file={},format=raw,if=virtio,cache=unsafe", path.display());
        devices.extend(["-drive".to_owned(), words]);
    };
    drive(&disk);
    for number in 0..MEMBERS {
        let member = out.join(format!("machine-member-{number}"));
        File::create(&member)?.set_len(MEMBER_BYTES)?;
        drive(&member);
    }
    let boot = |name: &str| -> Result<String> {
        Ok(newest(&root.join("boot"), name)?.display().to_string())
    };
    devices.extend(["-kernel".to_owned(), boot("vmlinuz-")?]);
    devices.extend(["-initrd".to_owned(), boot("initrd.img-")?]);
    let line = "root=/dev/vda rw console=ttyS0 quiet systemd.show_status=no";
    devices.extend(["-append".to_owned(), line.to_owned()]);

    let mut machine = Machine::start(MEMORY_MIB, &devices)?;
    machine.hear("RESTART", LIMIT)?;
    machine.ended(LIMIT)?;
    let mut machine = Machine::start(MEMORY_MIB, &devices)?;
    for what in SAID {
        let said = machine.hear("SAME", LIMIT)?;
        ensure!(said == what, "it says {said} where {what} was to come");
    }
    println!("systemd-analyze security there: {}", machine.hear("EXPOSURE", LIMIT)?);
    machine.hear("DONE", LIMIT)?;
    machine.ended(LIMIT)?;
    println!(
        "installed, restarted, killed, rebuilt and removed in a machine: {:.0} s",
        begun.elapsed().as_secs_f64()
    );
    Ok(())
}

fn disk(package: &Path, root: &Path, out: &Path) -> Result<PathBuf> {
    copied(package, &root.join("braid.deb"), 0o644)?;
    fs::write(root.join("drill.sh"), SCRIPT)?;
    fs::set_permissions(root.join("drill.sh"), fs::Permissions::from_mode(0o755))?;
    fs::write(root.join("etc/systemd/system/drill.service"), UNIT)?;
    let wants = root.join("etc/systemd/system/multi-user.target.wants");
    fs::create_dir_all(&wants)?;
    let link = wants.join("drill.service");
    if !link.is_symlink() {
        symlink("../drill.service", link)?;
    }
    let disk = out.join("machine.img");
    File::create(&disk)?.set_len(DISK_BYTES)?;
    let mut format = Command::new("mke2fs");
    done(format.args(["-q", "-F", "-t", "ext4", "-d"]).arg(root).arg(&disk))?;
    Ok(disk)
}

fn newest(folder: &Path, prefix: &str) -> Result<PathBuf> {
    let names = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let is_one = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
    };
    names.filter(is_one).max().with_context(|| format!("no {prefix} in {}", folder.display()))
}
