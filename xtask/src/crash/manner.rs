//! How a server serves in a round, as options of `braid serve`.

#[derive(Clone, Copy, Debug)]
pub(super) enum Manner {
    ReadOnly,
    /// Serves for writing; `cache` is the argument of `--cache`.
    Writing {
        cache: &'static str,
    },
    /// Serves for writing, with jobs paced to `pace` bytes of a member per second.
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
