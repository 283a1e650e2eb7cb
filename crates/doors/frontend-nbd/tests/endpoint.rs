//! Tests of endpoints: modes, stale and live sockets, and refused addresses.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::Client;
use braid_frontend_nbd::memory::MemoryExport;
use braid_frontend_nbd::{
    BindError, Endpoint, Export, Listener, NbdUri, Server, Settings, StartError,
};

fn start(endpoint: Endpoint) -> Result<Server, StartError> {
    let export: Arc<dyn Export> = Arc::new(MemoryExport::new("a", 4096));
    crate::common::start(vec![export], &[endpoint], Settings::default())
}

fn start_unix(path: &Path) -> Result<Server, StartError> {
    start(Endpoint::Unix(path.to_owned()))
}

#[test]
fn the_socket_is_never_open_to_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let (watched, over) = (path.clone(), Arc::new(AtomicBool::new(false)));
    let (ending, looks) = (Arc::clone(&over), Arc::new(AtomicU64::new(0)));
    let looked = Arc::clone(&looks);
    // Watches the mode of the socket's file from its creation on, while servers start and stop.
    let watcher = std::thread::spawn(move || {
        while !ending.load(Ordering::Relaxed) {
            if let Ok(status) = std::fs::symlink_metadata(&watched) {
                assert!(status.file_type().is_socket());
                assert_eq!(status.permissions().mode() & 0o777, 0o600);
                looked.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    for _ in 0..50 {
        let before = looks.load(Ordering::Relaxed);
        let server = start_unix(&path).unwrap();
        let unseen = || looks.load(Ordering::Relaxed) == before && !watcher.is_finished();
        crate::common::eventually("the watcher has looked", || !unseen());
        drop(server);
    }
    over.store(true, Ordering::Relaxed);
    watcher.join().unwrap();
}

/// A service manager passes on sockets that already listen, and whose files it owns.
#[test]
fn a_socket_that_listens_already_is_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let passed = [
        UnixListener::bind(&path).unwrap().into(),
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().into(),
    ];
    let listeners: Vec<Listener> = passed.map(|one| Listener::adopt(one).unwrap()).into();
    let endpoints: Vec<Endpoint> = listeners.iter().map(|one| one.endpoint().clone()).collect();
    assert_eq!(endpoints[0], Endpoint::Unix(path.clone()));
    assert!(matches!(endpoints[1], Endpoint::Tcp(address) if address.port() > 0));
    let export: Arc<dyn Export> = Arc::new(MemoryExport::new("a", 4096));
    let heard = (Settings::default(), Arc::new(|_| ()) as _);
    let listeners = listeners.into_iter().map(|listener| (listener, None)).collect();
    let server = Server::start_listening(None, vec![export], listeners, heard).unwrap();
    assert!(Client::connect(&path).read(0, 512).is_ok());
    let Endpoint::Tcp(address) = endpoints[1] else { unreachable!() };
    let mut greeting = [0; 8];
    TcpStream::connect(address).unwrap().read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"NBDMAGIC");
    drop(server);
    assert!(path.exists(), "its file is not ours to remove");
    let public = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let refused = Listener::adopt(public.into());
    assert!(matches!(refused, Err(BindError::NotLoopback(_))), "{refused:?}");
    let unnamed = std::os::unix::net::UnixStream::pair().unwrap().0;
    assert!(matches!(Listener::adopt(unnamed.into()), Err(BindError::System { .. })));
}

#[test]
fn a_live_server_is_not_robbed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let first = start_unix(&path).unwrap();
    let second = start_unix(&path);
    assert!(matches!(second, Err(StartError::Bind(BindError::InUse(_)))), "{second:?}");
    assert!(Client::connect(&path).read(0, 1).is_ok());
    drop(first);
    assert!(!path.exists());
}

#[test]
fn a_stale_socket_is_replaced_and_a_file_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let server = start_unix(&path).unwrap();
    assert!(Client::connect(&path).read(0, 1).is_ok());
    drop(server);
    std::fs::write(&path, "precious").unwrap();
    assert!(matches!(start_unix(&path), Err(StartError::Bind(BindError::NotASocket(_)))));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(matches!(start_unix(&link), Err(StartError::Bind(BindError::NotASocket(_)))));
}

