//! File systems on loop devices: btrfs with its own RAID, or a file system on a braid array.
//! ```text
//!   Btrfs          folder ◀─ btrfs raid ◀─ loop devices ◀─ files in memory
//!   …OnBraid       folder ◀─ btrfs, ext4 ◀─ loop ◀─ FUSE file ◀─ braid serve
//!                         ◀─ loop devices ◀─ files in memory
//! ```
//! A drop detaches everything in reverse order, so that a failure leaves nothing behind.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::super::nbd::servers::{self, Server};

/// The file that clients read while a member is missing.
pub(super) const READ_FILE: &str = "read";
const READ_MIB: usize = 64;
/// A file of further content before a rebuild. Together with [`READ_FILE`] it takes almost a
/// quarter of the capacity.
const HELD_FILE: &str = "held";
const SMALL_HELD_MIB: usize = 16;
/// Number of retries, since the kernel or another program may hold a device or a file system for a
/// moment longer.
const TRIES: u32 = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Raid {
    One,
    Five,
    Six,
}

impl Raid {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::One => "RAID-1",
            Self::Five => "RAID-5",
            Self::Six => "RAID-6",
        }
    }

    const fn members(self) -> usize {
        match self {
            Self::One => 2,
            Self::Five => 4,
            Self::Six => 5,
        }
    }

    /// The data that the array holds, in members' capacities.
    const fn data_members(self) -> usize {
        match self {
            Self::One => 1,
            Self::Five | Self::Six => 3,
        }
    }

    /// Profiles for `mkfs.btrfs`, of metadata and then of data. btrfs's authors recommend copies of
    /// metadata where data have parity: one copy more than members may be lost.
    const fn of_btrfs(self) -> [&'static str; 2] {
        match self {
            Self::One => ["raid1", "raid1"],
            Self::Five => ["raid1", "raid5"],
            Self::Six => ["raid1c3", "raid6"],
        }
    }

    const fn of_braid(self) -> &'static [&'static str] {
        match self {
            Self::One => &["--level", "1"],
            Self::Five => &["--level", "5", "--chunk", "64K"],
            Self::Six => &["--level", "6", "--chunk", "64K"],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stack {
    Btrfs,
    BtrfsOnBraid,
    Ext4OnBraid,
}

impl Stack {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Btrfs => "btrfs",
            Self::BtrfsOnBraid => "btrfs on braid",
            Self::Ext4OnBraid => "ext4 on braid",
        }
    }

    const fn kind(self) -> &'static str {
        match self {
            Self::Btrfs | Self::BtrfsOnBraid => "btrfs",
            Self::Ext4OnBraid => "ext4",
        }
    }
}

/// A loop device; dropping it detaches the file.
pub(in crate::suites) struct Loop(String);

impl Loop {
    pub(in crate::suites) fn attach(file: &Path, more: &[&str]) -> Result<Self, String> {
        let mut attach = Command::new("losetup");
        let device = output(attach.args(["--find", "--show"]).args(more).arg(file))?;
        Ok(Self(device.trim().to_owned()))
    }

    pub(in crate::suites) fn path(&self) -> &str {
        &self.0
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // If the device cannot be detached, `losetup` shows it.
        let _said = output(Command::new("losetup").arg("--detach").arg(&self.0));
    }
}

/// A mount point; dropping it unmounts.
pub(in crate::suites) struct Mount(PathBuf);

impl Mount {
    pub(in crate::suites) fn new(
        kind: &str,
        options: &str,
        device: &str,
        folder: &Path,
    ) -> Result<Self, String> {
        let mut mount = Command::new("mount");
        output(mount.args(["-t", kind, "-o", options, device]).arg(folder))?;
        Ok(Self(folder.to_owned()))
    }

    pub(in crate::suites) fn folder(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // If the file system cannot be unmounted, `mount` shows it.
        let _said = again(|| output(Command::new("umount").arg(&self.0)));
    }
}

/// A mounted file system. Its fields are dropped in the order of declaration.
pub(super) struct Mounted {
    mount: Option<Mount>,
    /// The loop device over the array's file.
    disk: Option<Loop>,
    server: Option<Server>,
    members: Vec<Loop>,
    raid: Raid,
    member_mib: usize,
    is_small: bool,
    stack: Stack,
    folder: tempfile::TempDir,
}

