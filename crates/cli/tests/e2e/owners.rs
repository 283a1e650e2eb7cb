//! A store names one owner of an array: hand-over, take-over, owners that sleep, members and stores
//! that are away. Hosts are folders; their members are served by `braid member`.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread::scope;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::control::status;
use crate::jobs::{done, refused};
use crate::kit::{
    Array, Background, Client, Need, RAID_5, ServerProcess, assert_same, is_heard, needs,
    random_bytes, skip, wait_until,
};
use crate::members::{MEMBER_BYTES, text, wait_for_rebuild};

const PATIENCE: Duration = Duration::from_secs(30);

/// An etcd cluster of one server.
struct Etcd {
    server: Background,
    port: u16,
}

impl Etcd {
    fn start(folder: &Path) -> Self {
        let free = || {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            listener.local_addr().expect("bound").port()
        };
        let (port, peer) = (free(), free());
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let (client, peer) = (url(port), url(peer));
        let data = folder.join("etcd").display().to_string();
        let cluster = format!("default={peer}");
        let words = [
            ["--data-dir", &data],
            ["--listen-client-urls", &client],
            ["--advertise-client-urls", &client],
            ["--listen-peer-urls", &peer],
            ["--initial-advertise-peer-urls", &peer],
            ["--initial-cluster", &cluster],
        ];
        let server = Background::spawn("etcd", words.concat());
        let answers = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        wait_until("etcd to listen", PATIENCE, answers);
        Self { server, port }
    }

    fn uri(&self) -> String {
        format!("etcd://127.0.0.1:{}/braid/tank", self.port)
    }
}

/// Four members with a server each, a store, and two hosts that may own the array.
struct Hosts {
    /// The first owner's folder; it also has the members.
    one: Array,
    other: Array,
    members: Vec<Option<Background>>,
    uris: Vec<PathBuf>,
    store: String,
    etcd: Etcd,
}

impl Hosts {
    fn new() -> Self {
        Self::with("5", 4)
    }

    fn with(level: &str, count: usize) -> Self {
        let blank = vec![0; usize::try_from(MEMBER_BYTES).expect("small")];
        let (one, other) = (Array::of_images(&vec![blank; count]), Array::of_images(&[]));
        let etcd = Etcd::start(&one.path(""));
        let uri = |at| {
            let (file, socket) = (format!("m{at}"), one.path(&format!("s{at}")));
            PathBuf::from(format!("nbd+unix:///{file}?socket={}", socket.display()))
        };
        let (uris, store) = ((0..count).map(uri).collect(), etcd.uri());
        let mut hosts = Self { one, other, members: Vec::new(), uris, store, etcd };
        for at in 0..count {
            hosts.members.push(None);
            hosts.start_member(at);
        }
        let words = ["create", "tank", "--level", level, "--zero"];
        let ran = hosts.one.braid(&words, &hosts.uris);
        assert!(ran.status.success(), "{ran:?}");
        hosts
    }

    fn start_member(&mut self, at: usize) {
        let socket = self.one.path(&format!("s{at}"));
        let listen = format!("nbd+unix:///?socket={}", socket.display());
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_braid"));
        command.args(self.one.command_line(&["member", "--listen", &listen], &[]));
        command.arg(&self.one.members[at]).env("BRAID_RUNTIME_DIR", self.one.runtime());
        self.members[at] = Some(Background::spawn_command(command, ""));
        let answers = || std::os::unix::net::UnixStream::connect(&socket).is_ok();
        wait_until("a member to be served", PATIENCE, answers);
    }

    fn kill_member(&mut self, at: usize) {
        drop(self.members[at].take().expect("it runs"));
    }

    fn own(&self, host: &Array) -> ServerProcess {
        let options = ["--store", &self.store, "--away-after-ms", "2000"];
        let served = host.serve_with(&options, &self.uris);
        assert_eq!(status(host, "tank")["state"], "ok", "every member answered its claim");
        served
    }

    /// Waits until the owner is gone, then becomes the owner. The store's record names the members.
    fn stand_by(&self, host: &Array) -> ServerProcess {
        let options = ["--store", &self.store, "--standby", "--away-after-ms", "2000"];
        host.serve_with(&options, &[])
    }

    /// Stands by at a host while `end` ends the owner; returns the new owner, and how long the
    /// array had no owner.
    fn taken_over(&self, host: &Array, end: impl FnOnce()) -> (ServerProcess, Duration) {
        scope(|scope| {
            let heir = scope.spawn(|| (self.stand_by(host), Instant::now()));
            std::thread::sleep(Duration::from_millis(700));
            assert!(!heir.is_finished(), "it stands by while the owner lives");
            let began = Instant::now();
            end();
            let (heir, serves_since) = heir.join().expect("it takes over");
            (heir, serves_since.saturating_duration_since(began))
        })
    }
}

