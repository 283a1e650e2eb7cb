//! A single rotten column of any kind is named. Two rotten columns are not named, and the tests
//! count how often bytes come near a wrong name.

use super::*;
use crate::gf256::{multiply, power};
use crate::{kernel, kernels};

const SECTOR: usize = 512;

/// Pseudorandom numbers (SplitMix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    fn byte(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }

    /// An error of one byte: any value but zero.
    fn error(&mut self) -> u8 {
        u8::try_from(1 + self.below(255)).unwrap()
    }

    /// A random column of a stripe with `data` data columns.
    fn column(&mut self, data: u16) -> Column {
        match u16::try_from(self.below(usize::from(data) + 2)).unwrap() {
            index if index < data => Column::Data(index),
            index if index == data => Column::P,
            _ => Column::Q,
        }
    }
}

/// The residues of a stripe; the tests add errors to its columns.
struct Residues {
    p: Vec<u8>,
    q: Vec<u8>,
}

impl Residues {
    fn new(length: usize) -> Self {
        Self { p: vec![0; length], q: vec![0; length] }
    }

    fn add(&mut self, column: Column, at: usize, error: u8) {
        let (p, q) = match column {
            Column::P => (error, 0),
            Column::Q => (0, error),
            Column::Data(exponent) => (error, multiply(power(exponent), error)),
        };
        self.p[at] ^= p;
        self.q[at] ^= q;
    }

    fn locate(&self, data: &ColumnSet) -> Verdict {
        locate(kernel(), &self.p, &self.q, data)
    }
}

fn name_of(verdict: Verdict) -> Option<Column> {
    match verdict {
        Verdict::One { column, .. } => Some(column),
        _ => None,
    }
}

/// Every error of one byte in every column, in stripes of every kind of width. Columns that the
/// stripe lacks are tried as well.
#[test]
fn every_single_error_is_located() {
    for error in 1..=255 {
        for column in Column::all() {
            let at = usize::from(error) + column.index();
            let mut residues = Residues::new(SECTOR);
            residues.add(column, at, error);
            for width in [2, 4, 10, 128, 254, 255] {
                let data = ColumnSet::data(width);
                let is_there = data.with(Column::P).with(Column::Q).contains(column);
                let found = residues.locate(&data);
                if is_there {
                    assert_eq!(name_of(found), Some(column), "{error} in {column:?} of {width}");
                } else {
                    assert_eq!(found, Verdict::Several { suspects: ColumnSet::EMPTY });
                }
            }
        }
    }
}

/// Residues for an exponent in a gap name no column, though its neighbours' residues do.
#[test]
fn a_gap_is_no_column() {
    let data = [0, 1, 3, 7].map(Column::Data).into_iter().fold(ColumnSet::EMPTY, ColumnSet::with);
    for exponent in 0..9 {
        let column = Column::Data(exponent);
        let mut residues = Residues::new(SECTOR);
        residues.add(column, 100, 0x40);
        let expected = data.contains(column).then_some(column);
        assert_eq!(name_of(residues.locate(&data)), expected, "{column:?}");
    }
}

/// The ways in which a chunk rots.
#[derive(Clone, Copy, Debug)]
enum Rot {
    Bit,
    Byte,
    Few,
    Garbage,
    Zeroed,
    Elsewhere,
}

const ROTS: [Rot; 6] = [Rot::Bit, Rot::Byte, Rot::Few, Rot::Garbage, Rot::Zeroed, Rot::Elsewhere];

impl Rot {
    /// Damages a block. At least one byte differs afterwards.
    fn damage(self, chance: &mut Chance, block: &mut [u8]) {
        let before = block.to_vec();
        let at = chance.below(block.len());
        match self {
            Self::Bit => block[at] ^= 1 << chance.below(8),
            Self::Byte => block[at] ^= chance.error(),
            Self::Few => (0..3).for_each(|_| {
                let at = chance.below(before.len());
                block[at] ^= chance.error();
            }),
            Self::Garbage => block.iter_mut().for_each(|byte| *byte = chance.byte()),
            Self::Zeroed => block[at..].fill(0),
            // The content moves by one sector, as after a misdirected write.
            Self::Elsewhere => block.rotate_left(SECTOR.min(before.len() / 2)),
        }
        if block == before {
            block[at] ^= 1;
        }
    }
}

