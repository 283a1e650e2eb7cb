//! Members with repeated read errors, as shards' reports of rewritten sectors show them.

use braid_engine::array::{
    Array, ArrayEffect, ArraySetup, ErrorReaction, MemberId, Notice, SpareSetup,
};
use braid_engine::effect::Report;
use braid_engine::request::ShardIndex;
use braid_engine::{Instant, OnReadErrors, ReadErrorLimit};
use braid_geometry::{Geometry, Level, Shape, Slot};

const HOUR: u64 = 3600 * 1_000_000_000;
const SPARE: MemberId = MemberId(9);

struct ErringArray {
    array: Array,
    now: Instant,
}

impl ErringArray {
    fn new(level: Level, slots: u16, missing: Option<u16>, then: OnReadErrors) -> Self {
        let shape = Shape::uniform(level, 2, 8, slots, 64);
        let geometry = Geometry::new(&shape).expect("a plain shape");
        let mut setup = ArraySetup::consistent(geometry, 2);
        if let Some(missing) = missing {
            setup.slots[usize::from(missing)] = None;
        }
        let mut array = Array::new(setup);
        let now = Instant(0);
        array.handle_read_error_limit(now, ReadErrorLimit { most: Some(20), then });
        let mut erring = Self { array, now };
        erring.notices();
        erring
    }

    fn add_spare(&mut self) {
        let spare = SpareSetup::new(SPARE, 9);
        self.array.handle_member_added(self.now, spare, None).expect("it can come");
    }

    fn errs(&mut self, member: u16, times: u32) -> Vec<Notice> {
        for _ in 0..times {
            let report = Report::Mended { member: MemberId(member) };
            self.array.handle_report(self.now, ShardIndex(0), report);
        }
        self.notices()
    }

    fn notices(&mut self) -> Vec<Notice> {
        let effects = std::iter::from_fn(|| self.array.poll_effect());
        let notices = effects.filter_map(|effect| match effect {
            ArrayEffect::Notice(notice) => Some(notice),
            _ => None,
        });
        notices.collect()
    }
}

fn says(member: u16, errors: u32, erring: ErrorReaction) -> Notice {
    Notice::Errs { member: MemberId(member), slot: Slot(member), errors, erring }
}

#[test]
fn a_member_that_errs_again_and_again_is_copied_to_a_spare() {
    let mut erring = ErringArray::new(Level::Raid5, 4, None, OnReadErrors::Replace);
    erring.add_spare();
    assert_eq!(erring.errs(1, 20), [], "so many any disk may have");
    assert_eq!(erring.errs(1, 1), [says(1, 21, ErrorReaction::Replaced(SPARE))]);
    assert_eq!(erring.array.slot_to_replace(SPARE), Some(Slot(1)), "and it stays until then");
    assert_eq!(erring.errs(1, 50), [], "it is said once");
    // The spare is in use already.
    assert_eq!(erring.errs(2, 21), [says(2, 21, ErrorReaction::Stays)]);
}

#[test]
fn a_spare_is_for_the_slot_without_a_member_first() {
    let mut erring = ErringArray::new(Level::Raid6, 5, Some(4), OnReadErrors::Replace);
    erring.add_spare();
    assert_eq!(erring.errs(1, 21), [says(1, 21, ErrorReaction::Stays)]);
    assert_eq!(erring.array.slot_to_replace(SPARE), None);
}

#[test]
fn a_member_that_errs_is_warned_of_once_until_it_was_well() {
    let mut erring = ErringArray::new(Level::Raid6, 5, None, OnReadErrors::Replace);
    assert_eq!(erring.errs(3, 21), [says(3, 21, ErrorReaction::Stays)]);
    assert_eq!(erring.errs(3, 9), []);
    // After an hour, fifteen of thirty errors still count.
    erring.now = Instant(HOUR);
    assert_eq!(erring.errs(3, 5), []);
    assert_eq!(erring.errs(3, 1), [says(3, 21, ErrorReaction::Stays)]);
    erring.now = Instant(HOUR + 1);
    erring.add_spare();
    assert_eq!(
        erring.notices(),
        [says(3, 21, ErrorReaction::Replaced(SPARE))],
        "a spare that comes later"
    );
}

/// If the level cannot do without the member, the member stays, whatever the setting.
#[test]
fn a_member_that_errs_is_not_put_out_where_it_is_needed() {
    let mut erring = ErringArray::new(Level::Raid5, 4, Some(0), OnReadErrors::Fail);
    assert_eq!(erring.errs(1, 21), [says(1, 21, ErrorReaction::Stays)]);
    assert!(erring.array.members().contains(&MemberId(1)));
    let mut erring = ErringArray::new(Level::Raid5, 4, None, OnReadErrors::Fail);
    assert_eq!(erring.errs(1, 21), [says(1, 21, ErrorReaction::PutOut)]);
    assert!(!erring.array.members().contains(&MemberId(1)));
    assert_eq!(
        erring.errs(2, 21),
        [says(2, 21, ErrorReaction::Stays)],
        "the others need this one now"
    );
    assert!(erring.array.members().contains(&MemberId(2)));
}

#[test]
fn turned_off_any_number_is_right() {
    let mut erring = ErringArray::new(Level::Raid5, 4, None, OnReadErrors::Fail);
    let off = ReadErrorLimit { most: None, then: OnReadErrors::Fail };
    erring.array.handle_read_error_limit(erring.now, off);
    assert_eq!(erring.errs(1, 1000), []);
    let errors = erring.array.read_errors(erring.now);
    assert_eq!(errors.iter().map(|(_, errors)| errors.corrected).sum::<u64>(), 1000);
}
