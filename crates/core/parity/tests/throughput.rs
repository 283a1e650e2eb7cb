//! The benchmark works: every kernel has a line in every cell, each number is plausible, and no
//! kernel is absurdly slow.

use braid_parity::kernels;

#[path = "../examples/throughput/body.rs"]
mod body;
#[allow(dead_code, unreachable_pub, reason = "shared with the comparison, which uses more of it")]
#[path = "../examples/throughput/measure.rs"]
mod measure;

#[test]
fn every_cell_has_a_line() {
    let mut out = Vec::new();
    body::print(&mut out, true).unwrap();
    let text = String::from_utf8(out).unwrap();
    let cells = measure::FOOTPRINTS.len() * measure::SHAPES.len();
    let lines: Vec<_> = text.lines().skip(2).collect();
    assert_eq!(lines.len(), cells * (kernels().len() + 1), "{text}");
    for line in lines {
        let rate: f64 = line[39..48].trim().parse().unwrap_or_else(|_| panic!("{line}"));
        assert!(rate.is_finite() && rate >= 0.0, "{line}");
    }
}

/// If the compiler leaves one instruction outside the function with the kernel's target features,
/// the kernel is a hundred times slower, with right bytes. `avx2` once ran at 2 GB/s because of one
/// missing `#[inline(always)]`. A sound kernel computes P + Q ten times as fast as scalar. It
/// computes P alone twice as fast, since the compiler vectorizes scalar there.
#[test]
fn no_vector_kernel_is_slower_than_scalar() {
    let footprint = measure::FOOTPRINTS[0].quick();
    for shape in measure::SHAPES {
        let mut arena = measure::Arena::new(shape, footprint);
        let contenders: Vec<_> =
            kernels().iter().map(|kernel| body::contender(kernel, shape, footprint)).collect();
        let series = measure::race(&contenders, &mut arena.stripes(), footprint.sample_bytes, 5);
        let best: Vec<f64> = series.iter().map(|one| measure::spread(&one.rates).highest).collect();
        let scalar = best[best.len() - 1];
        let slack = if shape.parity == 1 { 4.0 } else { 1.0 };
        assert!(best.iter().all(|rate| rate * slack >= scalar), "{:?}: {best:?}", kernels());
    }
}
