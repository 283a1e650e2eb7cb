//! Shuttle's large models: a volume with all its threads over memory members.
//!
//! The models check that nothing hangs, that every request is answered once, and that the arena's
//! promise holds at every access ([`crate::sync::witness`]). After the stop no operation may touch
//! a member.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use braid_concurrency::models::sample;
use braid_geometry::Level;
use shuttle::thread;

use super::array::Array;
use crate::sync::flaw::{Flaw, choose};
use crate::{
    ClientRequest, Completion, Elevator, ElevatorTuning, Multiplex, Notice, Payload, RequestError,
    Scheduling, Volume,
};

/// Number of schedules: more than enough to find each flaw, and few enough for one minute.
const SCHEDULES: usize = 150;

fn write(volume: &Volume, offset: u64, length: usize, byte: u8) -> Result<(), RequestError> {
    let payload = Payload::from(vec![byte; length]);
    volume.call(ClientRequest::Write { offset, payload, durable: false }).result
}

fn read(volume: &Volume, offset: u64, length: usize) -> Vec<u8> {
    let payload = Payload::from(vec![0xdb; length]);
    let outcome = volume.call(ClientRequest::Read { offset, payload });
    outcome.result.expect("a healthy read");
    outcome.payload.expect("a read gives its payload back").to_vec()
}

/// Writes and reads in one stripe and across regions, aligned and not, while counters are read.
fn serve(level: Level, slots: u16) {
    let name = format!("volume: two clients of {level}, and its counters");
    sample(&name, SCHEDULES, true, move || {
        let array = Array::new(level, slots);
        let volume = Arc::new(array.open(0, |_| {}));
        let other = Arc::clone(&volume);
        let client = thread::spawn(move || {
            // The first write crosses two regions, hence two shards; the second covers a part of a
            // sector.
            write(&other, (1 << 20) - 512, 1024, 1).expect("a healthy write");
            write(&other, 1000, 100, 2).expect("a healthy write");
            assert_eq!(read(&other, (1 << 20) - 512, 1024), [1; 1024]);
        });
        write(&volume, 4096, 512, 3).expect("a healthy write");
        let counters = volume.counters();
        assert!(counters.member_writes >= 1 && volume.missing_count() == 0);
        assert_eq!(read(&volume, 4096, 512), [3; 512]);
        client.join().expect("it does not panic");
        assert_eq!(read(&volume, 1000, 100), [2; 100]);
        assert!(volume.stop().clean);
        array.close();
    });
}

#[test]
fn two_clients_of_a_mirror_are_served_under_any_schedule() {
    serve(Level::Raid1, 2);
}

#[test]
fn two_clients_of_a_parity_array_are_served_under_any_schedule() {
    serve(Level::Raid5, 3);
}

/// Elevators dispatch one operation at a time, and reads and writes take turns. In the middle the
/// elevators are switched off and on again.
fn serve_in_turns() {
    sample("volume: elevators, turns, and a switch of both", SCHEDULES, true, || {
        let array = Array::new(Level::Raid5, 3);
        let scheduling = Scheduling {
            elevator: Elevator::Deadline,
            tuning: ElevatorTuning { depth: Some(1), ..ElevatorTuning::default() },
            multiplex: Multiplex::On,
            ..Scheduling::default()
        };
        let volume = Arc::new(array.open_scheduled(scheduling.clone(), 1, |_| {}));
        let other = Arc::clone(&volume);
        let client = thread::spawn(move || {
            write(&other, 4096, 8192, 1).expect("a healthy write");
            assert_eq!(read(&other, 4096, 8192), [1; 8192]);
        });
        write(&volume, 16384, 4096, 3).expect("a healthy write");
        volume.schedule(Scheduling::default());
        array.kill();
        assert_eq!(read(&volume, 16384, 4096), [3; 4096]);
        volume.schedule(scheduling);
        client.join().expect("it does not panic");
        assert_eq!(read(&volume, 4096, 8192), [1; 8192]);
        assert!(volume.elevators().iter().all(|one| one.counters.waiting_reads == 0));
        volume.stop();
        array.close();
    });
}

#[test]
fn elevators_and_turns_lose_nothing_under_any_schedule() {
    serve_in_turns();
}

