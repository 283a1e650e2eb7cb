//! The simulator depends only on pure crates, because others could make one seed give two runs.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Our pure crates, and the registry's crates that they may use. Crates for procedural macros are
/// allowed, since they run only while code is compiled and cannot change a simulator run.
const ALLOWED: [&str; 23] = [
    "braid-sim",
    "braid-assembly",
    "braid-elevator",
    "braid-engine",
    "braid-geometry",
    "braid-prefetch",
    "braid-sim-hooks",
    "braid-nbd-proto",
    "braid-ondisk",
    "braid-ownership",
    "braid-parity",
    "crc32c",
    "thiserror",
    "thiserror-impl",
    "zerocopy",
    "zerocopy-derive",
    "proc-macro2",
    "quote",
    "rangemap",
    "slotmap",
    "smallvec",
    "syn",
    "unicode-ident",
];

#[test]
fn the_simulator_depends_on_nothing_that_knows_the_world() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--offline", "--package", "braid-sim", "--edges", "normal"])
        .args(["--prefix", "none", "--format", "{p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("names are text");
    let names: BTreeSet<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    let strangers: Vec<_> =
        names.iter().filter(|name| !name.is_empty() && !ALLOWED.contains(name)).collect();
    assert!(strangers.is_empty(), "{strangers:?}");
    for needed in ["braid-engine", "braid-elevator", "braid-nbd-proto", "braid-assembly"] {
        assert!(names.contains(needed), "{needed} is what it is to try");
    }
}

#[test]
fn no_clock_thread_or_random_order_is_named_in_the_simulator() {
    let mut files = 0;
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            files += 1;
            let text = std::fs::read_to_string(&path).expect("source is text");
            for word in ["std::time", "std::thread", "HashMap", "HashSet", "RandomState"] {
                assert!(!text.contains(word), "{word} in {}", path.display());
            }
        }
    }
    assert!(files > 20, "only {files} files were read");
}
