//! Tests of a connection alone: no socket, no thread, and the clock is an argument.

use braid_nbd_proto::{Command, wire};

use super::*;
use crate::budget::tests::BellCounter;
use crate::counters::Counts;
use crate::limits::{CONTENDED_DEADLINE, PROGRESS_DEADLINE, STRIDE_BYTES};
use crate::memory::MemoryExport;
use crate::registry::{Admission, AdmissionLimits};
use crate::settings::Settings;
use crate::socket::Socket;
use braid_ring::client::{ClientRequest, RequestError};

struct Table {
    shared: Arc<Shared>,
    connection: Connection,
    now: Instant,
    tasks: Vec<Task>,
    bell: Arc<BellCounter>,
    _peer: std::os::unix::net::UnixStream,
}

impl Table {
    fn new(settings: Settings) -> Self {
        let exports: Vec<Arc<dyn Export>> = vec![Arc::new(MemoryExport::new("a", 64 << 20))];
        Self::at(&Arc::new(Shared::new(exports, settings, None)))
    }

    fn at(shared: &Arc<Shared>) -> Self {
        let (ours, peer) = std::os::unix::net::UnixStream::pair().expect("two descriptors");
        let socket = Arc::new(Socket::new(ours.into(), false).expect("nothing is set on it"));
        let limits = AdmissionLimits { connections_max: 9, negotiating_max: 9, idle_limit: None };
        let Admission::Admitted { id, pulse, .. } = shared.registry.admit(&socket, &limits) else {
            panic!("there is room for it");
        };
        let (now, bell) = (Instant::now(), Arc::<BellCounter>::default());
        let identity = Identity { id, pulse, refusal: None };
        let ringing: Arc<dyn Bell> = Arc::<BellCounter>::clone(&bell);
        let connection = Connection::new(shared, identity, now, ringing);
        let shared = Arc::clone(shared);
        Self { shared, connection, now, tasks: Vec::new(), bell, _peer: peer }
    }

    /// A connection whose client has negotiated, and has read every message of the server.
    fn negotiated() -> Self {
        Self::new(Settings::default()).let_in()
    }

    fn let_in(mut self) -> Self {
        self.send();
        self.say(&3_u32.to_be_bytes());
        self.say(&wire::encode_option(wire::OPT_GO, &[0; 6]));
        self.send();
        assert!(self.connection.export().is_some());
        self
    }

    fn counts(&self) -> Counts {
        self.shared.counters.read(0, &self.shared.budget)
    }

    /// Sends as many of `bytes` as the connection receives; returns whether it received all.
    fn say(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            self.connection.advance(self.now);
            let Some(mut receive) = self.connection.receive() else { return false };
            let mut received = 0;
            for part in receive.parts() {
                let moved = part.len().min(bytes.len());
                part[..moved].copy_from_slice(&bytes[..moved]);
                bytes = &bytes[moved..];
                received += moved;
            }
            self.connection.received(receive, Ok(received));
        }
        self.connection.advance(self.now);
        true
    }

    fn ask(&mut self, command: Command, payload: &[u8]) -> bool {
        self.say(&[&command.header(7).encode()[..], payload].concat())
    }

    fn hang_up(&mut self) {
        let receive = self.connection.receive().expect("it is listened to");
        self.connection.received(receive, Ok(0));
        self.connection.advance(self.now);
    }

    fn send(&mut self) -> usize {
        self.connection.advance(self.now);
        let Some(batch) = self.connection.batch() else { return 0 };
        let bytes = batch.parts().map(<[u8]>::len).sum();
        self.connection.sent(batch, Ok(()));
        self.connection.advance(self.now);
        bytes
    }

    fn take(&mut self) -> Vec<(u32, ClientRequest)> {
        self.connection.take_tasks(&mut self.tasks);
        let submit = |task| match task {
            Task::Submit { slot, request } => (slot, request),
            Task::Claim { .. } => panic!("nothing was claimed"),
            Task::Describe { .. } => panic!("extents were not asked for"),
        };
        self.tasks.drain(..).map(submit).collect()
    }
}

