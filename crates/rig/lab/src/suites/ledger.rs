//! Suite `ledger`: the engine's instructions for one request, counted by valgrind's callgrind.
//!
//! ```text
//!   braid-lab ledger ──▶ valgrind: ledger-load ──▶ a cell: warm up, [`counts`], [`ends_part`]
//!        ▲                                                                             │
//!        └── instructions of all requests of the cell ◀── a part of callgrind's output ┘
//! ```
//!
//! Then the next cell runs.
//!
//! The engine runs over null members, with the driver and the parity of the lab
//! ([`crate::driver`]). The load runs on one thread and reads not even the clock. So a figure
//! depends on the source and the compiler only, not on the machine's load or processor: valgrind
//! has a processor of its own. A case takes two seconds; `--small` counts one case.
//!
//! `tests/ledger.rs` holds each figure of a debug build below a ceiling; the ceilings here are
//! those of a release build.

use std::path::Path;
use std::process::Command;

use braid_engine::request::Operation;
use braid_engine::{CacheMode, Tuning};
use braid_parity::kernel_named;

use super::paths::{BLOCK_SECTORS, CHUNK_SECTORS, ROW_SECTORS, TUNING};
use crate::driver::{Driver, Kind, Load, Pattern, Places, Plan};
use crate::frame::{Case, Figure, Metric, Report, Series, Settings, Suite, Target};

pub(super) const SUITE: Suite = Suite {
    name: "ledger",
    about: "instructions of a request in the engine, counted; the same on every machine",
    run,
};

const METRIC: Metric = Metric::less("instructions", "instructions");
const WRITE: Operation = Operation::Write { durable: false };
/// The queue depth of the cases with a deep queue.
const DEPTH: usize = 32;
/// The parity kernel that valgrind's processor supports.
const KERNEL: &str = "avx2";
/// Requests that are not counted at first, while they fill pools and grow tables.
const WARM_UP: u64 = 1000;
const REQUESTS: u64 = 1000;
/// Sectors of a member, as in the suites `read` and `write`.
const MEMBER_SECTORS: u64 = 128 << 11;

struct Cell {
    name: &'static str,
    slots: u16,
    missing: Option<u16>,
    mode: CacheMode,
    operation: Operation,
    sectors: u32,
    /// Maximum number of instructions for a request, in a release build.
    ceiling: f64,
}

const READ: Cell = Cell {
    name: "4 KiB read",
    slots: 4,
    missing: None,
    mode: CacheMode::WriteThrough,
    operation: Operation::Read,
    sectors: BLOCK_SECTORS,
    ceiling: 1_665.0,
};
const SMALL: Cell = Cell { name: "4 KiB write, rcw", operation: WRITE, ceiling: 19_250.0, ..READ };

const CELLS: [Cell; 6] = [
    READ,
    Cell { name: "degraded 4 KiB read", missing: Some(1), ceiling: 4_500.0, ..READ },
    SMALL,
    // With six slots reconstruct-write would read four blocks, so read-modify-write is cheaper.
    Cell { name: "4 KiB write, rmw", slots: 6, ceiling: 20_510.0, ..SMALL },
    Cell {
        name: "4 KiB write, write-back",
        mode: CacheMode::WriteBack,
        ceiling: 19_020.0,
        ..SMALL
    },
    Cell { name: "192 KiB full-stripe write", sectors: ROW_SECTORS, ceiling: 33_220.0, ..SMALL },
];

fn run(settings: &Settings) -> Report {
    let mut report = Report::default();
    let mut wanted: Vec<&Cell> = CELLS.iter().filter(|cell| settings.wants(cell.name)).collect();
    if settings.small {
        wanted.truncate(1);
    }
    if wanted.is_empty() {
        return report;
    }
    let lab = std::env::current_exe().map_err(|error| error.to_string());
    match lab.and_then(|lab| count(&lab, &wanted)) {
        Ok(counted) => {
            let cases = wanted.iter().zip(counted).map(|(cell, count)| cell.case(count));
            cases.for_each(|case| report.add(Some(case)));
            report.note(format!(
                "{REQUESTS} requests each, after {WARM_UP} uncounted ones, {DEPTH} at once, over \
                 null members; RAID-5 of 4 members (rmw: 6), chunk 64 KiB; parity by {KERNEL}, \
                 driver included; instructions by callgrind"
            ));
        }
        Err(why) => report.note(format!("ledger: skipped, {why}")),
    }
    report
}