/// Damages columns of whole stripes. A kernel makes the residues sector by sector, as a check does.
#[test]
fn one_rotten_column_of_a_real_stripe_is_located() {
    let mut chance = Chance(1);
    for number in 0..3000 {
        let width = u16::try_from(2 + chance.below(20)).unwrap();
        let length = SECTOR * (1 + chance.below(8));
        let kernel = &kernels()[number % kernels().len()];
        let mut block = |_| (0..length).map(|_| chance.byte() >> (number % 8)).collect::<Vec<u8>>();
        let mut data: Vec<Vec<u8>> = (0..width).map(&mut block).collect();
        let (mut p, mut q) = (block(0), block(0));
        fn sources(data: &[Vec<u8>]) -> Vec<Option<&[u8]>> {
            data.iter().map(|block| Some(&block[..])).collect()
        }
        kernel.pq(&sources(&data), &mut p, &mut q);

        let column = chance.column(width);
        let rot = ROTS[chance.below(ROTS.len())];
        rot.damage(
            &mut chance,
            match column {
                Column::P => &mut p,
                Column::Q => &mut q,
                Column::Data(exponent) => &mut data[usize::from(exponent)],
            },
        );
        let (mut p_residue, mut q_residue) = (p.clone(), q.clone());
        kernel.pq(&sources(&data), &mut p_residue, &mut q_residue);
        kernel.xor_into(&mut p_residue, &[&p]);
        kernel.xor_into(&mut q_residue, &[&q]);

        let set = ColumnSet::data(width);
        let whole = locate(kernel, &p_residue, &q_residue, &set);
        let sectors = p_residue.chunks(SECTOR).zip(q_residue.chunks(SECTOR));
        let joined =
            sectors.map(|(p, q)| locate(kernel, p, q, &set)).fold(Verdict::Agree, Verdict::and);
        assert_eq!(name_of(whole), Some(column), "{rot:?} of {width}");
        assert_eq!(whole.suspects(), ColumnSet::EMPTY.with(column));
        assert_eq!(
            (name_of(joined), joined.believed()),
            (Some(column), whole.believed()),
            "{rot:?}"
        );
    }
}

/// The ways in which two columns of a sector rot: the number of wrong bytes, and whether they are
/// the same bytes.
#[derive(Clone, Copy, Debug)]
enum Pair {
    /// This many bytes are wrong in both columns, by unrelated errors.
    Same(usize),
    /// Each of the two columns has one wrong byte, at different places.
    Apart,
    /// Every byte of one column is wrong, and this many bytes of the other column are wrong.
    Within(usize),
    /// All bytes of both columns are wrong, by one error in each column: a chunk filled with one
    /// byte replaced a chunk filled with another byte.
    Filled,
}

fn two_rotten(chance: &mut Chance, pair: Pair, (x, y): (Column, Column)) -> Residues {
    let mut residues = Residues::new(SECTOR);
    let from = chance.below(SECTOR);
    let place = |index: usize| (from + 37 * index) % SECTOR;
    match pair {
        Pair::Same(bytes) => (0..bytes).for_each(|index| {
            residues.add(x, place(index), chance.error());
            residues.add(y, place(index), chance.error());
        }),
        Pair::Apart => {
            residues.add(x, place(0), chance.error());
            residues.add(y, place(1), chance.error());
        }
        Pair::Within(bytes) => {
            (0..SECTOR).for_each(|at| residues.add(x, at, chance.error()));
            (0..bytes).for_each(|index| residues.add(y, place(index), chance.error()));
        }
        Pair::Filled => {
            let (e, f) = (chance.error(), chance.error());
            // The two errors must differ; `equal_errors_look_like_q` tests equal errors.
            let f = if e == f { e ^ 1 | 2 } else { f };
            (0..SECTOR).for_each(|at| {
                residues.add(x, at, e);
                residues.add(y, at, f);
            });
        }
    }
    residues
}

/// A million sectors with two rotten columns. No name is believed, and the number of sectors that
/// come near a wrong name is as the algebra predicts.
#[test]
fn two_rotten_columns_are_never_named_on_enough_evidence() {
    const CASES: usize = 1_000_000;
    let pairs = [
        Pair::Same(1),
        Pair::Same(2),
        Pair::Same(3),
        Pair::Same(4),
        Pair::Same(8),
        Pair::Same(SECTOR),
        Pair::Apart,
        Pair::Within(1),
        Pair::Within(300),
        Pair::Filled,
    ];
    let mut chance = Chance(2);
    let mut rows = [(0_usize, 0_f64, 0_usize, 0_usize); 10];
    for number in 0..CASES {
        let width = u16::try_from(2 + chance.below(28)).unwrap();
        let x = chance.column(width);
        let y = loop {
            let y = chance.column(width);
            if y != x {
                break y;
            }
        };
        let row = number % pairs.len();
        let found = two_rotten(&mut chance, pairs[row], (x, y)).locate(&ColumnSet::data(width));
        let (cases, expected, named, believed) = &mut rows[row];
        *cases += 1;
        *expected += f64::from(width) / 255.0;
        *named += usize::from(name_of(found).is_some());
        *believed += usize::from(found.believed().is_some());
        // A column that stands out is rotten alone in some byte.
        if let Pair::Within(1) = pairs[row] {
            assert_eq!(found.suspects(), ColumnSet::EMPTY.with(x), "{x:?} and {y:?} of {width}");
        }
    }
    println!("two rotten columns, of 4 to 31    cases   named (1/255 a name)   believed");
    for (pair, (cases, expected, named, believed)) in pairs.iter().zip(rows) {
        println!(
            "{:<30} {cases:>8} {named:>8} ({expected:>8.0}) {believed:>10}",
            format!("{pair:?}")
        );
    }
    assert!(rows.iter().all(|row| row.3 == 0), "believed: {rows:?}");
    for (pair, (_, expected, named, _)) in pairs.iter().zip(rows) {
        let named = named as f64;
        match pair {
            Pair::Same(1) | Pair::Filled => {
                assert!((named / expected - 1.0).abs() < 0.1, "{pair:?}: {named} for {expected}");
            }
            Pair::Same(2) => assert!(named < 2.0 * expected / 255.0, "{pair:?}: {named}"),
            Pair::Same(3) => assert!(named < 10.0, "{pair:?}: {named}"),
            _ => assert!(named == 0.0, "{pair:?}: {named}"),
        }
    }
}

