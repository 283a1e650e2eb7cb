//! Work on bytes that a shard asks for: copies, parity, reconstruction; and how to carry it out.
//!
//! The machine only names buffers. [`run`] is the one interpreter of its steps, used by every
//! driver over its own [`Memory`], so that the arithmetic that is simulated is the arithmetic that
//! ships. The algebra is that of `braid_parity`.

use braid_geometry::SECTOR_BYTES;
use braid_parity::Kernel;

use crate::buffer::Buffer;

/// Name of a job; one per stripe at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u32);

/// Steps to be carried out in order, on runs of `sectors` sectors where a step names no own length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Comes back in [`crate::Shard::handle_job_done`].
    pub id: JobId,
    /// Length of the stripe window.
    pub sectors: u32,
    /// What to do.
    pub steps: Vec<Step>,
}

/// One step. Sources are indexed by exponent where Q is involved; none is a block of zeroes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// `to = from`.
    Copy {
        /// Source.
        from: Buffer,
        /// Target.
        to: Buffer,
        /// Length.
        sectors: u32,
    },
    /// `to = 0`.
    Zero {
        /// Target.
        to: Buffer,
        /// Length.
        sectors: u32,
    },
    /// `target = xor of sources`: P, or one lost column from P and the rest.
    Xor {
        /// Target.
        target: Buffer,
        /// Sources.
        sources: Vec<Buffer>,
    },
    /// `target ^= source`: the difference between old and new content.
    XorInto {
        /// Target.
        target: Buffer,
        /// Source.
        source: Buffer,
    },
    /// Q, and P with it if asked for, from every data column.
    Generate {
        /// Data columns by exponent.
        sources: Vec<Option<Buffer>>,
        /// Where P goes, if wanted.
        p: Option<Buffer>,
        /// Where Q goes.
        q: Buffer,
    },
    /// One lost data column from Q and the rest.
    RecoverFromQ {
        /// Data columns by exponent; none at `lost`.
        sources: Vec<Option<Buffer>>,
        /// Q.
        q: Buffer,
        /// Exponent of the lost column.
        lost: u16,
        /// Where it goes.
        out: Buffer,
    },
    /// Two lost data columns from P, Q and the rest.
    RecoverTwo {
        /// Data columns by exponent; none at both lost ones.
        sources: Vec<Option<Buffer>>,
        /// P.
        p: Buffer,
        /// Q.
        q: Buffer,
        /// Exponents of the lost columns.
        lost: (u16, u16),
        /// Where they go.
        out: (Buffer, Buffer),
    },
    /// `p ^= delta`, `q ^= g^exponent delta`: parity follows one data column.
    Update {
        /// Old content xor new content.
        delta: Buffer,
        /// Of the data column.
        exponent: u16,
        /// P, if it is kept.
        p: Option<Buffer>,
        /// Q, if it is kept.
        q: Option<Buffer>,
    },
}

/// A run of bytes in a driver's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where it starts.
    pub buffer: Buffer,
    /// Its length.
    pub length_bytes: usize,
}

/// A driver's memory: lends the bytes behind spans. Targets never overlap each other or a source.
pub trait Memory {
    /// Calls `work` with the bytes of `targets` and `sources`, in the same order.
    fn lend(&mut self, targets: &[Span], sources: &[Span], work: Work<'_>);
}

/// What is done with lent bytes: first the targets, then the sources.
pub type Work<'a> = &'a mut dyn FnMut(&mut [&mut [u8]], &[&[u8]]);

/// Carries out `job` over `memory` with `kernel`.
pub fn run(job: &Job, kernel: &Kernel, memory: &mut impl Memory) {
    for step in &job.steps {
        run_step(step, job.sectors, kernel, memory);
    }
}

fn span(buffer: Buffer, sectors: u32) -> Span {
    let bytes = u64::from(sectors) * SECTOR_BYTES;
    Span { buffer, length_bytes: usize::try_from(bytes).expect("a stripe unit is small") }
}

fn run_step(step: &Step, sectors: u32, kernel: &Kernel, memory: &mut impl Memory) {
    let whole = |buffer: &Buffer| span(*buffer, sectors);
    match step {
        Step::Copy { from, to, sectors } => {
            memory.lend(&[span(*to, *sectors)], &[span(*from, *sectors)], &mut |to, from| {
                to[0].copy_from_slice(from[0]);
            });
        }
        Step::Zero { to, sectors } => {
            memory.lend(&[span(*to, *sectors)], &[], &mut |to, _| to[0].fill(0));
        }
        Step::Xor { target, sources } => {
            let sources: Vec<Span> = sources.iter().map(whole).collect();
            memory.lend(&[whole(target)], &sources, &mut |target, sources| {
                kernel.xor(target[0], sources);
            });
        }
        Step::XorInto { target, source } => {
            memory.lend(&[whole(target)], &[whole(source)], &mut |target, sources| {
                kernel.xor_into(target[0], sources);
            });
        }
        Step::Generate { sources, p, q } => {
            let targets: Vec<Span> = p.iter().chain([q]).map(whole).collect();
            with_columns(memory, &targets, (sources, &[]), sectors, &mut |targets, columns, _| {
                match targets {
                    [p, q] => kernel.pq(columns, p, q),
                    [q] => kernel.q(columns, q),
                    _ => unreachable!("one or two targets were named"),
                }
            });
        }
        Step::RecoverFromQ { sources, q, lost, out } => {
            let also = [whole(q)];
            with_columns(
                memory,
                &[whole(out)],
                (sources, &also),
                sectors,
                &mut |out, columns, q| {
                    kernel.recover_data_from_q(columns, q[0], *lost, out[0]);
                },
            );
        }
        Step::RecoverTwo { sources, p, q, lost, out } => {
            let targets = [whole(&out.0), whole(&out.1)];
            let also = [whole(p), whole(q)];
            with_columns(memory, &targets, (sources, &also), sectors, &mut |out, columns, pq| {
                let [first, second] = out else { unreachable!("two targets were named") };
                kernel.recover_two_data(columns, (pq[0], pq[1]), *lost, (first, second));
            });
        }
        Step::Update { delta, exponent, p, q } => {
            let targets: Vec<Span> = p.iter().chain(q).map(whole).collect();
            memory.lend(&targets, &[whole(delta)], &mut |targets, delta| {
                let mut targets = targets.iter_mut().map(|target| &mut **target);
                let p = if p.is_some() { targets.next() } else { None };
                let q = if q.is_some() { targets.next() } else { None };
                kernel.pq_update(delta[0], *exponent, p, q);
            });
        }
    }
}

/// What a job does with targets, data columns by exponent, and further sources.
type ColumnWork<'a> = &'a mut dyn FnMut(&mut [&mut [u8]], &[Option<&[u8]>], &[&[u8]]);

/// Lends data columns as the parity kernels want them: by exponent, with gaps.
fn with_columns(
    memory: &mut impl Memory,
    targets: &[Span],
    (columns, also): (&[Option<Buffer>], &[Span]),
    sectors: u32,
    work: ColumnWork<'_>,
) {
    let present = columns.iter().flatten().map(|buffer| span(*buffer, sectors));
    let sources: Vec<Span> = present.chain(also.iter().copied()).collect();
    memory.lend(targets, &sources, &mut |targets, sources| {
        let (mut present, also) = {
            let (present, also) = sources.split_at(sources.len() - also.len());
            (present.iter().copied(), also)
        };
        let by_exponent: Vec<Option<&[u8]>> =
            columns.iter().map(|column| column.and_then(|_| present.next())).collect();
        work(targets, &by_exponent, also);
    });
}