#[test]
fn a_request_goes_in_and_its_reply_out() {
    let mut table = Table::negotiated();
    assert!(table.ask(Command::Write { offset: 5, length: 9, fua: true }, &[8; 9]));
    let mut tasks = table.take();
    let Some((slot, ClientRequest::Write { offset: 5, payload, durable: true })) = tasks.pop()
    else {
        panic!("{tasks:?}");
    };
    assert_eq!(&payload[..], [8; 9]);
    assert_eq!(table.send(), 0);
    table.connection.finished(slot, Outcome { result: Ok(()), payload: None });
    assert_eq!(table.send(), 16);
    let counts = table.counts();
    assert_eq!((counts.requests, counts.bytes_written, counts.bytes_in_flight), (1, 9, 0));
}

#[test]
fn nothing_is_listened_to_while_there_is_no_room() {
    let mut table = Table::negotiated();
    let most = crate::limits::IN_FLIGHT_REQUESTS_MAX;
    for _ in 0..most {
        assert!(table.ask(Command::Flush, &[]));
    }
    assert!(table.ask(Command::Flush, &[]), "its header had been asked for");
    let tasks = table.take();
    assert_eq!(tasks.len(), most);
    assert!(table.connection.receive().is_none(), "and no more");
    table.connection.finished(tasks[0].0, Outcome { result: Ok(()), payload: None });
    assert!(table.connection.receive().is_none(), "a reply that is not out is in flight");
    table.send();
    assert_eq!(table.take().len(), 1);
    assert!(table.connection.receive().is_some());
}

#[test]
fn the_end_of_the_stream_waits_for_replies_and_then_for_the_client() {
    let mut table = Table::negotiated();
    table.ask(Command::Flush, &[]);
    let tasks = table.take();
    table.hang_up();
    assert!(table.connection.receive().is_none() && !table.connection.takes_end_of_sending());
    table
        .connection
        .finished(tasks[0].0, Outcome { result: Err(RequestError::Dropped), payload: None });
    assert_eq!(table.send(), 16, "an error is a reply, too");
    assert!(table.connection.takes_end_of_sending() && !table.connection.takes_end_of_sending());
    let receive = table.connection.receive().expect("until the client closes");
    table.connection.received(receive, Ok(100));
    assert!(!table.connection.is_closed());
    table.hang_up();
    assert!(table.connection.is_gone());
    assert_eq!(table.counts().contract_breaches, 1);
}

#[test]
fn deadlines_end_negotiation_and_the_wait_for_the_client_only() {
    let mut table = Table::new(Settings::default());
    let deadline = table.connection.deadline().expect("negotiation has one");
    table.connection.handle_time(deadline - Duration::from_millis(1));
    assert!(!table.connection.is_closed());
    table.connection.handle_time(deadline);
    assert!(table.connection.is_gone());
    assert_eq!(table.counts().negotiations_failed, 1);

    let mut table = Table::negotiated();
    assert_eq!(table.connection.deadline(), None);
    table.connection.handle_time(deadline + Duration::from_secs(1000));
    assert!(!table.connection.is_closed());
    table.hang_up();
    assert!(table.connection.deadline().is_some());
    table.connection.handle_time(table.now + CLOSE_TIMEOUT);
    assert!(table.connection.is_gone());
    assert_eq!(table.counts().negotiations_failed, 0);
}

#[test]
fn a_client_that_does_not_read_its_answers_is_not_asked_for_more_options() {
    let mut table = Table::new(Settings::default());
    assert!(!table.say(&[0]), "the greeting comes first");
    table.send();
    assert!(table.say(&3_u32.to_be_bytes()));
    assert!(table.say(&wire::encode_option(wire::OPT_LIST, &[])));
    assert!(table.connection.receive().is_none());
    table.send();
    assert!(table.connection.receive().is_some());
}

#[test]
fn half_a_write_is_forgotten_with_its_memory() {
    for broken in [false, true] {
        let mut table = Table::negotiated();
        table.ask(Command::Write { offset: 0, length: 4096, fua: false }, &[1; 100]);
        assert_eq!(table.counts().bytes_in_flight, 4096);
        if broken {
            table.connection.close();
        } else {
            table.hang_up();
        }
        assert!(table.take().is_empty(), "half a write is no write");
        let counts = table.counts();
        assert_eq!((counts.bytes_in_flight, counts.bytes_written), (0, 0));
        assert_eq!(counts.errors, [0; 8]);
    }
}