fn words_of(store: &str) -> [&str; 3] {
    ["serve", "--store", store]
}

fn written(served: &ServerProcess, seed: u64) -> Vec<u8> {
    let bytes = random_bytes(seed, 4 << 20);
    let mut client = Client::connect(&served.socket, PATIENCE);
    client.write(0, &bytes);
    client.flush();
    bytes
}

fn assert_reads(served: &ServerProcess, wanted: &[u8], when: &str) {
    let mut client = Client::connect(&served.socket, PATIENCE);
    let read = client.try_read(0, wanted.len());
    assert_same(&read.expect("it reads"), wanted, when);
}

fn assert_agrees(host: &Array) {
    assert_eq!(done(host, &["check", "tank"])["check"]["differing_sectors"], 0);
}

fn state_of(host: &Array, slot: usize) -> Value {
    status(host, "tank")["slots"][slot]["state"].take()
}

#[test]
fn an_owner_that_ends_or_dies_is_followed_by_the_one_that_stands_by() {
    needs!("etcd");
    let hosts = Hosts::new();
    let first = hosts.own(&hosts.one);
    let content = written(&first, 61);
    // Another host is refused while the owner lives.
    hosts.other.refused(&words_of(&hosts.store), &hosts.uris).is("B127", 12);
    // A client that is not the owner can read a member, and cannot write it.
    let mut plain = Client::connect(&hosts.one.path("s0"), PATIENCE);
    assert_ne!(plain.try_write(1 << 20, &[7; 512]), 0, "a member with an owner was written");
    plain.try_read(0, 512).expect("it is read");
    // The owner hands the array over to this host, by the host's name.
    let here = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let hand_over = |from: &Array, to: &str| {
        assert_eq!(done(from, &["hand-over", "tank", to, "-n"])["dry_run"], true);
        assert_eq!(done(from, &["hand-over", "tank", to])["in_order"], true);
    };
    let (zeroth, pause) = hosts.taken_over(&hosts.other, || hand_over(&hosts.one, &here));
    println!("handed over in {pause:?}");
    assert!(pause < Duration::from_millis(1500), "an heir that is named does not wait");
    drop(first);
    // The host that the hand-over names does not stand by, so another host takes the array.
    let (first, pause) = hosts.taken_over(&hosts.one, || hand_over(&hosts.other, "elsewhere"));
    assert!(pause > Duration::from_secs(2), "the host that was named comes first: {pause:?}");
    drop(zeroth);
    let (second, pause) = hosts.taken_over(&hosts.other, || drop(first.stop()));
    println!("stopped, and followed in {pause:?}");
    assert_reads(&second, &content, "after a hand-over");
    let content = written(&second, 62);
    // The owner crashes.
    let (third, pause) = hosts.taken_over(&hosts.one, || second.kill());
    println!("taken over after a crash in {pause:?}");
    assert_reads(&third, &content, "after a crash");
    assert_agrees(&hosts.one);
    third.stop();
}

#[test]
fn an_owner_that_sleeps_through_a_take_over_ends_and_loses_nothing() {
    needs!("etcd");
    let hosts = Hosts::new();
    let mut first = hosts.own(&hosts.one);
    written(&first, 63);
    let mut late = Client::connect(&first.socket, PATIENCE);
    let (second, pause) = hosts.taken_over(&hosts.other, || first.signal(Signal::STOP));
    println!("taken over from a sleeper in {pause:?}");
    let content = written(&second, 64);
    // Two requests wait for the sleeping owner when it wakes: a read of bytes that are old by now,
    // and a write over the new bytes.
    late.ask_read(1, 0, 4096);
    late.ask_write(2, 0, &[7; 4096]);
    first.signal(Signal::CONT);
    assert!(late.is_hung_up_on(), "a sleeper answered");
    assert_eq!(first.wait().code(), Some(12), "a refused owner ends");
    assert_reads(&second, &content, "after the sleeper woke");
    assert_agrees(&hosts.other);
    second.stop();
}

