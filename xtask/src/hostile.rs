//! `cargo xtask hostile-memory`: attacks the memory of `braid serve`, and of nbdkit and qemu-nbd
//! for comparison, with clients that announce large writes or never read replies.
//!
//! Developers run the attack by hand for the figures in docs/clients.md; tests check the limits.
//! Each server serves a file (braid: a RAID-5 of four) under each limit: none, an address limit
//! (`ulimit -v`), or a control group if one can be made. 63 clients attack at once, a quarter of
//! them with each of:
//!
//! ```text
//!   a WRITE and one byte of it │ a WRITE and 4 KiB of it │ a READ that is not read │ 20 of those
//! ```
//!
//! Meanwhile a good client reads and writes 4 KiB in turn. The table shows for each server whether
//! it survives, its peak memory growth, and the good client's longest wait.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::build::Program;

#[allow(dead_code, reason = "shared by path; each user needs a part")]
#[path = "../../crates/cli/tests/e2e/kit/raw_client.rs"]
mod raw_client;

use raw_client::RawClient;

const CLIENTS: usize = 63;
/// Longest request that all three servers take.
const REQUEST_BYTES: u32 = 32 << 20;
/// The time that the good client continues after the attack has begun.
const SERVED: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);

/// The memory limit of a server.
#[derive(Clone, Copy)]
enum Bound {
    None,
    Addresses(u64),
    Group(u64),
}

impl Bound {
    fn words(self) -> String {
        match self {
            Self::None => "no limit".to_owned(),
            Self::Addresses(mebibytes) => format!("ulimit -v {mebibytes} MiB"),
            Self::Group(mebibytes) => format!("cgroup {mebibytes} MiB"),
        }
    }
}

/// A control group with a memory limit, of either version; `None` if this machine allows none.
struct Group(PathBuf);

