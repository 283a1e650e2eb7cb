//! Sends each event to a web server, as JSON by `POST`.
//!
//! If the server is unreachable or fails, the hook tries again after a while
//! ([`crate::outlet::Backoff`]). After a refusal (4xx except 408, 425 and 429) it does not. If an
//! answer was lost, the web server gets an event twice. Both requests then have the same
//! `Idempotency-Key`, which differs from that of every other event. Redirections are not followed:
//! the operator chose the address.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring::default_provider;
use ureq::Agent;
use ureq::http::Uri;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

use crate::ending::Ending;
use crate::event::Event;
use crate::outlet::{Deliver, DeliveryError, DeliveryFailure};

/// Deadline for one answer of the web server.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The web address to which events are sent. Its printed form omits everything after the host,
/// since that may be secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Url(Uri);

/// Why a text is no valid web address for events.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The address is no URL.
    #[error("it is no URL: {0}")]
    Invalid(String),
    /// The address names no host, or its scheme is not http or https.
    #[error("it must begin with {SCHEMES} and a host")]
    Scheme,
    /// The address contains a password, which the list of processes would show.
    #[error("it must not have a user or password")]
    Credentials,
}

const SCHEMES: &str = "http:// or https://";

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let uri: Uri = text.parse().map_err(|error| UrlError::Invalid(format!("{error}")))?;
        let authority = uri.authority().ok_or(UrlError::Scheme)?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || authority.host().is_empty() {
            return Err(UrlError::Scheme);
        }
        if authority.as_str().contains('@') {
            return Err(UrlError::Credentials);
        }
        Ok(Self(uri))
    }
}

impl std::fmt::Debug for Url {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = self.0.scheme_str().unwrap_or_default();
        let host = self.0.host().unwrap_or_default();
        write!(formatter, "{scheme}://{host}/...")
    }
}

/// Sends events to a web server.
#[derive(Debug)]
pub struct Webhook {
    url: Url,
    agent: Agent,
    patience: Duration,
}

impl Webhook {
    /// A hook that sends events to `url`, with the deadline `patience` for each answer.
    #[must_use]
    pub fn new(url: Url, patience: Duration) -> Self {
        let is_secure = url.0.scheme_str() == Some("https");
        let config = Agent::config_builder()
            .tls_config(tls(is_secure))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("braid/", env!("CARGO_PKG_VERSION")))
            .build();
        Self { url, agent: config.into(), patience }
    }
}

impl Deliver for Webhook {
    fn name(&self) -> &'static str {
        "webhook"
    }

    fn deliver(&mut self, event: &Event, ending: &Ending) -> Result<(), DeliveryFailure> {
        let patience = ending.allows(self.patience);
        let patience = patience.ok_or_else(|| DeliveryFailure::for_good(DeliveryError::Ended))?;
        let request = self.agent.post(self.url.0.clone());
        let request = request
            .config()
            .timeout_global(Some(patience))
            .build()
            .header("Content-Type", "application/json")
            .header("Idempotency-Key", key(event));
        match request.send(event.to_json()) {
            Ok(answer) if answer.status().is_success() => Ok(()),
            Ok(answer) => {
                let status = answer.status().as_u16();
                let may_retry = status >= 500 || matches!(status, 408 | 425 | 429);
                Err(DeliveryFailure { error: DeliveryError::Answer(status), may_retry })
            }
            Err(error) => Err(DeliveryFailure::for_now(DeliveryError::NoAnswer(Box::new(error)))),
        }
    }
}

/// TLS with the certificates that this machine trusts, including its administrator's. Unreadable
/// certificates are left out, and a connection that needs one of these fails.
fn tls(is_wanted: bool) -> TlsConfig {
    let roots = if is_wanted { rustls_native_certs::load_native_certs().certs } else { Vec::new() };
    let roots = roots.iter().map(|root| Certificate::from_der(root).to_owned());
    TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(default_provider()))
        .root_certs(RootCerts::Specific(Arc::new(roots.collect())))
        .build()
}

