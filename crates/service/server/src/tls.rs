//! Which clients may connect: certificates, and addresses that other machines can reach.

use std::path::{Path, PathBuf};

use braid_frontend_nbd::Endpoint;
use braid_frontend_nbd::tls::{CertificateError, Clients, Tls};

use super::address::{Address, bind_error};
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::shell_argument;

/// Certificates, and the clients that need them.
#[derive(Clone, Debug, Default)]
pub struct TlsConfig {
    /// The folder with server-cert.pem, server-key.pem, ca-cert.pem and optionally ca-crl.pem.
    pub folder: Option<PathBuf>,
    /// Any client may connect by TLS without a certificate; otherwise a client needs a certificate
    /// that `ca-cert.pem` signed.
    pub admits_any: bool,
    /// Clients without TLS may connect as well; on loopback and Unix sockets only.
    pub is_optional: bool,
}

impl TlsConfig {
    /// Loads the certificates, if any address uses TLS.
    pub(super) fn load(&self, addresses: &[Address]) -> Result<Option<Tls>, CliError> {
        let Some(address) = addresses.iter().find(|address| address.is_tls) else {
            return match &self.folder {
                None => Ok(None),
                Some(_) => Err(without_address()),
            };
        };
        let Some(folder) = &self.folder else { return Err(without_folder(&address.text)) };
        let clients = if self.admits_any { Clients::Any } else { Clients::Known };
        let tls = Tls::load(folder, clients).map_err(|error| unusable(folder, &error))?;
        let tls = if self.is_optional { tls.optional() } else { tls };
        let open = addresses.iter().find(|address| address.endpoint.is_open());
        match open {
            Some(open) if !tls.is_closed() => Err(open_to_all(open)),
            _ => Ok(Some(tls)),
        }
    }
}

const EXAMPLE: &str = "braid serve --nbd nbds://0.0.0.0:10809/ --tls /etc/pki/braid MEMBER...";

fn without_folder(uri: &str) -> CliError {
    CliError::new(Code::Certificates, format!("'{uri}' needs TLS, and no certificates were given"))
        .because("--tls names the folder that has server-cert.pem, server-key.pem and ca-cert.pem")
        .remedy(Risk::Look, "Name the folder", EXAMPLE)
}

fn without_address() -> CliError {
    CliError::new(Code::Usage, "--tls has certificates, but no URI uses TLS")
        .because("a URI with TLS is nbds://ADDRESS:PORT/ or nbds+unix:///?socket=PATH")
        .remedy(Risk::Look, "Serve by TLS", EXAMPLE)
}

fn open_to_all(open: &Address) -> CliError {
    let Endpoint::Tcp(address) = &open.endpoint else { unreachable!("only addresses are open") };
    let error = braid_frontend_nbd::BindError::NotLoopback(address.ip().to_string());
    bind_error(&error).because(
        "every client that reaches this address could read and write the array: require client \
         certificates there (without --tls-clients any and --tls-optional)",
    )
}

fn unusable(folder: &Path, error: &CertificateError) -> CliError {
    let what = format!("the certificates in {} cannot be used", folder.display());
    let refused = CliError::new(Code::Certificates, what).because(error.to_string());
    match error {
        CertificateError::KeyOpen { path, .. } => {
            let path = path.to_string_lossy();
            let command = format!("chmod 600 {}", shell_argument(&path));
            refused.remedy(Risk::Change, "Let only its owner read it", command)
        }
        CertificateError::Unreadable { .. } | CertificateError::Content { .. } => {
            refused.remedy(Risk::Look, "See how to make them", "braid help B094")
        }
    }
}
