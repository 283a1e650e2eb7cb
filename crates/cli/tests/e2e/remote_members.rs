//! Members behind NBD servers: other programs' servers that are killed, hang or return with another
//! disk, and a server that loses writes that were not flushed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use braid_frontend_nbd::{
    BlockSizes, ClientRequest, Completion, Endpoint, Export, Outcome, RequestError, Server,
    Settings,
};
use braid_member::{Access, Member};
use serde_json::Value;

use crate::control::status;
use crate::jobs::done;
use crate::kit::{
    Array, Background, Client, ServerProcess, assert_same, is_heard, needs, random_bytes,
    wait_until,
};
use crate::members::{MEMBER_BYTES, assert_whole, filled, text, wait_for_rebuild};
use crate::remedies::refusal;
use crate::tls::Certificates;

const PATIENCE: Duration = Duration::from_secs(30);
const SILENT: [&str; 2] = ["--away-after-ms", "1000"];

fn uri_of(socket: &Path) -> PathBuf {
    format!("nbd+unix:///?socket={}", socket.display()).into()
}

/// Blank files, and a server of nbdkit for each.
struct Kits {
    array: Array,
    servers: Vec<Option<Background>>,
    uris: Vec<PathBuf>,
}

impl Kits {
    fn new(count: usize) -> Self {
        let blank = vec![0; usize::try_from(MEMBER_BYTES).expect("small")];
        let array = Array::of_images(&vec![blank; count]);
        let uris = (0..count).map(|at| uri_of(&array.path(&format!("s{at}")))).collect();
        let mut kits = Self { array, servers: Vec::new(), uris };
        for at in 0..count {
            kits.servers.push(None);
            kits.start(at, at);
        }
        kits
    }

    /// Blank files with servers; the first four exports are an array that is served and full.
    fn served(count: usize, options: &[&str], seed: u64) -> (Self, ServerProcess, Vec<u8>) {
        let kits = Self::new(count);
        create(&kits.array, &kits.uris[..4]);
        let served = kits.array.serve_with(options, &kits.uris[..4]);
        let content = filled(&kits.array, &served, seed);
        (kits, served, content)
    }

    /// Serves a file at socket `at`.
    fn start(&mut self, at: usize, file: usize) {
        self.start_with(at, file, &[]);
    }

    /// Like `start`, with filter options before nbdkit's plugin and options after the file.
    fn start_with(&mut self, at: usize, file: usize, delay: &[&str]) {
        let socket = self.array.path(&format!("s{at}"));
        let _gone = std::fs::remove_file(&socket);
        let (before, after) = delay.split_at(delay.len().min(1));
        let file = text(&self.array.members[file]).to_owned();
        let words = [&["-f", "-U", text(&socket)], before, &["file", &file], after].concat();
        self.servers[at] = Some(Background::spawn("nbdkit", words));
        wait_until("nbdkit to listen", PATIENCE, || is_heard(&socket));
    }

    /// Kills the nbdkit server `at`.
    fn stop(&mut self, at: usize) {
        drop(self.servers[at].take().expect("it runs"));
    }
}

fn create(array: &Array, uris: &[PathBuf]) {
    let words = ["create", "tank", "--level", "5", "--chunk", "64K"];
    let ran = array.braid(&words, uris);
    assert!(ran.status.success(), "{ran:?}");
}

/// Writes the first mebibyte again, so that the array needs all of its members.
fn write_first(served: &ServerProcess, content: &[u8]) {
    let mut client = Client::connect(&served.socket, PATIENCE);
    client.write(0, &content[..1 << 20]);
    client.flush();
}

fn wait_for_state(array: &Array, slot: usize, state: &str) {
    wait_until(state, PATIENCE, || state_of(array, slot) == state);
}

fn state_of(array: &Array, slot: usize) -> Value {
    status(array, "tank")["slots"][slot]["state"].take()
}

fn link_of(array: &Array, slot: usize) -> Value {
    status(array, "tank")["slots"][slot]["link"].take()
}

