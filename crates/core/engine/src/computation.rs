//! Computations that a shard requests: copies, parity, reconstruction; and their interpreter.
//!
//! The machine only names buffers. [`run`] is the one interpreter of its steps. Every driver uses
//! it over its own [`Memory`], so the simulator and the product run the same arithmetic. The
//! algebra is that of `braid_parity`.

use braid_geometry::SECTOR_BYTES;
use braid_parity::{Column, ColumnSet, Kernel};
use smallvec::SmallVec;

use crate::buffer::Buffer;
use crate::lost_content::lost_sector;
use crate::rot::{ColumnVerdict, CopyVerdict};
use crate::sectors::SectorSet;

const SECTOR_LENGTH: usize = 512;
const _: () = assert!(SECTOR_LENGTH as u64 == SECTOR_BYTES, "as long as everywhere else");

/// Name of a computation, until the driver has carried it out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComputationId(pub u64);

/// Steps for the driver to carry out, and their results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Computation {
    /// The computation's name. The driver returns the computation to
    /// [`crate::Shard::handle_computation_done`], and the shard reuses the memory.
    pub id: ComputationId,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The buffers that [`Sources`] name. Steps that compute Q index them by exponent; `None`
    /// stands for zeroes.
    pub buffers: Vec<Option<Buffer>>,
    /// A result: the sectors found by each [`Step::Find`], at the index that the step names.
    pub found: SmallVec<[SectorSet; 2]>,
    /// A result: the sums of all [`Step::Partial`] and [`Step::PartialQ`], one after the other.
    pub partial: Vec<u8>,
    /// The verdicts of a [`Step::Locate`] or a [`Step::Vote`]. Boxed, because they are rare and
    /// large.
    pub verdicts: Option<Box<Verdicts>>,
}

/// The verdicts of a computation on columns or on copies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// The result of a [`Step::Locate`].
    pub located: ColumnVerdict,
    /// The result of a [`Step::Vote`].
    pub voted: CopyVerdict,
}

/// A run of a computation's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sources {
    first: u32,
    count: u32,
}

impl Computation {
    /// The verdict of a [`Step::Locate`], if the computation had one.
    pub(crate) fn located(&self) -> Option<&ColumnVerdict> {
        self.verdicts.as_deref().map(|verdicts| &verdicts.located)
    }

    /// The verdict of a [`Step::Vote`], if the computation had one.
    pub(crate) fn voted(&self) -> Option<&CopyVerdict> {
        self.verdicts.as_deref().map(|verdicts| &verdicts.voted)
    }

    /// Appends `buffers` to the computation's buffers, and returns the run that a step names.
    pub(crate) fn sources(&mut self, buffers: impl Iterator<Item = Option<Buffer>>) -> Sources {
        let first = self.buffers.len();
        self.buffers.extend(buffers);
        let number = |n: usize| u32::try_from(n).expect("a computation has a few buffers");
        Sources { first: number(first), count: number(self.buffers.len() - first) }
    }

    /// Appends the step that adds `sources` to `target` by exclusive-or.
    pub(crate) fn xor_into(
        &mut self,
        target: Buffer,
        sources: impl Iterator<Item = Buffer>,
        sectors: u32,
    ) {
        let sources = self.sources(sources.map(Some));
        self.steps.push(Step::XorInto { target, sources, sectors });
    }

    fn buffers_of(&self, sources: Sources) -> &[Option<Buffer>] {
        &self.buffers[sources.first as usize..][..sources.count as usize]
    }
}

