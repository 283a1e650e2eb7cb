//! Tests TLS: which clients are admitted and which refused; everything else works as without TLS.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Client, eventually, is_over_the_ring, workers};
use braid_frontend_nbd::memory::MemoryExport;
use braid_frontend_nbd::tls::{CertificateError, Clients, Tls};
use braid_frontend_nbd::{Endpoint, Export, Listener, Server, Settings, StopReport, limits};
use braid_nbd_proto::{Command, wire};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// Length of a reply that exceeds any socket buffer.
const LONG: usize = 6 << 20;

/// A certificate authority that writes files into folders, with the names that QEMU and nbdkit use.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A folder with a certificate and key for `role`, and this authority's certificate.
    fn folder(&self, role: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        write(&folder.path().join("ca-cert.pem"), &self.pem);
        write(&folder.path().join(format!("{role}-cert.pem")), &certificate.pem());
        write(&folder.path().join(format!("{role}-key.pem")), &key.serialize_pem());
        folder
    }
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

struct TlsServer {
    server: Server,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

fn serve(tls: Tls, settings: Settings) -> (TlsServer, Arc<MemoryExport>) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("nbd.sock");
    let export = Arc::new(MemoryExport::new("tank", 8 << 20));
    let exports = vec![Arc::clone(&export) as Arc<dyn Export>];
    let listener = Listener::bind(&Endpoint::Unix(socket.clone())).unwrap();
    let workers = workers().filter(|_| is_over_the_ring());
    let doors = vec![(listener, Some(tls))];
    let server = Server::start_listening(workers, exports, doors, (settings, Arc::new(|_| {})));
    (TlsServer { server: server.unwrap(), socket, _folder: folder }, export)
}

fn config(folder: &Path, shows: bool) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.join("ca-cert.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    Arc::new(match shows {
        false => builder.with_no_client_auth(),
        true => {
            let chain =
                vec![CertificateDer::from_pem_file(folder.join("client-cert.pem")).unwrap()];
            let key = PrivateKeyDer::from_pem_file(folder.join("client-key.pem")).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    })
}

/// Flags that a client sends in the handshake: fixed newstyle, and no zeroes.
const FLAGS: [u8; 4] = [0, 0, 0, 3];

fn start_tls(stream: &mut UnixStream, flags: [u8; 4]) {
    let option = wire::encode_option(wire::OPT_STARTTLS, &[]);
    stream.write_all(&[flags.to_vec(), option].concat()).unwrap();
    let mut answer = [0; wire::OPTION_REPLY_HEADER_BYTES];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[12..16], wire::REP_ACK.to_be_bytes());
}

/// A local socket for clients without TLS: blocking threads forward its connections to the server
/// over TLS.
fn stripped(served: &TlsServer, config: &Arc<ClientConfig>) -> (PathBuf, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plain.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let (server, config) = (served.socket.clone(), Arc::clone(config));
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let (server, config) = (server.clone(), Arc::clone(&config));
            thread::spawn(move || strip(client, &server, config));
        }
    });
    (path, folder)
}

fn strip(mut client: UnixStream, server: &Path, config: Arc<ClientConfig>) -> Option<()> {
    let mut outer = UnixStream::connect(server).ok()?;
    let (mut greeting, mut flags) = ([0; wire::GREETING_BYTES], [0; 4]);
    outer.read_exact(&mut greeting).ok()?;
    client.write_all(&greeting).ok()?;
    client.read_exact(&mut flags).ok()?;
    start_tls(&mut outer, flags);
    let name = ServerName::try_from("localhost").unwrap();
    let mut tls = ClientConnection::new(config, name).unwrap();
    while tls.is_handshaking() {
        if tls.complete_io(&mut outer).is_err() {
            let _ = client.shutdown(Shutdown::Both);
            return None;
        }
    }
    outer.set_nonblocking(true).ok()?;
    client.set_nonblocking(true).ok()?;
    tls.set_buffer_limit(None);
    let mut buffer = vec![0; 64 << 10];
    // The thread polls the sockets in a busy loop, which a test can afford.
    let mut waiting: Vec<u8> = Vec::new();
    loop {
        let mut has_moved = false;
        match client.read(&mut buffer) {
            Ok(0) => return Some(()),
            Ok(length) => {
                has_moved = true;
                tls.writer().write_all(&buffer[..length]).ok()?;
            }
            Err(_) => {}
        }
        while tls.wants_write() && tls.write_tls(&mut outer).is_ok() {}
        match tls.read_tls(&mut outer) {
            Ok(0) => {
                client.set_nonblocking(false).ok()?;
                client.write_all(&waiting).ok()?;
                return client.shutdown(Shutdown::Both).ok();
            }
            Ok(_) => {
                has_moved = true;
                let state = tls.process_new_packets().ok()?;
                let start = waiting.len();
                waiting.resize(start + state.plaintext_bytes_to_read(), 0);
                tls.reader().read_exact(&mut waiting[start..]).ok()?;
            }
            Err(_) => {}
        }
        if let Ok(length) = client.write(&waiting) {
            has_moved |= length > 0;
            waiting.drain(..length);
        }
        if !has_moved {
            thread::sleep(Duration::from_micros(200));
        }
    }
}

