//! Faults in LVM's metadata, and the reasons for which a volume is not read.

/// A fault in LVM's metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// This part of the metadata could not be read.
    Unreadable(&'static str),
    /// The checksum of this part is wrong.
    Sum(&'static str),
    /// The content of this part is impossible.
    Nonsense(&'static str),
    /// This part exceeds a limit.
    TooLarge(&'static str),
    /// The metadata's text has a syntax error.
    Text {
        /// The line of the error, counted from 1.
        line: usize,
    },
    /// The pool does not have this volume.
    NoDevice {
        /// The volume's number in the pool.
        device: u64,
    },
    /// Blocks of the pool are on several tiers, and its map of tiers is missing.
    Tiers,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreadable(what) => write!(f, "{what} cannot be read"),
            Self::Sum(what) => write!(f, "the sum of {what} does not fit: damaged, or cut"),
            Self::Nonsense(what) => write!(f, "{what} cannot be"),
            Self::TooLarge(what) => write!(f, "{what} is larger than what braid looks at"),
            Self::Text { line } => write!(f, "its metadata breaks off at line {line}"),
            Self::NoDevice { device } => write!(f, "its pool has no volume {device}"),
            Self::Tiers => write!(f, "its pool has several tiers, and no map of them"),
        }
    }
}

impl std::error::Error for Fault {}

/// The reason for which a volume is not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnreadReason {
    /// The volume has a segment of an unsupported kind.
    Kind(String),
    /// The volume is a snapshot that is not thin: changes to an origin.
    Snapshot,
    /// A cache in front of the volume may have newer data.
    Cache(String),
    /// The volume is on another volume that does not exist, or that leads back to this volume.
    Astray(String),
    /// The volume is a thin volume over an origin outside of its pool.
    ExternalOrigin,
    /// The group's description of the volume is impossible.
    Nonsense(&'static str),
}

impl std::fmt::Display for UnreadReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "a segment of kind {kind}, which braid does not follow"),
            Self::Snapshot => write!(f, "a snapshot's changes, which braid does not follow"),
            Self::Cache(kind) => {
                write!(f, "behind a cache ({kind}), which may hold what it does not")
            }
            Self::Astray(name) => write!(f, "it lies on {name}, which leads nowhere"),
            Self::ExternalOrigin => write!(f, "thin, over an origin outside of its pool"),
            Self::Nonsense(what) => write!(f, "{what} cannot be"),
        }
    }
}

impl std::error::Error for UnreadReason {}
