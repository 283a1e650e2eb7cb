//! Storage for members: memory (tmpfs), or ext4 over a loop device, whose power can be cut.
//!
//! ext4's shutdown call cuts the power (`xfs_io -x -c shutdown`, without flushing its log): from
//! that moment nothing more reaches the loop device. The disk then holds the blocks written back so
//! far. The next mount replays the journal, as after a real power cut.
//!
//! ext4 needs root, loop devices and xfs_io; an error names the missing one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::programs::run;

const TMPFS: &str = "/dev/shm";
/// Room for the largest array of these rounds, the file system's journal, and a reserve.
const IMAGE_BYTES: u64 = 128 << 20;
/// Mount options: the file system's own commits come so late that only flushed writes count.
const MOUNT_OPTIONS: &str = "loop,commit=300";
/// Tries to unmount: another program, such as udev, may still have the file system open for a
/// moment.
const UNMOUNT_TRIES: u32 = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StorageKind {
    Tmpfs,
    Ext4,
}

impl StorageKind {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Tmpfs => "tmpfs",
            Self::Ext4 => "ext4 over loop",
        }
    }
}

/// The folder of one round, and its file system. A drop removes the folder, unless it is kept.
pub(super) struct MemberStorage {
    folder: Option<tempfile::TempDir>,
    /// The runtime folder, in memory even if members are on ext4: its files survive the server, but
    /// no power cut.
    _runtime: tempfile::TempDir,
    /// braid's folder in the runtime folder.
    run: PathBuf,
    kind: StorageKind,
    mounted: bool,
}

impl MemberStorage {
    pub(super) fn new(kind: StorageKind) -> Result<Self> {
        let parent = match kind {
            StorageKind::Tmpfs => PathBuf::from(TMPFS),
            StorageKind::Ext4 => std::env::temp_dir(),
        };
        let folder = tempfile::Builder::new().prefix("braid-crash-").tempdir_in(&parent);
        let folder = folder.with_context(|| format!("a folder in {}", parent.display()))?;
        let runtime = tempfile::Builder::new().prefix("braid-run-").tempdir_in(TMPFS)?;
        let folder_of_braid = runtime.path().join("run");
        let mut storage = Self {
            folder: Some(folder),
            _runtime: runtime,
            run: folder_of_braid,
            kind,
            mounted: false,
        };
        if kind == StorageKind::Ext4 {
            let image = std::fs::File::create(storage.image())?;
            image.set_len(IMAGE_BYTES)?;
            std::fs::create_dir(storage.members())?;
            run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(storage.image()))?;
            storage.mount()?;
        } else {
            std::fs::create_dir(storage.members())?;
        }
        Ok(storage)
    }

    /// Whether members can have storage of this kind; `Err` gives the reason if not.
    pub(super) fn is_possible(kind: StorageKind) -> Result<()> {
        let mut storage = Self::new(kind)?;
        if kind == StorageKind::Ext4 {
            storage.cut_power()?;
            storage.restore_power()?;
        }
        Ok(())
    }

    pub(super) fn kind(&self) -> StorageKind {
        self.kind
    }

    /// The folder for sockets and state, and the folder for data that outlives the server.
    pub(super) fn folders(&self) -> (&Path, Option<&Path>) {
        (self.folder(), Some(&self.run))
    }

    /// The folder for sockets and notes; its power is never cut.
    pub(super) fn folder(&self) -> &Path {
        self.folder.as_ref().expect("it is there until it is kept").path()
    }

    pub(super) fn members(&self) -> PathBuf {
        self.folder().join("members")
    }

    fn image(&self) -> PathBuf {
        self.folder().join("ext4.img")
    }

    /// Cuts the power: after this call nothing more reaches the disk.
    pub(super) fn cut_power(&self) -> Result<()> {
        run(Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(self.members()))
    }

    /// Empties the runtime folder, as a power cut empties memory.
    pub(super) fn forget_answered(&self) -> Result<()> {
        if !self.run.exists() {
            return Ok(());
        }
        for entry in std::fs::read_dir(&self.run)? {
            std::fs::remove_file(entry?.path())?;
        }
        Ok(())
    }

    /// Mounts the disk again. Processes with open files on it must have ended.
    pub(super) fn restore_power(&mut self) -> Result<()> {
        self.unmount()?;
        self.mount()
    }

    fn mount(&mut self) -> Result<()> {
        let mut command = Command::new("mount");
        command.args(["-t", "ext4", "-o", MOUNT_OPTIONS]).arg(self.image()).arg(self.members());
        run(&mut command)?;
        self.mounted = true;
        Ok(())
    }

    fn unmount(&mut self) -> Result<()> {
        for left in (0..UNMOUNT_TRIES).rev() {
            match run(Command::new("umount").arg(self.members())) {
                Ok(()) => break,
                Err(error) if left == 0 => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        self.mounted = false;
        Ok(())
    }

    /// Leaves all files of the round in place; returns the folder's path.
    pub(super) fn keep(mut self) -> String {
        let folder = self.folder.take().expect("kept once").keep();
        let what = match self.kind {
            StorageKind::Tmpfs => "the members are in",
            StorageKind::Ext4 => "ext4.img with the members is still mounted in",
        };
        self.mounted = false;
        format!("{what} {}", folder.display())
    }
}

impl Drop for MemberStorage {
    fn drop(&mut self) {
        if self.mounted && self.unmount().is_err() {
            eprintln!("{} is still mounted", self.members().display());
        }
    }
}