/// One step of a computation: an operation on whole sectors of buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// `target = xor of sources`: P, or one lost column from P and the other columns.
    Xor {
        /// Target.
        target: Buffer,
        /// Sources.
        sources: Sources,
        /// Length.
        sectors: u32,
    },
    /// Appends the exclusive-or of `sources` to [`Computation::partial`]: partial parity for a log,
    /// or one block for a journal.
    Partial {
        /// Sources; without any, the sum is zeroes.
        sources: Sources,
        /// Length.
        sectors: u32,
    },
    /// Appends a partial Q to [`Computation::partial`]: the columns of `sources`, each multiplied
    /// as in Q, plus `q` as it is.
    PartialQ {
        /// Data columns by exponent.
        sources: Sources,
        /// The old Q, if the step shall subtract the written columns from it.
        q: Option<Buffer>,
        /// Length.
        sectors: u32,
    },
    /// `target ^= xor of sources`: the difference of old and new content, or P updated for several
    /// columns in one pass.
    XorInto {
        /// Target.
        target: Buffer,
        /// Sources.
        sources: Sources,
        /// Length.
        sectors: u32,
    },
    /// Computes Q, and P if wanted, from all data columns.
    Generate {
        /// Data columns by exponent.
        sources: Sources,
        /// Where P goes, if wanted.
        p: Option<Buffer>,
        /// Where Q goes.
        q: Buffer,
        /// Length.
        sectors: u32,
    },
    /// Computes one lost data column from Q and the other data columns.
    RecoverFromQ {
        /// Data columns by exponent; none at `lost`.
        sources: Sources,
        /// Q.
        q: Buffer,
        /// Exponent of the lost column.
        lost: u16,
        /// Target for the lost column.
        out: Buffer,
        /// Length.
        sectors: u32,
    },
    /// Computes two lost data columns from P, Q and the other data columns.
    RecoverTwo {
        /// Data columns by exponent; none at the two lost ones.
        sources: Sources,
        /// P.
        p: Buffer,
        /// Q.
        q: Buffer,
        /// Exponents of the lost columns.
        lost: (u16, u16),
        /// Targets for the lost columns.
        out: (Buffer, Buffer),
        /// Length.
        sectors: u32,
    },
    /// `p ^= delta`, `q ^= g^exponent delta`: updates parity for a change of one data column.
    Update {
        /// Old content xor new content.
        delta: Buffer,
        /// Exponent of the data column.
        exponent: u16,
        /// P, if it is to be updated.
        p: Option<Buffer>,
        /// Q, if it is to be updated.
        q: Option<Buffer>,
        /// Length.
        sectors: u32,
    },
    /// Notes in [`Computation::found`] the sectors in which the sum of parity and data is not zero.
    Find {
        /// The stripe unit that holds the sum. Offsets in the result count from its start.
        unit: Buffer,
        /// First sector to look at, in the stripe unit.
        offset: u32,
        /// Length.
        sectors: u32,
        /// Index of the result in [`Computation::found`].
        into: u16,
    },
    /// Notes in [`Computation::found`] the sectors with the content of a lost sector.
    FindLost {
        /// The stripe unit to search. Offsets in the result count from its start.
        unit: Buffer,
        /// Length.
        sectors: u32,
        /// Index of the result in [`Computation::found`].
        into: u16,
    },
    /// Notes in [`Verdicts::located`] the wrong column of each sector, by the residues of P and Q.
    Locate {
        /// The residue of P, from the start of a stripe unit.
        p: Buffer,
        /// The residue of Q, from the start of a stripe unit.
        q: Buffer,
        /// The data columns, by exponent.
        columns: Sources,
        /// The sectors to look at.
        among: SectorSet,
    },
    /// Compares copies sector by sector. Notes the wrong copies in [`Verdicts::voted`], and for
    /// each copy the sectors that differ from the first copy in [`Computation::found`].
    Vote {
        /// The copies, without those that could not be read.
        copies: Sources,
        /// Length.
        sectors: u32,
    },
}

/// A run of bytes in a driver's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The start of the run.
    pub buffer: Buffer,
    /// The length of the run.
    pub length_bytes: usize,
}

/// The driver's memory: lends a computation the bytes that its spans name. A computation's target
/// spans overlap neither each other nor its source spans.
pub trait Memory {
    /// Calls `work` with the bytes of `targets` and `sources`, in the same order.
    fn lend(&mut self, targets: &[Span], sources: &[Span], work: Work<'_>);
}

/// Work on lent bytes: the first argument has the targets, the second the sources.
pub type Work<'a> = &'a mut dyn FnMut(&mut [&mut [u8]], &[&[u8]]);

/// Most arrays have at most this many columns; a computation on more columns allocates.
const COLUMNS: usize = 16;
type Few<T> = SmallVec<[T; COLUMNS]>;

/// Carries out `computation` over `memory` with `kernel`, and notes the results in `computation`.
pub fn run(computation: &mut Computation, kernel: &Kernel, memory: &mut impl Memory) {
    let (mut found, mut verdicts, mut partial) = Default::default();
    let mut runner = Runner {
        computation,
        kernel,
        memory,
        found: &mut found,
        verdicts: &mut verdicts,
        partial: &mut partial,
    };
    for step in &computation.steps {
        runner.run(step);
    }
    (computation.found, computation.verdicts, computation.partial) = (found, verdicts, partial);
}

fn span(buffer: Buffer, sectors: u32) -> Span {
    let bytes = u64::from(sectors) * SECTOR_BYTES;
    Span { buffer, length_bytes: usize::try_from(bytes).expect("a stripe unit is small") }
}

struct Runner<'a, M> {
    computation: &'a Computation,
    kernel: &'a Kernel,
    memory: &'a mut M,
    found: &'a mut SmallVec<[SectorSet; 2]>,
    verdicts: &'a mut Option<Box<Verdicts>>,
    partial: &'a mut Vec<u8>,
}

