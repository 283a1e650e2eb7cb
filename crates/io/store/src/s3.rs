//! One object in an S3 bucket, swapped by conditional writes (`If-Match`, `If-None-Match: *`).
//!
//! Requests are signed by `rusty-s3` and sent by `ureq`. A service that ignores conditions is
//! refused: [`S3::probe`] tests the service.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use braid_ownership::Record;
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};
use ureq::Agent;
use ureq::http::Response;

use crate::agent::agent;
use crate::record::{decode, encode};
use crate::{RECORD_BYTES_MAX, Store, StoreError, Stored};

/// How long a signature counts: clocks may differ by minutes.
const SIGNED_FOR: Duration = Duration::from_secs(900);

pub(crate) struct S3 {
    agent: Agent,
    bucket: Bucket,
    key: String,
    credentials: Credentials,
}

impl std::fmt::Debug for S3 {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("S3").field("key", &self.key).finish_non_exhaustive()
    }
}

/// The condition of a write.
#[derive(Clone, Copy)]
enum Condition<'a> {
    Absent,
    Is(&'a str),
}

impl S3 {
    pub(crate) fn new(
        (bucket, key): (&str, &str),
        endpoint: &str,
        region: &str,
    ) -> Result<Self, StoreError> {
        let url = endpoint.parse().map_err(|error| {
            StoreError::Credentials(format!("{endpoint} is no URL of a service: {error}"))
        })?;
        let bucket = Bucket::new(url, UrlStyle::Path, bucket.to_owned(), region.to_owned());
        let bucket = bucket.map_err(|error| StoreError::Credentials(error.to_string()))?;
        let credentials = Credentials::from_env().ok_or_else(|| {
            let why = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not in the environment";
            StoreError::Credentials(why.to_owned())
        })?;
        let agent = agent(endpoint.starts_with("https://"), None)?;
        Ok(Self { agent, bucket, key: key.to_owned(), credentials })
    }

    /// Checks that the service honours both conditions, on an object made for the check.
    pub(crate) fn probe(&self) -> Result<(), StoreError> {
        // Several hosts may probe at once, each with an object of its own.
        let key = format!("{}.probe-{:016x}", self.key, RandomState::new().build_hasher().finish());
        let ignored = |what: &str| Err(StoreError::Unconditional(what.to_owned()));
        self.put(&key, "probe", Condition::Absent)?;
        if self.put(&key, "probe", Condition::Absent)?.is_some() {
            return ignored("If-None-Match");
        }
        if self.put(&key, "other", Condition::Is("\"00000000000000000000000000000000\""))?.is_some()
        {
            return ignored("If-Match");
        }
        let url = self.bucket.delete_object(Some(&self.credentials), &key).sign(SIGNED_FOR);
        // If the object cannot be deleted, it stays, which is of no consequence.
        let _ = self.agent.delete(url.as_str()).call();
        Ok(())
    }

    /// Writes an object under a condition. Returns its tag, or `None` if the condition does not
    /// hold.
    fn put(
        &self,
        key: &str,
        text: &str,
        condition: Condition<'_>,
    ) -> Result<Option<String>, StoreError> {
        let (name, value) = match condition {
            Condition::Absent => ("if-none-match", "*"),
            Condition::Is(tag) => ("if-match", tag),
        };
        let mut action = self.bucket.put_object(Some(&self.credentials), key);
        action.headers_mut().insert(name, value);
        let url = action.sign(SIGNED_FOR);
        let answer = self.agent.put(url.as_str()).header(name, value).send(text);
        let answer = answer.map_err(|error| away(&error))?;
        match answer.status().as_u16() {
            200 => Ok(Some(tag_of(&answer)?)),
            // 409: another write of the object is under way.
            404 | 409 | 412 => Ok(None),
            _ => Err(refused(answer)),
        }
    }
}

fn away(error: &ureq::Error) -> StoreError {
    StoreError::Unreachable(error.to_string())
}

fn tag_of(answer: &Response<ureq::Body>) -> Result<String, StoreError> {
    let tag = answer.headers().get("etag").and_then(|tag| tag.to_str().ok());
    tag.map(str::to_owned)
        .ok_or_else(|| StoreError::Refused("an object without an ETag".to_owned()))
}

fn refused(mut answer: Response<ureq::Body>) -> StoreError {
    let status = answer.status().as_u16();
    let text = answer.body_mut().with_config().limit(4096).read_to_string().unwrap_or_default();
    let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    let words = format!("{} (HTTP {status})", code.map_or("no reason", |(code, _)| code));
    if status >= 500 { StoreError::Unreachable(words) } else { StoreError::Refused(words) }
}

impl Store for S3 {
    fn read(&self) -> Result<Option<Stored>, StoreError> {
        let url = self.bucket.get_object(Some(&self.credentials), &self.key).sign(SIGNED_FOR);
        let mut answer = self.agent.get(url.as_str()).call().map_err(|error| away(&error))?;
        match answer.status().as_u16() {
            200 => {}
            404 => return Ok(None),
            _ => return Err(refused(answer)),
        }
        let version = tag_of(&answer)?;
        let limit = RECORD_BYTES_MAX as u64 + 1;
        let bytes = answer.body_mut().with_config().limit(limit).read_to_vec();
        let bytes = bytes.map_err(|error| away(&error))?;
        Ok(Some(Stored { record: decode(&bytes)?, version }))
    }

    fn swap(&self, from: Option<&str>, to: &Record) -> Result<Option<Stored>, StoreError> {
        let condition = from.map_or(Condition::Absent, Condition::Is);
        let tag = self.put(&self.key, &encode(to), condition)?;
        Ok(tag.map(|version| Stored { record: to.clone(), version }))
    }
}