fn known(authority: &Authority) -> Tls {
    Tls::load(authority.folder("server").path(), Clients::Known).unwrap()
}

#[test]
fn a_client_that_shows_a_certificate_reads_and_writes() {
    let authority = Authority::new();
    let (served, export) = serve(known(&authority), Settings::default());
    let folder = authority.folder("client");
    let (path, _kept) = stripped(&served, &config(folder.path(), true));
    let mut client = Client::connect(&path);
    let mut bytes = vec![0; 3 << 20];
    fastrand::Rng::with_seed(7).fill(&mut bytes);
    client.write(4096, &bytes).unwrap();
    assert_eq!(client.read(4096, 3 << 20).unwrap(), bytes);
    assert_eq!(export.bytes()[4096..4096 + bytes.len()], bytes[..]);
    let mut others: Vec<Client> = (0..4).map(|_| Client::connect(&path)).collect();
    for (index, other) in others.iter_mut().enumerate() {
        assert_eq!(other.read(4096 + index as u64, 999).unwrap(), bytes[index..index + 999]);
    }
    assert_eq!(served.server.counts().connections, 5);
    drop((client, others));
    eventually("all have gone", || served.server.counts().connections == 0);
    assert_eq!(served.server.stop(Duration::from_secs(5)), StopReport { cut: 0, still_running: 0 });
}

#[test]
fn who_shows_none_or_a_strangers_is_not_let_in() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let (served, _) = serve(known(&authority), Settings::default());
    let (own, others) = (authority.folder("client"), stranger.folder("client"));
    // This client trusts the server's authority, but has a certificate of another authority.
    let ca = std::fs::read_to_string(own.path().join("ca-cert.pem")).unwrap();
    write(&others.path().join("ca-cert.pem"), &ca);
    for config in [config(own.path(), false), config(others.path(), true)] {
        let (path, _kept) = stripped(&served, &config);
        assert!(Client::try_connect(&path, "", true).is_none());
    }
    eventually("both are counted", || served.server.counts().negotiations_failed == 2);
    assert_eq!(served.server.counts().accepted, 0, "neither had a connection");
    let any = Tls::load(authority.folder("server").path(), Clients::Any).unwrap();
    assert!(!any.is_closed());
    let (served, _) = serve(any, Settings::default());
    let (path, _kept) = stripped(&served, &config(own.path(), false));
    assert!(Client::try_connect(&path, "", true).is_some(), "here they may");
}

/// The kind of the server's reply to LIST, for a client that does not ask for TLS.
fn answer_to_list(socket: &Path) -> u32 {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.read_exact(&mut [0; wire::GREETING_BYTES]).unwrap();
    let list = wire::encode_option(wire::OPT_LIST, &[]);
    stream.write_all(&[FLAGS.to_vec(), list].concat()).unwrap();
    let mut answer = [0; wire::OPTION_REPLY_HEADER_BYTES];
    stream.read_exact(&mut answer).unwrap();
    u32::from_be_bytes(answer[12..16].try_into().unwrap())
}

#[test]
fn without_tls_nobody_comes_in_unless_that_is_wanted() {
    let authority = Authority::new();
    let (served, _) = serve(known(&authority), Settings::default());
    assert_eq!(answer_to_list(&served.socket), wire::REP_ERR_TLS_REQD);
    assert!(Client::try_connect(&served.socket, "", true).is_none());
    let (served, _) = serve(known(&authority).optional(), Settings::default());
    assert_eq!(answer_to_list(&served.socket), wire::REP_SERVER);
    let mut plain = Client::connect(&served.socket);
    plain.write(0, &[7; 600_000]).unwrap();
    assert_eq!(plain.read(1, 70_000).unwrap(), [7; 70_000]);
    let folder = authority.folder("client");
    let (path, _kept) = stripped(&served, &config(folder.path(), true));
    assert_eq!(Client::connect(&path).read(3, 5).unwrap(), [7; 5]);
}

