//! Tests of the model: time of a transfer, order of waiters, and equal runs.

use std::sync::Mutex as Notes;
use std::sync::atomic::AtomicU64 as Noted;

use super::atomic::{AtomicU64, Ordering};
use super::*;

/// A value on a cache line of its own.
#[repr(align(128))]
struct LineAligned<T>(T);

fn costs() -> Costs {
    let costs = Costs::server();
    costs.with(Cost::Own, 1).with(Cost::Locked, 10).with(Cost::Near, 100).with(Cost::Far, 1000)
}

/// The times at which these cores have changed the same line, one core after the other.
fn moments(costs: Costs, cores: &[usize]) -> Vec<u64> {
    let line = LineAligned(AtomicU64::new(0));
    let moments = Notes::new(Vec::new());
    run(costs, 256, |core| {
        let Some(place) = cores.iter().position(|one| *one == core) else { return };
        // The starts are far apart, so that no core waits for another.
        let begin_ps = 1_000_000_000 * (place as u64 + 1);
        work_ps(begin_ps - thread::now_ps());
        line.0.fetch_add(1, Ordering::AcqRel);
        moments.lock().expect("noting does not panic").push(thread::now_ps() - begin_ps);
    });
    moments.into_inner().expect("noting does not panic")
}

#[test]
fn a_line_takes_what_the_way_to_it_takes() {
    let costs = costs().with(Cost::Remote, 10_000);
    assert_eq!(moments(costs, &[0, 0, 7, 8, 200]), [10, 110, 1010, 10_010]);
    assert_eq!(moments(costs, &[200, 130, 129]), [10, 1010, 110]);
}

#[test]
fn who_wants_a_line_meanwhile_stands_behind_and_readers_share_it() {
    let line = LineAligned(AtomicU64::new(0));
    let ends = Notes::new(Vec::new());
    run(costs(), 24, |core| {
        if core == 0 {
            line.0.fetch_add(1, Ordering::AcqRel);
        }
        work_ps(1_000_000_000 - thread::now_ps());
        if core == 8 || core == 16 {
            line.0.fetch_add(1, Ordering::AcqRel);
            ends.lock().expect("noting does not panic").push(thread::now_ps() - 1_000_000_000);
        }
        work_ps(2_000_000_000 - thread::now_ps());
        if core == 1 {
            line.0.load(Ordering::Acquire);
            line.0.load(Ordering::Acquire);
            ends.lock().expect("noting does not panic").push(thread::now_ps() - 2_000_000_000);
        }
    });
    assert_eq!(*ends.lock().expect("noting does not panic"), [1010, 2010, 1002]);
}

/// Threads increment a counter under a lock, `times` times each. Returns the sum, the time, and the
/// failed attempts.
fn add(waiting: WaitPolicy, threads: usize, times: u64) -> (u64, u64, u64) {
    let count = LineAligned(Mutex::new(vec![0_u64]));
    let (end_ps, failed) = (Noted::new(0), Noted::new(0));
    run(Costs::server().with_waiting(waiting), threads, |_| {
        for _ in 0..times {
            let mut count = count.0.try_lock().unwrap_or_else(|_| {
                failed.fetch_add(1, Ordering::Relaxed);
                count.0.lock().expect("no thread panics")
            });
            let before = count[0];
            // Other threads run while this one works, and must not get the lock.
            work_ps(3_000_000);
            thread::yield_now();
            count[0] = before + 1;
        }
        end_ps.fetch_max(thread::now_ps(), Ordering::Relaxed);
    });
    let sum = count.0.lock().expect("no thread panics")[0];
    (sum, end_ps.into_inner(), failed.into_inner())
}

#[test]
fn a_lock_is_one_threads_at_a_time_and_who_sleeps_is_woken() {
    for waiting in [WaitPolicy::Futex, WaitPolicy::Queue] {
        let (sum, end_ps, failed) = add(waiting, 12, 20);
        assert_eq!(sum, 240, "{waiting:?}");
        assert!(end_ps > 240 * 3_000_000, "they were one after the other");
        assert!(failed >= 11, "they wanted it at the same time: {failed}");
    }
}

#[test]
fn the_same_run_twice_is_the_same() {
    assert_eq!(add(WaitPolicy::Futex, 32, 10), add(WaitPolicy::Futex, 32, 10));
    assert_eq!(add(WaitPolicy::Queue, 32, 10), add(WaitPolicy::Queue, 32, 10));
}

#[test]
fn one_who_parks_is_woken_by_one_who_comes_later_and_by_one_who_came_before() {
    let parked = Notes::new(None);
    let ends = Notes::new([0; 2]);
    run(Costs::server(), 2, |core| {
        if core == 0 {
            *parked.lock().expect("noting does not panic") = Some(thread::current());
            thread::park();
            work_ps(50_000_000);
            thread::park();
        } else {
            work_ps(10_000_000);
            let one = parked.lock().expect("noting does not panic").expect("it was here first");
            one.unpark();
            // The thread works, so it is woken before its next park, which must return at once.
            work_ps(20_000_000);
            one.unpark();
        }
        ends.lock().expect("noting does not panic")[core] = now_ns();
    });
    let [slept, woke] = ends.into_inner().expect("noting does not panic");
    assert!(slept > woke && slept < 80_000, "{slept} {woke}");
}

#[test]
#[should_panic(expected = "not all threads sleep")]
fn a_run_in_which_all_sleep_is_a_mistake() {
    run(Costs::server(), 2, |_| thread::park());
}

#[test]
fn without_a_run_nothing_takes_time() {
    let lock = Mutex::new(vec![1]);
    lock.lock().expect("no thread panics").push(2);
    assert_eq!(lock.try_lock().expect("it is free").len(), 2);
    assert_eq!((now_ns(), thread_number()), (0, 0));
}
