//! Posting, waking and stopping.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{FORGOTTEN, event_channel, file, workers};
use braid_ring::{
    Completion, Descriptor, Handler, Operation, Payload, Segments, Settings, Wake, Worker, Workers,
    WorkersStopped,
};

#[test]
fn tasks_run_on_the_worker_they_are_meant_for() {
    let (workers, (sender, receiver)) = (workers(3, 8), event_channel());
    assert!(workers.current().is_none());
    for on in 0..7 {
        workers.wake(on, sender.clone(), 9).expect("running");
        assert_eq!(receiver.next_wake(), (on % 3, 9));
    }
}

#[test]
fn afterwards_comes_after_everything_of_the_turn() {
    /// A handler that counts completions, and records the count when it is woken.
    struct Batch {
        completed: AtomicU64,
        sender: Arc<crate::common::EventSender>,
    }
    impl Handler for Batch {
        fn complete(self: Arc<Self>, worker: &Worker, _: Completion) {
            if self.completed.fetch_add(1, Ordering::SeqCst) == 0 {
                worker.afterwards(self, 0);
            }
        }
    }
    impl Wake for Batch {
        fn wake(self: Arc<Self>, worker: &Worker, _: u64) {
            let count = self.completed.load(Ordering::SeqCst);
            Arc::clone(&self.sender).wake(worker, count);
        }
    }
    let (workers, (sender, receiver)) = (workers(1, 64), event_channel());
    let batch = Arc::new(Batch { completed: AtomicU64::new(0), sender });
    // Empty reads complete within the submission, so all completions are in one batch.
    let submit = move |worker: &Worker| {
        let file = file(100);
        for token in 0..20 {
            let file = Arc::clone(&file);
            let read = Operation::Read { file, offset: 0, memory: Segments::new() };
            worker.submit(read, batch.clone(), token);
        }
    };
    workers.post(0, Box::new(submit)).expect("running");
    assert_eq!(receiver.next_wake(), (0, 20));
}

#[test]
fn stop_waits_for_what_is_in_flight() {
    let (workers, file, (sender, receiver)) = (workers(2, 4), file(64 << 20), event_channel());
    for token in 0..64 {
        let memory = Segments::from_iter([Payload::from(vec![1; 1 << 20]).into()]);
        let (file, offset) = (Arc::clone(&file), token << 20);
        let write = Operation::Write { file, offset, memory, durable: token % 8 == 0 };
        workers
            .submit(usize::try_from(token).expect("small"), write, sender.clone(), token)
            .expect("running");
    }
    workers.stop();
    let completions: Vec<Completion> = receiver.completions.try_iter().collect();
    assert_eq!(completions.len(), 64, "all have ended when stop returns");
    assert!(completions.iter().all(|completion| completion.result.is_ok()));
    let read = Operation::Read { file, offset: 0, memory: Segments::new() };
    assert_eq!(workers.submit(0, read, sender.clone(), 0), Err(WorkersStopped));
    assert_eq!(workers.wake(1, sender, 0), Err(WorkersStopped));
}

#[test]
fn stop_ends_what_waits_for_peers() {
    let (workers, (sender, receiver)) = (workers(2, 8), event_channel());
    let (ours, _theirs) = UnixStream::pair().expect("a socket pair");
    let socket: Descriptor = Arc::new(ours.into());
    for token in 0..2 {
        let memory = Segments::from_iter([vec![0; 10].into()]);
        let receive = Operation::Receive { socket: Arc::clone(&socket), memory, whole: true };
        workers
            .submit(usize::try_from(token).expect("small"), receive, sender.clone(), token)
            .expect("running");
    }
    workers.wake_at(0, Instant::now() + Duration::from_secs(600), sender, 7).expect("running");
    let start = Instant::now();
    workers.stop();
    assert!(start.elapsed() < Duration::from_secs(10));
    for completion in [receiver.next(), receiver.next()] {
        let error = completion.result.expect_err("cancelled");
        assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
    }
    assert_eq!(
        receiver.next_wake(),
        (FORGOTTEN, 7),
        "who waits for a moment is told that it does not come"
    );
}

/// Each completed write starts another on the next worker, until `left` is zero.
struct Relay {
    workers: std::sync::Weak<Workers>,
    file: Descriptor,
    left: AtomicU64,
}

impl Handler for Relay {
    fn complete(self: Arc<Self>, worker: &Worker, completion: Completion) {
        completion.result.expect("written");
        let before = self.left.load(Ordering::SeqCst);
        if before > 0 && self.left.fetch_sub(1, Ordering::SeqCst) > 0 {
            let workers = self.workers.upgrade().expect("stop waits for us");
            let next = worker.index() + 1;
            workers.wake(next, self, completion.token).expect("a worker is let");
        }
    }
}

