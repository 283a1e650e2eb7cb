//! Third-party clients: libnbd from Python, two Go modules, and nbdkit as a proxy.

use std::path::Path;
use std::process::Command;

use crate::kit::{Array, Need, RAID_5, RAID_6, needs, ok, run, skip};

/// Debian's Python, which has libnbd's module; another Python on the PATH may not.
const PYTHON: &str = "/usr/bin/python3";

/// A Python script: each libnbd call that applies to braid's server.
const SCRIPT: &str = r#"
import nbd, sys
h = nbd.NBD()
h.add_meta_context("base:allocation")
h.set_opt_mode(True)
h.connect_uri(sys.argv[1])
listed = []
h.opt_list(lambda name, description: listed.append((name, description)))
assert listed == [("tank", sys.argv[2])], listed
contexts = []
h.opt_list_meta_context(contexts.append)
assert contexts == ["base:allocation"], contexts
h.set_full_info(True)
h.opt_info()
assert h.get_canonical_export_name() == "tank"
assert h.get_export_description() == sys.argv[2], h.get_export_description()
size = h.get_size()
h.opt_go()
assert h.get_size() == size and h.get_structured_replies_negotiated()
assert [h.get_block_size(which) for which in range(3)] == [1, 65536, 64 << 20]
data = bytes(range(251)) * 17
h.pwrite(data, 4097)
assert h.pread(len(data), 4097) == data
parts = []
h.pread_structured(len(data), 4097, lambda part, offset, state, error: parts.append((offset, bytes(part))))
assert b"".join(part for _, part in sorted(parts)) == data
h.zero(1000, 4098, nbd.CMD_FLAG_FUA | nbd.CMD_FLAG_NO_HOLE)
assert h.pread(len(data), 4097) == data[:1] + bytes(1000) + data[1001:]
h.trim(1 << 20, 0)
h.cache(1 << 20, 0)
h.flush()
extents = []
h.block_status(size, 0, lambda context, offset, entries, error: extents.append((context, offset, sum(entries[::2]))))
assert extents[0][:2] == ("base:allocation", 0) and 0 < extents[0][2] <= size, extents
h.set_strict_mode(0)
for wrong in [lambda: h.pread(1, size), lambda: h.pwrite(b"x", size), lambda: h.trim(1, size)]:
    try:
        wrong()
        sys.exit("beyond the end")
    except nbd.Error:
        pass
# Many at once, and out of order.
cookies = [h.aio_pwrite(bytes([at]) * 512, at * 512) for at in range(64)]
for cookie in cookies:
    while not h.aio_command_completed(cookie):
        h.poll(-1)
for at in range(64):
    assert h.pread(512, at * 512) == bytes([at]) * 512
h.shutdown()
"#;

#[test]
fn libnbd_from_python_finds_all_that_it_asks_for() {
    needs!("nbdinfo");
    if !run(PYTHON, ["-c", "import nbd"]).status.success() {
        return skip(Need::Program, "no python3-libnbd");
    }
    let array = Array::create(RAID_5);
    let served = array.serve();
    let size = ok("nbdinfo", ["--size", &served.uri]);
    let size: u64 = size.trim().parse().expect("a size");
    // The size in the export's description is truncated to two digits after the point, as in
    // `braid`, never rounded up.
    let info = ok("nbdinfo", ["--json", &served.uri]);
    let info: serde_json::Value = serde_json::from_str(&info).expect("JSON");
    let told = info["exports"][0]["description"].as_str().expect("a description").to_owned();
    assert!(told.starts_with("RAID-5 of 4 members, ") && told.ends_with(" MiB, ok"), "{told}");
    assert!(size > 0);
    ok(PYTHON, ["-c", SCRIPT, &served.uri, &told]);
    served.stop();
}

/// Runs the go tool; the error is the tool's output.
fn go(words: &[&str], output: &Path) -> Result<(), String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go");
    let mut command = Command::new("go");
    command.env("CGO_ENABLED", "0").current_dir(folder).args(words);
    if words.contains(&"-o") {
        command.arg(output).arg(".");
    }
    let ended = command.output().expect("go runs");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    if ended.status.success() { Ok(()) } else { Err(said) }
}

#[test]
fn two_modules_of_go_read_what_they_write() {
    needs!("go");
    let array = Array::create(RAID_5);
    let client = array.path("client");
    // The registry of Go modules may be unreachable.
    if let Err(why) = go(&["mod", "download"], &client) {
        return skip(Need::Other, &format!("no modules of Go: {why}"));
    }
    go(&["build", "-o"], &client).expect("the client builds");
    let mut served = array.serve();
    let (program, socket) = (client.display().to_string(), served.socket.display().to_string());
    let expected = format!("{} 1 65536 {}\n", served.size_bytes, 64 << 20);
    assert_eq!(ok(&program, [socket.as_str(), "tank"]), expected);
    served.lose(&array, 0);
    assert_eq!(ok(&program, [socket.as_str(), "tank"]), expected, "without a member");
    served.stop();
}

#[test]
fn nbdkit_passes_on_what_its_clients_ask() {
    needs!("nbdkit", "nbdcopy", "qemu-io", "nbdinfo");
    let array = Array::create(RAID_6);
    let served = array.serve();
    let image = array.path("image");
    let size = usize::try_from(served.size_bytes).expect("small");
    std::fs::write(&image, crate::kit::random_bytes(7, size)).expect("an image");
    let (image, copy) = (image.display().to_string(), array.path("copy").display().to_string());
    let socket = format!("socket={}", served.socket.display());
    let load = format!(
        "set -e; nbdinfo \"$uri\"; nbdcopy --flush '{image}' \"$uri\"; nbdcopy \"$uri\" '{copy}'; \
         qemu-io -f raw -c 'write -z -u 1M 3M' -c 'discard 8M 1M' -c 'read -P 0 1M 3M' \"$uri\""
    );
    let words = ["-U", "-", "nbd", socket.as_str(), "export=tank", "--run", load.as_str()];
    let said = ok("nbdkit", words);
    assert!(!said.contains("failed"), "{said}");
    let same = std::fs::read(&image).expect("one") == std::fs::read(&copy).expect("the other");
    assert!(same, "what came back differs");
    served.stop();
}