impl<M: Memory> Runner<'_, M> {
    fn run(&mut self, step: &Step) {
        let kernel = self.kernel;
        match *step {
            Step::Copy { from, to, sectors } => {
                self.memory.lend(&[span(to, sectors)], &[span(from, sectors)], &mut |to, from| {
                    to[0].copy_from_slice(from[0]);
                });
            }
            Step::Zero { to, sectors } => {
                self.memory.lend(&[span(to, sectors)], &[], &mut |to, _| to[0].fill(0));
            }
            Step::Xor { target, sources, sectors } => {
                let named = self.computation.buffers_of(sources).iter().flatten();
                let sources: Few<Span> = named.map(|buffer| span(*buffer, sectors)).collect();
                self.memory.lend(&[span(target, sectors)], &sources, &mut |target, sources| {
                    kernel.xor(target[0], sources);
                });
            }
            Step::Partial { sources, sectors } => {
                let named = self.computation.buffers_of(sources).iter().flatten();
                let sources: Few<Span> = named.map(|buffer| span(*buffer, sectors)).collect();
                let partial = &mut *self.partial;
                self.memory.lend(&[], &sources, &mut |_, sources| {
                    let start = partial.len();
                    match sources.first() {
                        Some(first) => partial.extend_from_slice(first),
                        None => partial.resize(start + sectors as usize * SECTOR_LENGTH, 0),
                    }
                    if sources.len() > 1 {
                        kernel.xor_into(&mut partial[start..], &sources[1..]);
                    }
                });
            }
            Step::PartialQ { sources, q, sectors } => {
                let start = self.partial.len();
                let length_bytes = u64::from(sectors) * SECTOR_BYTES;
                let length = usize::try_from(length_bytes).expect("a stripe unit is small");
                self.partial.resize(start + length, 0);
                let mut partial = std::mem::take(self.partial);
                let also: Few<Span> = q.iter().map(|buffer| span(*buffer, sectors)).collect();
                self.with_columns(&[], (sources, sectors, &also), &mut |_, columns, also| {
                    let target = &mut partial[start..];
                    kernel.q(columns, target);
                    kernel.xor_into(target, also);
                });
                *self.partial = partial;
            }
            Step::XorInto { target, sources, sectors } => {
                let named = self.computation.buffers_of(sources).iter().flatten();
                let sources: Few<Span> = named.map(|buffer| span(*buffer, sectors)).collect();
                self.memory.lend(&[span(target, sectors)], &sources, &mut |target, sources| {
                    kernel.xor_into(target[0], sources);
                });
            }
            Step::Generate { sources, p, q, sectors } => {
                let targets: Few<Span> =
                    p.into_iter().chain([q]).map(|b| span(b, sectors)).collect();
                self.with_columns(&targets, (sources, sectors, &[]), &mut |targets, columns, _| {
                    match targets {
                        [p, q] => kernel.pq(columns, p, q),
                        [q] => kernel.q(columns, q),
                        _ => unreachable!("one or two targets were named"),
                    }
                });
            }
            Step::RecoverFromQ { sources, q, lost, out, sectors } => {
                let (out, q) = ([span(out, sectors)], [span(q, sectors)]);
                self.with_columns(&out, (sources, sectors, &q), &mut |out, columns, q| {
                    kernel.recover_data_from_q(columns, q[0], lost, out[0]);
                });
            }
            Step::RecoverTwo { sources, p, q, lost, out, sectors } => {
                let targets = [span(out.0, sectors), span(out.1, sectors)];
                let also = [span(p, sectors), span(q, sectors)];
                self.with_columns(&targets, (sources, sectors, &also), &mut |out, columns, pq| {
                    let [first, second] = out else { unreachable!("two targets were named") };
                    kernel.recover_two_data(columns, (pq[0], pq[1]), lost, (first, second));
                });
            }
            Step::Update { delta, exponent, p, q, sectors } => {
                let targets: Few<Span> = p.into_iter().chain(q).map(|b| span(b, sectors)).collect();
                self.memory.lend(&targets, &[span(delta, sectors)], &mut |targets, delta| {
                    let mut targets = targets.iter_mut().map(|target| &mut **target);
                    let p = if p.is_some() { targets.next() } else { None };
                    let q = if q.is_some() { targets.next() } else { None };
                    kernel.pq_update(delta[0], exponent, p, q);
                });
            }
            Step::Find { unit, offset, sectors, into } => {
                let differs = |sector: &[u8]| sector.iter().any(|byte| *byte != 0);
                self.find((unit, offset, sectors), into, &differs);
            }
            Step::FindLost { unit, sectors, into } => {
                self.find((unit, 0, sectors), into, &|sector| sector == lost_sector());
            }
            Step::Locate { p, q, columns, among } => self.locate((p, q), columns, among),
            Step::Vote { copies, sectors } => self.vote(copies, sectors),
        }
    }

    /// Adds the sectors whose bytes pass `fits` to the result with the index `into`.
    fn find(
        &mut self,
        (unit, offset, sectors): (Buffer, u32, u32),
        into: u16,
        fits: &dyn Fn(&[u8]) -> bool,
    ) {
        let into = usize::from(into);
        if self.found.len() <= into {
            self.found.resize(into + 1, SectorSet::EMPTY);
        }
        let set = &mut self.found[into];
        self.memory.lend(&[], &[span(unit.plus(offset), sectors)], &mut |_, bytes| {
            let sectors = (offset..).zip(bytes[0].chunks_exact(SECTOR_LENGTH));
            let fitting = sectors.filter(|(_, bytes)| fits(bytes));
            *set = fitting.fold(*set, |set, (at, _)| set.union(SectorSet::run(at, 1)));
        });
    }

    fn locate(&mut self, (p, q): (Buffer, Buffer), columns: Sources, among: SectorSet) {
        let exponents = (0..).zip(self.computation.buffers_of(columns));
        let data = exponents.filter(|(_, column)| column.is_some());
        let data = data.fold(ColumnSet::EMPTY, |set, (at, _)| set.with(Column::Data(at)));
        let (kernel, located) = (self.kernel, &mut self.verdicts.get_or_insert_default().located);
        for extent in among.extents() {
            let spans = [p, q].map(|unit| span(unit.plus(extent.offset), extent.sectors));
            self.memory.lend(&[], &spans, &mut |_, residues| {
                let sectors =
                    residues.first().into_iter().zip(residues.get(1)).flat_map(|(p, q)| {
                        p.chunks_exact(SECTOR_LENGTH).zip(q.chunks_exact(SECTOR_LENGTH))
                    });
                for (at, (p, q)) in (extent.offset..).zip(sectors) {
                    located.add(at, braid_parity::locate(kernel, p, q, &data));
                }
            });
        }
        located.settle();
    }

    fn vote(&mut self, copies: Sources, sectors: u32) {
        let buffers = self.computation.buffers_of(copies);
        let read = (0..).zip(buffers).filter_map(|(at, buffer)| buffer.map(|buffer| (at, buffer)));
        let (places, spans): (Few<u16>, Few<Span>) =
            read.map(|(at, buffer): (u16, Buffer)| (at, span(buffer, sectors))).unzip();
        self.found.resize(buffers.len(), SectorSet::EMPTY);
        let (found, voted) = (&mut *self.found, &mut self.verdicts.get_or_insert_default().voted);
        self.memory.lend(&[], &spans, &mut |_, copies| {
            for at in 0..sectors {
                let first = at as usize * SECTOR_LENGTH;
                let of = |copy: usize| &copies[copy][first..first + SECTOR_LENGTH];
                let set = SectorSet::run(at, 1);
                for copy in (1..copies.len()).filter(|copy| of(*copy) != of(0)) {
                    let found = &mut found[usize::from(places[copy])];
                    *found = found.union(set);
                }
                let vote = braid_parity::vote(copies.len(), |one, other| of(one) == of(other));
                voted.add(set, vote, &places, |one, other| of(one) == of(other));
            }
        });
    }

    /// Lends data columns by exponent, in the form that the parity kernels expect: `None` for a
    /// missing column.
    fn with_columns(
        &mut self,
        targets: &[Span],
        (columns, sectors, also): (Sources, u32, &[Span]),
        work: ColumnWork<'_>,
    ) {
        let columns = self.computation.buffers_of(columns);
        let present = columns.iter().flatten().map(|buffer| span(*buffer, sectors));
        let sources: Few<Span> = present.chain(also.iter().copied()).collect();
        self.memory.lend(targets, &sources, &mut |targets, sources| {
            let (present, also) = sources.split_at(sources.len() - also.len());
            let mut present = present.iter().copied();
            let by_exponent: Few<Option<&[u8]>> =
                columns.iter().map(|column| column.and_then(|_| present.next())).collect();
            work(targets, &by_exponent, also);
        });
    }
}

/// Work on targets, data columns by exponent, and further sources.
type ColumnWork<'a> = &'a mut dyn FnMut(&mut [&mut [u8]], &[Option<&[u8]>], &[&[u8]]);
