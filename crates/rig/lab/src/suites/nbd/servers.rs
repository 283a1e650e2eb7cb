//! The compared exports: `braid serve` over members, and other servers over one raw file.

use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A limit that is longer than a start or a stop takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);

/// A running server; dropping it ends the server and waits for it.
pub(in crate::suites) struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    /// Starts `command`, a server that will listen on `socket`.
    pub(in crate::suites) fn start(command: &mut Command, socket: &Path) -> Result<Self, String> {
        let what = format!("{command:?}");
        let log = socket.with_extension("log");
        let output = std::fs::File::create(&log).map_err(|error| format!("{what}: {error}"))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output)
            .spawn()
            .map_err(|error| format!("{what}: {error}"))?;
        let mut this = Self { child, socket: socket.to_owned() };
        let begun = Instant::now();
        while UnixStream::connect(&this.socket).is_err() {
            let ended = this.child.try_wait().map_err(|error| format!("{what}: {error}"))?;
            if ended.is_some() || begun.elapsed() > LIMIT {
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                return Err(format!("{what} does not serve: {said}"));
            }
            std::thread::sleep(POLL);
        }
        Ok(this)
    }

    pub(in crate::suites) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(in crate::suites) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(in crate::suites) fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let process = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(process) = process {
            // The signal fails if the server has ended already, which needs none.
            let _ended = kill_process(process, Signal::TERM);
        }
        let _status = self.child.wait();
    }
}

/// The command `braid` from the same build as this program.
pub(in crate::suites) fn braid() -> Result<PathBuf, String> {
    let lab = std::env::current_exe().map_err(|error| error.to_string())?;
    let braid = lab.with_file_name("braid");
    if braid.is_file() {
        Ok(braid)
    } else {
        Err(format!("{} does not exist: build the package braid first", braid.display()))
    }
}

/// Runs `braid create` for a RAID-5 on members with equal bytes, so that parity is right.
pub(in crate::suites) fn create_braid(
    braid: &Path,
    folder: &Path,
    members: &[String],
) -> Result<(), String> {
    let words = ["--level", "5", "--chunk", "64K", "--destroy", "data"];
    create_braid_as(braid, folder, &words, members)
}

/// Runs `braid create` with these options, on members with right redundancy.
pub(in crate::suites) fn create_braid_as(
    braid: &Path,
    folder: &Path,
    words: &[&str],
    members: &[String],
) -> Result<(), String> {
    let mut create = Command::new(braid);
    create.arg("--state-dir").arg(state(folder));
    create.args(["create", "lab", "--assume-clean"]).args(words);
    let output = create.args(members).output();
    let output = output.map_err(|error| format!("{create:?}: {error}"))?;
    let said = || format!("{create:?}: {}", String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(()) } else { Err(said()) }
}

fn state(folder: &Path) -> PathBuf {
    folder.join("state")
}

/// Starts `braid serve` on the members of an array, with further options.
pub(in crate::suites) fn serve_braid(
    braid: &Path,
    folder: &Path,
    members: &[String],
    more: &[&str],
) -> Result<Server, String> {
    let socket = folder.join("braid.sock");
    let mut serve = Command::new(braid);
    serve.arg("--state-dir").arg(state(folder)).arg("serve").args(more);
    serve.arg("--nbd").arg(format!("nbd+unix:///?socket={}", socket.display())).args(members);
    Server::start(&mut serve, &socket)
}

/// Waits for the file or the device that `serve` makes. The server's sockets may exist earlier.
pub(in crate::suites) fn wait_for(file: &Path) -> Result<(), String> {
    // The metadata of a device has no length, so its type is checked.
    let is_it = |it: std::fs::Metadata| it.len() > 0 || it.file_type().is_block_device();
    let begun = Instant::now();
    while !std::fs::metadata(file).is_ok_and(is_it) {
        if begun.elapsed() > LIMIT {
            return Err(format!("{} does not appear", file.display()));
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// Makes a self-signed certificate with its key in `folder`, under the names that `serve --tls`
/// expects.
pub(in crate::suites) fn certify(folder: &Path) -> Result<(), String> {
    let path = |name: &str| folder.join(name).display().to_string();
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    openssl.args(["-nodes", "-days", "2", "-subj", "/CN=localhost"]);
    openssl.args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]);
    openssl.arg("-keyout").arg(path("server-key.pem")).arg("-out").arg(path("server-cert.pem"));
    let output = openssl.output().map_err(|error| format!("openssl: {error}"))?;
    if !output.status.success() {
        return Err(format!("openssl: {}", String::from_utf8_lossy(&output.stderr)));
    }
    std::fs::copy(path("server-cert.pem"), path("ca-cert.pem"))
        .map(|_bytes| ())
        .map_err(|error| format!("{}: {error}", folder.display()))
}

/// A port of 127.0.0.1 that no process listens on just now.
pub(in crate::suites) fn free_port() -> Result<u16, String> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0));
    let address = listener.and_then(|listener| listener.local_addr());
    address.map(|address| address.port()).map_err(|error| error.to_string())
}

pub(in crate::suites) fn serve_nbdkit(folder: &Path, raw: &str) -> Result<Server, String> {
    let socket = folder.join("nbdkit.sock");
    let mut command = Command::new("nbdkit");
    command.args(["--foreground", "--unix"]).arg(&socket).arg("file").arg(raw).arg("cache=none");
    Server::start(&mut command, &socket)
}

/// Starts a server of an export without storage, so that requests only pass the socket.
pub(in crate::suites) fn serve_nothing(folder: &Path, mebibytes: usize) -> Result<Server, String> {
    let socket = folder.join("nothing.sock");
    let mut command = Command::new("nbdkit");
    command.args(["--foreground", "--unix"]).arg(&socket).arg("null").arg(format!("{mebibytes}M"));
    Server::start(&mut command, &socket)
}

pub(in crate::suites) fn serve_qemu(folder: &Path, raw: &str) -> Result<Server, String> {
    let socket = folder.join("qemu.sock");
    let mut command = Command::new("qemu-nbd");
    command.args(["--format=raw", "--cache=none", "--aio=native", "--persistent", "--shared=16"]);
    command.arg("--socket").arg(&socket).arg(raw);
    Server::start(&mut command, &socket)
}
