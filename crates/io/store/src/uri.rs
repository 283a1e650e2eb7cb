//! URIs of stores.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// A store, and the key or object of one array's record in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUri {
    /// etcd v3.
    Etcd {
        /// Addresses of the cluster's members, each `HOST:PORT`.
        addresses: Vec<String>,
        /// The key.
        key: String,
        /// The folder with `ca-cert.pem`, and perhaps `client-cert.pem`, `client-key.pem` and
        /// `credentials`.
        certificates: Option<PathBuf>,
    },
    /// An object in a bucket.
    S3 {
        /// The bucket.
        bucket: String,
        /// The object's key.
        key: String,
        /// The URL of the service.
        endpoint: String,
        /// The region; `us-east-1` unless named.
        region: String,
    },
}

/// Why a text names no store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UriError {
    /// The text has another form.
    #[error("a store is etcd://HOST:PORT/KEY or s3://BUCKET/KEY?endpoint=URL")]
    Form,
    /// A user or password, which the list of processes would show.
    #[error("a store's URI has no user and no password in it")]
    Credentials,
    /// Plain HTTP beyond this host: others could change the record.
    #[error("{0} is on another host, and needs TLS")]
    Plain(String),
    /// A parameter that no store has.
    #[error("a store's URI has no parameter {0}")]
    Parameter(String),
}

impl FromStr for StoreUri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        let (scheme, rest) = text.split_once("://").ok_or(UriError::Form)?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, key) = place.split_once('/').ok_or(UriError::Form)?;
        if host.is_empty() || key.is_empty() {
            return Err(UriError::Form);
        }
        if host.contains('@') {
            return Err(UriError::Credentials);
        }
        let mut parameters = query.split('&').filter(|one| !one.is_empty()).map(|one| {
            let (name, value) = one.split_once('=').unwrap_or((one, ""));
            (name, value.to_owned())
        });
        match scheme {
            "etcd" => {
                let mut certificates = None;
                for (name, value) in parameters {
                    match name {
                        "tls-certificates" => certificates = Some(PathBuf::from(value)),
                        other => return Err(UriError::Parameter(other.to_owned())),
                    }
                }
                let addresses: Vec<String> = host.split(',').map(str::to_owned).collect();
                for address in &addresses {
                    let (name, port) = address.rsplit_once(':').ok_or(UriError::Form)?;
                    port.parse::<u16>().map_err(|_| UriError::Form)?;
                    if certificates.is_none() && !is_loopback(name) {
                        return Err(UriError::Plain(address.clone()));
                    }
                }
                Ok(Self::Etcd { addresses, key: key.to_owned(), certificates })
            }
            "s3" => {
                let (mut endpoint, mut region) = (None, "us-east-1".to_owned());
                for (name, value) in &mut parameters {
                    match name {
                        "endpoint" => endpoint = Some(value),
                        "region" => region = value,
                        other => return Err(UriError::Parameter(other.to_owned())),
                    }
                }
                let endpoint =
                    endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
                let server = endpoint.strip_prefix("http://").map(|rest| {
                    let rest = rest.split('/').next().unwrap_or_default();
                    rest.rsplit_once(':').map_or(rest, |(name, _)| name)
                });
                match server {
                    Some(name) if !is_loopback(name) => return Err(UriError::Plain(endpoint)),
                    None if !endpoint.starts_with("https://") => return Err(UriError::Form),
                    _ => {}
                }
                let (bucket, key) = (host.to_owned(), key.to_owned());
                Ok(Self::S3 { bucket, key, endpoint, region })
            }
            _ => Err(UriError::Form),
        }
    }
}

fn is_loopback(name: &str) -> bool {
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_have_uris_and_plain_http_stays_on_this_host() {
        let etcd: StoreUri = "etcd://127.0.0.1:2379,[::1]:2379/braid/pool".parse().expect("a URI");
        let StoreUri::Etcd { addresses, key, certificates: None } = &etcd else {
            panic!("{etcd:?}")
        };
        assert_eq!((addresses.len(), key.as_str()), (2, "braid/pool"));
        assert!("etcd://a:2379,b:2379/pool?tls-certificates=/etc/pki".parse::<StoreUri>().is_ok());
        let s3: StoreUri = "s3://b/k/pool?endpoint=http://localhost:5000".parse().expect("a URI");
        let StoreUri::S3 { bucket, key, region, .. } = &s3 else { panic!("{s3:?}") };
        assert_eq!((&**bucket, &**key, &**region), ("b", "k/pool", "us-east-1"));
        assert!("s3://b/k?region=eu-west-1".parse::<StoreUri>().is_ok());
        for (bad, why) in [
            ("pool", UriError::Form),
            ("http://a/b", UriError::Form),
            ("etcd://127.0.0.1/pool", UriError::Form),
            ("etcd://127.0.0.1:2379/", UriError::Form),
            ("etcd://127.0.0.1:x/pool", UriError::Form),
            ("etcd://u:p@127.0.0.1:2379/pool", UriError::Credentials),
            ("etcd://10.0.0.1:2379/pool", UriError::Plain("10.0.0.1:2379".into())),
            ("etcd://127.0.0.1:1/pool?token=x", UriError::Parameter("token".into())),
            ("s3://b/k?endpoint=http://10.0.0.1", UriError::Plain("http://10.0.0.1".into())),
            ("s3://b/k?endpoint=ftp://a", UriError::Form),
        ] {
            assert_eq!(bad.parse::<StoreUri>(), Err(why), "{bad}");
        }
    }
}