impl Wake for Relay {
    fn wake(self: Arc<Self>, worker: &Worker, token: u64) {
        let memory = Segments::from_iter([vec![1; 512].into()]);
        let (file, offset) = (Arc::clone(&self.file), token * 512);
        let write = Operation::Write { file, offset, memory, durable: false };
        worker.submit(write, self, token);
    }
}

#[test]
fn a_stop_under_load_loses_nothing() {
    for round in 0..20 {
        let workers = Arc::new(workers(3, 4));
        let relay = Arc::new(Relay {
            workers: Arc::downgrade(&workers),
            file: file(1 << 20),
            left: AtomicU64::new(500 + round),
        });
        for token in 0..8 {
            workers
                .wake(usize::try_from(token).expect("small"), relay.clone(), token)
                .expect("running");
        }
        workers.stop();
        let left = relay.left.load(Ordering::SeqCst);
        assert!(left == 0 || left > u64::MAX / 2, "{left} were left undone");
        assert_eq!(Arc::strong_count(&relay), 1, "nothing holds it any more");
    }
}

#[test]
fn sleepers_are_woken_from_many_threads() {
    const THREADS: u64 = 4;
    const EACH: u64 = 5_000;
    let (workers, (sender, receiver)) = (workers(2, 8), event_channel());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (workers, sender) = (&workers, &sender);
            scope.spawn(move || {
                for count in 0..EACH {
                    let on = usize::try_from(thread + count).expect("small");
                    workers.wake(on, Arc::clone(sender) as Arc<dyn Wake>, 1).expect("running");
                }
            });
        }
    });
    let sum: u64 = (0..THREADS * EACH).map(|_| receiver.next_wake().1).sum();
    assert_eq!(sum, THREADS * EACH);
    let counters = workers.counters();
    assert_eq!(counters.posted, THREADS * EACH);
    assert!(counters.wakes <= counters.posted);
}

/// Whether all write ends of a pipe are closed.
fn is_over(reader: &mut std::io::PipeReader) -> bool {
    use std::os::fd::AsFd;
    let mut polled =
        [rustix::event::PollFd::from_borrowed_fd(reader.as_fd(), rustix::event::PollFlags::IN)];
    let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&zero)).expect("poll");
    polled[0].revents().contains(rustix::event::PollFlags::HUP)
}

#[test]
fn a_file_is_let_go_when_it_is_unregistered() {
    let workers = workers(3, 8);
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let writer: Descriptor = Arc::new(writer.into());
    workers.register(&writer);
    workers.unregister(&writer);
    drop(writer);
    assert!(is_over(&mut reader), "no process has it open");
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let writer: Descriptor = Arc::new(writer.into());
    workers.register(&writer);
    drop(writer);
    assert!(!is_over(&mut reader), "the rings have it open");
    workers.stop();
    assert!(
        is_over(&mut reader),
        "they let go when they end, and not when the kernel has cleared up"
    );
}

fn polling(busy_poll: Duration) -> Workers {
    let settings = Settings { workers: 1, busy_poll, ..Settings::default() };
    Workers::start(&settings).expect("io_uring is allowed where tests run")
}

#[test]
fn one_that_looks_need_not_be_woken() {
    let (workers, (sender, receiver)) = (polling(Duration::from_secs(60)), event_channel());
    for token in 0..20 {
        workers.wake(0, sender.clone(), token).expect("running");
        assert_eq!(receiver.next_wake(), (0, token));
    }
    let soon = Instant::now() + Duration::from_millis(20);
    workers.wake_at(0, soon, sender.clone(), 20).expect("running");
    assert_eq!(receiver.next_wake(), (0, 20));
    assert!(Instant::now() >= soon, "moments come, and not early");
    let submit = {
        let sender = sender.clone();
        move |worker: &Worker| worker.submit(Operation::Sync { file: file(100) }, sender, 21)
    };
    workers.post(0, Box::new(submit)).expect("running");
    assert_eq!(receiver.next().token, 21);
    let counters = workers.counters();
    assert_eq!((counters.sleeps, counters.wakes), (0, 0), "{counters:?}");
    let start = Instant::now();
    workers.stop();
    assert!(start.elapsed() < Duration::from_secs(30), "a stop is something to do");
}

#[test]
fn one_that_has_looked_long_enough_sleeps() {
    let (workers, (sender, receiver)) = (polling(Duration::from_millis(1)), event_channel());
    let start = Instant::now();
    while workers.counters().sleeps == 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "it never sleeps");
        std::thread::yield_now();
    }
    workers.wake(0, sender, 7).expect("running");
    assert_eq!(receiver.next_wake(), (0, 7), "and is woken");
}