#[test]
fn a_member_left_out_of_a_take_over_is_recovered_when_it_answers() {
    needs!("etcd");
    let mut hosts = Hosts::new();
    let first = hosts.own(&hosts.one);
    written(&first, 65);
    // A silent member server costs a new owner as much time as a host without power.
    hosts.members[3].as_ref().expect("it runs").signal(Signal::STOP);
    let (second, pause) = hosts.taken_over(&hosts.other, || first.kill());
    println!("taken over beside a silent member in {pause:?}");
    // Waiting once for the silent server alone takes five seconds.
    assert!(pause < Duration::from_secs(12), "{pause:?}");
    written(&second, 66);
    assert_ne!(state_of(&hosts.other, 3), "ok");
    let said = status(&hosts.other, "tank");
    let uri = &text(&hosts.uris[3]);
    assert_eq!(
        (&said["left_out"][0]["member"], &said["left_out"][0]["answers"]),
        (&(*uri).into(), &false.into())
    );
    let advice = &said["advice"][0];
    assert!(advice["problem"].as_str().is_some_and(|problem| problem.contains(*uri)), "{advice}");
    assert!(
        advice["now"].as_str().is_some_and(|now| now.contains("by itself when its server answers")),
        "{advice}"
    );
    hosts.members[3].as_ref().expect("it runs").signal(Signal::CONT);
    wait_until("the member to return", PATIENCE, || state_of(&hosts.other, 3) == "ok");
    wait_for_rebuild(&hosts.other);
    wait_until("the list to be empty", PATIENCE, || {
        status(&hosts.other, "tank")["left_out"].as_array().is_some_and(Vec::is_empty)
    });
    // A member goes away and returns under the same owner.
    hosts.kill_member(1);
    let content = written(&second, 67);
    assert_eq!(state_of(&hosts.other, 1), "away");
    hosts.start_member(1);
    wait_until("the member to return", PATIENCE, || state_of(&hosts.other, 1) == "ok");
    assert_agrees(&hosts.other);
    assert_reads(&second, &content, "after the members returned");
    // The store's record names the member that was left out and then added anew.
    let (third, _) = hosts.taken_over(&hosts.one, || drop(second.stop()));
    assert_reads(&third, &content, "after one more take-over");
    third.stop();
}

/// Ends a member's server at the `number`th such system call from now on; `None` if this user may
/// not trace it.
fn end_at(server: &Background, call: &str, number: u32) -> Option<Background> {
    let (process, trace) = (server.id().to_string(), format!("trace={call}"));
    let inject = format!("inject={call}:signal=SIGKILL:when={number}");
    let words = ["-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject, "-p", &process];
    let mut strace = Background::spawn("strace", words);
    let is_traced = || {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
        let of = |task: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(task.expect("a task").path().join("status"))
        };
        tasks.map(of).all(|text| !text.expect("a status").contains("TracerPid:\t0"))
    };
    wait_until("strace to attach", PATIENCE, || is_traced() || strace.has_ended());
    (!strace.has_ended()).then_some(strace)
}

/// The server writes a new epoch into a file, renames it, makes the name durable, and then answers.
#[test]
fn a_member_server_killed_between_its_epoch_and_its_answer_comes_back() {
    needs!("etcd", "strace");
    let mut hosts = Hosts::new();
    let mut owner = Some(hosts.own(&hosts.one));
    for (turn, (call, number, is_new)) in
        [("rename", 1, false), ("fsync", 2, true)].into_iter().enumerate()
    {
        let content = written(owner.as_ref().expect("an owner"), 80 + turn as u64);
        let mark = || {
            let folder = std::fs::read_dir(hosts.one.path("state").join("members"));
            let paths = folder.expect("a folder").map(|file| file.expect("a file").path());
            let is_fourth = |path: &PathBuf| {
                let name = path.file_name().expect("a name").to_string_lossy();
                name.starts_with("m3-") && name.ends_with(".epoch")
            };
            let path = paths.into_iter().find(is_fourth).expect("it has an epoch");
            std::fs::read_to_string(path).expect("an epoch")
        };
        let before = mark();
        let server = hosts.members[3].as_ref().expect("it runs");
        let Some(strace) = end_at(server, call, number) else {
            return skip(Need::Other, "only root can trace another process here");
        };
        let host = if turn == 0 { &hosts.other } else { &hosts.one };
        let old = owner.take().expect("an owner");
        let (heir, _) = hosts.taken_over(host, || old.kill());
        strace.wait();
        assert_eq!(mark() != before, is_new, "it ended at another point: {call}");
        assert_reads(&heir, &content, call);
        let content = written(&heir, 90 + turn as u64);
        assert_ne!(state_of(host, 3), "ok", "it did not answer");
        hosts.kill_member(3);
        hosts.start_member(3);
        let host = if turn == 0 { &hosts.other } else { &hosts.one };
        wait_until("the member to return", PATIENCE, || state_of(host, 3) == "ok");
        wait_for_rebuild(host);
        assert_agrees(host);
        assert_reads(&heir, &content, "with all members");
        owner = Some(heir);
    }
    drop(owner.expect("an owner").stop());
}

