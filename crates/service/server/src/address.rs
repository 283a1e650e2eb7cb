//! Addresses of a served array: endpoints from URIs, and by default a socket of the array's own.

use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use braid_frontend_nbd::tls::Tls;
use braid_frontend_nbd::{BindError, Endpoint};
use braid_nbd_proto::NbdUri;

use super::command_line::{command_again, with_option};
use super::control::{ControlError, ControlSocket};
use braid_console::error::code::Code;
use braid_console::error::system::{is_shortage_of, system};
use braid_console::error::{CliError, Risk};
use braid_console::output::shell::shell_word;
use braid_console::private::{check_above, check_own};
use braid_discovery::running;

/// A parsed NBD URI to serve an array at.
#[derive(Clone, Debug)]
pub struct Address {
    pub(super) text: String,
    pub(super) endpoint: Endpoint,
    pub(super) is_tls: bool,
    /// The name in the URI, or empty.
    pub(super) export: String,
}

impl Address {
    /// Parses a URI, which may name the array but no other export.
    ///
    /// # Errors
    /// The text is no NBD URI, or the server does not serve its kind.
    pub fn parse(text: &str) -> Result<Self, CliError> {
        let unusable = || {
            let what = format!("'{text}' is not an NBD URI that braid can serve");
            CliError::new(Code::UriInvalid, what).remedy(
                Risk::Look,
                "Serve on a Unix socket",
                with_option("--nbd 'nbd+unix:///?socket=/tmp/braid.sock'"),
            )
        };
        let uri: NbdUri = text
            .parse()
            .map_err(|error: braid_nbd_proto::UriError| unusable().caused_by(&error))?;
        if uri.certificates.is_some() {
            let why = "tls-certificates names a client's folder; a server's is named by --tls";
            return Err(unusable().because(why));
        }
        let endpoint = Endpoint::from_uri(&uri).map_err(|error| bind_error(&error))?;
        Ok(Self { text: text.to_owned(), endpoint, is_tls: uri.tls, export: uri.export })
    }
}

/// Refuses a URI that names another export: the server exports only this array.
pub(super) fn check_export(export: &str, name: &str) -> Result<(), CliError> {
    if export.is_empty() || export == name {
        return Ok(());
    }
    let what = format!("the URI names the export '{export}', but the array is called '{name}'");
    let error = CliError::new(Code::UriInvalid, what).about(export);
    Err(error.because("leave the name out of the URI, or use the array's name").remedy(
        Risk::Look,
        "Serve it under its own name",
        with_option("--nbd 'nbd+unix:///?socket=/tmp/braid.sock'"),
    ))
}

pub(super) struct ListenEndpoint {
    pub(super) endpoint: Endpoint,
    pub(super) tls: Option<Tls>,
    /// The address to use if another server already has the default endpoint's address.
    pub(super) otherwise: Option<Endpoint>,
}

/// The default endpoint: a socket in a folder that only this user may enter. The socket is named
/// after the array, or after its UUID if another array uses that name.
pub(super) fn own_endpoint(
    (name, uuid): (&str, &str),
    captive: bool,
) -> Result<(ListenEndpoint, Option<tempfile::TempDir>), CliError> {
    let listened = |endpoint, otherwise| ListenEndpoint { endpoint, tls: None, otherwise };
    if captive {
        let folder = tempfile::tempdir();
        let folder = folder.map_err(|error| system("no temporary folder can be made", &error))?;
        check(folder.path())?;
        let endpoint = Endpoint::Unix(folder.path().join("nbd.sock"));
        return Ok((listened(endpoint, None), Some(folder)));
    }
    let folder = own_folder()?;
    let socket = |stem: &str| Endpoint::Unix(folder.join(format!("{stem}.sock")));
    Ok((listened(socket(name), Some(socket(&uuid.replace(':', "")))), None))
}

/// The folder for default sockets; creates it if it is missing.
///
/// # Errors
/// The folder cannot be created, or other users may enter it.
pub fn own_folder() -> Result<PathBuf, CliError> {
    let folder = running::folder();
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.map_err(|error| folder_error(&folder, &error.to_string()))?;
    check(&folder)?;
    Ok(folder)
}

