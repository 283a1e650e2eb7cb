//! Reads a server's TLS settings from a folder.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use braid_certificates::{CertificateError, all, authorities, broken, chain, key, unreadable};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateRevocationListDer;
use rustls::server::WebPkiClientVerifier;

use super::Clients;

pub(super) fn config(folder: &Path, clients: Clients) -> Result<ServerConfig, CertificateError> {
    let provider = Arc::new(default_provider());
    let [own, own_key] = ["server-cert.pem", "server-key.pem"].map(|name| folder.join(name));
    check_closed(&own_key)?;
    let (private, chain) = (key(&own_key)?, chain(&own)?);
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().expect("ring has what both need");
    let builder = match clients {
        Clients::Any => builder.with_no_client_auth(),
        Clients::Known => {
            let authority = folder.join("ca-cert.pem");
            let roots = authorities(&authority)?;
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
    builder.with_single_cert(chain, private).map_err(|error| broken(&own, &error))
}

fn check_closed(key: &Path) -> Result<(), CertificateError> {
    let status = std::fs::metadata(key).map_err(|source| unreadable(key, source))?;
    let mode = status.mode() & 0o777;
    match mode & 0o007 {
        0 => Ok(()),
        _ => Err(CertificateError::KeyOpen { path: key.to_owned(), mode }),
    }
}
