//! TLS in front of connections: it admits clients by certificate, and decrypts and encrypts.
//!
//! Where it stands: between the accept thread and the connections. A connection gets one end of a
//! socket pair; [`pump`] has the other end and the client's socket. So TLS is invisible to the
//! connection and its transport. A client that has not shown its certificate has no connection, no
//! entry in the registry, and no memory.
//!
//! ```text
//!   client ═══ TLS ═══ a thread ─── socket pair ─── connection (ring or threads)
//!              gate: the greeting, options up to STARTTLS      [`braid_nbd_proto::TlsGate`]
//!              handshake: certificates both ways               [`rustls`]
//!              pump: bytes both ways
//! ```
//!
//! The files have the names that QEMU, libvirt and nbdkit use, in one folder. `ca-cert.pem` signs
//! clients' certificates, `server-cert.pem` and `server-key.pem` are the server's, and the optional
//! `ca-crl.pem` lists revoked certificates.
//!
//! The server supports no pre-shared keys (TLS-PSK), which rustls lacks. It does not reload
//! certificates.
//!
//! - A client that is not admitted reaches no connection: `tests/tls.rs`.
//! - A silent client delays no other client, and is cut at the negotiation's deadline:
//!   `tests/tls.rs`.

mod load;
mod pump;
mod pump_registry;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

pub use braid_certificates::CertificateError;
use rustls::ServerConfig;

pub(crate) use pump_registry::Pumps;

use crate::dealer::Dealer;
use crate::limits;

/// The clients that TLS admits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clients {
    /// Clients with a certificate that `ca-cert.pem` signed.
    Known,
    /// All clients, also without a certificate: only the server shows a certificate.
    Any,
}

/// A server's TLS settings, shared by all its TLS endpoints.
#[derive(Debug, Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
    clients: Clients,
    is_required: bool,
}

impl Tls {
    /// Reads the certificates of a folder, for a server that admits `clients`.
    ///
    /// # Errors
    /// Every [`CertificateError`].
    pub fn load(folder: &Path, clients: Clients) -> Result<Self, CertificateError> {
        let config = Arc::new(load::config(folder, clients)?);
        Ok(Self { config, clients, is_required: true })
    }

    /// Also admits clients that do not ask for TLS.
    #[must_use]
    pub fn optional(self) -> Self {
        Self { is_required: false, ..self }
    }

    /// Whether only clients with a certificate are admitted.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_required && self.clients == Clients::Known
    }

    /// Starts a TLS thread for a client's socket; false if the thread cannot start or there is no
    /// room for the client.
    pub(crate) fn serve(&self, (socket, is_tcp): (OwnedFd, bool), dealer: Dealer) -> bool {
        let pumps = Arc::clone(&dealer.shared.pumps);
        let Some(entry) = pumps.enter(&socket, dealer.shared.settings.negotiating_max) else {
            return false;
        };
        let tls = self.clone();
        let body = move || pump::serve(&tls, (socket, is_tcp), &dealer, &entry);
        let builder = std::thread::Builder::new().name("nbd-tls".into());
        builder.stack_size(limits::STACK_BYTES).spawn(body).is_ok()
    }
}
