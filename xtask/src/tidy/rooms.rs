//! Rules about `unsafe`: crates that forbid it, and *rooms*, the few files and folders that may
//! contain it.
//!
//! Clippy demands a `// SAFETY:` comment at each block of unsafe code; this file limits the places
//! of such blocks. A room without unsafe code must leave the table.

use super::source::{Source, words};
use super::tree::Tree;
use super::{Finding, Rule};

/// Crates whose root says `#![forbid(unsafe_code)]`.
const FORBIDDEN: [&str; 27] = [
    "confine",
    "console",
    "external-metadata",
    "signatures",
    "control",
    "discovery",
    "sim-hooks",
    "imaging",
    "concurrency",
    "geometry",
    "ondisk",
    "nbd-client",
    "nbd-proto",
    "fuse-proto",
    "ublk-proto",
    "virtio-proto",
    "frontend-vhost-user",
    "engine",
    "assembly",
    "dispatch",
    "pace",
    "solver",
    "lvm",
    "member",
    "lab",
    "rescue",
    "server",
];

/// A file or folder that may contain `unsafe`.
struct Room {
    /// The room's path from the repository root; a folder ends in `/`.
    path: &'static str,
    /// Why safe Rust is not enough here: for readers, and printed when the room is empty.
    reason: &'static str,
}

const ROOMS: [Room; 17] = [
    Room {
        path: "crates/doors/frontend-fuse/src/rings/commands.rs",
        reason: "memory lent to the kernel",
    },
    Room {
        path: "crates/doors/frontend-ublk/src/kernel.rs",
        reason: "commands that name memory, and a mapping that the kernel writes",
    },
    Room {
        path: "crates/core/prefetch/src/lib.rs",
        reason: "hints are instructions of the processor",
    },
    Room { path: "crates/rig/lab/tests/allocations.rs", reason: "an allocator that counts" },
    Room { path: "crates/io/block-ioctl/src/lib.rs", reason: "ioctls that write their answers" },
    Room {
        path: "crates/io/block-ioctl/src/reservation.rs",
        reason: "ioctls that write their answers",
    },
    Room {
        path: "crates/core/parity/src/kernel/",
        reason: "vector instructions chosen at run time",
    },
    Room { path: "crates/io/ring/src/fixed_buffers.rs", reason: "memory registered with a ring" },
    Room { path: "crates/io/ring/src/flight.rs", reason: "entries for the kernel hold addresses" },
    Room { path: "crates/io/ring/src/memory.rs", reason: "leases of memory that others keep" },
    Room { path: "crates/io/ring/src/payload.rs", reason: "aligned memory, recycled" },
    Room {
        path: "crates/io/ring/src/file_memory.rs",
        reason: "a file in memory that is stored to",
    },
    Room { path: "crates/io/ring/src/region.rs", reason: "memory given back to the kernel" },
    Room { path: "crates/io/runtime/src/arena.rs", reason: "payload memory shared by handle" },
    Room {
        path: "crates/io/runtime/src/shared_bytes.rs",
        reason: "runs of one memory, each with another thread",
    },
    Room { path: "lab-compare/src/isal.rs", reason: "calls into ISA-L, for comparison only" },
    Room { path: "lab-vhost/src/block.rs", reason: "answers that another library has written" },
];

/// Finds `unsafe` outside the rooms.
pub(super) fn check(source: &Source, findings: &mut Vec<Finding>) {
    let name = source.name();
    if ROOMS.iter().any(|room| is_in(&name, room)) {
        return;
    }
    for (at, _) in words(&source.code).filter(|&(_, word)| word == "unsafe") {
        let text = "unsafe outside the rooms named in xtask/src/tidy/rooms.rs";
        findings.push(Finding::new(Rule::UnsafeRooms, &name, source.line_of(at), text));
    }
}

pub(super) fn rooms_exist(tree: &Tree, findings: &mut Vec<Finding>) {
    for room in &ROOMS {
        let used = tree.sources.iter().any(|source| {
            is_in(&source.name(), room) && words(&source.code).any(|(_, word)| word == "unsafe")
        });
        if !used {
            let text = format!("no unsafe code here any more ({}): drop the room", room.reason);
            findings.push(Finding::new(Rule::UnsafeRooms, room.path, 1, text));
        }
    }
}

/// Finds pure crates whose root does not forbid unsafe code.
pub(super) fn forbid(tree: &Tree, findings: &mut Vec<Finding>) {
    for name in FORBIDDEN {
        let end = format!("/{name}/src/lib.rs");
        let root = tree.sources.iter().find(|source| source.name().ends_with(&end));
        if !root.is_some_and(|source| source.code.contains("#![forbid(unsafe_code)]")) {
            let text = format!("{name} must say #![forbid(unsafe_code)]");
            let path = root.map_or_else(|| end[1..].to_owned(), Source::name);
            findings.push(Finding::new(Rule::ForbidUnsafe, &path, 1, text));
        }
    }
}

fn is_in(path: &str, room: &Room) -> bool {
    if room.path.ends_with('/') { path.starts_with(room.path) } else { path == room.path }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(path: &str, text: &str) -> Vec<Rule> {
        let mut findings = Vec::new();
        check(&Source::new(path, text), &mut findings);
        findings.iter().map(|finding| finding.rule).collect()
    }

    fn tree(files: &[(&str, &str)]) -> Tree {
        let sources = files.iter().map(|(path, text)| Source::new(path, text)).collect();
        Tree { sources, documents: Vec::new() }
    }

    #[test]
    fn unsafe_outside_its_rooms_is_found() {
        let text = "fn a() { unsafe { b() } }";
        assert_eq!(rules("crates/io/runtime/src/volume.rs", text), [Rule::UnsafeRooms]);
        assert_eq!(rules("crates/core/parity/src/kernel/avx2.rs", text), []);
        assert_eq!(rules("a.rs", "#![forbid(unsafe_code)]\n// unsafe\n"), []);
    }

    #[test]
    fn a_room_without_unsafe_is_found() {
        let mut findings = Vec::new();
        let kernel = ("crates/core/parity/src/kernel/avx2.rs", "unsafe fn a() {}");
        let arena = ("crates/io/runtime/src/arena.rs", "fn a() {}");
        rooms_exist(&tree(&[kernel, arena]), &mut findings);
        let paths: Vec<&str> = findings.iter().map(|finding| finding.path.as_str()).collect();
        assert!(paths.contains(&"crates/io/runtime/src/arena.rs") && !paths.contains(&kernel.0));
        assert_eq!(paths.len(), ROOMS.len() - 1);
    }

    #[test]
    fn a_pure_crate_that_allows_unsafe_is_found() {
        let mut findings = Vec::new();
        let text = |name| match name {
            "engine" => "//! #![forbid(unsafe_code)]\n",
            _ => "//! A.\n#![forbid(unsafe_code)]\n",
        };
        let path = |name| format!("crates/core/{name}/src/lib.rs");
        let files: Vec<_> = FORBIDDEN.iter().map(|name| (path(name), text(*name))).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, *text)).collect();
        forbid(&tree(&files), &mut findings);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].path, "crates/core/engine/src/lib.rs");
    }
}
