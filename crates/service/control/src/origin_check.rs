//! Origin checks: refuses a request that a foreign web page makes a browser send.
//!
//! An operator may forward a control socket to a port (`ssh -L`), and metrics have a port. Any page
//! in a browser on that machine can send requests to this port. Headers identify such requests: the
//! browser writes these headers, and the page cannot change them.
//!
//! ```text
//!   Host             more than one                   ─▶ 400
//!                    none of the server's own names  ─▶ 421  DNS rebinding: a name leads here
//!   only for requests that may change something:
//!   Origin           not http:// and this very Host  ─▶ 403  a page of another site or port
//!   Sec-Fetch-Site   neither same-origin nor none    ─▶ 403  also if a browser omits Origin
//!   Content-Type     not application/json            ─▶ 415  other types need no preflight (CORS)
//! ```
//!
//! Reading needs no origin check: a browser does not let a page read another site's answer.
//!
//! Invariants
//! - Each of these headers alone is enough to refuse a foreign page
//!   `[check: a_page_of_another_site_changes_nothing]`.

use std::net::IpAddr;

use axum::Router;
use axum::extract::Request;
use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderName, Method};
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;

use crate::served_array::Misuse;

/// The header in which the browser reports the relation of the web page to this server.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The host names that a server accepts in requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Names of this machine, and `braid`, a placeholder for the socket in HTTP.
    Socket,
    /// Names of this machine only: `localhost`, and loopback addresses.
    Machine,
    /// Any host name: other machines use names that the server cannot list.
    Any,
}

/// Restricts a router on a read-only port to requests for these hosts. Refusals are plain text.
pub fn guarded(router: Router, names: Names) -> Router {
    router.layer(from_fn(move |request: Request, next: Next| async move {
        match check_host(names, &request) {
            Ok(()) => next.run(request).await,
            Err(misuse) => (misuse.status(), format!("{misuse}\n")).into_response(),
        }
    }))
}

/// Whether a control socket accepts the request.
pub(crate) fn check(request: &Request) -> Result<(), Misuse> {
    check_host(Names::Socket, request)?;
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        Ok(())
    } else {
        check_page(request)
    }
}

fn check_host(names: Names, request: &Request) -> Result<(), Misuse> {
    let count = request.headers().get_all(HOST).iter().count();
    if count > 1 {
        return Err(Misuse::Hosts(count));
    }
    // A host in the request target overrides the Host header (RFC 9112), so both must be host names
    // of this server.
    let target = request.uri().authority().map(|authority| authority.as_str());
    let foreign = values(request, &HOST).chain(target).find(|name| !is_own(names, name));
    foreign.map_or(Ok(()), |name| Err(Misuse::Host(name.to_owned())))
}

fn check_page(request: &Request) -> Result<(), Misuse> {
    let is_here = |origin: &str| {
        let host = origin.strip_prefix("http://");
        host.is_some_and(|host| values(request, &HOST).any(|own| own.eq_ignore_ascii_case(host)))
    };
    let is_ours = |site: &str| matches!(site, "same-origin" | "none");
    let origin = values(request, &ORIGIN).find(|origin| !is_here(origin));
    let site = values(request, &FETCH_SITE).find(|site| !is_ours(site));
    if let Some(other) = origin.or(site) {
        return Err(Misuse::Site(other.to_owned()));
    }
    let mut kinds = values(request, &CONTENT_TYPE).peekable();
    let is_json = kinds.peek().is_some() && kinds.all(is_json);
    if is_json { Ok(()) } else { Err(Misuse::NotJson) }
}

/// A header's values; a value that is no text becomes a word that no accepted value matches.
fn values<'a>(request: &'a Request, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = request.headers().get_all(name).into_iter();
    values.map(|value| value.to_str().unwrap_or("(no text)"))
}

fn is_json(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
}

fn is_own(names: Names, host: &str) -> bool {
    match names {
        Names::Any => true,
        Names::Machine => is_of_this_machine(host),
        // The host `braid` is accepted only without a port: no browser reaches a socket by it.
        Names::Socket => host.eq_ignore_ascii_case("braid") || is_of_this_machine(host),
    }
}

