//! `cargo xtask oracle`: a real kernel's md against braid, both ways.
//!
//! ```text
//! matrix, golden, states     the arrays, and their events
//!    | spec, script          ... as arguments of mdadm and as shell
//! suite, proof, fixtures     conditions; saved results
//!    | braid/                braid on md's arrays, and md on braid's
//!    | content, describe     ... computed on the host
//! guest                      one boot: cases in, report and images out
//!    | drive, report, initramfs, cpio
//! guest/*.sh, guest/agent.rs programs inside the guest
//! scenarios/                 arrays that md made and a mishap broke: braid and mdadm rescue them
//! ```
//!
//! The oracle knows mdadm, QEMU and files. It never loads a module, makes a device or needs root:
//! md runs only in the guest.

mod braid;
mod containers;
mod content;
mod cpio;
mod describe;
mod drive;
#[allow(dead_code, unreachable_pub, reason = "shared by path; each user needs a part")]
#[path = "../../../oracle/fixture.rs"]
mod fixture;
mod fixtures;
mod golden;
mod guest;
mod host;
mod initramfs;
#[allow(dead_code, unreachable_pub, reason = "shared by path; each user needs a part")]
#[path = "../../../oracle/look.rs"]
mod look;
mod matrix;
#[allow(dead_code, unreachable_pub, reason = "shared by path; each user needs a part")]
#[path = "../../../oracle/pattern.rs"]
mod pattern;
mod proof;
mod report;
pub(crate) mod scenarios;
mod script;
mod spec;
mod states;
mod suite;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;

pub(crate) use cpio::Archive;
use guest::Guest;
pub(crate) use initramfs::{add_modules, add_programs};
use spec::Level;
use suite::Bench;

pub(crate) use initramfs::find_kernel;

/// The repository's root.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// The folder of the guest's cached parts, within the folder of images.
const CACHE: &str = "cache";
/// Boots at a time, if `--boots` is not given.
const BOOTS_DEFAULT: usize = 2;
/// Days until `cargo xtask test` has run every array and every part.
const SHARES: u8 = 4;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only arrays, or kinds of reshapes, whose name contains this
    #[arg(long, value_name = "WORD", default_value = "", hide_default_value = true)]
    only: String,
    /// Only a quarter of the arrays and of the test parts: every fourth, counted from this number
    #[arg(long, value_name = "0|1|2|3", value_parser = clap::value_parser!(u8).range(0..i64::from(SHARES)))]
    share: Option<u8>,
    /// Boots at a time
    #[arg(long, value_name = "N", default_value_t = BOOTS_DEFAULT)]
    boots: usize,
    /// The folder for images, a few GiB: target/oracle, unless said otherwise
    #[arg(long, value_name = "PATH")]
    folder: Option<PathBuf>,
    /// Write-intent bitmaps, and logs that come and go, alone, without the arrays
    #[arg(long, conflicts_with_all = ["only", "share", "proofs", "list"])]
    bitmaps: bool,
    /// Reshapes that md begins and braid ends, and the other way round, alone
    #[arg(long, conflicts_with_all = ["share", "proofs", "list", "bitmaps"])]
    reshapes: bool,
    /// The crash matrix of md beside braid alone, with so many crashes of each policy on each level
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["only", "share", "proofs", "list", "bitmaps"])]
    matrix: Option<usize>,
    /// The judge's own trial in full, which takes minutes more
    #[arg(long)]
    proofs: bool,
    /// List the arrays
    #[arg(long)]
    list: bool,
    /// Make fixtures instead
    #[arg(long, conflicts_with_all = ["list", "proofs", "bitmaps"])]
    make_fixtures: bool,
    /// Make those of foreign containers instead: oracle/containers
    #[arg(long, conflicts_with_all = ["list", "proofs", "bitmaps", "make_fixtures"])]
    make_containers: bool,
    /// The folder for fixtures: oracle/fixtures, unless said otherwise
    #[arg(long, value_name = "PATH", requires = "make_fixtures")]
    fixtures: Option<PathBuf>,
}