/// A key for the web server that is unique for each event.
fn key(event: &Event) -> String {
    let digits: String = event.uuid.chars().filter(char::is_ascii_hexdigit).collect();
    format!("{digits}-{}-{}", event.id, event.change.time.since_unix().as_micros())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;
    use std::sync::mpsc::{Receiver, channel};

    use super::*;
    use crate::outlet::{Backoff, Outlet, OutletCounts, OutletListener};
    use crate::samples::{NASTY, events};

    #[derive(Debug)]
    struct ReceivedRequest {
        line: String,
        headers: Vec<String>,
        body: String,
    }

    /// A web server on loopback with these answers, one for each connection: a status, or no
    /// answer.
    fn server(answers: Vec<Option<u16>>) -> (Url, Receiver<ReceivedRequest>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/hook?token=secret", listener.local_addr().expect("bound"));
        let (tell, asked) = channel();
        std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut reader = BufReader::new(stream.try_clone().expect("a socket"));
                let mut lines = Vec::new();
                loop {
                    let mut line = String::new();
                    reader.read_line(&mut line).expect("a line");
                    if line.trim().is_empty() {
                        break;
                    }
                    lines.push(line.trim().to_lowercase());
                }
                let length = lines.iter().find_map(|line| line.strip_prefix("content-length: "));
                let length = length.expect("a length").parse().expect("a number");
                let mut body = vec![0; length];
                reader.read_exact(&mut body).expect("a body");
                let body = String::from_utf8(body).expect("text");
                let line = lines.remove(0);
                let _ = tell.send(ReceivedRequest { line, headers: lines, body });
                if let Some(status) = answer {
                    let location = "location: http://127.0.0.1:1/elsewhere\r\n";
                    let text = format!(
                        "HTTP/1.1 {status} x\r\n{location}content-length: 0\r\nconnection: close\r\n\r\n"
                    );
                    stream.write_all(text.as_bytes()).expect("a client");
                }
            }
        });
        (url.parse().expect("a URL"), asked)
    }

    #[test]
    fn an_event_is_posted_and_a_server_in_trouble_is_asked_again() {
        let (url, asked) =
            server(vec![Some(503), None, Some(200), Some(404), Some(307), Some(204)]);
        let (says, said) = channel();
        let listener: OutletListener = Arc::new(move |_, notice| {
            let _ = says.send(format!("{notice:?}"));
        });
        let moment = Duration::from_millis(1);
        let backoff = Backoff { first: moment, most: moment, attempts: 4 };
        let webhook = Box::new(Webhook::new(url, PATIENCE));
        let outlet = Outlet::start(webhook, backoff, &Arc::default(), &listener).expect("a thread");
        let events: Vec<_> = events().into_iter().take(4).map(Arc::new).collect();
        events.iter().for_each(|event| outlet.give(event));
        outlet.close();
        outlet.wait(Duration::from_secs(60));
        let counts = OutletCounts { delivered: 2, retried: 2, failed: 2, dropped: 0 };
        assert_eq!(outlet.counts(), counts);
        let asked: Vec<ReceivedRequest> = asked.try_iter().collect();
        let bodies: Vec<&str> = asked.iter().map(|one| one.body.as_str()).collect();
        let json: Vec<String> = events.iter().map(|event| event.to_json()).collect();
        let [one, two, three, four] = [0, 1, 2, 3].map(|index: usize| json[index].as_str());
        assert_eq!(bodies, [one, one, one, two, three, four]);
        let key = |one: &ReceivedRequest| {
            let found = one.headers.iter().find(|line| line.starts_with("idempotency-key: "));
            found.expect("a key").clone()
        };
        assert!(key(&asked[0]) == key(&asked[2]) && key(&asked[0]) != key(&asked[3]));
        assert_eq!(asked[0].line, "post /hook?token=secret http/1.1");
        assert!(
            asked[0].headers.contains(&"content-type: application/json".to_owned()),
            "{asked:?}"
        );
        let said: Vec<String> = said.try_iter().collect();
        assert_eq!(said, ["Failed(Answer(404))", "Again(2)"]);
    }

    #[test]
    fn a_server_that_does_not_answer_is_waited_for_no_longer_than_said() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("bound"));
        let mut webhook = Webhook::new(url.parse().expect("a URL"), Duration::from_millis(50));
        let begun = std::time::Instant::now();
        let failed = webhook.deliver(&events()[0], &Ending::default()).expect_err("no answer");
        assert!(failed.may_retry && begun.elapsed() < PATIENCE, "{failed:?}");
        let ending = Ending::default();
        ending.begin(std::time::Instant::now());
        let failed = webhook.deliver(&events()[0], &ending).expect_err("no time");
        assert!(matches!(failed.error, DeliveryError::Ended) && !failed.may_retry);
    }

    #[test]
    fn what_is_no_address_is_refused_and_secrets_are_not_shown() {
        let url: Url = "https://hooks.example.org/services/T0/B0/secret".parse().expect("a URL");
        assert_eq!(format!("{url:?}"), "https://hooks.example.org/...");
        for bad in
            ["", "ftp://a/", "http://", "/hook", "a", "http://u:p@host/", "http://a b/", NASTY]
        {
            assert!(bad.parse::<Url>().is_err(), "{bad:?}");
        }
    }
}
