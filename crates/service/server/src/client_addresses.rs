//! Addresses of a served array, for the lines of `serve`, the API, and the command of `--run`.

/// Addresses under which clients reach an array.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientAddresses {
    pub(crate) uris: Vec<String>,
    /// The file of the FUSE door.
    pub(crate) file: Option<String>,
    /// The block device of the ublk door.
    pub(crate) device: Option<String>,
    /// The socket of the vhost-user door.
    pub(crate) vhost_user: Option<String>,
}