#[test]
fn a_receive_that_is_out_when_the_end_comes_is_taken_back() {
    let mut table = Table::negotiated();
    table.ask(Command::Write { offset: 0, length: 4096, fua: false }, &[1; 100]);
    let receive = table.connection.receive().expect("the rest is wanted");
    table.connection.close();
    assert!(!table.connection.is_gone(), "its memory is away");
    table.connection.received(receive, Ok(50));
    assert!(table.connection.is_gone());
    assert_eq!(table.counts().bytes_in_flight, 0);
}

#[test]
fn what_was_not_carried_out_when_the_connection_broke_never_is() {
    let mut table = Table::negotiated();
    let read = Command::Read { offset: 0, length: 4096, dont_fragment: false };
    table.ask(read, &[]);
    let with_export = table.take();
    table.ask(read, &[]);
    table.connection.close();
    assert!(table.take().is_empty());
    assert_eq!(table.counts().bytes_in_flight, 4096, "one is with the export");
    let outcome = Outcome { result: Err(RequestError::Io("a test")), payload: None };
    table.connection.finished(with_export[0].0, outcome);
    assert!(table.connection.is_gone());
    assert_eq!(table.counts().bytes_in_flight, 0);
}

#[test]
fn a_stop_is_seen_before_the_next_request() {
    let mut table = Table::negotiated();
    table.ask(Command::Flush, &[]);
    table.shared.stopping.store(true, Ordering::Release);
    assert!(!table.ask(Command::Flush, &[]));
    assert_eq!(table.take().len(), 1);
    assert_eq!(table.counts().requests, 1);
}

const LONG: usize = 16 << 20;

fn long_write() -> Command {
    let length = u32::try_from(LONG).expect("16 MiB");
    Command::Write { offset: 0, length, fua: false }
}

#[test]
fn a_long_write_has_no_more_memory_than_twice_what_has_come() {
    let mut table = Table::negotiated();
    assert!(table.ask(long_write(), &[1]));
    let own = 128 << 10;
    assert_eq!(table.counts().bytes_in_flight, own as u64, "what 256 connections have each");
    let mut sent = 1;
    for bytes in [4096, 250_000, 8_000, 500_000, 4 << 20, 1 << 20] {
        assert!(table.say(&vec![7; bytes]));
        sent += bytes;
        let most = (2 * sent).max(own) as u64;
        let held = table.counts().bytes_in_flight;
        assert!(held >= sent as u64 && held <= most, "{held} bytes for {sent}");
    }
    assert!(table.say(&vec![7; LONG - sent]));
    let mut tasks = table.take();
    let Some((slot, ClientRequest::Write { payload, .. })) = tasks.pop() else {
        panic!("{tasks:?}")
    };
    assert!(payload.len() == LONG && payload[0] == 1 && payload[1..].iter().all(|byte| *byte == 7));
    table.connection.finished(slot, Outcome { result: Ok(()), payload: None });
    table.send();
    assert_eq!(table.counts().bytes_in_flight, 0);
    assert_eq!(table.counts().bytes_copied, 0);
    // The client has sent one whole payload; the next one is received in one go.
    assert!(table.ask(long_write(), &[1]));
    assert_eq!(table.counts().bytes_in_flight, LONG as u64);
    table.connection.close();
    assert_eq!(table.counts().bytes_in_flight, 0);
}

#[test]
fn a_write_that_has_to_wait_for_memory_goes_on_when_there_is_some() {
    let settings = Settings { payload_bytes_max: 48 << 20, ..Settings::default() };
    let mut first = Table::new(settings).let_in();
    let mut second = Table::at(&first.shared).let_in();
    let mut third = Table::at(&first.shared).let_in();
    // 32 MiB are granted, of which 24 are common. One write may have 16, and all growing writes
    // together may have 8.
    for (table, bytes) in [(&mut first, 4 << 20), (&mut second, 4 << 20)] {
        table.ask(long_write(), &[]);
        table.say(&vec![1; bytes + 1]);
    }
    third.ask(long_write(), &[]);
    let mut told = 0;
    while told < LONG && third.say(&vec![1; 1 << 16]) {
        told += 1 << 16;
    }
    assert!(told < LONG && third.connection.receive().is_none(), "it is not read from: {told}");
    assert!(third.counts().waiting_for_memory > 0);
    let rung = third.bell.count();
    for table in [&mut first, &mut second] {
        table.connection.close();
        table.shared.budget.ring();
    }
    assert!(third.bell.count() > rung, "it is told");
    while told < LONG && third.say(&vec![1; 1 << 16]) {
        told += 1 << 16;
    }
    // `told` counts only whole blocks that were sent, not the block in which the connection waited.
    let tasks = third.take();
    let [(_, ClientRequest::Write { payload, .. })] = &tasks[..] else { panic!("{tasks:?}") };
    assert_eq!((payload.len(), third.counts().waiting_for_memory), (LONG, 0));
}

