//! Tests the server with braid's own client: reads return written data, errors have the right code,
//! and each request gets exactly one reply whatever the export does.

use std::sync::Arc;

use crate::common::{Client, OddExport, eventually, serve, serve_memory, shelving, succeed};
use braid_frontend_nbd::memory::MemoryExport;
use braid_frontend_nbd::{
    BlockSizes, Endpoint, ErrorCode, Export, Outcome, Payload, RequestError, Settings, StartError,
};
use braid_nbd_proto::{Command, Style};

#[test]
fn what_is_written_is_read_in_every_style() {
    let (served, export) = serve_memory(1 << 20);
    for style in [Style::Simple, Style::Structured, Style::Extended] {
        let mut client = Client::connect_as(&served.socket, "array", style).unwrap();
        assert_eq!(client.info.style, style);
        for (offset, length) in [(0, 1), (513, 4097), (1_000_000, 48_576), (5, 1_000_000)] {
            let data: Vec<u8> = (0..length).map(|i| (i * 7 + offset) as u8).collect();
            client.write(offset as u64, &data).unwrap();
            assert_eq!(client.read(offset as u64, length as u32).unwrap(), data);
            assert_eq!(export.bytes()[offset as usize..][..length as usize], data);
        }
        client.call(Command::Flush, &[]).unwrap();
        let zeroes =
            Command::WriteZeroes { offset: 7, length: 9, fua: true, may_punch: true, fast: false };
        client.call(zeroes, &[]).unwrap();
        assert_eq!(client.read(7, 9).unwrap(), [0; 9]);
        client.call(Command::Trim { offset: 0, length: 4096, fua: false }, &[]).unwrap();
        client.call(Command::Cache { offset: 0, length: 4096 }, &[]).unwrap();
    }
    let counts = served.server.counts();
    assert_eq!(counts.negotiated, 3);
    assert_eq!(counts.requests, 3 * (8 + 5));
    assert_eq!(counts.bytes_written, 3 * (1 + 4097 + 48_576 + 1_000_000));
    assert_eq!(counts.bytes_read, counts.bytes_written + 3 * 9);
    assert_eq!(counts.errors, [0; 8]);
}

#[test]
fn the_largest_request_goes_through_and_one_byte_more_does_not() {
    let (served, export) = serve_memory((64 << 20) + 4096);
    let mut client = Client::connect(&served.socket);
    let mut data = vec![0x5a; 64 << 20];
    data[12_345_678] = 1;
    client.write(100, &data).unwrap();
    assert_eq!(export.bytes()[100 + 12_345_678], 1);
    assert_eq!(client.read(100, 64 << 20).unwrap(), data);
    data.push(0);
    assert_eq!(client.write(0, &data), Err(ErrorCode::Invalid));
    assert_eq!(client.read(0, (64 << 20) + 1), Err(ErrorCode::Invalid));
    assert_eq!(export.bytes()[0], 0, "a refused write wrote");
    assert_eq!(client.read(100, 1).unwrap(), [0x5a], "the connection survives both");
}

#[test]
fn read_only_and_block_sizes_are_enforced() {
    let frozen = MemoryExport::new("frozen", 8192).with_read_only(true);
    let sizes = BlockSizes::new(512, 4096, 4096).unwrap();
    let coarse = MemoryExport::new("coarse", 8192).with_block_sizes(sizes);
    let served = serve(vec![Arc::new(frozen), Arc::new(coarse)], Settings::default());
    let mut client = Client::try_connect(&served.socket, "frozen", true).unwrap();
    assert_eq!(client.write(0, &[1; 512]), Err(ErrorCode::Permission));
    assert_eq!(client.read(0, 512).unwrap(), [0; 512]);
    let mut client = Client::try_connect(&served.socket, "coarse", true).unwrap();
    assert_eq!(client.info.block_sizes, Some(sizes));
    assert_eq!(client.write(1, &[1; 512]), Err(ErrorCode::Invalid));
    assert_eq!(client.read(0, 511), Err(ErrorCode::Invalid));
    assert_eq!(client.read(0, 8192), Err(ErrorCode::Invalid));
    client.write(512, &[1; 512]).unwrap();
    assert!(Client::try_connect(&served.socket, "array", true).is_none());
    let counts = served.server.counts();
    assert_eq!(counts.errors_of(ErrorCode::Permission), 1);
    assert_eq!(counts.errors_of(ErrorCode::Invalid), 3);
}