#[test]
fn an_array_of_exports_is_made_served_grown_and_read_back() {
    needs!("nbdkit", "nbdcopy");
    let (kits, served, content) = Kits::served(6, &SILENT, 1);
    let (array, uris) = (&kits.array, &kits.uris);
    assert_eq!(link_of(array, 0)["is_up"], true);
    // A replacement, a spare and a growth use exports over the network.
    done(array, &["replace", "tank", "0", "--with", text(&uris[4])]);
    wait_for_rebuild(array);
    done(array, &["remove", "tank", text(&uris[0])]);
    done(array, &["grow", "tank", text(&uris[5])]);
    done(array, &["wait", "tank", "--for", "idle", "--timeout", "120"]);
    assert_eq!(done(array, &["check", "tank"])["check"]["differing_sectors"], 0);
    served.stop();
    let now: Vec<PathBuf> = [1, 2, 3, 4, 5].map(|at: usize| uris[at].clone()).into();
    let examined = array.braid(&["examine"], &now);
    assert!(examined.status.success(), "{examined:?}");
    let found = array.braid(&["rescue"], &now);
    assert!(found.stdout.contains("\"readable\":true"), "{found:?}");
    let again = array.serve_with(&[], &now);
    assert_same(&again.read_all(array)[..content.len()], &content, "after a restart");
    again.stop();
    // The same members are served as local files: only the transport to them was different.
    let files: Vec<PathBuf> = [1, 2, 3, 4, 5].map(|at: usize| array.members[at].clone()).into();
    drop(kits.servers);
    let local = kits.array.serve_with(&[], &files);
    assert_same(&local.read_all(&kits.array)[..content.len()], &content, "as files");
    local.stop();
}

#[test]
fn a_server_that_comes_back_soon_costs_a_pause() {
    needs!("nbdkit", "nbdcopy");
    let (mut kits, served, mut content) = Kits::served(4, &["--away-after-ms", "never"], 2);
    let mut random = fastrand::Rng::with_seed(2);
    for round in 0..4 {
        let at = round % 4;
        kits.stop(at);
        let (offset, bytes) = (random.usize(0..80) << 18, random_bytes(random.u64(..), 200_000));
        let socket = served.socket.clone();
        let sent = bytes.clone();
        let writer = std::thread::spawn(move || {
            let mut client = Client::connect(&socket, PATIENCE);
            client.write(offset as u64, &sent);
            client.flush();
        });
        std::thread::sleep(Duration::from_millis(300));
        kits.start(at, at);
        writer.join().expect("the write is answered");
        content[offset..offset + bytes.len()].copy_from_slice(&bytes);
        // The member may count as slow for a moment.
        let is_in = |state: &Value| state == "ok" || state == "slow";
        assert!(is_in(&state_of(&kits.array, at)), "round {round}");
    }
    let again = link_of(&kits.array, 0)["reconnects"].as_u64();
    assert!(again.is_some_and(|count| count > 0), "{again:?}");
    assert_whole(&kits.array, served, &kits.uris, &content);
}

#[test]
fn a_silent_server_is_away_and_comes_back_by_itself() {
    needs!("nbdkit", "nbdcopy");
    let (mut kits, served, mut content) = Kits::served(4, &SILENT, 3);
    kits.stop(2);
    let bytes = random_bytes(30, 1 << 20);
    let mut client = Client::connect(&served.socket, PATIENCE);
    for at in 0..4 {
        client.write(at << 20, &bytes);
    }
    client.flush();
    (0..4).for_each(|at| content[at << 20..(at + 1) << 20].copy_from_slice(&bytes));
    wait_for_state(&kits.array, 2, "away");
    assert_eq!(link_of(&kits.array, 2)["is_up"], false);
    kits.start(2, 2);
    wait_for_state(&kits.array, 2, "ok");
    assert_whole(&kits.array, served, &kits.uris, &content);
}

#[test]
fn an_array_stops_while_a_server_is_away() {
    needs!("nbdkit", "nbdcopy");
    let (mut kits, served, content) = Kits::served(4, &SILENT, 4);
    kits.stop(1);
    write_first(&served, &content);
    wait_for_state(&kits.array, 1, "away");
    let begun = Instant::now();
    served.stop();
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    let others: Vec<PathBuf> = [0, 2, 3].map(|at: usize| kits.uris[at].clone()).into();
    let again = kits.array.serve_with(&[], &others);
    assert_same(&again.read_all(&kits.array), &content, "without the member");
    again.stop();
}

/// Regression: a server that returned, accepted the connection and was silent delayed the end.
#[test]
fn a_member_that_is_given_up_ends_its_calls() {
    needs!("nbdkit");
    for is_back in [false, true] {
        let mut kits = Kits::new(1);
        let member = braid_member::open(&kits.uris[0], Access::ReadWrite).expect("it opens");
        let member: Arc<dyn Member> = Arc::from(member);
        member.expect_after_loss(0, &[0; 16]);
        kits.stop(0);
        let reader = Arc::clone(&member);
        let read = std::thread::spawn(move || reader.read_at(&mut [0; 512], 0));
        if is_back {
            kits.start_with(0, 0, &["--filter=delay", "rdelay=20"]);
        }
        std::thread::sleep(Duration::from_secs(3));
        assert!(!read.is_finished(), "it waits for the server");
        member.give_up();
        wait_until("the read to end", Duration::from_secs(8), || read.is_finished());
        assert!(read.join().expect("no panic").is_err());
    }
}