/// An attacker could have injected bytes between STARTTLS and the handshake.
#[test]
fn what_is_sent_ahead_of_tls_is_not_heard_after_it() {
    let authority = Authority::new();
    let (served, _) = serve(known(&authority), Settings::default());
    let mut stream = UnixStream::connect(&served.socket).unwrap();
    stream.read_exact(&mut [0; wire::GREETING_BYTES]).unwrap();
    let starttls = wire::encode_option(wire::OPT_STARTTLS, &[]);
    let ahead = wire::encode_option(wire::OPT_LIST, &[]);
    stream.write_all(&[FLAGS.to_vec(), starttls, ahead].concat()).unwrap();
    let mut rest = Vec::new();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let _cut = stream.read_to_end(&mut rest);
    assert!(rest.len() <= wire::OPTION_REPLY_HEADER_BYTES, "{rest:?}");
    eventually("it was cut", || served.server.counts().negotiations_failed == 1);
}

#[test]
fn who_says_nothing_holds_up_no_other_and_is_cut() {
    let authority = Authority::new();
    let settings = Settings {
        handshake_deadline: Duration::from_millis(1500),
        negotiating_max: 4,
        ..Settings::default()
    };
    let (served, _) = serve(known(&authority), settings);
    let mut silent: Vec<UnixStream> =
        (0..2).map(|_| UnixStream::connect(&served.socket).unwrap()).collect();
    for stream in &mut silent[..1] {
        stream.read_exact(&mut [0; wire::GREETING_BYTES]).unwrap();
        start_tls(stream, FLAGS);
    }
    let folder = authority.folder("client");
    let (path, _kept) = stripped(&served, &config(folder.path(), true));
    assert_eq!(Client::connect(&path).read(0, 5).unwrap(), [0; 5]);
    // Connects more clients than the limit allows, so that the oldest are cut.
    let more: Vec<UnixStream> =
        (0..4).map(|_| UnixStream::connect(&served.socket).unwrap()).collect();
    for stream in &mut silent {
        // The stream gives bytes that were not read yet, then ends.
        let _cut = stream.read_to_end(&mut Vec::new());
    }
    eventually("the others are cut", || served.server.counts().negotiations_failed == 6);
    assert_eq!(served.server.counts().refused, 0);
    drop((silent, more));
}

#[test]
fn half_handshakes_keep_no_client_out() {
    let authority = Authority::new();
    // Uses the default, longest deadline, with which the peers would stay connected.
    let settings = Settings { negotiating_max: 4, ..Settings::default() };
    let (served, _) = serve(known(&authority), settings);
    let is_over = Arc::new(AtomicBool::new(false));
    let stop_and_come_again = |_| {
        let (socket, is_over) = (served.socket.clone(), Arc::clone(&is_over));
        thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let Ok(mut stream) = UnixStream::connect(&socket) else { continue };
                let half = wire::encode_option(wire::OPT_STARTTLS, &[]);
                // The header of a TLS record, without the record.
                let half = [&FLAGS[..], &half].concat();
                let _ = stream.read_exact(&mut [0; wire::GREETING_BYTES]);
                let _ = stream.write_all(&half);
                let _ = stream.read_exact(&mut [0; wire::OPTION_REPLY_HEADER_BYTES]);
                let _ = stream.write_all(&[22, 3, 1, 2, 0]);
                let _ = stream.read(&mut [0]);
            }
        })
    };
    let peers: Vec<_> = (0..6).map(stop_and_come_again).collect();
    eventually("their places are taken", || served.server.counts().negotiations_failed > 0);
    let folder = authority.folder("client");
    let (path, _kept) = stripped(&served, &config(folder.path(), true));
    assert_eq!(Client::connect(&path).read(0, 5).unwrap(), [0; 5]);
    is_over.store(true, Ordering::Relaxed);
    drop(served);
    peers.into_iter().for_each(|peer| peer.join().unwrap());
}

