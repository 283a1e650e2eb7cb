//! Options of `serve` for doors other than NBD, and for TLS.

use std::path::PathBuf;

use braid_server::{MetricsConfig, TlsConfig};
use braid_ublk_proto::limits::IDS;

/// The clients that TLS admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Who {
    /// Clients whose certificate `ca-cert.pem` signs for.
    Known,
    /// Every client, without a certificate.
    Any,
}

/// Options of `braid serve` about TLS.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct TlsArgs {
    /// The folder with server-cert.pem, server-key.pem, ca-cert.pem and, if there is one,
    /// ca-crl.pem, for --nbd nbds://... and nbds+unix://...
    #[arg(long = "tls", value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// The clients that TLS admits.
    #[arg(long = "tls-clients", value_enum, default_value_t = Who::Known, value_name = "WHO")]
    clients: Who,
    /// Admit clients without TLS as well; on loopback and Unix sockets only.
    #[arg(long = "tls-optional")]
    is_optional: bool,
}

/// Options of `braid serve` about the array as a file.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "A file")]
pub(crate) struct FuseArgs {
    /// Serve the array as a file as well, through FUSE: for losetup and programs without NBD. A new
    /// file is made; an existing one must be empty. Users other than root need fusermount3.
    #[arg(long = "fuse", value_name = "PATH")]
    path: Option<std::path::PathBuf>,
}

/// Options of `braid serve` about the array as a block device.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "A block device")]
pub(crate) struct UblkArgs {
    /// Serve the array as a block device of this machine as well, /dev/ublkbID, through the
    /// kernel's ublk_drv; without ID the kernel chooses one. Takes over a device that a killed
    /// server of the array has left. Needs root.
    #[arg(
        long = "ublk",
        value_name = "ID",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "any",
        value_parser = wish
    )]
    wish: Option<Wish>,
}

/// The requested device number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wish(Option<u32>);

fn wish(word: &str) -> Result<Wish, String> {
    if word == "any" {
        return Ok(Wish(None));
    }
    let id = word.parse().ok().filter(|id| *id < IDS);
    id.map(|id| Wish(Some(id))).ok_or_else(|| format!("a number below {IDS}, or `any`"))
}

/// Options of `braid serve` about the array as a disk of virtual machines.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "A disk of virtual machines")]
pub(crate) struct VhostUserArgs {
    /// Serve the array to a virtual machine as well, at this Unix socket: as a disk by
    /// vhost-user-blk, through shared memory. QEMU connects to it (`-device vhost-user-blk-pci`),
    /// and again after a restart of the server.
    #[arg(long = "vhost-user", value_name = "PATH")]
    machines: Option<PathBuf>,
}

/// Options of `braid serve` about metrics.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Metrics")]
pub(crate) struct MetricsArgs {
    /// Serve metrics as OpenMetrics at http://ADDRESS:PORT/metrics, and a page for browsers at
    /// http://ADDRESS:PORT/; the address is a loopback one.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<String>,
    /// Allow an address for metrics that other machines can reach.
    #[arg(long, requires = "metrics")]
    metrics_public: bool,
    /// Add node_md_... to the metrics, as node_exporter reports them for md's arrays.
    #[arg(long, requires = "metrics")]
    node_md: bool,
}

impl TlsArgs {
    pub(crate) fn config(&self) -> TlsConfig {
        let admits_any = self.clients == Who::Any;
        TlsConfig { folder: self.folder.clone(), admits_any, is_optional: self.is_optional }
    }
}

impl FuseArgs {
    pub(super) fn path(&self) -> Option<PathBuf> {
        self.path.clone()
    }
}

impl UblkArgs {
    pub(super) fn device(&self) -> Option<Option<u32>> {
        self.wish.map(|Wish(id)| id)
    }
}

impl VhostUserArgs {
    pub(super) fn path(&self) -> Option<PathBuf> {
        self.machines.clone()
    }
}

impl MetricsArgs {
    pub(super) fn config(&self) -> Option<MetricsConfig> {
        let address = self.metrics.clone()?;
        Some(MetricsConfig { address, is_public: self.metrics_public, has_node_md: self.node_md })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_one_that_a_device_may_have() {
        assert_eq!((wish("any"), wish("7")), (Ok(Wish(None)), Ok(Wish(Some(7)))));
        assert!(wish("1048575").is_ok());
        for bad in ["1048576", "-1", "", "ublkb0"] {
            assert!(wish(bad).is_err(), "{bad}");
        }
    }
}
