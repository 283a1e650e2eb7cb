//! Extended headers: 64-bit requests to arrays beyond 32 bits.
//!
//! The clients are braid's own NBD client, and a QEMU that supports extended headers (8.2 or
//! later): `cargo xtask test` fetches a newer QEMU if the distribution's is older.

use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::time::Duration;

use braid_nbd_client::{Client, ClientPlan, Command, Extent, plan_for};
use braid_nbd_proto::{Style, wire};

use crate::kit::{Array, Need, RAID_0, RAID_5, RAID_10, ServerProcess, Shape, needs, ok, skip};

/// The members' size, as sparse files: the size of two members exceeds 32 bits.
const MEMBER_SIZE: &str = "3G";

/// An array of more than 4 GiB that only clients write to.
fn large(shape: Shape) -> (Array, ServerProcess) {
    let array = Array::create_sized(shape, MEMBER_SIZE);
    let served = array.serve_with(&["--jobs", "paused"], &array.members);
    assert!(served.size_bytes > u64::from(u32::MAX), "{}", served.size_bytes);
    (array, served)
}

/// Writes bytes other than zero at the array's beginning, across 4 GiB and at the end.
fn mark(served: &ServerProcess) -> [u64; 3] {
    let places = [0, (4 << 30) - 100, served.size_bytes - 4096];
    for place in places {
        let write = format!("write -P 7 {place} 4096");
        ok("qemu-io", ["-f", "raw", "-c", &write, &served.uri]);
    }
    places
}

fn assert_zero(served: &ServerProcess, places: [u64; 3]) {
    for place in places {
        let read = format!("read -P 0 {place} 4096");
        let said = ok("qemu-io", ["-f", "raw", "-c", &read, &served.uri]);
        assert!(!said.contains("failed"), "at {place}: {said}");
    }
}

fn requests(array: &Array) -> u64 {
    let status = array.braid(&["status", "tank"], &[]).stdout;
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    let requests = status["arrays"][0]["clients"]["requests"].as_u64();
    requests.unwrap_or_else(|| panic!("{status}"))
}

/// A client with extended headers and extents.
fn connect(socket: &Path, export: &str) -> Client {
    let plan = plan_for(export);
    let plan = ClientPlan { structured_replies: false, allocation_context: true, ..plan };
    Client::connect(socket, plan, Duration::from_secs(60)).expect("a server")
}

/// Sends a request without data; returns the answer's extents.
fn ask(client: &mut Client, command: Command) -> Vec<Extent> {
    client.call(command, &[], &mut []).expect("it is answered well")
}

#[test]
fn all_of_an_array_is_zeroed_trimmed_and_described_by_one_request_each() {
    needs!("qemu-io");
    for shape in [RAID_0, RAID_5] {
        let (array, served) = large(shape);
        let length = served.size_bytes;
        let mut client = connect(&served.socket, "tank");
        assert_eq!((client.info().style, client.info().size_bytes), (Style::Extended, length));
        let places = mark(&served);
        let before = requests(&array);
        let (offset, fua, may_punch, fast) = (0, true, true, true);
        let zero = Command::WriteZeroes { offset, length, fua, may_punch, fast };
        assert!(ask(&mut client, zero).is_empty());
        assert_zero(&served, places);
        assert!(ask(&mut client, Command::Trim { offset, length, fua }).is_empty());
        assert!(ask(&mut client, Command::Cache { offset, length }).is_empty());
        let extents = ask(&mut client, Command::BlockStatus { offset, length, one: false });
        assert_eq!(extents[0].flags, wire::STATE_HOLE | wire::STATE_ZERO, "{extents:?}");
        assert!(extents.iter().map(|extent| extent.length_bytes).sum::<u64>() <= length);
        // QEMU has made three reads, and braid's client the request above.
        assert!(requests(&array) >= before + 4);
        // The zeroed range begins and ends within a sector, whose other bytes must stay.
        mark(&served);
        let (offset, length) = (1, length - 2);
        let zero = Command::WriteZeroes { offset, length, fua, may_punch, fast: false };
        assert!(ask(&mut client, zero).is_empty());
        ok("qemu-io", ["-f", "raw", "-c", "read -P 7 0 1", "-c", "read -P 0 1 4095", &served.uri]);
        served.stop();
    }
}

