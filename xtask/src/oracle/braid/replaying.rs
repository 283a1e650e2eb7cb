//! Partial parity logs (PPL): md writes a RAID-5, QEMU is killed, and a member is withheld. Sectors
//! without a write in flight must read as before.
//!
//! ```text
//!   md makes and fills ─┬▶ md is writing, killed ──────────────────────────────────┐
//!                       ├▶ braid is writing, killed ───────────────────────────────┤
//!                       └▶ a log that ends with its area, and a torn row, by hand ─┤
//!   images ◀───────────────────────────────────────────────────────────────────────┘
//!     └─ for each member withheld ─┬▶ braid serve --read-only
//!                                  │  md assembles them
//!                                  └▶ braid replay, then md assembles them
//! ```
//!
//! Linux 6.1 does not find the log that the test makes by hand, so md reads some sectors wrong;
//! their number is printed.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use braid_ondisk::{LoggedEntry, PplEntry, PplRecord, Probe};

use super::super::drive::Member;
use super::super::guest::{Case, Ending, Storm};
use super::super::look::look_at_image;
use super::super::pattern::{self, BLOCK};
use super::super::report::CaseReport;
use super::super::suite::Bench;
use super::array::copy;
use super::program::Program;
use super::tally::Tally;
use super::{MEMBER_SECTORS, present};

/// Members of the arrays.
const MEMBERS: usize = 4;
const CHUNK: u64 = 128;
/// The seed of the stream that fills the array.
pub(super) const OLD: u64 = 71;
/// The seed of the stream being written at the kill.
pub(super) const NEW: u64 = 72;
const SECTOR: u64 = 512;
pub(super) const COUNTS: [&str; 6] = [
    "crashes with a partial parity log",
    "starts with a member withheld",
    "sectors of parity made fit",
    "sectors without a write, wrong under braid",
    "sectors without a write, wrong under md",
    "sectors without a write, wrong under md after braid replay",
];

struct Crash {
    name: String,
    images: Vec<PathBuf>,
    /// Whether md is known to read some of the array wrong.
    is_lost_by_md: bool,
}

/// Number of crashes: one, unless `BRAID_PPL_CRASHES` gives another number.
fn crashes() -> usize {
    let said = std::env::var("BRAID_PPL_CRASHES").ok();
    said.and_then(|count| count.parse().ok()).unwrap_or(1)
}

/// Kills md and braid while they write; both programs start the images.
pub(super) fn run(bench: &Bench, program: &Program, tally: &Tally) -> Result<()> {
    let folder = bench.folder.join("replaying");
    std::fs::remove_dir_all(&folder).ok();
    let made = make(bench, &folder.join("made"))?;
    let mut left = vec![by_hand(&made, &folder.join("by-hand"))?];
    for number in 0..crashes() {
        left.push(killed(bench, &made, number, &folder)?);
        let name = format!("braid-killed-{number}");
        let images = braid_killed(program, &[], &made, number, &folder)?;
        ensure!(is_dirty(&images)?, "{name}: braid was not writing");
        left.push(Crash { name, images, is_lost_by_md: false });
    }
    let mut starts = Vec::new();
    for crash in &left {
        tally.count("crashes with a partial parity log", 1);
        for withheld in 0..MEMBERS {
            let started = start(program, crash, withheld, &folder)?;
            let (untouched, _) = started.by_braid;
            tally.count("starts with a member withheld", 1);
            tally.count("sectors of parity made fit", started.made_fit);
            tally.count("sectors without a write, wrong under braid", untouched);
            let fine = (untouched == 0).then_some(());
            let fine = fine.with_context(|| format!("{untouched} sectors without a write"));
            tally.check(&started.name, fine);
            starts.push(started);
        }
    }
    judged_by_md(bench, (&left, &starts), &folder, tally)
}

/// Images of an array that md made, filled and stopped in order.
fn make(bench: &Bench, folder: &Path) -> Result<Vec<PathBuf>> {
    let script = format!(
        "mdadm --create $A --run --metadata=1.2 --level=5 --raid-devices={MEMBERS} --homehost=oracle --assume-clean --chunk=64 \
         --consistency-policy=ppl $M1 $M2 $M3 $M4\nagent fill $A {OLD}\nmdadm --stop $A\n"
    );
    let members = vec![Member::zeros(MEMBER_SECTORS); MEMBERS];
    let case = Case { name: "ppl".to_owned(), members, script };
    let report = bench.run(vec![case], Ending::PowerOff, folder)?;
    report.cases["ppl"].succeeded()?;
    Ok((0..MEMBERS).map(|slot| folder.join(format!("ppl/{slot}.img"))).collect())
}

/// Kills QEMU while md writes the array.
fn killed(bench: &Bench, made: &[PathBuf], number: usize, folder: &Path) -> Result<Crash> {
    let name = format!("killed-{number}");
    let images = copy(made, &folder.join(&name))?;
    let script =
        format!("mdadm --assemble $A $M1 $M2 $M3 $M4\nagent storm $A {NEW} </dev/null 3>&- &\n");
    let lasting = Duration::from_millis(3000 + 700 * (number as u64 % 7));
    let storm = Storm { images: &images, writes_per_second: 150, script: &script, lasting };
    bench.guest.storm(&storm, &folder.join(format!("{name}-guest")))?;
    Ok(Crash { name, images, is_lost_by_md: false })
}

