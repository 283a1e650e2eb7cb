//! The vhost-user door of `braid serve`: the array as a disk of virtual machines, in addition to
//! NBD.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use braid_frontend_nbd::Listener;
use braid_frontend_vhost_user::{Disk, Door};
use braid_ring::Workers;
use serde_json::json;

use super::address::socket_error;
use super::report::Reporter;
use braid_console::error::CliError;
use braid_console::error::system::system;
use braid_console::output::printable::printable;

/// Reserves the path of the array's vhost-user socket before the array is touched.
pub(super) fn place(path: &Path) -> Result<VhostSocket, CliError> {
    let listener = Listener::bind_unix(path).map_err(|error| {
        let what = format!("the socket {} cannot be used for vhost-user", path.display());
        socket_error(what, &error, "braid serve --vhost-user /tmp/other.sock MEMBER...")
    })?;
    // Makes the path absolute, because clients run in other folders.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    Ok(VhostSocket { listener, path })
}

/// A listening socket that accepts no client yet.
pub(super) struct VhostSocket {
    listener: Listener,
    path: PathBuf,
}

pub(super) struct VhostDoor {
    // Fields drop in this order: the acceptor ends before its socket is removed.
    door: Door,
    _listener: Listener,
    path: PathBuf,
}

impl VhostDoor {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

pub(super) fn open(
    socket: VhostSocket,
    (disk, logical_block_bytes): (Arc<dyn Disk>, Option<u32>),
    (workers, uuid): (Option<&Arc<Workers>>, &str),
) -> Result<VhostDoor, CliError> {
    let what = "the array cannot be served by vhost-user";
    let VhostSocket { listener, path } = socket;
    let socket = listener.as_fd().try_clone_to_owned().map_err(|error| system(what, &error))?;
    let told = (disk, logical_block_bytes.unwrap_or(512), name_of(uuid));
    let door = Door::open(socket, told, workers.map(Arc::clone));
    let door = door.map_err(|error| system(what, &error.source).because(error.to_string()))?;
    Ok(VhostDoor { door, _listener: listener, path })
}

/// Disconnects the client and accepts no other.
pub(super) fn close(open: VhostDoor, deadline: Duration, reporter: &Reporter) {
    let path = open.path.display().to_string();
    let closed = open.door.close(deadline);
    if closed.was_in_use {
        let text = format!(
            "a virtual machine was using {} when the array was stopped: its requests wait, or \
             fail if it does not reconnect to the next server",
            printable(&path)
        );
        let facts = json!({ "socket": path, "unanswered": closed.unanswered });
        reporter.aside("machine-cut", &facts, &text);
    }
}

/// The disk's serial number for guests: the first 20 digits of the array's UUID.
fn name_of(uuid: &str) -> [u8; 20] {
    let mut name = [0; 20];
    let digits = uuid.bytes().filter(u8::is_ascii_hexdigit);
    name.iter_mut().zip(digits).for_each(|(byte, digit)| *byte = digit);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_knows_the_disk_by_the_arrays_uuid() {
        let name = name_of("01234567:89abcdef:01234567:89abcdef");
        assert_eq!(&name, b"0123456789abcdef0123");
    }
}
