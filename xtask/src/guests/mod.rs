//! `cargo xtask guests`: virtual machines whose disk is an array served by this machine.
//!
//! ```text
//! mod          choice of scenes; their common parts
//! vhost_user   the guest boots from the array, by vhost-user-blk of braid or of
//!              qemu-storage-daemon: SeaBIOS, GRUB, Linux
//! md_pairs     md of two guests over the same two NBD servers, without fencing; only by its name
//! nbd_client   the guest's kernel is the client, set up by nbd-client over TCP
//!    | image        a disk that boots
//!    | array        the array, served, asked and killed
//!    | files        the guest's files on it, read by this machine
//!    | machine      QEMU, and a dialogue with the guest over its console
//! guest/*.sh   scripts inside the guest
//! ```
//!
//! Foreign programs and a real kernel must go on while members fail and the server is killed, and
//! every file must keep its bytes. No test here needs root, KVM or a module on this machine. If a
//! scene fails, its files are kept.

mod array;
mod files;
mod image;
pub(crate) mod machine;
mod md_pairs;
mod nbd_client;
mod vhost_user;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;

use crate::build::Program;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Only this scene
    #[arg(long, value_enum)]
    only: Option<Scene>,
    /// This program, not the development build
    #[arg(long, value_name = "PATH")]
    braid: Option<PathBuf>,
}

impl Options {
    /// Options for all scenes, for `cargo xtask test`.
    pub(crate) fn short() -> Self {
        Self { only: None, braid: None }
    }
}

/// One machine and its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Scene {
    /// It boots from the array, by vhost-user-blk of qemu-storage-daemon
    VhostUser,
    /// It boots from the array, by vhost-user-blk of braid itself
    VhostUserOwn,
    /// Its kernel's nbd driver is the client, with ext4 on it
    NbdClient,
    /// md of two guests over the same two NBD servers: what it loses where braid fences
    MdPairs,
}

impl Scene {
    /// The scenes with arrays of braid.
    const ALL: [Self; 3] = [Self::VhostUser, Self::VhostUserOwn, Self::NbdClient];

    fn run(self, braid: &Path) -> Result<()> {
        let folder = tempfile::Builder::new().prefix("braid-guest-").tempdir_in("/dev/shm")?;
        let done = match self {
            Self::VhostUser => vhost_user::run(braid, folder.path()),
            Self::VhostUserOwn => vhost_user::run_own(braid, folder.path()),
            Self::NbdClient => nbd_client::run(braid, folder.path()),
            Self::MdPairs => md_pairs::run(folder.path()),
        };
        done.map_err(|error| error.context(format!("the files are in {}", folder.keep().display())))
    }
}

/// Runs the chosen scenes; returns how many.
pub(crate) fn run(options: &Options) -> Result<usize> {
    let braid = match &options.braid {
        Some(path) => path.clone(),
        None => Program::Braid.dev()?,
    };
    let scenes = options.only.map_or_else(|| Scene::ALL.to_vec(), |only| vec![only]);
    let mut count = 0;
    for scene in scenes {
        let begun = Instant::now();
        println!("{scene:?}");
        scene.run(&braid)?;
        println!("  {:.0} s", begun.elapsed().as_secs_f64());
        count += 1;
    }
    Ok(count)
}
