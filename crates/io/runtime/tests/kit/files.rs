//! Arrays of files, which rings can work on.

use std::path::{Path, PathBuf};

use braid_assembly::{ProbedMember, assemble};
use braid_geometry::Level;
use braid_member::{Access, Member, create_file, open};
use braid_runtime::{Notice, OpenMember, Options, Volume};

use crate::kit::{probed, superblocks};

/// An array of files that outlives the volumes opened on it.
pub(crate) struct Files {
    folder: tempfile::TempDir,
    slots: u16,
}

impl Files {
    /// Makes `slots` zeroed members of a clean array.
    pub(crate) fn new(level: Level, slots: u16, chunk_sectors: u32, member_bytes: u64) -> Self {
        Self::new_in(&std::env::temp_dir(), level, slots, chunk_sectors, member_bytes)
    }

    /// As `new`, with the files in another folder.
    pub(crate) fn new_in(
        folder: &Path,
        level: Level,
        slots: u16,
        chunk_sectors: u32,
        member_bytes: u64,
    ) -> Self {
        let array = Self { folder: tempfile::tempdir_in(folder).expect("a folder"), slots };
        for (slot, superblock) in (0..).zip(superblocks(level, slots, chunk_sectors, member_bytes))
        {
            let device = create_file(&array.path(slot), member_bytes).expect("a file");
            device
                .write_at(&superblock.to_bytes(), superblock.offset_bytes(), true)
                .expect("a file takes writes");
        }
        array
    }

    pub(crate) fn path(&self, slot: u16) -> PathBuf {
        self.folder.path().join(format!("m{slot}"))
    }

    /// Whether the files are kept in memory.
    #[allow(dead_code)] // not every test calls it
    pub(crate) fn is_memory(&self) -> bool {
        open(&self.path(0), Access::Examine).expect("a member").is_memory()
    }

    /// Opens the array with `options`.
    pub(crate) fn open(
        &self,
        options: &Options,
        watch: impl Fn(Notice) + Send + 'static,
    ) -> Volume {
        self.open_after(options, |_| {}, watch)
    }

    /// As `open`, after `each` was called for every member.
    pub(crate) fn open_after(
        &self,
        options: &Options,
        each: impl Fn(&dyn Member),
        watch: impl Fn(Notice) + Send + 'static,
    ) -> Volume {
        let access = if options.read_only { Access::ReadOnly } else { Access::ReadWrite };
        let open = |slot| open(&self.path(slot), access).expect("a member");
        let devices: Vec<Box<dyn Member>> = (0..self.slots).map(open).collect();
        devices.iter().for_each(|device| each(&**device));
        let probed: Vec<ProbedMember> = (0..).zip(&devices).map(|(i, d)| probed(i, d)).collect();
        let assembly = assemble(&probed, &braid_assembly::Options::default());
        let members = devices.into_iter().zip(&probed).map(|(device, probed)| {
            let superblock = probed.probe.newest().expect("a member").clone();
            Some(OpenMember { device, superblock })
        });
        let array = assembly.array.expect("an array that can be run");
        Volume::open(&array, members.collect(), options, watch).expect("it opens")
    }
}
