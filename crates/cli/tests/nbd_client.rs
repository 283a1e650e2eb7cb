//! braid's NBD client against braid's own server, and against a program that is no NBD server.

#![allow(clippy::unwrap_used)] // tests: a panic is a failure

use std::io::Write;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use braid_frontend_nbd::memory::MemoryExport;
use braid_frontend_nbd::{Endpoint, Export, Server, Settings};
use braid_nbd_client::{Client, ClientError, Command, ErrorCode, ServerMessage, plan_for};

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn bytes_are_written_and_read_one_by_one_and_many_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("nbd.sock");
    let export: std::sync::Arc<dyn Export> =
        std::sync::Arc::new(MemoryExport::new("disk", 8 << 20));
    let endpoints = [Endpoint::Unix(socket.clone())];
    let server = Server::start(vec![export], &endpoints, Settings::default()).unwrap();
    let mut client = Client::connect(&socket, plan_for("disk"), PATIENCE).unwrap();
    assert_eq!(client.info().size_bytes, 8 << 20);
    let bytes: Vec<u8> = (0..5 << 20_u32).map(|at| (at % 251) as u8).collect();
    client.write(777, &bytes, true).unwrap();
    client.write_zeroes(1000, 5000).unwrap();
    client.flush().unwrap();
    let mut found = vec![1; bytes.len()];
    client.read(777, &mut found).unwrap();
    assert!(found[..223] == bytes[..223] && found[5223..] == bytes[5223..]);
    assert!(found[223..5223].iter().all(|byte| *byte == 0));

    let reads = [4096, 0, 8192].map(|offset| {
        client.send(Command::Read { offset, length: 512, dont_fragment: false }, &[]).unwrap()
    });
    assert_eq!(client.in_flight_count(), 3);
    let (mut answered, mut heard) = (Vec::new(), 0);
    while answered.len() < 3 {
        match client.hear().unwrap() {
            ServerMessage::Data { bytes, .. } => heard += bytes.len(),
            ServerMessage::Hole { length_bytes, .. } => heard += length_bytes as usize,
            ServerMessage::Answer { cookie, result } => {
                result.unwrap();
                answered.push(cookie);
            }
            ServerMessage::Extents { .. } => panic!("no request asks for extents"),
        }
    }
    answered.sort_unstable();
    assert_eq!((answered, heard), (reads.to_vec(), 3 * 512));
    let beyond = client.read((8 << 20) - 1, &mut [0; 2]);
    assert!(matches!(beyond, Err(ClientError::Unsendable(_))), "{beyond:?}");
    let read_only = Client::connect(&socket, plan_for("no such disk"), PATIENCE);
    assert!(matches!(read_only, Err(ClientError::Closed(_) | ClientError::HungUp)));
    assert_eq!(server.stop(PATIENCE).cut, 0, "nothing was under way");
    let after = client.flush();
    let is_over = matches!(
        after,
        Err(ClientError::HungUp
            | ClientError::Connection(_)
            | ClientError::Refused(ErrorCode::Shutdown))
    );
    assert!(is_over, "{after:?}");
}

#[test]
fn what_is_no_server_is_told_from_one() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ssh.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let server = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        peer.write_all(b"SSH-2.0-OpenSSH_10\r\n").unwrap();
    });
    let refused = Client::connect(&socket, plan_for(""), PATIENCE);
    assert!(matches!(refused, Err(ClientError::Closed(_))));
    server.join().unwrap();
    let nowhere = Client::connect(&folder.path().join("none"), plan_for(""), PATIENCE);
    assert!(matches!(nowhere, Err(ClientError::Connection(_))));
}
