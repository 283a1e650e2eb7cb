//! Where a served array is, for all who tell of it: the lines of `serve`, the API, and the command behind `--run`.

/// Where an array is served, as clients reach it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reached {
    /// NBD URIs.
    pub(crate) uris: Vec<String>,
    /// The file that it is, through FUSE.
    pub(crate) file: Option<String>,
    /// The block device that it is, through ublk.
    pub(crate) device: Option<String>,
    /// The socket where it is a disk of virtual machines, by vhost-user.
    pub(crate) vhost_user: Option<String>,
}
