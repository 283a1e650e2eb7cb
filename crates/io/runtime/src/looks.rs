//! Decides whether members are looked at periodically, or looks rest.
//!
//! Place in the flow: [`crate::timekeeper`] looks at the members twice a second, and asks here
//! whether to look again. An array without requests and without operations at its members needs no
//! looks, and a processor that is not woken sleeps more deeply. Meanwhile the kernel reports a
//! member's file that may have lost its name ([`braid_member::Sentinel`]).
//! ```text
//!   looking ──no request, all idle, [`CALM_LOOKS`] times in a row──▶ resting
//!      ▲                                                                │
//!      └───── a member gets a request, or the kernel reports a file ◀───┘
//! ```
//! A thread notes first that it gives a member a request, then checks whether looks rest. The
//! thread that lets looks rest notes that first, then checks whether a member got a request. One of
//! the two sees the other [check: who_asks_and_who_rests_never_miss_each_other].

use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Number of checks in a row that find all members idle before checks rest. A stuck member needs
/// fewer checks to be trusted again.
pub(crate) const CALM_LOOKS: u32 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Look,
    /// Check the members once more, then rest if the sentinel reports every change meanwhile.
    LookOnce,
    Rest,
}

#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// Whether a member was given a request since the last check of the members.
    was_asked: AtomicBool,
    rests: AtomicBool,
    /// Number of checks in a row that found all members idle. Only the thread that checks uses it,
    /// and checks do not overlap.
    calm: AtomicU32,
}

impl Looks {
    /// Notes that a member was given a request, or that the sentinel reported a member. Returns
    /// true if the checks of members rested; the caller must then start them.
    pub(crate) fn note_asked(&self) -> bool {
        // The flag is cleared at most twice a second, so nearly all callers find it set.
        if self.was_asked.load(Ordering::SeqCst) {
            return false;
        }
        self.was_asked.store(true, Ordering::SeqCst);
        self.wake()
    }

    /// Resumes the checks of members; returns whether they rested.
    fn wake(&self) -> bool {
        self.rests.load(Ordering::SeqCst) && self.rests.swap(false, Ordering::SeqCst)
    }

    /// Ends a check of the members. `are_idle` says whether the check found all members idle and
    /// well. Returns the next step.
    pub(crate) fn note_look(&self, are_idle: bool) -> Next {
        let was_asked = self.was_asked.swap(false, Ordering::SeqCst);
        let before = self.calm.load(Ordering::Relaxed);
        let calm = if are_idle && !was_asked { before.saturating_add(1) } else { 0 };
        self.calm.store(calm, Ordering::Relaxed);
        if calm + 1 < CALM_LOOKS {
            return Next::Look;
        }
        if calm < CALM_LOOKS {
            return Next::LookOnce;
        }
        self.calm.store(0, Ordering::Relaxed);
        self.rests.store(true, Ordering::SeqCst);
        // A thread may have noted a request just before the checks rested, and then has not resumed
        // the checks.
        let is_asked = self.was_asked.load(Ordering::SeqCst);
        if is_asked && self.wake() { Next::Look } else { Next::Rest }
    }

    /// Keeps the checks of members from ever resting, since the sentinel cannot report every
    /// change.
    pub(crate) fn stay_awake(&self) {
        self.calm.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    fn looked(looks: &Looks, times: u32) -> Next {
        (0..times).map(|_| looks.note_look(true)).last().expect("some")
    }

    #[test]
    fn calm_looks_in_a_row_lead_to_rest_and_any_request_out_of_it() {
        let looks = Looks::default();
        assert_eq!(looked(&looks, CALM_LOOKS - 2), Next::Look);
        assert!(!looks.note_asked(), "they go on");
        assert_eq!(looks.note_look(true), Next::Look, "something was asked");
        assert_eq!(looked(&looks, CALM_LOOKS - 2), Next::Look);
        assert_eq!(looks.note_look(false), Next::Look, "something is under way");
        assert_eq!(looked(&looks, CALM_LOOKS - 1), Next::LookOnce);
        looks.stay_awake();
        assert_eq!(looked(&looks, CALM_LOOKS - 1), Next::LookOnce);
        assert_eq!(looks.note_look(true), Next::Rest);
        assert!(looks.note_asked(), "they begin again");
        assert!(!looks.note_asked(), "once");
        assert_eq!(looks.note_look(true), Next::Look);
        assert_eq!(looked(&looks, CALM_LOOKS), Next::Rest);
        assert!(looks.wake());
        assert!(!looks.wake());
    }

    /// A file is deleted during the last check, after that check has passed the file's member.
    #[test]
    fn what_is_heard_during_the_last_look_is_looked_at() {
        let looks = Looks::default();
        looked(&looks, CALM_LOOKS - 1);
        assert!(!looks.note_asked(), "they go on, so far");
        assert_eq!(looks.note_look(true), Next::Look);
    }

    /// Two threads meet in each round: one notes a request as the other lets the checks rest.
    #[test]
    fn who_asks_and_who_rests_never_miss_each_other() {
        const ROUNDS: usize = 20_000;
        let rounds: Vec<Looks> = (0..ROUNDS).map(|_| Looks::default()).collect();
        for looks in &rounds {
            looked(looks, CALM_LOOKS - 1);
        }
        let arrived = [AtomicU32::new(0), AtomicU32::new(0)];
        let meet = |own: usize, round: usize| {
            let round = u32::try_from(round + 1).expect("few");
            arrived[own].store(round, Ordering::Release);
            for turn in 0_u32.. {
                if arrived[1 - own].load(Ordering::Acquire) >= round {
                    return;
                }
                if turn % 1000 == 999 { std::thread::yield_now() } else { std::hint::spin_loop() }
            }
        };
        let asks = |(round, looks): (usize, &Looks)| {
            meet(0, round);
            looks.note_asked()
        };
        let rests = |(round, looks): (usize, &Looks)| {
            meet(1, round);
            looks.note_look(true)
        };
        let (woken, followed): (Vec<bool>, Vec<Next>) = std::thread::scope(|scope| {
            let asking = scope.spawn(|| rounds.iter().enumerate().map(asks).collect());
            let followed = rounds.iter().enumerate().map(rests).collect();
            (asking.join().expect("it ends"), followed)
        });
        for (woke, next) in woken.into_iter().zip(followed) {
            let goes_on = next == Next::Look;
            assert!(goes_on != woke, "{next:?}, woken {woke}: one of them, and one only");
        }
    }
}
