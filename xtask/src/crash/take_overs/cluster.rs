//! The processes of an array on several hosts: a store, member servers, an owner and its heir.
//!
//! Hosts are folders, and all listen on Unix sockets or loopback. `mod` decides who dies when.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::programs::output;
use crate::server::{Server, control_of};

pub(super) const MEMBERS: usize = 4;
const MEMBER_BYTES: u64 = 8 << 20;
/// Longer than a start takes, or the recovery of a member, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// A process of the cluster. A drop kills it.
struct Process(Child);

impl Process {
    fn spawn(command: &mut Command) -> Result<Self> {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = quiet.spawn();
        Ok(Self(child.with_context(|| format!("{command:?}"))?))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if the process has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) struct Cluster {
    braid: PathBuf,
    folder: PathBuf,
    store: String,
    uris: Vec<PathBuf>,
    members: Vec<Option<Process>>,
    _etcd: Process,
}

impl Cluster {
    /// Starts the store and the member servers, and creates the array.
    pub(super) fn new(braid: &Path, folder: &Path) -> Result<Self> {
        let (port, peer) = (free_port()?, free_port()?);
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let mut etcd = Command::new("etcd");
        etcd.arg("--data-dir").arg(folder.join("etcd"));
        etcd.args(["--listen-client-urls", &url(port), "--advertise-client-urls", &url(port)]);
        etcd.args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)]);
        etcd.args(["--initial-cluster", &format!("default={}", url(peer))]);
        let _etcd = Process::spawn(&mut etcd)?;
        wait_for("etcd", || Ok(is_healthy(port).unwrap_or(false)))?;
        let store = format!("etcd://127.0.0.1:{port}/braid/tank");
        let (braid, folder) = (braid.to_owned(), folder.to_owned());
        let mut cluster =
            Self { braid, folder, store, uris: Vec::new(), members: Vec::new(), _etcd };
        for at in 0..MEMBERS {
            std::fs::File::create(cluster.member(at))?.set_len(MEMBER_BYTES)?;
            let socket = cluster.socket(at);
            let uri = format!("nbd+unix:///m{at}?socket={}", socket.display());
            cluster.uris.push(uri.into());
            cluster.members.push(None);
            cluster.start_member(at)?;
        }
        let mut create = Command::new(&cluster.braid);
        create.arg("--state-dir").arg(cluster.folder.join("state"));
        create.args(["create", "tank", "--level", "5", "--zero"]);
        output(create.args(&cluster.uris))?;
        Ok(cluster)
    }

    pub(super) fn member(&self, at: usize) -> PathBuf {
        self.folder.join(format!("m{at}"))
    }

    fn socket(&self, at: usize) -> PathBuf {
        self.folder.join(format!("s{at}"))
    }

    pub(super) fn start_member(&mut self, at: usize) -> Result<()> {
        let socket = self.socket(at);
        let mut command = Command::new(&self.braid);
        command.arg("--state-dir").arg(self.folder.join("state"));
        command.args(["member", "--listen", &format!("nbd+unix:///?socket={}", socket.display())]);
        command.arg(self.member(at)).env("BRAID_RUNTIME_DIR", self.folder.join("run"));
        self.members[at] = Some(Process::spawn(&mut command)?);
        wait_for("a member server", || Ok(UnixStream::connect(&socket).is_ok()))
    }

    pub(super) fn kill_member(&mut self, at: usize) {
        self.members[at] = None;
    }

    fn host(&self, host: usize) -> Result<PathBuf> {
        let folder = self.folder.join(format!("host{host}"));
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// Starts a server at a host, without waiting; an heir knows the members by the record.
    pub(super) fn spawn(&self, host: usize, is_heir: bool) -> Result<Server> {
        let folder = self.host(host)?;
        let mut options = vec!["--store", &self.store, "--away-after-ms", "2000"];
        options.extend(is_heir.then_some("--standby"));
        let members = if is_heir { &[] } else { &self.uris[..] };
        Server::spawn_with(&self.braid, (&folder, Some(&folder.join("run"))), members, &options)
    }

    /// Asks the server at a host; returns its answer.
    pub(super) fn ask(&self, host: usize, verb: &str, more: &[&str]) -> Result<Value> {
        let mut command = Command::new(&self.braid);
        command.args(["--json", verb]).arg(control_of(&self.host(host)?)).args(more);
        let said = output(&mut command)?;
        let last = said.lines().last().context("no answer")?;
        serde_json::from_str(last).with_context(|| said.clone())
    }

    /// Waits until every member is in sync at the owner on this host.
    pub(super) fn wait_until_whole(&self, host: usize) -> Result<()> {
        wait_for("all members in sync", || {
            let said = self.ask(host, "status", &[])?;
            let slots = said["arrays"][0]["slots"].as_array().with_context(|| said.to_string())?;
            Ok(slots.len() == MEMBERS && slots.iter().all(|slot| slot["state"] == "ok"))
        })
    }

    /// Compares data with parity.
    pub(super) fn check(&self, host: usize) -> Result<()> {
        self.ask(host, "wait", &["--for", "idle", "--timeout", "60"])?;
        let found = self.ask(host, "check", &[])?;
        ensure!(found["check"]["differing_sectors"] == 0, "parity is wrong: {found}");
        Ok(())
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Whether etcd has elected a leader, and answers.
fn is_healthy(port: u16) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(said.contains(r#""health":"true""#))
}

fn wait_for(what: &str, mut is_true: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !is_true()? {
        if begun.elapsed() > LIMIT {
            bail!("{what}: not within {} s", LIMIT.as_secs());
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}
