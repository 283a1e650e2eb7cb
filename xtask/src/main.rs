//! `cargo xtask`: the project's own chores.
//!
//! | Chore | What it does |
//! |---|---|
//! | `test` | all checks in one command, as continuous integration runs it |
//! | `tidy` | the house rules |
//! | `oracle` | arrays of the real kernel against ours, both ways |
//! | `scenarios` | arrays of the real kernel after mishaps: files that braid and mdadm recover |
//! | `sim` | crash and recover in the simulator, for a bounded time |
//! | `crash-loop` | `braid serve` killed and restarted on real files, for a bounded time |
//! | `take-overs` | an owner of an array on several hosts ended, and followed, many times |
//! | `filesystems` | ext4, xfs, btrfs under load: members die, rebuilds run, the server is killed |
//! | `guests` | virtual machines on an array, while members fail and the server is killed |
//! | `ublk` | the ublk door in a guest whose kernel has the driver |
//! | `reservations` | owners of disks that two hosts share, in a guest with an NVMe target |
//! | `models` | the hand-overs between threads, under every schedule or very many |
//! | `fuzz` | the parsers against chance, for a bounded time |
//! | `bench` | figures of the lab that moved against another revision |
//! | `hostile-memory` | clients that make a server hold memory, compared with other servers |

mod bench;
mod build;
mod crash;
mod dist;
mod each;
mod emulated;
mod filesystems;
mod fuzz;
mod guests;
mod hostile;
mod lab;
mod models;
mod newer_kernel;
mod oracle;
mod packages;
mod programs;
mod remedies;
mod server;
mod sim;
mod steps;
mod tidy;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// The project's own chores.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Line {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// All checks in one command, as continuous integration runs it
    Test(steps::Args),
    /// The house rules
    Tidy,
    /// Arrays of the real kernel against ours, both ways
    Oracle(oracle::Options),
    /// Arrays of the real kernel, broken by mishaps: the files that braid and mdadm recover
    Scenarios(oracle::scenarios::Options),
    /// Crash and recover in the simulator, for a bounded time
    Sim(sim::Options),
    /// `braid serve` killed and restarted on real files
    CrashLoop(crash::Options),
    /// The owner of an array on several hosts ended, and followed by another, many times
    TakeOvers(crash::take_overs::Options),
    /// File systems under load while members die, rebuilds run and the server is killed
    Filesystems(filesystems::Options),
    /// Virtual machines whose disk is an array, while members fail and the server is killed
    Guests(guests::Options),
    /// The ublk door in a guest whose kernel has the driver
    Ublk(newer_kernel::Options),
    /// Owners of disks that two hosts share, in a guest whose kernel has an NVMe target
    Reservations(newer_kernel::Options),
    /// The hand-overs between threads, under every schedule or very many (loom, shuttle)
    Models,
    /// The parsers against chance (needs the nightly toolchain)
    Fuzz(fuzz::Options),
    /// Figures of the lab that moved against another revision
    Bench(bench::Options),
    /// Clients that make a server hold memory: braid, nbdkit, qemu-nbd
    HostileMemory(hostile::Options),
    /// braid for another processor, under an emulator: tests, and the same bytes on members
    Emulated(emulated::Options),
    /// Packages, an archive, an image, a bill of materials
    Dist(dist::Args),
}

fn main() -> ExitCode {
    match run(&Line::parse().chore) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(chore: &Chore) -> Result<()> {
    match chore {
        Chore::Test(args) => steps::run(args),
        Chore::Tidy => tidy::run(),
        Chore::Oracle(options) => oracle::run(options),
        Chore::Scenarios(options) => oracle::scenarios::run(options),
        Chore::Sim(options) => sim::run(options),
        Chore::Filesystems(options) => filesystems::run(options).map(|_| ()),
        Chore::Guests(options) => guests::run(options).map(|_| ()),
        Chore::Ublk(options) => newer_kernel::run(&newer_kernel::UBLK, options),
        Chore::Reservations(options) => newer_kernel::run(&newer_kernel::RESERVATIONS, options),
        Chore::CrashLoop(options) => crash::run(options).map(|_| ()),
        Chore::TakeOvers(options) => crash::take_overs::run(options).map(|_| ()),
        Chore::Models => models::run().map(|_| ()),
        Chore::Fuzz(options) => fuzz::run(options).map(|_| ()),
        Chore::Bench(options) => bench::run(options),
        Chore::Dist(options) => dist::run(options),
        Chore::Emulated(options) => emulated::run(options),
        Chore::HostileMemory(options) => hostile::run(options),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Chore, clap::error::ErrorKind> {
        let words = ["cargo xtask"].into_iter().chain(words.split_whitespace());
        Line::try_parse_from(words).map(|line| line.chore).map_err(|error| error.kind())
    }

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Line::command().debug_assert();
    }

    #[test]
    fn every_documented_line_is_read() {
        for line in [
            "test",
            "test --skip oracle --skip sim",
            "tidy",
            "oracle --only raid6 --boots 1 --folder /tmp/x --proofs",
            "oracle --list",
            "oracle --bitmaps",
            "oracle --reshapes",
            "oracle --make-fixtures --fixtures /tmp/x",
            "scenarios --only wrong --braid /bin/braid",
            "scenarios --make-fixtures",
            "sim --seconds 5 --from 7",
            "crash-loop --rounds 3 --level 10 --members tmpfs --seed 1",
            "crash-loop --seconds 3",
            "crash-loop --reshapes 40 --rounds 2 --level 0",
            "take-overs --rounds 3 --seed 1 --braid /bin/braid",
            "take-overs --seconds 3 --only sleep",
            "take-overs --partitions",
            "take-overs --fio --seconds 1800",
            "filesystems --kind xfs --level 10 --door nbdfuse",
            "guests --only vhost-user --braid /bin/braid",
            "guests --only md-pairs",
            "ublk --braid /bin/braid",
            "reservations --braid /bin/braid",
            "models",
            "fuzz --seconds 5 bitmap ppl",
            "hostile-memory --braid /bin/braid",
            "dist --out /tmp/x --braid /bin/braid --clean-root",
            "dist --arch x86-64 --arch aarch64",
            "dist --guest",
            "emulated --arrays-only",
            "bench --against a7a20da --rounds 9 --only write --json bench.json",
        ] {
            assert!(parse(line).is_ok(), "{line}: {:?}", parse(line));
        }
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for line in [
            "",
            "luck",
            "test --skip luck",
            "test --skip",
            "test --fast",
            "oracle --only",
            "oracle --boots few",
            "sim --seconds",
            "crash-loop --level 7",
            "guests --only luck",
            "crash-loop --members nfs",
            "crash-loop --rounds",
            "crash-loop --reshapes 3 --jobs",
            "crash-loop --rounds 1 --seconds 1",
            "take-overs --rounds 1 --seconds 1",
            "take-overs --partitions --rounds 1",
            "take-overs --partitions --fio",
            "fuzz --seconds x",
            "fuzz --seconds 0",
            "fuzz --fast",
            "hostile-memory --braid",
            "bench --rounds 0",
            "bench --against",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
