//! Where members are: in memory (tmpfs), or on ext4 over a loop device, whose power can be cut.
//!
//! Power is cut by the shutdown that ext4 has for such trials (`xfs_io -x -c shutdown`, without flushing its log): from
//! that moment nothing more reaches the loop device. What was written back by then is what the disk holds; mounting it
//! again replays the journal, as after a real power cut.
//!
//! Needs root, loop devices and xfs_io for ext4; where they are not, it says which.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::programs::run;

/// Where Linux keeps files in memory.
const TMPFS: &str = "/dev/shm";
/// Room for the largest array here, its file system's journal, and some.
const IMAGE_BYTES: u64 = 128 << 20;
/// The file system's own commits come so late that only what was flushed counts.
const MOUNT_OPTIONS: &str = "loop,commit=300";
/// Another program may still look at it for a moment, as udev does.
const UNMOUNT_TRIES: u32 = 50;

/// A folder for members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Tmpfs,
    Ext4,
}

impl Kind {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Tmpfs => "tmpfs",
            Self::Ext4 => "ext4 over loop",
        }
    }
}

/// A folder of one round, and the file system under it. It is removed when this is dropped, unless kept.
pub(super) struct Place {
    folder: Option<tempfile::TempDir>,
    /// In memory, whatever the members are: it outlives the server, and no power cut.
    _runtime: tempfile::TempDir,
    /// A folder there that braid makes.
    run: PathBuf,
    kind: Kind,
    mounted: bool,
}

impl Place {
    pub(super) fn new(kind: Kind) -> Result<Self> {
        let parent = match kind {
            Kind::Tmpfs => PathBuf::from(TMPFS),
            Kind::Ext4 => std::env::temp_dir(),
        };
        let folder = tempfile::Builder::new().prefix("braid-crash-").tempdir_in(&parent);
        let folder = folder.with_context(|| format!("a folder in {}", parent.display()))?;
        let runtime = tempfile::Builder::new().prefix("braid-run-").tempdir_in(TMPFS)?;
        let folder_of_braid = runtime.path().join("run");
        let mut place = Self {
            folder: Some(folder),
            _runtime: runtime,
            run: folder_of_braid,
            kind,
            mounted: false,
        };
        if kind == Kind::Ext4 {
            let image = std::fs::File::create(place.image())?;
            image.set_len(IMAGE_BYTES)?;
            std::fs::create_dir(place.members())?;
            run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(place.image()))?;
            place.mount()?;
        } else {
            std::fs::create_dir(place.members())?;
        }
        Ok(place)
    }

    /// Whether members can be there; `Err` says why not.
    pub(super) fn is_possible(kind: Kind) -> Result<()> {
        let mut place = Self::new(kind)?;
        if kind == Kind::Ext4 {
            place.cut_power()?;
            place.restore_power()?;
        }
        Ok(())
    }

    /// For sockets and state, and for what outlives the server.
    pub(super) fn folders(&self) -> (&Path, Option<&Path>) {
        (self.folder(), Some(&self.run))
    }

    /// For sockets and notes; its power is never cut.
    pub(super) fn folder(&self) -> &Path {
        self.folder.as_ref().expect("it is there until it is kept").path()
    }

    /// For members.
    pub(super) fn members(&self) -> PathBuf {
        self.folder().join("members")
    }

    fn image(&self) -> PathBuf {
        self.folder().join("ext4.img")
    }

    /// Nothing more reaches the disk.
    pub(super) fn cut_power(&self) -> Result<()> {
        run(Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(self.members()))
    }

    /// Power was cut: what was in memory is gone. The server of an array without parity keeps
    /// nothing there, and makes no folder for it.
    pub(super) fn forget_answered(&self) -> Result<()> {
        if !self.run.exists() {
            return Ok(());
        }
        for entry in std::fs::read_dir(&self.run)? {
            std::fs::remove_file(entry?.path())?;
        }
        Ok(())
    }

    /// Mounts again what the disk holds. Processes that had files open must be gone.
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

    /// Leaves everything where it is; says where.
    pub(super) fn keep(mut self) -> String {
        let folder = self.folder.take().expect("kept once").keep();
        let what = match self.kind {
            Kind::Tmpfs => "the members are in",
            Kind::Ext4 => "ext4.img with the members is still mounted in",
        };
        self.mounted = false;
        format!("{what} {}", folder.display())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.mounted && self.unmount().is_err() {
            eprintln!("{} is still mounted", self.members().display());
        }
    }
}