#[test]
fn a_stop_lets_replies_out_and_does_not_wait_for_who_takes_none() {
    let authority = Authority::new();
    let (served, _) = serve(known(&authority), Settings::default());
    let folder = authority.folder("client");
    let (path, _kept) = stripped(&served, &config(folder.path(), true));
    let mut client = Client::connect(&path);
    client.send(Command::Read { offset: 0, length: 4 << 20, dont_fragment: false }, &[]);
    eventually("it was asked", || served.server.counts().requests == 1);
    let mut silent = UnixStream::connect(&served.socket).unwrap();
    silent.read_exact(&mut [0; wire::GREETING_BYTES]).unwrap();
    let start = Instant::now();
    let stopped = thread::spawn(move || served.server.stop(Duration::from_secs(20)));
    assert_eq!(client.wait().unwrap().1.unwrap(), vec![0; 4 << 20]);
    drop(client);
    assert_eq!(stopped.join().unwrap().still_running, 0);
    assert!(start.elapsed() < Duration::from_secs(10));
}

/// The last bytes of a closed connection reach a client that is slow to take them.
#[test]
fn a_client_that_reads_late_gets_all_that_was_said_before_the_end() {
    let authority = Authority::new();
    let (served, export) = serve(known(&authority), Settings::default());
    fastrand::Rng::with_seed(9).fill(&mut export.bytes()[..LONG]);
    let folder = authority.folder("client");
    let mut stream = UnixStream::connect(&served.socket).unwrap();
    stream.read_exact(&mut [0; wire::GREETING_BYTES]).unwrap();
    start_tls(&mut stream, FLAGS);
    let name = ServerName::try_from("localhost").unwrap();
    let tls = ClientConnection::new(config(folder.path(), true), name).unwrap();
    let mut stream = StreamOwned::new(tls, stream);
    stream.write_all(&wire::encode_option(wire::OPT_EXPORT_NAME, b"tank")).unwrap();
    stream.read_exact(&mut [0; 10]).unwrap();
    let header = |kind: u16, length: u32| {
        let mut request = wire::REQUEST_MAGIC.to_be_bytes().to_vec();
        request.extend_from_slice(&[0; 2]);
        request.extend_from_slice(&kind.to_be_bytes());
        request.extend_from_slice(&[0; 16]);
        request.extend_from_slice(&length.to_be_bytes());
        request
    };
    let requests = [header(wire::CMD_READ, LONG as u32), header(wire::CMD_DISC, 0)].concat();
    stream.write_all(&requests).unwrap();
    stream.flush().unwrap();
    let mut reply = vec![0; 16 + LONG];
    let (most, last) = reply.split_at_mut(LONG - (300 << 10));
    stream.read_exact(most).unwrap();
    // By now the connection has usually sent all bytes, waited a second for the client to close,
    // and ended.
    thread::sleep(limits::CLOSE_TIMEOUT + Duration::from_millis(500));
    stream.read_exact(last).unwrap();
    assert!(reply[16..] == export.bytes()[..LONG]);
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "and the end, as TLS says it");
}

#[test]
fn folders_that_cannot_be_used_are_refused_by_the_file() {
    let authority = Authority::new();
    let load = |folder: &Path| Tls::load(folder, Clients::Known).unwrap_err();
    let named = |error: &CertificateError| match error {
        CertificateError::Unreadable { path, .. }
        | CertificateError::Content { path, .. }
        | CertificateError::KeyOpen { path, .. } => {
            path.file_name().unwrap().to_str().unwrap().to_owned()
        }
    };
    for name in ["ca-cert.pem", "server-cert.pem", "server-key.pem"] {
        let folder = authority.folder("server");
        std::fs::remove_file(folder.path().join(name)).unwrap();
        let error = load(folder.path());
        assert!(matches!(error, CertificateError::Unreadable { .. }), "{error}");
        assert_eq!(named(&error), name);
        for text in
            ["", "nonsense\n", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
        {
            write(&folder.path().join(name), text);
            let error = load(folder.path());
            assert!(matches!(error, CertificateError::Content { .. }), "{text}: {error}");
        }
        // Replaces the file by a named pipe, whose opening would block.
        std::fs::remove_file(folder.path().join(name)).unwrap();
        let made = std::process::Command::new("mkfifo")
            .args(["-m", "600"])
            .arg(folder.path().join(name))
            .status();
        assert!(made.unwrap().success());
        let error = load(folder.path());
        assert!(error.to_string().contains("is no regular file"), "{name}: {error}");
    }
    let folder = authority.folder("server");
    let key = folder.path().join("server-key.pem");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(load(folder.path()), CertificateError::KeyOpen { mode: 0o644, .. }));
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(Tls::load(folder.path(), Clients::Known).unwrap().is_closed());
    // Puts the key of another certificate in place of the server's key.
    std::fs::copy(Authority::new().folder("server").path().join("server-key.pem"), &key).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(named(&load(folder.path())), "server-cert.pem");
}
