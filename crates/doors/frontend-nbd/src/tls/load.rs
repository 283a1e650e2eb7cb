//! Loads certificates and keys from a folder.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use super::{Clients, TlsError};

pub(super) fn config(folder: &Path, clients: Clients) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(default_provider());
    let [certificate, key] = ["server-cert.pem", "server-key.pem"].map(|name| folder.join(name));
    check_closed(&key)?;
    check_regular(&key)?;
    let chain = all::<CertificateDer<'_>>(&certificate, "certificate")?;
    let private =
        PrivateKeyDer::from_pem_file(&key).map_err(|error| failed(&key, "key", &error))?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().expect("ring has what both need");
    let builder = match clients {
        Clients::Any => builder.with_no_client_auth(),
        Clients::Known => {
            let authority = folder.join("ca-cert.pem");
            let mut roots = RootCertStore::empty();
            for root in all::<CertificateDer<'_>>(&authority, "certificate")? {
                roots.add(root).map_err(|error| broken(&authority, &error))?;
            }
            let revoked = folder.join("ca-crl.pem");
            let lists = match revoked.try_exists() {
                Ok(false) => Vec::new(),
                _ => all::<CertificateRevocationListDer<'_>>(&revoked, "list of what is revoked")?,
            };
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .with_crls(lists);
            let verifier = verifier.build().map_err(|error| broken(&authority, &error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    builder.with_single_cert(chain, private).map_err(|error| broken(&certificate, &error))
}

fn check_closed(key: &Path) -> Result<(), TlsError> {
    let status = std::fs::metadata(key).map_err(|source| unreadable(key, source))?;
    let mode = status.mode() & 0o777;
    match mode & 0o007 {
        0 => Ok(()),
        _ => Err(TlsError::KeyOpen { path: key.to_owned(), mode }),
    }
}

/// Refuses all but regular files: opening a named pipe would block, and a device may have no end.
fn check_regular(path: &Path) -> Result<(), TlsError> {
    let status = std::fs::metadata(path).map_err(|source| unreadable(path, source))?;
    match status.is_file() {
        true => Ok(()),
        false => {
            Err(TlsError::Content { path: path.to_owned(), what: "is no regular file".to_owned() })
        }
    }
}

fn all<T: PemObject>(path: &Path, what: &str) -> Result<Vec<T>, TlsError> {
    check_regular(path)?;
    let items = T::pem_file_iter(path).map_err(|error| failed(path, what, &error))?;
    let items: Result<Vec<T>, pem::Error> = items.collect();
    let items = items.map_err(|error| failed(path, what, &error))?;
    match items.is_empty() {
        true => Err(TlsError::Content { path: path.to_owned(), what: format!("has no {what}") }),
        false => Ok(items),
    }
}

fn failed(path: &Path, what: &str, error: &pem::Error) -> TlsError {
    match error {
        pem::Error::Io(source) => unreadable(path, io::Error::from(source.kind())),
        pem::Error::NoItemsFound => {
            TlsError::Content { path: path.to_owned(), what: format!("has no {what}") }
        }
        other => broken(path, other),
    }
}

fn unreadable(path: &Path, source: io::Error) -> TlsError {
    TlsError::Unreadable { path: PathBuf::from(path), source }
}

fn broken(path: &Path, error: &dyn std::error::Error) -> TlsError {
    TlsError::Content { path: path.to_owned(), what: format!("cannot be used: {error}") }
}