#[test]
fn every_error_of_an_export_reaches_the_client() {
    let errors = [
        (RequestError::ReadOnly, ErrorCode::Permission),
        (RequestError::Io("a test"), ErrorCode::Io),
        (RequestError::NoMemory, ErrorCode::Memory),
        (RequestError::OutOfRange, ErrorCode::Invalid),
        (RequestError::NoSpace, ErrorCode::NoSpace),
        (RequestError::NotFast, ErrorCode::Unsupported),
        (RequestError::Stopping, ErrorCode::Shutdown),
    ];
    for (error, code) in errors {
        let export = OddExport::shared(move |_, done| {
            done.complete(Outcome { result: Err(error), payload: None });
        });
        let served = serve(vec![export], Settings::default());
        for structured in [false, true] {
            let mut client = Client::try_connect(&served.socket, "", structured).unwrap();
            assert_eq!(client.read(0, 10), Err(code));
            // OutOfRange is answered as for a write behind the end that the client was told.
            let is_behind = error == RequestError::OutOfRange;
            let of_write = if is_behind { ErrorCode::NoSpace } else { code };
            assert_eq!(client.write(0, &[0; 10]), Err(of_write));
            assert_eq!(client.call(Command::Flush, &[]), Err(code));
        }
    }
}

#[test]
fn replies_come_in_completion_order() {
    let (export, shelf) = shelving();
    let served = serve(vec![export], Settings::default());
    let mut client = Client::connect(&served.socket);
    let sent: Vec<u64> = (0..20).map(|_| client.send(Command::Flush, &[])).collect();
    eventually("all twenty are in flight", || shelf.lock().unwrap().len() == 20);
    for expected in sent.iter().rev() {
        let (operation, done) = shelf.lock().unwrap().pop().unwrap();
        std::thread::spawn(move || succeed(operation, done));
        assert_eq!(client.wait().unwrap(), (*expected, Ok(vec![])));
    }
}

#[test]
fn an_export_that_breaks_its_promises_costs_an_error_not_a_hang() {
    let dropping = OddExport::shared(|_, done| drop(done));
    let served = serve(vec![dropping], Settings::default());
    let mut client = Client::connect(&served.socket);
    assert_eq!(client.read(0, 10), Err(ErrorCode::Io));
    assert_eq!(client.write(0, &[0; 10]), Err(ErrorCode::Io));
    assert_eq!(served.server.counts().contract_breaches, 2);
    for wrong in [None, Some(0), Some(9), Some(11)] {
        let export = OddExport::shared(move |_, done| {
            done.complete(Outcome { result: Ok(()), payload: wrong.map(Payload::zeroed) });
        });
        let served = serve(vec![export], Settings::default());
        let mut client = Client::connect(&served.socket);
        assert_eq!(client.read(0, 10), Err(ErrorCode::Io), "{wrong:?}");
        assert_eq!(client.write(0, &[0; 10]), Ok(()), "a write needs nothing back");
        assert_eq!(served.server.counts().contract_breaches, 1);
    }
}

#[test]
fn a_connection_with_its_fill_in_flight_is_not_read_from() {
    let (export, shelf) = shelving();
    let served = serve(vec![export], Settings::default());
    let mut client = Client::connect(&served.socket);
    for _ in 0..200 {
        client.send(Command::Flush, &[]);
    }
    eventually("128 requests are in flight", || shelf.lock().unwrap().len() == 128);
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(shelf.lock().unwrap().len(), 128, "the limit holds");
    for _ in 0..200 {
        eventually("one is there to finish", || !shelf.lock().unwrap().is_empty());
        let (operation, done) = shelf.lock().unwrap().remove(0);
        succeed(operation, done);
        client.wait().unwrap().1.unwrap();
    }
}

#[test]
fn what_cannot_be_served_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = [Endpoint::Unix(folder.path().join("s"))];
    let export = |name: &str| -> Arc<dyn Export> { Arc::new(MemoryExport::new(name, 1)) };
    let start = |exports| crate::common::start(exports, &endpoint, Settings::default());
    assert!(matches!(start(vec![]), Err(StartError::NoExports)));
    let twice = start(vec![export("a"), export("a")]);
    assert!(matches!(twice, Err(StartError::DuplicateName(_))));
    for name in ["a\0b", &"n".repeat(4097)] {
        assert!(matches!(start(vec![export(name)]), Err(StartError::Name(_))));
    }
    assert!(matches!(start(vec![export("a"), export("")]), Err(StartError::Name(_))));
    assert!(!folder.path().join("s").exists(), "a failed start left a socket");
    let none = crate::common::start(vec![export("a")], &[], Settings::default());
    assert!(matches!(none, Err(StartError::NoEndpoints)));
    assert!(start(vec![export(""), export("a")]).is_ok());
}