/// A server may return with another disk under the same name; nothing is written to this disk.
#[test]
fn another_disk_under_the_same_uri_is_not_written() {
    needs!("nbdkit", "nbdcopy");
    let (mut kits, served, content) = Kits::served(5, &SILENT, 5);
    kits.stop(3);
    kits.stop(4);
    let other = random_bytes(50, usize::try_from(MEMBER_BYTES).expect("small"));
    std::fs::write(&kits.array.members[4], &other).expect("a file");
    kits.start(3, 4);
    write_first(&served, &content);
    wait_for_state(&kits.array, 3, "failed");
    assert_same(&served.read_all(&kits.array), &content, "without the member");
    served.stop();
    assert!(std::fs::read(&kits.array.members[4]).expect("a file") == other, "it was written");
}

#[test]
fn exports_that_cannot_be_members_are_refused_by_name() {
    needs!("nbdkit", "nbdcopy");
    let (mut kits, served, _) = Kits::served(4, &SILENT, 8);
    let (array, uris) = (&kits.array, &kits.uris.clone());
    // Two servers of one host never write one export.
    let error = refusal(array, &["serve"], &uris[..4]);
    assert_eq!(error["code"], "B061", "{error}");
    served.stop();
    let twice = [uris[0].clone(), uris[0].clone(), uris[1].clone(), uris[2].clone()];
    let error = refusal(array, &["create", "other", "--level", "5"], &twice);
    assert!(error["title"].as_str().is_some_and(|title| title.contains("named twice")), "{error}");
    kits.stop(1);
    let error = refusal(&kits.array, &["serve"], uris);
    assert_eq!(error["code"], "B124", "{error}");
    let three: Vec<PathBuf> = [0, 2, 3].map(|at: usize| uris[at].clone()).into();
    let degraded = kits.array.serve_with(&[], &three);
    degraded.stop();
    for (uri, words) in [
        ("nbd://127.0.0.1:1/x", "cannot be reached"),
        ("nbd://h:99999/", "names no member"),
        ("nbd+unix:///x", "names no member"),
        ("nbds://127.0.0.1:1/", "certificates"),
        ("nbds://127.0.0.1:1/?tls-certificates=/nowhere", "certificates"),
        ("nbd://127.0.0.1:1/?tls-certificates=/nowhere", "names no member"),
    ] {
        let error = refusal(&kits.array, &["examine"], &[uri.into()]);
        assert!(error.to_string().contains(words), "{uri}: {error}");
    }
    let of_client = ["serve", "--nbd", "nbds://127.0.0.1:0/?tls-certificates=/nowhere"];
    let error = refusal(&kits.array, &of_client, &three);
    assert!(error.to_string().contains("named by --tls"), "{error}");
    let error = refusal(&kits.array, &["serve", "--confine", "full"], &three);
    assert!(error.to_string().contains("on another host"), "{error}");
}

#[test]
fn a_member_is_reached_by_tls_with_certificates_both_ways() {
    needs!("nbdkit", "nbdcopy");
    let certificates = Certificates::new();
    let (own, client) = (certificates.of("server", "own"), certificates.of("client", "client"));
    let stranger = Certificates::new().of("client", "stranger");
    let kits = Kits::new(4);
    let socket = kits.array.path("tls");
    let words = [
        "-f".to_owned(),
        "-U".to_owned(),
        text(&socket).to_owned(),
        "--tls=require".to_owned(),
        "--tls-verify-peer".to_owned(),
        format!("--tls-certificates={}", own.display()),
        "file".to_owned(),
        text(&kits.array.members[0]).to_owned(),
    ];
    let _server = Background::spawn("nbdkit", &words);
    wait_until("nbdkit to listen", PATIENCE, || is_heard(&socket));
    let by = |folder: &Path| -> PathBuf {
        format!("nbds+unix:///?socket={}&tls-certificates={}", socket.display(), folder.display())
            .into()
    };
    let uris = [by(&client), kits.uris[1].clone(), kits.uris[2].clone(), kits.uris[3].clone()];
    create(&kits.array, &uris);
    let served = kits.array.serve_with(&[], &uris);
    let content = filled(&kits.array, &served, 6);
    assert_whole(&kits.array, served, &uris, &content);
    let error = refusal(&kits.array, &["examine"], &[by(&stranger)]);
    assert_eq!(error["code"], "B124", "{error}");
    let error = refusal(&kits.array, &["examine"], &[uri_of(&socket)]);
    assert_eq!(error["code"], "B124", "without TLS: {error}");
}

/// A disk in a server's memory, with a volatile cache.
struct Lossy {
    now: Mutex<Vec<u8>>,
    durable: Mutex<Vec<u8>>,
}

