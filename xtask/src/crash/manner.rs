//! How a server serves in a round: as options of `braid serve`.

/// How it serves.
#[derive(Clone, Copy, Debug)]
pub(super) enum Manner {
    ReadOnly,
    /// As `--cache` says it.
    Writing {
        cache: &'static str,
    },
    /// The same; jobs pass so much of a member in a second.
    Paced {
        cache: &'static str,
        pace: &'static str,
    },
}

impl Manner {
    pub(super) fn options(self) -> Vec<&'static str> {
        match self {
            Self::ReadOnly => vec!["--read-only"],
            Self::Writing { cache } => vec!["--cache", cache],
            Self::Paced { cache, pace } => {
                vec!["--cache", cache, "--job-ceiling", pace, "--job-latency-factor", "any"]
            }
        }
    }
}
