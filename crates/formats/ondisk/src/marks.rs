//! The marks of a lockless bitmap: one byte for each run of sectors, in one of eight states, and
//! the actions that change them.
//!
//! Facts from Linux (`drivers/md/md-llbitmap.c`, and the letter that came with it in 2025): the
//! numbers of the states, and their transitions. Linux 6.18 has the first five states; the three
//! for runs *made before they are written* came later.
//!
//! | byte | state               | members                                     | holds client data |
//! |------|---------------------|---------------------------------------------|-------------------|
//! | 0    | unwritten           | may differ, and it does not matter          | no                |
//! | 1    | clean               | agree                                       | yes               |
//! | 2    | dirty               | agree, unless a write is in flight          | yes               |
//! | 3    | need sync           | may differ where no client wrote            | yes               |
//! | 4    | syncing             | the same, resync is under way               | yes               |
//! | 5, 6 | the same, unwritten | may differ, early resync pending or running | no                |
//! | 7    | clean, unwritten    | agree                                       | no                |
//!
//! braid differs from md in two rules, and md can read the marks of both. A run that is written for
//! the first time becomes *need sync* on every level: md does so on parity levels, and lets copies
//! differ for good where no client wrote. And a run that was synced early counts as unwritten,
//! because a new member does not hold it.
//!
//! In memory the marks are sets of [`Bits`], like any bitmap; [`MarkState::of`] and
//! [`LocklessMarks`] convert.
//! [check: each_state_follows_from_each_other_as_the_table_says, sets_say_what_states_say]

use crate::bits::Bits;

/// The state of a run of sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum MarkState {
    /// No client has written the run, or clients trimmed their data.
    Unwritten = 0,
    /// Redundancy agrees.
    Clean = 1,
    /// A write is in flight, or was in flight a short time ago.
    Dirty = 2,
    /// A resync is pending.
    NeedSync = 3,
    /// A resync is under way.
    Syncing = 4,
    /// A resync is pending, before the first client write.
    NeedSyncUnwritten = 5,
    /// A resync is under way, before the first client write.
    SyncingUnwritten = 6,
    /// Redundancy agrees, and no client has written the run.
    CleanUnwritten = 7,
}

/// An event that changes a run's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MarkAction {
    /// A client is about to write.
    Write,
    /// Redundancy agrees now.
    Synced,
    /// No write is in flight, and members were flushed.
    Settled,
    /// A client trimmed the whole run, and no client has written to it since.
    Trimmed,
    /// The array is opened, and its last stop may have been a crash.
    Opened,
}

impl MarkState {
    /// All states, by their bytes.
    pub const ALL: [Self; 8] = [
        Self::Unwritten,
        Self::Clean,
        Self::Dirty,
        Self::NeedSync,
        Self::Syncing,
        Self::NeedSyncUnwritten,
        Self::SyncingUnwritten,
        Self::CleanUnwritten,
    ];

    /// The state of a byte on disk; `None` if unknown, which md treats as need sync.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }

    /// The byte on disk.
    #[must_use]
    pub fn byte(self) -> u8 {
        self as u8
    }

