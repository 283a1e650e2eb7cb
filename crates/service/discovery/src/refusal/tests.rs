//! Tests that each refusal has its own code, and a first remedy that cannot lose data.

use std::collections::BTreeSet;

use braid_assembly::{
    ArrayName, AtRisk, BitmapFileFault, JournalFault, MemberVerdict, RangeAtRisk, ReadOnlyReason,
    Reason, Refusal, Verdict,
};
use braid_geometry::{GeometryError, Slot};
use braid_ondisk::{ForeignKind, PplLogError, SuperblockError, SuperblockFault, Version};

use super::cli_error;
use braid_console::error::Risk;
use braid_console::error::code::Code;

fn labels() -> Vec<String> {
    ["a b", "c"].map(String::from).to_vec()
}

fn foreign(label: &str, uuid: [u8; 16]) -> MemberVerdict {
    let reason = Reason::OtherArray { uuid, name: String::new() };
    MemberVerdict { label: label.to_string(), verdict: Verdict::Foreign, reason }
}

fn verdicts() -> Vec<MemberVerdict> {
    vec![foreign("a b", [1; 16]), foreign("c", [2; 16])]
}

fn at_risk() -> AtRisk {
    let range = RangeAtRisk { member_sectors: 0..8, array_sectors: 0..2048 };
    AtRisk { slots: vec![1], stripes: 7, ranges: vec![range] }
}

fn refusals() -> Vec<(Refusal, Code)> {
    let name = |uuid, name: &str| ArrayName { uuid, name: name.to_string(), members: 1 };
    let risk = at_risk();
    let geometry = GeometryError::CapacityTooLarge;
    vec![
        (Refusal::NoMembers { wanted: None }, Code::NoSuperblock),
        (Refusal::NoMembers { wanted: Some("tank".to_string()) }, Code::NoSuperblock),
        (
            Refusal::SeveralArrays { arrays: vec![name([1; 16], "x;y"), name([2; 16], "")] },
            Code::SeveralArrays,
        ),
        (Refusal::RolesContradict { labels: labels() }, Code::RanApart),
        (Refusal::SlotClaimedTwice { slot: 1, labels: labels() }, Code::SlotClaimedTwice),
        (Refusal::UnknownFeatures { bits: 1 << 20 }, Code::UnsupportedFeature),
        (Refusal::NewerFormat, Code::UnsupportedFeature),
        (Refusal::Clustered, Code::UnsupportedFeature),
        (
            Refusal::Reshaping { position_sectors: 8, fault: braid_assembly::ReshapeFault::NoCopy },
            Code::Reshaping,
        ),
        (
            Refusal::JournalMissing {
                fault: JournalFault::Absent { number: Some(4) },
                missing: vec![1],
                array_sectors: 4096,
            },
            Code::JournalNeeded,
        ),
        (Refusal::ReadOnlyOnly(ReadOnlyReason::Journal), Code::ReadOnlyOnly),
        (
            Refusal::NewestDamaged { labels: vec!["/dev/sdb".into()], events: 9, sound_events: 5 },
            Code::NewestDamaged,
        ),
        (
            Refusal::OlderThanKnown { events: 4, known_events: 9, members: Vec::new() },
            Code::OlderThanKnown,
        ),
        (
            Refusal::ConflictingGeometry {
                label: "c".to_string(),
                other: "a b".to_string(),
                field: "level",
            },
            Code::MembersDisagree,
        ),
        (Refusal::Geometry(geometry), Code::SuperblockImpossible),
        (
            Refusal::Geometry(GeometryError::Raid10FarSets { layout: 0x40102 }),
            Code::UnsupportedFeature,
        ),
        (
            Refusal::TooFewMembers { have: 1, need: 2, slots: 3, missing: vec![1, 2] },
            Code::TooFewMembers,
        ),
        (Refusal::DirtyAndDegraded(risk), Code::DirtyDegraded),
        (
            Refusal::PplNotReplayed {
                missing: vec![1],
                unread: vec![(Slot(0), PplLogError::Unreadable)],
                stripes: 7,
            },
            Code::PplNeeded,
        ),
        (
            Refusal::BitmapFile { label: "c".to_string(), fault: BitmapFileFault::OtherArray },
            Code::BitmapFileUnfit,
        ),
        (
            Refusal::PplNotReplayed {
                missing: vec![1],
                unread: vec![(Slot(0), PplLogError::NoFile)],
                stripes: 7,
            },
            Code::PplNeeded,
        ),
        (Refusal::ReadOnlyOnly(ReadOnlyReason::Ppl), Code::ReadOnlyOnly),
        (Refusal::ReadOnlyOnly(ReadOnlyReason::BitmapUnknown), Code::ReadOnlyOnly),
    ]
}

#[test]
fn every_refusal_has_its_code_and_a_safe_way_out() {
    let mut codes = BTreeSet::new();
    for (refusal, code) in refusals() {
        codes.insert(refusal.code());
        let error = cli_error(&refusal, &verdicts(), &labels());
        assert_eq!(error.code(), code, "{refusal}");
        let remedies = error.remedies();
        assert_ne!(remedies[0].risk, Risk::Destroy, "{refusal}");
        assert!(remedies.iter().any(|remedy| remedy.command.contains("braid")), "{refusal}");
        for remedy in &remedies {
            let names = ["'a b'", "c"].iter().any(|name| remedy.command.contains(name));
            assert!(remedy.command.is_empty() || names, "{}", remedy.command);
        }
    }
    assert_eq!(codes.len(), 18, "each of assembly's refusals");
}

