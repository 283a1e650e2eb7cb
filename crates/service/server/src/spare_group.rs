//! Arrays that share their spares: those with the same `--spare-group`, as mdadm's monitor shares
//! spares within a `spare-group`.
//!
//! ```text
//!   a member goes out, or a group is set ─▶ due ─▶ the thread looks
//!     ─┬─▶ every slot has a member: wait for the next change
//!      └─▶ a slot lacks one: look again after a while
//! ```
//!
//! This module decides when to look. [`super::control`] finds the other arrays and takes the spare.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Interval at which an array that lacks a member looks for a spare in its group.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Longest name of a group, in bytes.
const NAME_BYTES_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpareNeed {
    /// Every slot has a member, or a spare would not help the array.
    Content,
    /// A slot lacks a member.
    Lacking,
}

/// Longest wait of a stop for a spare that has left one array and not yet joined another.
const TAKING_MAX: Duration = Duration::from_secs(20);

#[derive(Debug, Default)]
pub(crate) struct SpareGroup {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    name: Option<String>,
    is_due: bool,
    is_over: bool,
    /// A spare has left its old array, and this array has not taken it yet.
    is_taking: bool,
    /// Devices that this array could not take. It does not request them again before an operator
    /// sets the group anew.
    refused: BTreeSet<String>,
}

impl SpareGroup {
    pub(super) const KEY: &str = "spare-group";

    pub(super) const NONE: &str = "off";

    /// The group of an array that is about to be served; `name` was checked earlier.
    pub(super) fn new(name: Option<&str>) -> Self {
        let name = name.and_then(|name| Self::parse(name).expect("it was checked"));
        Self { state: Mutex::new(State { name, ..State::default() }), ..Self::default() }
    }

    /// Parses a group's name.
    ///
    /// # Errors
    /// The reason why the text is no valid name.
    pub(super) fn parse(text: &str) -> Result<Option<String>, String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
        if text == Self::NONE {
            return Ok(None);
        }
        if text.is_empty() || text.len() > NAME_BYTES_MAX || !text.chars().all(is_plain) {
            let most = NAME_BYTES_MAX;
            return Err(format!(
                "it is a word of letters, digits, '-', '_', '.' and ':', {most} at most, or off"
            ));
        }
        Ok(Some(text.to_owned()))
    }

    /// The text itself, if it is a valid group name or the value for no group.
    ///
    /// # Errors
    /// As for [`Self::parse`].
    pub(super) fn checked(text: &str) -> Result<String, String> {
        Self::parse(text).map(|_| text.to_owned())
    }

    pub(super) fn words(name: Option<&str>) -> &str {
        name.unwrap_or(Self::NONE)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn name(&self) -> Option<String> {
        self.state().name.clone()
    }

    /// Sets the group, or leaves the group for `None`.
    pub(super) fn set(&self, name: Option<String>) {
        {
            let mut state = self.state();
            state.name = name;
            state.refused.clear();
        }
        self.look();
    }

    /// Wakes the thread, because a slot may have lost its member.
    pub(super) fn look(&self) {
        self.state().is_due = true;
        self.changed.notify_all();
    }

    /// Runs `take`, which moves a spare; a stop waits for the end of `take`. Once a stop has begun,
    /// returns `None` and moves no spare.
    pub(super) fn take<T>(&self, take: impl FnOnce() -> T) -> Option<T> {
        {
            let mut state = self.state();
            if state.is_over {
                return None;
            }
            state.is_taking = true;
        }
        let taken = take();
        self.state().is_taking = false;
        self.changed.notify_all();
        Some(taken)
    }

    pub(super) fn refuse(&self, path: &str) {
        self.state().refused.insert(path.to_owned());
    }

    pub(super) fn is_refused(&self, path: &str) -> bool {
        self.state().refused.contains(path)
    }

    /// Starts the thread that looks for spares when due. The stop does not join the thread: another
    /// server may be silent for a while, and must not delay this one's stop.
    ///
    /// # Errors
    /// The thread could not start.
    pub(super) fn start(
        self: &Arc<Self>,
        look: impl Fn(&str) -> SpareNeed + Send + 'static,
    ) -> io::Result<SpareWatch> {
        let group = Arc::clone(self);
        let thread = std::thread::Builder::new().name("braid-spares".into());
        thread.spawn(move || group.look_when_due(&look))?;
        self.look();
        Ok(SpareWatch(Arc::clone(self)))
    }

    fn look_when_due(&self, look: &impl Fn(&str) -> SpareNeed) {
        let mut last = SpareNeed::Content;
        loop {
            let Some(name) = self.wait(last) else { return };
            last = look(&name);
        }
    }

    /// Waits until it is time to look for a spare, then returns the group's name; returns `None`
    /// once the array stops.
    fn wait(&self, last: SpareNeed) -> Option<String> {
        let mut state = self.state();
        loop {
            if state.is_over {
                return None;
            }
            // Without a group the array looks for no spare, and needs no timer.
            let is_asking = last == SpareNeed::Lacking && state.name.is_some();
            if std::mem::take(&mut state.is_due)
                && let Some(name) = &state.name
            {
                return Some(name.clone());
            }
            if !is_asking {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.changed.wait_timeout(state, LOOK_EVERY);
            let timeout;
            (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state.is_due |= timeout.timed_out();
        }
    }
}

/// Ends the looks on drop, and waits at most `TAKING_MAX` for a spare that is between two arrays.
pub(super) struct SpareWatch(Arc<SpareGroup>);

impl Drop for SpareWatch {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_over = true;
        self.0.changed.notify_all();
        let taking = |state: &mut State| state.is_taking;
        let waited = self.0.changed.wait_timeout_while(state, TAKING_MAX, taking);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_group_is_a_word() {
        assert_eq!(SpareGroup::parse("off"), Ok(None));
        for name in ["rack1", "a.b-c_d:e", &"x".repeat(64)] {
            assert_eq!(SpareGroup::parse(name), Ok(Some(name.to_owned())));
        }
        for name in ["", "a b", "a/b", "ä", "a\n", &"x".repeat(65)] {
            assert!(SpareGroup::parse(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn it_is_looked_when_something_has_changed_and_not_without_a_group() {
        let group = Arc::new(SpareGroup::new(Some("rack")));
        let (sender, looked) = channel();
        let look = move |name: &str| {
            sender.send(name.to_owned()).expect("it is heard");
            SpareNeed::Content
        };
        let looking = group.start(look).expect("a thread");
        assert_eq!(looked.recv().expect("at the start"), "rack");
        group.look();
        assert_eq!(looked.recv().expect("again"), "rack");
        group.set(None);
        group.look();
        group.set(Some("other".to_owned()));
        assert_eq!(looked.recv().expect("it is in one again"), "other");
        drop(looking);
        assert!(looked.recv().is_err(), "the thread has ended, and was not asked without a group");
    }
}