impl Group {
    fn make(mebibytes: u64) -> Option<Self> {
        let name = format!("braid-hostile-{}", std::process::id());
        let places =
            [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")];
        places.into_iter().find_map(|(root, limit)| {
            let folder = Path::new(root).join(&name);
            fs::create_dir(&folder).ok()?;
            let group = Self(folder);
            fs::write(group.0.join(limit), (mebibytes << 20).to_string()).ok()?;
            Some(group)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The group is empty once its process has ended; a leftover group does no harm.
        let _ = fs::remove_dir(&self.0);
    }
}

/// A server under attack. A drop kills it.
struct Server {
    child: Child,
    socket: PathBuf,
    // Dropped as the last field, after the server's process has ended.
    _group: Option<Group>,
}

impl Server {
    fn start(words: &[String], socket: &Path, bound: Bound) -> Result<Option<Self>> {
        let mut script = String::new();
        let mut group = None;
        match bound {
            Bound::None => {}
            Bound::Addresses(mebibytes) => script = format!("ulimit -v {}; ", mebibytes << 10),
            Bound::Group(mebibytes) => {
                let Some(made) = Group::make(mebibytes) else { return Ok(None) };
                script = format!("echo $$ > {}/cgroup.procs; ", made.0.display());
                group = Some(made);
            }
        }
        script.push_str("exec \"$@\"");
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &script, "sh"]).args(words);
        shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = shell.spawn().context("a shell")?;
        let mut server = Self { child, socket: socket.to_path_buf(), _group: group };
        let start = Instant::now();
        while UnixStream::connect(socket).is_err() {
            if server.child.try_wait()?.is_some() {
                bail!("it does not start");
            }
            ensure!(start.elapsed() < PATIENCE, "it does not listen");
            std::thread::sleep(POLL);
        }
        Ok(Some(server))
    }

    /// Resident memory of the server's process at the moment.
    fn resident_bytes(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap_or(0) << 10
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client whose calls time out after a short while.
fn connect(socket: &Path) -> std::io::Result<RawClient> {
    RawClient::connect(socket, PATIENCE)
}

fn ask(client: &mut RawClient, round: u64) -> std::io::Result<()> {
    let (offset, mut data) = (round / 2 % 1000 * 4096, [7; 4096]);
    let mut reply = [0; 16];
    if round.is_multiple_of(2) {
        client.0.write_all(&[&RawClient::header(1, offset, 4096)[..], &data].concat())?;
        return client.0.read_exact(&mut reply);
    }
    client.0.write_all(&RawClient::header(0, offset, 4096))?;
    client.0.read_exact(&mut reply)?;
    client.0.read_exact(&mut data)
}

struct Outcome {
    before_bytes: u64,
    most_bytes: u64,
    /// Number of attackers that connected.
    attackers: usize,
    /// The good client's waits, or the error that ended it.
    waits: Vec<Duration>,
    served: std::io::Result<()>,
    end: Option<std::process::ExitStatus>,
}

fn attack(server: &mut Server) -> Result<Outcome> {
    let mut good = connect(&server.socket).context("the first client")?;
    for round in 0..100 {
        ask(&mut good, round).context("before the attack")?;
    }
    let before_bytes = server.resident_bytes();
    let mut most_bytes = before_bytes;
    let mut attackers = Vec::new();
    for kind in 0..CLIENTS {
        if let Ok(mut client) = connect(&server.socket)
            && client.attack(kind, 0, REQUEST_BYTES).is_ok()
        {
            attackers.push(client);
        }
        most_bytes = most_bytes.max(server.resident_bytes());
    }
    let (start, mut waits, mut served) = (Instant::now(), Vec::new(), Ok(()));
    while start.elapsed() < SERVED && served.is_ok() {
        let asked = Instant::now();
        served = ask(&mut good, waits.len() as u64);
        waits.push(asked.elapsed());
        most_bytes = most_bytes.max(server.resident_bytes());
        std::thread::sleep(POLL / 5);
    }
    // A killed process may take a moment to end.
    std::thread::sleep(POLL * 20);
    let end = server.child.try_wait()?;
    waits.sort_unstable();
    Ok(Outcome { before_bytes, most_bytes, attackers: attackers.len(), waits, served, end })
}

impl Outcome {
    fn row(&self) -> String {
        let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20);
        let state = match self.end {
            Some(status) => status.to_string(),
            None => "lives".to_owned(),
        };
        let at = |part: usize| {
            let index = (self.waits.len() * part / 100).min(self.waits.len() - 1);
            format!("{:.2}", self.waits[index].as_secs_f64() * 1000.0)
        };
        let waits = format!("{} / {} / {}", at(50), at(99), at(100));
        let served = match &self.served {
            Ok(()) => format!("{} requests, {waits} ms", self.waits.len()),
            Err(error) => format!("{} requests, then {error}", self.waits.len() - 1),
        };
        let grown = mebibytes(self.most_bytes.saturating_sub(self.before_bytes));
        format!("{grown} MiB | {state} | {} | {served}", self.attackers)
    }
}

/// The installed servers, with the command that starts each on a socket.
fn servers(folder: &Path, braid: &Path) -> Result<Vec<(&'static str, Vec<String>)>> {
    let socket = folder.join("nbd.sock").display().to_string();
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let members: Vec<String> =
        (0..4).map(|slot| folder.join(format!("m{slot}")).display().to_string()).collect();
    let mut create = Command::new(braid);
    create.args(["create", "tank", "--level", "5", "--member-size", "128M"]).args(&members);
    create.env("XDG_STATE_HOME", folder).stdout(Stdio::null()).stderr(Stdio::null());
    ensure!(create.status().context("braid create")?.success(), "braid create");
    let disk = folder.join("disk.img").display().to_string();
    fs::File::create(&disk)?.set_len(384 << 20)?;
    let uri = format!("nbd+unix:///?socket={socket}");
    let serve = |io: &str| {
        let braid = braid.display().to_string();
        let mut serve = words(&[&braid, "serve", "--io", io, "--nbd", &uri]);
        serve.extend(members.iter().cloned());
        serve
    };
    let all = [
        ("braid, ring", serve("ring")),
        ("braid, threads", serve("threads")),
        ("nbdkit", words(&["nbdkit", "-f", "-U", &socket, "file", &disk])),
        ("qemu-nbd", words(&["qemu-nbd", "-t", "-f", "raw", "--shared=0", "-k", &socket, &disk])),
    ];
    let is_there = |program: &str| {
        let path = std::env::var("PATH").unwrap_or_default();
        program.contains('/')
            || format!("{path}:/usr/sbin:/sbin")
                .split(':')
                .any(|folder| Path::new(folder).join(program).is_file())
    };
    Ok(all.into_iter().filter(|(_, words)| is_there(&words[0])).collect())
}

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The braid to try, instead of one built from this tree
    #[arg(long, value_name = "PATH")]
    braid: Option<PathBuf>,
}

/// Runs the comparison, and prints it as a table.
pub(crate) fn run(options: &Options) -> Result<()> {
    let braid = match &options.braid {
        Some(path) => path.clone(),
        None => Program::Braid.release()?,
    };
    let folder = tempfile::tempdir().context("a folder")?;
    let servers = servers(folder.path(), &braid)?;
    let socket = folder.path().join("nbd.sock");
    println!(
        "{CLIENTS} clients with requests of {} MiB; the good client's waits: median / 99 % / longest\n",
        REQUEST_BYTES >> 20
    );
    println!(
        "| | limit | grew by | it | attackers in | the good client |\n|---|---|---|---|---|---|"
    );
    let bounds = [Bound::None, Bound::Addresses(2048), Bound::Addresses(512), Bound::Group(512)];
    for bound in bounds {
        for (name, words) in &servers {
            let _ = fs::remove_file(&socket);
            let row = match Server::start(words, &socket, bound) {
                Ok(None) => "| no control group can be made here | | |".to_owned(),
                Err(error) => format!("| {error} | | |"),
                Ok(Some(mut server)) => match attack(&mut server) {
                    Ok(outcome) => outcome.row(),
                    Err(error) => format!("| {error:#} | | |"),
                },
            };
            println!("| {name} | {} | {row} |", bound.words());
        }
    }
    Ok(())
}
