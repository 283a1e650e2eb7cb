//! NBD URIs: `nbd://host:port/export`, `nbd+unix:///export?socket=PATH`; with TLS `nbds`.
//!
//! Where it stands: the command line parses the argument of `--nbd` with this module, and prints
//! the URIs of served exports with it. Such a URI also names a member on another host. The module
//! resolves no names and opens no sockets.
//!
//! `tls-certificates=FOLDER` is libnbd's parameter for the folder of a client's certificates.
//!
//! Invariants
//! - Printing and parsing are inverse: `tests/uri.rs::printed_uris_parse_back`.

use std::fmt;
use std::str::FromStr;

use crate::limits::NAME_BYTES_MAX;

/// The port that IANA assigned to NBD.
pub const PORT_DEFAULT: u16 = 10_809;

/// The URI parameter that names the folder of a client's certificates.
const CERTIFICATES: &str = "tls-certificates";

/// How a client reaches the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// TCP to a host name or address (IPv6 without brackets) and port.
    Tcp {
        /// The server's host name or address.
        host: String,
        /// The server's TCP port.
        port: u16,
    },
    /// A Unix socket's path; bytes that are not UTF-8 survive percent-encoding.
    Unix {
        /// The socket's path, as the operating system's bytes.
        socket: Vec<u8>,
    },
}

/// A parsed NBD URI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NbdUri {
    /// How a client reaches the server.
    pub transport: Transport,
    /// Whether a client reaches the server through TLS.
    pub tls: bool,
    /// Export name; empty for the default export.
    pub export: String,
    /// Folder of a client's certificates, as the operating system's bytes; only with TLS.
    pub certificates: Option<Vec<u8>>,
}

/// Why a text is not an NBD URI that can be served or reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UriError {
    /// The text has no `scheme://`.
    #[error("not a URI: it does not begin with nbd:// or nbd+unix://")]
    NoScheme,
    /// The URI has a scheme that is not one of NBD's.
    #[error("unknown scheme {0}; use nbd, nbd+unix, nbds or nbds+unix")]
    Scheme(String),
    /// The URI has the scheme `nbd+unix` without `socket=`, or with an empty socket.
    #[error("nbd+unix needs the parameter ?socket=PATH")]
    NoSocket,
    /// The URI has the scheme `nbd+unix` and a host.
    #[error("nbd+unix takes no host: write nbd+unix:///EXPORT?socket=PATH")]
    HostWithUnix,
    /// The URI has the scheme `nbd` and no host.
    #[error("nbd:// needs a host")]
    NoHost,
    /// The URI has a port, host or `user@` that cannot be used.
    #[error("bad host or port: {0}")]
    Authority(String),
    /// The URI has a parameter that is unknown, repeated, or not allowed with its scheme.
    #[error("unknown, repeated or misplaced parameter {0}")]
    Parameter(String),
    /// The URI has a bad `%` sequence, text that is not UTF-8, a NUL, or a fragment.
    #[error("bad percent-encoding or character in {0}")]
    Encoding(String),
    /// The export name is longer than 4096 bytes.
    #[error("the export name is longer than 4096 bytes")]
    ExportTooLong,
}

impl FromStr for NbdUri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        let (scheme, rest) = text.split_once("://").ok_or(UriError::NoScheme)?;
        let (unix, tls) = match scheme.to_ascii_lowercase().as_str() {
            "nbd" => (false, false),
            "nbd+unix" => (true, false),
            "nbds" => (false, true),
            "nbds+unix" => (true, true),
            other => return Err(UriError::Scheme(other.to_owned())),
        };
        if rest.contains('#') {
            return Err(UriError::Encoding(text.to_owned()));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let export = decode_text(path)?;
        if export.len() > NAME_BYTES_MAX {
            return Err(UriError::ExportTooLong);
        }
        let Parameters { socket, certificates } = parse_query(query)?;
        if certificates.is_some() && !tls {
            return Err(UriError::Parameter(CERTIFICATES.to_owned()));
        }
        let transport = match (unix, socket) {
            (true, _) if !authority.is_empty() => return Err(UriError::HostWithUnix),
            (true, Some(socket)) if !socket.is_empty() => Transport::Unix { socket },
            (true, _) => return Err(UriError::NoSocket),
            (false, Some(_)) => return Err(UriError::Parameter("socket".to_owned())),
            (false, None) => parse_authority(authority)?,
        };
        Ok(Self { transport, tls, export, certificates })
    }
}

