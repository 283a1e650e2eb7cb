//! Starts, awaits and stops the array's server, and the daemons that pass the array on.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::block::Block;
use crate::nbd::Nbd;
use crate::transport::Transport;

const LIMIT: Duration = Duration::from_secs(20);

/// A process; dropping the value kills it.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Result<Self, Box<dyn Error>> {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
        Ok(Self(quiet.spawn().map_err(|error| format!("{command:?}: {error}"))?))
    }

    fn stop(mut self) -> Result<(), Box<dyn Error>> {
        Command::new("kill").arg(self.0.id().to_string()).status()?;
        let status = self.0.wait()?;
        if status.success() { Ok(()) } else { Err(format!("a server ended with {status}").into()) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if the process has ended, as it usually has.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The servers of all transports. The fields are dropped in this order.
pub(crate) struct Servers {
    by_vhost: Process,
    by_fuse: Process,
    braid: Process,
    folder: TempDir,
}

impl Servers {
    /// Makes an array and starts all servers.
    pub(crate) fn start(braid: &Path) -> Result<Self, Box<dyn Error>> {
        let folder = tempfile::Builder::new().prefix("braid-vhost-").tempdir_in("/dev/shm")?;
        let path = |name: &str| folder.path().join(name);
        let members: Vec<PathBuf> = (0..4).map(|slot| path(&format!("m{slot}"))).collect();
        let command = || {
            let mut command = Command::new(braid);
            command.arg("--state-dir").arg(path("state")).arg("--json");
            command
        };
        let mut create = command();
        create.args(["create", "tank", "--level", "5", "--member-size", "128M"]).args(&members);
        if !create.stdout(Stdio::null()).status()?.success() {
            return Err("braid create".into());
        }
        let (nbd, vhost) = (path("nbd.sock"), path("vhost.sock"));
        let mut serve = command();
        serve.args(["serve", "--nbd"]).arg(format!("nbd+unix:///?socket={}", nbd.display()));
        serve.arg("--fuse").arg(path("disk")).arg("--control").arg(path("control.sock"));
        let own = path("own.sock");
        serve.arg("--vhost-user").arg(&own);
        let braid = Process::start(serve.args(&members))?;
        wait(|| nbd.exists() && own.exists() && size(&path("disk")) > 0)?;
        let daemon = |export: &str| {
            let mut command = Command::new("qemu-storage-daemon");
            let node = "driver=nbd,node-name=tank,server.type=unix,server.path=";
            command.arg("--blockdev").arg(format!("{node}{}", nbd.display()));
            command.arg("--export").arg(format!("{export},id=tank,node-name=tank,writable=on"));
            Process::start(&mut command)
        };
        let address = format!("vhost-user-blk,addr.type=unix,addr.path={}", vhost.display());
        let by_vhost = daemon(&address)?;
        std::fs::write(path("file"), b"")?;
        let by_fuse = daemon(&format!("fuse,mountpoint={}", path("file").display()))?;
        wait(|| vhost.exists() && size(&path("file")) > 0)?;
        Ok(Self { by_vhost, by_fuse, braid, folder })
    }

    /// All transports to the array, NBD first.
    pub(crate) fn transports(&self) -> Result<Vec<Box<dyn Transport>>, Box<dyn Error>> {
        let path = |name: &str| self.folder.path().join(name);
        Ok(vec![
            Box::new(Nbd::connect(&path("nbd.sock"))?),
            Box::new(Block::vhost_user("vhost-user-blk, braid", &path("own.sock"))?),
            Box::new(Block::vhost_user("vhost-user-blk, storage daemon", &path("vhost.sock"))?),
            Box::new(Block::file("FUSE, storage daemon", &path("file"))?),
            Box::new(Block::file("FUSE, braid", &path("disk"))?),
        ])
    }

    /// Stops the servers in order.
    pub(crate) fn stop(self) -> Result<(), Box<dyn Error>> {
        self.by_vhost.stop()?;
        self.by_fuse.stop()?;
        self.braid.stop()
    }
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

fn wait(is_so: impl Fn() -> bool) -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > LIMIT {
            return Err("a server does not begin".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
