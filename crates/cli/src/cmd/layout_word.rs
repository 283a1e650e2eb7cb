//! The option `--layout` of `serve` and `rescue`, and its words.

use braid_discovery::raid0_layout::Raid0Layout;
use clap::builder::{EnumValueParser, TypedValueParser};

/// The layout of a RAID-0 of unequal members beyond the end of the smallest member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum LayoutWord {
    /// The layout of Linux before 3.14.
    Original,
    /// The layout of Linux since 3.14, unless configured otherwise.
    Alternate,
}

/// The parser of md's two layout words for RAID-0.
pub(crate) fn parser() -> impl TypedValueParser<Value = Raid0Layout> {
    EnumValueParser::<LayoutWord>::new().map(|word| match word {
        LayoutWord::Original => Raid0Layout::Original,
        LayoutWord::Alternate => Raid0Layout::Alternate,
    })
}