impl fmt::Display for NbdUri {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let export = encode(self.export.as_bytes());
        let scheme = if self.tls { "nbds" } else { "nbd" };
        match &self.transport {
            Transport::Unix { socket } => {
                write!(formatter, "{scheme}+unix:///{export}?socket={}", encode(socket))
            }
            Transport::Tcp { host, port } if host.contains(':') => {
                write!(formatter, "{scheme}://[{host}]:{port}/{export}")
            }
            Transport::Tcp { host, port } => {
                write!(formatter, "{scheme}://{}:{port}/{export}", encode_host(host))
            }
        }?;
        let Some(folder) = &self.certificates else { return Ok(()) };
        let mark = if matches!(self.transport, Transport::Unix { .. }) { '&' } else { '?' };
        write!(formatter, "{mark}{CERTIFICATES}={}", encode(folder))
    }
}

/// The parameters of a URI that braid supports.
#[derive(Default)]
struct Parameters {
    socket: Option<Vec<u8>>,
    certificates: Option<Vec<u8>>,
}

fn parse_query(query: &str) -> Result<Parameters, UriError> {
    let mut parameters = Parameters::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let place = match key {
            "socket" => &mut parameters.socket,
            CERTIFICATES => &mut parameters.certificates,
            _ => return Err(UriError::Parameter(key.to_owned())),
        };
        if place.is_some() || (key == CERTIFICATES && value.is_empty()) {
            return Err(UriError::Parameter(key.to_owned()));
        }
        *place = Some(decode(value)?);
    }
    Ok(parameters)
}

fn parse_authority(authority: &str) -> Result<Transport, UriError> {
    let bad = || UriError::Authority(authority.to_owned());
    if authority.is_empty() {
        return Err(UriError::NoHost);
    }
    if authority.contains('@') {
        return Err(bad());
    }
    let (host, port) = if let Some(bracketed) = authority.strip_prefix('[') {
        let (host, port) = bracketed.split_once(']').ok_or_else(bad)?;
        host.parse::<std::net::Ipv6Addr>().map_err(|_| bad())?;
        (host.to_owned(), port.strip_prefix(':').or_else(|| port.is_empty().then_some("")))
    } else {
        match authority.split_once(':') {
            Some((host, port)) => (decode_text(host)?, Some(port)),
            None => (decode_text(authority)?, Some("")),
        }
    };
    let port = match port.ok_or_else(bad)? {
        "" => PORT_DEFAULT,
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().map_err(|_| bad())?
        }
        _ => return Err(bad()),
    };
    let colon_without_brackets = host.contains(':') && !authority.starts_with('[');
    if host.is_empty() || colon_without_brackets {
        return Err(bad());
    }
    Ok(Transport::Tcp { host, port })
}

fn decode(text: &str) -> Result<Vec<u8>, UriError> {
    let bad = || UriError::Encoding(text.to_owned());
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let high = bytes.next().and_then(|byte| char::from(byte).to_digit(16));
            let low = bytes.next().and_then(|byte| char::from(byte).to_digit(16));
            let (high, low) = high.zip(low).ok_or_else(bad)?;
            let value = high.saturating_mul(16).saturating_add(low);
            decoded.push(u8::try_from(value).map_err(|_| bad())?);
        } else {
            decoded.push(byte);
        }
    }
    if decoded.contains(&0) { Err(bad()) } else { Ok(decoded) }
}

fn decode_text(text: &str) -> Result<String, UriError> {
    String::from_utf8(decode(text)?).map_err(|_| UriError::Encoding(text.to_owned()))
}

/// Percent-encodes all bytes but the unreserved characters and `/`, for use in a path or a query.
fn encode(bytes: &[u8]) -> String {
    encode_except(bytes, b"-._~/")
}

fn encode_host(host: &str) -> String {
    encode_except(host.as_bytes(), b"-._~")
}

fn encode_except(bytes: &[u8], plain: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || plain.contains(byte) {
            text.push(char::from(*byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}
