//! `braid member`: serves files and devices of this host as members of an array on another.

use std::path::PathBuf;

use braid_console::Globals;
use braid_console::error::{CliError, Exit};
use braid_server::{Address, ServerConfig, serve_members};

use super::serve::doors::TlsArgs;
use super::serve::words::Confine;
use crate::log::{Log, LogArgs};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to listen, as an NBD URI; may be given more than once. Addresses that other hosts
    /// reach need TLS: nbds://0.0.0.0:10809/ and --tls.
    #[arg(long = "listen", value_name = "URI", required = true)]
    uris: Vec<String>,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    log: LogArgs,
    /// Whether the server drops rights that serving does not need: files other than these and its
    /// state folder (landlock), system calls (seccomp), capabilities.
    #[arg(long, value_enum, default_value_t = Confine::Auto, value_name = "WHEN")]
    confine: Confine,
    /// The files or block devices. Each is an export with the file's name; use the names in
    /// /dev/disk/by-id, which stay the same.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(crate) fn run(args: Args, globals: &Globals) -> Result<Exit, CliError> {
    let nbd = args.uris.iter().map(|uri| Address::parse(uri)).collect::<Result<Vec<_>, _>>()?;
    let config = ServerConfig {
        members: args.files,
        nbd,
        tls: args.tls.config(),
        confine: args.confine.into(),
        ..ServerConfig::default()
    };
    let _log = Log::start(&args.log)?;
    serve_members(&config, globals)
}