    /// The state in words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unwritten => "unwritten",
            Self::Clean => "clean",
            Self::Dirty => "dirty",
            Self::NeedSync => "need sync",
            Self::Syncing => "syncing",
            Self::NeedSyncUnwritten => "need sync, unwritten",
            Self::SyncingUnwritten => "syncing, unwritten",
            Self::CleanUnwritten => "clean, unwritten",
        }
    }

    /// Whether the run holds no client data.
    #[must_use]
    pub fn is_unwritten(self) -> bool {
        matches!(
            self,
            Self::Unwritten
                | Self::NeedSyncUnwritten
                | Self::SyncingUnwritten
                | Self::CleanUnwritten
        )
    }

    /// Whether members may differ in client data if the array was interrupted.
    #[must_use]
    pub fn may_differ(self) -> bool {
        matches!(self, Self::Dirty | Self::NeedSync | Self::Syncing)
    }

    /// Whether redundancy has not been made to agree since the first write.
    #[must_use]
    pub fn is_unsynced(self) -> bool {
        matches!(self, Self::NeedSync | Self::Syncing)
    }

    /// The state that braid writes for a run of sectors, given the run's bit in each of three sets.
    #[must_use]
    pub fn of(is_unwritten: bool, is_unsynced: bool, is_set: bool) -> Self {
        match (is_unwritten, is_unsynced, is_set) {
            (true, ..) => Self::Unwritten,
            (_, true, _) => Self::NeedSync,
            (_, _, true) => Self::Dirty,
            _ => Self::Clean,
        }
    }

    /// The mark's state after an action.
    #[must_use]
    pub fn after(self, action: MarkAction) -> Self {
        match (action, self) {
            (MarkAction::Trimmed, _) => Self::Unwritten,
            (MarkAction::Write, state) if state.is_unwritten() => Self::NeedSync,
            (MarkAction::Write, Self::Clean) => Self::Dirty,
            (MarkAction::Synced, Self::NeedSync | Self::Syncing) => Self::Dirty,
            (MarkAction::Settled, Self::Dirty) => Self::Clean,
            (MarkAction::Opened, state) if state.is_unwritten() => Self::Unwritten,
            (MarkAction::Opened, state) if state.may_differ() => Self::NeedSync,
            (_, state) => state,
        }
    }
}

/// The states of a lockless bitmap that plain bits cannot express: two disjoint sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocklessMarks {
    /// Runs without client data.
    pub unwritten: Bits,
    /// Runs with client data whose redundancy may disagree where no client wrote.
    pub unsynced: Bits,
}

impl LocklessMarks {
    /// All runs are unwritten; each mark covers `sectors_each` of `sectors` sectors.
    #[must_use]
    pub fn unwritten(sectors: u64, sectors_each: u64) -> Self {
        let unsynced = Bits::none(sectors, sectors_each);
        Self { unwritten: Bits::all(sectors, sectors_each), unsynced }
    }

    /// No run is unwritten, and redundancy agrees in all.
    #[must_use]
    pub fn clean(sectors: u64, sectors_each: u64) -> Self {
        let none = Bits::none(sectors, sectors_each);
        Self { unwritten: none.clone(), unsynced: none }
    }

    /// The state of a mark; `bits` are those of the regions that may differ.
    #[must_use]
    pub fn state(&self, bits: &Bits, mark: u64) -> MarkState {
        MarkState::of(self.unwritten.is_set(mark), self.unsynced.is_set(mark), bits.is_set(mark))
    }

    /// The bytes on disk, one for each mark.
    pub fn to_bytes<'a>(&'a self, bits: &'a Bits) -> impl Iterator<Item = u8> + 'a {
        (0..bits.count()).map(|mark| self.state(bits, mark).byte())
    }
}

/// How many marks are in each state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MarkCounts {
    counts: [u64; MarkState::ALL.len()],
    /// Bytes with an unknown state.
    pub unknown: u64,
}

impl MarkCounts {
    /// The number of marks in a state.
    #[must_use]
    pub fn of(&self, state: MarkState) -> u64 {
        self.counts.get(usize::from(state.byte())).copied().unwrap_or_default()
    }

    fn count(&mut self, state: Option<MarkState>) {
        let place = state.and_then(|state| self.counts.get_mut(usize::from(state.byte())));
        *place.unwrap_or(&mut self.unknown) += 1;
    }
}

