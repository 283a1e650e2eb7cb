//! Tests with common clients: libnbd's nbdinfo and nbdcopy, qemu's qemu-img and qemu-io, fio. If
//! its program is missing, a test prints that and passes. Under `cargo xtask test`, which installs
//! the programs, the test fails.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::common::{TestServer, serve, serve_memory};
use braid_frontend_nbd::memory::MemoryExport;
use braid_frontend_nbd::{BlockSizes, Endpoint, Settings};
use braid_test_needs::{Need, needs, skip};

const SIZE: usize = 24 << 20;

/// Runs a tool and returns its output; panics with all the output if the tool fails.
fn run(tool: &str, arguments: &[&str]) -> String {
    let output = Command::new(tool).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{tool} {arguments:?}: {said}\n{complained}");
    said
}

fn uri(served: &TestServer, export: &str) -> String {
    Endpoint::Unix(served.socket.clone()).uri(export, false).to_string()
}

/// The bytes of an image: every third block is noise, the others are zeroes.
fn image() -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut bytes = vec![0; SIZE];
    bytes.chunks_exact_mut(65_536).step_by(3).for_each(|block| random.fill(block));
    bytes
}

fn image_file(folder: &Path) -> String {
    let path = folder.join("image.raw");
    std::fs::write(&path, image()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn nbdinfo_reads_everything_we_say() {
    needs!("nbdinfo");
    let (served, export) = serve_memory(SIZE);
    export.bytes()[1 << 20..(1 << 20) + 5000].fill(1);
    let said = run("nbdinfo", &["--json", &uri(&served, "array")]);
    let expected = [
        "\"protocol\": \"newstyle-fixed\"",
        "\"structured\": true",
        "\"export-name\": \"array\"",
        "\"export-size\": 25165824",
        "\"base:allocation\"",
        "\"is_read_only\": false",
        "\"can_cache\": true",
        "\"can_df\": true",
        "\"can_fast_zero\": true",
        "\"can_flush\": true",
        "\"can_fua\": true",
        "\"can_multi_conn\": true",
        "\"can_trim\": true",
        "\"can_zero\": true",
        "\"block_size_minimum\": 1",
        "\"block_size_preferred\": 4096",
        "\"block_size_maximum\": 67108864",
    ];
    for line in expected {
        assert!(said.contains(line), "{line} is missing from {said}");
    }
    assert_eq!(run("nbdinfo", &["--size", &uri(&served, "")]).trim(), SIZE.to_string());
    let said = run("nbdinfo", &["--list", &uri(&served, "")]);
    assert!(said.contains("export=\"array\""), "{said}");
    let map = run("nbdinfo", &["--map", &uri(&served, "array")]);
    let rows: Vec<Vec<&str>> = map.lines().map(|row| row.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["0", "1048576", "3", "hole,zero"], "{map}");
    assert_eq!(rows[1], ["1048576", "8192", "0", "data"], "{map}");
    assert_eq!(rows[2][3], "hole,zero", "{map}");
}

#[test]
fn nbdinfo_is_told_what_is_read_only_and_what_is_unknown() {
    needs!("nbdinfo");
    let frozen = MemoryExport::new("frozen array", 8192).with_read_only(true);
    let served = serve(vec![Arc::new(frozen)], Settings::default());
    let said = run("nbdinfo", &["--json", &uri(&served, "frozen array")]);
    assert!(said.contains("\"is_read_only\": true") && said.contains("\"can_zero\": false"));
    let output = Command::new("nbdinfo").arg(uri(&served, "stranger")).output().unwrap();
    assert!(!output.status.success());
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(complained.contains("export: stranger"), "{complained}");
}

#[test]
fn nbdcopy_in_and_out_keeps_every_byte() {
    needs!("nbdcopy");
    let (served, export) = serve_memory(SIZE);
    export.bytes().fill(0xee);
    let file = image_file(served.folder.path());
    let uri = uri(&served, "array");
    run("nbdcopy", &["--flush", "--connections=4", &file, &uri]);
    assert!(*export.bytes() == image(), "the image did not arrive");
    let back = served.folder.path().join("back.raw");
    std::fs::write(&back, []).unwrap();
    run("nbdcopy", &["--connections=4", "--requests=64", &uri, back.to_str().unwrap()]);
    assert!(std::fs::read(&back).unwrap() == image(), "the image did not come back");
    let counts = served.server.counts();
    assert_eq!(counts.errors, [0; 8]);
    assert!(counts.bytes_read >= (SIZE / 3) as u64 && counts.bytes_written >= (SIZE / 3) as u64);
    assert_eq!(counts.bytes_copied, 0, "whole blocks go where they belong");
}

#[test]
fn qemu_img_converts_and_compares() {
    needs!("qemu-img");
    let (served, export) = serve_memory(SIZE);
    export.bytes().fill(0xee);
    let file = image_file(served.folder.path());
    let uri = uri(&served, "array");
    run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", &file, &uri]);
    assert!(*export.bytes() == image(), "the image did not arrive");
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", &file, &uri]);
    export.bytes()[SIZE - 1] ^= 1;
    let compare = ["compare", "-f", "raw", "-F", "raw", &file, &uri];
    let differs = Command::new("qemu-img").args(compare).output().unwrap();
    assert_eq!(differs.status.code(), Some(1), "a difference in the last byte is seen");
}

#[test]
fn qemu_io_with_odd_offsets() {
    needs!("qemu-io");
    let (served, export) = serve_memory((1 << 20) + 17);
    let uri = uri(&served, "array");
    let said = run(
        "qemu-io",
        &[
            "-f",
            "raw",
            "-c",
            "write -P 0x11 1 511",
            "-c",
            "write -P 0x22 513 4097",
            "-c",
            "write -P 0x33 1048576 17",
            "-c",
            "read -P 0x11 1 511",
            "-c",
            "read -P 0x22 513 4097",
            "-c",
            "read -P 0x33 1048576 17",
            "-c",
            "write -z 600 10",
            "-c",
            "read -P 0 600 10",
            "-c",
            "write -f -P 0x44 9 3",
            "-c",
            "read -P 0x44 9 3",
            "-c",
            "discard 100 1000",
            "-c",
            "flush",
            &uri,
        ],
    );
    assert!(!said.contains("verification failed"), "{said}");
    assert_eq!(export.bytes()[1 << 20..], [0x33; 17]);
    assert_eq!(served.server.counts().errors, [0; 8]);
}

#[test]
fn qemu_io_aligns_to_our_minimum() {
    needs!("qemu-io");
    let sizes = BlockSizes::new(4096, 65_536, 1 << 20).unwrap();
    let export = MemoryExport::new("coarse", 1 << 20).with_block_sizes(sizes);
    let served = serve(vec![Arc::new(export)], Settings::default());
    let uri = uri(&served, "coarse");
    let write = "write -P 0x11 1 511";
    let said = run("qemu-io", &["-f", "raw", "-c", write, "-c", "read -P 0x11 1 511", &uri]);
    assert!(!said.contains("verification failed"), "{said}");
    assert_eq!(served.server.counts().errors, [0; 8], "qemu kept to the block size");
}

#[test]
fn fio_verifies_what_it_wrote() {
    needs!("fio");
    if !run("fio", &["--enghelp"]).contains("nbd") {
        return skip(Need::Program, "no nbd engine in fio");
    }
    let (served, _export) = serve_memory(SIZE);
    let uri = format!("--uri={}", uri(&served, "array"));
    run(
        "fio",
        &[
            "--name=verify",
            "--ioengine=nbd",
            &uri,
            "--rw=randrw",
            "--bsrange=512-64k",
            "--bs_unaligned=1",
            "--iodepth=32",
            "--size=20M",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_state_save=0",
            "--randrepeat=0",
        ],
    );
    let counts = served.server.counts();
    assert_eq!(counts.errors, [0; 8]);
    assert!(counts.bytes_written > 5 << 20, "{counts:?}");
}

#[test]
fn blocks_that_fio_writes_are_not_copied() {
    needs!("fio");
    if !run("fio", &["--enghelp"]).contains("nbd") {
        return skip(Need::Program, "no nbd engine in fio");
    }
    let (served, _export) = serve_memory(SIZE);
    let uri = format!("--uri={}", uri(&served, "array"));
    let job = ["--name=copies", "--ioengine=nbd", &uri, "--iodepth=32", "--size=20M"];
    for (pattern, block) in [("randwrite", "4k"), ("write", "1m"), ("randwrite", "128k")] {
        let how = [format!("--rw={pattern}"), format!("--bs={block}")];
        run("fio", &[&job[..], &how.each_ref().map(String::as_str)].concat());
    }
    let counts = served.server.counts();
    assert_eq!((counts.bytes_written, counts.bytes_copied), (60 << 20, 0));
}

#[test]
fn tcp_on_loopback_serves_the_same() {
    needs!("nbdcopy");
    let folder = tempfile::tempdir().unwrap();
    let export = Arc::new(MemoryExport::new("array", SIZE));
    let endpoint = Endpoint::Tcp("127.0.0.1:0".parse().unwrap());
    let server =
        crate::common::start(vec![export.clone()], &[endpoint], Settings::default()).unwrap();
    let uri = server.endpoints()[0].uri("array", false).to_string();
    run("nbdcopy", &["--flush", &image_file(folder.path()), &uri]);
    assert!(*export.bytes() == image(), "the image did not arrive");
}
