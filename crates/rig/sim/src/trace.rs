//! The trace: one line per event, and a hash over all of them.
//!
//! `--twice` compares the hash. The lines are printed only on request and cost nothing otherwise.
//! The legend is in docs/simulator.md.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use crate::cut::Number;

/// Keeps the numbers of all cycles, requests and faults, even if the run ends in a panic.
#[derive(Clone, Debug, Default)]
pub(crate) struct Witness(Rc<RefCell<BTreeSet<Number>>>);

impl Witness {
    pub(crate) fn take(&self) -> BTreeSet<Number> {
        self.0.take()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Trace {
    hash: u64,
    is_printed: bool,
    /// The number to print after the next event.
    label: Option<Number>,
    witness: Option<Witness>,
}

impl Trace {
    pub(crate) fn new(is_printed: bool) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, is_printed, label: None, witness: None }
    }

    /// Lets `witness` record every number that this trace labels an event with.
    pub(crate) fn seen_by(self, witness: &Witness) -> Self {
        Self { witness: Some(witness.clone()), ..self }
    }

    /// Labels the next event with this number.
    pub(crate) fn label(&mut self, number: Number) {
        self.label = Some(number);
        if let Some(witness) = &self.witness {
            witness.0.borrow_mut().insert(number);
        }
    }

    /// Notes one event: its step, its name, and up to three numbers whose meaning depends on the
    /// name.
    pub(crate) fn note(&mut self, step: u64, word: &'static str, numbers: [u64; 3]) {
        let mut hash = self.hash;
        let mut fold = |number: u64| {
            hash = (hash ^ number).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        };
        fold(step);
        word.bytes().for_each(|byte| fold(u64::from(byte)));
        numbers.into_iter().for_each(&mut fold);
        self.hash = hash;
        let label = self.label.take();
        if self.is_printed {
            let [a, b, c] = numbers;
            let label = label.map(|number| format!(" {number}")).unwrap_or_default();
            println!("{step:>8} {word:<12} {a} {b} {c}{label}");
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}