/// Parses marks into bits, further states, and counts. Unknown bytes count as *need sync*.
#[must_use]
pub(crate) fn read_marks(
    bytes: &[u8],
    sectors: u64,
    sectors_each: u64,
) -> (Bits, LocklessMarks, MarkCounts) {
    let mut bits = Bits::none(sectors, sectors_each);
    let mut marks = LocklessMarks::clean(sectors, sectors_each);
    let mut counts = MarkCounts::default();
    for (mark, byte) in (0..bits.count()).zip(bytes) {
        let known = MarkState::from_byte(*byte);
        counts.count(known);
        let state = known.unwrap_or(MarkState::NeedSync);
        if state.is_unwritten() {
            marks.unwritten.set(mark);
        }
        if state.may_differ() {
            bits.set(mark);
        }
        if state.is_unsynced() {
            marks.unsynced.set(mark);
        }
    }
    (bits, marks, counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ACTIONS: [MarkAction; 5] = [
        MarkAction::Write,
        MarkAction::Synced,
        MarkAction::Settled,
        MarkAction::Trimmed,
        MarkAction::Opened,
    ];

    #[test]
    fn each_byte_is_one_state() {
        for (byte, state) in (0_u8..).zip(MarkState::ALL) {
            assert_eq!((MarkState::from_byte(byte), state.byte()), (Some(state), byte));
        }
        assert_eq!((MarkState::from_byte(8), MarkState::from_byte(0xff)), (None, None));
        let mut names: Vec<_> = MarkState::ALL.map(MarkState::name).to_vec();
        names.dedup();
        assert_eq!(names.len(), 8);
    }

    #[test]
    fn each_state_follows_from_each_other_as_the_table_says() {
        for (state, action) in MarkState::ALL.into_iter().flat_map(|s| ACTIONS.map(|a| (s, a))) {
            let next = state.after(action);
            let case = format!("{state:?} {action:?} {next:?}");
            match action {
                MarkAction::Trimmed => assert_eq!(next, MarkState::Unwritten, "{case}"),
                MarkAction::Write => {
                    assert!(next.may_differ() && !next.is_unwritten(), "it says so first: {case}");
                    let was_in_sync = matches!(state, MarkState::Clean | MarkState::Dirty);
                    assert_eq!(next.is_unsynced(), !was_in_sync, "parity means nothing: {case}");
                }
                MarkAction::Synced => {
                    assert!(!next.is_unsynced(), "{case}");
                    assert_eq!(next.is_unwritten(), state.is_unwritten(), "{case}");
                    assert_eq!(next.may_differ(), state.may_differ(), "a write goes on: {case}");
                }
                MarkAction::Settled => {
                    let is_alike = (next.is_unwritten(), next.is_unsynced())
                        == (state.is_unwritten(), state.is_unsynced());
                    assert!(is_alike, "{case}");
                    assert!(!next.may_differ() || next.is_unsynced(), "{case}");
                }
                MarkAction::Opened => {
                    assert_eq!(next.is_unwritten(), state.is_unwritten(), "{case}");
                    assert_eq!(next.is_unsynced(), state.may_differ(), "{case}");
                }
            }
            assert!(!(next.is_unwritten() && next.may_differ()), "{case}");
        }
    }

    #[test]
    fn sets_say_what_states_say() {
        for state in MarkState::ALL {
            let (bits, marks, counts) = read_marks(&[state.byte()], 8, 8);
            let is = (bits.is_set(0), marks.unwritten.is_set(0), marks.unsynced.is_set(0));
            let (may_differ, unwritten) = (state.may_differ(), state.is_unwritten());
            assert_eq!(is, (may_differ, unwritten, state.is_unsynced()), "{state:?}");
            assert_eq!(counts.of(state), 1);
            // The state that braid writes for a mark gives the same sets as the mark's byte on
            // disk.
            let written = marks.state(&bits, 0);
            let same = (written.may_differ(), written.is_unwritten(), written.is_unsynced());
            assert_eq!(same, (may_differ, unwritten, state.is_unsynced()), "{state:?} {written:?}");
        }
        let (bits, marks, counts) = read_marks(&[0xA5], 8, 8);
        assert!(bits.is_set(0) && marks.unsynced.is_set(0), "its content is unknown");
        assert_eq!(counts.unknown, 1);
    }

    proptest! {
        #[test]
        fn marks_are_read_as_they_were_written(
            bytes in prop::collection::vec(prop::sample::select(vec![0_u8, 1, 2, 3]), 1..200),
            each in 1_u64..40,
        ) {
            let sectors = bytes.len() as u64 * each;
            let (bits, marks, counts) = read_marks(&bytes, sectors, each);
            prop_assert_eq!(marks.to_bytes(&bits).collect::<Vec<_>>(), bytes.clone());
            let total: u64 = MarkState::ALL.into_iter().map(|state| counts.of(state)).sum();
            prop_assert_eq!(total, bytes.len() as u64);
        }
    }
}
