//! The processes of an array on several hosts: a store, member servers, an owner and its heir.
//!
//! Hosts are folders, and all listen on Unix sockets or loopback, or each in a network namespace
//! ([`super::network`]). `mod` decides which process dies when.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::network::Network;
use crate::programs::output;
use crate::server::{Server, control_of};

pub(super) const MEMBERS: usize = 4;
const MEMBER_BYTES: u64 = 8 << 20;
/// Time limit: longer than a start takes, or the recovery of a member, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// A process of the cluster. A drop kills it.
pub(super) struct Process {
    child: Child,
    /// The process's output, which is not read after its start.
    _output: Option<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts a process, and waits until its output has the words.
    pub(super) fn spawn(command: &mut Command, words: Option<&str>) -> Result<Self> {
        let output = words.map_or_else(Stdio::null, |_| Stdio::piped());
        let quiet = command.stdin(Stdio::null()).stdout(output).stderr(Stdio::null());
        let mut child = quiet.spawn().with_context(|| format!("{command:?}"))?;
        let mut reader = child.stdout.take().map(BufReader::new);
        let mut line = String::new();
        while let (Some(words), Some(reader)) = (words, &mut reader)
            && !line.contains(words)
        {
            line.clear();
            ensure!(reader.read_line(&mut line)? > 0, "{command:?} ends without {words}");
        }
        Ok(Self { child, _output: reader })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Kill and wait fail if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The store's place in the network, after the places of the members.
pub(super) const STORE: usize = MEMBERS;

/// The place of a host in the network.
pub(super) const fn place_of(host: usize) -> usize {
    STORE + 1 + host
}

pub(super) struct Cluster {
    braid: PathBuf,
    folder: PathBuf,
    store: String,
    uris: Vec<PathBuf>,
    members: Vec<Option<Process>>,
    etcd: Option<Process>,
    pub(super) network: Option<Network>,
}

impl Cluster {
    /// Starts the store and the member servers, and creates the array. With `is_apart` the store,
    /// each member server and each host has a network namespace.
    pub(super) fn new(braid: &Path, folder: &Path, is_apart: bool) -> Result<Self> {
        let network = is_apart.then(|| Network::new(folder, place_of(2))).transpose()?;
        let (braid, folder) = (braid.to_owned(), folder.to_owned());
        let (store, uris, members, etcd) = (String::new(), Vec::new(), Vec::new(), None);
        let mut cluster = Self { braid, folder, store, uris, members, etcd, network };
        cluster.start_store()?;
        for at in 0..MEMBERS {
            std::fs::File::create(cluster.member(at))?.set_len(MEMBER_BYTES)?;
            cluster.uris.push(match &cluster.network {
                None => format!("nbd+unix:///m{at}?socket={}", cluster.socket(at).display()).into(),
                Some(network) => {
                    let (host, tls) = (network.address(at), network.certificates().display());
                    format!("nbds://{host}/m{at}?tls-certificates={tls}").into()
                }
            });
            cluster.members.push(None);
            cluster.start_member(at)?;
        }
        let mut create = Command::new(cluster.program(place_of(0), &cluster.braid)?);
        create.arg("--state-dir").arg(cluster.folder.join("state"));
        create.args(["create", "tank", "--level", "5", "--zero"]);
        output(create.args(&cluster.uris))?;
        Ok(cluster)
    }

    fn start_store(&mut self) -> Result<()> {
        let [port, peer, health] = [free_port()?, free_port()?, free_port()?];
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let mut etcd = Command::new(self.program(STORE, Path::new("etcd"))?);
        let client = match &self.network {
            None => url(port),
            Some(network) => {
                for (option, file) in [
                    ("--cert-file", "server-cert.pem"),
                    ("--key-file", "server-key.pem"),
                    ("--trusted-ca-file", "ca-cert.pem"),
                ] {
                    etcd.arg(option).arg(network.certificates().join(file));
                }
                etcd.arg("--client-cert-auth");
                format!("https://{}:{port}", network.address(STORE))
            }
        };
        etcd.arg("--data-dir").arg(self.folder.join("etcd"));
        etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        etcd.args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)]);
        etcd.args(["--initial-cluster", &format!("default={}", url(peer))]);
        etcd.args(["--listen-metrics-urls", &url(health)]);
        self.etcd = Some(Process::spawn(&mut etcd, None)?);
        let curl = self.program(STORE, Path::new("curl"))?;
        // A healthy etcd has elected a leader, and answers.
        wait_for("etcd", || {
            let said =
                Command::new(&curl).args(["-s", &format!("{}/health", url(health))]).output()?;
            Ok(String::from_utf8_lossy(&said.stdout).contains(r#""health":"true""#))
        })?;
        self.store = match &self.network {
            None => format!("etcd://127.0.0.1:{port}/braid/tank"),
            Some(network) => {
                let (host, tls) = (network.address(STORE), network.certificates().display());
                format!("etcd://{host}:{port}/braid/tank?tls-certificates={tls}")
            }
        };
        Ok(())
    }

    /// The program itself, or a program that starts it at this place of the network.
    fn program(&self, place: usize, program: &Path) -> Result<PathBuf> {
        let program = program.to_owned();
        self.network.as_ref().map_or(Ok(program.clone()), |it| it.program_at(place, &program))
    }

    pub(super) fn member(&self, at: usize) -> PathBuf {
        self.folder.join(format!("m{at}"))
    }

    fn socket(&self, at: usize) -> PathBuf {
        self.folder.join(format!("s{at}"))
    }

    pub(super) fn start_member(&mut self, at: usize) -> Result<()> {
        let mut command = Command::new(self.program(at, &self.braid)?);
        command.arg("--json").arg("--state-dir").arg(self.folder.join("state")).arg("member");
        match &self.network {
            None => {
                let socket = self.socket(at);
                command.args(["--listen", &format!("nbd+unix:///?socket={}", socket.display())]);
            }
            Some(network) => {
                command.args(["--listen", &format!("nbds://{}/", network.address(at))]);
                command.arg("--tls").arg(network.certificates());
            }
        }
        command.arg(self.member(at)).env("BRAID_RUNTIME_DIR", self.folder.join("run"));
        self.members[at] = Some(Process::spawn(&mut command, Some(r#""event":"serving""#))?);
        Ok(())
    }

    pub(super) fn kill_member(&mut self, at: usize) {
        self.members[at] = None;
    }

    fn host(&self, host: usize) -> Result<PathBuf> {
        let folder = self.folder.join(format!("host{host}"));
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// A link to the socket of the host that last began to serve; the hook moves it.
    pub(super) fn address(&self) -> PathBuf {
        self.folder.join("tank.sock")
    }

    /// Starts a server at a host, without waiting; an heir reads the members from the record.
    pub(super) fn spawn(&self, host: usize, is_heir: bool) -> Result<Server> {
        let folder = self.host(host)?;
        let (socket, next) = (folder.join("nbd.sock"), folder.join("next"));
        let hook = format!(
            "[ $BRAID_EVENT != ArrayStarted ] || {{ ln -sf {} {next} && mv -T {next} {}; }}",
            socket.display(),
            self.address().display(),
            next = next.display()
        );
        let mut options = vec!["--store", &self.store, "--away-after-ms", "2000"];
        options.extend(["--on-event", &hook]);
        options.extend(is_heir.then_some("--standby"));
        let members = if is_heir { &[] } else { &self.uris[..] };
        let braid = self.program(place_of(host), &self.braid)?;
        Server::spawn_with(&braid, (&folder, Some(&folder.join("run"))), members, &options)
    }

    /// Asks the server at a host by a verb of `braid`; returns its answer.
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

    /// Bytes that clients have written to the owner on this host.
    pub(super) fn bytes_written(&self, host: usize) -> Result<u64> {
        let said = self.ask(host, "status", &[])?;
        let bytes = said["arrays"][0]["clients"]["bytes_written"].as_u64();
        bytes.with_context(|| said.to_string())
    }

    /// Checks the array at this host: data must agree with parity.
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

pub(super) fn wait_for(what: &str, mut is_true: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !is_true()? {
        if begun.elapsed() > LIMIT {
            bail!("{what}: not within {} s", LIMIT.as_secs());
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}
