//! Which signals end a command, and which are only told.
//!
//! | Signal | Meaning here |
//! |---|---|
//! | SIGTERM, SIGINT, SIGHUP, SIGQUIT | stop cleanly; a second one ends the process at once |
//! | SIGPWR, SIGXCPU | the same: power, or the time that the user may compute, is running out |
//! | SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGSTKFLT, real-time ones | told once each, and ignored |
//! | SIGXFSZ, SIGPIPE | ignored: the write that is too long, or that is not read, says so itself |
//! | SIGTSTP, SIGCONT, SIGCHLD, faults such as SIGSEGV | as everywhere |
//!
//! They are all caught, not ignored by disposition: that would be handed on to the command behind `--run`, which has
//! every signal as it would have had it from a shell `[check: the_command_has_its_signals_as_a_shell_gives_them]`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::process::Signal;

/// Those that ask us to end.
pub const ENDING: [Signal; 6] =
    [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::POWER, Signal::XCPU];

/// Those with a name that would end a process, and are no reason to.
const IGNORED: [(Signal, &str); 7] = [
    (Signal::USR1, "SIGUSR1"),
    (Signal::USR2, "SIGUSR2"),
    (Signal::ALARM, "SIGALRM"),
    (Signal::VTALARM, "SIGVTALRM"),
    (Signal::PROF, "SIGPROF"),
    (Signal::IO, "SIGIO"),
    (Signal::STKFLT, "SIGSTKFLT"),
];

/// Real-time signals; the C library keeps 32 and 33 for itself.
const REAL_TIME: std::ops::RangeInclusive<i32> = 34..=64;

/// The numbers of those that are told and ignored.
pub fn ignored() -> impl Iterator<Item = i32> {
    IGNORED.iter().map(|(signal, _)| signal.as_raw()).chain(REAL_TIME)
}

/// Whether the number is that of a signal that asks us to end.
pub fn is_ending(number: i32) -> bool {
    ENDING.iter().any(|signal| signal.as_raw() == number)
}

/// What people call it.
pub fn name_of(number: i32) -> String {
    let named = IGNORED.iter().find(|(signal, _)| signal.as_raw() == number);
    named.map_or_else(|| format!("signal {number}"), |(_, name)| (*name).to_owned())
}

/// Has a write beyond a limit on the size of files fail instead of ending the process; for every command.
pub fn survive_long_writes() {
    let seen = Arc::new(AtomicBool::new(false));
    // Where it cannot be had, such a write ends the process, as it would have.
    let _ = signal_hook::flag::register(Signal::XFSZ.as_raw(), seen);
}

/// Sets `flag` when a signal asks us to end. From then on none of them ends anything by itself.
pub fn flag_ending(flag: &Arc<AtomicBool>) -> std::io::Result<()> {
    for signal in ENDING {
        signal_hook::flag::register(signal.as_raw(), Arc::clone(flag))?;
    }
    Ok(())
}
