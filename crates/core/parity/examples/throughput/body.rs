//! The benchmark's body: every kernel, every shape, every footprint, compared with memcpy.

use std::io::{self, Write};

use braid_parity::{Kernel, kernels};

use crate::measure::{
    Arena, Contender, FOOTPRINTS, Footprint, SHAPES, Shape, memcpy, processor, race, spread,
};

/// A contender that computes P alone, or P and Q, with one kernel.
pub(crate) fn contender(
    kernel: &'static Kernel,
    shape: Shape,
    footprint: Footprint,
) -> Contender<'static> {
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

/// Prints the table: GB/s of data read, median and lowest..highest over the rounds.
pub(crate) fn print(out: &mut impl Write, quick: bool) -> io::Result<()> {
    let rounds = if quick { 1 } else { 9 };
    writeln!(out, "processor: {}; GB/s of data read, one thread, {rounds} rounds", processor())?;
    writeln!(out, "{:<20} {:<5} {:<12} {:>8}   lowest..highest", "", "", "", "median")?;
    for footprint in FOOTPRINTS {
        let footprint = if quick { footprint.quick() } else { footprint };
        for shape in SHAPES {
            let mut arena = Arena::new(shape, footprint);
            let mut contenders: Vec<_> =
                kernels().iter().map(|kernel| contender(kernel, shape, footprint)).collect();
            contenders.push(memcpy(shape, footprint));
            let series = race(&contenders, &mut arena.stripes(), footprint.sample_bytes, rounds);
            for one in series {
                let rate = spread(&one.rates);
                writeln!(
                    out,
                    "{:<20} {:<5} {:<12} {:>8.1}   {:.1}..{:.1}",
                    footprint.name,
                    format!("{}+{}", shape.data, shape.parity),
                    one.name,
                    rate.median,
                    rate.lowest,
                    rate.highest
                )?;
            }
        }
    }
    Ok(())
}
