//! Signals: some end a command, others are only reported.
//!
//! | Signal | Meaning here |
//! |---|---|
//! | SIGTERM, SIGINT, SIGHUP, SIGQUIT | stop cleanly; a second one ends the process at once |
//! | SIGPWR, SIGXCPU | the same: power, or the time that the user may compute, is running out |
//! | SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF | reported once each, and ignored |
//! | SIGIO, SIGSTKFLT, real-time signals | reported once each, and ignored |
//! | SIGXFSZ, SIGPIPE | ignored: the write that is too long, or has no reader, returns an error |
//! | SIGTSTP, SIGCONT, SIGCHLD, faults such as SIGSEGV | as everywhere |
//!
//! Braid catches ignored signals instead of ignoring them by disposition, because the command of
//! `--run` would inherit a disposition. So that command has its signals as from a shell
//! `[check: the_command_has_its_signals_as_a_shell_gives_them]`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::process::Signal;

/// Signals that request the end of a command.
pub const ENDING: [Signal; 6] =
    [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::POWER, Signal::XCPU];

/// Named signals that would end a process, but that braid ignores.
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

/// Numbers of the signals that are reported and ignored.
pub fn ignored() -> impl Iterator<Item = i32> {
    IGNORED.iter().map(|(signal, _)| signal.as_raw()).chain(REAL_TIME)
}

/// Whether the signal requests the end of a command.
pub fn is_ending(number: i32) -> bool {
    ENDING.iter().any(|signal| signal.as_raw() == number)
}

/// The signal's name, for people.
pub fn name_of(number: i32) -> String {
    let named = IGNORED.iter().find(|(signal, _)| signal.as_raw() == number);
    named.map_or_else(|| format!("signal {number}"), |(_, name)| (*name).to_owned())
}

/// Every command calls this function: a write beyond the file size limit then fails instead of
/// ending the process.
pub fn survive_long_writes() {
    let seen = Arc::new(AtomicBool::new(false));
    // If registering fails, a write beyond the limit ends the process, as by default.
    let _ = signal_hook::flag::register(Signal::XFSZ.as_raw(), seen);
}

/// Sets `flag` when a signal requests the end of the command. From now on, these signals do not end
/// the process by themselves.
pub fn flag_ending(flag: &Arc<AtomicBool>) -> std::io::Result<()> {
    for signal in ENDING {
        signal_hook::flag::register(signal.as_raw(), Arc::clone(flag))?;
    }
    Ok(())
}
