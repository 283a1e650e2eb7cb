//! `--layout original|alternate`: the layout of a RAID-0 of unequal members beyond the smallest
//! member, if its superblocks do not say.
//!
//! Linux before 3.14 wrote such arrays in one layout, and until 5.4 in the other; since 5.4
//! superblocks name the layout. As under md, the choice is not recorded: the members lack the
//! layout at the next start, too, so a wrong choice can be corrected. `mdadm --assemble
//! --update=layout-original` (or `-alternate`) records it permanently.

use braid_assembly::{AssembledArray, Refusal};
use braid_geometry::{GeometryError, Level, layout_name};

use braid_console::error::code::Code;
use braid_console::error::{CliError, Risk};

/// A layout of a RAID-0 of unequal members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Raid0Layout {
    /// The layout that Linux before 3.14 wrote.
    Original,
    /// The layout that Linux since 3.14 writes, unless configured otherwise.
    Alternate,
}

impl Raid0Layout {
    /// The layout's word on a command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Original => "original",
            Self::Alternate => "alternate",
        }
    }

    /// md's number for the layout.
    pub const fn number(self) -> u32 {
        match self {
            Self::Original => 1,
            Self::Alternate => 2,
        }
    }
}

/// Whether an array is refused because its layout is missing: further members or waiting would not
/// help.
pub const fn is_missing(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Geometry(GeometryError::Raid0LayoutUnspecified { .. }))
}

/// Refuses the operator's choice if superblocks have another layout, or if the level has no such
/// layouts.
///
/// # Errors
/// The array has another layout.
pub fn check(array: &AssembledArray, chosen: Option<u32>) -> Result<(), CliError> {
    let (level, layout) = (array.shape.level, array.shape.layout);
    if chosen.is_none_or(|chosen| level == Level::Raid0 && layout == chosen) {
        return Ok(());
    }
    let said = layout_name(level, layout).unwrap_or_else(|| "none".to_owned());
    let error = CliError::new(
        Code::Usage,
        "--layout is for a RAID-0 whose superblock has no \
                                            layout",
    );
    let why = format!("this is a {}, layout {said}: leave the option out", level.name());
    Err(error.because(why).remedy(Risk::Look, "See how", "braid help mdadm"))
}

/// `braid rescue` options that find the layout or try each of the two.
pub const fn looks() -> [(&'static str, &'static str); 3] {
    [
        ("Find the layout from the contents of the array", "--solve"),
        ("Read it with the first layout", "--layout original"),
        ("Read it with the second layout", "--layout alternate"),
    ]
}

/// Adds remedies for a missing layout: look at the array with each, then serve the right layout.
pub fn with_remedies(error: CliError, members: &str) -> CliError {
    let error = error.because(
        "Linux before 3.14 wrote such arrays with one layout, and until 5.4 with \
                       the other",
    );
    let look = |error: CliError, (label, words): (&str, &str)| {
        error.remedy(Risk::Look, label, format!("braid rescue {words} {members}"))
    };
    looks().into_iter().fold(error, look).remedy(
        Risk::Look,
        "Read it with the right layout",
        format!("braid serve --read-only --layout original {members}"),
    )
}