/// Kills braid while it writes the same blocks as the agent's storm on three data columns, with its
/// own content.
pub(super) fn braid_killed(
    program: &Program,
    words: &[&str],
    made: &[PathBuf],
    number: usize,
    folder: &Path,
) -> Result<Vec<PathBuf>> {
    let name = format!("braid-killed-{number}");
    let images = copy(made, &folder.join(&name))?;
    let bytes = (MEMBERS as u64 - 1) * (MEMBER_SECTORS - CHUNK) * SECTOR / 2;
    let blocks = (0..bytes / BLOCK as u64).filter(|block| pattern::is_stormed(*block));
    let mut blocks: Vec<u64> = blocks.collect();
    blocks.sort_by_key(|block| (block ^ number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let write = |block: &u64| format!("aio_write -q -P 170 {} {BLOCK}\n", block * BLOCK as u64);
    let commands = folder.join(format!("{name}-commands"));
    std::fs::write(&commands, blocks.iter().map(write).collect::<String>())?;
    program.killed_under(words, &images, &commands).context(name)?;
    Ok(images)
}

/// Whether the superblocks mark the array as dirty.
pub(super) fn is_dirty(images: &[PathBuf]) -> Result<bool> {
    let bytes = std::fs::read(images.first().context("an array has images")?)?;
    let Probe { superblocks, .. } = look_at_image("image", &bytes).probe;
    let Some(Ok(superblock)) = superblocks.first() else { bail!("no superblock") };
    Ok(superblock.state.resync_offset == 0)
}

/// A member image that the test changes by hand.
struct Image {
    path: PathBuf,
    uuid: [u8; 16],
    data_bytes: u64,
    log_bytes: u64,
    log_sectors: u64,
    super_bytes: u64,
}

impl Image {
    fn of(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path)?;
        let Probe { superblocks, .. } = look_at_image("image", &bytes).probe;
        let Some(Ok(superblock)) = superblocks.first() else { bail!("no superblock") };
        let (log_bytes, place) = superblock.ppl_area().context("no log")?;
        Ok(Self {
            path: path.to_owned(),
            uuid: superblock.uuid_as_stored(),
            data_bytes: superblock.device.data_offset_sectors * SECTOR,
            log_bytes,
            log_sectors: place.used_sectors(),
            super_bytes: superblock.device.super_offset_sectors * SECTOR,
        })
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        OpenOptions::new().write(true).open(&self.path)?.write_all_at(bytes, at)?;
        Ok(())
    }

    /// Marks the image's superblock as dirty.
    fn make_dirty(&self) -> Result<()> {
        let mut superblock = vec![0; 4096];
        let file = OpenOptions::new().read(true).open(&self.path)?;
        file.read_exact_at(&mut superblock, self.super_bytes)?;
        superblock[208..216].fill(0);
        let sum = braid_ondisk::checksum_v1(&superblock).context("no superblock")?;
        superblock[216..220].copy_from_slice(&sum.to_le_bytes());
        self.write(self.super_bytes, &superblock)
    }
}

/// Makes a torn row by hand: its parity was written and its data was not. The log's newest record
/// ends with the log's area. Row 0 has data in slots 0, 1, 2 and parity in slot 3.
fn by_hand(made: &[PathBuf], folder: &Path) -> Result<Crash> {
    let paths = copy(made, folder)?;
    let images = paths.iter().map(|path| Image::of(path)).collect::<Result<Vec<_>>>()?;
    images.iter().try_for_each(Image::make_dirty)?;
    let block = |number: u64, seed: u64| {
        let mut bytes = vec![0; BLOCK];
        pattern::stream(seed, number * BLOCK as u64, &mut bytes);
        bytes
    };
    // The first blocks of row 0 in slot 0 that the interrupted writes change; the other columns
    // keep their blocks.
    let chunk_blocks = CHUNK * SECTOR / BLOCK as u64;
    let numbers: Vec<u64> = (0..chunk_blocks).filter(|one| pattern::is_stormed(*one)).collect();
    let mut entries = Vec::new();
    for number in numbers.iter().take(3) {
        let mut partial = block(number + chunk_blocks, OLD);
        partial
            .iter_mut()
            .zip(block(number + 2 * chunk_blocks, OLD))
            .for_each(|(to, from)| *to ^= from);
        let mut parity = partial.clone();
        parity.iter_mut().zip(block(*number, NEW)).for_each(|(to, from)| *to ^= from);
        images[3].write(images[3].data_bytes + number * BLOCK as u64, &parity)?;
        let (data_sector, bytes) = (number * (BLOCK as u64 / SECTOR), u32::try_from(BLOCK)?);
        let entry = PplEntry {
            data_sector,
            parity_bytes: bytes,
            data_bytes: bytes,
            parity_slot: 3,
            checksum: 0,
        };
        entries.push(LoggedEntry { entry, partial });
    }
    ensure!(entries.len() == 3, "a storm writes less of the first chunk");
    let newest = PplRecord::bytes_of(1000, &entries, &images[3].uuid);
    let newest_sector = images[3].log_sectors - newest.len() as u64 / SECTOR;
    // A chain of records without entries leads to the log's newest record.
    for (generation, sector) in (1..).zip((0..newest_sector).step_by(8)) {
        let empty = PplRecord::bytes_of(generation, &[], &images[3].uuid);
        images[3].write(images[3].log_bytes + sector * SECTOR, &empty)?;
    }
    images[3].write(images[3].log_bytes + newest_sector * SECTOR, &newest)?;
    Ok(Crash { name: "by-hand".to_owned(), images: paths, is_lost_by_md: true })
}

/// The images after a crash, without one member.
struct Start {
    name: String,
    /// Number of unwritten sectors that braid reads wrong, and of sectors with neither old nor new
    /// content.
    by_braid: (usize, usize),
    /// Number of sectors that `braid replay` changed.
    made_fit: usize,
    /// The images as the crash left them.
    left: Vec<PathBuf>,
    /// The images after `braid replay`.
    replayed: Vec<PathBuf>,
}

/// braid starts the images after a crash: read-only, and by `braid replay`.
fn start(program: &Program, crash: &Crash, withheld: usize, folder: &Path) -> Result<Start> {
    let name = format!("{}-without-{withheld}", crash.name);
    let left = present(&crash.images, &[withheld]);
    let target = folder.join(format!("{name}.content"));
    program.copy_out(&[], &left, &target).with_context(|| name.clone())?;
    let (untouched, torn) = pattern::wrong(OLD, NEW, 0, &std::fs::read(&target)?);
    std::fs::remove_file(&target)?;
    let replayed = copy(&left, &folder.join(&name))?;
    program.replay(&replayed).with_context(|| name.clone())?;
    let by_braid = (usize::try_from(untouched)?, usize::try_from(torn)?);
    let mut made_fit = 0;
    for (before, after) in left.iter().zip(&replayed) {
        let (before, after) = (std::fs::read(before)?, std::fs::read(after)?);
        let sectors = before.chunks(pattern::SECTOR).zip(after.chunks(pattern::SECTOR));
        made_fit += sectors.filter(|(before, after)| before != after).count();
    }
    Ok(Start { name, by_braid, made_fit, left, replayed })
}

/// md starts the images of each crash: as the crash left them, and after `braid replay`.
fn judged_by_md(
    bench: &Bench,
    (crashes, starts): (&[Crash], &[Start]),
    folder: &Path,
    tally: &Tally,
) -> Result<()> {
    let script = format!(
        "mdadm --assemble --run $A $M1 $M2 $M3 || mdadm --assemble --run --force $A $M1 $M2 $M3\n\
         value wrong \"$(agent wrong $A {OLD} {NEW})\"\n"
    );
    let case = |name: String, images: &[PathBuf]| {
        let members = images.iter().map(|image| Member::image(image)).collect::<Result<_>>()?;
        Ok::<_, anyhow::Error>(Case { name, members, script: script.clone() })
    };
    let mut cases = Vec::new();
    for start in starts {
        cases.push(case(format!("{}-left", start.name), &start.left)?);
        cases.push(case(format!("{}-replayed", start.name), &start.replayed)?);
    }
    let report = bench.run(cases, Ending::PowerOff, &folder.join("judged"))?;
    let (mut by_hand, mut wrong) = (0, 0);
    for start in starts {
        let left = untouched(&report.cases[&format!("{}-left", start.name)])?;
        let replayed = untouched(&report.cases[&format!("{}-replayed", start.name)])?;
        let crash = crashes.iter().find(|crash| start.name.starts_with(&crash.name));
        let is_by_hand = crash.is_some_and(|crash| crash.is_lost_by_md);
        by_hand += if is_by_hand { left } else { 0 };
        wrong += left;
        let what = "sectors without a write, wrong under md after braid replay";
        tally.count(what, replayed);
        let fine = (replayed == 0).then_some(()).with_context(|| format!("{replayed} {what}"));
        tally.check(&start.name, fine);
        println!(
            "          {}: wrong under braid {}, md {left}, md after braid replay {replayed}; neither old nor new under braid {}",
            start.name, start.by_braid.0, start.by_braid.1
        );
    }
    tally.count("sectors without a write, wrong under md", wrong);
    let made_fit: usize = starts.iter().map(|start| start.made_fit).sum();
    ensure!(made_fit > 0, "no crash left parity that did not fit: the trial shows nothing");
    ensure!(by_hand > 0, "md finds the log that it was not to find: the trial shows nothing");
    Ok(())
}

/// Number of unwritten sectors that md reads wrong.
pub(super) fn untouched(case: &CaseReport) -> Result<usize> {
    case.succeeded()?;
    let words = case.value("wrong")?;
    let first = words.split(' ').next().and_then(|word| word.parse().ok());
    first.with_context(|| format!("md said {words}"))
}
