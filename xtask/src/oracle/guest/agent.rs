//! The oracle's agent inside the guest: writes content that the host can compute again.
//!
//! Static, std only, built by the oracle itself with `rustc`; no part of the workspace's build.
//!
//!     agent fill     DEVICE SEED                     the whole device gets stream SEED
//!     agent fill-part DEVICE SEED FIRST COUNT         sectors get stream SEED
//!     agent scribble DEVICE SEED COUNT               COUNT writes at odd places, of stream SEED
//!     agent stamp    DEVICE GENERATION [FIRST COUNT] sectors get their stamps (default: all)
//!     agent patch    DEVICE PLACE OFFSET VALUE       a superblock's 32-bit field gets a value
//!     agent storm    DEVICE SEED                     random blocks get stream SEED by O_DIRECT
//!     agent files    FOLDER SEED COUNT LARGEST       COUNT files of stream SEED, each <= LARGEST
//!     agent stamped  FOLDER GENERATION COUNT LARGEST the same in whole sectors, which are stamps
//!     agent wrong    DEVICE OLD NEW                  counts sectors impossible after a storm
//!
//! A storm lasts until power is cut. `wrong` prints two numbers. PLACE is the superblock's byte on
//! the device. `patch` makes the checksum anew, as the kernel counts it: so the tests get layouts
//! that the kernel knows and mdadm does not create. Every command ends with fsync.

#![forbid(unsafe_code)]

mod pattern;

use std::fs::{File, OpenOptions};
use std::io::{Error, Result, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

const BUFFER: usize = 1 << 20;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Err(error) = run(&words) {
        eprintln!("agent {words:?}: {error}");
        std::process::exit(1);
    }
}

fn run(words: &[String]) -> Result<()> {
    let [command, device, numbers @ ..] = words else {
        return Err(Error::other("agent COMMAND DEVICE NUMBERS..."));
    };
    let numbers: Vec<u64> = numbers
        .iter()
        .map(|word| word.parse().map_err(|_| Error::other(format!("{word} is no number"))))
        .collect::<Result<_>>()?;
    match (command.as_str(), numbers.as_slice()) {
        ("files", [seed, count, largest]) => return files(device, (*seed, false), *count, *largest),
        ("stamped", [seed, count, largest]) => return files(device, (*seed, true), *count, *largest),
        _ => {}
    }
    let mut file = OpenOptions::new().read(true).write(true).open(device)?;
    let bytes = file.seek(SeekFrom::End(0))?;
    match (command.as_str(), numbers.as_slice()) {
        ("fill", [seed]) => fill(&file, *seed, 0, bytes)?,
        ("fill-part", [seed, first, count]) => {
            fill(&file, *seed, first * 512, (first + count) * 512)?;
        }
        ("scribble", [seed, count]) => {
            for (offset, length) in pattern::scribbles(*seed, bytes, *count) {
                fill(&file, *seed, offset, offset + length)?;
            }
        }
        ("stamp", [generation]) => stamps(&file, *generation, 0, bytes / 512)?,
        ("stamp", [generation, first, count]) => stamps(&file, *generation, *first, *count)?,
        ("storm", [seed]) => return storm(device, *seed, bytes),
        ("wrong", [old, new]) => return wrong(&file, *old, *new, bytes),
        ("patch", [place, offset, value]) => patch(&file, *place, *offset as usize, *value)?,
        _ => return Err(Error::other("unknown command")),
    }
    file.sync_all()
}

const FILES_IN_FOLDER: u64 = 12;

/// Writes files of four kinds of size, most of them small, without a sync.
fn files(folder: &str, (seed, stamped): (u64, bool), count: u64, largest: u64) -> Result<()> {
    let mut sector = 0;
    for number in 0..count {
        let within = format!("{folder}/{seed}-{}", number / FILES_IN_FOLDER);
        std::fs::create_dir_all(&within)?;
        let limit = (largest >> (3 * (number % 4))).max(1);
        let mut word = [0; 8];
        pattern::stream(seed, 8 * number, &mut word);
        let mut bytes = 1 + u64::from_le_bytes(word) % limit;
        if stamped {
            bytes = bytes.next_multiple_of(pattern::SECTOR as u64);
        }
        let mut content = vec![0; bytes as usize];
        if stamped {
            let generation = u8::try_from(seed).map_err(Error::other)?;
            for piece in content.chunks_mut(pattern::SECTOR) {
                pattern::repeat(pattern::stamp(generation, sector), piece);
                sector += 1;
            }
        } else {
            pattern::stream(seed + number, 0, &mut content);
        }
        std::fs::write(format!("{within}/{number}"), content)?;
    }
    Ok(())
}