impl Mounted {
    /// Makes and mounts a file system, and writes the file that degraded reads use.
    pub(super) fn new(raid: Raid, stack: Stack, small: bool) -> Result<Self, String> {
        let folder = tempfile::tempdir_in("/dev/shm").map_err(|error| error.to_string())?;
        // btrfs needs spare room to replace a device.
        let member_mib = if small { 512 } else { 2048 };
        std::fs::create_dir(folder.path().join("mounted")).map_err(|error| error.to_string())?;
        let mut this = Self {
            mount: None,
            disk: None,
            server: None,
            members: Vec::new(),
            raid,
            member_mib,
            is_small: small,
            stack,
            folder,
        };
        for _ in 0..raid.members() {
            let member = this.blank()?;
            this.members.push(member);
        }
        let devices = this.devices();
        if stack == Stack::Btrfs {
            let [metadata, data] = raid.of_btrfs();
            let words = ["-q", "-f", "-m", metadata, "-d", data];
            output(Command::new("mkfs.btrfs").args(words).args(devices))?;
        } else {
            let braid = servers::braid()?;
            servers::create_braid_as(&braid, this.folder.path(), raid.of_braid(), &devices)?;
            this.serve()?;
            // On one device the file system has no redundancy of its own: the array provides it.
            let mut make = match stack.kind() {
                "btrfs" => Command::new("mkfs.btrfs"),
                _ => Command::new("mkfs.ext4"),
            };
            let words: &[&str] = match stack.kind() {
                "btrfs" => &["-q", "-f", "-m", "single", "-d", "single"],
                _ => &["-q", "-F"],
            };
            output(make.args(words).arg(this.device()))?;
        }
        this.mount("defaults")?;
        super::super::nbd::fill(&this.folder().join(READ_FILE), READ_MIB)?;
        Ok(this)
    }

    pub(super) fn folder(&self) -> &Path {
        self.mount.as_ref().map_or(self.folder.path(), |mount| &mount.0)
    }

    /// A device that was never written. The device's file is unlinked at once, which frees its
    /// memory with the device. The file's name is unique, as btrfs tells loop devices apart by
    /// name.
    fn blank(&self) -> Result<Loop, String> {
        let failed = |error: std::io::Error| error.to_string();
        let file = tempfile::NamedTempFile::new_in(self.folder.path()).map_err(failed)?;
        file.as_file().set_len((self.member_mib as u64) << 20).map_err(failed)?;
        Loop::attach(file.path(), &[])
    }

    fn devices(&self) -> Vec<String> {
        self.members.iter().map(|member| member.0.clone()).collect()
    }

    fn device(&self) -> &str {
        &self.disk.as_ref().unwrap_or(&self.members[0]).0
    }

    fn serve(&mut self) -> Result<(), String> {
        let file = self.folder.path().join("array");
        let control = self.control();
        let words = ["--control", &control, "--fuse", file.to_str().ok_or("a path of text")?];
        let braid = servers::braid()?;
        self.server =
            Some(servers::serve_braid(&braid, self.folder.path(), &self.devices(), &words)?);
        servers::wait_for(&file)?;
        // The loop device bypasses the page cache of its file, since the layer above has one.
        self.disk = Some(Loop::attach(&file, &["--direct-io=on"])?);
        Ok(())
    }

    fn mount(&mut self, options: &str) -> Result<(), String> {
        let folder = self.folder.path().join("mounted");
        self.mount = Some(Mount::new(self.stack.kind(), options, self.device(), &folder)?);
        Ok(())
    }

    fn control(&self) -> String {
        self.folder.path().join("control").display().to_string()
    }

    /// Writes until a quarter of the capacity is used, so that a rebuild has work.
    pub(super) fn hold_much(&self) -> Result<(), String> {
        let most = self.member_mib * self.raid.data_members() / 4 - READ_MIB;
        let mebibytes = if self.is_small { SMALL_HELD_MIB } else { most };
        super::super::nbd::fill(&self.folder().join(HELD_FILE), mebibytes)
    }

    pub(super) fn is_degraded(&self) -> bool {
        self.members.len() < self.raid.members()
    }

    /// Removes the last member and mounts the file system on the others.
    pub(super) fn degrade(&mut self) -> Result<(), String> {
        (self.mount, self.disk, self.server) = (None, None, None);
        let gone = self.members.pop().ok_or("it has members")?;
        if self.stack == Stack::Btrfs {
            // Makes btrfs forget the device. A device that was just replaced is still held for a
            // moment.
            again(|| {
                output(Command::new("btrfs").args(["device", "scan", "--forget"]).arg(&gone.0))
            })?;
            drop(gone);
            self.mount("degraded")
        } else {
            drop(gone);
            self.serve()?;
            self.mount("defaults")
        }
    }

    /// Replaces the removed device by a blank one; returns the seconds until the array is complete.
    pub(super) fn rebuild(&mut self) -> Result<f64, String> {
        let newcomer = self.blank()?;
        let begun = Instant::now();
        if self.stack == Stack::Btrfs {
            let mut replace = Command::new("btrfs");
            replace.args(["replace", "start", "-B", "-f"]).arg(self.raid.members().to_string());
            output(replace.arg(&newcomer.0).arg(self.folder()))?;
        } else {
            let (braid, control) = (servers::braid()?, self.control());
            output(Command::new(&braid).args(["add", &control]).arg(&newcomer.0))?;
            output(Command::new(&braid).args(["wait", &control, "--for", "rebuild"]))?;
        }
        let seconds = begun.elapsed().as_secs_f64();
        self.members.push(newcomer);
        Ok(seconds)
    }
}

/// Retries `act` for some seconds until it succeeds.
pub(in crate::suites) fn again(
    mut act: impl FnMut() -> Result<String, String>,
) -> Result<String, String> {
    let mut said = act();
    for _ in 1..TRIES {
        if said.is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
        said = act();
    }
    said
}

pub(in crate::suites) fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim_end()))
    }
}
