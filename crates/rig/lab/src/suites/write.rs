//! Suite `write`: the cost of a write, from the engine alone to a client of `braid serve`.

use braid_engine::request::Operation;

use super::nbd;
use super::paths::{self, BLOCK_SECTORS, BYTES, Path, QUOTED, RATE, ROW_SECTORS, load};
use crate::driver::{Kind, Pattern};
use crate::frame::{Report, Settings, Suite, Target};

pub(super) const SUITE: Suite =
    Suite { name: "write", about: "the engine's write path over memory and over nothing", run };

const WRITE: Operation = Operation::Write { durable: false };

const PATHS: [Path; 4] = [
    Path {
        name: "192 KiB full-stripe write, memory members",
        kind: Kind::Memory,
        missing: None,
        load: load(WRITE, ROW_SECTORS, Pattern::Sequential),
        targets: &[Target::value(BYTES, "braid", 4.6, QUOTED)],
    },
    Path {
        name: "4 KiB random write, memory members",
        kind: Kind::Memory,
        missing: None,
        load: load(WRITE, BLOCK_SECTORS, Pattern::Random),
        targets: &[Target::value(RATE, "braid", 0.25e6, "raid5f cannot write part of a stripe")],
    },
    Path {
        name: "192 KiB full-stripe write, null members",
        kind: Kind::Null,
        missing: None,
        load: load(WRITE, ROW_SECTORS, Pattern::Sequential),
        targets: &[Target::value(RATE, "braid", 92e3, QUOTED)],
    },
    Path {
        name: "4 KiB random write, null members",
        kind: Kind::Null,
        missing: None,
        load: load(WRITE, BLOCK_SECTORS, Pattern::Random),
        targets: &[],
    },
];

const TWICE: [Path; 2] = [
    Path { name: "two workers, 192 KiB full-stripe write, memory members", ..PATHS[0] },
    Path { name: "two workers, 4 KiB random write, memory members", ..PATHS[1] },
];

fn run(settings: &Settings) -> Report {
    let mut report = Report::default();
    report.add(paths::memcpy(settings));
    let peer = paths::peer(settings, &mut report, &PATHS);
    for path in PATHS {
        path.run(settings, &mut report, peer.as_ref());
    }
    for path in TWICE {
        report.add(path.run_twice(settings));
    }
    report.note("bare: the same copies and the same parity without an engine; 4 members, chunk 64 KiB, one worker, 128 requests at once (32 of 192 KiB)");
    report.note("raid5f over null members: 92 K to 170 K full-stripe writes a second (quoted, not measured here)");
    nbd::run(settings, &mut report, nbd::WRITES);
    report
}
