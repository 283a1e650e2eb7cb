//! The parts that a run leaves out: cycles, requests and faults, by number.
//!
//! ```text
//!   c3      cycle 3, wholly: no work, no crash, no opening
//!   c1r3    request 3 of cycle 1
//!   c1f8    fault 8 of cycle 1
//! ```
//!
//! A run gives numbers before it leaves anything out. So a number names the same item in every run
//! of a seed, until a failure takes another path.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// The kinds of items that are numbered within a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A client's request.
    Request,
    /// A fault.
    Fault,
}

/// Names a cycle, or a request or fault in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number {
    /// The cycle, from 0.
    pub cycle: u64,
    /// The request or fault in the cycle; `None` names the whole cycle.
    pub item: Option<(Kind, u64)>,
}

impl fmt::Display for Number {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cycle, item } = self;
        match item {
            None => write!(formatter, "c{cycle}"),
            Some((Kind::Request, ordinal)) => write!(formatter, "c{cycle}r{ordinal}"),
            Some((Kind::Fault, ordinal)) => write!(formatter, "c{cycle}f{ordinal}"),
        }
    }
}

impl FromStr for Number {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: a number is like c1, c1r3 or c1f8");
        let rest = text.strip_prefix('c').ok_or_else(wrong)?;
        let parse = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        let Some(at) = rest.find(['r', 'f']) else {
            return Ok(Self { cycle: parse(rest)?, item: None });
        };
        let kind = if rest[at..].starts_with('r') { Kind::Request } else { Kind::Fault };
        Ok(Self { cycle: parse(&rest[..at])?, item: Some((kind, parse(&rest[at + 1..])?)) })
    }
}

/// The parts that a run leaves out, and its simplifications.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// The run leaves out these cycles, requests and faults.
    pub without: BTreeSet<Number>,
    /// If set, the run leaves out all cycles, requests and faults but these.
    pub only: Option<BTreeSet<Number>>,
    /// The engine has a single shard.
    pub one_shard: bool,
    /// Each shard has a single stripe.
    pub one_stripe: bool,
    /// Caches run in write-through mode, so no write is acknowledged early.
    pub write_through: bool,
    /// Elevators keep the order of requests, and the multiplexer holds none back.
    pub straight: bool,
    /// Longest request, in sectors.
    pub sectors_max: Option<u64>,
    /// Selects another random order of events for the same seed.
    pub schedule: u64,
    /// In this many first cycles the oldest event always happens first.
    pub plain_cycles: u64,
}

impl Cut {
    pub(crate) fn leaves_out(&self, number: Number) -> bool {
        self.without.contains(&number)
            || self.only.as_ref().is_some_and(|only| !only.contains(&number))
    }

    /// Takes a command-line argument if it belongs to the cut. `value` returns the next word of the
    /// command line.
    ///
    /// # Errors
    /// The reason why the argument is invalid.
    pub fn argument(
        &mut self,
        word: &str,
        value: &mut dyn FnMut() -> String,
    ) -> Result<bool, String> {
        let number = |text: String| text.parse().map_err(|_| format!("{word} needs a number"));
        match word {
            "--without" => self.without = numbers(&value())?,
            "--only" => self.only = Some(numbers(&value())?),
            "--one-shard" => self.one_shard = true,
            "--one-stripe" => self.one_stripe = true,
            "--write-through" => self.write_through = true,
            "--straight" => self.straight = true,
            "--sectors-max" => {
                let sectors: u64 = number(value())?;
                self.sectors_max = Some(sectors.max(1));
            }
            "--schedule" => self.schedule = number(value())?,
            "--plain-cycles" => self.plain_cycles = number(value())?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Parses numbers separated by commas.
fn numbers(text: &str) -> Result<BTreeSet<Number>, String> {
    text.split(',').filter(|number| !number.is_empty()).map(str::parse).collect()
}

impl fmt::Display for Cut {
    /// Prints the command-line arguments that make this cut.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |numbers: &BTreeSet<Number>| {
            numbers.iter().map(Number::to_string).collect::<Vec<_>>().join(",")
        };
        if let Some(only) = &self.only {
            write!(formatter, " --only {}", list(only))?;
        }
        if !self.without.is_empty() {
            write!(formatter, " --without {}", list(&self.without))?;
        }
        let flags = [
            (self.one_shard, " --one-shard"),
            (self.one_stripe, " --one-stripe"),
            (self.write_through, " --write-through"),
            (self.straight, " --straight"),
        ];
        for (_, flag) in flags.iter().filter(|(is_set, _)| *is_set) {
            formatter.write_str(flag)?;
        }
        if let Some(sectors) = self.sectors_max {
            write!(formatter, " --sectors-max {sectors}")?;
        }
        if self.schedule != 0 {
            write!(formatter, " --schedule {}", self.schedule)?;
        }
        if self.plain_cycles != 0 {
            write!(formatter, " --plain-cycles {}", self.plain_cycles)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_as_they_are_read() {
        let mut cut = Cut::default();
        for (word, value) in
            [("--without", "c1,c1r3,c12f80"), ("--only", "c2"), ("--schedule", "3")]
        {
            assert_eq!(cut.argument(word, &mut || value.to_owned()), Ok(true));
        }
        assert_eq!(cut.to_string(), " --only c2 --without c1,c1r3,c12f80 --schedule 3");
        for wrong in ["1", "c", "cr1", "c1r", "c1x2", "c1r-1", "c1r3f4"] {
            assert!(numbers(wrong).is_err(), "{wrong}");
        }
    }
}
