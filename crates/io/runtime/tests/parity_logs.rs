//! Parity logs on real threads: created and dropped while clients write.

use std::sync::Arc;

use crate::kit::Array;
use crate::meanwhile::while_it_is_written;
use braid_geometry::Level;
use braid_member::MemoryMember;
use braid_ondisk::Features;
use braid_runtime::{JournalError, LogError, LogKind, LogRefusal, MemberId};

const LEVELS: [(Level, u16, u32); 3] =
    [(Level::Raid4, 3, 64), (Level::Raid5, 4, 128), (Level::Raid6, 5, 64)];

#[test]
fn a_log_comes_and_goes_on_a_volume_that_is_written() {
    for (level, slots, chunk) in LEVELS {
        let array = Array::with_spares(level, (slots, 1), chunk);
        while_it_is_written(array.open(|_| {}), |volume| {
            let (ppl, own) = (Some(LogKind::Ppl), Some(LogKind::Own));
            for kind in [own, None, ppl, None, own, None] {
                let changed = volume.change_logs(kind);
                if kind == ppl && level != Level::Raid5 {
                    assert_eq!(changed, Err(LogRefusal::Level.into()), "{level}");
                    assert_eq!(
                        volume.change_logs(None),
                        Err(LogRefusal::HasNone.into()),
                        "{level}"
                    );
                    continue;
                }
                if kind.is_none() && volume.parity_logs().is_none() && changed.is_err() {
                    assert_eq!(changed, Err(LogRefusal::HasNone.into()), "{level}");
                    continue;
                }
                changed.expect("nothing is in doubt");
                assert_eq!(volume.parity_logs().is_some(), kind.is_some(), "{level}");
                assert_eq!(volume.has_own_parity_logs(), kind == own, "{level}");
                let (probed, _) = array.assemble();
                for probed in probed {
                    let newest = probed.probe.newest().expect("a member");
                    assert_eq!(newest.intent.ppl.is_some(), kind == ppl, "{level}: spares too");
                }
            }
        });
    }
}

#[test]
fn a_journal_comes_and_goes_on_a_volume_that_is_written() {
    for (level, slots, chunk) in LEVELS {
        let array = Array::with_spares(level, (slots, 1), chunk);
        while_it_is_written(array.open(|_| {}), |volume| {
            for round in 0..3 {
                let device = Arc::new(MemoryMember::new(8 << 20));
                let identity = ([round; 16], u32::from(round) + 1);
                let added = volume.add_journal(Box::new(Arc::clone(&device)), identity, |_| {});
                let id = added.expect("nothing is in the way");
                assert_eq!(volume.journal().map(|look| look.member), Some(id), "{level}");
                let says = |wanted: bool| {
                    let (probed, _) = array.assemble();
                    for probed in probed {
                        let newest = probed.probe.newest().expect("a member");
                        let says = newest.state.features.contains(Features::JOURNAL);
                        assert_eq!(says, wanted, "{level}: spares too");
                    }
                };
                says(true);
                let second = volume.may_add_journal(8 << 20);
                assert!(
                    matches!(second, Err(JournalError::Refused(LogRefusal::HasLogs))),
                    "{second:?}"
                );
                volume.change_logs(None).expect("nothing is in doubt");
                assert!(volume.journal().is_none(), "{level}");
                says(false);
                volume.remove_member(id).expect("it is none of the array's");
                assert_eq!(Arc::strong_count(&device), 1, "and closed");
            }
            let small = volume.may_add_journal(5 << 18);
            assert!(matches!(small, Err(JournalError::TooSmall { .. })), "{small:?}");
        });
    }
}

#[test]
fn a_log_is_refused_where_it_is_of_no_use_or_a_member_is_out() {
    let array = Array::new(Level::Raid1, 2, 0);
    let volume = array.open(|_| {});
    assert_eq!(volume.change_logs(Some(LogKind::Own)), Err(LogRefusal::Level.into()));
    assert!(volume.stop().clean);
    let array = Array::new(Level::Raid5, 4, 128);
    let volume = array.open(|_| {});
    let too_large = volume.plan_logs(LogKind::Own, 1 << 30);
    assert!(matches!(too_large, Err(LogError::NoRoom { .. })), "{too_large:?}");
    volume.fail_member(MemberId(1)).expect("it can do without it");
    for kind in [LogKind::Own, LogKind::Ppl] {
        assert_eq!(volume.change_logs(Some(kind)), Err(LogRefusal::Degraded.into()));
    }
    assert!(volume.stop().clean);
}
