//! An NBD export as a file, by QEMU's storage daemon and FUSE, without a kernel module.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::array::Array;
use super::process::{Background, wait_until};
use super::server_process::ServerProcess;

/// A file with the array's content; the mount ends on drop.
pub(crate) struct Mount {
    daemon: Background,
    pub(crate) file: PathBuf,
}

impl Mount {
    /// Whether FUSE can be used on this machine.
    pub(crate) fn is_possible() -> bool {
        std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok()
    }

    pub(crate) fn new(array: &Array, served: &ServerProcess) -> Self {
        let file = array.path("disk");
        std::fs::write(&file, b"").expect("a file to mount on");
        let socket = served.socket.display();
        let node = format!("driver=nbd,node-name=disk,server.type=unix,server.path={socket}");
        let export = format!("fuse,id=e,node-name=disk,mountpoint={},writable=on", file.display());
        let arguments = ["--blockdev", &node, "--export", &export];
        let mut daemon = Background::spawn("qemu-storage-daemon", arguments);
        wait_until("the disk to appear", Duration::from_secs(20), || {
            assert!(!daemon.has_ended(), "qemu-storage-daemon ended");
            size(&file) == Some(served.size_bytes)
        });
        Self { daemon, file }
    }

    pub(crate) fn word(&self) -> String {
        self.file.display().to_string()
    }

    pub(crate) fn end(self) {
        self.daemon.terminate();
        wait_until("the disk to go", Duration::from_secs(20), || size(&self.file) == Some(0));
    }
}

fn size(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().map(|metadata| metadata.len())
}