impl Cell {
    fn case(&self, instructions: f64) -> Case {
        let series = vec![Series { variant: "braid", values: vec![instructions] }];
        let figures = vec![Figure { metric: METRIC, series }];
        let ceiling =
            Target::value(METRIC.name, "braid", self.ceiling, "no commit is to cost more");
        Case { name: self.name.to_owned(), figures, targets: vec![ceiling] }
    }

    fn work(&self) -> Result<(), String> {
        let kernel = kernel_named(KERNEL).ok_or(format!("no parity by {KERNEL} here"))?;
        let tuning = Tuning { mode: self.mode, ..TUNING };
        let plan = Plan {
            kind: Kind::Null,
            slots: self.slots,
            chunk_sectors: CHUNK_SECTORS,
            member_sectors: MEMBER_SECTORS,
            missing: self.missing,
            tuning,
            payloads: DEPTH + (tuning.dirty_sectors_max / self.sectors) as usize,
            payload_sectors: self.sectors,
        };
        let pattern =
            if self.sectors == BLOCK_SECTORS { Pattern::Random } else { Pattern::Sequential };
        let mut load = Load {
            operation: self.operation,
            sectors: self.sectors,
            pattern,
            depth: DEPTH,
            requests: WARM_UP,
        };
        let mut driver = Driver::new(plan).counting(kernel);
        let mut places = Places::new(&load, driver.capacity_sectors(), 1);
        load.run(&mut driver, &mut places);
        driver.settle();
        load.requests = REQUESTS;
        counts(&load, &mut driver, &mut places);
        ends_part();
        Ok(())
    }
}

/// Runs the counted requests: callgrind counts this function, by its name.
#[inline(never)]
fn counts(load: &Load, driver: &mut Driver, places: &mut Places) {
    load.run(driver, places);
    driver.settle();
}

/// Marks the end of a part of callgrind's output.
#[inline(never)]
fn ends_part() {
    std::hint::black_box(());
}

/// Does the work of the cells of these names, for callgrind to count.
///
/// # Errors
/// The processor lacks the expected parity kernel.
pub fn work(cases: &[String]) -> Result<(), String> {
    let wanted = |cell: &&Cell| cases.iter().any(|case| case == cell.name);
    CELLS.iter().filter(wanted).try_for_each(Cell::work)
}

/// The instructions for a request of each of these cells. Runs the cells with the program `lab`.
fn count(lab: &Path, cells: &[&Cell]) -> Result<Vec<f64>, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let out = folder.path().join("out");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--collect-atstart=no"]);
    valgrind.args(["--toggle-collect=*suites*ledger*counts*", "--dump-before=*ends_part*"]);
    valgrind.arg(format!("--callgrind-out-file={}", out.display())).arg(lab);
    valgrind.arg("ledger-load").args(cells.iter().map(|cell| cell.name));
    let output = valgrind.output().map_err(|error| format!("valgrind: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("valgrind: {}: {}", output.status, said.trim_end()));
    }
    (1..=cells.len()).map(|part| total(&out.with_extension(part.to_string()))).collect()
}

fn total(part: &Path) -> Result<f64, String> {
    let text =
        std::fs::read_to_string(part).map_err(|error| format!("{}: {error}", part.display()))?;
    let line = text.lines().find_map(|line| line.strip_prefix("totals: "));
    let total = line.and_then(|total| total.trim().parse::<u32>().ok());
    let total = total.ok_or(format!("no count in {}", part.display()))?;
    Ok(f64::from(total) / f64::from(u32::try_from(REQUESTS).expect("few")))
}
