//! Disks with one arm each: memory served by nbdkit, which delays and serves one request at a time.
//!
//! ```text
//!   braid serve ─▶ loop ─▶ FUSE ─▶ nbdfuse ─NBD─▶ nbdkit ─▶ memory
//! ```
//!
//! nbdkit serves one request at a time (noparallel), and each request waits (delay).

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::super::nbd::servers::{self, Server};
use super::super::peers::mounted::{Loop, again, output};

/// The time that a request takes at least, in milliseconds: close to a seek of a fast disk.
const REQUEST_MS: u32 = 2;

pub(super) struct Disk {
    /// A loop device with direct I/O. The loop device is needed because FUSE does not report the
    /// alignment for direct I/O.
    device: Option<Loop>,
    /// The process that serves the FUSE file; it ends when the file is unmounted.
    fuse: Child,
    _server: Server,
    folder: PathBuf,
}

impl Disk {
    /// A disk of `mebibytes` MiB, whose file is in a FUSE folder of this name.
    pub(super) fn new(place: &Path, name: &str, mebibytes: usize) -> Result<Self, String> {
        let socket = place.join(format!("{name}.sock"));
        let mut nbdkit = Command::new("nbdkit");
        nbdkit.args(["--foreground", "--filter=noparallel", "--filter=delay", "--unix"]);
        nbdkit.arg(&socket).arg("memory").arg(format!("{mebibytes}M"));
        nbdkit.arg("serialize=all-requests");
        nbdkit.arg(format!("delay-read={REQUEST_MS}ms")).arg(format!("delay-write={REQUEST_MS}ms"));
        let server = Server::start(&mut nbdkit, &socket)?;
        let folder = place.join(name);
        std::fs::create_dir(&folder).map_err(|error| error.to_string())?;
        let file = folder.join("disk");
        let mut nbdfuse = Command::new("nbdfuse");
        nbdfuse.arg(&file).arg(server.uri()).stdin(Stdio::null()).stdout(Stdio::null());
        let fuse = nbdfuse.spawn().map_err(|error| format!("{nbdfuse:?}: {error}"))?;
        let mut this = Self { device: None, fuse, _server: server, folder };
        servers::wait_for(&file)?;
        this.device = Some(Loop::attach(&file, &["--direct-io=on"])?);
        Ok(this)
    }

    pub(super) fn path(&self) -> String {
        self.device.as_ref().map_or("", Loop::path).to_owned()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.device = None;
        // If the file system cannot be unmounted, `mount` shows it.
        let _said = again(|| output(Command::new("umount").arg(&self.folder)));
        let _status = self.fuse.wait();
    }
}
