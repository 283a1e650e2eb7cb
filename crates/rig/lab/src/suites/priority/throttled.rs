//! The suite's clients and arrays in real time: slow members in memory, each served by a thread.
//!
//! A member's thread serves its queue in order of position, and adjacent requests as one, as a
//! disk's queue does. Each run of requests takes a fixed time, a run of reads longer than a run of
//! writes. Nothing here is exact; this file shows that the results of virtual time hold for threads
//! and clocks.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use braid_member::layer::Slow;
use braid_member::{Member, MemoryMember};

use super::backend::Backend;
use super::world::{Client, Outcome, Stream};
use crate::disk::DiskRequest;

/// The time that a run of reads takes: about half a turn of a fast disk.
pub(super) const READ: Duration = Duration::from_millis(3);
/// The time that a run of writes takes: writes go through a disk's cache.
pub(super) const WRITE: Duration = Duration::from_micros(300);
const RUN_SECTORS_MAX: u64 = 128;
const LIMIT: Duration = Duration::from_secs(20);

/// Runs the clients' requests to their end, in real time.
pub(super) fn run(backend: &mut dyn Backend, members: usize, streams: &[Stream]) -> Outcome {
    let (told, done) = channel();
    let mut outcome = Outcome::default();
    let start = Instant::now();
    thread::scope(|scope| {
        let queues: Vec<Sender<DiskRequest>> = (0..members)
            .map(|_| {
                let (queue, requests) = channel();
                let told = told.clone();
                scope.spawn(move || serve(&requests, &told));
                queue
            })
            .collect();
        let clients = (1..).zip(streams).map(|(seed, stream)| Client::new(seed, stream)).collect();
        Front { backend, queues, clients, start, next_id: 0 }.run(&done, &mut outcome);
    });
    outcome.time_ns = u64::try_from(start.elapsed().as_nanos()).expect("some years");
    (outcome.write_ns, outcome.read_ns) = (outcome.time_ns, outcome.time_ns);
    outcome.pre_read_sectors = backend.pre_read_sectors();
    outcome
}

fn serve(requests: &Receiver<DiskRequest>, done: &Sender<u64>) {
    let member = Slow::new(MemoryMember::new(1 << 40));
    member.delays().set_read(READ);
    member.delays().set_write(WRITE);
    let mut waiting: Vec<DiskRequest> = Vec::new();
    let mut bytes = vec![0x11; usize::try_from(RUN_SECTORS_MAX * 512).expect("64 KiB")];
    loop {
        if waiting.is_empty() {
            let Ok(first) = requests.recv() else { return };
            waiting.push(first);
        }
        waiting.extend(requests.try_iter());
        waiting.sort_by_key(|request| (request.is_write, request.sector));
        let first = waiting[0];
        let (mut end, mut count) = (first.sector, 0);
        for request in &waiting {
            let joins = request.is_write == first.is_write && request.sector == end;
            if !joins || end + request.sectors - first.sector > RUN_SECTORS_MAX {
                break;
            }
            (end, count) = (end + request.sectors, count + 1);
        }
        let length = usize::try_from((end - first.sector) * 512).expect("64 KiB");
        let run = &mut bytes[..length];
        let result = if first.is_write {
            member.write_at(run, first.sector * 512, false)
        } else {
            member.read_at(run, first.sector * 512)
        };
        result.expect("memory works");
        for request in waiting.drain(..count) {
            // `send` fails if the client has ended.
            let _gone = done.send(request.id);
        }
    }
}

/// The thread that serves the array and its clients.
struct Front<'a> {
    backend: &'a mut dyn Backend,
    queues: Vec<Sender<DiskRequest>>,
    clients: Vec<Client>,
    start: Instant,
    next_id: u64,
}

impl Front<'_> {
    fn run(mut self, done: &Receiver<u64>, outcome: &mut Outcome) {
        let mut is_flushed = false;
        loop {
            self.ask(outcome);
            if !is_flushed && self.clients.iter().all(Client::is_done) {
                is_flushed = true;
                self.backend.flush(self.now());
                self.carry_out(outcome);
            }
            if is_flushed && self.backend.is_idle() {
                return;
            }
            let timeout = self
                .backend
                .timeout()
                .map_or(LIMIT, |at| Duration::from_nanos(at.saturating_sub(self.now())).min(LIMIT));
            match done.recv_timeout(timeout) {
                Ok(id) => {
                    let now = self.now();
                    self.backend.disk_done(now, id);
                    done.try_iter().for_each(|id| self.backend.disk_done(now, id));
                }
                Err(RecvTimeoutError::Timeout) => {
                    assert!(timeout < LIMIT, "a member does not answer");
                    let now = self.now();
                    self.backend.handle_timeout(now);
                }
                Err(RecvTimeoutError::Disconnected) => unreachable!("this thread holds one end"),
            }
            self.carry_out(outcome);
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).expect("some years")
    }

    fn ask(&mut self, outcome: &mut Outcome) {
        let count = self.clients.len() as u64;
        while let Some(index) = self.clients.iter().position(Client::may_ask) {
            let id = self.next_id * count + index as u64;
            self.next_id += 1;
            let now = self.now();
            let request = self.clients[index].ask(id, now);
            self.backend.request(now, request);
            self.carry_out(outcome);
        }
    }

    fn carry_out(&mut self, outcome: &mut Outcome) {
        let effects = self.backend.take();
        for (member, request, _) in effects.disks {
            self.queues[member].send(request).expect("its thread lives as long as this end");
        }
        let count = self.clients.len() as u64;
        for id in effects.answers {
            let index = usize::try_from(id % count).expect("few clients");
            self.clients[index].answered(outcome);
        }
    }
}