impl Lossy {
    fn new() -> Arc<Self> {
        let blank = || Mutex::new(vec![0; usize::try_from(MEMBER_BYTES).expect("small")]);
        Arc::new(Self { now: blank(), durable: blank() })
    }

    /// The host's power fails: what was not flushed is lost.
    fn lose(&self) {
        let durable = self.durable.lock().expect("unpoisoned").clone();
        *self.now.lock().expect("unpoisoned") = durable;
    }

    fn put(&self, offset: u64, durable: bool, fill: impl Fn(&mut [u8]), length: usize) {
        let start = usize::try_from(offset).expect("small");
        fill(&mut self.now.lock().expect("unpoisoned")[start..start + length]);
        if durable {
            fill(&mut self.durable.lock().expect("unpoisoned")[start..start + length]);
        }
    }
}

/// The export of a [`Lossy`] disk.
struct LossyExport(Arc<Lossy>);

impl Export for LossyExport {
    fn name(&self) -> &str {
        "disk"
    }

    fn size_bytes(&self) -> u64 {
        MEMBER_BYTES
    }

    fn read_only(&self) -> bool {
        false
    }

    fn block_sizes(&self) -> BlockSizes {
        BlockSizes::BYTE_GRANULAR
    }

    fn submit(&self, request: ClientRequest, completion: Completion) {
        let small = |length: u64| usize::try_from(length).expect("small");
        let done = |payload| Outcome { result: Ok::<(), RequestError>(()), payload };
        completion.complete(match request {
            ClientRequest::Read { offset, mut payload } => {
                let (start, length) = (small(offset), payload.len());
                let now = self.0.now.lock().expect("unpoisoned");
                payload.copy_from_slice(&now[start..start + length]);
                done(Some(payload))
            }
            ClientRequest::Write { offset, payload, durable } => {
                let fill = |place: &mut [u8]| place.copy_from_slice(&payload);
                self.0.put(offset, durable, fill, payload.len());
                done(Some(payload))
            }
            ClientRequest::Trim { offset, length, durable }
            | ClientRequest::WriteZeroes { offset, length, durable, .. } => {
                self.0.put(offset, durable, |place| place.fill(0), small(length));
                done(None)
            }
            ClientRequest::Flush => {
                let now = self.0.now.lock().expect("unpoisoned").clone();
                *self.0.durable.lock().expect("unpoisoned") = now;
                done(None)
            }
        });
    }
}

fn started(disk: &Arc<Lossy>, socket: &Path) -> Server {
    let _gone = std::fs::remove_file(socket);
    let export: Arc<dyn Export> = Arc::new(LossyExport(Arc::clone(disk)));
    let endpoint = Endpoint::Unix(socket.to_path_buf());
    Server::start(vec![export], &[endpoint], Settings::default()).expect("it starts")
}

/// A host that loses power forgets writes that it acknowledged. The array must not: by the time of
/// its own flush, it has sent these writes again.
#[test]
fn writes_that_a_server_lost_with_its_host_are_sent_again() {
    needs!("nbdcopy");
    let array = Array::of_images(&[]);
    let disks: Vec<Arc<Lossy>> = (0..4).map(|_| Lossy::new()).collect();
    let sockets: Vec<PathBuf> = (0..4).map(|at| array.path(&format!("s{at}"))).collect();
    let start = |at: usize| started(&disks[at], &sockets[at]);
    let mut servers: Vec<Option<Server>> = (0..4).map(|at| Some(start(at))).collect();
    let uris: Vec<PathBuf> = sockets.iter().map(|socket| uri_of(socket)).collect();
    create(&array, &uris);
    let patient = ["--away-after-ms", "never", "--cache", "writethrough"];
    let mut served = array.serve_with(&patient, &uris);
    let mut content = filled(&array, &served, 7);
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..3 {
        let mut client = Client::connect(&served.socket, PATIENCE);
        for _ in 0..12 {
            let offset = random.usize(0..80) << 18;
            let bytes = random_bytes(random.u64(..), 1 + random.usize(0..150_000));
            client.write(offset as u64, &bytes);
            content[offset..offset + bytes.len()].copy_from_slice(&bytes);
            if random.u8(0..3) == 0 {
                // One host after the other loses power, and returns.
                let at = random.usize(0..4);
                servers[at] = None;
                disks[at].lose();
                servers[at] = Some(start(at));
            }
        }
        client.flush();
        // All member hosts lose power at once, and so does the array's own host.
        served.kill();
        servers.iter_mut().for_each(|server| *server = None);
        disks.iter().for_each(|disk| disk.lose());
        servers = (0..4).map(|at| Some(start(at))).collect();
        served = array.serve_with(&patient, &uris);
        assert_same(&served.read_all(&array), &content, &format!("round {round}"));
    }
    assert_whole(&array, served, &uris, &content);
}
