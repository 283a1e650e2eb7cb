//! The process's use of the machine: processor time and context switches of all of its threads.

use std::ops::Sub;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// The use since the process started, or between two moments.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Seconds in user mode.
    pub user_s: f64,
    /// Seconds in the kernel.
    pub system_s: f64,
    /// Context switches because a thread waited.
    pub voluntary: f64,
    /// Context switches because a thread's time slice ended.
    pub involuntary: f64,
}

impl Usage {
    /// This process's use so far.
    ///
    /// # Panics
    /// If the kernel does not report the use.
    #[must_use]
    pub fn now() -> Self {
        Self::of(UsageWho::RUSAGE_SELF)
    }

    /// The use so far by child processes that have been waited for.
    ///
    /// # Panics
    /// If the kernel does not report the use.
    #[must_use]
    pub fn of_children() -> Self {
        Self::of(UsageWho::RUSAGE_CHILDREN)
    }

    fn of(who: UsageWho) -> Self {
        let usage = getrusage(who).expect("a process may ask about itself");
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let float = |count: i64| count as f64;
        Self {
            user_s: float(usage.user_time().num_microseconds()) / 1e6,
            system_s: float(usage.system_time().num_microseconds()) / 1e6,
            voluntary: float(usage.voluntary_context_switches()),
            involuntary: float(usage.involuntary_context_switches()),
        }
    }
}

impl Sub for Usage {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            user_s: self.user_s - other.user_s,
            system_s: self.system_s - other.system_s,
            voluntary: self.voluntary - other.voluntary,
            involuntary: self.involuntary - other.involuntary,
        }
    }
}
