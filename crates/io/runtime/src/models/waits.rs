//! Shuttle's small models: a waiting thread is woken. Time stands still, so a lost wake-up is a
//! deadlock. The models try each waiter that a notification can wake.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use braid_concurrency::models::{explore, sample};
use braid_dispatch::Combiner;
use braid_engine::Instant;
use braid_engine::array::{MemberId, Notice};
use braid_engine::cause::Cause;
use braid_engine::request::{AdmissionMode, ShardIndex};
use braid_member::AnsweredBy;
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;

use crate::alarm::{Alarm, AlarmOutcome, Arm, SleepEnd, WakeTarget};
use crate::clock::Clock;
use crate::core::End;
use crate::events::Machine;
use crate::members::ring_admission::{RingAdmission, Route};
use crate::members::threads::Queue;
use crate::sync::flaw::{Flaw, choose};
use crate::waiter::{self, InFlight};
use crate::watch::Watch;
use crate::write_admission::WriteAdmission;
use braid_ring::client::Outcome;

/// Maximum schedules of a small model. A model with more schedules is cut off here.
const SCHEDULES_MAX: usize = 30_000;

/// An effect looks at the machine. A thread that still owned the machine would wait for itself.
fn effects_that_need_the_machine() {
    let model = || {
        let combiner = Arc::new(Combiner::new(0));
        let work = |combiner: &Combiner<usize, usize>| {
            combiner.push(1);
            let drive = |machine: &mut usize, events: &mut Vec<usize>| {
                *machine += events.drain(..).count();
            };
            combiner.combine(drive, |()| {
                assert!(
                    combiner.inspect(|machine| *machine, || combiner.combine(drive, |()| {})) >= 1
                );
            });
        };
        let theirs = Arc::clone(&combiner);
        let other = thread::spawn(move || work(&theirs));
        work(&combiner);
        other.join().expect("it does not panic");
        assert_eq!(combiner.inspect(|machine| *machine, || {}), 2, "every event is handled");
    };
    explore("combiner: effects without ownership", SCHEDULES_MAX, model);
    sample("combiner: effects without ownership", SCHEDULES_MAX / 10, false, model);
}

#[test]
fn effects_are_carried_out_without_ownership() {
    effects_that_need_the_machine();
}

#[test]
#[should_panic(expected = "already holds")]
fn effects_under_ownership_are_caught() {
    braid_dispatch::flaw::choose(braid_dispatch::flaw::Flaw::EffectsOwned);
    effects_that_need_the_machine();
}

/// A write that ends as soon as it has begun.
fn pass(admission: &WriteAdmission<AdmissionMode>, mode: AdmissionMode, passed: &AtomicUsize) {
    passed.fetch_add(1, Ordering::Relaxed);
    admission.leave(mode, |next| pass(admission, next, passed));
}

/// Two aligned writes and one unaligned write are admitted, twice.
fn admit_writes() {
    let model = || {
        let admission = Arc::new(WriteAdmission::default());
        let passed = Arc::new(AtomicUsize::new(0));
        let others: Vec<_> = (0..2)
            .map(|_| {
                let (admission, passed) = (Arc::clone(&admission), Arc::clone(&passed));
                thread::spawn(move || {
                    let is_in = admission.enter(AdmissionMode::Shared, AdmissionMode::Shared);
                    is_in.into_iter().for_each(|mode| pass(&admission, mode, &passed));
                })
            })
            .collect();
        for _ in 0..2 {
            let is_in = admission.enter(AdmissionMode::Exclusive, AdmissionMode::Exclusive);
            is_in.into_iter().for_each(|mode| pass(&admission, mode, &passed));
        }
        others.into_iter().for_each(|other| other.join().expect("it does not panic"));
        assert_eq!(passed.load(Ordering::Relaxed), 4, "every write has begun");
    };
    explore("write admission: every write begins", SCHEDULES_MAX, model);
    sample("write admission: every write begins", SCHEDULES_MAX / 10, false, model);
}

#[test]
fn every_write_is_admitted() {
    admit_writes();
}

#[test]
#[should_panic(expected = "every write has begun")]
fn an_admission_that_begins_no_write_is_caught() {
    choose(Flaw::LeaveSilent);
    admit_writes();
}

