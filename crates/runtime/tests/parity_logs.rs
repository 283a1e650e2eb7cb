//! Parity logs on real threads: made and given up while clients write.

#[allow(dead_code, reason = "nothing here is random")]
#[path = "kit/client.rs"]
mod client;
#[allow(dead_code, reason = "the kit of all tests")]
mod kit;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use braid_geometry::Level;
use braid_runtime::{LogError, LogKind, LogRefusal, MemberId};
use client::{read, write};
use kit::Array;

const LEVELS: [(Level, u16, u32); 3] =
    [(Level::Raid4, 3, 64), (Level::Raid5, 4, 128), (Level::Raid6, 5, 64)];

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    let byte = |at: usize| (at / 512 % 256) ^ (at % 251);
    (0..length).map(|at| u8::try_from(byte(at)).expect("a byte") ^ seed).collect()
}

#[test]
fn a_log_comes_and_goes_on_a_volume_that_is_written() {
    for (level, slots, chunk) in LEVELS {
        let array = Array::with_spares(level, (slots, 1), chunk);
        let volume = Arc::new(array.open(|_| {}));
        let is_over = Arc::new(AtomicBool::new(false));
        let writer = {
            let (volume, is_over) = (Arc::clone(&volume), Arc::clone(&is_over));
            std::thread::spawn(move || {
                let mut rounds = 0..;
                while !is_over.load(Ordering::Acquire) {
                    let round: u64 = rounds.next().expect("it never ends");
                    let seed = u8::try_from(round % 256).expect("a byte");
                    write(&volume, round % 32 * 65_536, &pattern(65_536, seed), false);
                }
                rounds.start
            })
        };
        let (ppl, own) = (Some(LogKind::Ppl), Some(LogKind::Own));
        for kind in [own, None, ppl, None, own, None] {
            let changed = volume.change_logs(kind);
            if kind == ppl && level != Level::Raid5 {
                assert_eq!(changed, Err(LogRefusal::Level.into()), "{level}");
                assert_eq!(volume.change_logs(None), Err(LogRefusal::HasNone.into()), "{level}");
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
        is_over.store(true, Ordering::Release);
        let rounds = writer.join().expect("it writes");
        for slot in 0..rounds.min(32) {
            let last = (rounds - 1 - slot) / 32 * 32 + slot;
            let expected = pattern(65_536, u8::try_from(last % 256).expect("a byte"));
            assert!(read(&volume, slot * 65_536, 65_536) == expected, "{level}: {slot}");
        }
        assert!(volume.stop().clean, "{level}");
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
