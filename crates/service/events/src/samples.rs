//! Events for tests: one event of each kind, and hostile events.

use std::time::Duration;

use braid_geometry::{LogicalSector, MemberSector, Slot};
use braid_runtime::{
    Answer, Candidates, Cause, ErrorReaction, Fate, Finding, JobEnd, JobKind, JobProgress,
    MemberId, Notice, RequestKind, RotKind,
};

use crate::event::{Change, Event, Identity, Moment, Outcome, Why};
use crate::kind::{Kind, Percent};
use crate::notice::{Doubt, Mapping, Names};

pub(crate) fn identity() -> Identity {
    Identity { array: "tank".to_owned(), uuid: "0a1b2c3d:0a1b2c3d:0a1b2c3d:0a1b2c3d".to_owned() }
}

pub(crate) fn cause() -> Cause {
    let (asked, answer) = (RequestKind::Write, Answer::Os(5));
    Cause { member: MemberId(1), asked, sector: 123_456, sectors: 8, answer }
}

/// One notice of each kind, in the order of the engine's list except for the last two.
pub(crate) fn notices() -> Vec<Notice> {
    let (member, slot, cause) = (MemberId(1), Slot(2), cause());
    let (start, sectors) = (LogicalSector(16), 8);
    let progress = |kind, done| JobProgress {
        kind,
        from: 0,
        done,
        end: 96,
        differing: 0,
        written: done,
        located: 0,
        repaired: 0,
        ambiguous: 0,
        unmade: 0,
        named: 0,
        retries: false,
        paused: false,
    };
    let rot = |kind, fate| {
        let start = MemberSector(24);
        Notice::Found(Finding::Rot { member, slot, start, sectors: 8, kind, fate })
    };
    let began = |kind| Notice::JobBegan(progress(kind, 0));
    let ended = |kind| Notice::JobEnded { progress: progress(kind, 96), end: JobEnd::Completed };
    vec![
        Notice::MemberOut { member, slot, cause },
        Notice::Broken { member, cause },
        Notice::OutOfSpace { member, cause },
        Notice::WriteProtected { member, cause },
        Notice::SpareLost { member, cause },
        Notice::JournalLost { member, cause },
        Notice::BitmapFileLost { member, cause },
        Notice::WriteLost { start, sectors, cause: Some(cause) },
        Notice::WriteLost { start, sectors, cause: None },
        Notice::SitsOut { member, slot, latency_ms: 900, siblings_us: 1200 },
        Notice::Back { member, slot, after_ms: 5000 },
        Notice::Away { member, slot },
        Notice::Returned { member: MemberId(5), slot, old: member, after_ms: 9000 },
        Notice::Errs { member, slot, errors: 21, erring: ErrorReaction::Replaced(MemberId(4)) },
        Notice::SpareTaken { member, slot, kept_sectors: 0 },
        began(JobKind::Recovery),
        Notice::JobPassed(progress(JobKind::Recovery, 40)),
        ended(JobKind::Recovery),
        Notice::Recovered { member, slot },
        began(JobKind::Resync),
        ended(JobKind::Resync),
        began(JobKind::Check),
        rot(RotKind::Data(start), Fate::Left),
        Notice::Found(Finding::Ambiguous {
            start: MemberSector(24),
            sectors: 8,
            array: None,
            candidates: Candidates::new([slot, Slot(3)]),
        }),
        ended(JobKind::Check),
        began(JobKind::Repair),
        rot(RotKind::Q, Fate::Repaired),
        ended(JobKind::Repair),
        Notice::Found(Finding::Lost { array: start, sectors: 8 }),
        Notice::Recorded { events: 5 },
        Notice::Stopped { clean: true },
    ]
}

/// A member's name with special characters of shells, terminals, mail and JSON.
pub(crate) const NASTY: &str = "/dev/$(touch /tmp/x)`id`'\"\\\r\nBcc: a@b\n.\n\u{1b}[2J";

/// Events of every kind and shape.
pub(crate) fn events() -> Vec<Event> {
    let label = |member: MemberId| format!("/dev/m{}", member.0);
    let names = Names { array: "tank", member: &label, doubt: Doubt::Nothing };
    let time = Moment::from_unix(Duration::from_micros(1_795_217_763_123_456));
    let told = notices();
    let mut mapping = Mapping::default();
    let mut changes: Vec<Change> =
        told.iter().filter_map(|notice| mapping.change(notice, time, names)).collect();
    changes.extend(Kind::NAMED.iter().map(|kind| Change::now(kind.clone(), "a sentence")));
    let percent = Kind::Rebuild(Percent::new(20).expect("a number of percent"));
    changes.push(Change::now(percent, "20 %").with("job", "check"));
    changes.push(
        Change::now(Kind::CheckFinished, "the check has ended")
            .with("repair", true)
            .ended(Outcome::Completed, &[("located", 3), ("repaired", 3)]),
    );
    let why = Why::new(&cause(), NASTY);
    changes.push(Change::now(Kind::Fail, NASTY).of(NASTY, Some(0)).because(why));
    let identity = identity();
    (1..).zip(changes).map(|(id, change)| Event::new(id, &identity, change)).collect()
}
