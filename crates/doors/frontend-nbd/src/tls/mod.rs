//! TLS in front of connections: who may come in, and the thread that turns records into plain bytes and back.
//!
//! Where it stands: between the accept thread and the connections. What a connection is given is one end of a socket pair; the
//! other end is [`pump`]'s, which has the client's socket. So neither the machine of a connection nor what carries it knows of
//! TLS, and a client that has not shown its certificate has no connection, no place among those that there may be, and no memory.
//!
//! ```text
//!   client ═══ TLS ═══ a thread ─── socket pair ─── connection (ring or threads)
//!              gate: the greeting, options up to STARTTLS      [`braid_nbd_proto::TlsGate`]
//!              handshake: certificates both ways               [`rustls`]
//!              pump: bytes both ways
//! ```
//!
//! The files are named as QEMU, libvirt and nbdkit name them, in one folder: `ca-cert.pem` signs clients' certificates,
//! `server-cert.pem` and `server-key.pem` are the server's, `ca-crl.pem` has what was called back, if it is there.
//!
//! What it does not do: keys that are shared beforehand (TLS-PSK), which rustls has not; the server's certificate anew while
//! it runs.
//!
//! - A client that may not come in reaches no connection: `tests/tls.rs`.
//! - One that says nothing holds up no other, and is cut at the deadline of the negotiation: `tests/tls.rs`.

mod load;
mod pump;
mod watch;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;

pub(crate) use watch::Pumps;

use crate::dealer::Dealer;
use crate::limits;

/// Which clients may come in by TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clients {
    /// Those that show a certificate which `ca-cert.pem` signs for.
    Known,
    /// All of them: the server shows who it is, and believes everybody.
    Any,
}

/// How a server does TLS; one for all endpoints that have it.
#[derive(Debug, Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
    clients: Clients,
    is_required: bool,
}

/// Why a folder of certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is not there, or cannot be read.
    #[error("{path} cannot be read: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's word.
        #[source]
        source: io::Error,
    },
    /// A file has nothing in it of what it should have, or it is broken.
    #[error("{path} {what}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is the matter.
        what: String,
    },
    /// Others than the owner and its group may read the key.
    #[error("{path} may be read by every user (mode {mode:o})")]
    KeyOpen {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
}

impl Tls {
    /// Reads the certificates of a folder, for a server that lets in who is named by `clients`.
    ///
    /// # Errors
    /// Every [`TlsError`].
    pub fn load(folder: &Path, clients: Clients) -> Result<Self, TlsError> {
        let config = Arc::new(load::config(folder, clients)?);
        Ok(Self { config, clients, is_required: true })
    }

    /// The same, where clients that do not ask for TLS come in as well.
    #[must_use]
    pub fn optional(self) -> Self {
        Self { is_required: false, ..self }
    }

    /// Whether it keeps everybody out who was not let in by a certificate.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_required && self.clients == Clients::Known
    }

    /// Has a client's socket looked after by a thread of its own; false if there is none to be had, or no room.
    pub(crate) fn serve(&self, (socket, is_tcp): (OwnedFd, bool), dealer: Dealer) -> bool {
        let pumps = Arc::clone(&dealer.shared.pumps);
        let Some(place) = pumps.enter(&socket, dealer.shared.settings.negotiating_max) else {
            return false;
        };
        let tls = self.clone();
        let body = move || pump::serve(&tls, (socket, is_tcp), &dealer, &place);
        let builder = std::thread::Builder::new().name("nbd-tls".into());
        builder.stack_size(limits::STACK_BYTES).spawn(body).is_ok()
    }
}
