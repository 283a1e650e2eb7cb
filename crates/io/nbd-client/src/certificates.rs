//! A client's certificates, from a folder with the file names of QEMU, libvirt and libnbd.
//!
//! `ca-cert.pem` signs the server's certificate. `client-cert.pem` and `client-key.pem` are the
//! client's own; a client without them shows no certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// A file of certificates cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} cannot be used: {why}", .path.display())]
pub struct CertificateError {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    pub why: String,
}

pub(crate) fn load(folder: &Path) -> Result<Arc<ClientConfig>, CertificateError> {
    let authority = folder.join("ca-cert.pem");
    let mut roots = RootCertStore::empty();
    for root in certificates(&authority)? {
        roots.add(root).map_err(|error| failed(&authority, &error))?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("ring has what both need");
    let builder = builder.with_root_certificates(roots);
    let [own, key] = ["client-cert.pem", "client-key.pem"].map(|name| folder.join(name));
    if !own.exists() && !key.exists() {
        return Ok(Arc::new(builder.with_no_client_auth()));
    }
    let chain = certificates(&own)?;
    check_regular(&key)?;
    let private = PrivateKeyDer::from_pem_file(&key).map_err(|error| failed(&key, &error))?;
    let config = builder.with_client_auth_cert(chain, private);
    Ok(Arc::new(config.map_err(|error| failed(&own, &error))?))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    check_regular(path)?;
    let items = CertificateDer::pem_file_iter(path).map_err(|error| failed(path, &error))?;
    let items: Result<Vec<_>, pem::Error> = items.collect();
    let items = items.map_err(|error| failed(path, &error))?;
    match items.is_empty() {
        true => Err(CertificateError { path: path.into(), why: "it has no certificate".into() }),
        false => Ok(items),
    }
}

/// Refuses all but regular files: opening a named pipe would block.
fn check_regular(path: &Path) -> Result<(), CertificateError> {
    match std::fs::metadata(path) {
        Ok(status) if status.is_file() => Ok(()),
        Ok(_) => Err(CertificateError { path: path.into(), why: "it is no regular file".into() }),
        Err(error) => Err(failed(path, &error)),
    }
}

fn failed(path: &Path, error: &dyn std::error::Error) -> CertificateError {
    CertificateError { path: path.into(), why: error.to_string() }
}