impl Options {
    /// Options for `cargo xtask test`: each day another quarter. The whole takes ten minutes more.
    fn today() -> Self {
        let days = std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs() / 86_400);
        Self {
            only: String::new(),
            share: u8::try_from(days % u64::from(SHARES)).ok(),
            boots: BOOTS_DEFAULT,
            folder: None,
            bitmaps: false,
            reshapes: false,
            matrix: None,
            proofs: false,
            list: false,
            make_fixtures: false,
            make_containers: false,
            fixtures: None,
        }
    }

    fn folder(&self) -> PathBuf {
        let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        let target = || target.unwrap_or_else(|| Path::new(ROOT).join("target"));
        self.folder.clone().unwrap_or_else(|| target().join("oracle"))
    }
}

/// Every fourth item, from number `share` on; all items for `None`.
fn share_of<T>(all: Vec<T>, share: Option<u8>) -> Vec<T> {
    let numbered = all.into_iter().zip((0..SHARES).cycle());
    let due = numbered.filter(|(_, number)| share.is_none_or(|share| share == *number));
    due.map(|(one, _)| one).collect()
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut specs = matrix::arrays();
    specs.retain(|spec| spec.name.contains(&options.only));
    if let Some(share) = options.share {
        println!(
            "every fourth array and part, from number {share} on; without --share it is all of them"
        );
    }
    specs = share_of(specs, options.share);
    if options.list {
        for spec in &specs {
            let note = if spec.can_be_created() { "" } else { "  (not by mdadm --create alone)" };
            println!("{}{note}", spec.name);
        }
        println!("{} arrays", specs.len());
        return Ok(());
    }
    let folder = options.folder();
    let guest = Arc::new(Guest::new(&folder.join(CACHE))?);
    let bench = Bench { folder, guest, boots: options.boots };
    let begun = Instant::now();
    let told = |what: &str, count: usize| {
        println!("{:6.1} s  {count:4} {what}", begun.elapsed().as_secs_f64());
    };
    if options.make_fixtures {
        let usual = || Path::new(ROOT).join("oracle/fixtures");
        let target = options.fixtures.clone().unwrap_or_else(usual);
        told("fixtures made", fixtures::make(&bench, &options.only, &target)?);
        return Ok(());
    }
    if options.make_containers {
        let target = Path::new(ROOT).join("oracle/containers");
        let all = containers::containers();
        told("fixtures made", fixtures::make_of(&bench, all, &options.only, &target)?);
        return Ok(());
    }
    if options.bitmaps {
        println!("{}", braid::run_bitmaps(&bench, begun)?);
        return Ok(());
    }
    if options.reshapes {
        println!("{}", braid::run_reshapes(&bench, (begun, &options.only))?);
        return Ok(());
    }
    if let Some(crashes) = options.matrix {
        println!("{}", braid::run_matrix(&bench, crashes)?);
        return Ok(());
    }
    if options.proofs {
        told("kinds of failure are told apart", proof::failures(&bench)?);
    }
    let made = bench.forward(&specs)?;
    told("arrays made and written by md", made.len());
    if options.proofs {
        told("of them pass md's own judgement", proof::just(&bench, &made)?);
        told("with members lost do too", proof::degraded(&bench, &made)?);
    }
    let severe = if options.proofs { Level::ALL.as_slice() } else { &[Level::Raid5] };
    told("damaged ones do not", proof::severe(&bench, &made, severe)?);
    let line = braid::run(&bench, &made, (begun, options.share))?;
    println!("{:6.1} s  {line}", begun.elapsed().as_secs_f64());
    Ok(())
}

/// Runs the share of today for `cargo xtask test`. If it succeeds, all images (GiB) are removed.
pub(crate) fn run_today() -> Result<()> {
    let options = Options::today();
    run(&options)?;
    for entry in std::fs::read_dir(options.folder())? {
        let path = entry?.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != CACHE) {
            std::fs::remove_dir_all(path)?;
        }
    }
    Ok(())
}
