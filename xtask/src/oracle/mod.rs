//! `cargo xtask oracle`: a real kernel's md, held against braid, both ways.
//!
//! ```text
//! matrix, golden, states     which arrays, and what happens to them
//!    | spec, script          ... said to mdadm and to a shell
//! suite, proof, fixtures     what must be true; what is kept
//!    | braid/                what braid makes of md's arrays, and md of braid's
//!    | content, describe     ... computed on the host
//! guest                      one boot: cases in, report and images out
//!    | drive, report, initramfs, cpio
//! guest/*.sh, guest/agent.rs what runs inside
//! ```
//!
//! Knows mdadm, QEMU and files. It never loads a module, makes a device or needs root on the host:
//! everything that md touches is inside the guest.

mod braid;
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
mod script;
mod spec;
mod states;
mod suite;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use guest::Guest;
use spec::Level;
use suite::Bench;

const USAGE: &str = "\
usage: cargo xtask oracle [--proofs] [--only WORD] [--boots N] [--folder PATH]
       cargo xtask oracle --list [--only WORD]
       cargo xtask oracle --make-fixtures [--only WORD] [--fixtures PATH]

  --proofs         the judge's own trial in full, which takes minutes more
  --only WORD      only arrays whose name has WORD
  --boots N        boots at a time (2)
  --folder PATH    where images go (target/oracle); a few GiB
  --fixtures PATH  where fixtures go (oracle/fixtures)";

struct Options {
    only: String,
    boots: usize,
    folder: PathBuf,
    list: bool,
    proofs: bool,
    make_fixtures: bool,
    fixtures: Option<PathBuf>,
}

impl Options {
    fn read(args: Vec<String>) -> Result<Self> {
        let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        let target = target
            .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join("target"));
        let folder = target.join("oracle");
        let mut options = Self {
            only: String::new(),
            boots: 2,
            folder,
            list: false,
            proofs: false,
            make_fixtures: false,
            fixtures: None,
        };
        let mut args = args.into_iter();
        while let Some(word) = args.next() {
            let mut next =
                || args.next().with_context(|| format!("{word} needs a value\n\n{USAGE}"));
            match word.as_str() {
                "--only" => options.only = next()?,
                "--boots" => options.boots = next()?.parse().context("--boots N")?,
                "--folder" => options.folder = PathBuf::from(next()?),
                "--make-fixtures" => options.make_fixtures = true,
                "--fixtures" => options.fixtures = Some(PathBuf::from(next()?)),
                "--proofs" => options.proofs = true,
                "--list" => options.list = true,
                _ => bail!("{word} is not known\n\n{USAGE}"),
            }
        }
        Ok(options)
    }
}

/// Runs the oracle with the command line's further words.
pub(crate) fn run(args: Vec<String>) -> Result<()> {
    let options = Options::read(args)?;
    let mut specs = matrix::arrays();
    specs.retain(|spec| spec.name.contains(&options.only));
    if options.list {
        for spec in &specs {
            let note = if spec.can_be_created() { "" } else { "  (not by mdadm --create alone)" };
            println!("{}{note}", spec.name);
        }
        println!("{} arrays", specs.len());
        return Ok(());
    }
    let guest = Guest::new(&options.folder.join("cache"))?;
    let bench = Bench { folder: options.folder.clone(), guest, boots: options.boots };
    let begun = Instant::now();
    let told = |what: &str, count: usize| {
        println!("{:6.1} s  {count:4} {what}", begun.elapsed().as_secs_f64());
    };
    if options.make_fixtures {
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../oracle/fixtures");
        let target = options.fixtures.unwrap_or(target);
        told("fixtures made", fixtures::make(&bench, &options.only, &target)?);
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
    let line = braid::run(&bench, &made, begun)?;
    println!("{:6.1} s  {line}", begun.elapsed().as_secs_f64());
    Ok(())
}