#[test]
fn only_accepting_the_risk_is_dangerous_and_it_comes_last() {
    let risk = at_risk();
    let error = cli_error(&Refusal::DirtyAndDegraded(risk), &[], &labels());
    let last = error.remedies().last().cloned().expect("some");
    assert_eq!(
        (last.command.as_str(), last.risk),
        ("braid serve --accept-risk 7 'a b' c", Risk::Destroy)
    );
    let cause = error.to_json()["cause"].to_string();
    assert!(cause.contains("slot 1") && cause.contains("1 MiB"), "{cause}");
}

#[test]
fn a_journal_that_is_missing_is_named_with_all_that_is_at_risk() {
    let said = |missing: Vec<u16>| {
        let fault = JournalFault::Absent { number: Some(4) };
        let refusal = Refusal::JournalMissing { fault, missing, array_sectors: 4096 };
        cli_error(&refusal, &[], &labels()).to_json().to_string()
    };
    for words in [said(vec![]), said(vec![1])] {
        assert!(words.contains("number 4") && words.contains("sectors 0..4096"), "{words}");
        assert!(words.contains("braid serve --read-only"), "{words}");
    }
    assert!(said(vec![1]).contains("for slot 1") && !said(vec![]).contains("slot 1"));
}

#[test]
fn of_several_arrays_each_is_offered_with_its_own_members() {
    let (refusal, _) = refusals().swap_remove(2);
    let error = cli_error(&refusal, &verdicts(), &labels());
    let commands: Vec<String> = error.remedies().into_iter().map(|remedy| remedy.command).collect();
    let all = "braid serve --all 'a b' c";
    assert_eq!(commands, ["braid serve 'a b'", "braid serve c", all]);
}

#[test]
fn of_nothing_but_broken_members_the_fault_is_named() {
    let cases = [
        (SuperblockFault::Checksum { stored: 1, computed: 2 }, Code::SuperblockChecksum),
        (SuperblockFault::Level { number: -4, name: "multipath" }, Code::UnsupportedFeature),
        (SuperblockFault::ChunkZero, Code::SuperblockImpossible),
        (
            SuperblockFault::SectorCount { field: "size", sectors: 1 << 60 },
            Code::SuperblockImpossible,
        ),
    ];
    for (cause, code) in cases {
        let error =
            SuperblockError { version: Version::V1_2, offset_bytes: 4096, cause, claim: None };
        let verdict = MemberVerdict {
            label: "c".to_string(),
            verdict: Verdict::Damaged,
            reason: Reason::Superblock(error),
        };
        let error = cli_error(&Refusal::NoMembers { wanted: None }, &[verdict], &labels());
        assert_eq!(error.code(), code, "{cause}");
    }
    let short = MemberVerdict {
        label: "c".to_string(),
        verdict: Verdict::Truncated,
        reason: Reason::TooShort { missing_bytes: 1 },
    };
    let error = cli_error(&Refusal::NoMembers { wanted: None }, &[short], &labels());
    assert_eq!(error.code(), Code::MemberTruncated);
}

/// md decides by its own rules: it uses members that braid calls stale or a replacement.
#[test]
fn the_kernel_is_given_all_members_of_the_array_and_no_stranger() {
    let of = |label: &str, verdict| {
        let reason = Reason::Newest { events: 1 };
        MemberVerdict { label: label.to_string(), verdict, reason }
    };
    let mut verdicts = vec![
        of("fresh", Verdict::Fresh { slot: 0 }),
        of("stale", Verdict::Stale { behind: 9 }),
        of("faulty", Verdict::Faulty),
        of("replacement", Verdict::Replacement { slot: 0 }),
        of("twice", Verdict::Duplicate),
    ];
    verdicts.push(foreign("stranger", [1; 16]));
    let members: Vec<String> = verdicts.iter().map(|one| one.label.clone()).collect();
    let error = cli_error(
        &Refusal::Reshaping { position_sectors: 8, fault: braid_assembly::ReshapeFault::NoCopy },
        &verdicts,
        &members,
    );
    let commands: Vec<String> = error.remedies().into_iter().map(|one| one.command).collect();
    let expected = "mdadm --assemble /dev/md127 fresh stale faulty replacement";
    assert!(commands.iter().any(|command| command == expected), "{commands:?}");
}

#[test]
fn an_image_in_a_members_place_is_made_raw_first() {
    let holds = |label: &str, kind| {
        let (verdict, reason) = (Verdict::NotAMember, Reason::Holds(kind));
        MemberVerdict { label: label.to_string(), verdict, reason }
    };
    let verdicts = [holds("a.vdi", ForeignKind::Vdi), holds("b", ForeignKind::Ext)];
    let members = ["a.vdi".to_string(), "b".to_string()];
    let error = cli_error(&Refusal::NoMembers { wanted: None }, &verdicts, &members);
    let commands: Vec<String> = error.remedies().into_iter().map(|one| one.command).collect();
    assert_eq!(commands[1..], ["qemu-img convert -O raw a.vdi a.raw"], "{commands:?}");
}
