//! A client's settings of TLS, from a folder. A client without a certificate of its own shows none.

use std::path::Path;
use std::sync::Arc;

use braid_certificates::{CertificateError, authorities, broken, chain, key};
use rustls::ClientConfig;
use rustls::crypto::ring::default_provider;

pub(crate) fn load(folder: &Path) -> Result<Arc<ClientConfig>, CertificateError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("ring has what both need");
    let builder = builder.with_root_certificates(authorities(&folder.join("ca-cert.pem"))?);
    let [own, own_key] = ["client-cert.pem", "client-key.pem"].map(|name| folder.join(name));
    if !own.exists() && !own_key.exists() {
        return Ok(Arc::new(builder.with_no_client_auth()));
    }
    let config = builder.with_client_auth_cert(chain(&own)?, key(&own_key)?);
    Ok(Arc::new(config.map_err(|error| broken(&own, &error))?))
}
