//! Measures an array by vhost-user-blk, of braid and of qemu-storage-daemon, beside NBD and FUSE:
//! `cargo run --release -- BRAID [ROUNDS]`.
//!
//! ```text
//! braid ─┬─ NBD ──────────────────────────────────── nbd
//!        ├─ vhost-user ───────────────────────────── block (blkio)
//!        ├─ NBD ─ qemu-storage-daemon ─ vhost-user ── block (blkio)
//!        ├─ NBD ─ qemu-storage-daemon ─ FUSE ──────── block (blkio, io_uring)
//!        └─ FUSE ──────────────────────────────────── block (blkio, io_uring)
//! ```
//!
//! One array, a RAID-5 of four files in memory, serves all transports at once. One program measures
//! one transport after the other, so that disturbances of the machine hit all of them. For each
//! cell it prints requests per second, and the ratio to NBD within rounds.

mod block;
mod nbd;
mod servers;
mod transport;

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use servers::Servers;
use transport::{Shape, Transport};

/// Time of one measurement: one transport, one cell, one round.
const TURN: Duration = Duration::from_millis(800);
const ROUNDS_DEFAULT: usize = 5;
/// Requests lie in this many bytes of the array.
const SPAN_BYTES: u64 = 256 << 20;

const SHAPES: [Shape; 5] = [
    Shape { name: "4 KiB reads, 1 at once", length: 4 << 10, depth: 1, is_write: false },
    Shape { name: "4 KiB reads, 32 at once", length: 4 << 10, depth: 32, is_write: false },
    Shape { name: "4 KiB writes, 32 at once", length: 4 << 10, depth: 32, is_write: true },
    Shape { name: "1 MiB reads, 4 at once", length: 1 << 20, depth: 4, is_write: false },
    Shape { name: "1 MiB writes, 4 at once", length: 1 << 20, depth: 4, is_write: true },
];

/// Measures requests per second.
fn measure(
    transport: &mut dyn Transport,
    shape: Shape,
    seed: &mut u64,
) -> Result<f64, Box<dyn Error>> {
    let begun = Instant::now();
    let mut free: Vec<usize> = (0..shape.depth).collect();
    let mut done = 0_u32;
    loop {
        if begun.elapsed() < TURN {
            for slot in free.drain(..) {
                transport.submit(slot, place(seed, shape), shape);
            }
        } else if free.len() == shape.depth {
            return Ok(f64::from(done) / begun.elapsed().as_secs_f64());
        }
        let answered = transport.complete()?;
        done += u32::try_from(answered.len())?;
        free.extend(answered);
    }
}

/// A random offset in the span, at a multiple of the request's length.
fn place(seed: &mut u64, shape: Shape) -> u64 {
    // xorshift64
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    let length = shape.length as u64;
    *seed % (SPAN_BYTES / length) * length
}

fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let braid = words.next().map(PathBuf::from).ok_or("usage: braid-lab-vhost BRAID [ROUNDS]")?;
    let rounds = words.next().map_or(Ok(ROUNDS_DEFAULT), |word| word.parse())?;
    let servers = Servers::start(&braid)?;
    let mut transports = servers.transports()?;
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    for shape in SHAPES {
        let mut rates: Vec<Vec<f64>> = vec![Vec::new(); transports.len()];
        for _ in 0..rounds {
            for (transport, rates) in transports.iter_mut().zip(&mut rates) {
                rates.push(measure(transport.as_mut(), shape, &mut seed)?);
            }
        }
        println!("{}", shape.name);
        for (transport, own) in transports.iter().zip(&rates) {
            let ratios = own.iter().zip(&rates[0]).map(|(own, nbd)| own / nbd).collect();
            let (rate, low, high) = spread(own.clone());
            let (ratio, least, most) = spread(ratios);
            println!(
                "  {:<34} {rate:>9.0}/s ({low:.0} to {high:.0})  {ratio:.2}x of NBD ({least:.2} to {most:.2})",
                transport.name()
            );
        }
    }
    drop(transports);
    servers.stop()
}