#[test]
#[should_panic]
fn completions_that_let_nobody_out_are_caught() {
    braid_dispatch::flaw::choose(braid_dispatch::flaw::Flaw::DoneSilent);
    serve_in_turns();
}

#[test]
#[should_panic]
fn a_volume_whose_combiners_forget_is_caught() {
    braid_dispatch::flaw::choose(braid_dispatch::flaw::Flaw::NoLastLook);
    serve(Level::Raid1, 2);
}

/// Submissions race with a stop. Each request is answered once, with success or with the error of a
/// stop.
fn stop_in_the_middle() {
    sample("volume: requests race with the stop", SCHEDULES, true, || {
        let array = Array::new(Level::Raid1, 2);
        let volume = Arc::new(array.open(0, |_| {}));
        let (asked, answered) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let stopped = Arc::new(AtomicBool::new(false));
        let clients: Vec<_> = (0..2_u64)
            .map(|client| {
                let volume = Arc::clone(&volume);
                let (asked, answered) = (Arc::clone(&asked), Arc::clone(&answered));
                let stopped = Arc::clone(&stopped);
                thread::spawn(move || {
                    let payload = Payload::from(vec![7; 512]);
                    let operation = match client {
                        0 => ClientRequest::Write { offset: 512, payload, durable: true },
                        _ => ClientRequest::Flush,
                    };
                    asked.fetch_add(1, Ordering::SeqCst);
                    let done = move |outcome: crate::Outcome| {
                        answered.fetch_add(1, Ordering::SeqCst);
                        match outcome.result {
                            Ok(()) => assert!(!stopped.load(Ordering::SeqCst), "done, but stopped"),
                            Err(error) => assert_eq!(error, RequestError::Stopping),
                        }
                    };
                    volume.submit(operation, Completion::from_fn(done));
                })
            })
            .collect();
        let second = Arc::clone(&volume);
        let also = thread::spawn(move || second.stop());
        let ours = volume.stop();
        stopped.store(true, Ordering::SeqCst);
        array.close();
        assert!(ours.clean && !array.is_dirty(), "the superblocks are clean");
        assert_eq!(also.join().expect("it does not panic"), ours, "both hear the same");
        clients.into_iter().for_each(|client| client.join().expect("it does not panic"));
        let (asked, answered) = (asked.load(Ordering::SeqCst), answered.load(Ordering::SeqCst));
        assert_eq!(asked, answered, "every request is answered");
    });
}

#[test]
fn a_request_that_races_with_the_stop_is_answered() {
    stop_in_the_middle();
}

#[test]
#[should_panic]
fn a_request_that_slips_past_the_stop_is_caught() {
    choose(Flaw::CheckBeforeCount);
    stop_in_the_middle();
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_stop_that_leaves_threads_waiting_is_caught() {
    choose(Flaw::MembersNotStopped);
    stop_in_the_middle();
}

/// A member fails, and the array is stopped at once. The watcher must get the loss first, then the
/// stop.
fn lose_a_member_and_stop() {
    sample("volume: a member dies, then the stop", SCHEDULES, true, || {
        let array = Array::new(Level::Raid1, 3);
        let heard: Arc<Mutex<Vec<Notice>>> = Arc::default();
        let notes = Arc::clone(&heard);
        let hear = move |notice| notes.lock().expect("noting does not panic").push(notice);
        let volume = Arc::new(array.open(2, hear));
        array.kill();
        write(&volume, 0, 512, 1).expect("one member is left");
        assert_eq!(read(&volume, 0, 512), [1; 512]);
        assert!(volume.stop().clean);
        array.close();
        let heard = heard.lock().expect("noting does not panic").clone();
        let is_out = |notice: &&Notice| matches!(notice, Notice::MemberOut { .. });
        assert_eq!(heard.iter().filter(is_out).count(), 2, "{heard:?}");
        let last = heard.last().expect("something was heard");
        assert_eq!(*last, Notice::Stopped { clean: true }, "the end is heard last: {heard:?}");
    });
}

#[test]
fn the_loss_of_a_member_is_heard_before_the_end() {
    lose_a_member_and_stop();
}