/// Several chunks of one stripe rot, each in other sectors. Each sector names a column, the stripe
/// names no column.
#[test]
fn sectors_that_disagree_name_no_column() {
    let data = ColumnSet::data(6);
    let of = |column| {
        let mut residues = Residues::new(SECTOR);
        (0..9).for_each(|at| residues.add(column, at, u8::try_from(at + 1).unwrap()));
        residues.locate(&data)
    };
    let (one, other) = (of(Column::Data(1)), of(Column::Data(4)));
    assert_eq!((one.believed(), other.believed()), (Some(Column::Data(1)), Some(Column::Data(4))));
    let joined = one.and(Verdict::Agree).and(other);
    assert_eq!(joined.believed(), None);
    let suspects: Vec<Column> = joined.suspects().iter().collect();
    assert_eq!(suspects, [Column::Data(1), Column::Data(4)]);
    assert_eq!(joined.and(one), joined);
}

/// Evidence of four sectors, too little in each, is enough together if the errors differ.
#[test]
fn evidence_adds_up_over_a_stripe() {
    let data = ColumnSet::data(6);
    let of = |error| {
        let mut residues = Residues::new(SECTOR);
        residues.add(Column::Data(5), 77, error);
        residues.locate(&data)
    };
    let same = (0..64).map(|_| of(9)).fold(Verdict::Agree, Verdict::and);
    assert_eq!((name_of(same), same.believed()), (Some(Column::Data(5)), None));
    let different = (1..=4).map(of).fold(Verdict::Agree, Verdict::and);
    assert_eq!(different.believed(), Some(Column::Data(5)));
}

#[test]
fn joining_has_no_order() {
    let data = ColumnSet::data(5);
    let mut chance = Chance(3);
    for _ in 0..20_000 {
        let verdicts: Vec<Verdict> = (0..3)
            .map(|_| {
                let mut residues = Residues::new(64);
                for _ in 0..chance.below(3) {
                    let column = [Column::Data(2), Column::P, Column::Q][chance.below(3)];
                    (0..chance.below(7)).for_each(|at| residues.add(column, at, chance.error()));
                }
                residues.locate(&data)
            })
            .collect();
        let [a, b, c] = verdicts[..] else { unreachable!() };
        let names = |verdict: Verdict| (name_of(verdict), verdict.believed(), verdict.suspects());
        let expected = names(a.and(b).and(c));
        for other in [a.and(b.and(c)), c.and(a).and(b), c.and(b).and(a), b.and(c).and(a)] {
            assert_eq!(names(other), expected, "{a:?} {b:?} {c:?}");
        }
    }
}

/// The two kinds of errors in two columns that the header says arithmetic cannot see.
#[test]
fn equal_errors_look_like_q() {
    let mut residues = Residues::new(SECTOR);
    for at in 0..SECTOR {
        let error = u8::try_from(at % 255 + 1).unwrap();
        residues.add(Column::Data(0), at, error);
        residues.add(Column::Data(3), at, error);
    }
    assert_eq!(residues.locate(&ColumnSet::data(4)).believed(), Some(Column::Q));
}

#[test]
fn nothing_wrong_is_nothing_found() {
    let data = ColumnSet::data(4);
    assert_eq!(Residues::new(SECTOR).locate(&data), Verdict::Agree);
    assert_eq!(Residues::new(0).locate(&data), Verdict::Agree);
    assert_eq!(Verdict::Agree.and(Verdict::Agree), Verdict::Agree);
    assert!(Verdict::Agree.suspects().is_empty() && Verdict::Agree.believed().is_none());
}

#[test]
#[should_panic(expected = "one block each")]
fn residues_of_different_lengths_are_a_mistake() {
    let _ = locate(kernel(), &[0; 5], &[0; 4], &ColumnSet::data(2));
}