/// md starts such a half, and loses all that the other one has more.
#[test]
fn the_stale_half_of_a_mirror_is_not_served_alone() {
    needs!("etcd");
    let mut hosts = Hosts::with("1", 2);
    let owner = hosts.own(&hosts.one);
    written(&owner, 68);
    hosts.kill_member(1);
    let content = written(&owner, 69);
    wait_until("the member to be given up", PATIENCE, || state_of(&hosts.one, 1) != "ok");
    let content_is = |heir: &ServerProcess, when: &str| assert_reads(heir, &content, when);
    owner.kill();
    hosts.kill_member(0);
    hosts.start_member(1);
    let ran = hosts.other.braid(&words_of(&hosts.store), &hosts.uris[1..]);
    assert!(!ran.status.success() && ran.stdout.contains("B124"), "{ran:?}");
    hosts.start_member(0);
    let heir = hosts.stand_by(&hosts.other);
    content_is(&heir, "with the half that has it");
    wait_until("the other half", PATIENCE, || state_of(&hosts.other, 1) == "ok");
    wait_for_rebuild(&hosts.other);
    assert_agrees(&hosts.other);
    content_is(&heir, "with both");
    heir.stop();
}

#[test]
fn without_its_store_an_array_goes_on_until_a_member_must_be_given_up() {
    needs!("etcd");
    let mut hosts = Hosts::new();
    let first = hosts.own(&hosts.one);
    hosts.etcd.server.signal(Signal::STOP);
    // After this time superblocks turn clean, and the owner waits for the store.
    std::thread::sleep(Duration::from_millis(1500));
    let content = written(&first, 68);
    assert_reads(&first, &content, "without the store");
    hosts.kill_member(2);
    let store = &hosts.etcd.server;
    scope(|scope| {
        let writer = scope.spawn(|| written(&first, 69));
        std::thread::sleep(Duration::from_secs(3));
        assert!(!writer.is_finished(), "a write was answered without a member that counts");
        store.signal(Signal::CONT);
        let content = writer.join().expect("it is answered");
        assert_reads(&first, &content, "with the store");
    });
    assert_eq!(state_of(&hosts.one, 2), "away");
    first.stop();
}

#[test]
fn a_write_that_waits_too_long_for_the_store_ends_its_server() {
    needs!("etcd");
    let mut hosts = Hosts::new();
    let options = ["--store", &hosts.store, "--away-after-ms", "2000", "--store-patience", "2"];
    let mut first = hosts.one.serve_with(&options, &hosts.uris);
    let content = written(&first, 70);
    hosts.etcd.server.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(1500));
    hosts.kill_member(2);
    let mut late = Client::connect(&first.socket, PATIENCE);
    late.ask_write(1, 0, &content[..4096]);
    assert!(late.is_hung_up_on(), "the write waits for the store");
    assert_eq!(first.wait().code(), Some(1));
    hosts.etcd.server.signal(Signal::CONT);
    let second = hosts.stand_by(&hosts.other);
    assert_reads(&second, &content, "after the store has come back");
    second.stop();
}

/// Another host may take the array over at any moment, so nothing may be on the owner's host alone.
#[test]
fn what_no_heir_could_have_is_refused_while_a_store_names_the_owner() {
    needs!("etcd");
    let hosts = Hosts::new();
    let early = [&words_of(&hosts.store)[..], &["--cache", "writeback"]].concat();
    hosts.other.refused(&early, &hosts.uris).is("B126", 1);
    let owner = hosts.own(&hosts.one);
    let settings = &done(&hosts.one, &["get", "tank"])["settings"];
    assert_eq!(settings["cache"], "writethrough", "the next host would not have it");
    let file = format!("bitmap-file={}", hosts.one.path("file").display());
    for setting in ["cache=writeback", "consistency=resync", "consistency=ppl", &file] {
        refused(&hosts.one, &["set", "tank", setting], "B126", 1);
    }
    let local = hosts.one.path("local");
    std::fs::write(&local, vec![0; usize::try_from(MEMBER_BYTES).expect("small")]).expect("a file");
    for verb in [&["spare", "tank"][..], &["add", "tank", "--write-journal"], &["grow", "tank"]] {
        refused(&hosts.one, &[verb, &[text(&local)]].concat(), "B126", 1);
    }
    let content = written(&owner, 71);
    assert_reads(&owner, &content, "after the refusals");
    refused(&hosts.one, &["hand-over", "tank", &"h".repeat(300)], "B126", 1);
    owner.stop();
    // This array has no store that names its owner.
    let plain = Array::create(RAID_5);
    let served = plain.serve();
    refused(&plain, &["hand-over", "tank"], "B126", 1);
    served.stop();
}

