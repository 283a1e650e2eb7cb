//! Suite `read`: the cost of a read, from the engine alone to a client of `braid serve`.

use braid_engine::request::Operation;

use super::paths::{self, BLOCK_SECTORS, BYTES, Path, QUOTED, RATE, ROW_SECTORS, load};
use super::{nbd, share};
use crate::driver::{Kind, Pattern};
use crate::frame::{Report, Settings, Suite, Target};

pub(super) const SUITE: Suite =
    Suite { name: "read", about: "the engine's read path over memory and over nothing", run };

const PATHS: [Path; 6] = [
    Path {
        name: "4 KiB random read, memory members",
        kind: Kind::Memory,
        missing: None,
        load: load(Operation::Read, BLOCK_SECTORS, Pattern::Random),
        targets: &[Target::value(RATE, "braid", 0.97e6, QUOTED)],
    },
    Path {
        name: "degraded 4 KiB random read, memory members",
        kind: Kind::Memory,
        missing: Some(1),
        load: load(Operation::Read, BLOCK_SECTORS, Pattern::Random),
        targets: &[Target::value(RATE, "braid", 0.61e6, QUOTED)],
    },
    Path {
        name: "192 KiB sequential read, memory members",
        kind: Kind::Memory,
        missing: None,
        load: load(Operation::Read, ROW_SECTORS, Pattern::Sequential),
        targets: &[Target::value(BYTES, "braid", 8.2, QUOTED)],
    },
    Path {
        name: "4 KiB random read, null members",
        kind: Kind::Null,
        missing: None,
        load: load(Operation::Read, BLOCK_SECTORS, Pattern::Random),
        targets: &[
            Target::value(RATE, "braid", 3.0e6, "below is a miss"),
            Target::value(RATE, "braid", 7.0e6, QUOTED),
        ],
    },
    Path {
        name: "degraded 4 KiB random read, null members",
        kind: Kind::Null,
        missing: Some(1),
        load: load(Operation::Read, BLOCK_SECTORS, Pattern::Random),
        targets: &[],
    },
    Path {
        name: "192 KiB sequential read, null members",
        kind: Kind::Null,
        missing: None,
        load: load(Operation::Read, ROW_SECTORS, Pattern::Sequential),
        targets: &[],
    },
];

const TWICE: Path = Path { name: "two workers, 4 KiB random read, memory members", ..PATHS[0] };

fn run(settings: &Settings) -> Report {
    let mut report = Report::default();
    report.add(paths::memcpy(settings));
    let peer = paths::peer(settings, &mut report, &PATHS);
    for path in PATHS {
        path.run(settings, &mut report, peer.as_ref());
    }
    report.add(TWICE.run_twice(settings));
    share::run(settings, &mut report);
    report.note("bare: the same copies without an engine; 4 members, chunk 64 KiB, one worker, 128 requests at once (32 of 192 KiB)");
    nbd::run(settings, &mut report, nbd::READS);
    report
}