/// One thread queues operations and two threads do them. A stop comes while some are queued.
fn work_a_queue() {
    let model = || {
        let queue = Arc::new(Queue::new());
        let done = Arc::new(AtomicUsize::new(0));
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let (queue, done) = (Arc::clone(&queue), Arc::clone(&done));
                thread::spawn(move || {
                    while let Some(work) = queue.next() {
                        done.fetch_add(work, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        queue.push(1);
        queue.push(10);
        queue.push(100);
        queue.stop();
        workers.into_iter().for_each(|worker| worker.join().expect("it does not panic"));
        assert_eq!(done.load(Ordering::Relaxed), 111, "all work is done, and once");
    };
    explore("member queue: stopped with work in it", SCHEDULES_MAX, model);
    sample("member queue: stopped with work in it", SCHEDULES_MAX / 10, false, model);
}

#[test]
fn work_that_is_queued_is_done_before_the_threads_end() {
    work_a_queue();
}

#[test]
#[should_panic(expected = "all work is done")]
fn a_queue_that_ends_with_work_in_it_is_caught() {
    choose(Flaw::QueueEndsEarly);
    work_a_queue();
}

/// Three requests need the only place on the rings. Each request has its own thread, which carries
/// out every request that gets the place through it.
fn wait_for_room() {
    let ask = |admission: &RingAdmission<usize>, done: &AtomicUsize, request: usize| {
        let carry_out = |request| {
            done.fetch_add(request, Ordering::Relaxed);
            admission.leave();
        };
        match admission.route() {
            Route::Ring => carry_out(request),
            Route::Line => admission.keep(request),
            Route::Threads => panic!("nothing is suspected"),
        }
        while let Some((request, _)) = admission.next() {
            carry_out(request);
        }
    };
    let model = move || {
        let admission = Arc::new(RingAdmission::new(Some(2), AnsweredBy::Device));
        let done = Arc::new(AtomicUsize::new(0));
        let others: Vec<_> = [10, 100]
            .map(|request| {
                let (admission, done) = (Arc::clone(&admission), Arc::clone(&done));
                thread::spawn(move || ask(&admission, &done, request))
            })
            .into();
        ask(&admission, &done, 1);
        others.into_iter().for_each(|other| other.join().expect("it does not panic"));
        assert_eq!(done.load(Ordering::Relaxed), 111, "what waits for room gets it, once");
        assert!(!admission.is_busy(), "places are given back");
    };
    explore("ring admission: three for one place", SCHEDULES_MAX, model);
    sample("ring admission: three for one place", SCHEDULES_MAX / 10, false, model);
}

#[test]
fn what_waits_for_room_gets_it() {
    wait_for_room();
}

#[test]
#[should_panic(expected = "what waits for room gets it")]
fn a_line_that_is_forgotten_is_caught() {
    choose(Flaw::LineForgotten);
    wait_for_room();
}

/// The alarm's thread sleeps towards a moment far away when a nearer moment is set.
fn set_a_nearer_moment() {
    explore("alarm: a nearer moment, and the stop", SCHEDULES_MAX, || {
        let (alarm, clock) = (Arc::new(Alarm::new(1)), Clock::new());
        assert!(alarm.hand_over(), "a thread sleeps for it");
        let sleeper = Arc::clone(&alarm);
        let thread = thread::spawn(move || {
            let mut rings = 0;
            loop {
                match sleeper.sleep(&clock) {
                    SleepEnd::Stopped => return rings,
                    SleepEnd::Until(place) => {
                        let rang = sleeper.rang(place, clock.now());
                        rings +=
                            usize::from(matches!(rang, AlarmOutcome::Wake(WakeTarget::Due(_))));
                    }
                    SleepEnd::Disturbed => {}
                }
            }
        });
        assert_eq!(
            alarm.set(Machine::Array, Some(Instant(u64::MAX))),
            None,
            "a thread keeps the time"
        );
        assert_eq!(alarm.set(Machine::Array, Some(Instant(0))), None, "a thread keeps the time");
        alarm.stop();
        let rings = thread.join().expect("it does not panic");
        assert!(rings <= 1, "it rings once for a moment");
    });
}

#[test]
#[should_panic(expected = "it rings once")]
fn an_alarm_that_rings_on_is_caught() {
    choose(Flaw::AlarmRingsOn);
    set_a_nearer_moment();
}

/// As `set_a_nearer_moment`, but the thread that set the moment waits for it before the stop.
fn wait_for_a_nearer_moment() {
    explore("alarm: a nearer moment is not slept through", SCHEDULES_MAX, || {
        let (alarm, clock) = (Arc::new(Alarm::new(1)), Clock::new());
        assert!(alarm.hand_over(), "a thread sleeps for it");
        let sleeper = Arc::clone(&alarm);
        let thread = thread::spawn(move || while sleeper.sleep(&clock) == SleepEnd::Disturbed {});
        assert_eq!(
            alarm.set(Machine::Array, Some(Instant(u64::MAX))),
            None,
            "a thread keeps the time"
        );
        assert_eq!(alarm.set(Machine::Array, Some(Instant(0))), None, "a thread keeps the time");
        thread.join().expect("it does not panic");
    });
}

#[test]
fn the_alarm_ends_when_it_is_stopped() {
    set_a_nearer_moment();
}

#[test]
fn the_alarm_does_not_sleep_through_a_nearer_moment() {
    wait_for_a_nearer_moment();
}

#[test]
#[should_panic(expected = "deadlock")]
fn an_alarm_that_is_set_silently_is_caught() {
    choose(Flaw::AlarmSilent);
    wait_for_a_nearer_moment();
}

/// A worker's inbox.
#[derive(Default)]
struct Inbox {
    moments: Mutex<Vec<Arm>>,
    changed: Condvar,
}

impl Inbox {
    fn leave(&self, arm: Option<Arm>) {
        self.moments.lock().expect("no panic").extend(arm);
        self.changed.notify_one();
    }

    /// Waits until moments arrive, and takes them.
    fn wait(&self) -> Vec<Arm> {
        let mut moments = self.moments.lock().expect("no panic");
        while moments.is_empty() {
            moments = self.changed.wait(moments).expect("no panic");
        }
        std::mem::take(&mut *moments)
    }
}

/// Two threads set moments, one far and one near. A worker takes them, acts on each when it has
/// come, and wakes the machine for the near one, once.
fn keep_moments_with_a_worker() {
    let model = || {
        let alarm = Arc::new(Alarm::new(2));
        let inbox = Arc::new(Inbox::default());
        let set = |shard: u16, moments: [u64; 2]| {
            let (alarm, inbox) = (Arc::clone(&alarm), Arc::clone(&inbox));
            move || {
                for moment in moments {
                    let moment = Some(Instant(moment));
                    inbox.leave(alarm.bring_forward(ShardIndex(shard), moment));
                }
            }
        };
        let far = u64::MAX;
        let others = [thread::spawn(set(0, [far, 5])), thread::spawn(set(1, [7, far]))];
        let mut woken = [0, 0];
        while woken != [1, 1] {
            for Arm { place, at } in inbox.wait() {
                // The far moment never comes, since time stands still.
                if at.0 == far {
                    continue;
                }
                match alarm.rang(place, at) {
                    AlarmOutcome::Wake(WakeTarget::Due(Machine::Shard(shard))) => {
                        woken[usize::from(shard.0)] += 1;
                    }
                    AlarmOutcome::Wake(other) => panic!("{other:?}"),
                    AlarmOutcome::Later(arm) => inbox.leave(Some(arm)),
                    AlarmOutcome::Nothing => {}
                }
            }
            assert!(woken.iter().all(|count| *count <= 1), "a moment is told once");
        }
        others.into_iter().for_each(|other| other.join().expect("it does not panic"));
        // The next moment of a woken machine is armed like the first.
        let next = alarm.bring_forward(ShardIndex(0), Some(Instant(9))).expect("armed anew");
        assert_eq!(next.at, Instant(9), "armed anew");
    };
    explore("alarm: moments that a worker keeps", SCHEDULES_MAX, model);
    sample("alarm: moments that a worker keeps", SCHEDULES_MAX / 10, false, model);
}

#[test]
fn a_moment_that_workers_keep_is_neither_lost_nor_told_twice() {
    keep_moments_with_a_worker();
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_nearer_moment_that_no_worker_is_given_is_caught() {
    choose(Flaw::AlarmSilent);
    keep_moments_with_a_worker();
}

#[test]
#[should_panic(expected = "armed anew")]
fn a_moment_that_stays_armed_is_caught() {
    choose(Flaw::ArmedStays);
    keep_moments_with_a_worker();
}

/// A caller asks, and another thread answers before the caller waits or while it sleeps; each
/// happens twice.
fn call_and_be_told() {
    explore("caller: told before it sleeps, or woken", SCHEDULES_MAX, || {
        for _ in 0..2 {
            let outcome = waiter::wait_for(|waiter| {
                thread::spawn(move || waiter.tell(Outcome { result: Ok(()), payload: None }));
            });
            assert_eq!(outcome.result, Ok(()), "what was told is what is heard");
        }
    });
}

#[test]
fn a_caller_hears_of_the_end() {
    call_and_be_told();
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_caller_that_is_not_woken_is_caught() {
    choose(Flaw::CallerSleepsOn);
    call_and_be_told();
}

/// Two requests are answered while a stop waits for both answers.
fn wait_for_the_last_answer() {
    explore("requests in flight: the last answer", SCHEDULES_MAX, || {
        let in_flight = Arc::new(InFlight::default());
        let answered = Arc::new(AtomicUsize::new(0));
        let _ = (in_flight.enter(), in_flight.enter());
        for _ in 0..2 {
            let (in_flight, answered) = (Arc::clone(&in_flight), Arc::clone(&answered));
            thread::spawn(move || {
                answered.fetch_add(1, Ordering::Relaxed);
                in_flight.leave();
            });
        }
        in_flight.wait_for_none();
        assert_eq!(answered.load(Ordering::Relaxed), 2, "no wait is too short");
    });
}

#[test]
fn a_stop_waits_for_the_last_answer() {
    wait_for_the_last_answer();
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_last_answer_that_wakes_nobody_is_caught() {
    choose(Flaw::LastAnswerSilent);
    wait_for_the_last_answer();
}

/// Two threads wait for the end of the array.
fn wait_for_the_end() {
    explore("end of the array: two wait for it", SCHEDULES_MAX, || {
        let end = Arc::new(End::default());
        let wait = |end: &Arc<End>| {
            let end = Arc::clone(end);
            thread::spawn(move || assert!(end.wait(), "what was set is what is heard"))
        };
        let waiters = [wait(&end), wait(&end)];
        end.set(true);
        waiters.into_iter().for_each(|waiter| waiter.join().expect("it does not panic"));
    });
}

#[test]
fn everybody_who_waits_for_the_end_hears_of_it() {
    wait_for_the_end();
}

#[test]
#[should_panic(expected = "deadlock")]
fn an_end_that_wakes_one_of_two_is_caught() {
    choose(Flaw::EndWakesOne);
    wait_for_the_end();
}

/// One thread sends notices while another ends the channel.
fn watch_to_the_end() {
    explore("watch: told, ended, heard", SCHEDULES_MAX, || {
        let heard = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&heard);
        let hear = move |notice| {
            let Notice::Broken { member, .. } = notice else { panic!("only that was told") };
            let before = count.fetch_add(1, Ordering::Relaxed);
            assert_eq!(before, usize::from(member.0), "notices are heard in order");
        };
        let watch = Arc::new(Watch::start(hear).expect("a model has threads"));
        let teller = Arc::clone(&watch);
        let other = thread::spawn(move || teller.end());
        for member in [0, 1].map(MemberId) {
            watch.tell(Notice::Broken { member, cause: Cause::vanished(member) });
        }
        watch.end();
        let ours = heard.load(Ordering::Relaxed);
        other.join().expect("it does not panic");
        assert_eq!(heard.load(Ordering::Relaxed), ours, "nothing is heard after the end");
    });
}

#[test]
fn notices_are_heard_in_order_and_before_the_end() {
    watch_to_the_end();
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_watcher_that_is_not_told_of_the_end_is_caught() {
    choose(Flaw::WatchNotEnded);
    watch_to_the_end();
}