/// A block in memory, aligned for O_DIRECT.
#[repr(align(4096))]
struct Block([u8; pattern::BLOCK]);

/// Number of blocks in flight at a time in a storm.
const STORM_THREADS: u64 = 16;
/// The value of O_DIRECT on Linux for this processor.
const O_DIRECT: i32 = 0o40_000;

fn storm(device: &str, seed: u64, bytes: u64) -> Result<()> {
    let mut blocks: Vec<u64> =
        (0..bytes / pattern::BLOCK as u64).filter(|block| pattern::is_stormed(*block)).collect();
    // Blocks are written in a pseudo-random order, each once.
    blocks.sort_by_key(|block| block.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17));
    std::thread::scope(|scope| {
        for thread in 0..STORM_THREADS {
            let blocks = &blocks;
            scope.spawn(move || -> Result<()> {
                let file = OpenOptions::new().write(true).custom_flags(O_DIRECT).open(device)?;
                let mut block = Box::new(Block([0; pattern::BLOCK]));
                for number in blocks.iter().skip(thread as usize).step_by(STORM_THREADS as usize) {
                    let at = number * pattern::BLOCK as u64;
                    pattern::stream(seed, at, &mut block.0);
                    file.write_all_at(&block.0, at)?;
                }
                Ok(())
            });
        }
    });
    Ok(())
}

fn wrong(file: &File, old: u64, new: u64, bytes: u64) -> Result<()> {
    let mut buffer = vec![0; BUFFER];
    let (mut untouched, mut torn, mut at) = (0, 0, 0);
    while at < bytes {
        let length = usize::try_from(bytes - at).unwrap_or(BUFFER).min(BUFFER);
        file.read_exact_at(&mut buffer[..length], at)?;
        let (more_untouched, more_torn) = pattern::wrong(old, new, at, &buffer[..length]);
        untouched += more_untouched;
        torn += more_torn;
        at += length as u64;
    }
    println!("{untouched} {torn}");
    Ok(())
}

fn fill(file: &File, seed: u64, from: u64, to: u64) -> Result<()> {
    let mut buffer = vec![0; BUFFER];
    let mut at = from;
    while at < to {
        let length = usize::try_from(to - at).unwrap_or(BUFFER).min(BUFFER);
        pattern::stream(seed, at, &mut buffer[..length]);
        file.write_all_at(&buffer[..length], at)?;
        at += length as u64;
    }
    Ok(())
}

fn stamps(file: &File, generation: u64, first: u64, count: u64) -> Result<()> {
    let generation = u8::try_from(generation).map_err(Error::other)?;
    let mut buffer = vec![0; BUFFER];
    let mut at = first;
    while at < first + count {
        let sectors = (first + count - at).min((BUFFER / pattern::SECTOR) as u64);
        let bytes = &mut buffer[..sectors as usize * pattern::SECTOR];
        for (sector, piece) in (at..).zip(bytes.chunks_mut(pattern::SECTOR)) {
            pattern::repeat(pattern::stamp(generation, sector), piece);
        }
        file.write_all_at(bytes, at * pattern::SECTOR as u64)?;
        at += sectors;
    }
    Ok(())
}

fn patch(file: &File, place: u64, offset: usize, value: u64) -> Result<()> {
    let mut block = vec![0; 4096];
    file.read_exact_at(&mut block, place)?;
    let word = |block: &[u8], at: usize| {
        u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
    };
    if word(&block, 0) != 0xa92b_4efc {
        return Err(Error::other("no superblock there"));
    }
    block[offset..offset + 4].copy_from_slice(&(value as u32).to_le_bytes());
    // md's sum of a 0.90 superblock covers its 4 KiB, with the sum at 152. The sum of a 1.x
    // superblock covers 256 bytes and two for each device, with the sum at 216.
    let (length, checksum) = match word(&block, 4) {
        0 => (4096, 152),
        _ => (256 + 2 * word(&block, 220) as usize, 216),
    };
    block[checksum..checksum + 4].fill(0);
    let mut sum = 0u64;
    for piece in block[..length].chunks(4) {
        let mut bytes = [0; 4];
        bytes[..piece.len()].copy_from_slice(piece);
        sum += u64::from(u32::from_le_bytes(bytes));
    }
    let folded = ((sum & 0xffff_ffff) + (sum >> 32)) as u32;
    block[checksum..checksum + 4].copy_from_slice(&folded.to_le_bytes());
    file.write_all_at(&block, place)
}