#[test]
fn stores_and_members_that_cannot_do_it_are_refused_by_name() {
    needs!("etcd");
    let hosts = Hosts::new();
    let serve = |store: &str, members: &[PathBuf]| hosts.other.refused(&words_of(store), members);
    // A member file cannot refuse an older owner, and neither can another program's NBD server.
    serve(&hosts.store, &hosts.one.members).is("B126", 1);
    serve("etcd://127.0.0.1:1/tank", &hosts.uris).is("B126", 1);
    for bad in ["tank", "etcd://u:p@127.0.0.1:1/tank", "etcd://192.0.2.1:2379/tank"] {
        let ran = hosts.other.braid(&["serve", "--store", bad], &hosts.uris);
        assert_eq!(ran.status.code(), Some(2), "{ran:?}");
    }
    // Too few members are named.
    hosts.other.refused(&words_of(&hosts.store), &hosts.uris[..2]).is("B124", 1);
    // Without a bitmap the half-done writes of a lost owner would not be known.
    let none = Array::of_images(&vec![vec![0; usize::try_from(MEMBER_BYTES).expect("small")]; 2]);
    let socket = none.path("s");
    let listen = format!("nbd+unix:///?socket={}", socket.display());
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_braid"));
    command.args(none.command_line(&["member", "--listen", &listen], &none.members));
    let _member = Background::spawn_command(command, "");
    wait_until("a member to be served", PATIENCE, || {
        std::os::unix::net::UnixStream::connect(&socket).is_ok()
    });
    let uris: Vec<PathBuf> =
        (0..2).map(|at| format!("nbd+unix:///m{at}?socket={}", socket.display()).into()).collect();
    let words = ["create", "bare", "--level", "1", "--consistency", "resync", "--zero"];
    let ran = none.braid(&words, &uris);
    assert!(ran.status.success(), "{ran:?}");
    let other = hosts.store.replace("tank", "bare");
    none.refused(&words_of(&other), &uris).is("B126", 1);
    // The members named are of two arrays.
    let mixed = [&hosts.uris[..2], &uris[..1]].concat();
    none.refused(&words_of(&other), &mixed).is("B126", 1);
    // The store has one array's record, and the members are another array's: none is claimed.
    hosts.own(&hosts.one).stop();
    none.refused(&words_of(&hosts.store), &uris).is("B126", 1);
    let epochs = none.path("state").join("members");
    assert!(!epochs.exists(), "another array's member was claimed");
}

#[test]
fn a_member_server_names_what_it_cannot_serve() {
    let array = Array::of_images(&vec![vec![0; usize::try_from(MEMBER_BYTES).expect("small")]; 1]);
    let listen = format!("nbd+unix:///?socket={}", array.path("s").display());
    let words = ["member", "--listen", &listen];
    let same = [array.members[0].clone(), array.members[0].clone()];
    array.refused(&words, &same).is("B001", 2);
    array.refused(&words, &["nbd://host/disk".into()]).is("B001", 2);
    array.refused(&["member", "--listen", "nbd://0.0.0.0:0/"], &array.members).is("B072", 12);
    // A damaged epoch file is an error, and forgetting the epoch is the operator's choice.
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_braid"));
    command.args(array.command_line(&words, &array.members));
    let served = Background::spawn_command(command, "");
    wait_until("the member to be served", PATIENCE, || is_heard(&array.path("s")));
    served.terminate();
    let folder = array.path("state").join("members");
    std::fs::create_dir_all(&folder).expect("a folder");
    let whole = std::path::absolute(&array.members[0]).expect("a path");
    let sum = crc32c::crc32c(text(&whole).as_bytes());
    let file = folder.join(format!("m0-{sum:08x}.epoch"));
    std::fs::write(&file, "epoch=cheese").expect("it writes");
    let refusal = array.refused(&words, &array.members);
    refusal.is("B125", 1);
    array.follow(&refusal.json, "If no other owner can be alive, forget the epoch");
    assert!(!file.exists());
}
