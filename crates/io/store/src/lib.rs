//! The record of an array's owner in a store that people already run: etcd, or one object in an S3
//! bucket.
//!
//! Where it stands: the service reads and swaps the record through [`Store`]. The rules are in
//! `braid-ownership`. A store only has to compare and swap: leases and locks of stores are not
//! used.
//!
//! ```text
//!   etcd://HOST:PORT[,HOST:PORT]/KEY[?tls-certificates=FOLDER]      etcd v3, its JSON gateway
//!   s3://BUCKET/KEY?endpoint=URL[&region=NAME]                      conditional PUT
//! ```
//!
//! Calls block, for at most [`PATIENCE`] at each address. A swap whose answer is lost may have been
//! carried out, or may be later: the caller reads the record, and knows its own by its serial.
//!
//! Secrets are never in a URI. etcd's user and password are in FOLDER/credentials. S3's keys are in
//! the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN).

#![forbid(unsafe_code)]

mod agent;
mod etcd;
mod record;
mod s3;
mod uri;

use std::fmt::Debug;
use std::time::Duration;

use braid_ownership::Record;

pub use uri::{StoreUri, UriError};

/// How long a store may take for one answer.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// The longest record, in bytes: a hundred members with long addresses take less than a tenth.
pub const RECORD_BYTES_MAX: usize = 256 << 10;

/// Why a store gave no answer, or an answer that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No address of the store answers. A swap may have been carried out.
    #[error("the store does not answer: {0}")]
    Unreachable(String),
    /// The store answered with an error: wrong credentials, no such bucket.
    #[error("the store answered: {0}")]
    Refused(String),
    /// The key holds something else than a record of braid.
    #[error("the key holds no record of braid: {0}")]
    NoRecord(String),
    /// The store ignores the condition of a write: two owners could both succeed.
    #[error("the store ignores conditions of writes, so it cannot tell one owner from two: {0}")]
    Unconditional(String),
    /// The certificates, or the credentials beside them, cannot be read.
    #[error("{0}")]
    Credentials(String),
}

/// A record as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The record.
    pub record: Record,
    /// The store's own name of this state of the key.
    pub version: String,
}

/// A store that holds one array's record.
pub trait Store: Send + Sync + Debug {
    /// Reads the record; `None` if there is none.
    ///
    /// # Errors
    /// Every [`StoreError`].
    fn read(&self) -> Result<Option<Stored>, StoreError>;

    /// Puts `to` in the place of the state `from`, or where the key has no record. `None` if the
    /// key has another state.
    ///
    /// # Errors
    /// Every [`StoreError`]. After [`StoreError::Unreachable`] the swap may have happened, or may
    /// happen later.
    fn swap(&self, from: Option<&str>, to: &Record) -> Result<Option<Stored>, StoreError>;
}

/// Opens a store, and checks that it honours conditions if there is doubt.
///
/// # Errors
/// Every [`StoreError`].
pub fn open(uri: &StoreUri) -> Result<Box<dyn Store>, StoreError> {
    Ok(match uri {
        StoreUri::Etcd { addresses, key, certificates } => {
            Box::new(etcd::Etcd::new(addresses, key, certificates.as_deref())?)
        }
        StoreUri::S3 { bucket, key, endpoint, region } => {
            let store = s3::S3::new((bucket, key), endpoint, region)?;
            store.probe()?;
            Box::new(store)
        }
    })
}
