//! Listening sockets passed on by the service manager: systemd's socket activation.
//!
//! `$LISTEN_FDS` is the number of sockets, `$LISTEN_FDNAMES` lists their purposes
//! (`FileDescriptorName=` of the socket unit). An unknown purpose is an error, because a client
//! that connects to such a socket would never be answered. Without names the sockets are for NBD
//! clients.

use std::io;
use std::os::fd::OwnedFd;

use listenfd::ListenFd;

/// Valid names of passed-on sockets.
const NAMES: [&str; 2] = ["nbd", "control"];

/// Sockets that the service manager passed on, by purpose.
#[derive(Debug, Default)]
pub struct InheritedSockets {
    /// Sockets for NBD clients.
    pub nbd: Vec<OwnedFd>,
    /// Sockets for the control API.
    pub control: Vec<OwnedFd>,
}

/// Why the passed-on sockets cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InheritedError {
    /// A socket has a name other than the valid ones.
    #[error(
        "a socket named {0:?} was passed on; only nbd and control are known \
             (FileDescriptorName=)"
    )]
    Name(String),
    /// A descriptor is no listening stream socket.
    #[error("the socket passed on as number {number} is no stream socket that listens: {source}")]
    Kind {
        /// The descriptor's number among those passed on, from 0.
        number: usize,
        /// The error that occurred when the descriptor was taken as a listening stream socket.
        #[source]
        source: io::Error,
    },
}

impl InheritedSockets {
    /// Takes over the sockets that the service manager passed to this process; a second call gets
    /// none.
    ///
    /// # Errors
    /// A socket has an unknown name, or is no listening stream socket.
    pub fn take() -> Result<Self, InheritedError> {
        let mut passed = ListenFd::from_env();
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut inherited = Self::default();
        for (number, name) in purposes(&names, passed.len())?.into_iter().enumerate() {
            let socket = socket(&mut passed, number);
            let socket = socket.map_err(|source| InheritedError::Kind { number, source })?;
            match name {
                "control" => inherited.control.extend(socket),
                _ => inherited.nbd.extend(socket),
            }
        }
        Ok(inherited)
    }
}

/// Returns passed-on socket `number`, Unix or TCP, as a descriptor.
fn socket(passed: &mut ListenFd, number: usize) -> io::Result<Option<OwnedFd>> {
    match passed.take_unix_listener(number) {
        Ok(found) => Ok(found.map(OwnedFd::from)),
        Err(_) => passed.take_tcp_listener(number).map(|found| found.map(OwnedFd::from)),
    }
}

/// The purpose of each of `count` sockets, from `names`, which colons separate.
fn purposes(names: &str, count: usize) -> Result<Vec<&str>, InheritedError> {
    let mut names = names.split(':').filter(|_| !names.is_empty());
    let purpose = |_| match names.next() {
        // These are systemd's values if the unit has no name for the socket.
        None | Some("" | "unknown" | "connection") => Ok(NAMES[0]),
        Some(name) if NAMES.contains(&name) => Ok(name),
        // systemd's default for the name is the name of the unit.
        Some(name) if name.ends_with(".socket") => Ok(NAMES[0]),
        Some(name) => Err(InheritedError::Name(name.to_owned())),
    };
    (0..count).map(purpose).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_told_apart_by_their_names() {
        let found = |names, count| purposes(names, count).map_err(|error| error.to_string());
        assert_eq!(found("", 2), Ok(vec!["nbd", "nbd"]));
        assert_eq!(found("control:nbd", 2), Ok(vec!["control", "nbd"]));
        assert_eq!(found("braid-tank.socket", 1), Ok(vec!["nbd"]));
        assert_eq!(found("unknown", 0), Ok(vec![]));
        assert!(found("nbd:metrics", 2).is_err_and(|error| error.contains("\"metrics\"")));
    }

    #[test]
    fn without_a_service_manager_there_are_none() {
        let inherited = InheritedSockets::take().expect("nothing is no error");
        assert!(inherited.nbd.is_empty() && inherited.control.is_empty());
    }
}
