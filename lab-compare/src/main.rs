//! Measures braid's best parity kernel beside ISA-L's and memcpy, in turn: `cargo run --release [--
//! --quick] [KERNEL]`.
//!
//! First the program compares the bytes: ISA-L's P and Q must equal braid's. Then it prints for
//! each cell GB/s of data read, and the ratio braid to ISA-L within rounds. The limit is 0.90:
//! within 10 % or faster.

use std::process::ExitCode;

use braid_parity::{Kernel, definition, kernel, kernel_named};

mod isal;
#[allow(dead_code, reason = "shared with the crate's own benchmark, which uses more of it")]
#[path = "../../crates/core/parity/examples/throughput/measure.rs"]
mod measure;

use measure::{
    Arena, Contender, FOOTPRINTS, Footprint, SHAPES, Series, Shape, memcpy, processor, race,
    ratios, spread,
};

const BAR: f64 = 0.90;

fn braid(kernel: &'static Kernel, shape: Shape, footprint: Footprint) -> Contender<'static> {
    Contender {
        name: kernel.name(),
        bytes_read: shape.data * footprint.block_bytes,
        work: Box::new(move |stripe| match stripe.parity.as_mut_slice() {
            [p] => kernel.xor(p, &stripe.data),
            [p, q] => kernel.pq(&stripe.columns, p, q),
            _ => unreachable!("shapes have one or two blocks of parity"),
        }),
    }
}

fn isa_l(shape: Shape, footprint: Footprint) -> Contender<'static> {
    Contender {
        name: "ISA-L",
        bytes_read: shape.data * footprint.block_bytes,
        work: Box::new(|stripe| isal::generate(&stripe.data, &mut stripe.parity)),
    }
}

/// Checks for every shape and block length that ISA-L, braid's kernel and the definition write the
/// same bytes.
fn cross_check(kernel: &'static Kernel) {
    for shape in SHAPES {
        for footprint in FOOTPRINTS.map(Footprint::quick) {
            let mut arena = Arena::new(shape, footprint);
            let mut stripes = arena.stripes();
            let stripe = &mut stripes[0];
            let mut expected = [vec![0; footprint.block_bytes], vec![0; footprint.block_bytes]];
            let [p, q] = &mut expected;
            definition::pq(&stripe.columns, p, q);
            for contender in [braid(kernel, shape, footprint), isa_l(shape, footprint)] {
                stripe.parity.iter_mut().for_each(|block| block.fill(0x55));
                (contender.work)(stripe);
                for (found, expected) in stripe.parity.iter().zip(&expected) {
                    assert!(**found == **expected, "{} differs", contender.name);
                }
            }
        }
    }
}

/// Prints one cell; returns whether its ratio of braid to ISA-L reaches the limit.
fn print_cell(shape: Shape, footprint: Footprint, series: &[Series]) -> bool {
    let [braid, isa_l, memcpy] = series else { unreachable!("three contenders") };
    let ratio = spread(&ratios(braid, isa_l));
    let cell = |one: &Series| {
        let rate = spread(&one.rates);
        format!("{:6.1} ({:.1}..{:.1})", rate.median, rate.quartiles.0, rate.quartiles.1)
    };
    println!(
        "{:<20} {}+{}  {:<24}{:<24}{:<24}{:.2} ({:.2}..{:.2}) {}",
        footprint.name,
        shape.data,
        shape.parity,
        cell(braid),
        cell(isa_l),
        cell(memcpy),
        ratio.median,
        ratio.quartiles.0,
        ratio.quartiles.1,
        if ratio.median >= BAR { "meets" } else { "MISSES" },
    );
    ratio.median >= BAR
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let named = arguments.iter().find(|argument| !argument.starts_with("--"));
    let Some(kernel) = named.map_or(Some(kernel()), |name| kernel_named(name)) else {
        eprintln!("no such kernel here: {}", named.map_or("", String::as_str));
        return ExitCode::FAILURE;
    };
    cross_check(kernel);
    let rounds = if quick { 1 } else { 41 };
    println!("processor: {}; braid's kernel: {}", processor(), kernel.name());
    println!("GB/s of data read, one thread, median (quartiles) of {rounds} paired rounds");
    println!("P and Q of braid, ISA-L and the definition are the same bytes");
    println!(
        "{:<20} {:<4} {:<24}{:<24}{:<24}braid / ISA-L",
        "", "", "  braid", "  ISA-L", "  memcpy"
    );
    let mut met = true;
    for footprint in FOOTPRINTS.map(|footprint| if quick { footprint.quick() } else { footprint }) {
        for shape in SHAPES {
            let mut arena = Arena::new(shape, footprint);
            let contenders = [
                braid(kernel, shape, footprint),
                isa_l(shape, footprint),
                memcpy(shape, footprint),
            ];
            let series = race(&contenders, &mut arena.stripes(), footprint.sample_bytes, rounds);
            met &= print_cell(shape, footprint, &series);
        }
    }
    if met || quick { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