/// The default control socket. The socket is named after the array, so that commands find it; or
/// after the UUID, if another array uses that name.
///
/// A file next to the socket holds the command to serve the array again: a killed server leaves
/// file and socket behind.
pub(super) fn own_control(
    (name, uuid): (&str, &str),
    members: &[PathBuf],
) -> Result<ControlSocket, CliError> {
    own_folder()?;
    let path = running::control_path(name);
    let (path, taken) = match ControlSocket::take(&path) {
        Err(BindError::InUse(_)) => {
            let path = running::control_path(&uuid.replace(':', ""));
            let taken = ControlSocket::take(&path);
            (path, taken)
        }
        taken => (path, taken),
    };
    let socket = taken.map_err(|error| control_error(&path, &error.into()))?;
    Ok(socket.with_note(&running::note_path(&path), &command_again(members)))
}

pub(super) fn control_error(path: &Path, error: &ControlError) -> CliError {
    let what = format!("the control socket {} cannot be used", path.display());
    match error {
        ControlError::System(source) => system(what, source),
        ControlError::Bind(bind) => {
            socket_error(what, bind, &with_option("--control /tmp/other.control"))
        }
    }
}

/// Error for a socket that cannot be made; `another` is a command that uses a different socket.
pub(super) fn socket_error(what: String, error: &BindError, another: &str) -> CliError {
    if let BindError::System { source, .. } = error
        && is_shortage_of(source)
    {
        return system(what, source);
    }
    CliError::new(bind_code(error), what).caused_by(error).remedy(
        Risk::Look,
        "Name another place",
        another,
    )
}

/// Checks that no other user can enter the socket's folder or replace it.
fn check(folder: &Path) -> Result<(), CliError> {
    let checked = check_own(folder).and_then(|()| check_above(folder));
    checked.map_err(|why| folder_error(folder, &why))
}

fn folder_error(folder: &Path, why: &str) -> CliError {
    let what = format!("{} cannot be used for sockets", folder.display());
    let error = CliError::new(Code::SocketFolder, what).because(why);
    closing(error, folder).remedy(
        Risk::Look,
        "Name another place",
        with_option("--nbd 'nbd+unix:///?socket=/tmp/braid.sock'"),
    )
}

/// Adds advice to keep other users out of the folder. If the folder holds more than sockets, other
/// users may need it: the advice is then another folder for the socket.
fn closing(error: CliError, folder: &Path) -> CliError {
    let is_ours = std::fs::symlink_metadata(folder).is_ok_and(|metadata| {
        metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw()
    });
    if !is_ours || check_own(folder).is_ok() {
        return error;
    }
    let is_of_sockets = |entry: std::io::Result<std::fs::DirEntry>| {
        let ends = ["sock", "control", "command", "lock"];
        entry.is_ok_and(|entry| {
            let path = entry.path();
            ends.iter().any(|end| path.extension().is_some_and(|it| it == *end))
        })
    };
    let has_no_more = std::fs::read_dir(folder).is_ok_and(|mut all| all.all(is_of_sockets));
    let own = folder.join("braid");
    let [folder, own] = [folder, &own].map(|it| shell_word(&it.display().to_string()).into_owned());
    match has_no_more {
        true => error.remedy(Risk::Change, "Keep others out", format!("chmod 700 {folder}")),
        false => error.remedy(
            Risk::Change,
            "Put the sockets into a folder of their own",
            format!("mkdir -m 700 {own} && export BRAID_RUNTIME_DIR={own}"),
        ),
    }
}

fn bind_code(error: &BindError) -> Code {
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

/// Whether the error says that the process or the system has run out of file descriptors.
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
    let another = with_option("--nbd 'nbd+unix:///?socket=/tmp/other.sock'");
    CliError::new(bind_code(error), "cannot listen there").because(error.to_string()).remedy(
        Risk::Look,
        "Serve somewhere else",
        another,
    )
}
