//! A file as a disk: a loop device over it, and a file system on that.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::programs::{output, run};

/// Tries to unmount: another program may have the file system open for a moment.
const UNMOUNT_TRIES: u32 = 100;
/// Tries to grow a file system while programs write to it.
const GROWTH_TRIES: u32 = 20;
/// The bit of CAP_SYS_RESOURCE in the line `CapEff` of proc_pid_status(5).
const CAP_SYS_RESOURCE: u32 = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum FileSystem {
    Ext4,
    Xfs,
    Btrfs,
}

impl FileSystem {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }
}

/// A loop device over a file, with direct I/O.
pub(super) struct Disk {
    device: String,
    kind: FileSystem,
    folder: PathBuf,
    is_mounted: bool,
}

impl Disk {
    /// Attaches a loop device to the file; `folder` is the mount point.
    pub(super) fn attach(file: &Path, kind: FileSystem, folder: &Path) -> Result<Self> {
        let mut command = Command::new("losetup");
        command.args(["--find", "--show", "--direct-io=on"]).arg(file);
        let device = output(&mut command)?.trim().to_owned();
        Ok(Self { device, kind, folder: folder.to_owned(), is_mounted: false })
    }

    /// Makes the file system, with the defaults of its mkfs.
    pub(super) fn make(&self) -> Result<()> {
        let (program, options): (_, &[&str]) = match self.kind {
            FileSystem::Ext4 => ("mkfs.ext4", &["-q", "-F"]),
            FileSystem::Xfs => ("mkfs.xfs", &["-q", "-f"]),
            FileSystem::Btrfs => ("mkfs.btrfs", &["-q", "-f"]),
        };
        run(Command::new(program).args(options).arg(&self.device))
    }

    /// Mounts the file system. If it was not unmounted before, the mount replays its log.
    pub(super) fn mount(&mut self) -> Result<()> {
        let mut command = Command::new("mount");
        run(command.args(["-t", self.kind.word()]).arg(&self.device).arg(&self.folder))?;
        self.is_mounted = true;
        Ok(())
    }

    pub(super) fn unmount(&mut self) -> Result<()> {
        for left in (0..UNMOUNT_TRIES).rev() {
            match run(Command::new("umount").arg(&self.folder)) {
                Ok(()) => break,
                Err(error) if left == 0 => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        self.is_mounted = false;
        Ok(())
    }

    /// Runs the file system's own checker on the unmounted disk, without changes.
    pub(super) fn check(&self) -> Result<()> {
        let (program, options): (_, &[&str]) = match self.kind {
            FileSystem::Ext4 => ("e2fsck", &["-f", "-n"]),
            FileSystem::Xfs => ("xfs_repair", &["-n"]),
            FileSystem::Btrfs => ("btrfs", &["check", "--readonly", "--check-data-csum"]),
        };
        run(Command::new(program).args(options).arg(&self.device))
    }

    /// Discards free space; returns whether the door passes discards on.
    pub(super) fn trim(&self) -> Result<bool> {
        match run(Command::new("fstrim").arg(&self.folder)) {
            Ok(()) => Ok(true),
            Err(error) if format!("{error:#}").contains("not supported") => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the kernel grows the file system while it is mounted. For ext4 the kernel demands
    /// `CAP_SYS_RESOURCE`, which containers lack.
    pub(super) fn grows_mounted(&self) -> Result<bool> {
        Ok(self.kind != FileSystem::Ext4 || has_sys_resource()?)
    }

    /// Grows the loop device to its file's new size, and the file system to the device's size.
    pub(super) fn grow(&self) -> Result<()> {
        if !self.is_mounted {
            // resize2fs demands this check. A full check may change structures that it calls
            // optional.
            run(Command::new("e2fsck").args(["-f", "-p"]).arg(&self.device))?;
        }
        let (program, options, place): (_, &[&str], _) = match self.kind {
            FileSystem::Ext4 => ("resize2fs", &[], Path::new(&self.device)),
            FileSystem::Xfs => ("xfs_growfs", &[], &*self.folder),
            FileSystem::Btrfs => ("btrfs", &["filesystem", "resize", "max"], &*self.folder),
        };
        // The kernel drops a FUSE file's new size if a write ends while the kernel asks for the
        // size. Then reads after the old size fail, until the kernel asks again.
        for left in (0..GROWTH_TRIES).rev() {
            run(Command::new("losetup").arg("--set-capacity").arg(&self.device))?;
            match run(Command::new(program).args(options).arg(place)) {
                Ok(()) => break,
                Err(error) if left == 0 => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        Ok(())
    }

    pub(super) fn detach(mut self) -> Result<()> {
        ensure!(!self.is_mounted, "{} is mounted", self.device);
        let device = std::mem::take(&mut self.device);
        run(Command::new("losetup").arg("--detach").arg(device))
    }
}

fn has_sys_resource() -> Result<bool> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = u64::from_str_radix(line.context("CapEff")?.trim(), 16)?;
    Ok(bits >> CAP_SYS_RESOURCE & 1 == 1)
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The disk is still mounted only after a failure. `mount` and `losetup` list leftovers.
        if self.is_mounted {
            let _ = run(Command::new("umount").arg("--lazy").arg(&self.folder));
        }
        if !self.device.is_empty() {
            let _ = run(Command::new("losetup").arg("--detach").arg(&self.device));
        }
    }
}