#[test]
fn others_write_across_sectors_while_all_of_it_is_zeroed_again_and_again() {
    needs!("qemu-io");
    let (_array, served) = large(RAID_10);
    let (length, socket) = (served.size_bytes, served.socket.clone());
    let zeroing = std::thread::spawn(move || {
        let mut client = connect(&socket, "");
        for _ in 0..3 {
            let zero = Command::WriteZeroes {
                offset: 0,
                length,
                fua: false,
                may_punch: true,
                fast: false,
            };
            assert!(ask(&mut client, zero).is_empty());
        }
    });
    // QEMU and braid's client each have the array to themselves for a moment.
    for at in 0..20_u64 {
        let write = format!("write -P 9 {} 1000", at * 100_000_001);
        ok("qemu-io", ["-f", "raw", "-c", &write, &served.uri]);
    }
    zeroing.join().expect("zeroed");
    served.stop();
}

/// A QEMU tool that supports extended headers: the fetched one, or the distribution's.
fn newer_qemu(tool: &str) -> Option<PathBuf> {
    let fetched = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../target/newer-qemu/usr/bin")
        .join(tool);
    let candidates = [fetched, PathBuf::from(tool)];
    let is_new = |path: &PathBuf| {
        let said = Process::new(path).arg("--version").output().ok()?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let version = said.split("version ").nth(1)?;
        let mut numbers = version.split('.').map_while(|part| part.parse::<u32>().ok());
        let version = (numbers.next()?, numbers.next().unwrap_or(0));
        (version >= (8, 2)).then_some(())
    };
    let found = candidates.into_iter().find(|path| is_new(path).is_some());
    if found.is_none() {
        skip(Need::Other, &format!("no {tool} of 8.2 or later, which knows extended headers"));
    }
    found
}

#[test]
fn qemu_zeroes_and_discards_more_than_32_bits_by_one_request() {
    needs!("qemu-io");
    let (Some(qemu_io), Some(qemu_img)) = (newer_qemu("qemu-io"), newer_qemu("qemu-img")) else {
        return;
    };
    let (qemu_io, qemu_img) = (qemu_io.display().to_string(), qemu_img.display().to_string());
    for shape in [RAID_0, RAID_5] {
        let (array, served) = large(shape);
        let places = mark(&served);
        let size = served.size_bytes;
        let before = requests(&array);
        let zero = format!("write -z -n -u 0 {size}");
        let said = ok(&qemu_io, ["-f", "raw", "-c", &zero, &served.uri]);
        assert!(!said.contains("failed"), "{said}");
        // QEMU sends the request as one, and a final flush.
        let made = requests(&array) - before;
        assert!(made <= 2, "{made} requests for one of {size} bytes");
        assert_zero(&served, places);
        // The largest range of one command of qemu-io.
        ok(&qemu_io, ["-f", "raw", "-d", "unmap", "-c", "discard 0 2147483136", &served.uri]);
        mark(&served);
        let map = ok(&qemu_img, ["map", "-f", "raw", "--output=json", &served.uri]);
        let map: serde_json::Value = serde_json::from_str(&map).expect("JSON");
        let map = map.as_array().expect("a map");
        let end = map.last().map(|last| {
            last["start"].as_u64().expect("a start") + last["length"].as_u64().expect("a length")
        });
        assert_eq!(end, Some(size), "{map:?}");
        assert!(map.iter().any(|run| run["data"] == false), "holes are told: {map:?}");
        // Reads and writes use the same extended headers.
        let read = format!("read -P 7 {} 4096", places[1]);
        let said = ok(&qemu_io, ["-f", "raw", "-c", &read, &served.uri]);
        assert!(!said.contains("failed"), "{said}");
        served.stop();
    }
}
