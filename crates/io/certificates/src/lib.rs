//! Certificates, keys and lists of revoked certificates, read from PEM files.
//!
//! Where it stands: below the NBD server's TLS and the NBD client's. Both keep their files in a
//! folder, with the names of QEMU, libvirt and libnbd: `ca-cert.pem` signs the peer's certificate,
//! `server-cert.pem` and `server-key.pem` (or `client-`) are the program's own.

#![forbid(unsafe_code)]

use std::io;
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Why a folder of certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file is missing, or cannot be read.
    #[error("{path} cannot be read: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A file lacks the expected content, or is broken.
    #[error("{path} {what}")]
    Content {
        /// The file.
        path: PathBuf,
        /// The problem.
        what: String,
    },
    /// Users beyond the key's owner and group may read the key.
    #[error("{path} is readable by every user (mode {mode:o})")]
    KeyOpen {
        /// The file.
        path: PathBuf,
        /// The file's mode.
        mode: u32,
    },
}

/// All items of a file, at least one. `what` names such an item, for the error.
///
/// # Errors
/// The file cannot be read, is no regular file, or has no such item.
pub fn all<T: PemObject>(path: &Path, what: &str) -> Result<Vec<T>, CertificateError> {
    check_regular(path)?;
    let items = T::pem_file_iter(path).map_err(|error| failed(path, what, &error))?;
    let items: Result<Vec<T>, pem::Error> = items.collect();
    let items = items.map_err(|error| failed(path, what, &error))?;
    match items.is_empty() {
        true => Err(content(path, format!("has no {what}"))),
        false => Ok(items),
    }
}

/// The certificates of a file.
///
/// # Errors
/// As for [`all`].
pub fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    all(path, "certificate")
}

/// The private key of a file.
///
/// # Errors
/// As for [`all`].
pub fn key(path: &Path) -> Result<PrivateKeyDer<'static>, CertificateError> {
    check_regular(path)?;
    PrivateKeyDer::from_pem_file(path).map_err(|error| failed(path, "key", &error))
}

/// The authorities of a file: they sign the peers' certificates.
///
/// # Errors
/// As for [`all`], or a certificate cannot be used.
pub fn authorities(path: &Path) -> Result<RootCertStore, CertificateError> {
    let mut roots = RootCertStore::empty();
    for root in chain(path)? {
        roots.add(root).map_err(|error| broken(path, &error))?;
    }
    Ok(roots)
}

/// The error of a file whose content rustls does not take.
pub fn broken(path: &Path, error: &dyn std::error::Error) -> CertificateError {
    content(path, format!("cannot be used: {error}"))
}

/// The error of a file that the system does not let the process read.
pub fn unreadable(path: &Path, source: io::Error) -> CertificateError {
    CertificateError::Unreadable { path: path.to_owned(), source }
}

fn content(path: &Path, what: String) -> CertificateError {
    CertificateError::Content { path: path.to_owned(), what }
}

/// Refuses all but regular files: opening a named pipe would block, and a device may have no end.
fn check_regular(path: &Path) -> Result<(), CertificateError> {
    let status = std::fs::metadata(path).map_err(|source| unreadable(path, source))?;
    if status.is_file() { Ok(()) } else { Err(content(path, "is no regular file".to_owned())) }
}

fn failed(path: &Path, what: &str, error: &pem::Error) -> CertificateError {
    match error {
        pem::Error::Io(source) => unreadable(path, io::Error::from(source.kind())),
        pem::Error::NoItemsFound => content(path, format!("has no {what}")),
        other => broken(path, other),
    }
}