#[test]
fn what_there_will_never_be_memory_for_is_answered_and_the_next_request_is_served() {
    let settings = Settings { payload_bytes_max: 48 << 20, ..Settings::default() };
    let mut table = Table::new(settings).let_in();
    table.shared.budget.set_limit(4 << 20);
    assert!(table.ask(long_write(), &vec![1; LONG]));
    assert_eq!(table.send(), 16, "the answer comes when the payload is past");
    let read = Command::Read { offset: 0, length: 16 << 20, dont_fragment: false };
    assert!(table.ask(read, &[]));
    assert_eq!(table.send(), 16);
    assert_eq!(table.counts().errors_of(ErrorCode::Memory), 2);
    assert!(table.ask(Command::Flush, &[]));
    assert_eq!(table.take().len(), 1);
    assert_eq!(table.counts().bytes_in_flight, 0);
}

#[test]
fn a_client_that_does_not_go_on_with_its_payload_is_cut() {
    let mut table = Table::negotiated();
    table.ask(Command::Write { offset: 0, length: 4096, fua: false }, &[1; 100]);
    let receive = table.connection.receive().expect("the rest is wanted");
    assert!(table.connection.is_half_done());
    let deadline = table.now + PROGRESS_DEADLINE;
    let first = table.connection.deadline().expect("there is one");
    assert_eq!(first, table.now + CONTENDED_DEADLINE, "others may have come to wait");
    table.connection.handle_time(first);
    assert_eq!(table.connection.deadline(), Some(deadline));
    table.connection.handle_time(deadline - Duration::from_millis(1));
    assert!(!table.connection.is_closed());
    table.connection.handle_time(deadline);
    assert!(table.connection.is_closed());
    table.connection.received(receive, Err(io::ErrorKind::BrokenPipe.into()));
    assert_eq!((table.counts().cut.stalled, table.counts().bytes_in_flight), (1, 0));
}

#[test]
fn a_client_that_does_not_take_its_reply_is_cut_and_one_that_takes_it_slowly_is_not() {
    let mut table = Table::negotiated();
    let length = 4 * STRIDE_BYTES;
    let bytes = u32::try_from(length).expect("2 MiB");
    let read = Command::Read { offset: 0, length: bytes, dont_fragment: false };
    table.ask(read, &[]);
    let (slot, _) = table.take().pop().expect("a read");
    assert_eq!(table.connection.deadline(), None, "the export takes as long as it likes");
    let payload = Some(Payload::zeroed(length));
    table.connection.finished(slot, Outcome { result: Ok(()), payload });
    let mut batch = table.connection.batch().expect("a reply");
    let mut now = table.now;
    for _ in 0..3 {
        now += PROGRESS_DEADLINE - Duration::from_millis(1);
        table.connection.handle_time(now);
        assert!(!batch.advance(STRIDE_BYTES));
        table.connection.goes_on_sending();
    }
    table.connection.handle_time(now + PROGRESS_DEADLINE);
    assert!(table.connection.is_closed());
    table.connection.sent(batch, Err(io::ErrorKind::BrokenPipe.into()));
    assert_eq!((table.counts().cut.stalled, table.counts().bytes_in_flight), (1, 0));
}

#[test]
fn a_client_that_sits_on_what_others_wait_for_is_cut_sooner() {
    let settings = Settings { payload_bytes_max: 48 << 20, ..Settings::default() };
    let mut sitting = Table::new(settings).let_in();
    let mut waiting = Table::at(&sitting.shared).let_in();
    let read = Command::Read { offset: 0, length: 16 << 20, dont_fragment: false };
    for table in [&mut sitting, &mut waiting] {
        table.ask(read, &[]);
    }
    let (slot, operation) = sitting.take().pop().expect("a read");
    let ClientRequest::Read { payload, .. } = operation else { panic!("{operation:?}") };
    let outcome = Outcome { result: Ok(()), payload: Some(payload) };
    sitting.connection.finished(slot, outcome);
    let batch = sitting.connection.batch().expect("a reply");
    let soon = sitting.now + CONTENDED_DEADLINE;
    assert!(waiting.take().is_empty() && waiting.counts().waiting_for_memory == 1);
    sitting.connection.handle_time(soon - Duration::from_millis(1));
    assert!(!sitting.connection.is_closed());
    sitting.connection.handle_time(soon);
    assert!(sitting.connection.is_closed());
    sitting.connection.sent(batch, Err(io::ErrorKind::BrokenPipe.into()));
    sitting.shared.budget.ring();
    assert_eq!(waiting.bell.count(), 1);
    waiting.connection.advance(waiting.now);
    assert_eq!(waiting.take().len(), 1);
}

