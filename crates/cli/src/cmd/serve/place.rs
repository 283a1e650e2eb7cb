//! Where an array is served: endpoints from URIs, and a socket of our own when none was named.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use braid_frontend_nbd::{BindError, Endpoint};
use braid_nbd_proto::NbdUri;

use crate::error::code::Code;
use crate::error::system::{is_shortage_of, system};
use crate::error::{CliError, Risk};
use crate::private::{check_above, check_own};

/// The endpoint of a URI, which may name the array but no other export.
pub(super) fn endpoint(text: &str) -> Result<(Endpoint, String), CliError> {
    let uri: NbdUri = text.parse().map_err(|error: braid_nbd_proto::UriError| {
        CliError::new(Code::UriInvalid, format!("'{text}' is not an NBD URI that braid can serve"))
            .caused_by(&error)
            .remedy(
                Risk::Look,
                "Serve on a Unix socket",
                "braid serve --nbd 'nbd+unix:///?socket=/tmp/braid.sock' MEMBER...",
            )
    })?;
    let endpoint = Endpoint::from_uri(&uri).map_err(|error| bind_error(&error))?;
    Ok((endpoint, uri.export))
}

/// A URI that names an export names this array: there is no other.
pub(super) fn check_export(export: &str, name: &str) -> Result<(), CliError> {
    if export.is_empty() || export == name {
        return Ok(());
    }
    let what = format!("the URI names the export '{export}', but the array is called '{name}'");
    let error = CliError::new(Code::UriInvalid, what).about(export);
    Err(error.because("leave the name out of the URI, or give the array's").remedy(
        Risk::Look,
        "Serve it under its own name",
        "braid serve --nbd 'nbd+unix:///?socket=/tmp/braid.sock' MEMBER...",
    ))
}

/// The endpoint when none was asked for: a socket in a folder that only this user may enter.
pub(super) fn own_endpoint(
    name: &str,
    captive: bool,
    builder: &tempfile::Builder<'_, '_>,
) -> Result<(Endpoint, Option<tempfile::TempDir>), CliError> {
    if captive {
        let folder =
            builder.tempdir().map_err(|error| system("no temporary folder can be made", &error))?;
        check(folder.path())?;
        return Ok((Endpoint::Unix(folder.path().join("nbd.sock")), Some(folder)));
    }
    let folder = runtime_folder();
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.map_err(|error| folder_error(&folder, &error.to_string()))?;
    check(&folder)?;
    Ok((Endpoint::Unix(folder.join(format!("{name}.sock"))), None))
}

/// Where an array is looked at and tuned, if it is served at a socket of our own.
pub(crate) fn control_path(name: &str) -> PathBuf {
    runtime_folder().join(format!("{name}.control"))
}

/// No other user may enter the folder of our socket, or put another in its place.
fn check(folder: &Path) -> Result<(), CliError> {
    let checked = check_own(folder).and_then(|()| check_above(folder));
    checked.map_err(|why| folder_error(folder, &why))
}

/// `/run/braid` for root, else the XDG runtime folder.
fn runtime_folder() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/run/braid");
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let fallback = || {
        let user = rustix::process::geteuid().as_raw();
        std::env::temp_dir().join(format!("braid-{user}"))
    };
    runtime.map_or_else(fallback, |folder| folder.join("braid"))
}

fn folder_error(folder: &Path, why: &str) -> CliError {
    CliError::new(Code::SocketFolder, format!("{} cannot be used for sockets", folder.display()))
        .because(why)
        .remedy(
            Risk::Look,
            "Name another place",
            "braid serve --nbd 'nbd+unix:///?socket=/tmp/braid.sock' MEMBER...",
        )
}

pub(super) fn bind_code(error: &BindError) -> Code {
    match error {
        BindError::NotLoopback(_) => Code::ListenNotLoopback,
        BindError::InUse(_) | BindError::Locked(_) | BindError::NotASocket(_) => Code::SocketBusy,
        BindError::System { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse => {
            Code::SocketBusy
        }
        BindError::System { source, .. } if is_shortage_of(source) => Code::Shortage,
        BindError::PathTooLong(_) | BindError::TooOpen(..) | BindError::System { .. } => {
            Code::SocketFolder
        }
    }
}

/// Whether the process or the system has no descriptors left.
fn is_without_descriptors(error: &std::io::Error) -> bool {
    let none = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
    error.raw_os_error().is_some_and(|code| none.iter().any(|errno| errno.raw_os_error() == code))
}

pub(super) fn bind_error(error: &BindError) -> CliError {
    if let BindError::System { source, .. } = error
        && is_shortage_of(source)
    {
        if is_without_descriptors(source) {
            return super::descriptors::none_left("cannot listen".to_owned());
        }
        return system("cannot listen", source);
    }
    let another = "braid serve --nbd 'nbd+unix:///?socket=/tmp/other.sock' MEMBER...";
    CliError::new(bind_code(error), "cannot listen there").because(error.to_string()).remedy(
        Risk::Look,
        "Serve somewhere else",
        another,
    )
}
