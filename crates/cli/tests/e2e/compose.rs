//! The recipe of packaging/compose: its commands, unchanged, as processes of one machine.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use braid_nbd_client::Connector;
use braid_nbd_proto::NbdUri;
use serde_json::Value;

use crate::kit::{Background, assert_same, needs, random_bytes, wait_until};
use crate::members::MEMBER_BYTES;
use crate::tls::Certificates;

const RECIPE: &str = "../../packaging/compose/compose.yaml";
const HOSTS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(60);

/// The command of each service. A command is a list in brackets, which YAML shares with JSON.
fn commands() -> BTreeMap<String, Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(RECIPE);
    let text = std::fs::read_to_string(path).expect("the recipe");
    let (_, services) = text.split_once("\nservices:\n").expect("services");
    let (mut found, mut service, mut rest) = (BTreeMap::new(), "", services);
    while let Some((line, more)) = rest.split_once('\n') {
        let name = line.strip_prefix("  ").and_then(|line| line.strip_suffix(':'));
        service = name.filter(|name| !name.starts_with(' ')).unwrap_or(service);
        rest = more;
        if line == "    command: [" {
            let (words, more) = more.split_once("]\n").expect("the end of a command");
            let words = serde_json::from_str(&format!("[{words}]")).expect("a list of words");
            assert!(found.insert(service.to_owned(), words).is_none(), "two commands of {service}");
            rest = more;
        }
    }
    found
}

/// The recipe of packaging/compose on one machine: each host has a folder, and free ports.
struct Recipe {
    folder: tempfile::TempDir,
    certificates: PathBuf,
    ports: Vec<BTreeMap<u16, u16>>,
    commands: BTreeMap<String, Vec<String>>,
}

impl Recipe {
    fn new(certificates: PathBuf) -> Self {
        let free = |port: u16| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            (port, listener.local_addr().expect("bound").port())
        };
        let ports = (0..HOSTS).map(|_| [2379, 2380, 10809, 10810].map(free).into()).collect();
        let folder = tempfile::Builder::new().prefix("braid-e2e-").tempdir().expect("a folder");
        for host in 0..HOSTS {
            let own = folder.path().join(format!("h{}", host + 1));
            std::fs::create_dir(&own).expect("a folder");
            let disk = std::fs::File::create(own.join("braid-disk")).expect("a disk");
            disk.set_len(MEMBER_BYTES).expect("a disk");
        }
        Self { folder, certificates, ports, commands: commands() }
    }

    fn own(&self, host: usize, file: &str) -> PathBuf {
        self.folder.path().join(format!("h{}", host + 1)).join(file)
    }

    /// A word of the recipe, changed to a host's folder and ports on one machine.
    fn word(&self, host: usize, word: &str) -> String {
        let mut word = word.replace("${HOST}", &format!("h{}", host + 1));
        for (other, ports) in self.ports.iter().enumerate() {
            for (port, free) in ports {
                let here = format!("127.0.0.1:{free}");
                word = word.replace(&format!("h{}:{port}", other + 1), &here);
                if other == host {
                    word = word.replace(&format!("0.0.0.0:{port}"), &here);
                }
            }
        }
        let text = |path: &Path| path.to_str().expect("a plain path").to_owned();
        let word = word.replace("/etc/pki/braid", &text(&self.certificates));
        let word = word.replace("/dev/braid-disk", &text(&self.own(host, "braid-disk")));
        word.replace("/var/lib/etcd", &text(&self.own(host, "etcd")))
    }

    fn command(&self, host: usize, service: &str) -> Command {
        let words: Vec<String> =
            self.commands[service].iter().map(|word| self.word(host, word)).collect();
        let mut command = match words[0].as_str() {
            "etcd" => Command::new("etcd"),
            _ => self.braid(host),
        };
        command.args(words.iter().filter(|word| *word != "etcd"));
        command
    }

    /// The `braid` of the container image, with a host's folders.
    fn braid(&self, host: usize) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
        command.env("BRAID_STATE_DIR", self.own(host, "state"));
        command.env("BRAID_RUNTIME_DIR", self.own(host, "run"));
        command
    }

    fn start(&self, host: usize, service: &str) -> Background {
        Background::spawn_command(self.command(host, service), "")
    }

    fn listens(&self, host: usize, port: u16) -> bool {
        std::net::TcpStream::connect(("127.0.0.1", self.ports[host][&port])).is_ok()
    }

    /// The host that serves the array, among those that run.
    fn owner(&self, hosts: &[usize]) -> Option<usize> {
        hosts.iter().copied().find(|host| {
            let mut command = self.braid(*host);
            command.args(["--json", "status", "pool"]);
            let ran = Background::spawn_command(command, "").wait();
            let said: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
            said["arrays"][0]["state"].is_string() && self.listens(*host, 10810)
        })
    }

    fn client(&self, host: usize) -> braid_nbd_client::Client {
        let uri = "nbds://${HOST}:10810/pool?tls-certificates=/etc/pki/braid";
        let uri = self.word(host, uri);
        let uri: NbdUri = uri.parse().expect("a URI");
        Connector::new(uri).and_then(|it| it.connect()).expect("the owner answers")
    }
}

#[test]
fn the_recipe_of_three_hosts_survives_the_loss_of_an_owner() {
    needs!("etcd");
    let certificates = Certificates::new();
    let folder = certificates.of("server", "host");
    let client = certificates.of("client", "client");
    for name in ["client-cert.pem", "client-key.pem"] {
        std::fs::copy(client.join(name), folder.join(name)).expect("a certificate");
    }
    let recipe = Recipe::new(folder);
    let services: Vec<&str> = recipe.commands.keys().map(String::as_str).collect();
    assert_eq!(services, ["create", "member", "owner", "store"]);
    let all = [0, 1, 2];
    let _stores = all.map(|host| recipe.start(host, "store"));
    let _members = all.map(|host| recipe.start(host, "member"));
    wait_until("stores and members", PATIENCE, || {
        all.iter().all(|host| recipe.listens(*host, 2379) && recipe.listens(*host, 10809))
    });
    // Owners stand by before an array exists, as the containers do.
    let mut owners = all.map(|host| Some(recipe.start(host, "owner")));
    let ran = Background::spawn_command(recipe.command(0, "create"), "").wait();
    assert!(ran.status.success(), "{ran:?}");
    let mut owner = None;
    wait_until("an owner", PATIENCE, || {
        owner = recipe.owner(&all);
        owner.is_some()
    });
    let first = owner.expect("an owner");
    let content = random_bytes(81, 1 << 20);
    recipe.client(first).write(0, &content, true).expect("it is written");
    drop(owners[first].take());
    let others: Vec<usize> = all.into_iter().filter(|host| *host != first).collect();
    wait_until("another owner", PATIENCE, || {
        owner = recipe.owner(&others);
        owner.is_some()
    });
    let mut read = vec![0; content.len()];
    recipe.client(owner.expect("an owner")).read(0, &mut read).expect("it is read");
    assert_same(&read, &content, "at the next owner");
}
