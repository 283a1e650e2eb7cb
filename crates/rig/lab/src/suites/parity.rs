//! Suite `parity`: GB/s of data that each parity kernel reads, compared with memcpy.
//!
//! The suite includes the parity crate's own benchmark: the same stripes, in the cache and far
//! beyond it.

use braid_parity::{Kernel, kernels};

#[allow(dead_code, unreachable_pub, missing_docs, reason = "shared with the crate's own benchmark")]
#[path = "../../../../core/parity/examples/throughput/measure.rs"]
mod measure;

use measure::{Arena, FOOTPRINTS, Footprint, SHAPES, Shape, Stripe};

use crate::frame::{Contender, Metric, Report, Settings, Suite, race};

pub(super) const SUITE: Suite =
    Suite { name: "parity", about: "P and Q by each kernel, beside memcpy", run };

const METRICS: [Metric; 1] = [Metric::more("data read", "GB/s")];

fn run(settings: &Settings) -> Report {
    let mut report = Report::default();
    for footprint in FOOTPRINTS {
        let footprint = if settings.small { footprint.quick() } else { footprint };
        for shape in SHAPES {
            let name = format!("{}+{}, {}", shape.data, shape.parity, footprint.name);
            report.add(cell(settings, &name, shape, footprint));
        }
    }
    report.note(
        "one thread; bytes of data read per second, without the written parity; memcpy is \
                 the yardstick",
    );
    report
}

fn cell(
    settings: &Settings,
    name: &str,
    shape: Shape,
    footprint: Footprint,
) -> Option<crate::frame::Case> {
    let mut arena = Arena::new(shape, footprint);
    let stripes = std::cell::RefCell::new((arena.stripes(), 0));
    let turn = |one: &measure::Contender<'_>| {
        let (stripes, cursor) = &mut *stripes.borrow_mut();
        vec![rate(one, stripes, cursor, footprint.sample_bytes)]
    };
    let copy = measure::memcpy(shape, footprint);
    let generators: Vec<_> =
        kernels().iter().rev().map(|kernel| generator(kernel, shape, footprint)).collect();
    let mut contenders = vec![Contender::new("memcpy", || turn(&copy))];
    for one in &generators {
        contenders.push(Contender::new(one.name, || turn(one)));
    }
    race(settings, name, &METRICS, contenders)
}

fn generator(
    kernel: &'static Kernel,
    shape: Shape,
    footprint: Footprint,
) -> measure::Contender<'static> {
    measure::Contender {
        name: kernel.name(),
        bytes_read: shape.data * footprint.block_bytes,
        work: Box::new(move |stripe| match stripe.parity.as_mut_slice() {
            [p] => kernel.xor(p, &stripe.data),
            [p, q] => kernel.pq(&stripe.columns, p, q),
            _ => unreachable!("shapes have one or two blocks of parity"),
        }),
    }
}

fn rate(
    one: &measure::Contender<'_>,
    stripes: &mut [Stripe<'_>],
    cursor: &mut usize,
    sample_bytes: usize,
) -> f64 {
    let calls = sample_bytes.div_ceil(one.bytes_read);
    let start = std::time::Instant::now();
    for _ in 0..calls {
        (one.work)(&mut stripes[*cursor]);
        *cursor = (*cursor + 1) % stripes.len();
    }
    #[allow(clippy::cast_precision_loss, reason = "below 2^52")]
    let bytes = (calls * one.bytes_read) as f64;
    bytes / start.elapsed().as_secs_f64() / 1e9
}