#[test]
fn a_socket_that_is_no_longer_ours_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let server = start_unix(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let successor = UnixListener::bind(&path).unwrap();
    drop(server);
    assert!(path.exists(), "the successor's socket was removed");
    drop(successor);
}

#[test]
fn servers_starting_at_once_share_one_winner() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    drop(UnixListener::bind(&path).unwrap()); // stale: every thread wants to replace it
    let contenders: Vec<_> = (0..8)
        .map(|_| {
            let path = path.clone();
            std::thread::spawn(move || start_unix(&path))
        })
        .collect();
    let results: Vec<_> = contenders.into_iter().map(|one| one.join().unwrap()).collect();
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
    assert!(Client::connect(&path).read(0, 1).is_ok());
}

#[test]
fn paths_that_cannot_be_are_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let long = folder.path().join("n".repeat(200));
    assert!(matches!(start_unix(&long), Err(StartError::Bind(BindError::PathTooLong(_)))));
    let nowhere = folder.path().join("no/where");
    assert!(matches!(start_unix(&nowhere), Err(StartError::Bind(BindError::System { .. }))));
}

#[test]
fn only_loopback_addresses_are_served() {
    for address in ["0.0.0.0:0", "192.0.2.1:0", "[::]:0", "[::ffff:192.0.2.1]:0", "128.0.0.1:0"] {
        let refused = start(Endpoint::Tcp(address.parse().unwrap()));
        assert!(matches!(refused, Err(StartError::Bind(BindError::NotLoopback(_)))), "{address}");
    }
    let server = start(Endpoint::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
    let [Endpoint::Tcp(address)] = server.endpoints() else { panic!("{server:?}") };
    assert_ne!(address.port(), 0);
    assert!(TcpStream::connect(address).is_ok());
}

#[test]
fn uris_become_endpoints_and_endpoints_uris() {
    let endpoint = |text: &str| Endpoint::from_uri(&text.parse::<NbdUri>().unwrap());
    let local: SocketAddr = "127.0.0.1:10809".parse().unwrap();
    assert_eq!(endpoint("nbd://localhost/x").unwrap(), Endpoint::Tcp(local));
    assert_eq!(endpoint("nbd://127.0.0.1").unwrap(), Endpoint::Tcp(local));
    let six = endpoint("nbd://[::1]:5/x").unwrap();
    assert_eq!(six.uri("x", false).to_string(), "nbd://[::1]:5/x");
    for host in ["example.com", "10.0.0.1", "0.0.0.0", "[::ffff:10.0.0.1]"] {
        let refused = endpoint(&format!("nbd://{host}/"));
        assert!(matches!(refused, Err(BindError::NotLoopback(_))), "{host}");
    }
    let open = endpoint("nbds://0.0.0.0/x").unwrap();
    assert!(open.is_open() && !six.is_open());
    assert_eq!(open.uri("x", true).to_string(), "nbds://0.0.0.0:10809/x");
    assert!(endpoint("nbds://example.com/").is_err(), "names are not looked up");
    let unix = endpoint("nbd+unix:///array?socket=/run/a%20b.sock").unwrap();
    assert_eq!(unix, Endpoint::Unix("/run/a b.sock".into()));
    assert_eq!(unix.uri("", false).to_string(), "nbd+unix:///?socket=/run/a%20b.sock");
}

#[test]
fn a_starting_server_waits_for_another_one_in_the_same_directory() {
    let folder = tempfile::tempdir().unwrap();
    let directory = std::fs::File::open(folder.path()).unwrap();
    directory.lock_shared().unwrap(); // makes an exclusive lock wait, but no shared one
    let path = folder.path().join("s");
    let starting = std::thread::spawn(move || start_unix(&path));
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert!(!starting.is_finished(), "it did not wait its turn");
    drop(directory);
    assert!(starting.join().unwrap().is_ok());
}
