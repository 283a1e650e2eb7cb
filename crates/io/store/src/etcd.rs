//! etcd v3 by its JSON gateway (`/v3/kv/range`, `/v3/kv/txn`).
//!
//! Source: etcd's `api_grpc_gateway.md`.
//!
//! A swap is a transaction that compares the key's modification revision. Reads are linearizable,
//! which is the gateway's default.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use braid_ownership::Record;
use serde_json::{Value, json};
use ureq::Agent;

use crate::agent::{agent, unreadable};
use crate::record::{decode, encode};
use crate::{RECORD_BYTES_MAX, Store, StoreError, Stored};

#[derive(Debug)]
pub(crate) struct Etcd {
    agent: Agent,
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    servers: Vec<String>,
    /// The server that answered last.
    current: AtomicUsize,
    key: String,
    credentials: Option<Credentials>,
}

struct Credentials {
    user: String,
    password: String,
    token: Mutex<Option<String>>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Etcd {
    pub(crate) fn new(
        addresses: &[String],
        key: &str,
        certificates: Option<&Path>,
    ) -> Result<Self, StoreError> {
        let scheme = if certificates.is_some() { "https" } else { "http" };
        let credentials = match certificates.map(|folder| folder.join("credentials")) {
            Some(path) if path.exists() => {
                let text = std::fs::read_to_string(&path);
                let text = text.map_err(|error| unreadable(&path, &error.to_string()))?;
                let parts = text.trim_end().split_once(':');
                let (user, password) =
                    parts.ok_or_else(|| unreadable(&path, "it has no line USER:PASSWORD"))?;
                let (user, password) = (user.to_owned(), password.to_owned());
                Some(Credentials { user, password, token: Mutex::new(None) })
            }
            _ => None,
        };
        Ok(Self {
            agent: agent(certificates.is_some(), certificates)?,
            servers: addresses.iter().map(|address| format!("{scheme}://{address}")).collect(),
            current: AtomicUsize::new(0),
            key: STANDARD.encode(key),
            credentials,
        })
    }

    /// Asks the server that answered last, then the others.
    fn ask(&self, path: &str, body: &Value) -> Result<Value, StoreError> {
        let first = self.current.load(Ordering::Relaxed);
        let mut last = StoreError::Unreachable("it has no address".to_owned());
        for at in 0..self.servers.len() {
            let index = (first + at) % self.servers.len();
            match self.ask_one(&self.servers[index], path, body) {
                Ok(answer) => {
                    self.current.store(index, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(error @ StoreError::Unreachable(_)) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    fn ask_one(&self, server: &str, path: &str, body: &Value) -> Result<Value, StoreError> {
        let Some(credentials) = &self.credentials else {
            return self.post(server, path, body, None).map_err(|(_, error)| error);
        };
        let token = credentials.token.lock().expect("asking does not panic").clone();
        let token = match token {
            Some(token) => token,
            None => self.token(server, credentials)?,
        };
        match self.post(server, path, body, Some(&token)) {
            // The token has run out, or is older than the users' last change: get a new one, once.
            Err((400 | 401, _)) => {
                let token = self.token(server, credentials)?;
                self.post(server, path, body, Some(&token)).map_err(|(_, error)| error)
            }
            answer => answer.map_err(|(_, error)| error),
        }
    }

    fn token(&self, server: &str, credentials: &Credentials) -> Result<String, StoreError> {
        let body = json!({ "name": credentials.user, "password": credentials.password });
        let answer = self.post(server, "/v3/auth/authenticate", &body, None);
        let answer = answer.map_err(|(_, error)| error)?;
        let token = answer["token"].as_str().unwrap_or_default().to_owned();
        *credentials.token.lock().expect("asking does not panic") = Some(token.clone());
        Ok(token)
    }

    /// Sends one request. An error comes with its HTTP status, or 0.
    fn post(
        &self,
        server: &str,
        path: &str,
        body: &Value,
        token: Option<&str>,
    ) -> Result<Value, (u16, StoreError)> {
        let away = |error: ureq::Error| (0, StoreError::Unreachable(format!("{server}: {error}")));
        let mut request = self.agent.post(format!("{server}{path}"));
        if let Some(token) = token {
            request = request.header("Authorization", token);
        }
        let mut answer = request.send(body.to_string()).map_err(away)?;
        let status = answer.status().as_u16();
        let limit = 4 * RECORD_BYTES_MAX as u64;
        let text = answer.body_mut().with_config().limit(limit).read_to_string().map_err(away)?;
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        if status == 200 {
            // A page of a proxy is no answer: taken for a missing record, it would end the owner.
            let is_etcd = value["header"]["revision"].is_string();
            let other = || StoreError::Unreachable(format!("{server}: the answer is not etcd's"));
            return if is_etcd { Ok(value) } else { Err((0, other())) };
        }
        let words = value["message"].as_str().or(value["error"].as_str()).unwrap_or("no reason");
        let words: String = words.chars().take(200).collect();
        // A cluster without a leader answers 503; it may have a leader again later.
        match status {
            500.. => Err((status, StoreError::Unreachable(format!("{server}: {words}")))),
            _ => Err((status, StoreError::Refused(format!("{words} (HTTP {status})")))),
        }
    }
}

impl Store for Etcd {
    fn read(&self) -> Result<Option<Stored>, StoreError> {
        let answer = self.ask("/v3/kv/range", &json!({ "key": self.key }))?;
        let Some(found) = answer["kvs"].get(0) else { return Ok(None) };
        let bytes = STANDARD.decode(found["value"].as_str().unwrap_or_default());
        let bytes = bytes.map_err(|error| StoreError::NoRecord(error.to_string()))?;
        let version = found["mod_revision"].as_str();
        let version = version.ok_or_else(|| StoreError::NoRecord("no mod_revision".to_owned()))?;
        Ok(Some(Stored { record: decode(&bytes)?, version: version.to_owned() }))
    }

    fn swap(&self, from: Option<&str>, to: &Record) -> Result<Option<Stored>, StoreError> {
        let compare = match from {
            Some(version) => json!({ "target": "MOD", "mod_revision": version }),
            None => json!({ "target": "CREATE", "create_revision": "0" }),
        };
        let mut compare = compare;
        compare["key"] = self.key.clone().into();
        compare["result"] = "EQUAL".into();
        let put = json!({ "key": self.key, "value": STANDARD.encode(encode(to)) });
        let body = json!({ "compare": [compare], "success": [{ "request_put": put }] });
        let answer = self.ask("/v3/kv/txn", &body)?;
        if answer["succeeded"] != true {
            return Ok(None);
        }
        let version = answer["header"]["revision"].as_str().unwrap_or_default().to_owned();
        Ok(Some(Stored { record: to.clone(), version }))
    }
}