/// Whether a `Host` header names `localhost` or a loopback address.
fn is_of_this_machine(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').unwrap_or((rest, "]")),
        None => host.split_once(':').map_or((host, ""), |(name, port)| (name, port)),
    };
    let port = port.strip_prefix(':').unwrap_or(port);
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit());
    let is_loopback = name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    is_port && (is_loopback || name.eq_ignore_ascii_case("localhost"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &Method, uri: &str, headers: &[(&str, &str)]) -> Request {
        let mut request = axum::http::Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(axum::body::Body::empty()).expect("a request")
    }

    fn status(judged: Result<(), Misuse>) -> u16 {
        judged.map_or_else(|misuse| misuse.status().as_u16(), |()| 0)
    }

    #[test]
    fn a_page_of_another_site_changes_nothing() {
        const JSON: (&str, &str) = ("content-type", "application/json");
        const HERE: (&str, &str) = ("host", "localhost:8080");
        for (headers, expected) in [
            (&[HERE, JSON][..], 0),
            (&[("host", "braid"), JSON], 0),
            (&[("host", "127.0.0.1:8080"), ("content-type", "Application/JSON; charset=utf-8")], 0),
            (&[HERE, JSON, ("origin", "http://localhost:8080")], 0),
            (&[HERE, JSON, ("sec-fetch-site", "same-origin")], 0),
            (&[HERE, JSON, ("sec-fetch-site", "none")], 0),
            (&[JSON], 0),
            (&[HERE, JSON, ("origin", "http://evil.example")], 403),
            (&[HERE, JSON, ("origin", "http://localhost:3000")], 403),
            (&[HERE, JSON, ("origin", "https://localhost:8080")], 403),
            (&[HERE, JSON, ("origin", "null")], 403),
            (&[JSON, ("origin", "null")], 403),
            (&[HERE, JSON, ("sec-fetch-site", "cross-site")], 403),
            (&[HERE, JSON, ("sec-fetch-site", "same-site")], 403),
            (&[HERE], 415),
            (&[HERE, ("content-type", "text/plain;charset=UTF-8")], 415),
            (&[HERE, ("content-type", "application/x-www-form-urlencoded")], 415),
            (&[HERE, JSON, ("content-type", "text/plain")], 415),
            (&[HERE, ("content-type", "text/plain; application/json")], 415),
            (&[("host", "evil.example"), JSON], 421),
            (&[("host", "braid:8080"), JSON], 421),
            (&[("host", "localhost"), HERE, JSON], 400),
        ] {
            for method in [Method::POST, Method::PATCH, Method::PUT, Method::DELETE] {
                let judged = check(&request(&method, "/v1/stop", headers));
                assert_eq!(status(judged), expected, "{headers:?}");
            }
        }
    }

    #[test]
    fn who_looks_is_asked_for_the_name_of_the_server() {
        let elsewhere = [("host", "localhost:8080"), ("sec-fetch-site", "cross-site")];
        let judged = check(&request(&Method::GET, "/", &elsewhere));
        assert_eq!(status(judged), 0, "a link may lead here");
        for (names, uri, hosts, expected) in [
            (Names::Machine, "/metrics", &["localhost:9101"][..], 0),
            (Names::Machine, "/metrics", &["evil.example"], 421),
            (Names::Machine, "/metrics", &["braid"], 421),
            (Names::Socket, "/metrics", &["braid"], 0),
            (Names::Socket, "/metrics", &[], 0),
            (Names::Socket, "http://evil.example/v1/array", &["localhost"], 421),
            (Names::Socket, "http://braid/v1/array", &["braid"], 0),
            (Names::Any, "/metrics", &["nas.example:9101"], 0),
            (Names::Any, "/metrics", &["a", "a"], 400),
        ] {
            let headers: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
            let judged = check_host(names, &request(&Method::GET, uri, &headers));
            assert_eq!(status(judged), expected, "{names:?} {uri} {hosts:?}");
        }
    }

    #[test]
    fn a_name_that_was_made_to_mean_this_machine_is_none_of_its_own() {
        for (host, is_own) in [
            ("localhost", true),
            ("LocalHost:9101", true),
            ("127.0.0.1:9101", true),
            ("127.8.9.1", true),
            ("[::1]:9101", true),
            ("[::1]", true),
            ("evil.example:9101", false),
            ("127.0.0.1.evil.example", false),
            ("localhost.evil.example:80", false),
            ("192.168.0.7:9101", false),
            ("[::1].evil.example", false),
            ("[fe80::1]:80", false),
            ("127.0.0.1:80@evil.example", false),
            ("", false),
        ] {
            assert_eq!(is_of_this_machine(host), is_own, "{host}");
        }
    }
}
