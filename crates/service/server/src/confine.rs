//! Confines the server to the members, its own folders and the system calls that serving makes.
//!
//! ```text
//!   begin   one thread yet   hooks get a process ─▶ capabilities go ─▶ files named here (landlock)
//!   finish  all is open      system calls: those of serving (seccomp) ─▶ tried from inside
//! ```
//!
//! The first half already covers files that are opened before `finish`, superblocks included: the
//! process that reads a damaged device can open nothing but the members. For a member added later,
//! the client opens the device and passes its descriptor over the control socket
//! ([`braid_control::PassedDescriptors`]).
//!
//! A server cannot be confined if it runs a command (--run), mounts (--fuse: unmounting needs the
//! right, and fusermount3 its privileges), makes a block device (--ublk), or has members on other
//! hosts (it connects to them anew).
//!
//! Invariants
//! - Each restriction that the server reports was tried
//!   `[check: a_confined_server_serves_and_can_do_nothing_else]`.

use std::path::{Path, PathBuf};

use braid_confine::calls::{self, AllowedCalls};
use braid_confine::capabilities::{self, KeptCapabilities};
use braid_confine::files::{self, Enforcement, Grant};
use braid_confine::{ConfineError, proof};
use braid_frontend_nbd::Endpoint;
use braid_member::{companion_paths, is_uri};

use super::address::{Address, own_folder};
use super::config::{Confine, ServerConfig};
use braid_console::Globals;
use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};
use braid_console::state::make_folders;
use braid_discovery::running;

/// Result of `begin`, the first half of confinement.
pub(super) struct Confinement {
    /// The option that makes confinement impossible.
    obstacle: Option<&'static str>,
    enforcement: Enforcement,
    kept: KeptCapabilities,
    allowed: AllowedCalls,
}

/// Gives up capabilities and files. Call it while the process has one thread.
pub(super) fn begin(config: &ServerConfig, globals: &Globals) -> Result<Confinement, CliError> {
    let wanted = config.confine;
    let obstacle = match () {
        () if wanted == Confine::Off => Some("it was not requested"),
        () if config.run.is_some() => Some("--run runs a command, which would be confined as well"),
        () if config.file.is_some() => Some("--fuse mounts and unmounts a file"),
        () if config.files().iter().any(|path| is_uri(path)) => {
            Some("a member is on another host, and lost connections are made anew")
        }
        () if config.owner.is_some() => Some("the store is on other hosts"),
        () if config.device.is_some() => Some("--ublk makes and deletes a block device"),
        () => None,
    };
    let mut confinement = Confinement {
        obstacle,
        enforcement: Enforcement::NotAtAll,
        kept: KeptCapabilities::Nothing,
        allowed: AllowedCalls {
            connect: config.spare_group.is_some(),
            memory_files: config.vhost_user.is_some(),
        },
    };
    match obstacle {
        Some(why) if wanted == Confine::Full => return Err(refused(why)),
        Some(_) => return Ok(confinement),
        None => {}
    }
    // Make the folders now: landlock grants access only to existing paths.
    make_folders(&globals.state_dir).map_err(|(path, error)| {
        let what = format!("{} cannot be made", path.display());
        let error = CliError::new(Code::StateFolder, what).caused_by(&error);
        error.remedy(Risk::Look, "Name another one", "braid serve --state-dir FOLDER MEMBER...")
    })?;
    let files = config.files();
    let paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    confinement.kept =
        capabilities::keep(&paths, !config.assembly.read_only).map_err(|error| failed(&error))?;
    // With a spare group, files stay open: the path of another array's spare is not known yet.
    if config.spare_group.is_none() {
        let grants = grants(config, &globals.state_dir);
        let is_abstract = std::env::var("NOTIFY_SOCKET").is_ok_and(|name| name.starts_with('@'));
        confinement.enforcement =
            files::restrict(&grants, is_abstract).map_err(|error| failed(&error))?;
    }
    // A kernel that lacks only the newest part of landlock still closes off important files.
    let is_short = confinement.enforcement == Enforcement::NotAtAll
        || confinement.kept != KeptCapabilities::Nothing;
    match confinement.open().as_slice() {
        [why, ..] if wanted == Confine::Full && is_short => Err(refused(why)),
        _ => Ok(confinement),
    }
}

