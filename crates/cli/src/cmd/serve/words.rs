//! Values of `serve` options that are one of a few words.

use braid_console::output::size::{SizeError, parse_size};

/// Longest busy poll: more than any fast member takes.
pub(super) const BUSY_POLL_US_MAX: i64 = 10_000;

/// The words of `--io`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Io {
    /// Workers, or threads where io_uring is not allowed.
    Auto,
    /// Workers, or an error.
    Ring,
    /// Threads.
    Threads,
}

/// The words of `--direct`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Direct {
    /// Block devices, where they allow it.
    Auto,
    /// All members, or an error.
    On,
    /// None.
    Off,
}

impl From<Io> for braid_server::Io {
    fn from(io: Io) -> Self {
        match io {
            Io::Auto => Self::Auto,
            Io::Ring => Self::Ring,
            Io::Threads => Self::Threads,
        }
    }
}

impl From<Direct> for braid_runtime::Direct {
    fn from(direct: Direct) -> Self {
        match direct {
            Direct::Auto => Self::Auto,
            Direct::On => Self::On,
            Direct::Off => Self::Off,
        }
    }
}

/// Parses `--hand-over`, in bytes; 0 for never.
pub(crate) fn hand_over_bytes(text: &str) -> Result<u64, SizeError> {
    if text == "never" { Ok(0) } else { parse_size(text) }
}

/// Whether jobs may run: `--jobs`, and the setting of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum JobsWhen {
    /// They begin by themselves.
    On,
    /// They wait for `braid resume`.
    Paused,
}

/// How much to confine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Confine {
    /// Nothing is taken away.
    Off,
    /// As much as this kernel and these options allow; the server reports how much.
    Auto,
    /// All of it, or the array is not served.
    Full,
}

impl From<Confine> for braid_server::Confine {
    fn from(confine: Confine) -> Self {
        match confine {
            Confine::Off => Self::Off,
            Confine::Auto => Self::Auto,
            Confine::Full => Self::Full,
        }
    }
}
