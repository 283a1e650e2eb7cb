//! What is left out of a run: cycles, requests and faults, by number.
//!
//! ```text
//!   c3      cycle 3, wholly: no work, no crash, no opening
//!   c1r3    request 3 of cycle 1
//!   c1f8    fault 8 of cycle 1
//! ```
//!
//! Numbers are given before it is known what is left out, so they name the same thing in every run
//! of a seed until a failure goes another way.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// What is numbered within a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A client's request.
    Request,
    /// A fault.
    Fault,
}

/// The number of a cycle, or of a request or fault in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number {
    /// Of the cycle, from 0.
    pub cycle: u64,
    /// Which request or fault of it; none for the whole cycle.
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

/// What a run goes without.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Cycles, requests and faults that do not come.
    pub without: BTreeSet<Number>,
}

impl fmt::Display for Cut {
    /// As arguments of the command.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, number) in self.without.iter().enumerate() {
            write!(formatter, "{}{number}", if index == 0 { " --without " } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for Cut {
    type Err = String;

    /// Numbers with commas between them.
    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split(',').filter(|number| !number.is_empty());
        Ok(Self { without: numbers.map(str::parse).collect::<Result<_, _>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_as_they_are_read() {
        let cut: Cut = "c1,c1r3,c12f80".parse().unwrap();
        let printed: Vec<String> = cut.without.iter().map(Number::to_string).collect();
        assert_eq!(printed, ["c1", "c1r3", "c12f80"]);
        assert_eq!(cut.to_string(), " --without c1,c1r3,c12f80");
        for wrong in ["1", "c", "cr1", "c1r", "c1x2", "c1r-1", "c1r3f4"] {
            assert!(wrong.parse::<Cut>().is_err(), "{wrong}");
        }
    }
}