/// Grants for every file that a server opens while it serves.
fn grants(config: &ServerConfig, state_dir: &Path) -> Vec<Grant> {
    let files = config.files();
    let beside = files.iter().flat_map(|path| companion_paths(path));
    let mut grants: Vec<Grant> = beside.map(Grant::Read).collect();
    grants.extend(files.iter().cloned().map(Grant::Device));
    grants.extend(["/proc", "/sys", "/dev/disk"].map(|path| Grant::Read(path.into())));
    grants.push(Grant::Folder(state_dir.to_path_buf()));
    // Creates the sockets' folder, in which the server writes and removes files. If that fails, a
    // later step reports the error.
    let _ = own_folder();
    grants.push(Grant::Folder(running::folder()));
    let unix = |address: &Address| match &address.endpoint {
        Endpoint::Unix(path) => Some(path.clone()),
        Endpoint::Tcp(_) => None,
    };
    let machines = config.vhost_user.clone();
    let sockets = config.nbd.iter().filter_map(unix).chain(config.control.clone()).chain(machines);
    let folder = |path: PathBuf| {
        let path = std::path::absolute(&path).unwrap_or(path);
        path.parent().map(Path::to_path_buf)
    };
    grants.extend(sockets.filter_map(folder).map(Grant::Sockets));
    grants.extend(config.tls.folder.clone().map(Grant::Read));
    grants
}

impl Confinement {
    /// Whether the server may open no files, so that clients must pass new members' devices open.
    pub(super) fn opens_nothing(&self) -> bool {
        self.enforcement != Enforcement::NotAtAll
    }

    /// One word for each area that `finish` has closed off.
    pub(super) fn words(&self) -> Vec<String> {
        let is_begun = self.obstacle.is_none();
        let words = [
            (self.opens_nothing(), "files"),
            (is_begun, "system-calls"),
            (is_begun && self.kept == KeptCapabilities::Nothing, "capabilities"),
        ];
        words
            .into_iter()
            .filter(|(is_closed, _)| *is_closed)
            .map(|(_, word)| word.to_owned())
            .collect()
    }

    /// Areas that the confinement leaves open, each with the reason.
    fn open(&self) -> Vec<&'static str> {
        if let Some(why) = self.obstacle {
            return vec![why];
        }
        let files = match (self.enforcement, self.allowed.connect) {
            (Enforcement::Fully, _) => None,
            (Enforcement::Partly, _) => Some("this kernel's landlock lacks some of these rights"),
            (Enforcement::NotAtAll, true) => Some(
                "--spare-group opens devices that are unknown at the \
                                            start",
            ),
            (Enforcement::NotAtAll, false) => Some("this kernel has no landlock"),
        };
        let kept = (self.kept == KeptCapabilities::FilesOfOthers)
            .then_some("a member is another user's: CAP_DAC_OVERRIDE is kept");
        files.into_iter().chain(kept).collect()
    }

    /// The closed-off areas and the open ones, in one line.
    pub(super) fn line(&self) -> String {
        let words = self.words();
        let closed = if words.is_empty() { "nothing".to_owned() } else { words.join(", ") };
        match self.open().as_slice() {
            [] => closed,
            open => format!("{closed} ({})", open.join("; ")),
        }
    }

    /// Closes off system calls, then tries forbidden operations to make sure that they fail.
    pub(super) fn finish(&self) -> Result<(), CliError> {
        if self.obstacle.is_some() {
            return Ok(());
        }
        calls::restrict(self.allowed).map_err(|error| failed(&error))?;
        proof::calls_are_closed().map_err(|error| failed(&error))?;
        if self.opens_nothing() {
            proof::files_are_closed().map_err(|error| failed(&error))?;
        }
        Ok(())
    }
}

fn refused(why: &str) -> CliError {
    let error =
        CliError::new(Code::NotConfined, "the server cannot be confined as --confine full demands");
    let error = error.because(why);
    let auto = "braid serve --confine auto MEMBER...";
    error.remedy(Risk::Look, "Confine it as far as possible", auto)
}

fn failed(error: &ConfineError) -> CliError {
    let refused =
        CliError::new(Code::NotConfined, "the server cannot be confined").caused_by(error);
    let off = "braid serve --confine off MEMBER...";
    refused.remedy(Risk::Look, "See what the kernel says", "dmesg | tail").remedy(
        Risk::Change,
        "Serve without",
        off,
    )
}
