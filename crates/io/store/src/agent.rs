//! HTTP to a store.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig, TlsProvider};

use crate::{PATIENCE, StoreError};

/// An HTTP agent. A folder's `ca-cert.pem` signs the servers' certificates, and the agent shows the
/// folder's `client-cert.pem` if the folder has one. Without a folder the system's authorities
/// count.
pub(crate) fn agent(is_secure: bool, folder: Option<&Path>) -> Result<Agent, StoreError> {
    let mut tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(default_provider()));
    if is_secure {
        let roots: Vec<Certificate<'static>> = match folder {
            Some(folder) => certificates(&folder.join("ca-cert.pem"))?,
            None => {
                let native = rustls_native_certs::load_native_certs().certs;
                native.iter().map(|root| Certificate::from_der(root).to_owned()).collect()
            }
        };
        tls = tls.root_certs(RootCerts::Specific(Arc::new(roots)));
        let own = folder.map(|folder| folder.join("client-cert.pem")).filter(|own| own.exists());
        if let (Some(folder), Some(own)) = (folder, own) {
            let key = folder.join("client-key.pem");
            let text = std::fs::read(&key);
            let text = text.map_err(|error| unreadable(&key, &error.to_string()))?;
            let key = PrivateKey::from_pem(&text)
                .map_err(|error| unreadable(&key, &error.to_string()))?;
            tls = tls.client_cert(Some(ClientCert::new_with_certs(&certificates(&own)?, key)));
        }
    }
    let config = Agent::config_builder()
        .tls_config(tls.build())
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .timeout_global(Some(PATIENCE))
        .user_agent(concat!("braid/", env!("CARGO_PKG_VERSION")))
        .build();
    Ok(config.into())
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, StoreError> {
    let chain = braid_certificates::chain(path);
    let chain = chain.map_err(|error| StoreError::Credentials(error.to_string()))?;
    Ok(chain.iter().map(|one| Certificate::from_der(one).to_owned()).collect())
}

pub(crate) fn unreadable(path: &Path, why: &str) -> StoreError {
    StoreError::Credentials(format!("{} cannot be used: {why}", path.display()))
}