/// Sends `bytes` one at a time, with a `pause` between; returns the connection's lifetime.
fn trickle(table: &mut Table, bytes: usize, pause: Duration) -> Duration {
    let begun = table.now;
    for _ in 0..bytes {
        let Some(mut receive) = table.connection.receive() else { break };
        table.now += pause;
        table.connection.handle_time(table.now);
        let part = receive.parts().find(|part| !part.is_empty()).expect("room for a byte");
        part[0] = 1;
        table.connection.received(receive, Ok(1));
        table.connection.advance(table.now);
        if table.connection.is_closed() {
            break;
        }
    }
    table.now - begun
}

#[test]
fn a_client_that_sends_a_byte_now_and_then_is_cut() {
    for length in [32 << 20, 40_000] {
        let mut table = Table::negotiated();
        table.ask(Command::Write { offset: 0, length, fua: false }, &[1; 9000]);
        let time = trickle(&mut table, 1000, Duration::from_secs(9));
        assert!(table.connection.is_closed(), "{length}");
        assert!(time >= PROGRESS_DEADLINE && time < 2 * PROGRESS_DEADLINE, "{length}: {time:?}");
        assert_eq!((table.counts().cut.stalled, table.counts().bytes_in_flight), (1, 0));
    }
}

#[test]
fn a_client_that_sends_in_small_pieces_and_fast_enough_is_not_cut() {
    let mut table = Table::negotiated();
    let length = 3 * STRIDE_BYTES;
    table
        .ask(Command::Write { offset: 0, length: u32::try_from(length).unwrap(), fua: false }, &[]);
    for _ in 0..length / 65536 {
        assert!(table.say(&[1; 65536]));
        table.now += Duration::from_millis(900);
        table.connection.handle_time(table.now);
    }
    assert_eq!(table.take().len(), 1);
}

#[test]
fn a_client_is_not_cut_because_the_server_did_not_run() {
    let mut table = Table::negotiated();
    table.ask(Command::Write { offset: 0, length: 32 << 20, fua: false }, &[1; 9000]);
    assert!(table.connection.receive().is_some());
    table.now += Duration::from_secs(3600);
    table.connection.was_not_looked_after(table.now);
    table.connection.handle_time(table.now);
    assert!(!table.connection.is_closed());
}

#[test]
fn a_long_write_is_answered_when_memory_becomes_less_than_it_wants() {
    let mut table = Table::negotiated();
    let write = Command::Write { offset: 0, length: 32 << 20, fua: false };
    assert!(table.ask(write, &vec![1; 9 << 20]));
    table.shared.budget.set_limit(4 << 20);
    assert!(table.say(&vec![1; 23 << 20]), "the rest is received to nowhere");
    assert!(table.take().is_empty());
    assert_eq!((table.counts().bytes_in_flight, table.counts().waiting_for_memory), (0, 0));
    assert!(table.send() > 0);
    assert!(table.ask(Command::Write { offset: 0, length: 4096, fua: false }, &[1; 4096]));
    assert_eq!(table.take().len(), 1);
}

#[test]
fn fewer_connections_get_no_more_than_there_is() {
    let tables: Vec<Table> = {
        let first = Table::negotiated();
        let more: Vec<Table> = (0..7).map(|_| Table::at(&first.shared).let_in()).collect();
        std::iter::once(first).chain(more).collect()
    };
    let shared = Arc::clone(&tables[0].shared);
    crate::tuner::Tuner::of(&shared).set_connections_max(1);
    let shares: usize =
        tables.iter().map(|_| shared.budget.own_left(&mut shared.budget.purse())).sum();
    assert!(shares <= shared.budget.limit_bytes() / 4, "{shares}");
}
